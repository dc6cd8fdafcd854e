"""The strict Jinja2 environment: nothing is printed but what a quoting filter returned, and undefined is an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
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


def _defined(quote: Callable[..., Quoted]) -> Callable[..., Quoted]:
    @wraps(quote)
    def checked(*values: Any) -> Quoted:
        for value in values:
            if isinstance(value, jinja2.Undefined):
                str(value)  # raises, and names it
        return quote(*values)

    return checked


def templates_dir() -> Path:
    """Where the templates are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


class _CompiledTemplates(jinja2.BytecodeCache):
    """Compiled templates in the user's cache directory: compiling them takes longer than all else that a render does.

    A cache that can't be read or written is no error. Jinja2 itself checks that an entry is of this template's source.
    """

    def __init__(self) -> None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - Path.home() raises
        # a relative one, or that of a user without a home, is none
        self._directory = home / "shipgen" if home.is_absolute() else None

    def _file(self, bucket: jinja2.bccache.Bucket) -> Path:
        if self._directory is None:
            raise FileNotFoundError
        return self._directory / f"{bucket.key}.jinja"

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Read an entry; a damaged one is taken for none."""
        try:
            with self._file(bucket).open("rb") as file:
                bucket.load_bytecode(file)
        except (OSError, ValueError, EOFError, TypeError):
            bucket.reset()

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Write an entry whole or not at all."""
        try:
            file = self._file(bucket)
            temporary = file.with_name(f"{file.name}.{os.getpid()}")
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.write_bytes(bucket.bytecode_to_string())
            temporary.replace(file)
        except OSError:
            return


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
        bytecode_cache=_CompiledTemplates(),
        newline_sequence="\n",
    )
    # of Jinja2's own filters none that passes text on unquoted, as `safe` and `tojson` do
    env.filters = {"join": env.filters["join"]} | {name: _defined(quote) for name, quote in FILTERS.items()}
    return env


def render(template: str, **context: Any) -> str:
    """Render one template; LF line ends, exactly one at the end."""
    text = environment().get_template(template).render(**context)
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n") + "\n"
