"""The end-to-end check: a rendered bundle, a real shipper, a real Loki, and every record compared with the contract."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from shipgen.diagnostics import OutsideError, ShipgenError, UsageError
from shipgen.harness import reference
from shipgen.harness.compare import Circumstances, Comparison, compare
from shipgen.harness.expect import Expected, Record, expectations
from shipgen.harness.loki import FIRST_NS, Limits, LokiClient
from shipgen.harness.replay import LiveWriter, copy_tree
from shipgen.harness.runners import Runner, ShipperHandle, TargetRun, tail
from shipgen.pipeline.model import Pipeline, SecretRef, Sink, Source

_SECOND = 10**9
_DAY_NS = 86_400 * _SECOND
#: Nothing new for this long, once everything expected is there: it has settled.
_CALM_S = 3.0
#: Nothing new for this long although something is missing: it will not come any more.
_PATIENCE_S = 20.0

Progress = Callable[[str], None]
#: A bundle's files by their path, for a pipeline.
Render = Callable[[Pipeline], Mapping[str, bytes]]


class Target(Protocol):
    """What the harness needs to know about a shipper. ``ready_line``, where a target has it, is a regex for its log."""

    name: str
    main_config: str
    reads_rotated: bool

    def start_argv(self, config: str, pipeline: Pipeline, version: str) -> tuple[str, ...]:
        """Command that starts the shipper with a config file."""

    def image(self, version: str) -> str:
        """Official container image of a version."""


class Scenario(Protocol):
    """What happens to log files while a shipper reads them."""

    name: str

    def before(self, stage: Stage) -> None:
        """Write what is there when the shipper starts."""

    def during(self, stage: Stage) -> None:
        """Do what happens while it runs. The shipper runs when this begins, and has to when it returns."""

    def truth(self, stage: Stage) -> Path:
        """The tree that holds everything that was written, as one undisturbed shipper would have read it."""


@dataclass(frozen=True, slots=True)
class StaticTree:
    """A recorded tree, complete before the shipper starts."""

    logs: Path

    @property
    def name(self) -> str:
        """The tree."""
        return str(self.logs)

    def before(self, stage: Stage) -> None:
        """Copy the tree."""
        copy_tree(self.logs, stage.temp_dir)

    def during(self, stage: Stage) -> None:
        """Nothing happens."""

    def truth(self, stage: Stage) -> Path:
        """The copy."""
        return stage.temp_dir


@dataclass(slots=True)
class Stage:
    """What a scenario acts on: Ray's directory, a writer for it that keeps a ledger, and the shipper."""

    temp_dir: Path
    writer: LiveWriter
    runner: Runner
    run: TargetRun
    client: LokiClient
    progress: Progress
    shipper: ShipperHandle | None = None

    def start(self) -> None:
        """Start the shipper, also again after a stop or a kill."""
        self.shipper = self.runner.start_shipper(self.run)

    def stop(self) -> None:
        """Stop the shipper as an operator would."""
        if self.shipper is not None:
            self.shipper.stop()
            self.shipper = None

    def kill(self) -> None:
        """Kill the shipper as a node failure would."""
        if self.shipper is not None:
            self.shipper.kill()
            self.shipper = None

    def settle(self, expected: int | None = None) -> int:
        """Wait until nothing new arrives in Loki; gives how many entries have.

        With ``expected`` that is soon after so many have arrived, else after a long time without news.
        """
        count, since, told = self.client.received(), time.monotonic(), -1
        while True:
            quiet = time.monotonic() - since
            if self.shipper is not None and not self.shipper.running():
                raise OutsideError(f"{self.run.name} ended by itself; its log ends with:\n{tail(self.shipper.log())}")
            if quiet > _PATIENCE_S or (expected is not None and count >= expected and quiet > _CALM_S):
                return count
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

    @property
    def discarded(self) -> dict[str, int]:
        """What Loki threw away during the run, by its reason."""
        new = {reason: n - self.discarded_before.get(reason, 0) for reason, n in self.discarded_after.items()}
        return {reason: n for reason, n in sorted(new.items()) if n}

    @property
    def ok(self) -> bool:
        """Did every record arrive, once, as it should?"""
        return not self.discarded and all(comparison.ok for comparison in self.sinks.values())


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
) -> Report:
    """Run one scenario and compare what arrived with section 5 of the contract.

    ``render`` makes the bundle of the pipeline as it is changed for the run. Where the run fails, logs and bundle are
    kept in ``keep`` (a new temporary directory by default), and the report names it.
    """
    began = time.monotonic()
    loki_sinks, left_out = _verifiable(pipeline)
    report = Report(target.name, version, runner.kind, scenario.name, left_out=left_out)
    with runner:
        try:
            _run(pipeline, render, target, version, scenario, runner, progress, image, loki_sinks, report)
        except Exception as error:
            _keep(runner, keep, report)
            if report.kept and isinstance(error, ShipgenError):
                error.add_note(f"logs and bundle are kept in {report.kept}")
            raise
        if not report.ok:
            _keep(runner, keep, report)
    report.seconds = round(time.monotonic() - began, 1)
    return report


