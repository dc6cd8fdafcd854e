"""The shipper's own checker on what is rendered, then a start of the shipper, and what neither of them looks at.

Checkers are shallow: what they let pass (a regex of a pipeline stage, a script, an option that nobody reads) shows when
the shipper starts. So it is started, too, with inputs that match nothing and with sinks that lead to a stand-in on this
machine: a check neither reads nor sends a record.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from shipgen.diagnostics import Diagnostic, OutsideError, Severity
from shipgen.harness.runners import DockerRunner, LocalRunner, Runner, ShipperHandle, TargetRun
from shipgen.harness.start import at_port, without_env
from shipgen.pipeline.model import Pipeline, SecretRef, Sink
from shipgen.rendering import bundle
from shipgen.targets import aggregator, base, common
from shipgen.targets.base import Target
from shipgen.targets.plan import Choice

Files = Mapping[str, bytes]

_LIMIT_S = 120.0
"""Most that a checker, or the start of a shipper, may take."""
_SETTLE_S = 1.5
"""How long a shipper is watched once it says that it runs: faults of outputs and scripts show after that."""


@dataclass(frozen=True, slots=True)
class _Signs:
    """How a shipper says in its own log that it runs, and that a setting is wrong although it goes on; and whether its
    checker wants files of TLS to be there."""

    runs: str
    fault: str = r"(?!)"
    wants_tls: bool = False


_SIGNS: Mapping[str, _Signs] = {
    "vector": _Signs(r"Vector has started\."),  # src/app.rs, 0.57
    # globs that match nothing are errors to it, and so is a sink that does not answer; run on 5.1.1
    "fluentbit": _Signs(r"\[sp\] stream processor started",
                        r"\[error\] (?!\[input:tail:\S+ read error, check perm|\[output:kafka:.*(Connect|brokers)).*"),
    # an option that nobody reads is only warned of (lib/fluent/config/element.rb, 1.19); the output for Loki reads
    # certificates when it is configured (out_loki.rb, 1.2.20)
    "fluentd": _Signs(r"fluentd worker is now running", r"parameter '[^']*' in <[^>]*>(?=(?s:.*?) is not used)", True),
    "promtail": _Signs(r"Starting Promtail|enable watchConfig", r"level=error.*"),  # clients/cmd/promtail/main.go, 3.6
    "filebeat": _Signs(r"filebeat start running"),  # libbeat/cmd/instance/beat.go, 9.0
}


def check_natively(
    pipeline: Pipeline, choices: Iterable[Choice], change: Callable[[Files], Files] = lambda files: files
) -> tuple[list[Diagnostic], int]:
    """Check and start each target. Gives findings, and exit code 3 where one could not be run.

    ``change`` is done to the files of the bundle before they are looked at.
    """
    found: list[Diagnostic] = []
    code = 0
    for choice in choices:
        assert choice.target is not None
        programs = [_Program(choice.target, choice.version, choice.target.main_config)]
        if choice.relay:
            programs.append(_Program(choice.relay.target, choice.relay.version, choice.relay.config))
        if choice.aggregator:
            programs.append(_Program(base.get("vector"), choice.aggregator, aggregator.CONFIG))
        for program in programs:
            try:
                with _runner(program) as runner:
                    found += _Check(pipeline, choice, program, runner, change).run()
            except OutsideError as error:
                text = f"not checked: {error}"
                found.append(Diagnostic("native-unchecked", Severity.WARNING, "", text, target=choice.name))
                code = OutsideError.exit_code
    return found, code


@dataclass(frozen=True, slots=True)
class _Program:
    """A shipper, and which file of the bundle it gets: that of a target, the relay's or the aggregator's."""

    target: Target
    version: str
    config: str

    @property
    def image(self) -> str:
        """Its container image."""
        return self.target.image(self.version)


def _runner(program: _Program) -> Runner:
    """Where the shipper can be run: its program on PATH, else its image, if a Docker engine has it already."""
    if shutil.which(program.target.binary) is not None:
        return LocalRunner()
    docker = DockerRunner(pull="never")
    try:
        docker.have(program.image)
    except OutsideError:
        raise OutsideError(f"there is no `{program.target.binary}` on PATH, and no Docker engine that has "
                           f"{program.image}; install the one, or `docker pull` the other") from None
    return docker


class _Check:
    """One shipper, looked at by its own checker and then started."""

    def __init__(
        self, pipeline: Pipeline, choice: Choice, program: _Program, runner: Runner, change: Callable[[Files], Files]
    ) -> None:
        self.pipeline = pipeline
        self.choice = choice
        self.program = program
        self.target = program.target
        self.runner = runner
        self.change = change
        self.signs = _SIGNS[program.target.name]
        self.state = runner.workdir / "state"

    def run(self) -> Iterator[Diagnostic]:
        """Findings; last what was not looked at."""
        for directory in ("state", "node"):
            (self.runner.workdir / directory).mkdir(exist_ok=True)
        binary = self.target.binary
        if refused := self._checked():
            yield self._error(f"`{binary}` refuses the rendered configuration: {refused}")
        elif refused := self._started():
            yield self._error(f"`{binary}` does not run with the rendered configuration: {refused}")
        how = " ".join(re.sub(r"\S*/(?=[^/\s])", "", a) for a in self.target.validate_argv(self.program.config))
        start = "" if refused else "then started, with inputs that match nothing and sinks that lead nowhere; "
        yield Diagnostic(
            "native-unchecked", Severity.NOTE, "",
            f"{'ran' if refused else 'checked by'} `{how}`, which does not look at {self.target.not_validated()}; "
            f"{start}not looked at by either: secrets, TLS files, what the globs match, and whether the sinks take the "
            "records", target=self.choice.name,
        )

    def _error(self, text: str) -> Diagnostic:
        hint = "this is a fault in shipgen: please report it"
        return Diagnostic("native-check", Severity.ERROR, "", text, hint, target=self.choice.name)

    def _checked(self) -> str:
        """What the checker refuses; empty where it finds nothing wrong."""
        def away(sink: Sink) -> Sink:
            sink = _without_tls(sink) if self.signs.wants_tls else sink
            return _without_secrets(sink, self.runner.workdir)

        here = _with_sinks(self.pipeline, away)
        # some checkers make the directory for the shipper's state
        here = replace(here, collector=replace(self.pipeline.collector, state_dir=str(self.state)))
        config = self._written("check", here)
        handle = self._start("check", self.target.validate_argv(str(config)), here)
        deadline = time.monotonic() + _LIMIT_S
        while handle.running():
            if time.monotonic() > deadline:
                handle.kill()
                raise OutsideError(f"`{self.target.binary}` was not done with its check after {_LIMIT_S:g} s")
            time.sleep(0.05)
        return self._judged(handle.log(), bad=handle.exit_code() != 0)

    def _started(self) -> str:
        """Why the shipper does not run; empty where it does."""
        with _stand_in() as endpoint:
            here = harmless(self.pipeline, self.runner, endpoint)
            config = self._written("start", here)
            for name in (self.target.name, "relay", aggregator.NAME):
                Path(common.state_dir(here, name)).mkdir(parents=True, exist_ok=True)
            handle = self._start("start", self.target.start_argv(str(config), here, self.program.version), here)
            deadline = time.monotonic() + _LIMIT_S
            while handle.running() and not re.search(self.signs.runs, handle.log()):
                if time.monotonic() > deadline:
                    handle.kill()
                    raise OutsideError(f"`{self.target.binary}` did not say that it runs for {_LIMIT_S:g} s")
                time.sleep(0.05)
            settled = time.monotonic() + _SETTLE_S
            while handle.running() and time.monotonic() < settled:
                time.sleep(0.05)
            ended, log = not handle.running(), handle.log()
            handle.kill()
        return self._judged(log, bad=ended)

    def _judged(self, log: str, *, bad: bool) -> str:
        """What a log says is wrong, on one line, without colours and the directory of this run."""
        fault = re.search(self.signs.fault, log)
        if not bad and fault is None:
            return ""
        text = log if bad or fault is None else fault[0]
        text = re.sub(r"\x1b\[[0-9;]*m", "", text).replace(str(self.runner.workdir), "")
        return " ".join(text.split())[-2000:] or "it ended without a word"

    def _written(self, name: str, pipeline: Pipeline) -> Path:
        directory = self.runner.workdir / name
        for path, data in self.change(bundle.of(pipeline, [self.choice]).files).items():
            place = directory / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        return directory / self.program.config

    def _start(self, name: str, argv: tuple[str, ...], pipeline: Pipeline) -> ShipperHandle:
        plain, env = without_env(argv)
        return self.runner.start_shipper(TargetRun(
            name=self.target.name, argv=plain, image=self.program.image, bundle=self.runner.workdir / name,
            state=self.state, logs=self.runner.workdir / "node",
            env={"HOSTNAME": self.runner.node, **_variables(pipeline), **env},
            program=getattr(self.target, "image_program", ""),
        ))


def harmless(pipeline: Pipeline, runner: Runner, endpoint: str) -> Pipeline:
    """The same pipeline on a node without a file, with sinks that lead to ``endpoint`` or nowhere."""
    root, before = str(runner.workdir / "node"), pipeline.collector.root.rstrip("/")

    def moved(path: str) -> str:
        return f"{root}{path.removeprefix(before)}"

    sources = tuple(
        replace(s, base=moved(s.base) if s.base else "", paths=tuple(map(moved, s.paths)),
                exclude=tuple(map(moved, s.exclude))) for s in pipeline.sources
    )
    collector = replace(pipeline.collector, root=root, state_dir=str(runner.workdir / "state"),
                        metrics_bind="127.0.0.1", metrics_port=runner.free_port())
    here = at_port(pipeline, runner.free_port())
    here = _with_sinks(here, lambda sink: _led_astray(sink, runner.workdir, endpoint))
    return replace(here, collector=collector, sources=sources)


def _with_sinks(pipeline: Pipeline, change: Callable[[Sink], Sink]) -> Pipeline:
    """The pipeline with another in the place of each sink, also of the one that agents have before a hop."""
    hop = pipeline.hop and replace(pipeline.hop, sink=change(pipeline.hop.sink))
    return replace(pipeline, sinks=tuple(change(sink) for sink in pipeline.sinks), hop=hop)


def _led_astray(sink: Sink, directory: Path, endpoint: str) -> Sink:
    places: Mapping[str, Any] = {
        "loki": {"endpoint": endpoint}, "http": {"endpoint": endpoint},
        "s3": {"endpoint": endpoint, "path_style": True},
        "elasticsearch": {"endpoints": [endpoint]}, "opensearch": {"endpoints": [endpoint]},
        "kafka": {"brokers": ["127.0.0.1:9"]},
        "file": {"path": str(directory / "state" / f"{sink.name}.jsonl")},
    }
    sink = _without_tls(sink)
    return _without_secrets(replace(sink, options={**sink.options, **places.get(sink.type, {})}), directory)


def _without_tls(sink: Sink) -> Sink:
    """The sink without its files of TLS: those of a node are not where a policy is checked."""
    return replace(sink, options={k: v for k, v in sink.options.items() if k != "tls"})


def _without_secrets(sink: Sink, directory: Path) -> Sink:
    """The sink with secrets of files that this machine may not have read from one that it has."""
    secret = directory / "state" / "secret"
    return replace(sink, options={k: _with_secret(v, secret) for k, v in sink.options.items()})


def _with_secret(value: Any, secret: Path) -> Any:
    if isinstance(value, SecretRef) and value.kind == "file":
        secret.parent.mkdir(exist_ok=True)
        secret.write_text("none")
        return SecretRef("file", str(secret))
    if isinstance(value, Mapping):
        return {k: _with_secret(v, secret) for k, v in value.items()}
    return value


def _variables(pipeline: Pipeline) -> dict[str, str]:
    """Values for the variables that the configuration refers to."""
    refs = [ref for _, ref in common.secrets(pipeline)]
    if isinstance(pipeline.collector.node, SecretRef):
        refs.append(pipeline.collector.node)
    return {ref.name: "none" for ref in refs if ref.kind == "env"}


class _Anything(BaseHTTPRequestHandler):
    """Answers every request as a sink in good health would."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # a search server is asked for its version before anything is sent
        about = {"version": {"number": "8.19.0", "build_flavor": "default"}, "tagline": "You Know, for Search"}
        body = json.dumps(about)
        self.send_response(200)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def log_message(self, format: str, *_: object) -> None:
        """Nothing: nobody asked."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Nothing: a shipper that is ended in the middle of a request is no fault."""


@contextlib.contextmanager
def _stand_in() -> Iterator[str]:
    """A server on the loopback interface that stands in for every sink."""
    server = _Server(("127.0.0.1", 0), _Anything)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
