"""What is wrong with a merged policy: the JSON Schema's errors in plain words, and what no schema can say."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from shipgen.diagnostics import Severity
from shipgen.policy import model, units
from shipgen.policy.loading import Findings, Item, Step, printable, secret_path
from shipgen.policy.model import List, Map, Node, Scalar, Union, Variants, child, find, narrow

Path = tuple[Step, ...]

_USERINFO = re.compile(r"://[^/\s?#]*@|^[^/\s@:]+:[^/\s@]*@")
_URL_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]*@")
_SECRET_HEADER = re.compile(r"auth|cookie|token|secret|password|api-?key", re.IGNORECASE)
_HIGH_CARDINALITY: Final = frozenset({"pid", "file", "raw", "message", "caller", "thread", "replica", "request_id"})
_NO_LABEL: Final = frozenset({"time", "extra"})
_MAX_LABELS: Final = 14

# Fields that are what they are: neither a rule nor a regex group may write them.
_RESERVED_GROUPS: Final = frozenset(
    {*model.ALWAYS_METADATA, "raw", "source", "component", "node", "session", "file", "cluster", "extra", "stream"}
    | {"sample_rate"}
)

_EMPTIES_FILES: Final = frozenset(
    {"log_to_stderr", "to_stderr", "stderr", "env", "environment", "env_vars", "variables"}
)


_LEVEL_WORDS: Final = {"warning": "warn", "critical": "fatal", "err": "error", "notice": "info"}


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name that ``name`` is most likely meant to be, or empty."""
    from difflib import get_close_matches

    options = sorted(known)
    folded = {option.lower().replace("-", "_"): option for option in options}
    wanted = name.lower().replace("-", "_").replace(" ", "_")
    if wanted in folded:
        return folded[wanted]
    close = get_close_matches(wanted[:80], list(folded), n=1, cutoff=cutoff)
    return folded[close[0]] if close else ""


def _suggest(name: str, known: Iterable[str], what: str = "known here") -> str:
    options = list(known)
    close = nearest(name, options)
    if close:
        return f"did you mean `{close}`?"
    if not options:
        return ""
    return f"{what}: {', '.join(options)}" if len(options) <= 16 else ""


def _echo(value: Any, path: Sequence[Step]) -> str:
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


# ---------------------------------------------------------------------------------------------------------------------
# The schema


