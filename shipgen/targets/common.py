"""What the targets share: facts of a pipeline in the shapes that every shipper's configuration needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from shipgen.catalog import formats, ray, record, verl
from shipgen.pipeline import conditions, rotation
from shipgen.pipeline.model import Pipeline, Rule, SecretRef, Sink, Source

FLUSH_MS = 2000
"""Pause after which an entry is complete although no line follows."""
QUICK_FLUSH_MS = 700
"""The same where a shipper counts it from the entry's last line and reads on without a pause. The last entry of a file
is then in Loki 1.7 s after it was written (p99 on Vector; 3.0 s with two seconds), and of 10,000 files no entry was
split (Vector, Filebeat)."""
MAX_AHEAD = 300
"""Seconds ahead of the read time from which on Loki may refuse an entry."""
ALWAYS_METADATA = ("parse_error", "entry_time", "time_source", "truncated")
"""Structured metadata of a Loki sink whatever the policy lists."""
EPOCHS = {"epoch_s": 1_000_000_000, "epoch_ms": 1_000_000, "epoch_us": 1_000, "epoch_ns": 1}
"""Time layouts that are numbers, and what one of them is in nanoseconds."""
RESERVED = f"^(?:{'|'.join(verl.RESERVED)})$"
"""Fields that no pair of VeRL's gives."""
EPOCH_DIGITS = {layout: len(str(unit)) - 1 for layout, unit in EPOCHS.items()}
"""Time layouts that are numbers, and the digits of a nanosecond behind their point."""


