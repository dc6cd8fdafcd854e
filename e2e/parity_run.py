"""Runs parity cases through real shippers into a real Loki: one Loki for all, one shipper process for each policy."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from parity_cases import ZONE, Case, Row, expected, row

from shipgen import __version__
from shipgen.diagnostics import Diagnostic, OutsideError, Severity
from shipgen.harness.loki import FIRST_NS, Limits, LokiClient
from shipgen.harness.replay import copy_tree, sessions_in
from shipgen.harness.runners import LocalRunner, LokiHandle, TargetRun, tail
from shipgen.harness.start import target_run
from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan

_CALM_S = 2.0
"""Nothing new for this long, once everything that has to come is there: it has settled."""
_PATIENCE_S = 12.0
_YEAR_S = 366 * 86_400
_SINCE_NS = 1_735_689_600 * 10**9
"""2025: most inputs are younger. Loki looks into a table for each day, so what is older is asked for only where there
is something."""
_VERSION_ARGUMENT = {"filebeat": "version"}


@dataclass(frozen=True, slots=True)
class Refused:
    """A target can't express a policy."""

    diagnostics: tuple[Diagnostic, ...]

    @property
    def paths(self) -> list[str]:
        """Leaves that it says so about."""
        return [d.path for d in self.diagnostics if d.severity is Severity.ERROR]


@dataclass(slots=True)
class Outcome:
    """What a run of several cases gave. ``unseen`` is what reached Loki and stands nowhere, by sink."""

    rows: dict[str, list[Row]]
    origin: dict[str, str]
    unseen: dict[str, int] = field(default_factory=dict)
    log: str = ""


@dataclass(slots=True)
class Laboratory:
    """A Loki for as long as the tests run, a tenant for each run and sink."""

    runner: LocalRunner
    loki: LokiHandle | None = None
    done: dict[tuple[str, str], Outcome | Refused] = field(default_factory=dict)
    runs: int = 0

    def outcome(self, target: str, policy: str, cases: Sequence[Case]) -> Outcome | Refused:
        """Run cases that share a policy, once."""
        if (target, policy) not in self.done:
            self.done[target, policy] = self._run(target, cases)
        return self.done[target, policy]

    def _run(self, name: str, cases: Sequence[Case]) -> Outcome | Refused:
        if self.loki is None:
            # Wide open for old entries, so that those of a target that can't restamp them are stored and compared too.
            self.loki = self.runner.start_loki(tenants=True, limits=Limits(max_chunk_age_s=20 * _YEAR_S))
        self.runs += 1
        number = f"run{self.runs}"
        place = self.runner.workdir / number
        root, state, rendered = (place / what for what in ("node", "state", "bundle"))
        for each in (root, state, rendered):
            each.mkdir(parents=True)
        policy = load([str(cases[0].policy)])
        sinks = {sink: {"endpoint": self.loki.endpoint, "tenant": f"{number}-{sink}"} for sink in policy.data["sinks"]}
        changes = place / "here.yaml"
        here = _changes(root, state, self.runner.free_port(), sinks)
        changes.write_text(json.dumps({**here, **self._relay(name)}))
        policy = load([str(cases[0].policy), str(changes)])
        pipeline = resolve(policy)
        choice = plan.choose(name, policy, pipeline)
        if choice.target is None or not choice.renders:
            return Refused(choice.diagnostics)
        for case in cases:
            _lay_out(case, root, Path(f"{root}{pipeline.ray['temp_dir']}"))
        bundle.write(bundle.of(pipeline, [choice]), rendered)
        run = target_run(choice.target, choice.version, pipeline, rendered, state, root, {"TZ": ZONE})
        outcome = Outcome({}, origin(choice.target, choice.version, run, place))
        began_ns = time.time_ns()
        outcome.log = self._until_calm(run, sum(not w.one.optional for case in cases for w in expected(case)), sinks)
        self._read_back(outcome, cases, sinks, began_ns, time.time_ns())
        return outcome

    def _relay(self, name: str) -> dict[str, Any]:
        """The relay of a target that has no sink of its own for Loki."""
        address = f"127.0.0.1:{self.runner.free_port()}"
        return {"relay": {"target": "vector", "address": address}} if name == "filebeat" else {}

    def _until_calm(self, run: TargetRun, wanted: int, sinks: Mapping[str, Mapping[str, str]]) -> str:
        assert self.loki is not None
        shipper = self.runner.start_shipper(run)
        clients = [LokiClient(self.loki.url, sink["tenant"]) for sink in sinks.values()]
        count, since = 0, time.monotonic()
        while (quiet := time.monotonic() - since) < _PATIENCE_S and (count < wanted or quiet < _CALM_S):
            if not shipper.running():
                raise OutsideError(f"{run.name} ended by itself; its log ends with:\n{tail(shipper.log())}")
            time.sleep(0.3)
            now = sum(client.received() for client in clients)
            if now != count:
                count, since = now, time.monotonic()
        shipper.stop()
        return shipper.log()

    def _read_back(
        self, outcome: Outcome, cases: Sequence[Case], sinks: Mapping[str, Mapping[str, str]], began: int, ended: int
    ) -> None:
        assert self.loki is not None
        rows: list[Row] = []
        for sink, settings in sinks.items():
            client = LokiClient(self.loki.url, settings["tenant"])
            entries = client.read_all(start_ns=_SINCE_NS)
            if client.received() > len(entries):
                entries = client.read_all(start_ns=FIRST_NS)
            outcome.unseen[sink] = client.received() - len(entries)
            rows += (row(sink, entry, began, ended) for entry in entries)
        outcome.rows = {case.name: [] for case in cases}
        owners = {place: case.name for case in cases for places in case.places() for place in places}
        for r in rows:
            session, file = r.place
            name = cases[0].name if len(cases) == 1 else owners.get(session or file, "")
            if not name:
                raise AssertionError(f"nobody's record: {r.written()}")
            outcome.rows[name].append(r)

    def keep(self) -> Path:
        """Save what the last runs rendered and logged."""
        kept = Path(tempfile.mkdtemp(prefix="shipgen-parity-"))
        self.runner.keep(kept)
        for place in self.runner.workdir.glob("run*"):
            shutil.copytree(place / "bundle", kept / place.name, dirs_exist_ok=True)
        return kept


