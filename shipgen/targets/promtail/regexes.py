"""Regexes as Promtail's stages take them. RE2 reads the policy's and the catalogue's as they are; only groups differ: a
`regex` stage makes a value of each named one, a `replace` stage replaces what each one captures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shipgen.catalog import redactions


def named(pattern: str, prefix: str = "S_") -> str:
    """A regex of the catalogue, its groups under names that no record field has."""
    return pattern.replace("(?P<", f"(?P<{prefix}")


def header(pattern: str, group: str) -> str:
    """The regex of a text header with the whole header as one more group, so that its length is known."""
    return f"^(?P<{group}>{named(pattern)[1:]})"


def _tokens(pattern: str) -> Iterator[str]:
    """A regex in pieces: escapes, classes and the openings of groups whole, all else one character at a time."""
    pieces = r"\\x\{[0-9A-Fa-f]+\}|\\.|\[\^?(?:\\.|[^\]\\])+\]|\(\?P<\w+>|\(\?:|\(\?i\)|."
    return (m[0] for m in re.finditer(pieces, pattern, re.DOTALL))


def without_groups(pattern: str) -> str:
    """A regex that captures nothing."""
    return "".join("(?:" if token == "(" or token.startswith("(?P<") else token for token in _tokens(pattern))


def literal(text: str) -> str:
    """A regex of exactly this text."""
    return "".join(c if c.isalnum() or c in "/_-" or c > "~" else f"\\x{{{ord(c):x}}}" if c < " " else f"\\{c}"
                   for c in text)


def found(pattern: str, name: str) -> str:
    """A regex that leaves an empty value under a name where it matches."""
    return f"(?P<{name}>)(?:{without_groups(pattern)})"


def anchored(pattern: str) -> bool:
    """Whether it matters to a regex what stands around a piece of text."""
    return any(token in ("^", "$", r"\b", r"\B", r"\A", r"\z") for token in _tokens(pattern))


def redaction(options: Mapping[str, Any]) -> dict[str, Any]:
    """A redact rule in two spellings: for the `replace` stage, which replaces what is captured, and for templates,
    whose function replaces all that matches. A kind that keeps what stands in front has that as its first group."""
    text = str(options.get("with", "[redacted]"))
    if "pattern" in options:
        pattern = without_groups(options["pattern"])
        return {"expression": f"({pattern})", "text": text, "regex": pattern,
                "replacement": text.replace("$", "$$"), "on_json_text": False}
    kind = redactions.KINDS[options["kind"]]
    before, rest = _first_group(kind.regex) if kind.keeps else ("", kind.regex)
    text, rest = kind.before + text + kind.after, without_groups(rest)
    return {"expression": f"{without_groups(before)}({rest})", "text": text, "regex": before + rest,
            "replacement": "${1}" * kind.keeps + text.replace("$", "$$"), "on_json_text": kind.on_json_text}


def _first_group(pattern: str) -> tuple[str, str]:
    """A regex that begins with a group, cut behind that group."""
    depth = 0
    tokens = list(_tokens(pattern))
    for at, token in enumerate(tokens):
        depth += token.startswith("(") - (token == ")")
        if depth == 0:
            return "".join(tokens[: at + 1]), "".join(tokens[at + 1 :])
    raise ValueError(f"not a regex that begins with a group: {pattern!r}")
