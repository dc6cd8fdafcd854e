"""Starts real shippers and a real Loki, as programs of this machine or as containers, and leaves nothing behind.

A run owns one directory, named after it, in which all of its files are. Everything that it starts carries the name of
the run: processes in their environment, containers and networks in a label. So what is left of a run can be found
without having been written down, at its own end and, had it no chance to end, when the next one begins.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from shipgen.diagnostics import OutsideError
from shipgen.harness import loki

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

PREFIX = "shipgen-run-"
#: Environment variable and label that carry the name of a run.
TAG_VARIABLE = "SHIPGEN_RUN"
TAG_LABEL = "shipgen.run"
OWNER_LABEL = "shipgen.owner"
_OWNER_FILE = "owner.json"
_LOKI_PORT = 3100


@dataclass(frozen=True, slots=True)
class TargetRun:
    """How one rendered shipper is started. All paths are absolute and the same inside a container.

    ``argv`` is the command with the program first; ``program`` is where an image has it, if not at that name. ``ready``
    is a regex that the shipper's own log matches once it works.
    """

    name: str
    argv: tuple[str, ...]
    image: str
    bundle: Path
    state: Path
    logs: Path
    env: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    ready: str = ""
    relay: TargetRun | None = None
    """A second shipper, which is started first, stopped last, and found at the same loopback address."""

    def behind(self, relay: TargetRun) -> TargetRun:
        """This run with a relay."""
        return replace(self, relay=relay)


class LokiHandle(Protocol):
    """A running Loki: ``url`` for the harness, ``endpoint`` for a shipper of the same run."""

    url: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What a shipper took so far: seconds of CPU in all its processes, and the most memory that it held, in bytes (0:
    can't be told here)."""

    cpu_s: float = 0.0
    peak_bytes: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Of two lives of one shipper."""
        return Usage(self.cpu_s + other.cpu_s, max(self.peak_bytes, other.peak_bytes))


class ShipperHandle(Protocol):
    """A running shipper."""

    def usage(self) -> Usage:
        """What it took so far; of one that has ended by itself nothing is known."""

    def running(self) -> bool:
        """Has it not ended by itself?"""

    def stop(self, grace_s: float = 60.0) -> None:
        """Ask it to end, and end it after ``grace_s``."""

    def kill(self) -> None:
        """End it without a chance to save anything (SIGKILL)."""

    def exit_code(self) -> int:
        """What it ended with, once it has."""

    def log(self) -> str:
        """What it wrote about itself."""


class Runner(Protocol):
    """Where a run happens."""

    kind: str
    workdir: Path
    #: What a shipper of this run takes for its host name.
    node: str

    @property
    def gateway(self) -> tuple[str, str]:
        """The address of this machine on which a shipper of this run can reach the harness, and its name there."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def free_port(self) -> int:
        """A port that nothing listens on where the shipper runs."""

    def start_loki(self, *, tenants: bool = False, limits: loki.Limits | None = None) -> LokiHandle:
        """Start a Loki and wait until it takes entries."""

    def start_shipper(self, run: TargetRun) -> ShipperHandle:
        """Start a shipper and wait until it works."""

    def small_disk(self, directory: Path, size: int) -> None:
        """Mount an empty file system of ``size`` bytes at a directory of the run."""

    def keep(self, directory: Path) -> None:
        """Copy the logs of everything that was started, and the bundle, to where they outlive the run."""


@dataclass(slots=True)
class Relayed:
    """A shipper and its relay, as one."""

    shipper: ShipperHandle
    relay: ShipperHandle

    def usage(self) -> Usage:
        one, other = self.shipper.usage(), self.relay.usage()
        return Usage(one.cpu_s + other.cpu_s, one.peak_bytes + other.peak_bytes)

    def running(self) -> bool:
        return self.shipper.running() and self.relay.running()

    def stop(self, grace_s: float = 60.0) -> None:
        self.shipper.stop(grace_s)
        self.relay.stop(grace_s)

    def kill(self) -> None:
        self.shipper.kill()
        self.relay.kill()

    def exit_code(self) -> int:
        return self.shipper.exit_code() or self.relay.exit_code()

    def log(self) -> str:
        return f"{self.relay.log()}\n{self.shipper.log()}"


