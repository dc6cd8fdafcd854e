"""Records of real log lines by the shipper itself: what `preview --target` runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from shipgen.diagnostics import OutsideError, UsageError
from shipgen.harness.runners import TargetRun
from shipgen.harness.start import at_port, target_run
from shipgen.pipeline.conditions import ALWAYS
from shipgen.pipeline.model import Pipeline, Sink
from shipgen.rendering import bundle
from shipgen.rendering.preview import locate
from shipgen.targets.plan import Choice

_QUIET_S = 4.0
"""Pause without a new record after which the shipper has read everything: longer than any flush timeout of ours."""
_LIMIT_S = 60.0


def run_shipper(
    pipeline: Pipeline, choice: Choice, logs: Sequence[str], as_path: str | None, stdin: TextIO
) -> Iterator[str]:
    """Copy the files to where the shipper looks for them, run it with its console as the only sink, give what it
    prints.

    Rules that hold for some sinks only are left out. Raises OutsideError where the binary is missing or does not start.
    """
    target = choice.target
    if target is None or not choice.renders:
        raise UsageError("; ".join(d.message for d in choice.diagnostics) or f"{choice.name} can't run this policy")
    for program in (target.binary, *([choice.relay.target.binary] if choice.relay else ())):
        if shutil.which(program) is None:
            raise OutsideError(f"there is no `{program}` on PATH; install it for {choice.name} {choice.version}, or "
                               "leave --target out: Vector's VRL then runs in-process")
    with tempfile.TemporaryDirectory(prefix="shipgen-preview-") as directory:
        work = Path(directory)
        names = [_placed(pipeline, work / "node", name, as_path, stdin) for name in logs]
        console = Sink("preview", "console", tuple(s.name for s in pipeline.sources), ALWAYS, {"target": "stdout"})
        here = replace(
            pipeline,
            collector=replace(
                pipeline.collector, root=str(work / "node"), state_dir=str(work / "state"), metrics_port=_port()
            ),
            sources=tuple(replace(s, base=f"{work}/node{s.base}" if s.base else "",
                                  paths=tuple(f"{work}/node{p}" for p in s.paths),
                                  exclude=tuple(f"{work}/node{p}" for p in s.exclude)) for s in pipeline.sources),
            rules=tuple(r for r in pipeline.rules if r.sinks is None),
            sinks=(console,),
            hop=None,
        )
        here = at_port(here, _port())
        bundle.write(bundle.of(here, [choice]), work / "bundle")
        run = target_run(target, choice.version, here, work / "bundle", work / "state", work / "node", os.environ)
        yield from _records([run.relay, run] if run.relay else [run], work, len(names))


def _placed(pipeline: Pipeline, node: Path, name: str, as_path: str | None, stdin: TextIO) -> Path:
    _, _, path = locate(pipeline, as_path or ("stdin" if name == "-" else name))
    place = Path(f"{node}{path}")
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        data = stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error
    place.write_bytes(data if data.endswith(b"\n") else data + b"\n")
    return place


def _port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _records(runs: Sequence[TargetRun], work: Path, files: int) -> Iterator[str]:
    """What the first of some programs prints while all of them run."""
    printed = work / "records"
    processes: list[subprocess.Popen[bytes]] = []
    with printed.open("wb") as out, (work / "log").open("wb") as log:
        try:
            for run in runs:
                processes.append(subprocess.Popen(
                    run.argv, stdout=log if processes else out, stderr=log, stdin=subprocess.DEVNULL, env=run.env
                ))
            began = changed = time.monotonic()
            size = 0
            while time.monotonic() - began < _LIMIT_S and (time.monotonic() - changed < _QUIET_S or not size):
                for run, process in zip(runs, processes, strict=True):
                    if process.poll() is not None:
                        said = (work / "log").read_text(errors="replace")[-2000:]
                        raise OutsideError(f"{run.argv[0]} stopped with exit code {process.returncode}: {said}")
                if not size and time.monotonic() - began > 3 * _QUIET_S + files / 100:
                    break
                time.sleep(0.1)
                if printed.stat().st_size != size:
                    size, changed = printed.stat().st_size, time.monotonic()
        finally:
            for process in reversed(processes):
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
    for line in printed.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            record = {"time": record.pop("time", None), **dict(sorted(record.items()))}
            yield json.dumps(record, ensure_ascii=False)