def check_schema(data: Mapping[str, Any], tree: Item, findings: Findings) -> None:
    """Report what the JSON Schema refuses, one diagnostic for each key or value."""
    for error in _validator().iter_errors(data):
        path: Path = tuple(error.absolute_path)
        _SchemaError(error, path, data, tree, findings).report()


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator, validators
    from jsonschema.exceptions import ValidationError

    from shipgen.policy.schema import shared_schema

    def unique(_validator: Any, wanted: bool, items: Any, _schema: Any) -> Iterator[ValidationError]:
        # The library compares each item with each other one; here they are scalars, or an error anyway.
        if wanted and isinstance(items, list) and next(_repeated(items), None) is not None:
            yield ValidationError("repeated")

    extend: Any = validators.extend
    return extend(Draft202012Validator, {"uniqueItems": unique})(shared_schema())


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
            self.add("bad-value", "needs at least one entry", hint)
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
            hint = _suggest(name, known, "known keys")
            if self.path[:1] == ("ray",) and _empties_files(name):
                sources = self.data.get("sources")
                names = ", ".join(sources) if isinstance(sources, dict) and sources else "none yet"
                self.add(
                    "conflict",
                    f"{text}: settings such as RAY_LOG_TO_STDERR move Ray's logs off the files, "
                    f"and the sources ({names}) would read empty ones",
                    "remove it; what shipgen sets for Ray has keys of its own under `ray`",
                    path,
                    key=True,
                )
            elif not self.path and name in model.LATER:
                self.add("not-yet", f"the section `{name}` is not there yet", "remove it", path, key=True)
            else:
                self.add("unknown-key", text, hint, path, key=True)

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
                hint = f"write {_expects(node)}" if node is not None else ""
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
        shown = f"`{printable(written)}`" if written and not secret_path(self.path) else _echo(value, self.path)
        text = f"{'the text ' if isinstance(value, str) and value else ''}{shown} is not {_expects(node)}"
        hint = ""
        scalars = _scalars(node)
        if isinstance(value, int | float) and any(s.schema["type"] == "string" for s in scalars):
            plain = written or str(value).lower()
            kinds = {scalar.kind for scalar in scalars}
            if isinstance(value, bool) or not kinds & {"size", "duration", "rate"}:
                hint = f'quote it: "{plain}"' if not secret_path(self.path) and _quotable(scalars, plain) else ""
            else:
                small = abs(value) < 5000  # a large number is the smallest unit in disguise
                unit = ("s" if small else "ms") if "duration" in kinds else "MiB" if small else "B"
                hint = f"say the unit: {plain.lstrip('-')}{unit}{'/s' if 'rate' in kinds else ''}"
        elif isinstance(value, str) and any(s.schema["type"] in ("integer", "number", "boolean") for s in scalars):
            hint = "without quotes" if re.fullmatch(r"-?[0-9.]+|true|false", value) else ""
        elif isinstance(node, List):
            hint = "put it in brackets: [...]" if not isinstance(value, dict) else ""
        self.add("wrong-type", text, hint)

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
            self.add("duplicate-name", f"{_echo(self.error.instance[index], path)} is listed twice", "remove one", path)

    def bad_name(self) -> None:
        name = self.error.instance
        if "\ufffd" in name and self.findings.wrong(self.path):
            return  # what stands for a control character, which was reported
        value: Any = self.data
        for step in self.path:
            value = value[step]
        node = narrow(self.declared, value)
        names = node.names if isinstance(node, Map) else None
        expects = names.expects if names is not None else "a name"
        path = (*self.path, name)
        if names is not None and "enum" in names.schema:
            self.add(
                "unknown-name",
                f"{_echo(name, path)} is not {expects}",
                _suggest(name, names.schema["enum"]),
                path,
                key=True,
            )
        else:
            self.add("bad-value", "the key is not a valid name here", f"it must be {expects}", path, key=True)

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
            self.add("bad-value", f"the value is not {_expects(self.declared)}")
            return
        expects = _expects(self.declared)
        hint = ""
        if options is not None:
            if scalar is None:
                expects = f"one of {', '.join(options)}"
            close = (_LEVEL_WORDS.get(value.lower(), "") if "warn" in options else "") or nearest(value, options)
            hint = f"did you mean `{close}`?" if close else ""
        elif scalar is not None and scalar.kind in ("size", "duration", "rate"):
            table = units.DURATION_UNITS if scalar.kind == "duration" else units.SIZE_UNITS
            suffix = "/s" if scalar.kind == "rate" else ""
            hint = f"a number and a unit without space: {', '.join(unit + suffix for unit in table)}"
        elif kind == "maxLength":
            expects = f"at most {self.error.validator_value} characters"
            self.add("bad-value", f"the text is too long ({len(value)} characters)", expects)
            return
        self.add("bad-value", f"{_echo(value, self.path)} is not {expects}", hint)


def _empties_files(name: str) -> bool:
    return name.lower() in _EMPTIES_FILES or name.upper().startswith("RAY_")


def _variants(node: Node | None) -> list[str]:
    return list(node.options) if isinstance(node, Variants) else []


def _scalars(node: Node | None) -> list[Scalar]:
    match node:
        case Scalar():
            return [node]
        case Union(options=options):
            return [scalar for option in options for scalar in _scalars(option)]
        case _:
            return []


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


def _expects(node: Node | None) -> str:
    match node:
        case Scalar(expects=expects):
            return expects
        case Union(options=options):
            return ", or ".join(_expects(option) for option in options)
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


# ---------------------------------------------------------------------------------------------------------------------
# What no schema can say


def check_values(data: Any, tree: Item, findings: Findings) -> None:
    """Judge each value that has rules beyond its pattern: regexes, globs, units, zones, URLs."""
    for path, scalar, value in scalars(model.POLICY, data):
        if not findings.wrong(path):
            _check_value(path, scalar, value, data, tree, findings)


