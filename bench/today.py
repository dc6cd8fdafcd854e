"""Better than today? Typical hand-written configurations and the rendered ones, on a live run of the same kind.

    python bench/today.py [--target T]...

Rings turn, workers die and their files move, sessions change, for some 40 seconds, while each shipper reads, is
stopped once and started again. Counted by the numbers in the lines, so that no configuration is blamed for its
labels: lines that are not in Loki at the end (lost), lines that are there more than once (repeated), and of the lines
that carry a time those that Loki has under another one (wrong time); an entry whose own time stands beside it, as
`late` has it, is not wrong.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import configs

from shipgen.harness.loki import FIRST_NS
from shipgen.harness.runners import LocalRunner
from shipgen.harness.scenarios import Lines, Live, scenario
from shipgen.harness.verify import Stage, verify
from shipgen.pipeline import resolve
from shipgen.pipeline.model import Pipeline
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan

POLICY = """
version: 1
name: bench
sources: {ray: {type: ray}}
sinks: {loki: {type: loki, endpoint: "http://127.0.0.1:3100"}}
"""
NUMBER = re.compile(r"(?:step|report|scaled|continuing|boom) (\d+)\b")
WRONG_NS = 2_000_000
DOWN_S = 4.0


class Timed(Lines):
    """Entries, and the time that each carries, by its number; prints carry none."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[int, int | None] = {}

    def entry(self, name: str, at: datetime) -> Iterator[str]:
        """The next entry, remembered."""
        lines = list(super().entry(name, at))
        written = (int(at.timestamp()) * 1000 + at.microsecond // 1000) * 1_000_000
        self.times[self.count] = None if lines[0].startswith("step") else written
        yield from lines


@dataclass
class Run:
    """The live scenario with a stop and a start of the shipper in it, and what Loki had at its end."""

    live: Live = field(default_factory=lambda: scenario("live"))
    name: str = "today"
    written: int = 0
    lost: int = 0
    repeated: int = 0
    wrong: int = 0

    def before(self, stage: Stage) -> None:
        """As in the scenario."""
        self.live.lines = Timed()
        self.live.before(stage)

    def during(self, stage: Stage) -> None:
        """The scenario's turns; in the middle the shipper is down for some seconds while they go on."""
        self.turns(stage)
        stage.stop()
        until = time.monotonic() + DOWN_S
        while time.monotonic() < until:
            self.live.one_turn(stage)
        stage.start()
        self.turns(stage)
        stage.settle()
        self.count(stage)

    def turns(self, stage: Stage) -> None:
        """Those of the scenario."""
        for _ in range(self.live.turns):
            self.live.one_turn(stage)

    def truth(self, stage: Stage) -> Path:
        """The ledger."""
        return stage.writer.ledger

    def count(self, stage: Stage) -> None:
        """Look for every number in what Loki has."""
        assert isinstance(self.live.lines, Timed)
        times, seen, right = self.live.lines.times, Counter[int](), set[int]()
        for entry in stage.client.read_all(start_ns=FIRST_NS):
            own = entry.metadata.get("entry_time", "")
            for found in NUMBER.findall(entry.line):
                number = int(found)
                seen[number] += 1
                wanted = times.get(number)
                if wanted is None or abs(entry.time_ns - wanted) < WRONG_NS or own:
                    right.add(number)
        self.written = len(times)
        self.lost = len(times.keys() - seen.keys())
        self.repeated = sum(n - 1 for n in seen.values())
        self.wrong = len(seen.keys() - right)


def measured(target: str, kind: str) -> Run:
    """Run one shipper with one configuration."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(POLICY)
        file.flush()
        policy = load([file.name])
    pipeline = resolve(policy)
    choice = plan.choose(target, policy, pipeline)
    assert choice.target is not None

    def render(of: Pipeline) -> Mapping[str, bytes]:
        if kind == "rendered":
            return dict(bundle.of(of, [choice]).files)
        endpoint = str(of.sinks[0].options["endpoint"])
        places = {
            "RAY": of.sources[0].base,
            "STATE": f"{of.collector.state_dir}/{of.name}/{target}",
            "LOKI": endpoint,
            "HOST": "127.0.0.1",
            "PORT": endpoint.rpartition(":")[2],
            "METRICS": str(of.collector.metrics_port),
        }
        (content,) = configs.written("typical", target, places).values()
        return {choice.target.main_config: content} if choice.target else {}

    run = Run()
    with tempfile.TemporaryDirectory() as kept:
        verify(pipeline, render, choice.target, choice.version, run, LocalRunner(), keep=Path(kept) / "kept")
    return run


def main() -> None:
    """Run all, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", choices=base.implemented())
    options = parser.parse_args()
    print("| target | configuration | lines written | lost | repeated | wrong time |")
    print("|---|---|---|---|---|---|")
    for target in options.target or base.implemented():
        if shutil.which(base.get(target).binary) is None or target not in configs.MAIN:
            print(f"{target} is left out: no binary on PATH, or no typical configuration", file=sys.stderr)
            continue
        for kind in ("typical", "rendered"):
            run = measured(target, kind)
            print(f"| {target} | {kind} | {run.written} | {run.lost} | {run.repeated} | {run.wrong} |", flush=True)


if __name__ == "__main__":
    main()
