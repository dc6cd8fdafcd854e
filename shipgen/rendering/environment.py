"""The strict Jinja2 environment: nothing is printed but what a quoting filter returned; an undefined name is an error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from shipgen.rendering.quoting import FILTERS, Quoted


class UnquotedError(TypeError):
    """A template prints a value that no quoting filter has seen: a fault in shipgen, never in a policy."""


def _refuse_unquoted(value: Any) -> Any:
    if isinstance(value, Quoted | jinja2.Undefined):
        return value
    raise UnquotedError(f"printed without a quoting filter: {value!r}")


def templates_dir() -> Path:
    """Where the templates are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


@cache
def environment() -> jinja2.Environment:
    """The one environment all templates are rendered with."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        autoescape=True,  # makes macros return Quoted, so that their output may be printed
        finalize=_refuse_unquoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        newline_sequence="\n",
    )
    env.filters.update(FILTERS)
    return env


def render(template: str, **context: Any) -> str:
    """Render one template; LF line ends, exactly one at the end."""
    text = environment().get_template(template).render(**context)
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n") + "\n"
