"""Fluentd, 1.16 to 1.19, with the gems that a rendered Gemfile names.

A `tail` source for each family of files, a filter of ours that makes the record, a filter for each rule, a label for
each sink. What no gem does is in small plugins of ours, the same for every policy; what a policy says reaches them as
single-quoted text, which Fluentd takes as it stands. Options and their defaults are those of fluent/fluentd at 1.16 to
1.19, and were run on 1.19.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shipgen.catalog import formats, ray, redactions
from shipgen.diagnostics import Severity
from shipgen.pipeline.conditions import ALWAYS
from shipgen.pipeline.model import Pipeline, Rule, SecretRef, Sink, Source
from shipgen.rendering.quoting import ruby_source
from shipgen.targets import common
from shipgen.targets.base import File, Finding, condition_context, release

READ_LIMIT = 8 * 1024 * 1024
"""Longest line that is read, bytes; longer ones are skipped (`lib/fluent/plugin/in_tail.rb`, 1.19)."""
GLOB_POLICY_SINCE = (1, 17)
"""Before it only paths with a `*` are globs."""
GZIP_LEVEL = 6
"""Level of zlib itself where the policy gives none."""
PLUGINS = ("shipgen", "shipgen_entry", "in_shipgen_tail", "parser_shipgen_multiline", "filter_shipgen_ray",
           "filter_shipgen_file", "filter_shipgen_rule", "out_shipgen_loki", "out_shipgen_http",
           "out_shipgen_lines")
INDEX_DATES = {"none": None, "daily": "%Y.%m.%d", "monthly": "%Y.%m"}
"""What stands behind the name of an index that rotates."""
GEMS = {"1.16": (">= 1.16.2", "< 1.17")}
"""Constraints of the gem `fluentd` where they are not just its minor version: before 1.16.2 a file that was followed by
its inode could be read twice."""


class _Config:
    """The flat context of `fluent.conf.j2`, put together for one pipeline."""

    def __init__(self, pipeline: Pipeline, version: str) -> None:
        self.pipeline = pipeline
        self.version = release(version)
        self.state = common.state_dir(pipeline, "fluentd")
        self.env: set[str] = set()
        self.sources: list[dict[str, Any]] = []
        self.programs: list[dict[str, Any]] = []
        for source in pipeline.sources:
            if source.families:
                self.ray_source(source)
            else:
                self.file_source(source)
        shared, rest = common.shared_rules(pipeline)
        self.rules = [rule_program(rule) for rule in shared]
        self.routes = [
            {"tag": f"{s.name}.*", "sinks": [k.name for k in pipeline.sinks if s.name in k.sources]}
            for s in pipeline.sources
        ]
        self.sinks = [self.sink(sink, rest) for sink in pipeline.sinks]
        self.meant: dict[tuple[str | int, ...], Any] = {
            (s["id"], "path"): "|".join(s["paths"]).replace("%", "%%") for s in self.sources
        }
        self.meant |= {(s["id"], "program"): s["program"] for s in self.sinks if "program" in s}
        self.meant |= {(s["id"], "path"): s["path"] for s in self.sinks if s["path"]}
        self.meant |= {(s["id"], "url"): s["endpoint"] for s in self.sinks if s["type"] == "loki"}
        if isinstance(node := pipeline.collector.node, SecretRef):
            self.env.add(node.name)

    # -- sources ------------------------------------------------------------------------------------------------------

    def tail(self, source: Source, family: str, paths: list[str], **more: Any) -> str:
        tag = f"{source.name}.{family}"
        skip = source.on_long_line == "skip"
        self.sources.append({
            "id": f"in:{tag}", "tag": tag, "paths": paths, "pos_file": f"{self.state}/{tag}.pos",
            "glob_policy": "always" if self.version >= GLOB_POLICY_SINCE else "", "exclude": [],
            "refresh": self.pipeline.collector.discover_every, "from_head": source.start == "beginning",
            "recent": source.ignore_older, "regex": "", "begins": "", "joins_head": False, "flush": common.FLUSH_MS,
            # the length counts the line's end
            # a line that was skipped would make the position wrong by its length
            "hold_position": bool(more.get("regex")) and not skip,
            "max_line_size": (source.max_line if skip else max(READ_LIMIT, source.max_line)) + 1, **more,
        })
        return tag

    def ray_source(self, source: Source) -> None:
        for family in source.families:
            grouping: dict[str, Any] = {}
            if family.grouping is ray.Grouping.HEADER:
                grouping = {"regex": formats.HEADER, "begins": "found"}
            elif family.grouping is ray.Grouping.USER:
                grouping = {"regex": formats.CONTINUATION, "begins": "not_found", "joins_head": True}
            backups = common.reads_backups(self.pipeline, source, family)
            tag = self.tail(source, family.name, common.globs(source, family, backups=backups), **grouping)
            kind = common.entry_kind(source, family)
            self.programs.append({"tag": tag, "type": "shipgen_ray", "program": {
                **self.entry(source), "component": family.component, "prefix": len(source.base.encode()) + 1,
                "moves": family.moves, "backups": backups, "pattern": ruby_source(family.pattern),
                "unknown_job": ray.UNKNOWN_JOB, "user": family.grouping is ray.Grouping.USER,
                **{k: kind[k] for k in ("markers", "cut_driver", "cut_serve", "cut_cpp", "events")},
            }})

    def file_source(self, source: Source) -> None:
        grouping = {}
        if source.multiline:
            grouping = {"regex": source.multiline.start, "begins": "found", "flush": source.multiline.timeout}
        exclude = [glob.replace("%", "%%") for glob in source.exclude]
        tag = self.tail(source, "file", list(source.paths), exclude=exclude, **grouping)
        layout = source.time.layout if source.time else ""
        self.programs.append({"tag": tag, "type": "shipgen_file", "program": {
            **self.entry(source), "root": len(self.pipeline.collector.root.rstrip("/").encode()),
            "format": source.format, "regex": ruby_source(source.regex), "groups": common.regex_groups(source),
            "time_field": source.time.field if source.time else "", "layout": layout,
            "digits": len(str(common.EPOCHS.get(layout, 1))) - 1,
            "max_lines": source.multiline.max_lines if source.multiline else None, "events": False,
        }})

    def entry(self, source: Source) -> dict[str, Any]:
        node, zone = self.pipeline.collector.node, self.pipeline.timezone
        return {
            "source": source.name, "cluster": self.pipeline.cluster, "component": None,
            "node": node if isinstance(node, str) else None,
            "node_env": node.name if isinstance(node, SecretRef) else None,
            "zone": None if zone == "local" else zone, "max_entry": source.max_entry, "max_line": source.max_line,
            "extra": common.wants(self.pipeline, "extra"),
        }

    # -- sinks --------------------------------------------------------------------------------------------------------

    def sink(self, sink: Sink, rest: Iterable[Rule]) -> dict[str, Any]:
        options = sink.options
        rules = [rule_program(r) for r in rest if r.sinks is None or sink.name in r.sinks]
        if sink.when != ALWAYS:
            unless = ruby_condition({"kind": "not", "of": condition_context(sink.when)})
            rules.append({"name": f"when:{sink.name}", "action": "drop", "when": unless, "options": {}})
        context: dict[str, Any] = {
            "name": sink.name, "id": f"out:{sink.name}", "type": sink.type, "rules": rules,
            "buffer": self.buffer(sink), "path": "", "target": sink.type,
        }
        if sink.type == "loki":
            context |= {"endpoint": options["endpoint"].rstrip("/"), "tenant": options.get("tenant", ""),
                        "tls": tls(options.get("tls")), "program": self.loki(options)}
        elif sink.type in ("http", "elasticsearch", "opensearch"):
            context |= {"type": "http", "program": self.http(sink)}
        elif sink.type == "file":
            context["path"] = options["path"]
        else:
            context["target"] = options["target"]
        return context

    def loki(self, options: Mapping[str, Any]) -> dict[str, Any]:
        labels, server = options["labels"], options["server"]
        return {
            "static": labels["static"], "labels": labels["fields"], "metadata": common.loki_metadata(options),
            "line": options["line"], "late": options["late"], "max_behind": common.max_behind(server),
            "max_ahead": common.MAX_AHEAD, "gzip": gzip_level(options["compression"]),
            "max_line_size": None if common.lines_fit(self.pipeline, options) else server["max_line_size"],
            "auth": self.auth(options.get("auth")),
        }

    def http(self, sink: Sink) -> dict[str, Any]:
        """An endpoint for lines of JSON, or the bulk call of a search engine."""
        options = sink.options
        found: dict[str, Any] = {
            "method": options.get("method", "POST"), "headers": self.plain(options.get("headers", {})),
            "auth": self.auth(options.get("auth")), "tls": self.plain(options.get("tls", {})),
            "gzip": gzip_level(options["compression"]), "index": None, "date": None, "time": "time",
        }
        if sink.type == "http":
            automatic = options["compression"] == "auto"
            return found | {"endpoints": [options["endpoint"]], "gzip": None if automatic else found["gzip"]}
        found |= {"endpoints": [f"{e.rstrip('/')}/_bulk" for e in options["endpoints"]], "time": "@timestamp"}
        if "index" in options:
            return found | {"index": options["index"]["name"], "date": INDEX_DATES[options["index"]["rotate"]]}
        stream = options["data_stream"]
        return found | {"index": f"logs-{stream['dataset']}-{stream['namespace']}"}

    def auth(self, auth: Mapping[str, Any] | None) -> Any:
        return self.plain(auth) if auth else None

    def plain(self, tree: Any) -> Any:
        """Settings with their secrets as references."""
        if isinstance(tree, SecretRef):
            if tree.kind == "env":
                self.env.add(tree.name)
            return {tree.kind: tree.name}
        return {k: self.plain(v) for k, v in tree.items()} if isinstance(tree, Mapping) else tree

    def buffer(self, sink: Sink) -> dict[str, Any]:
        options = sink.options
        wanted = options.get("buffer", {"max_size": 1 << 30, "when_full": "block"})
        batch = options.get("batch", {"max_bytes": 1 << 20, "max_wait": 1000})
        retry = options.get("retry", {"max_backoff": 30_000, "give_up_after": "never"})
        memory = sink.type == "console" or options.get("delivery") == "best_effort"
        chunk = max(batch["max_bytes"], smallest_chunk(self.pipeline))
        return {
            "type": "memory" if memory else "file", "path": "" if memory else f"{self.state}/buffer/{sink.name}",
            "total": max(wanted["max_size"], 2 * chunk), "chunk": chunk,
            "overflow": "drop_oldest_chunk" if wanted["when_full"] == "drop_oldest" else "block",
            "flush": batch["max_wait"], "max_backoff": max(1000, retry["max_backoff"]),
            "give_up": None if retry["give_up_after"] == "never" else retry["give_up_after"],
        }


def smallest_chunk(pipeline: Pipeline) -> int:
    """What a chunk of a buffer must have room for: the longest record, whose text it may hold several times. Fluentd
    throws away a record that no chunk can hold."""
    return 4 * max(s.max_entry for s in pipeline.sources) + 65_536


def ruby_condition(condition: dict[str, Any]) -> dict[str, Any]:
    """A condition with its regexes as Ruby reads them."""
    if condition["kind"] == "matches":
        return {**condition, "regex": ruby_source(condition["regex"])}
    of = condition.get("of")
    if isinstance(of, list):
        return {**condition, "of": [ruby_condition(part) for part in of]}
    return {**condition, "of": ruby_condition(of)} if of else condition


def rule_program(rule: Rule) -> dict[str, Any]:
    """A rule as its filter reads it."""
    options: dict[str, Any] = dict(rule.options)
    if rule.action == "sample":
        options = {"rate": options["rate"], "by": options.get("by", "")}
    elif rule.action == "limit":
        options = {"records": options["records"], "milliseconds": options["per"], "by": list(options.get("by", ()))}
    elif rule.action == "add":
        options = {"fields": options}
    elif rule.action == "redact":
        options = redaction(options)
    elif rule.action == "drop":
        options = {}
    when = ruby_condition(condition_context(rule.when))
    return {"name": rule.name, "action": rule.action, "when": when, "options": options}


def redaction(options: Mapping[str, Any]) -> dict[str, Any]:
    """Regex of a redact rule, and what stands for a match: two texts, since one may stay in front of them."""
    text = str(options.get("with", "[redacted]"))
    if "pattern" in options:
        return {"regex": ruby_source(options["pattern"]), "with": ["", text], "keeps": False, "on_json_text": False}
    kind = redactions.KINDS[options["kind"]]
    in_json = json.dumps(text, ensure_ascii=False)[1:-1]
    return {"regex": ruby_source(kind.regex), "with": [kind.before, text + kind.after], "keeps": kind.keeps,
            "with_json": [kind.before, in_json + kind.after], "on_json_text": kind.on_json_text}


def gzip_level(value: Any) -> int | None:
    """Level of gzip; None for no compression. `auto` is gzip."""
    if isinstance(value, Mapping):
        return int(value.get("level", GZIP_LEVEL))
    return None if value == "none" else GZIP_LEVEL


def tls(options: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    """TLS settings under the names of the Loki output."""
    if options is None:
        return []
    names = {"ca_file": "ca_cert", "cert_file": "cert", "key_file": "key"}
    found: list[tuple[str, Any]] = [(theirs, options[ours]) for ours, theirs in names.items() if ours in options]
    return [*found, ("insecure_tls", not options.get("verify", True))]


def gems(version: str) -> list[tuple[str, tuple[str, ...]]]:
    """Gems that the configuration needs, with their constraints."""
    minor = ".".join(version.split(".")[:2])
    own = (f"~> {version}",) if version.count(".") == 2 else GEMS.get(minor, (f"~> {minor}.0",))
    return [("fluentd", own), ("fluent-plugin-grafana-loki", ("~> 1.2",)), ("fluent-plugin-prometheus", ("~> 2.1",)),
            ("tzinfo", ("~> 2.0",)), ("tzinfo-data", ())]


def plugin_facts() -> dict[str, Any]:
    """What the catalogue knows of Ray's lines, for our plugins."""
    date = formats.DATE
    return {
        "regexes": [
            ("ANSI", formats.ANSI), ("MARKER", formats.MARKER), ("GLUED_MARKER", formats.GLUED_MARKER),
            ("DRIVER_REPEAT", formats.DRIVER_REPEAT), ("CPP", formats.CPP), ("PYTHON", formats.PYTHON),
            ("SERVE", formats.SERVE), ("ABSL", formats.ABSL), ("DATED", formats.DATED), ("PAIRS", formats.PAIRS),
            ("PAIRS_TIME", r" timestamp_ns=(?P<timestamp_ns>[0-9]{19})$"),
            ("LEVEL_WORD", formats.LEVEL_WORD), ("STAMP", rf"^{date}(?:[.,][0-9]{{1,9}})?$"),
            ("GLOG", r"^[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?$"),
            ("NUMBER", r"^([0-9]{1,19})(?:\.([0-9]*))?$"),
        ],
        "tqdm": formats.TQDM, "levels": list(formats.LEVELS.items()), "json_level": formats.JSON_LEVEL,
        "json_fields": common.json_fields(), "json_consumed": common.json_consumed(events=False),
        "pair_fields": [k for k in formats.JSON_IDS if k != "submission_id"],
    }


