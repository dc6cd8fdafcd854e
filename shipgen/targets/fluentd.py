"""Fluentd, 1.16 to 1.19, with the gems that a rendered Gemfile names.

A `tail` source for each family of files, a filter of ours that makes the record, a filter for each rule, a label for
each sink. What no gem does is in small plugins of ours, the same for every policy; what a policy says reaches them as
single-quoted text, which Fluentd takes as it stands. Options and their defaults are those of fluent/fluentd at 1.16 to
1.19; what is rendered was run on 1.16.2, 1.16.11, 1.17.1, 1.18.0 and 1.19.3.

For teams that want no plugins but Fluentd's own there is a relay: then Fluentd groups lines and sends them to a Fluent
Bit on the node, which makes the record and brings it to the sinks as the target `fluentbit` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shipgen.catalog import formats, ray, redactions, verl
from shipgen.diagnostics import Severity
from shipgen.pipeline.conditions import ALWAYS
from shipgen.pipeline.model import Pipeline, Rule, SecretRef, Sink, Source
from shipgen.rendering.quoting import ruby_source
from shipgen.targets import base, common, fluentbit, fluentd_sinks
from shipgen.targets.base import File, Finding, Relay, condition_context, release

READ_LIMIT = 8 * 1024 * 1024
"""Longest line that is read, bytes; longer ones are skipped (`lib/fluent/plugin/in_tail.rb`, 1.19)."""
RELAY_CONFIG = "relay/fluent-bit.yaml"
GLOB_POLICY_SINCE = (1, 17)
"""Before it only paths with a `*` are globs."""
PLUGINS = ("shipgen", "shipgen_entry", "in_shipgen_tail", "parser_shipgen_multiline", "filter_shipgen_ray",
           "filter_shipgen_file", "filter_shipgen_rule", "filter_shipgen_fingerprint", "out_shipgen_loki",
           "out_shipgen_http", "out_shipgen_s3", "out_shipgen_kafka", "out_shipgen_lines")
GEMS = {"1.16": (">= 1.16.2", "< 1.17")}
"""Constraints of the gem `fluentd` where they are not just its minor version: before 1.16.2 a file that was followed by
its inode could be read twice."""


class _Config:
    """The flat context of `fluent.conf.j2`, put together for one pipeline."""

    def __init__(self, pipeline: Pipeline, version: str, *, relayed: bool) -> None:
        self.pipeline = pipeline
        self.version = release(version)
        self.relayed = relayed
        self.state = common.state_dir(pipeline, "fluentd")
        self.env: set[str] = set()
        self.pairs = common.any_field(pipeline)
        self.sources: list[dict[str, Any]] = []
        self.programs: list[dict[str, Any]] = []
        for source in pipeline.sources:
            if source.families:
                self.ray_source(source)
            else:
                self.file_source(source)
        self.meant: dict[tuple[str | int, ...], Any] = {
            (s["id"], "path"): "|".join(s["paths"]).replace("%", "%%") for s in self.sources
        }
        if relayed:
            return
        shared, rest = common.shared_rules(pipeline)
        self.rules = [rule_program(rule, pairs=self.pairs) for rule in shared]
        self.routes = [
            {"tag": f"{s.name}.*", "sinks": [k.name for k in pipeline.sinks if s.name in k.sources]}
            for s in pipeline.sources
        ]
        self.sinks = [self.sink(sink, rest) for sink in pipeline.sinks]
        self.meant |= {(s["id"], "program"): s["program"] for s in self.sinks if s["program"]}
        self.meant |= {(s["id"], key): text for s in self.sinks for key, text in s["options"] if isinstance(text, str)}
        if isinstance(node := pipeline.collector.node, SecretRef):
            self.env.add(node.name)

    # -- sources ------------------------------------------------------------------------------------------------------

    def tail(self, source: Source, family: str, paths: list[str], kind: str, **more: Any) -> str:
        """Adds a source of lines; gives its tag, which is by ``kind`` for a relay."""
        name = f"{source.name}.{family}"
        tag = f"{source.name}.{kind}" if self.relayed else name
        skip = source.on_long_line == "skip"
        self.sources.append({
            "id": f"in:{name}", "tag": tag, "paths": paths, "pos_file": f"{self.state}/{name}.pos",
            "glob_policy": "always" if self.version >= GLOB_POLICY_SINCE else "", "exclude": [],
            "refresh": self.pipeline.collector.discover_every, "from_head": source.start == "beginning",
            "recent": source.ignore_older, "regex": "", "begins": "", "joins_head": False, "flush": common.FLUSH_MS,
            "firstline": firstline(more["regex"], more["begins"]) if "regex" in more else "",
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
            tag = self.tail(source, family.name, common.globs(source, family, backups=backups),
                            family.grouping.value, **grouping)
            kind = common.entry_kind(source, family)
            self.programs.append({"tag": tag, "type": "shipgen_ray", "program": {
                **self.entry(source), "component": family.component, "prefix": len(source.base.encode()) + 1,
                "moves": family.moves, "backups": backups, "pattern": ruby_source(family.pattern),
                "unknown_job": ray.UNKNOWN_JOB, "user": family.grouping is ray.Grouping.USER,
                **{k: kind[k] for k in ("markers", "cut_driver", "cut_serve", "cut_cpp", "events")},
            }})

    def file_source(self, source: Source) -> None:
        grouping: dict[str, Any] = {}
        if source.continuation:
            grouping = {"regex": source.continuation, "begins": "not_found", "joins_head": True}
        elif source.multiline:
            grouping = {"regex": source.multiline.start, "begins": "found", "flush": source.multiline.timeout}
        exclude = [glob.replace("%", "%%") for glob in source.exclude]
        tag = self.tail(source, "file", list(source.paths), "file", exclude=exclude, **grouping)
        layout = source.time.layout if source.time else ""
        self.programs.append({"tag": tag, "type": "shipgen_file", "program": {
            **self.entry(source), "root": len(self.pipeline.collector.root.rstrip("/").encode()),
            "format": source.format, "regex": ruby_source(source.regex), "groups": common.regex_groups(source),
            "time_field": source.time.field if source.time else "", "layout": layout,
            "digits": len(str(common.EPOCHS.get(layout, 1))) - 1,
            "max_lines": source.multiline.max_lines if source.multiline else None, "events": False,
            **(words(source) if source.pairs else {}), "component": source.component or None,
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
        rules = [rule_program(r, pairs=self.pairs) for r in rest if r.sinks is None or sink.name in r.sinks]
        if sink.when != ALWAYS:
            unless = ruby_condition({"kind": "not", "of": condition_context(sink.when)})
            rules.append({"name": f"when:{sink.name}", "action": "drop", "when": unless, "options": {}})
        self.env |= {ref.name for _, ref in common.sink_secrets(sink) if ref.kind == "env"}
        return {**fluentd_sinks.context(self.pipeline, sink, self.state), "rules": rules}


def ruby_condition(condition: dict[str, Any]) -> dict[str, Any]:
    """A condition with its regexes as Ruby reads them."""
    if condition["kind"] == "matches":
        return {**condition, "regex": ruby_source(condition["regex"])}
    of = condition.get("of")
    if isinstance(of, list):
        return {**condition, "of": [ruby_condition(part) for part in of]}
    return {**condition, "of": ruby_condition(of)} if of else condition


def rule_program(rule: Rule, *, pairs: bool = False) -> dict[str, Any]:
    """A rule as its filter reads it; with ``pairs`` a redaction looks after fields that were read from pairs."""
    options: dict[str, Any] = dict(rule.options)
    if rule.action == "sample":
        options = {"rate": options["rate"], "by": options.get("by", "")}
    elif rule.action == "limit":
        options = {"records": options["records"], "milliseconds": options["per"], "by": list(options.get("by", ()))}
    elif rule.action == "add":
        options = {"fields": options}
    elif rule.action == "redact":
        options = redaction(options) | ({"pair": options.get("with", "[redacted]")} if pairs else {})
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


def words(source: Source) -> dict[str, Any]:
    """How pairs and words of VeRL's events become fields."""
    found = common.words(source)
    prose = [[field, event, ruby_source(regex)] for field, event, _, regex in found["prose"]]
    return {"pair": ruby_source(found["pair"]), "prose": prose}


