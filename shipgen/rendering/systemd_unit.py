"""Reads a unit of systemd back, apart from what writes it (systemd.syntax(7), systemd.service(5))."""

from __future__ import annotations

import re

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"(?=\s|$)|([^\s"\'\\]+)(?=\s|$)')


def settings(text: str) -> dict[tuple[str, str], list[str]]:
    """Values of every setting by section and name, in order. Raises ValueError for what is neither."""
    found: dict[tuple[str, str], list[str]] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith(("#", ";")):
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            continue
        name, equals, value = line.partition("=")
        if not section or not equals or not re.fullmatch("[A-Za-z]+", name) or line.endswith("\\"):
            raise ValueError(f"line {number} is neither a section nor a setting")
        found.setdefault((section, name), []).append(value)
    return found


def words(value: str) -> list[str]:
    """The words of a value as systemd hands them on: unquoted, specifiers and variables with their doubled signs
    undone. Raises ValueError for a specifier that is one, or for words that are glued to each other."""
    found: list[str] = []
    at = 0
    while at < len(value):
        word = _WORD.match(value, at)
        if word is None:
            raise ValueError(f"not words: {value!r}")
        text = re.sub(r"\\(.)", r"\1", word[1]) if word[1] is not None else word[2]
        if re.search("%[^%]", text.replace("%%", "")) or text.replace("%%", "").endswith("%"):
            raise ValueError(f"a specifier: {text!r}")
        found.append(text.replace("%%", "%"))
        at = word.end()
        while value[at : at + 1] == " ":
            at += 1
    return found


def command(value: str) -> list[str]:
    """The arguments of a command line. Raises ValueError for a variable."""
    found = words(value)
    for word in found:
        if "$" in word.replace("$$", ""):
            raise ValueError(f"a variable: {word!r}")
    return [word.replace("$$", "$") for word in found]
