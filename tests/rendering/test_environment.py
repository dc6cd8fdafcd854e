"""The strict environment: what no filter has seen is not printed, and templates are found wherever shipgen lives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import jinja2.nodes
import pytest

from shipgen.rendering import environment
from shipgen.rendering.environment import UnquotedError, render, templates_dir
from shipgen.rendering.quoting import FILTERS, Quoted

CHECKOUT = Path(__file__).parents[2]
TEMPLATES = sorted(str(p.relative_to(templates_dir())) for p in templates_dir().rglob("*.j2"))


def printed(template: str, **context: Any) -> str:
    return environment.environment().from_string(template).render(**context)


@pytest.mark.parametrize("template", [
    "{{ x }}", "{{ x ~ x }}", "{{ x ~ 'a' }}", "{{ x[0] }}", "{{ x if x else x }}", "{{ [x] }}", "{{ x | join }}",
    "{{ ['a', x] | join(',') }}", "{% macro m(v) %}{{ v }}{% endmacro %}{{ m(x) }}",
    "{% set y %}{{ x }}{% endset %}{{ y }}", "{% for c in x %}{{ c }}{% endfor %}", "{{ x.upper() }}", "{{ loop }}",
])
def test_bare_values_are_refused(template: str) -> None:
    with pytest.raises((UnquotedError, jinja2.UndefinedError)):
        printed(template, x="text")


@pytest.mark.parametrize("name", ["safe", "e", "escape", "tojson", "forceescape", "urlize", "xmlattr", "string"])
def test_filters_that_quote_for_other_grammars_are_not_there(name: str) -> None:
    with pytest.raises(jinja2.TemplateAssertionError, match=f"No filter named '{name}'"):
        printed("{{ x | " + name + " }}", x="text")


@pytest.mark.parametrize("template", [
    "{{ y }}", "{{ x.y }}", "{{ x['y'] }}", "{% if y %}{% endif %}", "{% for c in y %}{% endfor %}",
    "{{ y.z | yaml }}", "{% set z = y %}{{ z }}", "{% if x.y == 1 %}{% endif %}", "{{ y() }}",
])
def test_undefined_is_an_error(template: str) -> None:
    with pytest.raises(jinja2.UndefinedError):
        printed(template, x={})


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_no_filter_prints_undefined(name: str) -> None:
    with pytest.raises(jinja2.UndefinedError, match="'y' is undefined"):
        printed("{{ y | " + name + ("(2)" if name == "indented" else "") + " }}")


def test_quoted_values_are_printed() -> None:
    assert printed("{{ x | yaml }}", x="<a & 'b'>") == "\"<a & 'b'>\""
    assert printed("{% macro m(v) %}[{{ v | yaml }}]{% endmacro %}{{ m(x) }}", x='"') == r'["\""]'
    assert printed("{% set y %}{{ x | yaml }}{% endset %}{{ y }}", x="&") == '"&"'
    assert printed("{{ x }}", x=Quoted("<&>")) == "<&>"


def parsed() -> Iterator[tuple[str, jinja2.nodes.Template]]:
    for name in TEMPLATES:
        yield name, environment.environment().parse((templates_dir() / name).read_text("utf-8"))


@pytest.mark.parametrize(("name", "tree"), list(parsed()), ids=TEMPLATES)
def test_templates_print_through_one_quoting_filter(name: str, tree: jinja2.nodes.Template) -> None:
    """Markup's own operators escape for HTML what they are given: only results of filters and macros are printed, and
    blocks that were set from printed text."""
    blocks = {block.target.name for block in tree.find_all(jinja2.nodes.AssignBlock)}
    for loop in tree.find_all(jinja2.nodes.For):
        if isinstance(loop.iter, jinja2.nodes.Tuple) and {getattr(i, "name", None) for i in loop.iter.items} <= blocks:
            blocks.add(loop.target.name)
    for output in tree.find_all(jinja2.nodes.Output):
        for node in output.nodes:
            if isinstance(node, jinja2.nodes.Filter):
                assert node.name in FILTERS, f"{name}: {node.name}"
            elif isinstance(node, jinja2.nodes.Name):
                assert node.name in blocks, f"{name}: {node.name}"
            else:
                assert isinstance(node, jinja2.nodes.TemplateData | jinja2.nodes.Call | jinja2.nodes.CondExpr), name


def test_line_ends_are_lf_and_one_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.j2").write_bytes(b"a: {{ x | yaml }}  \r\n\r\nb: \xe2\x80\xa8 c \x0c\n\n\n")
    monkeypatch.setattr(environment, "templates_dir", lambda: tmp_path)
    environment.environment.cache_clear()
    try:
        assert render("t.j2", x="\x0c \u2028 ") == 'a: "\\f \\u2028 "\n\nb: \u2028 c\n'
    finally:
        environment.environment.cache_clear()


# --- where the templates are ---

SCRIPT = "from shipgen.rendering import environment as e; print(e.templates_dir()); e.render('vector/drop.vrl.j2', f=F)"
CONTEXT = "F = {'when': {'kind': 'exists', 'field': 'a'}}; "


def python(code: str, path: Path, **env: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env={**clean, "PYTHONPATH": str(path), **env}, cwd="/", check=True,
        capture_output=True, text=True,
    )
    return done.stdout.strip()


def test_in_the_checkout(tmp_path: Path) -> None:
    assert python(CONTEXT + SCRIPT, CHECKOUT, XDG_CACHE_HOME=str(tmp_path)) == str(CHECKOUT / "templates")


def test_as_installed(tmp_path: Path) -> None:
    """A wheel has the templates inside the package."""
    shutil.copytree(CHECKOUT / "shipgen", tmp_path / "shipgen", ignore=shutil.ignore_patterns("__pycache__", "sample"))
    shutil.copytree(CHECKOUT / "templates", tmp_path / "shipgen" / "templates")
    assert python(CONTEXT + SCRIPT, tmp_path, XDG_CACHE_HOME=str(tmp_path)) == str(tmp_path / "shipgen" / "templates")


def test_the_wheel_has_them() -> None:
    import tomllib

    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["templates"] == "shipgen/templates"


# --- the cache of compiled templates ---


def test_cache_is_used_and_may_be_damaged(tmp_path: Path) -> None:
    def cached() -> list[Path]:
        return sorted((tmp_path / "shipgen").glob("*.jinja"))

    python(CONTEXT + SCRIPT, CHECKOUT, XDG_CACHE_HOME=str(tmp_path))
    first = [p.read_bytes() for p in cached()]
    assert len(first) == 2
    for damage in (b"", b"\x00", first[0][:-10]):
        for path in cached():
            path.write_bytes(damage)
        python(CONTEXT + SCRIPT, CHECKOUT, XDG_CACHE_HOME=str(tmp_path))
        assert [p.read_bytes() for p in cached()] == first
    assert not [p for p in (tmp_path / "shipgen").iterdir() if p.suffix != ".jinja"]


@pytest.mark.parametrize("home", ["/dev/null", "/dev/null/x", "relative", "/proc/none"])
def test_cache_is_not_needed(home: str, tmp_path: Path) -> None:
    code = f"import os; os.chdir({str(tmp_path)!r}); " + CONTEXT + SCRIPT
    assert python(code, CHECKOUT, XDG_CACHE_HOME=home)
    assert not list(tmp_path.iterdir())