def gems(pipeline: Pipeline, version: str) -> list[tuple[str, tuple[str, ...]]]:
    """Gems that the configuration needs, with their constraints."""
    minor = ".".join(version.split(".")[:2])
    own = (f"~> {version}",) if version.count(".") == 2 else GEMS.get(minor, (f"~> {minor}.0",))
    return [("fluentd", own), ("fluent-plugin-grafana-loki", ("~> 1.2",)), ("fluent-plugin-prometheus", ("~> 2.1",)),
            ("tzinfo", ("~> 2.0",)), ("tzinfo-data", ()),
            *((name, (constraint,)) for name, constraint in fluentd_sinks.gems(pipeline))]


def plugin_facts() -> dict[str, Any]:
    """What the catalogue knows of Ray's lines, for our plugins."""
    date = formats.DATE
    return {
        "regexes": [
            ("ANSI", formats.ANSI), ("MARKER", formats.MARKER), ("GLUED_MARKER", formats.GLUED_MARKER),
            ("DRIVER_REPEAT", formats.DRIVER_REPEAT), ("CPP", formats.CPP), ("PYTHON", formats.PYTHON),
            ("SERVE", formats.SERVE), ("LOGGING", formats.LOGGING), ("ABSL", formats.ABSL), ("DATED", formats.DATED),
            ("PAIRS", formats.PAIRS),
            ("PAIRS_TIME", r" timestamp_ns=(?P<timestamp_ns>[0-9]{19})$"),
            ("LEVEL_WORD", formats.LEVEL_WORD), ("STAMP", rf"^{date}(?:[.,][0-9]{{1,9}})?$"),
            ("GLOG", r"^[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?$"),
            ("NUMBER", r"^([0-9]{1,19})(?:\.([0-9]*))?$"),
        ],
        "tqdm": formats.TQDM, "levels": list(formats.LEVELS.items()), "json_level": formats.JSON_LEVEL,
        "json_fields": common.json_fields(), "json_consumed": common.json_consumed(events=False),
        "no_pairs": verl.RESERVED, "pair_fields": [k for k in formats.JSON_IDS if k != "submission_id"],
    }