def _changes(root: Path, state: Path, port: int, sinks: Mapping[str, Any]) -> dict[str, Any]:
    """What of a policy is different on this machine."""
    collector = {"root": str(root), "state_dir": str(state), "metrics": {"port": port}, "discover_every": "1s"}
    return {"collector": collector, "sinks": sinks}


def _lay_out(case: Case, root: Path, temp_dir: Path) -> None:
    """Put a case's input where the shipper looks for it."""
    temp_dir.mkdir(parents=True, exist_ok=True)
    sessions, others = case.places()
    if sessions:
        assert sessions_in(case.input).keys() == sessions
        copy_tree(case.input, temp_dir)
    for file in others:
        target = Path(f"{root}{file}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(f"{case.input}{file}", target)


def origin(target: base.Target, version: str, run: TargetRun, place: Path) -> dict[str, str]:
    """Where records come from: who made them, with what."""
    program, loki = (shutil.which(name) for name in (target.binary, "loki"))
    assert program is not None
    assert loki is not None

    def command(one: TargetRun) -> str:
        return " ".join(one.argv).replace(f"{place}/", "").replace(str(place), ".")

    relay: dict[str, str] = {}
    if run.relay:
        behind = shutil.which(run.relay.argv[0])
        assert behind is not None
        relay = {"relay": said_version(behind, "--version"), "relay_sha256": digest(behind),
                 "relay_command": command(run.relay)}
    return {
        "target": target.name,
        "version": version,
        "shipper": said_version(program, _VERSION_ARGUMENT.get(target.name, "--version")),
        "sha256": digest(program),
        "command": command(run),
        "shipgen": __version__,
        "loki": said_version(loki, "--version"),
        **relay,
    }


@cache
def said_version(program: str, argument: str) -> str:
    """The first line of what a program says about itself."""
    done = subprocess.run([program, argument], capture_output=True, text=True, timeout=60, check=True)
    return (done.stdout + done.stderr).strip().split("\n")[0]


@cache
def digest(program: str) -> str:
    """Hash of a program's file."""
    return hashlib.sha256(Path(program).resolve().read_bytes()).hexdigest()
