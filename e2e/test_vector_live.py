"""Files that change while Vector reads them, in Ray's own ways. Nothing may be lost, nothing may arrive twice."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from policies import Run

from shipgen.harness import report
from shipgen.harness.replay import LiveWriter
from shipgen.harness.scenarios import MOVED, RINGS, WORKERS, Lines
from shipgen.harness.verify import Stage


class Life:
    """Two sessions. Rings turn while Vector reads and while it is stopped or killed; files of dead workers move."""

    name = "live rotation, moves and a session change"

    def __init__(self, *, kill: bool = False) -> None:
        self.kill = kill
        self.lines = Lines()
        self.sessions: list[str] = []
        self.rotated: set[str] = set()

    def write(self, writer: LiveWriter, names: list[str], times: int = 1, session: str = "") -> None:
        for _ in range(times):
            for name in names:
                writer.write(name, *self.lines.entry(name, datetime.now(UTC)), session=session)

    def rotate(self, writer: LiveWriter, names: list[str]) -> None:
        for name in names:
            writer.rotate(name)
            self.rotated.add(name)
            self.write(writer, [name], 2)

    def before(self, stage: Stage) -> None:
        writer = stage.writer
        self.sessions.append(writer.new_session())
        for worker in WORKERS:
            writer.write(f"{worker}.out", ":job_id:01000000", ":actor_name:Trainer")
            writer.write(f"{worker}.err", ":job_id:01000000", ":actor_name:Trainer")
        self.write(writer, RINGS + MOVED, 5)

    def during(self, stage: Stage) -> None:
        writer = stage.writer
        for turn in range(4):
            self.write(writer, RINGS + MOVED, 3)
            self.rotate(writer, RINGS[turn::4])
            writer.worker_starts()
            time.sleep(1)
        for name in MOVED[:4]:
            writer.move_to_old(name)
        time.sleep(1)
        self.write(writer, RINGS, 3)

        (stage.kill if self.kill else stage.stop)()
        self.write(writer, RINGS + MOVED[4:], 10)
        self.rotate(writer, RINGS[:10])
        self.rotate(writer, RINGS[:5])
        for name in MOVED[4:]:
            writer.move_to_old(name)
        stage.start()
        self.write(writer, RINGS, 3)

        old = self.sessions[0]
        self.sessions.append(writer.new_session())
        self.write(writer, RINGS[:6], 3, session=old)  # what is written while Ray shuts down
        self.write(writer, RINGS + MOVED, 5)
        time.sleep(1)
        self.rotate(writer, RINGS)
        writer.partial("raylet.out", "[2026-12-01 00:00:00,000 I 310 322] half.cc:1: never finished")

    def truth(self, stage: Stage) -> Path:
        return stage.writer.ledger


def test_live_files(run: Run) -> None:
    life = Life()
    found = run(life)
    assert len(life.rotated) == 20
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected == life.lines.count
    assert found.unfinished == 1


def test_killed_while_files_turn(run: Run) -> None:
    """SIGKILL: what Vector had read and not delivered is read again. Repeats are allowed and bounded, loss is not."""
    life = Life(kill=True)
    found = run(life)
    verdict = found.sinks["loki"]
    assert verdict.lost == verdict.wrong == verdict.extra == 0, report.written(found, "text")
    assert verdict.duplicated <= life.lines.count // 2, report.written(found, "text")
    assert not found.discarded
