"""Records out of real log lines without a shipper: lines grouped in Python, programs run by Vector's own VRL
in-process."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from shipgen.catalog import ray
from shipgen.diagnostics import UsageError
from shipgen.pipeline import grouping, inventory
from shipgen.pipeline.model import Pipeline, Source
from shipgen.rendering.environment import render

_SESSION = re.compile(r"(?:^|/)(session_[^/]+)/logs/(.+)$")
_NO_SESSION = "session_2"


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Policies and log files out of one list of arguments: what ends in .yaml or .yml is a policy, and so is the
    first."""
    policies = [a for i, a in enumerate(arguments) if i == 0 or a.endswith((".yaml", ".yml"))]
    logs = [a for a in arguments[1:] if a not in policies]
    if not logs:
        raise UsageError("no log file given; `-` reads one from stdin, with --as PATH")
    return policies, logs


def notes(pipeline: Pipeline, target: str | None) -> Iterator[str]:
    """What the reader of a preview should know."""
    if target is None:
        yield "preview: lines are grouped in Python; each record is made by the rendered VRL, run in-process"
    skipped = [r.name for r in pipeline.rules if r.action in ("sample", "limit")]
    if skipped and target is None:
        yield f"preview: not applied, since they work on a stream: {', '.join(skipped)}"
    some = [r.name for r in pipeline.rules if r.sinks is not None and r.action not in ("sample", "limit")]
    if some and target is None:
        yield f"preview: not applied, since they hold for some sinks only: {', '.join(some)}"


def locate(pipeline: Pipeline, path: str) -> tuple[Source, ray.Family | None, str]:
    """Which source and family a file belongs to, and the path it has for the shipper. Raises UsageError."""
    absolute = path if path.startswith("/") else str(Path(path).absolute())
    on_node = pipeline.collector.root.rstrip("/") + absolute
    for source in pipeline.sources:
        for place in (absolute, on_node):
            if source.paths and inventory.matches(source, place):
                return source, None, place
    inside = _SESSION.search(absolute)
    below = inside[2] if inside else path.split("/logs/", 1)[-1] if "/logs/" in path else path.lstrip("./")
    session = inside[1] if inside else _NO_SESSION
    for candidate in dict.fromkeys((below, Path(below).name)):
        for family in ray.families_of(candidate):
            for source in pipeline.sources:
                if family in source.families:
                    return source, family, f"{source.base}/{session}/logs/{candidate}"
        if ray.families_of(candidate) and any(s.families for s in pipeline.sources):
            raise UsageError(f"{path}: no source of the policy reads {ray.families_of(candidate)[0].name} files")
    only = [s for s in pipeline.sources if s.paths]
    if len(only) == 1 and len(pipeline.sources) == 1:
        return only[0], None, on_node
    raise UsageError(f"{path}: not the name of a file that the policy reads; name the one it stands for with --as")


def _read(name: str, stdin: TextIO) -> list[str]:
    try:
        data = stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error
    lines = data.decode("utf-8", "replace").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


class Programs:
    """The VRL programs of a pipeline, ready to run. Raises UsageError where the engine is not installed."""

    def __init__(self, pipeline: Pipeline) -> None:
        try:
            from vrl_python import VRLRuntime
        except ImportError as error:
            raise UsageError("preview needs the package vrl-python (pip install vrl-python), or --target") from error
        from shipgen.targets import vector

        # one engine a program: each keeps the last program compiled, and compiling takes longer than a thousand runs
        self._engines: defaultdict[str, Any] = defaultdict(VRLRuntime)
        config = vector.record_programs(pipeline)
        self._rules = [t for t in config if t["role"] == "rule"]
        self._by_input = {i: t for t in config if t["role"] != "rule" for i in t["inputs"]}
        self._chains: dict[str, list[str]] = {}

    def chain(self, source: Source, family: ray.Family | None) -> list[str]:
        """The programs of a file: path and entry as one, then each rule that holds for every sink."""
        head = source.name if family is None else f"{source.name}:{family.name}"
        if head not in self._chains:
            steps: list[str] = []
            current = head
            while current in self._by_input:
                step = self._by_input[current]
                steps.append(render(step["template"], f=step["f"]))
                current = step["id"]
            rules = [render(rule["template"], f=rule["f"]) for rule in self._rules]
            self._chains[head] = [".timestamp = now()\n" + "\n".join(steps), *rules]
        return self._chains[head]

    def run(self, programs: Sequence[str], event: dict[str, Any]) -> dict[str, Any] | None:
        """The record that programs make of an event, one after the other; None where one drops it."""
        stamp = None
        for program in programs:
            try:
                event = dict(self._engines[program].execute(program, event).processed_event)
            except RuntimeError as error:
                if "aborted" in str(error):
                    return None
                raise
            # the stamp leaves VRL as text, which no rule may take for a field
            stamp = event.pop("timestamp", stamp)
        return {"timestamp": stamp, **event}


def preview(pipeline: Pipeline, logs: Sequence[str], as_path: str | None, stdin: TextIO) -> Iterator[str]:
    """Records as JSON lines, with `time` in RFC 3339."""
    programs = Programs(pipeline)
    for name in logs:
        source, family, path = locate(pipeline, as_path or ("stdin" if name == "-" else name))
        lines = _read(name, stdin)
        groups = grouping.ray_groups(lines, family.grouping) if family else grouping.file_groups(lines, source)
        chain = programs.chain(source, family)
        for group in groups:
            record = programs.run(chain, {"message": group, "file": path, "host": _host(), "source_type": "file"})
            if record is not None:
                yield as_json(record)


def _host() -> str:
    import socket

    return socket.gethostname()


def as_json(record: dict[str, Any]) -> str:
    """A record as it comes out of VRL, as one JSON line with `time` first."""
    stamp = str(record.pop("timestamp")).removesuffix(" UTC").replace(" ", "T")
    whole, _, fraction = stamp.partition(".")
    time = f"{whole}.{fraction:0<9}Z"
    if record.get("session") == _NO_SESSION:
        del record["session"]
    datetime.fromisoformat(whole).replace(tzinfo=UTC)  # a stamp of another shape is a fault of ours
    return json.dumps({"time": time, **dict(sorted(record.items()))}, ensure_ascii=False)
