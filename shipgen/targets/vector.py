"""Vector, 0.50 to 0.57.

A file source for each family of files, a small program that knows what the path says, a program that reads the entry,
the rules as transforms of their own (so that Vector's metrics count what each of them drops), then the sinks. Options,
defaults and version differences are those of vectordotdev/vector at the tags named beside them, and were run on 0.56
and 0.57.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from shipgen.catalog import formats, ray, redactions
from shipgen.diagnostics import Severity
from shipgen.pipeline import inventory, rotation
from shipgen.pipeline.conditions import ALWAYS
from shipgen.pipeline.model import Pipeline, Rule, SecretRef, Sink, Source
from shipgen.targets import common, vector_sinks
from shipgen.targets.base import File, Finding, condition_context, release

READ_LIMIT = 8 * 1024 * 1024
"""Longest line that is read, bytes. Longer ones are discarded whole: `lib/file-source-common/src/buffer.rs`, 0.57."""
NO_ENV_SINCE = (0, 57)
"""From here on `${NAME}` stays as it is unless a flag says otherwise."""
ENV_FLAG = "VECTOR_DANGEROUSLY_ALLOW_ENV_VAR_INTERPOLATION"

_ID_FIELDS = tuple(k for k in formats.JSON_IDS if k != "submission_id")
_FROM_HEADERS = ("level", "thread", "caller", *formats.JSON_SERVE, *formats.JSON_IDS, "extra")
"""Fields that a header or a JSON entry fills, apart from time and pid."""


def with_header_group(pattern: str) -> str:
    """A header's regex with its whole match as group `header`, so that its length is known and the message can be
    sliced off: a captured message would send the whole entry through the regex engine."""
    return f"^(?P<header>{pattern[1:]})"


class _Config:
    """The flat context of `vector.yaml.j2`, put together for one pipeline.

    Ids: names of a policy hold no colon, so `source`, `source:family` and `what::name` are never the same, whatever is
    called what. Those of sources are public: Vector keeps its offsets under them.
    """

    knows_fields = True
    """Whether no record has other fields than those that the pipeline gives it."""

    def __init__(self, pipeline: Pipeline, version: str, *, relays: bool = False) -> None:
        self.pipeline = pipeline
        self.version = version
        self.relays = relays
        self.marked = self.marks()
        self.lanes: list[str] = []
        self.longest: dict[int, list[str]] = {}
        self.starts: dict[str, list[str]] = {}
        self.sources: list[dict[str, Any]] = []
        self.transforms: list[dict[str, Any]] = []
        self.sinks: list[dict[str, Any]] = []
        self.secrets = vector_sinks.Secrets()
        self.meant: dict[tuple[str | int, ...], Any] = {}
        outputs = self.heads()
        if relays:
            self.transforms[:0] = self.relayed()
        self.route(outputs)

    # -- sources ------------------------------------------------------------------------------------------------------

    def marks(self) -> dict[str, int]:
        """A number for each source, where they have to be told apart."""
        return marked(self.pipeline)

    def heads(self) -> dict[str, list[str]]:
        """Adds all sources; gives the ids that the records of each come out of."""
        return {s.name: list(self.source(s)) for s in self.pipeline.sources}

    def source(self, source: Source) -> Iterator[str]:
        """Adds a source; yields the ids that its records come out of."""
        if source.families:
            yield from self.ray_source(source)
            return
        exclude, too_deep = exclusions(source)
        groups: dict[str, Any] = {}
        if source.continuation:
            groups = {"mode": "continue_through", "start": "^", "condition": source.continuation,
                      "timeout_ms": common.QUICK_FLUSH_MS}
        elif source.multiline:
            groups = {
                "mode": "halt_before", "start": source.multiline.start, "condition": source.multiline.start,
                "timeout_ms": source.multiline.timeout,
            }
        id_ = self.read(source, source.name, list(source.paths), exclude, **groups)
        program = {**self.file_program(source), "exclude": [] if self.relays else too_deep,
                   "include": [] if self.relays else spelled(source)}
        yield self.remap(f"{source.name}:entry", [id_], "vector/file.vrl.j2", program, role="entry")

    def read(
        self, source: Source, id_: str, include: list[str], exclude: list[str], checksum_lines: int = 0, **groups: Any
    ) -> str:
        """Adds a file source, or in a relay the lane of what another shipper reads; gives the id that lines come from.
        """
        skip = source.on_long_line == "skip"
        if self.relays:
            self.lanes.append(id_)
            if skip:
                self.longest.setdefault(source.max_line, []).append(id_)
            if groups.get("mode") == "halt_before":
                self.starts.setdefault(groups["start"], []).append(id_)
            return f"relay::lanes.lane{len(self.lanes)}"
        self.sources.append({
            "id": id_, "include": include, "exclude": exclude, "read_from": source.start,
            "ignore_older_secs": None if source.ignore_older is None else max(1, source.ignore_older // 1000),
            "discover_ms": self.pipeline.collector.discover_every,
            "max_line_bytes": source.max_line if skip else max(READ_LIMIT, source.max_line),
            "max_read_bytes": 65536, "start": "", "checksum_lines": checksum_lines, "kind": "file", **groups,
        })
        self.meant["sources", id_, "include"] = include
        self.meant["sources", id_, "exclude"] = exclude
        return id_

    def ray_source(self, source: Source) -> Iterator[str]:
        entries: dict[tuple[tuple[str, Any], ...], list[str]] = {}
        names: dict[tuple[tuple[str, Any], ...], str] = {}
        for family in source.families:
            id_ = f"{source.name}:{family.name}"
            backups = common.reads_backups(self.pipeline, source, family)
            include = common.globs(source, family, backups=backups)
            groups: dict[str, Any] = {}
            if family.grouping is ray.Grouping.HEADER:
                groups = {"mode": "halt_before", "start": formats.HEADER, "condition": formats.HEADER,
                          "timeout_ms": common.QUICK_FLUSH_MS}
            elif family.grouping is ray.Grouping.USER:
                groups = {"mode": "continue_through", "start": "^", "condition": formats.CONTINUATION,
                          "timeout_ms": common.QUICK_FLUSH_MS}
            lines = self.read(source, id_, include, [], self.checksum_lines(family), **groups)
            program = self.path_program(source, family, backups)
            path_id = self.remap(f"{id_}:path", [lines], "vector/path.vrl.j2", program, role="path")
            kind = common.entry_kind(source, family)
            key = tuple(kind.items())
            entries.setdefault(key, []).append(path_id)
            what = f"{family.name}:entry" if kind["own"] else f"{family.grouping.value}:entries"
            names.setdefault(key, f"{source.name}:{what}")
        for key, inputs in entries.items():
            program = self.entry_program(source, dict(key))
            yield self.remap(names[key], inputs, "vector/entry.vrl.j2", program, role="entry")

    def checksum_lines(self, family: ray.Family) -> int:
        """Lines that identify a file; 0 for device and inode. Vector does not notice that a file was truncated: it
        waits until the file outgrows the old offset (measured on 0.57: 310 of 1,500 lines arrived). Known by their
        first lines, files that logrotate truncates are new ones afterwards (1,499 of 1,500, none twice)."""
        return family.telling_lines if family in rotation.by_logrotate(self.pipeline) else 0

    def relayed(self) -> list[dict[str, Any]]:
        """What stands before all else in a relay: each group of lines as a file source would give it, and a lane for
        each input of the other shipper."""
        program = {"longest": self.longest, "starts": self.starts}
        lanes = [(f"lane{n}", {"kind": "is", "field": "source_type", "values": [id_], "boolean": False})
                 for n, id_ in enumerate(self.lanes, 1)]
        return [
            {"kind": "remap", "id": "relay::line", "inputs": ["relay::lines"], "role": "line", "drop_on_error": False,
             "template": "vector/line.vrl.j2", "f": program},
            {"kind": "route", "id": "relay::lanes", "inputs": ["relay::line"], "role": "lanes", "routes": lanes},
        ]

    # -- programs -----------------------------------------------------------------------------------------------------

    def remap(self, id_: str, inputs: list[str], template: str, f: Mapping[str, Any], *, role: str,
              fail_closed: bool = False) -> str:
        self.transforms.append({"kind": "remap", "id": id_, "inputs": inputs, "role": role, "template": template,
                                "f": f, "drop_on_error": fail_closed})
        return id_

    def filter(self, id_: str, inputs: list[str], when: Mapping[str, Any], *, role: str) -> str:
        self.transforms.append({"kind": "filter", "id": id_, "inputs": inputs, "role": role, "when": when})
        return id_

    def node(self) -> dict[str, Any]:
        node = None if self.relays else self.pipeline.collector.node
        return {"node_literal": node if isinstance(node, str) else "",
                "node_env": node.name if isinstance(node, SecretRef) else ""}

    def path_program(self, source: Source, family: ray.Family, backups: bool) -> dict[str, Any]:
        return {
            "prefix": len(source.base.encode()) + 1, "moves": family.moves, "backups": backups,
            "pattern": family.pattern, "fields": family.fields, "optional": ("pid", "deployment", "replica"),
            "unknown_job": ray.UNKNOWN_JOB, "source": source.name, "component": family.component,
            "cluster": self.pipeline.cluster, "mark": self.marked.get(source.name), **self.node(),
        }

    def json_fields(self, *, events: bool) -> dict[str, Any]:
        return {
            "levels": list(formats.LEVELS.items()), "level_words": formats.LEVEL_WORD, "json_level": formats.JSON_LEVEL,
            "json_fields": common.json_fields(), "json_consumed": common.json_consumed(events=events), "events": events,
            "extra": common.wants(self.pipeline, "extra"),
        }

    def zone(self) -> dict[str, str]:
        zone = self.pipeline.timezone
        return {"zone": "", "offset": ""} if zone == "local" else {"zone": zone, "offset": common.zone_offset(zone)}

    def entry_program(self, source: Source, kind: Mapping[str, Any]) -> dict[str, Any]:
        worker = kind.get("family") == "worker"
        return {
            **kind, **self.json_fields(events=kind["events"]), **self.zone(),
            "refill": [f for f in ray.BY_NAME["worker"].fields if f not in ("pid", "stream")] if worker else [],
            "marker": formats.MARKER, "glued": formats.GLUED_MARKER, "tqdm": formats.TQDM,
            "repeat": formats.DRIVER_REPEAT, "max_entry": source.max_entry, "max_line": source.max_line,
            "pair_fields": _ID_FIELDS, "header_fields": _FROM_HEADERS,
            "cpp": with_header_group(formats.CPP), "python": with_header_group(formats.PYTHON),
            "serve": with_header_group(formats.SERVE), "absl": with_header_group(formats.ABSL),
            "logging": with_header_group(formats.LOGGING), "dated": formats.DATED, "pairs": formats.PAIRS,
        }

    def file_program(self, source: Source) -> dict[str, Any]:
        import re

        groups = list(re.compile(source.regex).groupindex)
        layout = source.time.layout if source.time else ""
        root = self.pipeline.collector.root.rstrip("/")
        return {
            **self.json_fields(events=False), **self.zone(), **self.node(),
            "source": source.name, "component": source.component, "cluster": self.pipeline.cluster,
            "root": len(root.encode()), **common.words(source),
            "mark": self.marked.get(source.name),
            "max_entry": source.max_entry, "max_line": source.max_line,
            "max_lines": source.multiline.max_lines if source.multiline else None,
            "format": source.format, "regex": source.regex, "all_groups": groups,
            "groups": common.regex_groups(source),
            "time_field": source.time.field if source.time else "", "layout": layout,
            "digits": len(str(common.EPOCHS.get(layout, 1))) - 1,
        }

    # -- rules and sinks ----------------------------------------------------------------------------------------------

    def route(self, outputs: Mapping[str, list[str]]) -> None:
        """Rules that hold for all sinks are shared; from the first one that does not, each sink has a chain of its
        own."""
        shared, rest = common.shared_rules(self.pipeline)
        heads, failed = dict(outputs), list[str]()
        for rules in steps(shared):
            heads |= self.apply(rules, heads, "", failed)
        for sink in self.pipeline.sinks:
            own, own_failed = {name: heads[name] for name in sink.sources}, list(failed)
            if self.marked and len(sink.sources) < len(heads):
                of = {"kind": "from", "marks": [self.marked[name] for name in sink.sources] + self.marks_of_others()}
                id_ = self.filter(f"from::{sink.name}", joined(own) + failed, of, role="from")
                own, own_failed = {name: [id_] for name in own}, []
            for rules in steps(rule for rule in rest if rule.sinks is None or sink.name in rule.sinks):
                own = self.apply(rules, own, f"::{sink.name}", own_failed)
            inputs = joined(own) + own_failed
            if sink.when != ALWAYS:
                inputs = [self.filter(f"when::{sink.name}", inputs, condition_context(sink.when), role="when")]
            self.sink(sink, inputs)

    def marks_of_others(self) -> list[int]:
        """Marks of records that are of no source of the policy; every sink gets those."""
        return []

    def apply(
        self, rules: Sequence[Rule], heads: Mapping[str, list[str]], suffix: str, failed: list[str]
    ) -> dict[str, list[str]]:
        """Adds one step behind the given outputs; gives the outputs behind it. What delivers records whose redaction
        failed is added to ``failed``: past the rules that follow, since Vector compiles what lies behind two outputs
        that meet again once for each way through them (`possible_definitions` in `src/topology/schema.rs`, 0.57, never
        fills its cache): with eight in a row it took two minutes to start."""
        inputs = joined(heads)
        rule = rules[0]
        id_ = f"rule::{'+'.join(r.name for r in rules)}{suffix}"
        when, options = condition_context(rule.when), rule.options
        unless = {"kind": "not", "of": when}
        if rule.action == "drop":
            self.filter(id_, inputs, unless, role="rule")
        elif rule.action == "sample":
            self.transforms.append({"kind": "sample", "id": id_, "inputs": inputs, "role": "rule", "unless": unless,
                                    "rate": options["rate"], "by": options.get("by", "")})
        elif rule.action == "limit":
            self.transforms.append({"kind": "throttle", "id": id_, "inputs": inputs, "role": "rule", "unless": unless,
                                    "records": options["records"], "seconds": options["per"] / 1000,
                                    "by": list(options.get("by", ()))})
        elif rule.action == "add":
            self.remap(id_, inputs, "vector/add.vrl.j2", {"when": when, "fields": list(options.items())}, role="rule")
        else:
            program: dict[str, Any] = {
                "redactions": [{"when": condition_context(r.when), **redaction(r.options)} for r in rules],
                "pairs": common.any_field(self.pipeline), "reserved": common.RESERVED,
            }
            self.remap(id_, inputs, "vector/redact.vrl.j2", program, role="rule", fail_closed=True)
            program = {"marked": bool(self.marked)}
            failed.append(self.remap(id_.replace("rule::", "failed::", 1), [f"{id_}.dropped"],
                                     "vector/redaction_failed.vrl.j2", program, role="failed"))
        return {name: [id_] for name in heads}

    def sink(self, sink: Sink, inputs: list[str]) -> None:
        marked = bool(self.marked)
        if sink.type == "loki":
            template, program = "vector/loki.vrl.j2", {
                **self.loki(sink), "marked": marked, "fingerprint": bool(self.pipeline.fingerprint)}
        else:
            template = "vector/object.vrl.j2"
            program = vector_sinks.object_program(self.pipeline, sink, marked=marked)
        id_ = f"out::{sink.name}"
        shaped = [self.remap(f"shape::{sink.name}", inputs, template, program, role="shape")]
        context = vector_sinks.settings(self.pipeline, sink, release(self.version), self.secrets)
        self.sinks.append({"id": id_, "inputs": shaped, **context})
        self.meant |= {("sinks", id_, key): value for key, value in vector_sinks.meant(context).items()}

    def loki(self, sink: Sink) -> dict[str, Any]:
        options = sink.options
        labels, server = options["labels"], options["server"]
        metadata = common.loki_metadata(options)
        any_field = common.any_field(self.pipeline)
        taken_away = ["timestamp", *(f for f in common.possible_fields(self.pipeline) if f not in (*metadata, "time"))]
        return {
            "not_metadata": taken_away
            if self.knows_fields and len(taken_away) < len(metadata) and not any_field else None,
            "late": options["late"], "line": options["line"], "static": list(labels["static"].items()),
            "label_fields": labels["fields"], "metadata": metadata,
            "protobuf": vector_sinks.compression(sink)[0] == "snappy",
            "max_behind": common.max_behind(server), "max_ahead": common.MAX_AHEAD,
            "max_line_size": None if common.lines_fit(self.pipeline, options) else server["max_line_size"],
        }


def steps(rules: Iterable[Rule]) -> list[tuple[Rule, ...]]:
    """Rules as they follow each other, neighbouring redactions as one program."""
    groups: list[tuple[Rule, ...]] = []
    for rule in rules:
        if rule.action == "redact" and groups and groups[-1][0].action == "redact":
            groups[-1] += (rule,)
        else:
            groups.append((rule,))
    return groups


def joined(outputs: Mapping[str, list[str]]) -> list[str]:
    """Ids of outputs, each once."""
    return list(dict.fromkeys(i for ids in outputs.values() for i in ids))


def marked(pipeline: Pipeline) -> dict[str, int]:
    """A number for each source, where a sink does not take all of them and rules hold for all: behind those rules
    nothing else tells the records apart for sure, since a redaction may have changed their `source`."""
    names = [s.name for s in pipeline.sources]
    parted = any(len(sink.sources) < len(names) for sink in pipeline.sinks)
    return {name: i for i, name in enumerate(names)} if parted and common.shared_rules(pipeline)[0] else {}


def exclusions(source: Source) -> tuple[list[str], list[str]]:
    """What Vector leaves out by itself, and regexes of what the program has to. Vector's `*` matches `/` too in a
    glob that excludes (not in one that includes): that is only the same where no path that is read lies deeper than
    the glob."""
    depth = max(path.count("/") for path in source.paths)
    deeper = [glob for glob in source.exclude if glob.count("/") < depth]
    return [glob for glob in source.exclude if glob not in deeper], [inventory.glob_regex(glob) for glob in deeper]


def spelled(source: Source) -> list[str]:
    """Regexes of what is meant to be read, where Vector reads more: in a part of a path with wildcards it takes
    capitals and small letters for the same (seen on 0.57; `MatchOptions::default()` in `src/sources/file.rs`)."""
    parts = [part for path in source.paths for part in path.split("/") if set(part) & set("*?[")]
    lax = any(char.lower() != char.upper() for part in parts for char in part)
    return [inventory.glob_regex(path) for path in source.paths] if lax else []


def redaction(options: Mapping[str, Any]) -> dict[str, Any]:
    """Regex and replacement (in the syntax of VRL's `replace`) of a redact rule; `with_json` is for the text of
    JSON."""
    text = str(options.get("with", "[redacted]"))
    if "pattern" in options:
        return {"regex": options["pattern"], "with": text.replace("$", "$$"), "instead": text, "on_json_text": False}
    kind = redactions.KINDS[options["kind"]]

    def replacement(text: str) -> str:
        return ("${1}" if kind.keeps else "") + (kind.before + text + kind.after).replace("$", "$$")

    return {"regex": kind.regex, "with": replacement(text), "instead": text, "on_json_text": kind.on_json_text,
            "with_json": replacement(json.dumps(text, ensure_ascii=False)[1:-1])}


class Vector:
    """The target `vector`."""

    name = "vector"
    versions = ("0.50", "0.51", "0.52", "0.53", "0.54", "0.55", "0.56", "0.57")
    main_config = "vector/vector.yaml"
    binary = "vector"
    reads_rotated = True
    ready_line = "Vector has started"
    smallest_buffer = vector_sinks.MIN_BUFFER

    def check(self, pipeline: Pipeline, version: str) -> Iterator[Finding]:
        """Findings that depend on values: buffers too small, secrets that need a flag, names that Vector can't
        write."""
        if any(s.families for s in pipeline.sources) and rotation.by(pipeline) == "ray":
            yield Finding("inode-reuse", Severity.NOTE, ("rotation", "backups"),
                          "where the file system gives the inode of a deleted backup to a new file within a minute, or "
                          "while Vector is stopped, Vector takes the one for the other and skips the head of the new "
                          "file (6 of 50 lines with a ring of one backup, 0.57; vectordotdev/vector issue 25079)",
                          "rings that hold hours make that rare: a large max_size, several backups")
        yield from self.check_sinks(pipeline, version)

    def check_sinks(self, pipeline: Pipeline, version: str) -> Iterator[Finding]:
        """Those that hold whoever reads the files."""
        confined = release(version) >= vector_sinks.CONFINED_SINCE
        host = pipeline.collector.metrics_bind
        if not is_ip_address(host):
            yield Finding("unsupported", Severity.ERROR, ("collector", "metrics", "bind"),
                          f"Vector listens on an IP address, not on a name such as {host}", "write 127.0.0.1 or ::")
        for sink in pipeline.sinks:
            path: tuple[str | int, ...] = ("sinks", sink.name)
            yield from vector_sinks.findings(sink)
            for where, name in loki_names(sink):
                if name != name.lower():
                    yield Finding("unsupported", Severity.ERROR, where,
                                  "Vector writes the names of labels and of structured metadata in small letters: "
                                  f"{name} would be {name.lower()}", "use small letters")
            if sink.type == "loki" and confined:
                yield Finding("template-confinement", Severity.NOTE, (*path, "labels"),
                              "Vector 0.57 and later confine templates, and labels that may be absent need one without "
                              "a prefix: the sink sets dangerously_allow_unconfined_template_resolution, for label and "
                              "metadata values only; Vector warns of it at start")
        for where, ref in common.secrets(pipeline):
            if ref.kind == "env" and release(version) >= NO_ENV_SINCE:
                yield Finding("needs-flag", Severity.WARNING, where,
                              f"Vector 0.57 and later read environment variables only with {ENV_FLAG}=true; "
                              "without it they would send the reference itself",
                              "set it where Vector starts, or use {file: PATH}")
            if ref.kind == "file" and not is_secret_name(PurePosixPath(ref.name).name):
                yield Finding("unsupported", Severity.ERROR, where,
                              "Vector's secret backend reads only files named by letters, digits, `_`, `.` and `-`",
                              "give the file such a name")
        for where, name in given_names(pipeline):
            if name == "timestamp":
                yield Finding("unsupported", Severity.ERROR, where,
                              "Vector keeps the time of a record in the field `timestamp`", "choose another name")

    def files(self, pipeline: Pipeline, version: str) -> Iterable[File]:
        """`vector/vector.yaml`."""
        yield self.file(pipeline, version, self.main_config, self.name)

    def file(self, pipeline: Pipeline, version: str, path: str, target: str, listens: str = "") -> File:
        """A configuration at a path of the bundle of a target. With ``listens`` it reads no files: it gets lines from
        another shipper over the Lumberjack protocol at that address, each with its path (`log.file.path`), the id of
        its input (`fields.id`) and the node (`host.name`)."""
        config = _Config(pipeline, version, relays=bool(listens))
        return config_file(config, pipeline, "relay" if listens else self.name, path, target, listens)

    def start_argv(self, config: str, pipeline: Pipeline, version: str) -> tuple[str, ...]:
        """Start command; with the flag for environment variables where the policy's secrets need it."""
        refs = [ref for _, ref in common.secrets(pipeline)]
        needs_flag = release(version) >= NO_ENV_SINCE and any(r.kind == "env" for r in refs)
        flag = ("env", f"{ENV_FLAG}=true") if needs_flag else ()
        return (*flag, self.binary, "--config", config)

    def validate_argv(self, config: str) -> tuple[str, ...]:
        """`vector validate`, without the checks that need the node's directories and the sinks."""
        return (self.binary, "validate", "--no-environment", "--config-yaml", config)

    def not_validated(self) -> str:
        """What `vector validate --no-environment` does not look at (`src/validate.rs`, 0.57)."""
        return "globs, template confinement, TLS files, secrets, label names and the sinks themselves"

    def image(self, version: str) -> str:
        """Image of a version: `timberio/vector:<version>-debian` (`distribution/docker`, 0.57)."""
        full = version if version.count(".") == 2 else f"{version}.0"
        return f"timberio/vector:{full}-debian"


def config_file(
    config: _Config, pipeline: Pipeline, name: str, path: str, target: str = "vector", listens: str = ""
) -> File:
    """The file of a Vector whose state lies below ``name``; ``target`` is what it is rendered with."""
    state = common.state_dir(pipeline, name)
    host = pipeline.collector.metrics_bind
    address = f"[{host}]" if ":" in host else host
    notes = ("Environment: " + ", ".join(sorted(config.secrets.env)),) if config.secrets.env else ()
    start = " ".join(TARGET.start_argv(PurePosixPath(path).name, pipeline, config.version))
    context = {
        "header": common.header(pipeline, target, config.version, start, notes),
        "v": {"data_dir": state, "metrics_address": f"{address}:{pipeline.collector.metrics_port}",
              "secret_dirs": [{"id": i, "path": p} for p, i in config.secrets.dirs.items()], "listens": listens,
              "sources": config.sources, "transforms": config.transforms, "sinks": config.sinks},
    }
    return File(path, "vector/vector.yaml.j2", context, "yaml", {**config.meant, ("data_dir",): state})


def record_programs(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The remap steps that make a record, and the rules (add, redact, drop) that hold for every sink, in order: for
    running them without Vector. Each has an id, inputs, a role, a template and its context. All fields are made,
    `extra` too."""
    everything = Sink("preview", "console", tuple(s.name for s in pipeline.sources), ALWAYS, {"target": "stdout"})
    rules = tuple(r for r in pipeline.rules if r.sinks is None and r.action in ("add", "redact", "drop"))
    config = _Config(replace(pipeline, sinks=(everything,), rules=rules), Vector.versions[-1])
    steps = []
    for step in config.transforms:
        if step["kind"] == "filter":
            steps.append({**step, "template": "vector/drop.vrl.j2", "f": {"when": step["when"]}})
        elif step["role"] in ("path", "entry", "rule"):
            steps.append({**step, "f": {**step["f"], "include": []}})  # a file on stdin has no path
    return steps


def is_secret_name(name: str) -> bool:
    """Whether Vector's secret backend can read a file of this name (`src/config/loading/secret.rs`)."""
    return bool(name) and all(c.isascii() and (c.isalnum() or c in "_.-") for c in name)


def is_ip_address(host: str) -> bool:
    """Whether Vector can listen there: its exporter takes a socket address and looks no name up."""
    from ipaddress import ip_address

    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def loki_names(sink: Sink) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Names that a Loki sink gives to labels and structured metadata, with their places in the policy."""
    if sink.type != "loki":
        return
    path, labels = ("sinks", sink.name), sink.options["labels"]
    for name in labels["static"]:
        yield (*path, "labels", "static", name), name
    for index, name in enumerate(labels["fields"]):
        yield (*path, "labels", "fields", index), name
    for index, name in enumerate(sink.options["metadata"]):
        yield (*path, "metadata", index), name


def given_names(pipeline: Pipeline) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Names of fields that the policy makes, with their places."""
    for rule in pipeline.rules:
        for name in rule.options if rule.action == "add" else ():
            yield ("parsing", "rules", rule.index, "add", name), name
    for source in pipeline.sources:
        for name in common.regex_groups(source):
            yield ("sources", source.name, "format", "regex"), name


TARGET = Vector()

__all__ = ["TARGET", "Vector"]
