"""What happens to log files while a shipper reads them, in Ray's own ways. A ledger keeps what has to arrive."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from shipgen.diagnostics import UsageError

if TYPE_CHECKING:
    from shipgen.harness.verify import Stage

WORKERS = [f"worker-{index:056x}-01000000-{4000 + index}" for index in range(1, 9)]
#: Files that Ray rotates: component files and those of the first workers.
RINGS = [
    "raylet.out",
    "gcs_server.out",
    "dashboard.log",
    "dashboard_agent.log",
    "log_monitor.log",
    "monitor.log",
    "runtime_env_agent.log",
    "serve/controller_4100.log",
    *(f"python-core-worker-{index:056x}_{4000 + index}.log" for index in range(1, 5)),
    *(f"{worker}.{stream}" for worker in WORKERS[:4] for stream in ("out", "err")),
]
#: Files of workers that come to their end.
MOVED = [f"{worker}.{stream}" for worker in WORKERS[4:] for stream in ("out", "err")]

_TURN_S = 0.25
_TURNS = 24
_MANY = 10_000


class Lines:
    """Numbered entries in the form that each kind of file has, some of several lines."""

    def __init__(self) -> None:
        self.count = 0

    def entry(self, name: str, at: datetime) -> Iterator[str]:
        """The next entry of a file, with a time."""
        self.count += 1
        stamp = written(at)
        if name.endswith(".out") and name.startswith("worker-"):
            yield f"step {self.count} loss=0.42"
        elif name.startswith(("raylet", "gcs_server", "python-core")):
            yield f"[{stamp} I 310 322] store.cc:40: report {self.count} follows:"
            yield "objects in use: 3"
        elif name.startswith("serve/"):
            yield f"INFO {stamp} controller 4100 -- scaled {self.count}"
        elif self.count % 3:
            yield f"{stamp}\tINFO train.py:25 -- continuing {self.count}"
        else:
            yield f"{stamp}\tERROR train.py:18 -- boom {self.count}"
            yield "Traceback (most recent call last):"
            yield '  File "/app/train.py", line 16, in step'
            yield "ZeroDivisionError: division by zero"


def written(at: datetime) -> str:
    """A time as Ray writes it."""
    return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}"


@dataclass(slots=True)
class Live:
    """Files that are written while the shipper reads, and what else happens to them, turn by turn; then the faults of
    the run, and some more turns. ``happens`` is called before each turn, with its number."""

    name: str
    happens: tuple[Callable[[Live, Stage, int], None], ...] = ()
    turns: int = _TURNS
    many: int = 0
    lines: Lines = field(default_factory=Lines)
    names: list[str] = field(default_factory=lambda: [*RINGS, *MOVED])
    workers: Iterator[int] = field(default_factory=lambda: itertools.count(100))
    turn: int = 0

    def before(self, stage: Stage) -> None:
        """A session with some lines in every file."""
        if not any(source.type == "ray" for source in stage.pipeline.sources):
            raise UsageError(f"--scenario {self.name} writes Ray's files, and the policy has no source of type ray")
        stage.writer.new_session()
        self.names += [f"{self.next_worker()}.{stream}" for _ in range(self.many // 2) for stream in ("out", "err")]
        for name in self.names:
            self.begin(stage, name)
        for _ in range(3):
            self.write(stage, self.names)

    def during(self, stage: Stage) -> None:
        """Turn after turn; the faults come in the middle."""
        for _ in range(self.turns):
            self.one_turn(stage)
        stage.suffer(lambda: self.one_turn(stage))
        if stage.faults:
            for _ in range(self.turns):
                self.one_turn(stage)
        stage.writer.partial("raylet.out", f"[{stage.stamp()} I 310 322] half.cc:1: never finished")

    def truth(self, stage: Stage) -> Path:
        """The ledger."""
        return stage.writer.ledger

    def one_turn(self, stage: Stage) -> None:
        """What happens, then an entry for each file, or with very many files for some of them."""
        began = time.monotonic()
        for happens in self.happens:
            happens(self, stage, self.turn)
        some = self.names[: len(RINGS)]
        rest = self.names[len(RINGS) :]
        step = max(1, len(rest) // len(MOVED))
        self.write(stage, [*some, *rest[self.turn % step :: step]])
        self.turn += 1
        time.sleep(max(0.0, began + _TURN_S - time.monotonic()))

    def begin(self, stage: Stage, name: str) -> None:
        """What Ray writes at the head of a worker's files."""
        if name.startswith("worker-"):
            stage.writer.write(name, ":job_id:01000000", ":actor_name:Trainer")

    def write(self, stage: Stage, names: list[str], times: int = 1, session: str = "") -> None:
        """Entries, one for each file and time."""
        for _ in range(times):
            for name in names:
                stage.writer.write(name, *self.lines.entry(name, stage.now(name)), session=session)

    def next_worker(self) -> str:
        """The base name of the files of a worker that has not been there yet."""
        index = next(self.workers)
        return f"worker-{index:056x}-01000000-{4000 + index}"


