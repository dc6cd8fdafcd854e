"""MB of Ray's text for each second of a shipper's CPU: as rendered, the same work by hand, and bare tail to Loki.

    python bench/throughput.py [--mb N] [--target T]...

Each shipper that is on PATH reads the same files and pushes to a server that answers 204 and does nothing else, so that
only the shipper is measured. CPU is what the kernel counts for the process, its start included. A shipper has finished
when nothing has arrived for some seconds. Prints a markdown table. Logs are the recorded trees, each file repeated.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import configs

from shipgen.harness.runners import LocalRunner
from shipgen.harness.start import at_port, target_run
from shipgen.harness.verify import retarget
from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan

TREES = Path(__file__).resolve().parent.parent / "tests" / "data" / "ray-logs"
POLICY = """
version: 1
name: bench
cluster: prod-a
sources: {ray: {type: ray}}
parsing: {timezone: Europe/Berlin}
sinks: {loki: {type: loki, endpoint: "http://127.0.0.1:3100"}}
"""
CALM_S = 6.0
LIMIT_S = 300.0


class Stub(ThreadingHTTPServer):
    """Takes everything, and knows when it last got something."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.last = 0.0
        self.bytes = 0
        self.entries = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Stub
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        self.send_response(204)
        self.end_headers()
        self.server.bytes += len(gzip.decompress(body)) if body[:2] == b"\x1f\x8b" else len(body)
        self.server.last = time.monotonic()

    def log_message(self, format: str, *args: object) -> None:
        pass


def corpus(root: Path, megabytes: int) -> float:
    """Lay out Ray's files below ``root``, repeated; gives their size in MB."""
    size = 0
    found = (TREES / "text").rglob("*")
    logs = sorted(f for f in found if f.suffix in (".log", ".out", ".err") and "events" not in f.parts)
    whole = sum(len(f.read_bytes().rpartition(b"\n")[0]) + 1 for f in logs)
    times = max(1, megabytes * 1_000_000 // whole)
    for file in logs:
        text = file.read_bytes()
        text = text[: text.rfind(b"\n") + 1]
        place = root / file.relative_to(TREES / "text")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text * times)
        size += len(text) * times
    return size / 1e6


@dataclass(frozen=True)
class Run:
    """What one run cost: CPU seconds, seconds from start to the last push, peak memory in MB, MB received."""

    cpu: float
    wall: float
    memory: float
    received: float


def measure(commands: Sequence[Sequence[str]], env: Mapping[str, str], stub: Stub, directory: Path) -> Run:
    """Start a shipper, its relay first if it has one, wait until it has nothing more to send, stop it."""
    stub.last, stub.bytes = 0.0, 0
    began = time.monotonic()
    with (directory / "log").open("wb") as log:
        processes = [subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **env}, start_new_session=True)
                     for argv in commands]
    while time.monotonic() - began < LIMIT_S and not (stub.last and time.monotonic() - stub.last > CALM_S):
        if any(process.poll() is not None for process in processes):
            raise SystemExit(f"{commands} ended by itself:\n{(directory / 'log').read_text()[-2000:]}")
        time.sleep(0.2)
    cpu = memory = 0.0
    for process in reversed(processes):
        process.send_signal(signal.SIGTERM)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        cpu, memory = cpu + usage.ru_utime + usage.ru_stime, memory + usage.ru_maxrss / 1e3
    return Run(cpu, stub.last - began, memory, stub.bytes / 1e6)


def rendered(
    target: str, ray: Path, state: Path, out: Path, ports: tuple[int, int], endpoint: str
) -> tuple[list[Sequence[str]], dict[str, str]]:
    """Write the bundle of the bench's policy; gives the commands and the environment that start the shipper with it.
    ``ports`` are that of its metrics and that of its relay."""
    policy = out / "policy.yaml"
    policy.write_text(POLICY + "relay: {target: vector}\n" * (target == "filebeat"))
    loaded = load([str(policy)])
    pipeline = resolve(loaded)
    choice = plan.choose(target, loaded, pipeline)
    assert choice.target is not None
    here = at_port(
        retarget(pipeline, root=str(ray.parent.parent), state_dir=str(state), metrics_port=ports[0], endpoint=endpoint),
        ports[1],
    )
    for path, content in bundle.of(here, [choice]).files.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(content)
    run = target_run(choice.target, choice.version, here, out, state, ray, {})
    return [one.argv for one in (run.relay, run) if one], {"HOSTNAME": "bench"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=60)
    parser.add_argument("--target", action="append", choices=base.implemented())
    parser.add_argument("--kind", action="append", choices=("rendered", "by_hand", "bare"))
    options = parser.parse_args()
    stub = Stub()
    endpoint = f"http://127.0.0.1:{stub.server_address[1]}"
    print("| target | configuration | MB | CPU s | MB per CPU s | wall s | memory, MB | MB received |")
    print("|---|---|---|---|---|---|---|---|")
    with LocalRunner() as runner:
        ray = runner.workdir / "node" / "tmp" / "ray"
        size = corpus(ray, options.mb)
        for target in options.target or base.implemented():
            if shutil.which(base.get(target).binary) is None:
                print(f"no `{base.get(target).binary}` on PATH: {target} is left out", file=sys.stderr)
                continue
            for kind in options.kind or ("rendered", "by_hand", "bare"):
                directory = Path(tempfile.mkdtemp(dir=runner.workdir))
                state, port = directory / "state", runner.free_port()
                state.mkdir()
                if kind == "rendered":
                    commands, env = rendered(target, ray, state, directory, (port, runner.free_port()), endpoint)
                else:
                    places = {
                        "RAY": str(ray),
                        "STATE": str(state),
                        "HERE": str(directory),
                        "LOKI": endpoint,
                        "HOST": "127.0.0.1",
                        "PORT": endpoint.rpartition(":")[2],
                        "METRICS": str(port),
                    }
                    files = configs.written(kind, target, places)
                    if not files:
                        continue
                    for name, content in files.items():
                        (directory / name).write_bytes(content)
                    commands, env = [configs.argv(target, str(directory / next(iter(files))))], {}
                run = measure(commands, env, stub, directory)
                print(
                    f"| {target} | {kind.replace('_', ' ')} | {size:.1f} | {run.cpu:.1f} | {size / run.cpu:.1f} "
                    f"| {run.wall:.1f} | {run.memory:.0f} | {run.received:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
