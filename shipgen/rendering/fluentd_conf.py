"""Reads a Fluentd configuration back, apart from what writes it: sections, and options of one line."""

from __future__ import annotations

import json
import re
from typing import Any

_SECTION = re.compile(r"<([a-z]+)(?: ([^>]+))?>")
_OPTION = re.compile(r"(@?[a-z_]+[0-9]*) +(.+)")


def sections(text: str) -> dict[str, dict[str, Any]]:
    """Options of every section that has an `@id`, by it. Raises ValueError for what Fluentd would read otherwise."""
    found: dict[str, dict[str, Any]] = {}
    open_sections: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("</"):
            name, options = open_sections.pop()
            if line != f"</{name}>":
                raise ValueError(f"line {number} closes another section than <{name}>")
            if "@id" in options:
                if options["@id"] in found:
                    raise ValueError(f"line {number}: a second {options['@id']}")
                found[options["@id"]] = options
        elif section := _SECTION.fullmatch(line):
            open_sections.append((section[1], {}))
        elif (option := _OPTION.fullmatch(line)) and open_sections:
            open_sections[-1][1][option[1]] = _value(option[2], number)
        else:
            raise ValueError(f"line {number} is neither a section nor an option")
    if open_sections:
        raise ValueError(f"<{open_sections[-1][0]}> is not closed")
    return found


def _value(text: str, number: int) -> Any:
    if not text.startswith("'"):
        if re.search(r"[\"'#\[{]", text):
            raise ValueError(f"line {number}: a value without quotes that is more than a word")
        return text
    literal = re.fullmatch(r"'((?:\\[\\']|[^'])*)'", text)
    if literal is None:
        raise ValueError(f"line {number}: a value that does not end with its quote")
    value = re.sub(r"\\([\\'])", r"\1", literal[1])
    return json.loads(value) if value.startswith("{") else value