def firstline(regex: str, begins: str) -> str:
    """A regex between slashes for the lines that begin an entry, as Fluentd's own parser reads them: with their LF."""
    source = re.sub(r"(\\.)", lambda found: r"\Z" if found[1] == r"\z" else found[1], ruby_source(regex))
    return f"/{source}/" if begins == "found" else rf"/\A(?!.*(?:{source}))/"


def _relay_findings(pipeline: Pipeline, relay: Relay) -> Iterator[Finding]:
    """What a relay has to say, and about it."""
    assert pipeline.relay is not None
    if relay.target.name not in pipeline.versions:
        yield Finding("unpinned-version", Severity.WARNING, ("relay", "target"),
                      f"no version of {relay.target.name} given; {relay.version} is used",
                      f'pin it: targets: {{{relay.target.name}: {{version: "{relay.version}"}}}}')
    if release(relay.version) < release(relay.target.versions[0]):
        yield Finding("unknown-version", Severity.ERROR, ("targets", relay.target.name, "version"),
                      f"{relay.version} is older than {relay.target.versions[0]}, the oldest that shipgen writes for",
                      "update the relay")
    if not common.is_loopback(pipeline.relay["address"]):
        yield Finding("unsupported", Severity.ERROR, ("relay", "address"),
                      "the relay knows the node by its own host name, and lines go to it without TLS",
                      "let it run on the node itself, at an address such as 127.0.0.1:6044")
    for sink in pipeline.sinks:
        if sink.options.get("delivery") == "at_least_once":
            yield Finding("approximated", Severity.WARNING, ("sinks", sink.name, "delivery"),
                          "approximated: when Fluentd is killed (SIGKILL), the entry that is open in each file at that "
                          "moment is lost (measured: 24 of 1,104)", "leave the relay out: then none is lost")
    yield from fluentbit.TARGET.check_records(pipeline, relay.version)


