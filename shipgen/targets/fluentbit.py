"""Fluent Bit, 3.2 to 5.1, in YAML.

A `tail` input for each source and way of grouping, one Lua file that makes the records, applies the rules and shapes
them for the sinks, `grep` filters that take out (and so count) what rules drop, then the outputs. Options, defaults and
version differences are those of fluent/fluent-bit at the tags named beside them, and were run on 5.1.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shipgen.catalog import formats, ray, redactions, verl
from shipgen.diagnostics import Severity
from shipgen.pipeline import inventory
from shipgen.pipeline.conditions import ALWAYS
from shipgen.pipeline.model import Pipeline, Rule, SecretRef, Sink, Source
from shipgen.policy.regex import nests_repetitions
from shipgen.targets import common
from shipgen.targets import fluentbit_sinks as sinks
from shipgen.targets.base import File, Finding, condition_context, release

CHUNK = 2_048_000
"""Bytes of a full chunk (`FLB_INPUT_CHUNK_FS_MAX_SIZE`, 5.1)."""
READ_LIMIT = 8 * 1024 * 1024
"""Longest line that is read whole, bytes."""
JOIN_LIMIT = 8 * 1024 * 1024
"""Longest entry that is joined, bytes; the lines behind it are entries of their own."""
RELAY_LIMIT = 64 * 1024 * 1024
"""Longest message of another shipper that a relay takes, bytes."""
FOREVER = 31_536_000
"""Seconds after which a renamed file is let go: it goes when it is deleted."""
FAILED = "redaction_failed"
"""Alias of the filter that counts records of which no text was delivered."""
COUNTED = ("drop", "sample", "limit")
"""Rules that take records away."""

_HEADERS = (formats.CPP, formats.PYTHON, formats.PAIRS, formats.SERVE, formats.LOGGING, formats.ABSL,
            formats.DATED, formats.GLUED_MARKER, formats.DRIVER_REPEAT)
_EXACT = r" timestamp_ns=(?P<timestamp_ns>[0-9]{19})$"
"""The end of an F2b entry of a driver that is not connected yet: it has no ids."""


class _Config:
    """The flat contexts of `fluent-bit.yaml.j2` and `shipgen.lua.j2`, put together for one pipeline."""

    def __init__(self, pipeline: Pipeline, version: str, listens: tuple[str, int] | None = None) -> None:
        """``listens``: in a relay, the address and port at which lines of another shipper come in."""
        self.pipeline = pipeline
        self.version = release(version)
        self.listens = listens
        self.state = common.state_dir(pipeline, "relay" if listens else "fluentbit")
        self.inputs: list[dict[str, Any]] = []
        self.parsers: dict[str, dict[str, Any]] = {}
        self.families: dict[str, dict[str, Any]] = {}
        self.regexes: dict[str, int] = {}
        self.redactions: list[dict[str, Any]] = []
        self.limits: list[dict[str, Any]] = []
        self.counted: list[str] = []
        self.secrets = sinks.Secrets()
        self.meant: dict[tuple[str | int, ...], Any] = {}
        self.sources = [self.source(s) for s in pipeline.sources]
        self.shapes: list[dict[str, Any]] = []
        self.variants: list[dict[str, Any]] = []
        shared, rest = common.shared_rules(pipeline)
        self.chains = [self.chain(shared, "")]
        variants = self.gather(rest)
        self.single = len(self.variants) == 1
        self.counted.append(FAILED)
        self.outputs = [o for sink in pipeline.sinks for o in self.output(sink, variants[sink.name])]
        for script, sink_names in zip(self.sources, (s.name for s in pipeline.sources), strict=True):
            taken = {variants[k.name] for k in pipeline.sinks if sink_names in k.sources}
            script["variants"] = [i for i in range(1, len(self.variants) + 1) if i in taken]

    # -- sources ------------------------------------------------------------------------------------------------------

    def source(self, source: Source) -> dict[str, Any]:
        """Adds the inputs of a source; gives what the script knows of it."""
        script: dict[str, Any] = {
            "name": source.name, "max_entry": source.max_entry, "max_line": source.max_line, "max_lines": None,
            "ray": bool(source.families),
        }
        if source.families:
            cuts = {family.name: common.entry_kind(source, family) for family in source.families}
            script |= {"base": len(source.base.encode()), "cuts": [
                (name, [cut for cut in ("driver", "serve", "cpp") if kind[f"cut_{cut}"]])
                for name, kind in cuts.items() if any(kind[f"cut_{cut}"] for cut in ("driver", "serve", "cpp"))
            ]}
            for grouping in ray.Grouping:
                if chosen := [f for f in source.families if f.grouping is grouping]:
                    self.ray_input(source, grouping, chosen)
            return script
        parser = ""
        if source.continuation:
            parser = f"shipgen_{source.name}"
            self.parsers[parser] = {"start": "^", "unless": "", "next": source.continuation,
                                    "timeout": common.FLUSH_MS}
        elif source.multiline:
            parser = f"shipgen_{source.name}"
            start = source.multiline.start
            self.parsers[parser] = {"start": start, "unless": start, "anchored": False,
                                    "timeout": max(500, source.multiline.timeout)}
        self.tail(source, "file", list(source.paths), parser, [], exclusions(source))
        layout = source.time.layout if source.time else ""
        groups = named_groups(source.regex)
        return {
            **script, "max_lines": source.multiline.max_lines if source.multiline else None,
            "root": len(self.pipeline.collector.root.rstrip("/").encode()),
            "exclude": [inventory.glob_regex(glob) for glob in source.exclude],
            "json": source.format == "json", "regex": source.regex, "groups": groups,
            "component": source.component or None, "pairs": source.pairs,
            "time": source.time.field if source.time else None, "layout": layout,
            "digits": common.EPOCH_DIGITS.get(layout, 0), "message": "message" in groups,
        }

    def ray_input(self, source: Source, grouping: ray.Grouping, families: Sequence[ray.Family]) -> None:
        paths: list[str] = []
        for family in families:
            kind = common.entry_kind(source, family)
            wanted = keeps_offsets(self.version) or source.rotated == "include"
            backups = wanted and common.reads_backups(self.pipeline, source, family)
            paths += common.globs(source, family, backups=backups)
            self.families[family.name] = {
                "name": family.name, "component": family.component, "pattern": family.pattern,
                "fields": list(family.fields), "user": grouping is ray.Grouping.USER, "markers": kind["markers"],
                "events": kind["events"], "names": [inventory.glob_regex(glob) for glob in family.globs],
            }
        parser = "" if grouping is ray.Grouping.LINE else f"shipgen_{grouping.value}"
        if grouping is ray.Grouping.HEADER:
            self.parsers[parser] = {"start": formats.HEADER, "unless": formats.HEADER, "anchored": True,
                                    "timeout": common.FLUSH_MS}
        elif grouping is ray.Grouping.USER:
            self.parsers[parser] = {"start": "^", "unless": "", "next": formats.CONTINUATION,
                                    "timeout": common.FLUSH_MS}
        self.tail(source, grouping.value, paths, parser, [f.name for f in families], [])

    def tail(
        self, source: Source, kind: str, paths: list[str], parser: str, families: list[str], exclude: list[str]
    ) -> None:
        tag = f"{source.name}.{kind}"
        skip = source.on_long_line == "skip"
        # what a buffer can hold is a byte less than its size, and the end of the line is part of it
        longest = source.max_line + 2 if skip else max(READ_LIMIT, source.max_line + 2)
        best_effort = all(s.options.get("delivery") == "best_effort" for s in self.pipeline.sinks)
        options: list[tuple[str, Any]] = [("alias", tag), ("tag", tag)]
        options += [("multiline.parser", parser)] if parser else []
        options += [
            ("key", "log"), ("path_key", "path"), ("db", self.offsets(tag)), ("db.sync", "normal"),
            ("db.locking", False), ("db.journal_mode", "WAL"), ("read_from_head", source.start == "beginning"),
        ]
        options += [("read_newly_discovered_files_from_head", True)] if self.version >= (4, 1) else []
        options += [("refresh_interval", seconds(self.pipeline.collector.discover_every)), ("rotate_wait", FOREVER)]
        if source.ignore_older is not None:
            options.append(("ignore_older", max(1, source.ignore_older // 1000)))
        options += [("buffer_chunk_size", min(65536, longest)), ("buffer_max_size", longest), ("skip_long_lines", True)]
        options += [("truncate_long_lines", not skip)] if self.version >= (4, 2) else []
        options += [
            ("skip_empty_lines", False), ("inotify_watcher", True),
            ("storage.type", "memory" if best_effort else "filesystem"),
            ("storage.pause_on_chunks_overlimit", not best_effort and any(blocks(s) for s in self.pipeline.sinks)),
        ]
        if not self.listens:
            self.meant["pipeline", "inputs", len(self.inputs), "path"] = ",".join(paths)
        self.inputs.append({"tag": tag, "source": source.name, "paths": paths, "exclude": exclude,
                            "families": families, "options": options})

    def offsets(self, tag: str) -> str:
        """Where an input keeps how far it has read files."""
        return f"{self.state}/{tag}.db"

    def relay(self) -> list[tuple[str, Any]]:
        """Options of the input that gets the lines of another shipper, in a relay."""
        if not self.listens:
            return []
        host, port = self.listens
        return [("alias", "relay"), ("listen", host), ("port", port), ("buffer_chunk_size", 1_000_000),
                ("buffer_max_size", RELAY_LIMIT), ("storage.type", "filesystem"),
                ("storage.pause_on_chunks_overlimit", any(blocks(s) for s in self.pipeline.sinks))]

    # -- rules --------------------------------------------------------------------------------------------------------

    def chain(self, rules: Iterable[Rule], users: str) -> list[dict[str, Any]]:
        """Rules as the script has them. What they drop is counted under a name that says for which sinks."""
        chain = []
        for rule in rules:
            name = f"rule.{rule.name}" + (f".{users}" if users else "")
            if rule.action in COUNTED:
                self.counted.append(name)
            chain.append({"name": name, "action": rule.action, "when": self.condition(condition_context(rule.when)),
                          **self.action(rule)})
        return chain

    def action(self, rule: Rule) -> dict[str, Any]:
        options = rule.options
        if rule.action == "sample":
            return {"rate": options["rate"], "by": options.get("by"), "text": json.dumps(options["rate"])}
        if rule.action == "limit":
            self.limits.append({"records": options["records"], "seconds": options["per"] / 1000,
                                "by": list(options.get("by", ()))})
            return {"number": len(self.limits)}
        if rule.action == "add":
            return {"fields": list(options.items())}
        if rule.action == "redact":
            return self.redaction(options)
        return {}

    def redaction(self, options: Mapping[str, Any]) -> dict[str, Any]:
        text = str(options.get("with", "[redacted]"))
        number = len(self.redactions) + 1
        instead = text if common.any_field(self.pipeline) else None
        if "pattern" in options:
            self.redactions.append({"regex": self.regex(options["pattern"]), "with": text, "keeps": False})
            return {"number": number, "on_json_text": False, "instead": instead}
        kind = redactions.KINDS[options["kind"]]
        found = {"regex": self.regex(kind.regex), "keeps": kind.keeps}
        self.redactions.append({**found, "with": kind.before + text + kind.after})
        if kind.on_json_text:
            text = json.dumps(text, ensure_ascii=False)[1:-1]
            self.redactions.append({**found, "with": kind.before + text + kind.after})
        return {"number": number, "on_json_text": kind.on_json_text, "instead": instead}

    def condition(self, condition: dict[str, Any]) -> dict[str, Any]:
        """A condition with the places of its regexes in the script. `extra` is no text."""
        if condition["kind"] == "matches":
            if condition["field"] == "extra":
                return {"kind": "any", "of": []}
            return {**condition, "number": self.regex(condition["regex"])}
        of = condition.get("of")
        if isinstance(of, list):
            return {**condition, "of": [self.condition(part) for part in of]}
        return {**condition, "of": self.condition(of)} if of else condition

    def regex(self, pattern: str) -> int:
        return self.regexes.setdefault(pattern, len(self.regexes) + 1)

    # -- sinks --------------------------------------------------------------------------------------------------------

    def gather(self, rest: Sequence[Rule]) -> dict[str, int]:
        """Variants of a record: sinks with the same rules, condition and shape share one. Gives each sink's."""
        keys: list[tuple[Any, ...]] = []
        users: list[list[Sink]] = []
        of: dict[str, int] = {}
        for sink in self.pipeline.sinks:
            own = tuple(r for r in rest if r.sinks is None or sink.name in r.sinks)
            key = (tuple(r.index for r in own), sink.when, self.shape(sink))
            if key not in keys:
                keys.append(key)
                users.append([])
            of[sink.name] = keys.index(key) + 1
            users[of[sink.name] - 1].append(sink)
        for number, ((indexes, when, shape), some) in enumerate(zip(keys, users, strict=True), 1):
            names = "+".join(s.name for s in some)
            chain = [r for r in rest if r.index in indexes]
            if chain:
                self.chains.append(self.chain(chain, names))
            if shape.get("late") == "drop":
                self.counted.append(f"late.{names}")
                shape = {**shape, "late_name": f"late.{names}"}
            self.shapes.append(shape)
            self.variants.append({
                "key": f"variant_{number}", "shape": number, "chain": len(self.chains) if chain else None,
                "when": None if when == ALWAYS else self.condition(condition_context(when)),
            })
        return of

    def shape(self, sink: Sink) -> dict[str, Any]:
        options = sink.options
        kind = sinks.SHAPES.get(sink.type, "object")
        if kind != "loki":
            by_component = sink.type == "s3" and "component" in options["prefix"]["by"]
            return {"type": kind, "key": "component" if by_component else options.get("key")}
        labels, metadata = options["labels"], common.loki_metadata(options)
        kept = (*metadata, *(("truncated",) if "truncated" not in metadata else ()))
        away = [f for f in common.possible_fields(self.pipeline) if f not in (*kept, "time")]
        return {
            "type": "loki", "late": options["late"], "line": options["line"],
            "static": list(labels["static"].items()), "label_fields": labels["fields"], "metadata": metadata,
            "not_metadata": away if len(away) < len(metadata) and not common.any_field(self.pipeline) else None,
            "plain": ["cluster", "component", "level", "node", "source", "stream", "time_source"],
            "max_behind": common.max_behind(options["server"]), "max_ahead": common.MAX_AHEAD,
            "max_line_size": None if common.lines_fit(self.pipeline, options) else options["server"]["max_line_size"],
        }

    def output(self, sink: Sink, variant: int) -> Iterator[dict[str, Any]]:
        for output in sinks.outputs(self.pipeline, sink, self.version, self.secrets):
            yield {
                "name": output.name, "plugin": output.plugin, "sources": list(output.sources), "key": output.key,
                "options": output.options, "call": f"variant_{variant}",
                "parse": sink.type in sinks.PARSED,
            }

    # -- the two files ------------------------------------------------------------------------------------------------

    def service(self) -> list[tuple[str, Any]]:
        collector = self.pipeline.collector
        waits = [s.options["batch"]["max_wait"] for s in self.pipeline.sinks if "batch" in s.options]
        room = [s.options["buffer"]["max_size"] for s in self.pipeline.sinks if blocks(s)]
        found: list[tuple[str, Any]] = [
            ("flush", seconds(min(waits, default=1000))), ("grace", 5), ("daemon", False), ("log_level", "info"),
            ("http_server", True), ("http_listen", collector.metrics_bind), ("http_port", collector.metrics_port),
            ("hot_reload", False), ("storage.path", f"{self.state}/buffer"), ("storage.sync", "normal"),
            ("storage.checksum", False), ("storage.max_chunks_up", max(16, min(room, default=1 << 28) // CHUNK)),
            ("storage.backlog.mem_limit", 64_000_000), ("storage.metrics", True),
            ("scheduler.base", 1), ("scheduler.cap", sinks.backoff(self.pipeline)),
        ]
        return found + ([("multiline_buffer_limit", str(JOIN_LIMIT))] if self.version >= (4, 1) else [])

    def config(self) -> dict[str, Any]:
        """Context of the main file."""
        return {
            "service": self.service(), "inputs": self.inputs, "outputs": self.outputs, "counted": self.counted,
            "parsers": [{"name": name, **parser} for name, parser in self.parsers.items() if not self.listens],
            "relay": self.relay(),
            "json_parser": any(o["parse"] for o in self.outputs),
            "secrets": [(name, f"file://{path}") for path, name in self.secrets.files.items()],
        }

    def script(self) -> dict[str, Any]:
        """Context of the script."""
        pipeline = self.pipeline
        node = pipeline.collector.node
        words = {word: level for word, level in formats.LEVELS.items() if len(word) > 1}
        consumed = common.json_consumed(events=False)
        return {
            "cluster": pipeline.cluster, "node_literal": node if isinstance(node, str) else "",
            "node_env": node.name if isinstance(node, SecretRef) else "", "zone": zone_table(pipeline.timezone),
            "extra": common.wants(pipeline, "extra"), "levels": list(formats.LEVELS.items()),
            "json_levels": [*formats.LEVELS.items(), *((word.lower(), level) for word, level in words.items())],
            "json_level": formats.JSON_LEVEL, "json_fields": common.json_fields(), "consumed": consumed,
            "noticed": ["component_name"], "families": list(self.families.values()), "headers": list(_HEADERS),
            "credentials": [(name, ref.kind, ref.name) for name, ref in sinks.credentials(pipeline)],
            "exact": _EXACT, "pairs": named_groups(formats.PAIRS), "unknown_job": ray.UNKNOWN_JOB,
            "tqdm": formats.TQDM, "files": any(not s["ray"] for s in self.sources), "sources": self.sources,
            "inputs": self.inputs, "regexes": list(self.regexes), "redactions": self.redactions, "limits": self.limits,
            "relays": bool(self.listens),
            "offsets": [self.offsets(i["tag"]) for i in self.inputs] * (
                keeps_offsets(self.version) and not self.listens),
            "chains": self.chains, "shapes": self.shapes, "variants": self.variants, "single": self.single,
            "objects": any(s["type"] != "loki" or s["line"] == "json" for s in self.shapes),
            "words": next((common.words(s) for s in pipeline.sources if s.pairs), None), "reserved": verl.RESERVED,
            "fields": [f for f in common.possible_fields(pipeline) if f != "time"], "failed_name": FAILED,
        }


def keeps_offsets(version: tuple[int, int]) -> bool:
    """Whether the script can make Fluent Bit remember how far it read renamed files: since 5.0.3 it looks whether what
    it remembers fits the file, so that what is left of files that are gone does no harm."""
    return version >= (5, 1)


def named_groups(regex: str) -> list[str]:
    """Named groups of a regex, in the order in which Onigmo counts them: where some have names, others have no
    number."""
    groups = re.compile(regex).groupindex
    return sorted(groups, key=lambda name: groups[name])


def seconds(milliseconds: int) -> str:
    """A duration as Fluent Bit reads it."""
    return f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")


def exclusions(source: Source) -> list[str]:
    """Globs that Fluent Bit itself leaves out. Its `*` matches `/` too in those (`fnmatch` without flags,
    `plugins/in_tail/tail_scan_glob.c`, 5.1), which is only the same where no path lies deeper than the glob; the script
    knows all of them."""
    depth = max(path.count("/") for path in source.paths)
    return [glob for glob in source.exclude if glob.count("/") >= depth]


def blocks(sink: Sink) -> bool:
    """Whether a sink's buffer stops the inputs when it is full."""
    return "buffer" in sink.options and sink.options["buffer"]["when_full"] == "block"


def zone_table(zone: str) -> dict[str, Any] | None:
    """A time zone as two lists: from which reading of the clock on it is how many seconds ahead of UTC. In the hour
    that repeats the first reading counts, in the gap the time before it. From the package `tzdata`, so that the
    machine's own tables change nothing."""
    if zone == "local":
        return None
    from datetime import UTC, datetime, timedelta
    from importlib.resources import files
    from zoneinfo import ZoneInfo

    with files("tzdata").joinpath("zoneinfo", *zone.split("/")).open("rb") as table:
        info = ZoneInfo.from_file(table)

    def ahead_at(at: int) -> int:
        offset = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at)).astimezone(info).utcoffset()
        return int(offset.total_seconds()) if offset else 0

    day = 86_400
    at, end = 16_071 * day, 29_220 * day  # 2014 to 2050
    clock, ahead = [-(10**12)], [ahead_at(at)]
    while at < end:
        if ahead_at(at + day) != ahead_at(at):
            low, high = at, at + day
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if ahead_at(middle) == ahead_at(at) else (low, middle)
            clock.append(high + max(ahead_at(at), ahead_at(high)))
            ahead.append(ahead_at(high))
        at += day
    return {"name": zone, "clock": clock, "ahead": ahead}