# -- what happens ------------------------------------------------------------------------------------------------------


def rings(live: Live, stage: Stage, turn: int) -> None:
    """Some of the files are rotated: each of them every two seconds or so."""
    for name in RINGS[turn % 8 :: 8]:
        if name in stage.writer.names():
            stage.writer.rotate(name)
            live.write(stage, [name], 2)


def sessions(live: Live, stage: Stage, turn: int) -> None:
    """Ray is started anew; its old session writes its last lines after the link has moved."""
    if turn % 12 == 8:
        old = stage.writer.session
        stage.writer.new_session()
        live.write(stage, RINGS[:6], 3, session=old)
        for name in live.names:
            live.begin(stage, name)


def links(_: Live, stage: Stage, turn: int) -> None:
    """Workers start, and each start makes the link anew."""
    if turn % 2:
        stage.writer.worker_starts()


def deaths(live: Live, stage: Stage, turn: int) -> None:
    """A worker ends, its files move to `old/`, and another one starts."""
    if turn % 3 == 2:
        pair = [name for name in live.names if name in stage.writer.names() and name.startswith("worker-")][-2:]
        for name in pair:
            live.write(stage, [name], 2)
            stage.writer.move_to_old(name)
            live.names.remove(name)
        worker = live.next_worker()
        for stream in ("out", "err"):
            live.names.insert(len(RINGS), f"{worker}.{stream}")
            live.begin(stage, f"{worker}.{stream}")


def halves(live: Live, stage: Stage, turn: int) -> None:
    """A line is written in two pieces, with a flush of the shipper between them."""
    name = RINGS[-2]
    if turn % 12 == 2:
        stage.writer.partial(name, f"half of {live.turn} ")
        live.names.remove(name)  # nobody else writes into the middle of it
    elif turn % 12 == 11 and name not in live.names:
        live.lines.count += 1
        stage.writer.partial(name, "and the other half\n")
        live.names.insert(0, name)


def giants(live: Live, stage: Stage, turn: int) -> None:
    """Lines of 200 KB, in a component's file and in a user's."""
    if turn % 4 == 1:
        live.lines.count += 2
        long = "x" * (200_000 - 100)
        stage.writer.write("raylet.out", f"[{stage.stamp()} I 310 322] long.cc:1: {turn} {long}")
        stage.writer.write(RINGS[-4], f"long {turn} {long}")


_KINDS: Mapping[str, tuple[str, tuple[Callable[[Live, Stage, int], None], ...], int]] = {
    "steady": ("files grow", (), 0),
    "live": ("rings turn, workers die, sessions change", (rings, links, deaths, sessions), 0),
    "rotation": ("every ring turns every two seconds", (rings,), 0),
    "session": ("a new session every three seconds, and the link made anew", (links, sessions), 0),
    "moved": ("workers die, and their files move to logs/old", (links, deaths), 0),
    "many-files": ("10,000 files of workers", (), _MANY),
    "long-lines": ("unfinished lines, and lines of 200 KB", (halves, giants), 0),
}
NAMES = ("static", *_KINDS)
ABOUT = {"static": "a recorded tree", **{name: kind[0] for name, kind in _KINDS.items()}}


def scenario(name: str) -> Live:
    """A scenario of :data:`NAMES`, but for `static`."""
    _, happens, many = _KINDS[name]
    return Live(name, happens, many=many)
