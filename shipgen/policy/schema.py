"""The JSON Schema and the reference page of the policy language, both read off :mod:`shipgen.policy.model`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from shipgen.policy import model
from shipgen.policy.model import MISSING, Key, List, Map, Node, Ref, Scalar, Union, Variants, json_types

TITLE = "shipgen policy"


def json_schema() -> dict[str, Any]:
    """The JSON Schema that editors can be pointed at: draft-07, which is what yaml-language-server reads.

    >>> json_schema()["properties"]["version"]["const"]
    1
    """
    schema: dict[str, Any] = json.loads(json.dumps(shared_schema()))
    return schema


@cache
def shared_schema() -> dict[str, Any]:
    """The same schema, built once; not to be changed."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": TITLE,
        **_node(model.POLICY),
        "definitions": {name: _node(node) for name, node in model.DEFINITIONS.items()},
    }


def _node(node: Node) -> dict[str, Any]:
    match node:
        case Scalar(schema=schema):
            return dict(schema)
        case Ref(name=name):
            return {"$ref": f"#/definitions/{name}"}
        case List():
            result: dict[str, Any] = {"type": "array", "items": _node(node.item)}
            if node.at_least:
                result["minItems"] = node.at_least
            if node.unique:
                result["uniqueItems"] = True
            return result
        case Union(options=options):
            # Told apart by type with if/then, so that an error is about the option that was meant.
            parts = [(list(json_types(option)), _node(option)) for option in options]
            cases = [
                {"if": {"type": _one(types)}, "then": part} for types, part in parts if part != {"type": _one(types)}
            ]
            return {"type": list(json_types(node)), **({"allOf": cases} if cases else {})}
        case Variants(options=variants):
            cases = [
                {
                    "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                    "then": _node(variant),
                }
                for name, variant in variants.items()
            ]
            return {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"type": "string", "enum": list(variants), "description": node.description}},
                "allOf": cases,
            }
        case Map():
            return _map(node)


def _map(node: Map) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "object"}
    if node.keys:
        result["properties"] = {name: _key(key) for name, key in node.keys.items()}
    required = [name for name, key in node.keys.items() if key.required]
    if required:
        result["required"] = required
    result["additionalProperties"] = _node(node.rest) if node.rest is not None else False
    if node.names is not None:
        result["propertyNames"] = _node(node.names)
    if node.at_least:
        result["minProperties"] = node.at_least
    if node.one_of:
        result["oneOf"] = [{"required": [name]} for name in node.one_of]
    if node.at_most_one_of:
        result["not"] = {"required": list(node.at_most_one_of)}
    return result


def _key(key: Key) -> dict[str, Any]:
    node = _node(key.node)
    # in draft-07 nothing counts beside a $ref
    result = {"description": key.description, **({"allOf": [node]} if "$ref" in node else node)}
    if key.default is not MISSING:
        result["default"] = key.default
    if key.example is not MISSING:
        result["examples"] = [key.example]
    return result


def _one(types: list[str]) -> Any:
    return types[0] if len(types) == 1 else types


# ---------------------------------------------------------------------------------------------------------------------
# The reference page


def reference_page() -> str:
    """The reference page of the docs, in Markdown."""
    lines = [
        "# Policy reference",
        "",
        "Every key of the policy. Generated from the model that also gives the JSON Schema (`shipgen schema`) and the",
        "defaults. `NAME` is a name that you choose, `[]` an item of a list.",
        "",
    ]
    for name, key in model.POLICY.keys.items():
        lines += [f"## `{name}`", "", _summary(key), ""]
        lines += _section(key.node, name)
    lines += ["## Conditions", "", "What `when`, `any`, `all` and `not` take. Several keys hold together (and).", ""]
    lines += _table(list(_rows(model.DEFINITIONS["condition"], "", ())))
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(node: Node, path: str) -> list[str]:
    if isinstance(node, Map) and isinstance(node.rest, Variants):
        lines = []
        for name, variant in node.rest.options.items():
            about = variant.keys["type"].description
            lines += [f"### `{path}.NAME` with `type: {name}`", "", about, ""]
            lines += _table([row for row in _rows(variant, "", ()) if row[0] != "type"])
        return lines
    return _table(list(_rows(node, path, ())))


def _table(rows: list[tuple[str, str, str, str]]) -> list[str]:
    if not rows:
        return []
    head = ["| key | value | default | |", "|---|---|---|---|"]
    return [*head, *(f"| `{key}` | {value} | {default} | {text} |" for key, value, default, text in rows), ""]


def _rows(node: Node, path: str, inside: tuple[str, ...]) -> Iterator[tuple[str, str, str, str]]:
    dot = f"{path}." if path else ""
    match node:
        case Map(secret=True):
            return  # the one word for it says all
        case Map(keys=keys, rest=rest, names=names):
            for name, key in keys.items():
                yield (f"{dot}{name}", _words(key.node), _default(key), _cell(_text(key)))
                yield from _rows(key.node, f"{dot}{name}", inside)
            if rest is not None and not isinstance(rest, Variants):
                who = _cell(f"The key is {names.expects}." if names is not None else "")
                yield (f"{dot}NAME", _words(rest), "", who)
                yield from _rows(rest, f"{dot}NAME", inside)
        case List(item=item) if not isinstance(item, Ref):
            yield from _rows(item, f"{path}[]", inside)
        case Union(options=options):
            for option in options:
                if isinstance(option, Map):
                    yield from _rows(option, path, inside)


def _words(node: Node) -> str:
    match node:
        case Scalar(expects=expects):
            return _cell(expects)
        case List(item=item):
            return f"list of: {_words(item)}"
        case Union(options=options):
            return "; or ".join(_words(option) for option in options)
        case Ref(name=name):
            return f"[{name}](#conditions)"
        case Map(secret=True):
            return "`{env: NAME}` or `{file: PATH}`"
        case _:
            return "map"


def _default(key: Key) -> str:
    if key.required:
        return "required"
    if key.default is MISSING:
        return _cell(key.default_note)
    if key.default == {}:
        return ""
    return f"`{_cell(_flow(key.default))}`"


def _summary(key: Key) -> str:
    default = _default(key)
    extra = {"": "", "required": " Required."}.get(default, f" Default: {default}.")
    example = f" Example: `{_flow(key.example)}`." if key.example is not MISSING else ""
    return f"{key.description} Takes {_words(key.node)}.{extra}{example}"


def _text(key: Key) -> str:
    example = f" Example: `{_flow(key.example)}`." if key.example is not MISSING else ""
    return key.description + example


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _flow(value: Any) -> str:
    """A value as YAML would have it on one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{name}: {_flow(one)}" for name, one in value.items()) + "}"
        case list():
            return "[" + ", ".join(_flow(one) for one in value) + "]"
        case str():
            plain = re.fullmatch(r"[A-Za-z_/+-][A-Za-z0-9_/+ .=-]*|[0-9]+[A-Za-z]+(/s)?", value)
            return value if plain and value not in ("true", "false", "null") else json.dumps(value)
        case _:
            return json.dumps(value)
