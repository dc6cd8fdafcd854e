"""Runs a target whose sinks are receivers of this process, and compares what arrived with the contract."""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from policies import TREES
from receivers.base import Receiver, Record

from shipgen.harness import reference
from shipgen.harness.expect import holds, visible
from shipgen.harness.replay import copy_tree
from shipgen.harness.runners import LocalRunner, ShipperHandle
from shipgen.harness.start import target_run
from shipgen.harness.verify import reference_options
from shipgen.pipeline import resolve
from shipgen.pipeline.model import Pipeline
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan
from shipgen.targets.plan import Choice

CLUSTER = "test"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
"""RFC 3339 with nine digits, as every sink but Loki gets it."""


@dataclass
class Job:
    """One policy on one target, below a directory of its own."""

    pipeline: Pipeline
    choice: Choice
    directory: Path
    runner: LocalRunner
    env: Mapping[str, str]
    shipper: ShipperHandle | None = None

    def start(self) -> None:
        """Write the bundle and start the shipper."""
        target = self.choice.target
        assert target is not None
        place = self.directory / "bundle"
        for path, content in bundle.of(self.pipeline, [self.choice]).files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
        self.shipper = self.runner.start_shipper(target_run(
            target, self.choice.version, self.pipeline, place, self.directory / "state", self.directory / "node",
            {"TZ": "UTC", **self.env}))

    def log(self) -> str:
        """What the shipper wrote about itself."""
        return self.shipper.log() if self.shipper else ""

    def stop(self) -> None:
        """Stop it as an operator would."""
        if self.shipper:
            self.shipper.stop()

    def expected(self, sink: str = "out") -> list[Record]:
        """What the contract says should reach a sink, absent fields left out."""
        (of,) = (s for s in self.pipeline.sinks if s.name == sink)
        found: list[Record] = []
        for source in self.pipeline.sources:
            node = socket.gethostname()
            options = reference_options(self.pipeline, source, reads_rotated=True, node=node, zone="UTC")
            found += reference.read_tree(self.directory / "node" / "tmp" / "ray", options)
        return [{k: v for k, v in one.items() if v is not None} for one in found
                if one["source"] in of.sources and holds(of.when, one)]

    def settle(self, receiver: Receiver, expected: int, limit_s: float = 60.0) -> None:
        """Wait until so many records have arrived and no more come, or for long enough."""
        deadline, count, since = time.monotonic() + limit_s, -1, time.monotonic()
        while time.monotonic() < deadline:
            if receiver.count() != count:
                count, since = receiver.count(), time.monotonic()
            elif count >= expected and time.monotonic() - since > 2:
                return
            time.sleep(0.1)


def prepare(target: str, sinks: Mapping[str, Any], tree: str, directory: Path, runner: LocalRunner,
            env: Mapping[str, str] | None = None, **parts: Any) -> Job:
    """A job for a policy with these sinks, on a recorded tree. Raises LookupError where the target lacks something."""
    copy_tree(TREES / tree, directory / "node" / "tmp" / "ray")
    policy = {
        "version": 1, "name": "e2e", "cluster": CLUSTER, "parsing": {"timezone": "UTC"},
        "targets": {target: {"version": base.get(target).versions[-1]}}, "sources": {"ray": {"type": "ray"}}, **parts,
        "sinks": sinks, **relay(target, runner),
        "collector": {"root": str(directory / "node"), "state_dir": str(directory / "state"),
                      "metrics": {"port": runner.free_port()}},
    }
    file = directory / "policy.yaml"
    file.write_text(json.dumps(policy))
    loaded = load([str(file)])
    pipeline = resolve(loaded)
    choice = plan.choose(target, loaded, pipeline)
    if not choice.renders:
        raise LookupError("; ".join(d.message for d in choice.diagnostics))
    return Job(pipeline, choice, directory, runner, env or {})


def relay(target: str, runner: LocalRunner) -> dict[str, Any]:
    """The relay of a target that has none of these sinks itself."""
    return {"relay": {"target": "vector", "address": f"127.0.0.1:{runner.free_port()}"}} if target == "filebeat" else {}


def nanoseconds(stamp: str) -> int:
    """A time of the wire."""
    assert _TIME.fullmatch(stamp), stamp
    seconds, fraction = stamp.removesuffix("Z").split(".")
    return int(datetime.fromisoformat(seconds).replace(tzinfo=UTC).timestamp()) * 10**9 + int(fraction)


def _key(record: Record, time_key: str, clock: Callable[[Any], int]) -> str:
    """Equal for two records that say the same. A time of reading is only looked at for being recent."""
    rest = dict(record)
    if rest.get("component") == "runtime_env_agent" and "env_vars" in rest["raw"]:
        rest |= {name: _redacted(rest[name]) for name in ("raw", "message")}
    at = clock(rest.pop(time_key))
    if rest.get("time_source") == "read":
        assert abs(at / 10**9 - time.time()) < 600, record
        at = 0
    return json.dumps([at, _seen(rest)], sort_keys=True)


def _redacted(text: str) -> str:
    """A text of the runtime-env agent, the values of `env_vars` taken out as the built-in rule does it."""
    if text.startswith('{"'):
        data = {k: _redacted(v) if isinstance(v, str) else v for k, v in json.loads(text).items()}
        return json.dumps(data, sort_keys=True)
    return re.sub(r'''(["']env_vars['"]: )\{[^}]*\}''', r'''\1{"redacted": "[redacted]"}''', text)


def _seen(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(k): _seen(v) for k, v in value.items()}
    return [_seen(v) for v in value] if isinstance(value, list) else value


def differences(expected: Iterable[Record], arrived: Iterable[Record], time_key: str = "time") -> dict[str, list[str]]:
    """What is missing and what is too much, as multisets; both empty where every field of every record is right."""
    wanted = Counter(_key(one, "time", lambda at: 0 if at is None else int(at)) for one in _timed(expected))
    got = Counter(_key(one, time_key, nanoseconds) for one in arrived)
    return {"missing": sorted((wanted - got).elements()), "surplus": sorted((got - wanted).elements())}


def _timed(records: Iterable[Record]) -> Iterable[Record]:
    now = time.time_ns()
    return ({**one, "time": now if one.get("time_source") == "read" else one["time"]} for one in records)


def with_node(job: Job, node: str) -> Job:
    """The job with a node of that name."""
    return replace(job, pipeline=replace(job.pipeline, collector=replace(job.pipeline.collector, node=node)))