class Fluentd:
    """The target `fluentd`."""

    name = "fluentd"
    versions = ("1.16", "1.17", "1.18", "1.19")
    main_config = "fluentd/fluent.conf"
    binary = "fluentd"
    reads_rotated = True
    ready_line = "fluentd worker is now running"

    def check(self, pipeline: Pipeline, version: str) -> Iterator[Finding]:
        """Findings that depend on values: paths that Fluentd would read otherwise, batches that it must make larger."""
        for source in pipeline.sources:
            at: tuple[str | int, ...] = ("ray", "temp_dir") if source.families else ("sources", source.name, "paths")
            for path in source.paths or (source.base,):
                if "|" in path:
                    yield Finding("unsupported", Severity.ERROR, at, "`|` parts the paths of a source in Fluentd",
                                  "write `?` for it" if source.paths else "name the directory otherwise")
                elif release(version) < GLOB_POLICY_SINCE and re.search(r"[?\[]", path) and "*" not in path:
                    yield Finding("unsupported", Severity.ERROR, at,
                                  "before Fluentd 1.17 a path without a `*` is no pattern", "write it with a `*`")
        smallest = smallest_chunk(pipeline)
        for sink in pipeline.sinks:
            where = ("sinks", sink.name)
            if (size := sink.options.get("batch", {}).get("max_bytes", smallest)) < smallest:
                yield Finding("approximated", Severity.WARNING, (*where, "batch", "max_bytes"),
                              f"a chunk must have room for the longest entry: {smallest} bytes are used, not {size}",
                              "make `max_entry` of the sources smaller")
            if (size := sink.options.get("buffer", {}).get("max_size", 2 * smallest)) < 2 * smallest:
                yield Finding("approximated", Severity.WARNING, (*where, "buffer", "max_size"),
                              f"a buffer must have room for two chunks; {2 * smallest} bytes are used or more",
                              "give it more")

    def files(self, pipeline: Pipeline, version: str) -> Iterator[File]:
        """`fluentd/fluent.conf`, the Gemfile and our plugins."""
        config = _Config(pipeline, version)
        notes: tuple[str, ...] = ("Environment: " + ", ".join(sorted(config.env)),) if config.env else ()
        if any(s.options.get("target") == "stdout" for s in pipeline.sinks):
            notes += ("Records go to stdout, and so does Fluentd's own log: --log FILE keeps that apart",)
        start = " ".join(self.start_argv("fluent.conf", pipeline, version))
        head = common.header(pipeline, self.name, version, start, notes)
        collector = pipeline.collector
        yield File(self.main_config, "fluentd/fluent.conf.j2", {"header": head, "v": {
            "metrics": {"bind": collector.metrics_bind, "port": collector.metrics_port}, "sources": config.sources,
            "programs": config.programs, "rules": config.rules, "routes": config.routes, "sinks": config.sinks,
        }}, "fluentd", config.meant)
        yield File("fluentd/Gemfile", "fluentd/Gemfile.j2", {"header": head, "gems": gems(version)}, "ruby")
        for plugin in PLUGINS:
            path = f"fluentd/plugins/{plugin}.rb"
            yield File(path, f"fluentd/{plugin}.rb.j2", {"f": plugin_facts()}, "ruby")

    def start_argv(self, config: str, pipeline: Pipeline, version: str) -> tuple[str, ...]:
        """Start command; our plugins lie beside the configuration."""
        directory, slash, _ = config.rpartition("/")
        return (self.binary, "--config", config, "--plugin", f"{directory}{slash}plugins")

    def validate_argv(self, config: str) -> tuple[str, ...]:
        """`fluentd --dry-run`."""
        directory, slash, _ = config.rpartition("/")
        return (self.binary, "--plugin", f"{directory}{slash}plugins", "--dry-run", "--config", config)

    def not_validated(self) -> str:
        """What `fluentd --dry-run` does not look at."""
        return "globs, options that Fluentd does not know (a warning only), TLS files and the sinks themselves"

    def image(self, version: str) -> str:
        """Image of a version: `fluent/fluentd:v<version>-debian-1`. It lacks the gems of the Gemfile."""
        full = version if version.count(".") == 2 else f"{version}.0" if version != "1.16" else "1.16.2"
        return f"fluent/fluentd:v{full}-debian-1.0"


TARGET = Fluentd()

__all__ = ["TARGET", "Fluentd"]
