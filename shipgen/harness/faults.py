"""What goes wrong on purpose while a shipper works: between it and Loki, to itself, or to its disk.

A fault is a context: it begins, the scenario goes on writing for a while, and it ends. What happens afterwards is for
the shipper to show.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shipgen.diagnostics import OutsideError, UsageError
from shipgen.harness.loki import Limits
from shipgen.harness.proxy import Harm
from shipgen.pipeline.model import Pipeline
from shipgen.policy import units

if TYPE_CHECKING:
    from shipgen.harness.verify import Stage

_MIB = 1024 * 1024
_POISON = "poisoned: longer than this Loki takes"
_LARGEST_LINE = 100 * 1024


def _nothing(_: Stage) -> None:
    """Most faults need nothing made ready."""


def _as_it_is(pipeline: Pipeline) -> Pipeline:
    return pipeline


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. ``does`` is the fault itself, for ``seconds``; ``ready`` runs before the shipper starts.

    ``change`` and ``limits`` are what the run's pipeline and Loki have to be like for it. Entries with ``excused`` in
    their line may be missing, and Loki may discard them for one of ``discards``. ``patience_s`` is how much longer than
    usual nothing may arrive before what is missing counts as lost.
    """

    name: str
    about: str
    does: Callable[[Stage], AbstractContextManager[None]]
    seconds: float = 20.0
    ready: Callable[[Stage], None] = _nothing
    change: Callable[[Pipeline], Pipeline] = _as_it_is
    limits: Callable[[Limits], Limits] = lambda limits: limits
    excused: str = ""
    discards: frozenset[str] = frozenset()
    patience_s: float = 0.0


def _harm(harm: Harm) -> Callable[[Stage], AbstractContextManager[None]]:
    @contextmanager
    def does(stage: Stage) -> Iterator[None]:
        stage.proxy.harm = harm
        yield
        stage.proxy.harm = Harm()

    return does


@contextmanager
def _loki_down(stage: Stage) -> Iterator[None]:
    stage.proxy.down()
    yield
    stage.proxy.up()


@contextmanager
def _killed(stage: Stage) -> Iterator[None]:
    stage.kill()
    yield
    stage.start()


@contextmanager
def _killed_in_outage(stage: Stage) -> Iterator[None]:
    stage.proxy.down()
    yield
    stage.kill()
    stage.start()
    stage.proxy.up()


@contextmanager
def _rotation_in_outage(stage: Stage) -> Iterator[None]:
    with _loki_down(stage):
        _turn_rings(stage)
        yield
        _turn_rings(stage)


@contextmanager
def _rotation_while_killed(stage: Stage) -> Iterator[None]:
    with _killed(stage):
        _turn_rings(stage)
        yield
        _turn_rings(stage)


def _turn_rings(stage: Stage) -> None:
    for name in stage.writer.names():
        stage.writer.rotate(name)


@contextmanager
def _buffer_full(stage: Stage) -> Iterator[None]:
    """Loki is down, and more is written than the buffer holds."""
    with _loki_down(stage):
        stage.bulk(stage.buffer_size + stage.buffer_size // 4)
        yield


def _small_buffers(pipeline: Pipeline) -> Pipeline:
    small = 16 * _MIB
    return replace(pipeline, sinks=tuple(
        replace(sink, options={**sink.options, "buffer": {**sink.options["buffer"], "max_size": small}})
        if "buffer" in sink.options else sink for sink in pipeline.sinks
    ))


@contextmanager
def _no_space(stage: Stage) -> Iterator[None]:
    """Loki is down, and the disk of buffers and offsets has no room left."""
    with _loki_down(stage):
        filler = stage.run.state / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 65536)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        yield
        filler.unlink()


def _small_disk(stage: Stage) -> None:
    inside = [path.relative_to(stage.run.state) for path in stage.run.state.rglob("*")]
    stage.runner.small_disk(stage.run.state, stage.buffer_size + stage.buffer_size // 4)
    for path in inside:
        (stage.run.state / path).mkdir()


@contextmanager
def _refused(stage: Stage) -> Iterator[None]:
    """A record that Loki takes never: it stores the others of the request and answers 400."""
    for number, name in enumerate(("raylet.out", "gcs_server.out")):
        line = f"[{stage.stamp()} I 310 322] poison.cc:{number}: {_POISON} "
        stage.writer.write(name, line + "x" * (_LARGEST_LINE + 50 * 1024))
    yield


@contextmanager
def _clocks(stage: Stage) -> Iterator[None]:
    """Half of the files are written six hours ahead of the zone that the policy names, the others six hours behind."""
    stage.clock_error_s = 6 * 3600
    yield
    stage.clock_error_s = 0


_ALL = (
    Fault("loki-down", "Loki refuses connections", _loki_down, 120.0),
    Fault("429", "Loki answers 429", _harm(Harm(status=429))),
    Fault("500", "Loki answers 500", _harm(Harm(status=500))),
    Fault("reset", "connections are reset within a request, and before the answer", _harm(Harm(reset=True))),
    Fault("slow", "Loki answers after 15 s", _harm(Harm(delay_s=15.0)), 40.0),
    Fault("sigkill", "the shipper is killed and started again", _killed, 5.0),
    Fault("sigkill-in-outage", "the shipper is killed while Loki is down", _killed_in_outage),
    Fault("rotation-in-outage", "every file is rotated twice while Loki is down", _rotation_in_outage),
    Fault("rotation-while-killed", "every file is rotated twice before the shipper is back", _rotation_while_killed,
          5.0),
    Fault("buffer-full", "Loki is down, and more is written than the buffer holds", _buffer_full,
          change=_small_buffers),
    Fault("refused-400", "records that Loki answers with 400", _refused, 5.0,
          limits=lambda limits: replace(limits, max_line_size=_LARGEST_LINE), excused=_POISON,
          discards=frozenset({"line_too_long"})),
    Fault("401", "Loki answers 401", _harm(Harm(status=401))),
    Fault("enospc", "the disk of the shipper's state is full while Loki is down", _no_space, ready=_small_disk,
          change=_small_buffers, patience_s=60.0),
    Fault("clock", "clocks of the files are six hours ahead and behind", _clocks),
)
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}


def fault(text: str) -> Fault:
    """``name`` or ``name:30s``. UsageError for a name or duration that is none."""
    name, _, duration = text.partition(":")
    if name not in FAULTS:
        raise UsageError(f"no fault is called {name!r}; there are: {', '.join(FAULTS)}")
    if not duration:
        return FAULTS[name]
    try:
        return replace(FAULTS[name], seconds=units.duration(duration) / 1000)
    except ValueError as error:
        raise UsageError(f"--fault {text}: {duration!r} {error}; write a duration such as 2m or 30s") from error


def possible(faults: tuple[Fault, ...]) -> None:
    """Raise OutsideError where one of the faults can't be made here."""
    if any(one.name == "enospc" for one in faults) and os.geteuid() != 0:
        raise OutsideError("enospc mounts a small file system, which takes root; run as root, or leave it out")
