"""Vector, 0.50 to 0.57: one file source a family of files, one VRL program each, rules as transforms, sinks."""

from __future__ import annotations

from typing import Any

from shipgen.catalog import formats, ray
from shipgen.pipeline.model import Pipeline, SecretRef, Source

FIELDS_OF_HEADERS = (
    "level", "thread", "caller", "deployment", "replica", "request_id", "route", "application", *formats.JSON_IDS, "extra",
)


def with_header_group(pattern: str) -> str:
    """A header's regex with its whole match as group `header`, so that its length is known and the message can be sliced
    off: a captured message would send the whole entry through the regex engine."""
    return f"^(?P<header>{pattern[1:]})"


def zone_offset(zone: str) -> str:
    """An offset that is valid in the hour that repeats in a zone, e.g. ` +0100`: its standard time."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    tz = ZoneInfo(zone)
    now = datetime(2026, 1, 15, tzinfo=tz)
    summer = datetime(2026, 7, 15, tzinfo=tz)
    standard = min(now, summer, key=lambda d: (d.dst() or d.utcoffset()) and d.utcoffset())
    return standard.strftime(" %z")


def ray_program(pipeline: Pipeline, source: Source, family: ray.Family, *, backups: bool, extra: bool) -> dict[str, Any]:
    """Context of `ray.vrl.j2` for one family."""
    node = pipeline.collector.node
    worker = family.name == "worker"
    json_fields = [("pid", formats.JSON_PID), ("thread", formats.JSON_THREAD)]
    json_fields += [(k, (k,)) for k in (*formats.JSON_IDS, *formats.JSON_SERVE)]
    consumed = [*formats.JSON_CONSUMED, *formats.JSON_LEVEL, *(k for _, keys in json_fields for k in keys)]
    if family.grouping is ray.Grouping.LINE and family.component in ("events", "export_events"):
        consumed.append("timestamp")
    return {
        "prefix": len(source.base.encode()) + 1,
        "moves": family.moves,
        "backups": backups,
        "pattern": family.pattern,
        "fields": family.fields,
        "refill": [f for f in family.fields if f not in ("pid", "stream")],
        "optional": ("pid", "deployment", "replica"),
        "unknown_job": ray.UNKNOWN_JOB,
        "source": source.name,
        "component": family.component,
        "cluster": pipeline.cluster,
        "grouping": family.grouping.value,
        "markers": family.name in ("worker", "io_worker"),
        "marker": formats.MARKER,
        "glued": formats.GLUED_MARKER,
        "tqdm": formats.TQDM,
        "cut_driver": family.name == "job_driver" and source.twins.driver,
        "cut_serve": worker and source.twins.serve,
        "cut_cpp": worker and source.twins.cpp,
        "repeat": formats.DRIVER_REPEAT,
        "max_entry": source.max_entry,
        "max_line": source.max_line,
        "events": family.component in ("events", "export_events"),
        "extra": extra,
        "levels": list(formats.LEVELS.items()),
        "json_level": formats.JSON_LEVEL,
        "json_fields": json_fields,
        "json_consumed": consumed,
        "pair_fields": ("job_id", "worker_id", "node_id", "actor_id", "task_id", "task_name", "actor_name"),
        "header_fields": FIELDS_OF_HEADERS,
        "cpp": with_header_group(formats.CPP),
        "python": with_header_group(formats.PYTHON),
        "serve": with_header_group(formats.SERVE),
        "absl": with_header_group(formats.ABSL),
        "dated": formats.DATED,
        "pairs": formats.PAIRS,
        "zone": "" if pipeline.timezone == "local" else pipeline.timezone,
        "offset": "" if pipeline.timezone == "local" else zone_offset(pipeline.timezone),
        "node_literal": node if isinstance(node, str) else "",
        "node_env": node.name if isinstance(node, SecretRef) else "",
    }
