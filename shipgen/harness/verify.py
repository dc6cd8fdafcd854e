"""The end-to-end check: a rendered bundle, a real shipper, a real Loki, and every record compared with the contract."""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from shipgen.diagnostics import OutsideError, UsageError
from shipgen.harness import reference, start
from shipgen.harness.compare import Circumstances, Comparison, compare
from shipgen.harness.expect import Expected, Record, expectations
from shipgen.harness.faults import Fault
from shipgen.harness.flow import Flow, arrivals, flow_of
from shipgen.harness.loki import FIRST_NS, Limits, LokiClient
from shipgen.harness.proxy import FaultProxy
from shipgen.harness.reference_files import Reader
from shipgen.harness.replay import LiveWriter, copy_files, copy_tree
from shipgen.harness.runners import Runner, ShipperHandle, TargetRun, Usage, tail
from shipgen.harness.start import at_port, target_run
from shipgen.pipeline.model import Pipeline, SecretRef, Sink, Source

_SECOND = 10**9
_DAY_NS = 86_400 * _SECOND
#: Nothing new for this long, once everything expected is there: it has settled.
_CALM_S = 3.0
#: Nothing new for this long although something is missing: it will not come any more.
_PATIENCE_S = 20.0
#: A shipper that ends by itself during a fault is started again, as what supervises it on a node would.
_RESTARTS = 10

#: Types of sources whose records a reference knows.
_COMPARED = ("ray", "file", "verl")

Progress = Callable[[str], None]
#: A bundle's files by their path, for a pipeline.
Render = Callable[[Pipeline], Mapping[str, bytes]]


class Target(start.Target, Protocol):
    """What the harness needs to know about a shipper."""

    reads_rotated: bool


class Scenario(Protocol):
    """What happens to log files while a shipper reads them."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    def before(self, stage: Stage) -> None:
        """Write what is there when the shipper starts."""

    def during(self, stage: Stage) -> None:
        """Do what happens while it runs. The shipper runs when this begins, and has to when it returns."""

    def truth(self, stage: Stage) -> Path:
        """The tree that holds everything that was written, as one undisturbed shipper would have read it."""


@dataclass(frozen=True, slots=True)
class StaticTree:
    """A recorded tree, complete before the shipper starts: Ray's, or a whole node's with Ray's in its place."""

    logs: Path

    @property
    def name(self) -> str:
        """The tree."""
        return str(self.logs)

    def before(self, stage: Stage) -> None:
        """Copy the tree, and what other sources read if the tree has that."""
        if any(source.type == "ray" for source in stage.pipeline.sources):
            inside = Path(f"{self.logs}/{stage.temp_dir.relative_to(stage.root)}")
            copy_tree(inside if inside.is_dir() else self.logs, stage.temp_dir)
        for source in stage.pipeline.sources:
            globs = [str(Path(path).relative_to(stage.root)) for path in source.paths]
            copy_files(self.logs, globs, stage.root)

    def during(self, stage: Stage) -> None:
        """Nothing happens but the faults of the run."""
        stage.suffer()

    def truth(self, stage: Stage) -> Path:
        """The copy."""
        return stage.temp_dir


