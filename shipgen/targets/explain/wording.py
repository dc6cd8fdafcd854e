"""How `explain` says things: numbers, lists, conditions and rules in words, and a page of plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from shipgen.pipeline import conditions
from shipgen.pipeline.conditions import ALWAYS, NEVER, Condition
from shipgen.pipeline.model import Rule
from shipgen.pipeline.rotation import size
from shipgen.policy.units import DURATION_UNITS

__all__ = ["Page", "code", "condition", "count", "duration", "listing", "records", "rule", "size", "span", "text"]

WIDTH = 110
_GLUE = "\x00"
"""Stands for a blank at which a line is not broken; no value of a policy holds it."""


# --- values ---


def _printable(value: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in value)


def code(value: object) -> str:
    """Something that is written just so: a name, a path, a regex."""
    return f"`{_printable(str(value))}`".replace(" ", _GLUE)


def text(value: object) -> str:
    """A literal text."""
    return f'"{_printable(str(value))}"'.replace(" ", _GLUE)


def listing(words: Iterable[str], last: str = "and") -> str:
    """``a, b and c``."""
    *first, end = list(words) or ["none"]
    return f"{', '.join(first)} {last} {end}" if first else end


def count(number: int, word: str, words: str = "") -> str:
    """``1 file``, ``1,234 files``."""
    return f"{number:,} {word if number == 1 else words or word + 's'}"


def share(rate: float) -> str:
    """A share as a percentage: ``10%``."""
    return f"{rate * 100:.10g}%"


def duration(milliseconds: int) -> str:
    """A duration as a policy writes it, in the largest unit that leaves no fraction: ``7d``, ``90s``."""
    unit = next(u for u in reversed(DURATION_UNITS) if milliseconds % DURATION_UNITS[u] == 0)
    return f"{milliseconds // DURATION_UNITS[unit]}{unit}"


def span(seconds: float) -> str:
    """A time that was worked out, in hours where people would want hours: ``25.6 minutes``, ``4.2 hours``."""
    units = (("day", 86_400), ("hour", 3600), ("minute", 60))
    name, unit = next((u for u in units if seconds >= 2 * u[1]), ("second", 1))
    number = f"{seconds / unit:.1f}".removesuffix(".0")
    return f"{number} {name}" if number == "1" else f"{number} {name}s"


# --- conditions and rules ---


def condition(of: Condition) -> str:
    """A condition as the rest of a sentence that begins with "records where"."""
    match of:
        case conditions.Is(field, values):
            return f"{code(field)} is {listing((text(v) for v in values), 'or')}"
        case conditions.Matches(field, regex):
            return f"{code(field)} matches {code(regex)}"
        case conditions.Exists(field):
            return f"{code(field)} is there"
        case conditions.Below(level):
            return f"the level is below {level}"
        case conditions.Not(conditions.Below(level)):
            return f"the level is {level} or graver, or there is none"
        case conditions.Not(conditions.Exists(field)):
            return f"{code(field)} is absent"
        case conditions.Not(inner):
            return f"this does not hold: ({condition(inner)})"
        case conditions.All(parts):
            return " and ".join(_part(p) for p in parts)
        case conditions.Any_(parts):
            return " or ".join(_part(p) for p in parts)


def _part(of: Condition) -> str:
    """A condition as part of another."""
    match of:
        case conditions.All() | conditions.Any_() | conditions.Not(conditions.Below()):
            return f"({condition(of)})"
    return condition(of)


def records(when: Condition) -> str:
    """The records for which a condition holds."""
    if when == ALWAYS:
        return "all records"
    return "no record" if when == NEVER else f"records where {condition(when)}"


def rule(of: Rule) -> str:
    """What a rule does, in a sentence without its name."""
    whom, options = records(of.when), of.options
    match of.action:
        case "drop":
            return f"throws away {whom}"
        case "sample":
            by = f"; those with the same {code(options['by'])} are kept or dropped together" if "by" in options else ""
            return f"keeps {share(options['rate'])} of {whom}, and notes that as {code('sample_rate')}{by}"
        case "limit":
            by = f" for each {listing(code(f) for f in options['by'])}" if options.get("by") else ""
            each = f"{count(options['records'], 'record')} every {duration(options['per'])}"
            return f"lets at most {each}{by} pass of {whom}, and throws away the others"
        case "add":
            return f"adds {listing(f'{code(k)} {text(v)}' for k, v in options.items())} to {whom}"
    return f"replaces {_secret(options)} by {text(options.get('with', '[redacted]'))} in every text field of {whom}"


def _secret(options: Mapping[str, Any]) -> str:
    if "pattern" in options:
        return f"what matches {code(options['pattern'])}"
    return f"what is of kind {code(options['kind'])}"


# --- the page ---


class Page:
    """A page of plain text: headings, paragraphs and points, wrapped."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def title(self, words: str) -> None:
        """The heading of a section."""
        self._heading(words, "=")

    def heading(self, words: str) -> None:
        """The heading of a part of a section."""
        self._heading(words, "-")

    def _heading(self, words: str, underline: str) -> None:
        words = words.replace(_GLUE, " ")
        self._lines += [""] * bool(self._lines) + [words, underline * len(words)]

    def say(self, words: str) -> None:
        """A paragraph."""
        self._wrap(words, "", "")

    def point(self, words: str, depth: int = 0) -> None:
        """A point of a list; ``depth`` 1 is a point of a point."""
        indent = "  " * depth
        self._wrap(words, f"{indent}- ", f"{indent}  ")

    def fact(self, name: str, words: str) -> None:
        """A point that begins with what it is about."""
        self.point(f"{name}: {words}")

    def _wrap(self, words: str, first: str, rest: str) -> None:
        lines = textwrap.wrap(
            words, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        )
        self._lines += [line.replace(_GLUE, " ") for line in lines]

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)
