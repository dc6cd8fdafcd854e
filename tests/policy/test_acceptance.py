"""Whole policies: those in ``positive/`` load, those in ``negative/`` give exactly the errors their first lines name.

A first line reads ``# error: LINE:COLUMN CODE PATH`` (or ``warning``, ``note``); 0:0 is the file as a whole.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shipgen.diagnostics import Diagnostic, PolicyError, Severity
from shipgen.policy import load

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


def cases(folder: str) -> list[Path]:
    return sorted((HERE / folder).glob("*.yaml"))


def expected(path: Path) -> list[tuple[str, ...]]:
    text = path.read_text("utf-8-sig")
    found = re.findall(r"^# (error|warning|note): (\d+:\d+) ([a-z-]+) ?(.*)$", text, re.MULTILINE)
    return sorted(found)


def seen(diagnostics: list[Diagnostic]) -> list[tuple[str, ...]]:
    assert all(one.place is not None for one in diagnostics)
    return sorted(
        (one.severity.value, f"{p.line}:{p.column}", one.code, one.path) for one in diagnostics if (p := one.place)
    )


@pytest.mark.parametrize("path", cases("positive"), ids=lambda path: path.stem)
def test_accepted(path: Path) -> None:
    assert seen(load([str(path)]).diagnostics) == expected(path)


@pytest.mark.parametrize("path", cases("negative"), ids=lambda path: path.stem)
def test_refused(path: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        load([str(path)])
    errors = [one for one in caught.value.diagnostics if one.severity is Severity.ERROR]
    assert seen(errors) == expected(path)
    for one in errors:
        assert one.message.isprintable()
        assert "hunter2" not in one.message, "a secret is never repeated"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_clean(path: Path) -> None:
    assert load([str(path)]).diagnostics == []


def test_every_error_has_a_way_out() -> None:
    """Each message says what would be right: as a hint, or because the text itself does."""
    for path in cases("negative"):
        with pytest.raises(PolicyError) as caught:
            load([str(path)])
        for one in caught.value.diagnostics:
            assert one.hint or re.search(
                r" is not |needs |must be|required|not every|pattern|once|more than", one.text
            ), one


# --- the same mistakes in one of two files ---

SMALL = "version: 1\nname: z\nsources: {zz: {type: ray}}\nsinks: {zz: {type: console}}\n"


def placed(files: list[str]) -> list[tuple[str, ...]]:
    """Errors with the file that they are in."""
    with pytest.raises(PolicyError) as caught:
        load(files)
    found = [one for one in caught.value.diagnostics if one.severity is Severity.ERROR]
    return sorted((p.file, f"{p.line}:{p.column}", one.code, one.path) for one in found if (p := one.place))


@pytest.mark.parametrize("path", cases("negative"), ids=lambda path: path.stem)
def test_mistakes_under_another_file(path: Path, tmp_path: Path) -> None:
    """Whatever comes over a file, its mistakes stay where they are."""
    over = tmp_path / "over.yaml"
    over.write_text("parsing: {timezone: UTC}\n" if "timezone" not in path.stem else "cluster: zz\n")
    assert placed([str(path), str(over)]) == placed([str(path)])


@pytest.mark.parametrize("path", cases("negative"), ids=lambda path: path.stem)
def test_mistakes_over_another_file(path: Path, tmp_path: Path) -> None:
    """What a file below already has can't be missing; all other mistakes stay where they are."""
    under = tmp_path / "under.yaml"
    under.write_text(SMALL)
    alone = placed([str(path)])
    if {code for _, _, code, _ in alone} & {"missing-key", "empty"}:
        return
    assert [one[:3] for one in placed([str(under), str(path)])] == [one[:3] for one in alone]


OVERLAID = [
    # base, over, where the error is said to be
    ("sinks: {l: {type: loki, endpoint: http://l}}", "sinks: {l: {endpoint: l}}", "over.yaml:1:23"),
    ("sinks:\n  l: {type: loki, endpoint: l}", "cluster: x", "base.yaml:2:29"),
    ("sinks: {l: {type: loki, endpoint: http://l}}", "sinks: {l: {endpoint: null}}", "over.yaml:1:23"),
    ("sinks:\n  l: {type: loki}", "sinks: {l: {tenant: x}}", "base.yaml:2:3"),
    ("parsing: {rules: [{name: a, drop: true}]}", "parsing: {rules: [{name: a, sample: 2}]}", "over.yaml:1:37"),
    ("parsing: {rules: [{name: a, when: {level: x}, drop: true}]}", "parsing: {rules: [{name: b, drop: true}]}",
     "base.yaml:1:43"),
    ("parsing: {rules: [{name: a, drop: true}]}",
     "parsing:\n  rules:\n    - {name: b, redact: {kind: email}}\n    - {name: c, when: {level: x}, drop: true}",
     "over.yaml:4:31"),
    ("sources: {a: {type: file, paths: [/a, b]}}", "sources: {a: {paths: [/a, c]}}", "over.yaml:1:27"),
    ("sources: {a: {type: file, paths: [/a, b]}}", "sources: {a: {start: end}}", "base.yaml:1:39"),
    ("sinks: {l: {type: console, from: [gone]}}", "sources: {other: {type: ray}}", "base.yaml:1:35"),
    ("ray: {temp_dir: /data}", "collector: {state_dir: /data/x}", "over.yaml:1:24"),
    ("collector: {state_dir: /data/x}", "ray: {temp_dir: /data}", "base.yaml:1:24"),
    ("sinks: {l: {type: loki, endpoint: http://l, tenant: t}}", "sinks: {l: {type: console}}", "base.yaml:1:25"),
    ("sinks: {l: {type: loki, endpoint: http://l, labels: {fields: [node]}}}",
     "sinks: {l: {labels: {static: {node: x}}}}", "base.yaml:1:63"),
]


@pytest.mark.parametrize(("base", "over", "where"), OVERLAID)
def test_errors_point_into_the_file_that_the_value_came_from(
    base: str, over: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rest = {"version": "1", "name": "z", "sources": "{r: {type: ray}}", "sinks": "{c: {type: console}}"}
    lacking = [f"{key}: {value}" for key, value in rest.items() if not base.startswith(key)]
    Path("base.yaml").write_text("\n".join([base, *lacking, ""]))
    Path("over.yaml").write_text(f"{over}\n")
    found = [f"{file}:{at}" for file, at, _, _ in placed(["base.yaml", "over.yaml"])]
    assert where in found