@dataclass(slots=True)
class Stage:
    """What a scenario acts on: the node's files below ``root``, Ray's directory among them with a writer that keeps a
    ledger, and the shipper, with a proxy before Loki. ``pipeline`` is the one of the run, ``zone`` that of its node's
    clock, which a fault sets wrong by ``clock_error_s``, and ``buffer_size`` what the largest disk buffer holds."""

    root: Path
    temp_dir: Path
    pipeline: Pipeline
    writer: LiveWriter
    runner: Runner
    run: TargetRun
    client: LokiClient
    progress: Progress
    proxy: FaultProxy
    zone: ZoneInfo
    faults: Sequence[Fault] = ()
    buffer_size: int = 0
    clock_error_s: float = 0.0
    shipper: ShipperHandle | None = None
    usage: Usage = field(default_factory=Usage)
    restarts: int = 0
    suffered: list[tuple[str, float, float]] = field(default_factory=list)

    def start(self) -> None:
        """Start the shipper, also again after a stop or a kill."""
        self.shipper = self.runner.start_shipper(self.run)
        self.writer.timing = True

    def stop(self) -> None:
        """Stop the shipper as an operator would."""
        if self.shipper is not None:
            self._ends(self.shipper)
            self.shipper.stop()
            self.shipper = None

    def kill(self) -> None:
        """Kill the shipper as a node failure would."""
        if self.shipper is not None:
            self._ends(self.shipper)
            self.shipper.kill()
            self.shipper = None

    def _ends(self, shipper: ShipperHandle) -> None:
        self.usage += shipper.usage()
        self.writer.timing = False

    def supervise(self) -> None:
        """Start the shipper again if a fault made it end; without faults that is a failure."""
        if self.shipper is None or self.shipper.running():
            return
        if not self.faults or self.restarts >= _RESTARTS:
            raise OutsideError(f"{self.run.name} ended by itself; its log ends with:\n{tail(self.shipper.log())}")
        self.shipper.kill()  # where a relay ended, its shipper has not, and the other way round
        self.restarts += 1
        self.progress(f"{self.run.name} ended by itself; starting it again")
        self.shipper.kill()  # of a shipper and its relay one may still be there
        try:
            self.start()
        except OutsideError:
            if self.restarts >= _RESTARTS:
                raise

    def suffer(self, turn: Callable[[], None] = lambda: time.sleep(0.25)) -> None:
        """The faults of the run, one after the other; while one lasts, and for two seconds after it, ``turn`` is called
        again and again."""
        for fault in self.faults:
            self.progress(f"fault {fault.name} for {fault.seconds:g} s: {fault.about}")
            began = time.time()
            with fault.does(self):
                self._pass(fault.seconds, turn)
            self.suffered.append((fault.name, began, time.time()))
            self._pass(2.0, turn)

    def _pass(self, seconds: float, turn: Callable[[], None]) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            turn()
            self.supervise()

    def now(self, name: str = "") -> datetime:
        """The time that a file's writer would write."""
        error = self.clock_error_s if zlib.crc32(name.encode()) % 2 else -self.clock_error_s
        return datetime.now(self.zone) + timedelta(seconds=error)

    def stamp(self) -> str:
        """The right time, as Ray writes it."""
        now = datetime.now(self.zone)
        return f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"

    def bulk(self, size: int) -> None:
        """Write so many bytes at once, in entries of 100 KB."""
        for number in range(size // 100_000 + 1):
            self.writer.write("raylet.out", f"[{self.stamp()} I 310 322] bulk.cc:1: {number} {'x' * 100_000}")

    def settle(self, expected: int | None = None, whole: Callable[[], bool] = lambda: True) -> int:
        """Wait until nothing new arrives in Loki; gives how many entries have.

        With ``expected`` that is soon after so many have arrived, if ``whole`` says that these are all, else after a
        long time without news.
        """
        count, since, told, asked = self.client.received(), time.monotonic(), -1, -1
        backoffs = [sink.options.get("retry", {}).get("max_backoff", 0) / 1000 for sink in self.pipeline.sinks]
        patience = _PATIENCE_S + (2 * max(backoffs, default=0.0) if self.faults else 0.0)
        patience += max((fault.patience_s for fault in self.faults), default=0.0)
        restarts = self.restarts
        while True:
            quiet = time.monotonic() - since
            self.supervise()
            if self.restarts != restarts:
                since, restarts = time.monotonic(), self.restarts
                continue
            if quiet > patience:
                return count
            if expected is not None and count >= expected and quiet > _CALM_S and asked != count:
                if whole():
                    return count
                asked = count
            if count != told:
                self.progress(f"{count} entries in Loki" + (f", {expected} expected" if expected is not None else ""))
                told = count
            time.sleep(0.5)
            now = self.client.received()
            if now != count:
                count, since = now, time.monotonic()


@dataclass(slots=True)
class Report:
    """What a run found, sink by sink."""

    target: str
    version: str
    runner: str
    scenario: str
    sinks: dict[str, Comparison] = field(default_factory=dict)
    discarded_before: dict[str, int] = field(default_factory=dict)
    discarded_after: dict[str, int] = field(default_factory=dict)
    unfinished: int = 0
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0
    kept: str = ""
    #: Name, beginning and end (seconds since the epoch) of each fault; with one, repeats are no failure.
    faults: list[tuple[str, float, float]] = field(default_factory=list)
    tolerated: frozenset[str] = frozenset()
    flows: dict[str, Flow] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    restarts: int = 0
    refused: int = 0
    size: int = 0
    written: list[float] = field(default_factory=list)

    @property
    def discarded(self) -> dict[str, int]:
        """What Loki threw away during the run, by its reason."""
        new = {reason: n - self.discarded_before.get(reason, 0) for reason, n in self.discarded_after.items()}
        return {reason: n for reason, n in sorted(new.items()) if n}

    @property
    def ok(self) -> bool:
        """Did every record arrive as it should, and where nothing went wrong on purpose, once?"""
        return not self.discarded.keys() - self.tolerated and all(
            comparison.whole if self.faults else comparison.ok for comparison in self.sinks.values()
        )


def verify(
    pipeline: Pipeline,
    render: Render,
    target: Target,
    version: str,
    scenario: Scenario,
    runner: Runner,
    progress: Progress = lambda _: None,
    *,
    image: str = "",
    keep: Path | None = None,
    faults: Sequence[Fault] = (),
) -> Report:
    """Run one scenario, with faults if there are any, and compare what arrived with section 5 of the contract.

    ``render`` makes the bundle of the pipeline as it is changed for the run. Where the run fails, logs and bundle are
    kept in ``keep`` (a new temporary directory by default), and progress and report name it.
    """
    began = time.monotonic()
    sinks, left_out = _verifiable(pipeline)
    report = Report(target.name, version, runner.kind, scenario.name, left_out=left_out)
    with runner:
        try:
            job = _Job(pipeline, render, target, version, scenario, runner, progress, image, tuple(faults))
            job.run(sinks, report)
        except Exception:
            _keep(runner, keep, report, progress)
            raise
        if not report.ok:
            _keep(runner, keep, report, progress)
    report.seconds = round(time.monotonic() - began, 1)
    return report


@dataclass(frozen=True, slots=True)
class _Job:
    """One run, from the start of Loki to the verdict."""

    pipeline: Pipeline
    render: Render
    target: Target
    version: str
    scenario: Scenario
    runner: Runner
    progress: Progress
    image: str
    faults: tuple[Fault, ...]

    def run(self, sinks: list[Sink], report: Report) -> None:
        """Do it all, and fill the report."""
        tenants = len(sinks) > 1
        self.progress("starting Loki")
        limits = _limits(sinks)
        for fault in self.faults:
            limits = fault.limits(limits)
            report.tolerated |= fault.discards
        loki = self.runner.start_loki(tenants=tenants, limits=limits)
        everything = LokiClient(loki.url)
        listen, name = self.runner.gateway
        with FaultProxy(loki.url, self.runner.workdir / "pushes", listen) as proxy:
            stage = self._stage(f"http://{name}:{proxy.port}", everything, tenants, proxy)
            report.discarded_before = everything.discarded()
            began_ns = time.time_ns()
            with stage.writer:
                self.progress(f"replaying {self.scenario.name}")
                self.scenario.before(stage)
                self.progress(f"starting {self.target.name} {self.version}")
                stage.start()
                self.scenario.during(stage)
            records = self._records(stage, report)
            expected = {sink.name: self._expected(stage, sink, records) for sink in stage.pipeline.sinks}

            def judged() -> dict[str, Comparison]:
                found = {}
                for sink in stage.pipeline.sinks:
                    client = LokiClient(loki.url, sink.name if tenants else None, page=_page(records))
                    self.progress(f"comparing {len(expected[sink.name])} records of {sink.name}")
                    found[sink.name] = _judge(sink, expected[sink.name], client, began_ns, time.time_ns(), self._zone)
                return found

            certain = sum(not one.optional for several in expected.values() for one in several)
            chance = any(one.optional and not self._excused(one) for several in expected.values() for one in several)
            stage.settle(
                None if chance else certain,
                lambda: not self.faults or not any(found.lost for found in judged().values()),
            )
            self.progress(f"stopping {self.target.name}")
            stage.stop()
            report.sinks = judged()
            report.discarded_after = everything.discarded()
            report.flows = {
                sink.name: flow_of(
                    expected[sink.name],
                    report.sinks[sink.name],
                    arrivals(proxy, sink.name if tenants else ""),
                    stage.writer.written,
                    own_times=getattr(self.scenario, "own_times", False),
                )
                for sink in stage.pipeline.sinks
            }
        report.faults = stage.suffered
        report.usage, report.restarts, report.refused = stage.usage, stage.restarts, proxy.refused
        report.written = stage.writer.moments
        report.size = stage.writer.size or _size(stage)

    def _expected(self, stage: Stage, sink: Sink, records: list[Record]) -> list[Expected]:
        expected = list(expectations(stage.pipeline, sink, records))
        for one in expected:
            one.optional = one.optional or self._excused(one)
        return expected

    def _excused(self, one: Expected) -> bool:
        return any(fault.excused and fault.excused in one.line for fault in self.faults)

    @property
    def _zone(self) -> str:
        return local_zone() if self.pipeline.timezone == "local" else self.pipeline.timezone

    def _stage(self, endpoint: str, client: LokiClient, tenants: bool, proxy: FaultProxy) -> Stage:
        root, state, bundle = (self.runner.workdir / name for name in ("node", "state", "bundle"))
        here = retarget(
            self.pipeline,
            root=str(root),
            state_dir=str(state),
            metrics_port=self.runner.free_port(),
            endpoint=endpoint,
            tenants=tenants,
        )
        here = at_port(here, self.runner.free_port())
        for fault in self.faults:
            here = fault.change(here)
        for path, content in self.render(here).items():
            place = bundle / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        env = {"TZ": local_zone(), "HOSTNAME": self.runner.node}
        if isinstance(here.collector.node, SecretRef):
            env[here.collector.node.name] = self.runner.node
        run = target_run(self.target, self.version, here, bundle, state, root, env, self.image)
        temp_dir = Path(f"{root}{here.ray['temp_dir']}")
        writer = LiveWriter(temp_dir, self.runner.workdir / "ledger")
        sizes = [sink.options["buffer"]["max_size"] for sink in here.sinks if "buffer" in sink.options]
        smallest = getattr(self.target, "smallest_buffer", 0)
        stage = Stage(
            root, temp_dir, here, writer, self.runner, run, client, self.progress, proxy, ZoneInfo(self._zone),
            self.faults, max([smallest, *sizes]),
        )  # fmt: skip
        for fault in self.faults:
            fault.ready(stage)
        return stage

    def _records(self, stage: Stage, report: Report) -> list[Record]:
        """What the reference reads in everything that was written."""
        node = self.pipeline.collector.node
        node = node if isinstance(node, str) else self.runner.node
        truth = self.scenario.truth(stage)
        records: list[Record] = []
        for source in stage.pipeline.sources:
            if source.type == "ray":
                options = reference_options(
                    stage.pipeline, source, reads_rotated=self.target.reads_rotated, node=node, zone=self._zone
                )
                records += reference.read_tree(truth, options)
                report.unfinished += len(reference.unfinished_lines(truth, options))
            else:
                reader = Reader(source, stage.root, stage.pipeline.cluster, node, self._zone)
                records += reader.records()
                if not reader.files():
                    report.left_out.append(f"source {source.name}: none of its files is in what was replayed")
        return records


def _size(stage: Stage) -> int:
    """Bytes of all log files: Ray's directory also holds sockets and more."""
    logs = [*stage.temp_dir.glob("session_2*/logs")]
    others = [path for path in stage.root.rglob("*") if stage.temp_dir not in path.parents]
    files = [*others, *(path for directory in logs for path in directory.rglob("*"))]
    return sum(path.stat().st_size for path in files if path.is_file())


def _page(records: list[Record]) -> int:
    """How many entries to ask for at once: fewer where they are long."""
    longest = sum(len(record["raw"]) for record in records) // max(1, len(records))
    return max(100, min(5000, 64 * 1024 * 1024 // max(1, longest)))


def _judge(
    sink: Sink, expected: list[Expected], client: LokiClient, began_ns: int, ended_ns: int, zone: str
) -> Comparison:
    oldest = min((one.time_ns for one in expected if one.time_ns is not None), default=began_ns)
    late_after_s = sink.options["server"]["max_chunk_age"] / 2000 - 600
    circumstances = Circumstances(began_ns, ended_ns, sink.options["late"], int(late_after_s * _SECOND), zone=zone)
    reached = client.received() - sum(client.discarded().values())
    since = min(oldest, began_ns) - _DAY_NS
    entries = client.read_all(start_ns=since)
    result = compare(expected, entries, circumstances, reached)
    if result.lost or result.hidden:
        # Perhaps with a time of long ago. Loki looks into a table for each day since then, so not without need.
        older = client.read_all(start_ns=FIRST_NS, end_ns=since)
        if older:
            result = compare(expected, older + entries, circumstances, reached)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# The pipeline of a run


def _verifiable(pipeline: Pipeline) -> tuple[list[Sink], list[str]]:
    """The sinks that can be verified, and in words what is left out of the run."""
    sources = [source for source in pipeline.sources if source.type in _COMPARED]
    names = {source.name for source in sources}
    sinks = [sink for sink in pipeline.sinks if sink.type == "loki" and names & set(sink.sources)]
    if not sinks:
        raise UsageError(f"nothing to verify: no Loki sink gets records of a source of type {' or '.join(_COMPARED)}")
    out = [f"source {s.name}: records of {s.type} are not compared" for s in pipeline.sources if s not in sources]
    out += [f"sink {s.name}: only Loki is read back" for s in pipeline.sinks if s.type != "loki"]
    out += [f"sink {s.name}: gets none of the records" for s in pipeline.sinks if s.type == "loki" and s not in sinks]
    out += ["parsing.fingerprint is off for the run"] if pipeline.fingerprint else []
    out += [f"source {s.name}: start is beginning for the run" for s in sources if s.start != "beginning"]
    out += [f"source {s.name}: ignore_older is off for the run" for s in sources if s.ignore_older is not None]
    return sinks, out


def retarget(
    pipeline: Pipeline, *, root: str, state_dir: str, metrics_port: int, endpoint: str, tenants: bool = False
) -> Pipeline:
    """The same pipeline for a test node below ``root`` and a test Loki: what can't be verified is gone, and nothing of
    the real cluster is left in it (endpoint, credentials, TLS). With ``tenants`` each sink is a tenant by its name."""
    sinks, _ = _verifiable(pipeline)
    before = pipeline.collector.root.rstrip("/")

    def moved(path: str) -> str:
        return f"{root}{path.removeprefix(before)}"

    sources = tuple(
        replace(
            source,
            base=moved(source.base) if source.base else "",
            paths=tuple(map(moved, source.paths)),
            exclude=tuple(map(moved, source.exclude)),
            start="beginning",
            ignore_older=None,
        )
        for source in pipeline.sources
        if source.type in _COMPARED
    )
    names = {source.name for source in sources}

    def here(sink: Sink) -> Sink:
        options: dict[str, Any] = {k: v for k, v in sink.options.items() if k not in ("auth", "tls")}
        options["endpoint"] = endpoint
        if tenants:
            options["tenant"] = sink.name
        return replace(sink, options=options, sources=tuple(name for name in sink.sources if name in names))

    collector = replace(
        pipeline.collector, root=root, state_dir=state_dir, metrics_bind="127.0.0.1", metrics_port=metrics_port
    )
    return replace(pipeline, collector=collector, sources=sources, sinks=tuple(here(sink) for sink in sinks),
                   fingerprint="")  # it holds the time of reading, where an entry has none of its own


def reference_options(
    pipeline: Pipeline, source: Source, *, reads_rotated: bool, node: str, zone: str
) -> reference.Options:
    """What the reference needs to know of a Ray source to read its tree as a shipper should."""
    families = frozenset(family.name for family in source.families)
    backups = reads_rotated if source.rotated == "auto" else source.rotated == "include"
    cuts = {"serve": source.twins.serve, "cpp": source.twins.cpp, "driver": source.twins.driver}
    return _Options(
        source=source.name,
        cluster=pipeline.cluster,
        node=node,
        timezone=zone,
        components=families,
        backups=backups,
        max_entry=source.max_entry,
        max_line=source.max_line,
        skips_long_lines=source.on_long_line == "skip",
        cut_twins=frozenset(name for name, cut in cuts.items() if cut),
    )


class _Options(reference.Options):
    """Options that name families themselves, as a resolved pipeline does."""

    def families(self) -> frozenset[str]:
        return self.components or frozenset()


def _limits(sinks: list[Sink]) -> Limits:
    servers = [sink.options["server"] for sink in sinks]
    return Limits(
        max_line_size=min(server["max_line_size"] for server in servers),
        max_chunk_age_s=min(server["max_chunk_age"] for server in servers) // 1000,
    )


def local_zone() -> str:
    """IANA name of this machine's zone; UTC where it can't be told."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if named and not named.startswith("/"):
        return named
    _, _, link = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
    return link or "UTC"


def _keep(runner: Runner, keep: Path | None, report: Report, progress: Progress) -> None:
    """Save logs and bundle, if anything was started."""
    if not any(log.stat().st_size for log in runner.workdir.glob("*.log")):
        return
    directory = keep or Path(tempfile.mkdtemp(prefix="shipgen-failed-"))
    runner.keep(directory)
    report.kept = str(directory)
    progress(f"logs and bundle are kept in {directory}")