class FluentBit:
    """The target `fluentbit`."""

    name = "fluentbit"
    versions = ("3.2", "4.0", "4.1", "4.2", "5.0", "5.1")
    main_config = "fluentbit/fluent-bit.yaml"
    binary = "fluent-bit"
    reads_rotated = True
    image_program = "/fluent-bit/bin/fluent-bit"

    def check(self, pipeline: Pipeline, version: str) -> Iterator[Finding]:
        """Findings that depend on values."""
        for source in pipeline.sources:
            if any(common.reads_backups(pipeline, source, family) for family in source.families):
                yield from sinks.by_default(release(version), ("sources", "<ray>", "rotated"),
                                            ("sources", source.name, "rotated"), source.rotated)
        yield from self.check_records(pipeline, version)

    def check_records(self, pipeline: Pipeline, version: str) -> Iterator[Finding]:
        """Those about rules and sinks, which hold for a relay, too."""
        for path, pattern in common.regexes(pipeline):
            if nests_repetitions(pattern):
                yield Finding("slow-regex", Severity.NOTE, path,
                              "a repetition stands in another; on some texts that holds Fluent Bit up for ever "
                              "(30 characters that end otherwise than `(a+)+b` wants took more than 25 s)",
                              "write it without, or use the target vector, whose engine never goes back")
        for sink in pipeline.sinks:
            yield from sinks.findings(pipeline, sink, release(version))

    def files(self, pipeline: Pipeline, version: str) -> Iterable[File]:
        """`fluentbit/fluent-bit.yaml` and the script that it loads."""
        return self.written(_Config(pipeline, version), self.name, version, self.main_config)

    def relay_files(self, pipeline: Pipeline, version: str, path: str, target: str, address: str) -> Iterable[File]:
        """The same two files for a relay: its configuration's path, the target it belongs to, where it listens."""
        host, _, port = address.rpartition(":")
        return self.written(_Config(pipeline, version, (host.strip("[]"), int(port))), target, version, path)

    def written(self, config: _Config, target: str, version: str, path: str) -> Iterable[File]:
        """The files of a configuration."""
        pipeline = config.pipeline
        notes = ["Environment: " + ", ".join(sorted(config.secrets.env))] if config.secrets.env else []
        start = " ".join(self.start_argv("fluent-bit.yaml", pipeline, version))
        header = common.header(pipeline, target, version, start, tuple(notes))
        yield File(path, "fluentbit/fluent-bit.yaml.j2", {"header": header, "c": config.config()}, "yaml", config.meant)
        script = f"{path.rpartition('/')[0]}/shipgen.lua"
        yield File(script, "fluentbit/shipgen.lua.j2", {"header": header, "s": config.script()}, "lua")

    def start_argv(self, config: str, pipeline: Pipeline, version: str) -> tuple[str, ...]:
        """Start command."""
        return (self.binary, "--config", config)

    def validate_argv(self, config: str) -> tuple[str, ...]:
        """The checker of Fluent Bit itself."""
        return (self.binary, "--dry-run", "--config", config)

    def not_validated(self) -> str:
        """What `fluent-bit --dry-run` does not look at (run on 5.1.1)."""
        return ("globs, values of options, names of parsers, what the script does with a line, TLS files, secrets and "
                "the sinks")

    def image(self, version: str) -> str:
        """Image of a version: `fluent/fluent-bit:<version>` (`dockerfiles/Dockerfile`, 5.1)."""
        full = version if version.count(".") == 2 else f"{version}.0"
        return f"fluent/fluent-bit:{full}"


TARGET = FluentBit()