def scalars(node: Node | None, value: Any, path: Path = ()) -> Iterator[tuple[Path, Scalar | None, Any]]:
    """Every scalar of a policy with its path and, where the model has one, its node."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from scalars(child(node, value, name), one, (*path, name))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from scalars(child(node, value, index), one, (*path, index))
    else:
        narrowed = narrow(node, value)
        yield path, narrowed if isinstance(narrowed, Scalar) else None, value


def _check_value(path: Path, scalar: Scalar | None, value: Any, data: Any, tree: Item, findings: Findings) -> None:
    kind = scalar.kind if scalar is not None else ""

    def wrong(code: str, text: str, hint: str = "") -> None:
        findings.error(code, path, text, hint, tree.place_of(path))

    if not isinstance(value, str):
        return
    if kind in ("regex", "redaction"):
        from shipgen.policy.regex import RegexError, check

        try:
            check(value, may_be_empty=kind == "regex")
        except RegexError as error:
            wrong("regex-outside-subset", str(error))
        return
    if path[-1] != "with" and _URL_PASSWORD.search(value):
        wrong("literal-secret", "carries a user and a password", "a secret is given by reference only, under `auth`")
        return
    if kind in ("size", "duration", "rate") and scalar is not None and scalar.convert is not None:
        try:
            scalar.convert(value)
        except ValueError as error:
            reason = str(error)
            wrong("bad-value", f"`{printable(value)}` {'is ' if reason.startswith('not') else ''}{reason}")
    elif kind == "glob":
        problem = _glob_problem(value)
        if problem:
            wrong("bad-value", *problem)
    elif kind == "timezone":
        _check_timezone(value, wrong)
    elif kind in ("url", "address"):
        port = re.search(r":([0-9]+)(?:/|$)", value.partition("://")[2] or value)
        if port and not 0 < int(port[1]) <= 65535:
            wrong("bad-value", f"{port[1]} is not a port", "a port is a number from 1 to 65535")
        elif path[-1] == "endpoint" and _sink_type(path, data) == "loki" and "/loki/api/" in value:
            wrong(
                "bad-value", "is the address of one of Loki's calls", "write the base URL, without `/loki/api/v1/push`"
            )
    elif secret_path(path) and path[-2] == "headers" and _SECRET_HEADER.search(str(path[-1])):
        wrong("literal-secret", "a secret is never written in a policy", "write {env: NAME} or {file: /path}")


def _sink_type(path: Path, data: Any) -> Any:
    return data["sinks"][path[1]].get("type") if path[:1] == ("sinks",) and len(path) == 3 else None


def _glob_problem(glob: str) -> tuple[str, str] | None:
    """Why ``glob`` is outside the dialect that every shipper reads, and what would be right."""
    dialect = "what every shipper reads: `*`, `?`, `[a-z]`, `[!a-z]`; give several globs as several list items"
    if not glob.startswith("/"):
        return "the path is not absolute", "begin with `/`"
    if "**" in glob:
        return "`**` is not read alike by all shippers", "write one `*` for each directory"
    for char in "{},`\\":
        if char in glob:
            return f"`{char}` is not read alike by all shippers", dialect
    at = 0
    while (at := glob.find("[", at)) >= 0:
        match = re.compile(r"\[!?(?:[A-Za-z0-9_.](?:-[A-Za-z0-9])?)+\]").match(glob, at)
        if match is None:
            return f"the class at character {at + 1} is not read alike by all shippers", dialect
        at = match.end()
    if any(part in (".", "..") for part in glob.split("/")):
        return "`.` and `..` have no place in a path here", "write the path that is meant"
    return None


def _check_timezone(name: str, wrong: Callable[..., None]) -> None:
    if name == "local":
        return
    import zoneinfo

    try:
        if name.startswith(("posix/", "right/", "/")) or name in ("localtime", "posixrules", "Factory"):
            raise zoneinfo.ZoneInfoNotFoundError(name)
        zoneinfo.ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        known = {*zoneinfo.available_timezones(), "local"}
        close = nearest(name, known) or nearest(name, {zone.rpartition("/")[2]: zone for zone in known})
        full = (
            next((zone for zone in sorted(known) if zone == close or zone.endswith("/" + close)), "") if close else ""
        )
        hint = f"did you mean `{full}`?" if full else "`local`, or an IANA name such as Europe/Berlin"
        wrong("unknown-name", f"`{printable(name)}` is not a time zone", hint)


def check_semantics(data: dict[str, Any], tree: Item, findings: Findings) -> None:
    """Judge what depends on several places of the policy. ``data`` has its defaults, and may still be wrong."""
    _Semantics(data, tree, findings).check()


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class _Semantics:
    def __init__(self, data: dict[str, Any], tree: Item, findings: Findings) -> None:
        self.data = data
        self.tree = tree
        self.findings = findings
        self.sources = {name: _map(source) for name, source in _map(data.get("sources")).items()}
        self.sinks = {name: _map(sink) for name, sink in _map(data.get("sinks")).items()}
        self.rules = [_map(rule) for rule in _list(_map(data.get("parsing")).get("rules"))]
        self.groups = self.regex_groups()

    def error(self, code: str, path: Path, text: str, hint: str = "", *, key: bool = False) -> None:
        self.findings.error(code, path, text, hint, self.tree.place_of(path, key=key))

    def warn(self, code: str, path: Path, text: str, hint: str = "", *, key: bool = False) -> None:
        self.findings.warning(code, path, text, hint, self.tree.place_of(path, key=key), Severity.WARNING)

    def check(self) -> None:
        self.check_paths()
        self.check_sources()
        self.check_rules()
        for name, sink in self.sinks.items():
            self.check_sink(name, sink)

    # -- paths --

    def check_paths(self) -> None:
        temp_dir = _map(self.data.get("ray")).get("temp_dir")
        state_dir = _map(self.data.get("collector")).get("state_dir")
        if not isinstance(temp_dir, str) or not isinstance(state_dir, str):
            return
        below, above = posixpath.normpath("/" + state_dir.lstrip("/")), posixpath.normpath("/" + temp_dir.lstrip("/"))
        if below == above or below.startswith(above.rstrip("/") + "/"):
            path: Path = ("collector", "state_dir") if self.given(("collector", "state_dir")) else ("ray", "temp_dir")
            self.error(
                "conflict",
                path,
                f"the state directory {below} lies under Ray's tree {above}, which comes and goes with the cluster",
                "choose a directory outside of it, such as /var/lib/shipgen",
            )

    def given(self, path: Path) -> bool:
        return self.tree.at(path)[1] == len(path)

    # -- sources --

    def regex_groups(self) -> dict[str, tuple[str, ...]]:
        groups: dict[str, tuple[str, ...]] = {}
        for name, source in self.sources.items():
            pattern = _map(source.get("format")).get("regex")
            if isinstance(pattern, str):
                groups[name] = tuple(re.findall(r"\(\?P<([a-z_][a-z0-9_]*)>", pattern))
        return groups

    def check_sources(self) -> None:
        for name, source in self.sources.items():
            path: Path = ("sources", name)
            if source.get("type") == "ray":
                for key in ("components", "exclude_components"):
                    self.check_components((*path, key), source.get(key))
            if name in self.groups:
                self.check_format((*path, "format"), _map(source.get("format")), self.groups[name])

    def check_components(self, path: Path, names: Any) -> None:
        known = selectors()
        given = self.given(path)
        for index, name in enumerate(_list(names)):
            if not isinstance(name, str) or not given or self.findings.wrong((*path, index)):
                continue
            if path[-1] == "exclude_components" and name in ("default", "all"):
                self.error("bad-value", (*path, index), f"`{name}` can't be left out", "name components")
            elif name not in known:
                hint = _suggest(name, known) or f"components are {', '.join(sorted(known))}"
                self.error("unknown-name", (*path, index), f"there is no component {_echo(name, path)}", hint)

    def check_format(self, path: Path, form: dict[str, Any], groups: tuple[str, ...]) -> None:
        regex_path = (*path, "regex")
        if self.findings.wrong(regex_path):
            return
        time = form.get("time")
        field = _map(time).get("field")
        if not groups:
            self.error(
                "regex-outside-subset",
                regex_path,
                "the pattern has no named group",
                "name what it finds: (?P<message>.*)",
            )
        elif isinstance(field, str) and field not in groups:
            self.error(
                "unknown-name",
                (*path, "time", "field"),
                f"`{printable(field)}` is no group of the pattern",
                _suggest(field, groups, "its groups"),
            )
        for group in groups:
            if group in _RESERVED_GROUPS:
                self.error(
                    "conflict",
                    regex_path,
                    f"the group `{group}` has the name of a field that shipgen sets",
                    "rename the group",
                )
            elif group == "time" and field != "time":
                self.error(
                    "conflict",
                    regex_path,
                    "the group `time` is not read as the time",
                    "say how: time: {field: time, layout: python}",
                )

    # -- fields --

    def known_fields(self, before: int | None = None) -> set[str]:
        """Fields that a record can have when it meets rule number ``before`` (all rules, if None)."""
        fields = {*model.RECORD_FIELDS, *(group for groups in self.groups.values() for group in groups)}
        for rule in self.rules[:before]:
            fields |= {name for name in _map(rule.get("add")) if isinstance(name, str)}
            if "sample" in rule:
                fields.add("sample_rate")
        return fields

    def check_field(self, name: Any, path: Path, known: set[str], *, key: bool = False) -> bool:
        """Warn about a field that no record has; True where it is known."""
        if not isinstance(name, str) or name in known or self.findings.wrong(path):
            return True
        # The key=value pairs of VeRL's events are fields, whatever they are called: only an evident slip is remarked.
        verl = any(source.get("type") == "verl" for source in self.sources.values())
        close = nearest(name, known, 0.88 if verl else 0.6)
        if verl and not close:
            return True
        hint = f"did you mean `{close}`?" if close else "fields are those of the record, of `add` and of `format.regex`"
        self.warn("unknown-name", path, f"no record has a field {_echo(name, path)}", hint, key=key)
        return False

    # -- conditions --

    def check_condition(self, condition: Any, path: Path, known: set[str]) -> None:
        for name, test in _map(condition).items():
            where = (*path, name)
            if name == "any":
                for index, one in enumerate(_list(test)):
                    self.check_condition(one, (*where, index), known)
            elif name == "not":
                self.check_condition(test, where, known)
            elif self.check_field(name, where, known, key=True):
                self.check_test(name, test, where)

    def check_test(self, name: str, test: Any, path: Path) -> None:
        if isinstance(test, dict):
            return
        values = [((*path, index), one) for index, one in enumerate(test)] if isinstance(test, list) else [(path, test)]
        kind = model.RECORD_FIELDS.get(name, "")
        known: Mapping[str, Iterable[str]] = {
            "source": self.sources,
            "component": (*model.COMPONENTS, "engine_worker"),
            "stream": ("out", "err"),
            "event": model.EVENTS,
            "time_source": ("read", "late"),
        }
        for where, value in values:
            if self.findings.wrong(where):
                continue
            if kind == "string" and isinstance(value, bool | int | float):
                item = self.tree.at(where)[0]
                self.error(
                    "wrong-type",
                    where,
                    f"`{item.text}` is not text, as `{name}` is",
                    f'quote it: "{item.text}"',
                )
            elif kind == "number" and not isinstance(value, int | float):
                self.error(
                    "wrong-type",
                    where,
                    f"{_echo(value, where)} is not a number, as `{name}` is",
                    "write it without quotes",
                )
            elif kind == "boolean" and not isinstance(value, bool):
                self.error("wrong-type", where, f"{_echo(value, where)} is neither true nor false")
            elif kind in ("time", "object"):
                self.error("wrong-type", where, f"`{name}` can't be compared", "test it with {exists: true}")
            elif name in known and value not in known[name]:
                hint = _suggest(str(value), known[name])
                self.error("unknown-name", where, f"`{name}` is never {_echo(value, where)}", hint)

    # -- rules --

    def check_rules(self) -> None:
        seen: dict[str, int] = {}
        for index, rule in enumerate(self.rules):
            path: Path = ("parsing", "rules", index)
            name = rule.get("name")
            if isinstance(name, str):
                if name in seen:
                    first = self.tree.place_of(("parsing", "rules", seen[name], "name"))
                    self.error(
                        "duplicate-name",
                        (*path, "name"),
                        f"a second rule is called `{printable(name)}`; the first is at {first}",
                        "rename one",
                    )
                seen.setdefault(name, index)
            for at, sink in enumerate(_list(rule.get("sinks"))):
                self.check_reference((*path, "sinks", at), sink, self.sinks, "sink")
            known = self.known_fields(index)
            self.check_condition(rule.get("when"), (*path, "when"), known)
            sample = rule.get("sample")
            if isinstance(sample, dict) and "by" in sample:
                self.check_field(sample["by"], (*path, "sample", "by"), known)
            for at, name in enumerate(_list(_map(rule.get("limit")).get("by"))):
                self.check_field(name, (*path, "limit", "by", at), known)
            self.check_added(path, rule)

    def check_added(self, path: Path, rule: dict[str, Any]) -> None:
        for name in _map(rule.get("add")):
            where = (*path, "add", name)
            if name in model.RECORD_FIELDS or name == "sample_rate":
                self.error(
                    "conflict", where, f"`{name}` is a field of every record already", "choose another name", key=True
                )
                continue
            wanted = rule.get("sinks")
            sinks = [sink for sink in (wanted if isinstance(wanted, list) else self.sinks) if sink in self.sinks]
            if sinks and not any(self.reaches(name, self.sinks[sink]) for sink in sinks):
                self.warn(
                    "field-reaches-no-sink",
                    where,
                    f"rule {_echo(rule.get('name'), path)} adds `{printable(name)}`, "
                    f"which reaches no sink ({', '.join(sinks)})",
                    "list it in the sink's `metadata`, or use `line: json`",
                    key=True,
                )

    @staticmethod
    def reaches(field: str, sink: dict[str, Any]) -> bool:
        if sink.get("type") != "loki" or sink.get("line") == "json":
            return True
        return field in _list(sink.get("metadata")) or field in _list(_map(sink.get("labels")).get("fields"))

    def check_reference(self, path: Path, name: Any, known: Mapping[str, Any], what: str) -> None:
        if isinstance(name, str) and known and name not in known and not self.findings.wrong(path):
            self.error(
                "unknown-name", path, f"there is no {what} {_echo(name, path)}", _suggest(name, known, f"{what}s")
            )

    # -- sinks --

    def check_sink(self, name: str, sink: dict[str, Any]) -> None:
        path: Path = ("sinks", name)
        known = self.known_fields()
        if self.given((*path, "from")):
            for index, source in enumerate(_list(sink.get("from"))):
                self.check_reference((*path, "from", index), source, self.sources, "source")
        self.check_condition(sink.get("when"), (*path, "when"), known)
        tls = _map(sink.get("tls"))
        for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
            if one in tls and other not in tls:
                self.error("missing-key", (*path, "tls", other), f"required beside `{one}`, but missing")
        match sink.get("type"):
            case "loki":
                self.check_labels((*path, "labels"), _map(sink.get("labels")), known)
                if self.given((*path, "metadata")):
                    for index, one in enumerate(_list(sink.get("metadata"))):
                        self.check_field(one, (*path, "metadata", index), known)
            case "s3":
                for index, one in enumerate(_list(_map(sink.get("prefix")).get("by"))):
                    self.check_field(one, (*path, "prefix", "by", index), known)
            case "kafka" if "key" in sink:
                self.check_field(sink["key"], (*path, "key"), known)
            case "file" if isinstance(sink.get("path"), str):
                self.check_output((*path, "path"), sink["path"])

    def check_output(self, path: Path, file: str) -> None:
        temp_dir = _map(self.data.get("ray")).get("temp_dir")
        if isinstance(temp_dir, str) and posixpath.normpath(file).startswith(posixpath.normpath(temp_dir) + "/"):
            self.error("conflict", path, "lies under Ray's tree, where the sources read", "choose a file outside of it")

    def check_labels(self, path: Path, labels: dict[str, Any], known: set[str]) -> None:
        static, fields = _map(labels.get("static")), _list(labels.get("fields"))
        allowed = labels.get("allow_high_cardinality") is True
        for index, name in enumerate(fields):
            where = (*path, "fields", index)
            if not isinstance(name, str):
                continue
            if name in static:
                place = where if self.given((*path, "fields")) else (*path, "static", name)
                self.error(
                    "conflict", place, f"`{printable(name)}` is a static label and a field", "remove one of them"
                )
            elif name in _NO_LABEL:
                self.error("high-cardinality-label", where, f"`{name}` can't be a label", "use structured metadata")
            elif not allowed and (name in _HIGH_CARDINALITY or name.endswith(("_id", "_name"))):
                self.error(
                    "high-cardinality-label",
                    where,
                    f"`{printable(name)}` has unbounded values: each makes a stream of its own",
                    "list it under `metadata`, or set `allow_high_cardinality: true`",
                )
            elif self.given((*path, "fields")):
                self.check_field(name, where, known)
        count = len(static) + len(fields)
        if count > _MAX_LABELS:
            self.error(
                "too-many-labels",
                path,
                f"{count} labels; Loki takes 15, of which one is its own",
                f"at most {_MAX_LABELS}",
            )
        always = {"source", "node", *(["cluster"] if "cluster" in self.data else [])}
        if labels and not static and not always & {name for name in fields if isinstance(name, str)}:
            self.error(
                "no-certain-label",
                path,
                "no label is there on every record, and Loki refuses a stream without labels",
                "add a static one, or the field `source`, `node` or (where the policy has one) `cluster`",
            )


def selectors() -> frozenset[str]:
    """What `components` may name, by the catalogue."""
    from shipgen.catalog.ray import selectors as of_catalogue

    return of_catalogue()
