"""What depends on several places of a policy: names that must exist, fields, labels, paths."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from shipgen.diagnostics import Severity
from shipgen.policy import model
from shipgen.policy.loading import Findings, Item, Step, printable
from shipgen.policy.wording import echo, nearest, suggest

Path = tuple[Step, ...]

_HIGH_CARDINALITY: Final = frozenset(
    {"pid", "file", "raw", "message", "caller", "thread", "replica", "request_id", "fingerprint"}
)
_NO_LABEL: Final = frozenset({"time", "extra"})
# Words of LogQL in any case, so that `{json="x"}` is a syntax error (pkg/logql/syntax/lex.go, and run on 3.6).
_LOGQL_WORDS: Final = frozenset(
    {
        "and",
        "bool",
        "by",
        "decolorize",
        "drop",
        "group_left",
        "group_right",
        "ignoring",
        "json",
        "keep",
        "label_format",
        "line_format",
        "logfmt",
        "of",
        "offset",
        "on",
        "or",
        "pattern",
        "regexp",
        "unless",
        "unpack",
        "unwrap",
        "variants",
        "without",
    }
)
_MAX_LABELS: Final = 14
_DAY_MS: Final = 86_400_000

# Fields that are what they are: neither a rule nor a regex group may write them.
_RESERVED_GROUPS: Final = frozenset(
    {*model.ALWAYS_METADATA, "raw", "source", "component", "node", "session", "file", "cluster", "extra", "stream"}
    | {"sample_rate"}
)


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
        self.check_hop(_map(self.data.get("topology")))

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
                "output-in-ray-tree",
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
                hint = suggest(name, known) or f"components are {', '.join(sorted(known))}"
                self.error("unknown-component", (*path, index), f"there is no component {echo(name, path)}", hint)

    def check_format(self, path: Path, form: dict[str, Any], groups: tuple[str, ...]) -> None:
        regex_path = (*path, "regex")
        if self.findings.wrong(regex_path):
            return
        time = form.get("time")
        field = _map(time).get("field")
        if not groups:
            self.error(
                "regex-no-group",
                regex_path,
                "the pattern has no named group",
                "name what it finds: (?P<message>.*)",
            )
        elif isinstance(field, str) and field not in groups:
            self.error(
                "unknown-name",
                (*path, "time", "field"),
                f"`{printable(field)}` is no group of the pattern",
                suggest(field, groups, "its groups"),
            )
        for group in groups:
            if group in _RESERVED_GROUPS:
                self.error(
                    "reserved-field",
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
        self.warn("unknown-field", path, f"no record has a field {echo(name, path)}", hint, key=key)
        return False

    # -- conditions --

    def check_condition(self, condition: Any, path: Path, known: set[str]) -> None:
        for name, test in _map(condition).items():
            where = (*path, name)
            if name in ("any", "all"):
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
            "component": (*model.COMPONENTS, *model.VERL_COMPONENTS),
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
                    f"{echo(value, where)} is not a number, as `{name}` is",
                    "write it without quotes",
                )
            elif kind == "boolean" and not isinstance(value, bool):
                self.error("wrong-type", where, f"{echo(value, where)} is neither true nor false")
            elif kind in ("time", "object"):
                self.error("wrong-type", where, f"`{name}` can't be compared", "test it with {exists: true}")
            elif name in known and value not in known[name]:
                hint = suggest(str(value), known[name])
                self.error("unknown-name", where, f"`{name}` is never {echo(value, where)}", hint)

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
                    "reserved-field",
                    where,
                    f"`{name}` is a field of every record already",
                    "choose another name",
                    key=True,
                )
                continue
            wanted = rule.get("sinks")
            sinks = [sink for sink in (wanted if isinstance(wanted, list) else self.sinks) if sink in self.sinks]
            if sinks and not any(self.reaches(name, self.sinks[sink]) for sink in sinks):
                self.warn(
                    "field-reaches-no-sink",
                    where,
                    f"rule {echo(rule.get('name'), path)} adds `{printable(name)}`, "
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
            code = "unknown-sink" if what == "sink" else "unknown-source"
            self.error(code, path, f"there is no {what} {echo(name, path)}", suggest(name, known, f"{what}s"))

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
                text, hint = f"required beside `{one}`, but missing", "give both, or neither"
                self.error("missing-key", (*path, "tls", other), text, hint)
        self.check_retention((*path, "retention"), _map(sink.get("retention")), sink)
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

    def check_retention(self, path: Path, retention: dict[str, Any], sink: dict[str, Any]) -> None:
        streams = list(enumerate(_list(retention.get("streams"))))
        given = [((*path, "keep"), retention.get("keep"))]
        given += [((*path, "streams", index, "keep"), _map(one).get("keep")) for index, one in streams]
        for where, keep in given:
            if isinstance(keep, int) and keep < _DAY_MS:
                self.error("bad-value", where, "less than a day", "servers reckon in days; write 1d or more")
        keep, cold = retention.get("keep"), retention.get("cold_after")
        if isinstance(keep, int) and isinstance(cold, int) and cold >= keep:
            self.error("conflict", (*path, "cold_after"), "it is deleted before", "write less than `keep`")
        labels = _map(sink.get("labels"))
        known = {*_map(labels.get("static")), *(f for f in _list(labels.get("fields")) if isinstance(f, str))}
        for index, one in streams:
            for name in _map(_map(one).get("labels")):
                if name not in known:
                    where = (*path, "streams", index, "labels", name)
                    self.error(
                        "unknown-name",
                        where,
                        f"no stream of this sink has a label {echo(name, where)}",
                        suggest(name, known, "its labels"),
                    )

    def check_hop(self, hop: dict[str, Any]) -> None:
        tls = _map(hop.get("tls"))
        for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
            if one in tls and other not in tls:
                self.error("missing-key", ("topology", "tls", other), f"required beside `{one}`, but missing")
        if "key" in hop:
            self.check_field(hop["key"], ("topology", "key"), self.known_fields())

    def check_output(self, path: Path, file: str) -> None:
        temp_dir = _map(self.data.get("ray")).get("temp_dir")
        if isinstance(temp_dir, str) and posixpath.normpath(file).startswith(posixpath.normpath(temp_dir) + "/"):
            self.error(
                "output-in-ray-tree",
                path,
                "lies under Ray's tree, where the sources read",
                "choose a file outside of it",
            )

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
                    "label-twice", place, f"`{printable(name)}` is a static label and a field", "remove one of them"
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
        named = [(("static", name), name) for name in static] + [(("fields", i), name) for i, name in enumerate(fields)]
        for step, name in named:
            if isinstance(name, str) and name.lower() in _LOGQL_WORDS:
                text = f"`{name}` is a word of LogQL: no query could select by it"
                self.error("label-keyword", (*path, *step), text, "give it another name")
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