def max_behind(server: Mapping[str, Any]) -> int:
    """Seconds behind the read time from which on Loki may throw an entry away: half of `max_chunk_age`, less ten
    minutes."""
    return max(60, int(server["max_chunk_age"] // 2000 - 600))


def zone_offset(zone: str) -> str:
    """An offset that is right for one reading of the hour that repeats in a zone, e.g. ` +0100`: its standard time."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    winter, summer = (datetime(2026, month, 15, tzinfo=ZoneInfo(zone)) for month in (1, 7))
    return (summer if winter.dst() else winter).strftime(" %z")


def header(pipeline: Pipeline, target: str, version: str, start: str, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """The head of a file: from which policies, how to regenerate it, how the shipper is started with it."""
    return {"policies": " ".join(pipeline.files), "version": version, "notes": list(notes), "start": start,
            "command": f"shipgen render {shlex.join(pipeline.files)} --target {target} -o DIR"}


def state_dir(pipeline: Pipeline, target: str) -> str:
    """Where a target keeps offsets and buffers; a function of the policy's name alone."""
    return f"{pipeline.collector.state_dir.rstrip('/')}/{pipeline.name}/{target}"


def is_loopback(address: str) -> bool:
    """Whether an address with a port is one of the node itself."""
    from ipaddress import ip_address

    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reads_backups(pipeline: Pipeline, source: Source, family: ray.Family) -> bool:
    """Whether a target that follows files by inode has a family's backups in its globs."""
    return source.rotated != "exclude" and rotation.keeps_backups_apart(pipeline, family)


def globs(source: Source, family: ray.Family, *, backups: bool, moved: bool = True) -> list[str]:
    """Globs of a Ray source's family: live files, files moved to `old/`, and their backups."""
    names = [n for glob in family.globs for n in ([glob, f"old/{glob}"] if family.moves and moved else [glob])]
    include = [f"{source.base}/{ray.SESSION_GLOB}/logs/{name}" for name in names]
    return include + [f"{g}.[0-9]*" for g in include] if backups else include


def entry_kind(source: Source, family: ray.Family) -> dict[str, Any]:
    """What makes reading a family's entries differ from reading another's. Families that agree can share one program;
    ``own`` is true for those that can't, and ``family`` then names them."""
    worker, twins = family.name == "worker", source.twins
    kind: dict[str, Any] = {
        "grouping": family.grouping.value,
        "markers": family.name in ("worker", "io_worker"),
        "cut_driver": family.name in ("job_driver", "ray_client_server") and twins.driver,
        "cut_serve": worker and twins.serve,
        "cut_cpp": worker and twins.cpp,
        "events": family.component in ("events", "export_events"),
    }
    kind["own"] = kind["markers"] or kind["cut_driver"] or kind["events"]
    if kind["own"]:
        kind["family"] = family.name
    return kind


def json_fields() -> list[tuple[str, tuple[str, ...]]]:
    """Fields that a JSON entry's keys fill: field, and the keys of which the first one present wins."""
    fields: list[tuple[str, tuple[str, ...]]] = [("pid", formats.JSON_PID), ("thread", formats.JSON_THREAD)]
    return fields + [(k, (k,)) for k in (*formats.JSON_IDS, *formats.JSON_SERVE)]


def json_consumed(*, events: bool) -> list[str]:
    """Keys of a JSON entry that fields are made of; what is left is `extra`."""
    keys = [*formats.JSON_CONSUMED, *formats.JSON_LEVEL, *(k for _, names in json_fields() for k in names)]
    return keys + ["timestamp"] * events


def regex_groups(source: Source) -> list[str]:
    """Named groups of a file source's regex that become fields of their own name."""
    special = {"level", "message", "time", source.time.field if source.time else ""}
    return [g for g in re.compile(source.regex).groupindex if g not in special]


def added_fields(pipeline: Pipeline) -> list[str]:
    """Fields beyond the record's own: of rules, and groups of regexes."""
    added = [f for r in pipeline.rules if r.action == "add" for f in r.options]
    groups = [g for s in pipeline.sources if s.regex for g in regex_groups(s)]
    sampled = ["sample_rate"] if any(r.action == "sample" for r in pipeline.rules) else []
    pairs = verl.OWN_FIELDS if any_field(pipeline) else ()
    marked = ["fingerprint"] if pipeline.fingerprint else []
    return list(dict.fromkeys([*added, *groups, *sampled, *pairs, *marked]))


def words(source: Source) -> dict[str, Any]:
    """How pairs and words of VeRL's events become fields. ``prose`` are fields, each with its event (if only that),
    with a word that such a line has (to look for first), and with the regex."""
    return {
        "pairs": source.pairs, "pair": verl.PAIR, "reserved": RESERVED,
        "prose": [tuple(prose) for prose in verl.PROSE] if source.pairs else [],
    }


def any_field(pipeline: Pipeline) -> bool:
    """Whether records can have fields that nobody knows beforehand: the pairs of VeRL's events."""
    return any(s.pairs for s in pipeline.sources)


def possible_fields(pipeline: Pipeline) -> list[str]:
    """Every field that a record of this pipeline can have, as far as that is known beforehand (:func:`any_field`)."""
    return list(dict.fromkeys([*record.FIELDS, *added_fields(pipeline)]))


def loki_metadata(options: Mapping[str, Any]) -> list[str]:
    """Structured metadata of a Loki sink: what the policy lists, and what always goes there, without the labels."""
    labels = options["labels"]["fields"]
    wanted = dict.fromkeys([*(f for f in options["metadata"] if f not in ALWAYS_METADATA), *ALWAYS_METADATA])
    return [f for f in wanted if f not in labels]


def lines_fit(pipeline: Pipeline, options: Mapping[str, Any]) -> bool:
    """Whether no line of a Loki sink can be longer than the server takes."""
    longest = max(s.max_entry for s in pipeline.sources)
    return options["line"] != "json" and bool(longest <= options["server"]["max_line_size"])


def wants(pipeline: Pipeline, field: str) -> bool:
    """Whether any sink can see a field; what nobody sees need not be made."""
    return any(
        s.type != "loki" or s.options["line"] == "json" or field in s.options["metadata"] for s in pipeline.sinks
    )


def regexes(pipeline: Pipeline) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Regexes of a policy, with their places."""
    for source in pipeline.sources:
        if source.regex:
            yield ("sources", source.name, "format", "regex"), source.regex
        if source.multiline:
            yield ("sources", source.name, "multiline", "start"), source.multiline.start
    for rule in pipeline.rules:
        if rule.index >= 0:
            path = ("parsing", "rules", rule.index)
            yield from (((*path, "when"), regex) for regex in conditions.regexes(rule.when))
            if "pattern" in rule.options and rule.action == "redact":
                yield (*path, "redact", "pattern"), rule.options["pattern"]
    for sink in pipeline.sinks:
        yield from ((("sinks", sink.name, "when"), regex) for regex in conditions.regexes(sink.when))


def shared_rules(pipeline: Pipeline) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Rules split in two: those up to the first one that does not hold for every sink, and the rest, of which each sink
    needs a chain of its own (:meth:`Pipeline.rules_for`)."""
    everyone = frozenset(s.name for s in pipeline.sinks)
    for index, rule in enumerate(pipeline.rules):
        if rule.sinks is not None and rule.sinks != everyone:
            return pipeline.rules[:index], pipeline.rules[index:]
    return pipeline.rules, ()


def secret_refs(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], SecretRef]]:
    """Secret references in a settings tree, with their places."""
    if isinstance(tree, SecretRef):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from secret_refs(value, (*path, key))


def secrets(pipeline: Pipeline) -> list[tuple[tuple[str | int, ...], SecretRef]]:
    """Secret references of all sinks and of the hop before them, with their places in the policy."""
    found = [one for sink in pipeline.sinks for one in sink_secrets(sink)]
    hop = list(secret_refs(dict(pipeline.hop.sink.options), ("topology",))) if pipeline.hop else []
    return found + hop


def sink_secrets(sink: Sink) -> list[tuple[tuple[str | int, ...], SecretRef]]:
    """Secret references of a sink, with their places in the policy."""
    return list(secret_refs(dict(sink.options), ("sinks", sink.name)))
