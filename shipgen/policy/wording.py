"""How diagnostics about a policy name things: what is expected, what was written, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shipgen.policy.loading import Step, printable, secret_path
from shipgen.policy.model import List, Map, Node, Scalar, Union


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name that ``name`` is most likely meant to be, or empty."""
    from difflib import get_close_matches

    options = sorted(option for option in known if option.isprintable())
    folded = {option.lower().replace("-", "_"): option for option in options}
    wanted = name.lower().replace("-", "_").replace(" ", "_")
    if wanted in folded:
        return folded[wanted]
    close = get_close_matches(wanted[:80], list(folded), n=1, cutoff=cutoff)
    return folded[close[0]] if close else ""


def suggest(name: str, known: Iterable[str], what: str = "known here") -> str:
    """A hint for the unknown ``name``: the nearest known one, else all of them where they are few."""
    options = [option for option in known if option.isprintable()]
    close = nearest(name, options, 0.67)
    if close:
        return f"did you mean `{close}`?"
    if not options:
        return ""
    return f"{what}: {', '.join(options)}" if len(options) <= 24 else ""


def echo(value: Any, path: Sequence[Step]) -> str:
    """A wrong value as a message may repeat it: never a secret, never much."""
    if secret_path(path):
        return "the value"
    match value:
        case None:
            return "null"
        case bool():
            return f"`{str(value).lower()}`"
        case int() | float():
            return f"`{value}`"
        case str() if "@" in value or "://" in value:
            return "the value"
        case str() if value == "":
            return "an empty text"
        case str():
            return f"`{printable(value)}`"
        case list():
            return "a list"
        case _:
            return "a map"


def expects(node: Node | None) -> str:
    """What a value of ``node`` is, in words that follow "is not"."""
    match node:
        case Scalar():
            return node.expects
        case Union(options=options):
            return ", or ".join(expects(option) for option in options)
        case List(item=item):
            return f"a list of {_plural(item)}"
        case Map(secret=True):
            return "a reference: {env: NAME} or {file: /path}"
        case Map(keys=keys) if keys and len(keys) <= 6:
            return "a map with " + ", ".join(keys)
        case None:
            return "what is known here"
        case _:
            return "a map"


def _plural(node: Node) -> str:
    return f"values, each {node.expects}" if isinstance(node, Scalar) else "maps"
