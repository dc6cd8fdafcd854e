"""The JSON Schema's errors, in plain words and one for each key or value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from shipgen.policy import model, units
from shipgen.policy.loading import Findings, Item, Step, printable, secret_path
from shipgen.policy.model import List, Map, Node, Scalar, Variants, child, find, narrow, scalars
from shipgen.policy.wording import echo, expects, nearest, suggest

Path = tuple[Step, ...]

_USERINFO = re.compile(r"://[^/\s?#]*@|^[^/\s@:]+:[^/\s@]*@")
_EMPTIES_FILES: Final = frozenset(
    {"log_to_stderr", "to_stderr", "stderr", "env", "environment", "env_vars", "variables"}
)
_CODES: Final = {
    "size": "bad-unit", "duration": "bad-unit", "rate": "bad-unit", "url": "bad-address", "address": "bad-address",
    "glob": "bad-glob", "path": "bad-glob", "name": "bad-name",
}
_BOOLEANS: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_LEVEL_WORDS: Final = {"warning": "warn", "critical": "fatal", "err": "error", "notice": "info"}


def check_schema(data: Mapping[str, Any], tree: Item, findings: Findings) -> None:
    """Report what the JSON Schema refuses, one diagnostic for each key or value."""
    for error in _validator().iter_errors(data):
        path: Path = tuple(error.absolute_path)
        _SchemaError(error, path, data, tree, findings).report()


@cache
def _validator() -> Any:
    from jsonschema import Draft7Validator, validators
    from jsonschema.exceptions import ValidationError

    from shipgen.policy.schema import shared_schema

    def unique(_validator: Any, wanted: bool, items: Any, _schema: Any) -> Iterator[ValidationError]:
        # The library compares each item with each other one; here they are scalars, or an error anyway.
        if wanted and isinstance(items, list) and next(_repeated(items), None) is not None:
            yield ValidationError("repeated")

    extend: Any = validators.extend
    return extend(Draft7Validator, {"uniqueItems": unique})(shared_schema())


def _repeated(items: list[Any]) -> Iterator[int]:
    """The indices of scalars that stand in ``items`` before."""
    seen = set()
    for index, one in enumerate(items):
        if isinstance(one, dict | list):
            continue
        if (type(one), one) in seen:
            yield index
        seen.add((type(one), one))


class _SchemaError:
    """One error of the validator, put in words."""

    def __init__(self, error: Any, path: Path, data: Mapping[str, Any], tree: Item, findings: Findings) -> None:
        self.error = error
        self.path = path
        self.data = data
        self.tree = tree
        self.findings = findings
        self.declared = find(path, data)
        self.node = narrow(self.declared, error.instance)

    def report(self) -> None:
        kind = self.error.validator
        if "propertyNames" in self.error.absolute_schema_path:
            self.bad_name()
        elif kind == "additionalProperties":
            self.unknown_keys()
        elif kind == "required":
            self.missing()
        elif kind == "type":
            self.wrong_type()
        elif kind in ("oneOf", "not"):
            self.choice()
        elif kind in ("minItems", "minProperties"):
            hint = "leave it out to have none" if self.path and self.path[-1] in ("when", "not", "from", "add") else ""
            self.add("empty", "needs at least one entry", hint)
        elif kind == "uniqueItems":
            self.repeated()
        else:
            self.bad_value()

    def add(self, code: str, text: str, hint: str = "", path: Path | None = None, *, key: bool = False) -> None:
        where = self.path if path is None else path
        self.findings.error(code, where, text, hint, self.tree.place_of(where, key=key))

    def unknown_keys(self) -> None:
        node = self.node
        known = list(node.keys) if isinstance(node, Map) else []
        for name in self.error.instance:
            if name in known:
                continue
            path = (*self.path, name)
            text = "unknown key" if secret_path(path) else f"unknown key `{printable(name)}`"
            hint = self.home(name, known) or suggest(name, known, "known keys")
            if self.path[:1] == ("ray",) and _empties_files(name):
                sources = self.data.get("sources")
                names = ", ".join(map(printable, sources)) if isinstance(sources, dict) and sources else "none yet"
                self.add(
                    "logs-moved-off-files",
                    f"{text}: settings such as RAY_LOG_TO_STDERR move Ray's logs off the files, "
                    f"and the sources ({names}) would read empty ones",
                    "remove it; what shipgen sets for Ray has keys of its own under `ray`",
                    path,
                    key=True,
                )
            else:
                self.add("unknown-key", text, hint, path, key=True)

    def home(self, name: str, known: list[str]) -> str:
        """Where an unknown key would be known: with another `type`, or elsewhere in the policy."""
        if nearest(name, known, 0.8):
            return ""
        instance = self.error.instance
        if isinstance(self.declared, Variants) and instance.get("type") in self.declared.options:
            types = [kind for kind, variant in self.declared.options.items() if name in variant.keys]
            if types:
                said = self.tree.place_of((*self.path, "type"))
                stands = self.tree.place_of((*self.path, name), key=True)
                there = f" ({said})" if said.file != stands.file else ""
                end = f"; delete it there with `{name}: null`" if there else ""
                return f"a key of type {', '.join(types)}; this is of type {instance['type']}{there}{end}"
        homes = _homes().get(name, [])
        return f"it stands under `{homes[0]}`" if len(homes) == 1 else ""

    def missing(self) -> None:
        for name in self.error.validator_value:
            if name in self.error.instance:
                continue
            path = (*self.path, name)
            node = child(self.declared, self.error.instance, name)
            if isinstance(self.declared, Map | Variants) and name == "type":
                options = _variants(self.declared) or _variants(find(self.path, self.data))
                hint = f"one of {', '.join(options)}" if options else ""
            else:
                hint = f"write {expects(node)}" if node is not None else ""
            above, depth = self.tree.at(self.path)
            deleted = depth == len(self.path) and name in above.gone
            self.add("missing-key", "null, but the key is required" if deleted else "required, but missing", hint, path)

    def wrong_type(self) -> None:
        value = self.error.instance
        item, depth = self.tree.at(self.path)
        written = item.text if depth == len(self.path) else ""
        node = self.declared
        if _is_secret(node):
            self.add("literal-secret", "a secret is never written in a policy", "write {env: NAME} or {file: /path}")
            return
        shown = f"`{printable(written)}`" if written and not secret_path(self.path) else echo(value, self.path)
        text = f"{'the text ' if isinstance(value, str) and value else ''}{shown} is not {expects(node)}"
        code, hint = "wrong-type", ""
        takes = scalars(node)
        if isinstance(value, int | float) and any(s.schema["type"] == "string" for s in takes):
            plain = written or str(value).lower()
            kinds = {scalar.kind for scalar in takes}
            if isinstance(value, bool) or not kinds & {"size", "duration", "rate"}:
                hint = f'quote it: "{plain}"' if not secret_path(self.path) and _quotable(takes, plain) else ""
                code = "unquoted-text" if hint else code
            else:
                code = "missing-unit"
                small = abs(value) < 5000  # a large number is the smallest unit in disguise
                unit = ("s" if small else "ms") if "duration" in kinds else "MiB" if small else "B"
                hint = f"say the unit: {plain.lstrip('-')}{unit}{'/s' if 'rate' in kinds else ''}"
        elif isinstance(value, str) and any(s.schema["type"] in ("integer", "number", "boolean") for s in takes):
            hint = "write it without quotes" if re.fullmatch(r"-?[0-9.]+|true|false", value) else ""
            if meant := _BOOLEANS.get(value.lower()):
                hint = f"did you mean `{meant}`?" if any(s.schema["type"] == "boolean" for s in takes) else hint
        elif isinstance(node, List):
            hint = "put it in brackets: [...]" if not isinstance(value, dict) else ""
        elif isinstance(node, Map) and node.rest is not None and isinstance(value, list):
            hint = "give each a name and leave the dash out: `NAME: {...}`"
        self.add(code, text, hint)

    def choice(self) -> None:
        if not isinstance(self.node, Map) or not isinstance(self.error.instance, dict):
            return
        names = self.node.one_of or self.node.at_most_one_of
        given = [name for name in names if name in self.error.instance]
        listed = ", ".join(names)
        if given:
            self.add(
                "conflict",
                f"takes only one of {listed}; here are {', '.join(given)}",
                "remove the others (`null` in a later file)",
            )
        else:
            self.add("missing-key", f"needs one of {listed}")

    def repeated(self) -> None:
        for index in _repeated(self.error.instance):
            path = (*self.path, index)
            self.add("duplicate-name", f"{echo(self.error.instance[index], path)} is listed twice", "remove one", path)

    def bad_name(self) -> None:
        name = self.error.instance
        if "\ufffd" in name and self.findings.wrong(self.path):
            return  # what stands for a control character, which was reported
        value: Any = self.data
        for step in self.path:
            value = value[step]
        node = narrow(self.declared, value)
        names = node.names if isinstance(node, Map) else None
        wanted = names.expects if names is not None else "a name"
        path = (*self.path, name)
        if names is not None and "enum" in names.schema:
            self.add(
                "unknown-target",
                f"{echo(name, path)} is not {wanted}",
                suggest(name, names.schema["enum"]),
                path,
                key=True,
            )
        else:
            self.add("bad-name", "the key is not a valid name here", f"it must be {wanted}", path, key=True)

    def bad_value(self) -> None:
        value = self.error.instance
        scalar = self.node if isinstance(self.node, Scalar) else None
        kind = self.error.validator
        options = self.error.validator_value if kind == "enum" and isinstance(value, str) else None
        if scalar is not None and scalar.kind in ("url", "address") and _USERINFO.search(str(value)):
            self.add(
                "literal-secret", "carries a user or a password", "give them under `auth` (or `sasl`), by reference"
            )
            return
        if _is_secret_part(self.path):
            hint = "the name alone, without `$`" if self.path[-1] == "env" else ""
            self.add("bad-value", f"the value is not {expects(self.declared)}", hint)
            return
        wanted = expects(self.declared)
        hint = ""
        if options is not None:
            if scalar is None:
                wanted = f"one of {', '.join(options)}"
            close = (_LEVEL_WORDS.get(value.lower(), "") if "warn" in options else "") or nearest(value, options)
            hint = f"did you mean `{close}`?" if close else ""
        elif scalar is not None and scalar.kind in ("size", "duration", "rate"):
            table = units.DURATION_UNITS if scalar.kind == "duration" else units.SIZE_UNITS
            suffix = "/s" if scalar.kind == "rate" else ""
            hint = f"a number and a unit without space: {', '.join(unit + suffix for unit in table)}"
        elif kind == "const":
            hint = "this release of shipgen reads version 1 of the language"
        elif kind == "exclusiveMaximum" and 1 < value < 100:
            hint = f"a share, not percent: {value / 100:g}"
        elif kind == "pattern" and scalar is not None:
            hint = _way_out(scalar.kind, value)
        elif kind == "maxLength":
            wanted = f"at most {self.error.validator_value} characters"
            self.add("bad-value", f"the text is too long ({len(value)} characters)", wanted)
            return
        code = _CODES.get(scalar.kind if scalar is not None else "", "bad-value")
        self.add(code, f"{echo(value, self.path)} is not {wanted}", hint)


def _way_out(kind: str, value: str) -> str:
    """What would be right instead of a text of the wrong form."""
    if kind in ("glob", "path") and not value.startswith("/"):
        return "begin with `/`"
    if kind == "url" and "://" not in value:
        return "begin with http:// or https://"
    if kind == "address" and ":" not in value:
        return f"say the port, such as {printable(value)}:9092"
    return ""


@cache
def _homes() -> Mapping[str, list[str]]:
    """Keys of the language that stand in one place only, whatever type a source or a sink has, and where that is."""
    found: dict[str, dict[str, None]] = {}

    def walk(node: Node, path: str) -> None:
        match node:
            case Map(keys=keys, rest=rest):
                for name, key in keys.items():
                    found.setdefault(name, {})[path or "the top"] = None
                    walk(key.node, f"{path}.{name}".lstrip("."))
                if rest is not None:
                    walk(rest, f"{path}.NAME")
            case List(item=item):
                walk(item, f"{path}[]")
            case Variants(options=options):
                for variant in options.values():
                    walk(variant, path)
            case _:
                return

    walk(model.POLICY, "")
    return {name: list(places) for name, places in found.items()}


def _empties_files(name: str) -> bool:
    return name.lower() in _EMPTIES_FILES or name.upper().startswith("RAY_")


def _variants(node: Node | None) -> list[str]:
    return list(node.options) if isinstance(node, Variants) else []


def _quotable(scalars: list[Scalar], text: str) -> bool:
    return any(
        scalar.schema["type"] == "string"
        and ("pattern" not in scalar.schema or re.search(scalar.schema["pattern"], text))
        and text in scalar.schema.get("enum", [text])
        for scalar in scalars
    )


def _is_secret(node: Node | None) -> bool:
    return isinstance(node, Map) and node.secret


def _is_secret_part(path: Path) -> bool:
    return secret_path(path) and path[-1] != "mechanism"