class Fluentd:
    """The target `fluentd`."""

    name = "fluentd"
    versions = ("1.16", "1.17", "1.18", "1.19")
    main_config = "fluentd/fluent.conf"
    binary = "fluentd"
    reads_rotated = True
    ready_line = "fluentd worker is now running"

    def relay(self, pipeline: Pipeline) -> Relay | None:
        """Fluent Bit, where the policy names it, in the version that the policy gives for the target `fluentbit`."""
        if pipeline.relay is None or pipeline.relay["target"] != fluentbit.TARGET.name:
            return None
        version = pipeline.versions.get(fluentbit.TARGET.name, fluentbit.TARGET.versions[-1])
        return Relay(base.get("fluentbit"), version, RELAY_CONFIG, common.state_dir(pipeline, "relay"))

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
        if relay := self.relay(pipeline):
            yield from _relay_findings(pipeline, relay)
            return
        for sink in pipeline.sinks:
            yield from fluentd_sinks.findings(pipeline, sink)

    def files(self, pipeline: Pipeline, version: str) -> Iterator[File]:
        """`fluentd/fluent.conf`, the Gemfile and our plugins; with a relay its files instead of the plugins."""
        if relay := self.relay(pipeline):
            yield from self.relayed(pipeline, version, relay)
            return
        config = _Config(pipeline, version, relayed=False)
        notes: tuple[str, ...] = ("Environment: " + ", ".join(sorted(config.env)),) if config.env else ()
        if any(s.options.get("target") == "stdout" for s in pipeline.sinks):
            notes += ("Records go to stdout, and so does Fluentd's own log: --log FILE keeps that apart",)
        start = " ".join(self.start_argv("fluent.conf", pipeline, version))
        head = common.header(pipeline, self.name, version, start, notes)
        collector = pipeline.collector
        yield File(self.main_config, "fluentd/fluent.conf.j2", {"header": head, "v": {
            "metrics": {"bind": collector.metrics_bind, "port": collector.metrics_port}, "sources": config.sources,
            "programs": config.programs, "rules": config.rules, "routes": config.routes, "sinks": config.sinks,
            "fingerprint": bool(pipeline.fingerprint),
        }}, "fluentd", config.meant)
        yield File("fluentd/Gemfile", "fluentd/Gemfile.j2", {"header": head, "gems": gems(pipeline, version)}, "ruby")
        for plugin in PLUGINS:
            path = f"fluentd/plugins/{plugin}.rb"
            yield File(path, f"fluentd/{plugin}.rb.j2", {"f": plugin_facts()}, "ruby")

    def relayed(self, pipeline: Pipeline, version: str, relay: Relay) -> Iterator[File]:
        """`fluentd/fluent.conf` with nothing but Fluentd's own plugins, the Gemfile and the files of the relay."""
        assert pipeline.relay is not None
        address = pipeline.relay["address"]
        host, _, port = address.rpartition(":")
        config = _Config(pipeline, version, relayed=True)
        start = " ".join(self.start_argv("fluent.conf", pipeline, version))
        notes = (f"Start first: {' '.join(relay.target.start_argv(RELAY_CONFIG, pipeline, relay.version))}",)
        head = common.header(pipeline, self.name, version, start, notes)
        waits = [s.options["batch"]["max_wait"] for s in pipeline.sinks if "batch" in s.options]
        yield File(self.main_config, "fluentd/forward.conf.j2", {"header": head, "v": {
            "sources": config.sources, "host": host.strip("[]"), "port": int(port),
            "buffer": f"{config.state}/buffer/relay", "total": 1 << 30, "chunk": fluentbit.RELAY_LIMIT // 2,
            "flush": min([1000, *waits]), "max_backoff": 30_000,
        }}, "fluentd", config.meant)
        needed = gems(pipeline, version)[:1]
        yield File("fluentd/Gemfile", "fluentd/Gemfile.j2", {"header": head, "gems": needed}, "ruby")
        yield from fluentbit.TARGET.relay_files(pipeline, relay.version, RELAY_CONFIG, self.name, address)

    def start_argv(self, config: str, pipeline: Pipeline, version: str) -> tuple[str, ...]:
        """Start command; our plugins lie beside the configuration."""
        if self.relay(pipeline):
            return (self.binary, "--config", config)
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