# ---------------------------------------------------------------------------------------------------------------------
# Runs and what is left of them


def _started(pid: int) -> str:
    """When a process began, in the kernel's own count; tells it from a later one with the same id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _namespace() -> str:
    """Process ids mean something only within this."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def owner() -> str:
    """Who owns a run: this process, so that a later one can tell whether it is still there."""
    return json.dumps({"pid": os.getpid(), "started": _started(os.getpid()), "namespace": _namespace()})


def abandoned(owner_text: str) -> bool:
    """Is the owner of a run gone? One of another machine or namespace can't be judged and counts as there."""
    try:
        who = json.loads(owner_text)
        pid, started, namespace = int(who["pid"]), str(who["started"]), str(who["namespace"])
    except (ValueError, KeyError, TypeError):
        return False
    if namespace != _namespace():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return started != _started(pid)


def tagged_processes(run: str) -> list[int]:
    """Processes that a run started, and theirs: their environment names the run."""
    wanted = f"{TAG_VARIABLE}={run}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def end_processes(run: str, limit_s: float = 10.0) -> None:
    """Kill everything that a run started, and wait until it is gone."""
    deadline = time.monotonic() + limit_s
    while pids := [pid for pid in tagged_processes(run) if pid != os.getpid()]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def sweep_directories(end: Callable[[str], None] = end_processes) -> list[str]:
    """Find local runs whose owner is gone, end what they left running, remove their files; gives their names."""
    swept = []
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            text = (directory / _OWNER_FILE).read_text()
        except OSError:
            continue
        if abandoned(text):
            end(directory.name)
            remove_directory(directory)
            swept.append(directory.name)
    return swept


def remove_directory(directory: Path) -> None:
    """Remove a run's directory, with what is mounted in it."""
    with contextlib.suppress(OSError):
        places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for place in reversed(places):
            if place.startswith(f"{directory}/"):
                subprocess.run(["umount", "-l", place], check=False, capture_output=True)
    shutil.rmtree(directory, ignore_errors=True)