def _run(
    pipeline: Pipeline,
    render: Render,
    target: Target,
    version: str,
    scenario: Scenario,
    runner: Runner,
    progress: Progress,
    image: str,
    sinks: list[Sink],
    report: Report,
) -> None:
    tenants = len(sinks) > 1
    progress("starting Loki")
    loki = runner.start_loki(tenants=tenants, limits=_limits(sinks))
    root, state, bundle = (runner.workdir / name for name in ("node", "state", "bundle"))
    here = retarget(
        pipeline,
        root=str(root),
        state_dir=str(state),
        metrics_port=runner.free_port(),
        endpoint=loki.endpoint,
        tenants=tenants,
    )
    _write(render(here), bundle)
    (state / pipeline.name / target.name).mkdir(parents=True)
    argv = target.start_argv(str(bundle / target.main_config), here, version)
    argv, env = _without_env(argv)
    zone = local_zone() if pipeline.timezone == "local" else pipeline.timezone
    node = pipeline.collector.node
    if isinstance(node, SecretRef):
        env[node.name] = runner.node
    run = TargetRun(
        name=target.name,
        argv=argv,
        image=image or target.image(version),
        bundle=bundle,
        state=state,
        logs=root,
        env={"TZ": local_zone(), **env},
        program=getattr(target, "image_program", ""),
        ready=getattr(target, "ready_line", ""),
    )
    everything = LokiClient(loki.url)
    temp_dir = Path(f"{root}{pipeline.ray['temp_dir']}")
    temp_dir.mkdir(parents=True)
    writer = LiveWriter(temp_dir, runner.workdir / "ledger")
    stage = Stage(temp_dir, writer, runner, run, everything, progress)

    report.discarded_before = everything.discarded()
    began_ns = time.time_ns()
    with writer:
        progress(f"replaying {scenario.name}")
        scenario.before(stage)
        progress(f"starting {target.name} {version}")
        stage.start()
        scenario.during(stage)
    truth = scenario.truth(stage)
    records: list[Record] = []
    for source in here.sources:
        options = reference_options(
            here,
            source,
            reads_rotated=target.reads_rotated,
            node=node if isinstance(node, str) else runner.node,
            zone=zone,
        )
        records += reference.read_tree(truth, options)
        report.unfinished += len(reference.unfinished_lines(truth, options))
    expected = {sink.name: list(expectations(here, sink, records)) for sink in here.sinks}
    certain = sum(not one.optional for several in expected.values() for one in several)
    open_ended = any(one.optional for several in expected.values() for one in several)
    stage.settle(None if open_ended else certain)
    progress(f"stopping {target.name}")
    stage.stop()
    ended_ns = time.time_ns()
    for sink in here.sinks:
        client = LokiClient(loki.url, sink.name if tenants else None)
        progress(f"comparing {len(expected[sink.name])} records of {sink.name}")
        report.sinks[sink.name] = _judge(sink, expected[sink.name], client, began_ns, ended_ns, zone)
    report.discarded_after = everything.discarded()


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
    ray = {source.name for source in pipeline.sources if source.type == "ray"}
    sinks = [sink for sink in pipeline.sinks if sink.type == "loki" and ray & set(sink.sources)]
    if not sinks:
        raise UsageError("nothing to verify: the policy has no Loki sink that gets records of a Ray source")
    out = [f"source {s.name}: only Ray trees are replayed" for s in pipeline.sources if s.name not in ray]
    out += [f"sink {s.name}: only Loki is read back" for s in pipeline.sinks if s.type != "loki"]
    out += [
        f"sink {s.name}: gets no record of a Ray source" for s in pipeline.sinks if s.type == "loki" and s not in sinks
    ]
    for source in pipeline.sources:
        if source.name in ray and source.start != "beginning":
            out.append(f"source {source.name}: start is beginning for the run")
        if source.name in ray and source.ignore_older is not None:
            out.append(f"source {source.name}: ignore_older is off for the run, recorded trees are old")
    return sinks, out


def retarget(
    pipeline: Pipeline, *, root: str, state_dir: str, metrics_port: int, endpoint: str, tenants: bool = False
) -> Pipeline:
    """The same pipeline for a test node below ``root`` and a test Loki: what can't be verified is gone, and nothing of
    the real cluster is left in it (endpoint, credentials, TLS). With ``tenants`` each sink is a tenant by its name."""
    sinks, _ = _verifiable(pipeline)
    base = f"{root}{pipeline.ray['temp_dir']}".rstrip("/")
    sources = tuple(
        replace(source, base=base, start="beginning", ignore_older=None)
        for source in pipeline.sources
        if source.type == "ray"
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
    return replace(pipeline, collector=collector, sources=sources, sinks=tuple(here(sink) for sink in sinks))


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


def _without_env(argv: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    """A command without a leading ``env NAME=VALUE``: not every image has that program."""
    if not argv or argv[0] != "env":
        return argv, {}
    rest = list(argv[1:])
    env: dict[str, str] = {}
    while rest and "=" in rest[0]:
        name, _, value = rest.pop(0).partition("=")
        env[name] = value
    return tuple(rest), env


def _write(files: Mapping[str, bytes], directory: Path) -> None:
    for path, content in files.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _keep(runner: Runner, keep: Path | None, report: Report) -> None:
    """Save logs and bundle, if anything was started."""
    if not any(log.stat().st_size for log in runner.workdir.glob("*.log")):
        return
    directory = keep or Path(tempfile.mkdtemp(prefix="shipgen-failed-"))
    runner.keep(directory)
    report.kept = str(directory)