class _Run:
    """What every runner shares: the directory, the signals, the end."""

    kind = ""

    def __init__(self) -> None:
        self.workdir = Path()
        self.node = socket.gethostname()
        self._handlers: dict[int, Any] = {}

    @property
    def name(self) -> str:
        """The name that everything of this run carries."""
        return self.workdir.name

    def __enter__(self) -> Self:
        self._catch_signals()
        atexit.register(self._clean)  # for a signal in the few instructions that neither try nor with covers
        try:
            self._sweep()
            self.workdir = Path(tempfile.mkdtemp(prefix=PREFIX))
            (self.workdir / _OWNER_FILE).write_text(owner())
            self._begin()
        except BaseException:
            self._clean()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean()

    def free_port(self) -> int:
        """A free port of the loopback interface."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
            return port

    @property
    def gateway(self) -> tuple[str, str]:
        """The loopback interface."""
        return "127.0.0.1", "127.0.0.1"

    def small_disk(self, directory: Path, size: int) -> None:
        """A tmpfs; takes root."""
        directory.mkdir(parents=True, exist_ok=True)
        argv = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0777", "tmpfs", str(directory)]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        if done.returncode:
            raise OutsideError(f"a small file system can't be mounted here, which takes root: {done.stderr.strip()}")

    def keep(self, directory: Path) -> None:
        """Copy logs and bundle to where they outlive the run."""
        directory.mkdir(parents=True, exist_ok=True)
        for log in self.workdir.glob("*.log"):
            shutil.copy2(log, directory / log.name)
        if (self.workdir / "bundle").is_dir():
            shutil.copytree(self.workdir / "bundle", directory / "bundle", dirs_exist_ok=True)

    def _log_path(self, name: str) -> Path:
        """Where the log of the next start of ``name`` goes: every start has a file of its own."""
        number = len(list(self.workdir.glob(f"{name}*.log")))
        path = self.workdir / (f"{name}-{number}.log" if number else f"{name}.log")
        path.touch()
        return path

    def _sweep(self) -> None:
        sweep_directories()

    def _begin(self) -> None:
        """What a runner needs before it can start anything."""

    def _end(self) -> None:
        """End everything that was started."""
        end_processes(self.name)

    def _clean(self) -> None:
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it behind
        try:
            if self.workdir.name:
                self._end()
                remove_directory(self.workdir)
        finally:
            atexit.unregister(self._clean)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._handlers.clear()

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._handlers[signal.SIGINT] = signal.getsignal(signal.SIGINT)  # raises KeyboardInterrupt as it is
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _wait_until(ready: Callable[[], bool], started: ShipperHandle, what: str, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        running = started.running()
        if ready():
            return
        if not running:
            raise OutsideError(f"{what} ended before it was ready; its log ends with:\n{tail(started.log())}")
        if time.monotonic() > deadline:
            raise OutsideError(f"{what} was not ready after {limit_s:g} s; its log ends with:\n{tail(started.log())}")
        time.sleep(0.1)


def _wait_until_works(started: ShipperHandle, run: TargetRun) -> None:
    ready = re.compile(run.ready)
    _wait_until(lambda: ready.search(started.log()) is not None, started, run.name)


def tail(text: str, lines: int = 15) -> str:
    """The last lines of a log, for a message."""
    return "\n".join(f"  {line[:300]}" for line in text.rstrip().splitlines()[-lines:]) or "  (nothing)"


# ---------------------------------------------------------------------------------------------------------------------
# Programs of this machine


@dataclass(slots=True)
class _Process:
    """A program that was started here, in a process group of its own."""

    process: subprocess.Popen[bytes]
    log_path: Path
    url: str = ""
    endpoint: str = ""

    def running(self) -> bool:
        return self.process.poll() is None

    def stop(self, grace_s: float = 60.0) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def exit_code(self) -> int:
        return self.process.wait()

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def usage(self) -> Usage:
        ticks = peak = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                # proc(5): from the third field on; 6 is the session, 14 to 17 are times of itself and of its children
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) == self.process.pid:
                    ticks += sum(map(int, stat[11:15]))
                    status = (entry / "status").read_text()
                    peak += int(status.partition("VmHWM:")[2].split()[0]) * 1024
        return Usage(ticks / os.sysconf("SC_CLK_TCK"), peak)


class LocalRunner(_Run):
    """Programs found on PATH, with ports of their own on the loopback interface."""

    kind = "local"

    def __init__(self) -> None:
        super().__init__()
        self._started: list[_Process] = []

    def start_loki(self, *, tenants: bool = False, limits: loki.Limits | None = None) -> LokiHandle:
        """Start the ``loki`` of this machine."""
        directory = self.workdir / "loki"
        directory.mkdir()
        port = self.free_port()
        config = directory / "loki.yaml"
        config.write_text(loki.config(str(directory), port, self.free_port(), tenants=tenants, limits=limits))
        program = self._program("loki", f"Loki {loki.VERSION}", loki.IMAGE)
        started = self._start("loki", [program, f"-config.file={config}"], {})
        started.url = started.endpoint = f"http://127.0.0.1:{port}"
        _wait_until(loki.LokiClient(started.url).ready, started, "Loki")
        return started

    def start_shipper(self, run: TargetRun) -> ShipperHandle:
        """Start a shipper of this machine."""
        relay = self.start_shipper(run.relay) if run.relay else None
        program = self._program(run.argv[0], run.name, run.image)
        started = self._start(run.name, [program, *run.argv[1:]], run.env)
        _wait_until_works(started, run)
        return Relayed(started, relay) if relay else started

    def _program(self, name: str, what: str, image: str) -> str:
        found = shutil.which(name)
        if found is None:
            raise OutsideError(
                f"there is no program `{name}` on PATH, so nothing was verified; install {what}, or take the container"
                f" image {image} with --runner docker"
            )
        return found

    def _start(self, name: str, argv: list[str], env: Mapping[str, str]) -> _Process:
        # A shipper's own variables in this environment (VECTOR_CONFIG and the like) are not part of the policy.
        own = f"{name.upper()}_"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        log_path = self._log_path(name)
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                argv,
                cwd=self.workdir,
                env={**inherited, **env, TAG_VARIABLE: self.name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started = _Process(process, log_path)
        self._started.append(started)
        return started

    def _end(self) -> None:
        for started in self._started:
            started.kill()
        super()._end()


# ---------------------------------------------------------------------------------------------------------------------
# Containers


@dataclass(slots=True)
class _Container:
    """A container of this run. Its log is kept as a file once it has ended."""

    container: Container
    log_path: Path
    url: str = ""
    endpoint: str = ""

    def running(self) -> bool:
        self.container.reload()
        return bool(self.container.status in ("created", "running"))

    def stop(self, grace_s: float = 60.0) -> None:
        self.container.stop(timeout=int(grace_s))
        self.log()

    def kill(self) -> None:
        import docker.errors

        with contextlib.suppress(docker.errors.APIError):  # it has ended already
            self.container.kill()
        self.container.wait()
        self.log()

    def exit_code(self) -> int:
        return int(self.container.wait()["StatusCode"])

    def log(self) -> str:
        text = self.container.logs().decode("utf-8", "replace")
        self.log_path.write_text(text)
        return text

    def usage(self) -> Usage:
        stats: dict[str, Any] = self.container.stats(stream=False)  # type: ignore[assignment]
        memory = stats.get("memory_stats", {})
        cpu_ns = stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage", 0)
        return Usage(cpu_ns / 1e9, memory.get("max_usage") or memory.get("usage", 0))


class DockerRunner(_Run):
    """Containers in a network of their own. ``pull`` says whether a missing image may be fetched."""

    kind = "docker"

    def __init__(self, *, pull: str = "missing", loki_image: str = loki.IMAGE) -> None:
        super().__init__()
        self.node = "shipgen-node"
        self.pull = pull
        self.loki_image = loki_image
        self._started: list[_Container] = []
        self._client: DockerClient | None = None

    @property
    def client(self) -> DockerClient:
        """The connection to the engine."""
        if self._client is None:
            import docker
            import docker.errors

            try:
                client = docker.from_env(timeout=120)
                client.ping()
            except docker.errors.DockerException as error:
                raise OutsideError(
                    "no Docker engine answers, so nothing was run; start one, or put `loki` and the shipper on PATH and"
                    " use --runner local"
                    f" ({str(error).splitlines()[0]})"
                ) from error
            self._client = client
        return self._client

    @property
    def gateway(self) -> tuple[str, str]:
        """The engine's end of the network of this run, or, where that is in a machine of its own, its way out."""
        network = self.client.networks.get(self.name)
        address = str(network.attrs["IPAM"]["Config"][0]["Gateway"])
        with socket.socket() as listener:
            try:
                listener.bind((address, 0))
            except OSError:
                return "127.0.0.1", "host.docker.internal"
        return address, address

    def start_loki(self, *, tenants: bool = False, limits: loki.Limits | None = None) -> LokiHandle:
        """Start Loki in a container; its port is published on the loopback interface."""
        directory = self.workdir / "loki"
        directory.mkdir()
        config = directory / "loki.yaml"
        config.write_text(
            loki.config(str(directory), _LOKI_PORT, 9095, listen="0.0.0.0", tenants=tenants, limits=limits)
        )
        started = self._run(
            "loki",
            self.loki_image,
            ["loki", f"-config.file={config}"],
            writable=[directory],
            ports={f"{_LOKI_PORT}/tcp": ("127.0.0.1", None)},
        )
        started.container.reload()
        published = started.container.ports[f"{_LOKI_PORT}/tcp"] or []
        started.url = f"http://127.0.0.1:{published[0]['HostPort']}"
        started.endpoint = f"http://{self.name}-loki:{_LOKI_PORT}"
        _wait_until(loki.LokiClient(started.url).ready, started, "Loki")
        return started

    def start_shipper(self, run: TargetRun) -> ShipperHandle:
        """Start a shipper in a container that sees the logs and the bundle read-only."""
        relay = self._shipper(run.relay) if run.relay else None
        started = self._shipper(run, relay)
        return Relayed(started, relay) if relay else started

    def _shipper(self, run: TargetRun, relay: _Container | None = None) -> _Container:
        run.state.mkdir(parents=True, exist_ok=True)
        started = self._run(
            run.name,
            run.image,
            [run.program or run.argv[0], *run.argv[1:]],
            env=run.env,
            readable=[run.bundle, run.logs],
            writable=[run.state],
            beside=relay,
        )
        _wait_until_works(started, run)
        return started

    def keep(self, directory: Path) -> None:
        """The logs of containers are written out first."""
        for started in self._started:
            started.log()
        super().keep(directory)

    def _run(
        self,
        name: str,
        image: str,
        argv: list[str],
        *,
        env: Mapping[str, str] | None = None,
        readable: list[Path] | None = None,
        writable: list[Path] | None = None,
        ports: dict[str, Any] | None = None,
        beside: _Container | None = None,
    ) -> _Container:
        import docker.errors

        # a container that shares the loopback interface of another has its host name, too
        where: dict[str, Any] = {"hostname": self.node, "network": self.name, "ports": ports or {}}
        if beside:
            where = {"network_mode": f"container:{beside.container.id}"}

        self.have(image)
        # Local time inside is local time outside.
        zone = [path for path in (Path("/etc/localtime"), Path("/usr/share/zoneinfo")) if path.exists()]
        mounts = {str(p): {"bind": str(p), "mode": "ro"} for p in (*zone, *(readable or ()))}
        mounts |= {str(p): {"bind": str(p), "mode": "rw"} for p in writable or ()}
        log_path = self._log_path(name)
        try:
            container = self.client.containers.run(
                image,
                argv[1:],
                entrypoint=argv[0],
                name=f"{self.name}-{log_path.stem}",
                detach=True,
                user=f"{os.getuid()}:{os.getgid()}",
                environment={**({"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}), **(env or {})},
                volumes=mounts,
                labels=self._labels(),
                working_dir="/",
                **where,
            )
        except docker.errors.APIError as error:
            raise OutsideError(f"the container for {name} did not start: {error.explanation or error}") from error
        started = _Container(container, log_path)
        self._started.append(started)
        return started

    def have(self, image: str) -> None:
        """Make sure that an image is on this machine, if need be by fetching it."""
        import docker.errors

        try:
            self.client.images.get(image)
            return
        except docker.errors.ImageNotFound:
            reason = "it is not on this machine, and --pull never forbids to fetch it"
        if self.pull != "never":
            try:
                self.client.images.pull(image)
                return
            except docker.errors.APIError as error:
                reason = f"it is not on this machine and can't be fetched: {str(error).splitlines()[0]}"
        raise OutsideError(
            f"the container image {image} is missing: {reason}; load it with `docker load`, name another with --image,"
            " or use --runner local"
        )

    def _labels(self) -> dict[str, str]:
        return {TAG_LABEL: self.name, OWNER_LABEL: owner()}

    def _sweep(self) -> None:
        super()._sweep()
        for thing in self._labelled(TAG_LABEL):
            if abandoned(thing.labels.get(OWNER_LABEL, "")):
                thing.remove()

    def _begin(self) -> None:
        self.client.networks.create(self.name, driver="bridge", labels=self._labels())

    def _end(self) -> None:
        if self._client is not None:
            for thing in self._labelled(f"{TAG_LABEL}={self.name}"):
                thing.remove()
            self._client.close()

    def _labelled(self, label: str) -> Iterator[_Thing]:
        """Containers, then the networks that they were in."""
        for container in self.client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
            yield _Thing(dict(container.labels), partial(container.remove, force=True, v=True))
        for network in self.client.networks.list(filters={"label": label}):
            yield _Thing(dict(network.attrs.get("Labels") or {}), network.remove)


@dataclass(frozen=True, slots=True)
class _Thing:
    """Something of Docker's that carries the labels of a run."""

    labels: Mapping[str, str]
    remove: Callable[[], object]
