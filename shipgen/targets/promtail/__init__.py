"""Promtail, 3.0 to 3.6, which reached its end of life on 2026-03-02. Run on 3.6.15."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from shipgen.diagnostics import Severity
from shipgen.pipeline import rotation
from shipgen.pipeline.model import Pipeline, Sink
from shipgen.targets import base, capabilities, common
from shipgen.targets.base import File, Finding
from shipgen.targets.capabilities import MOVED, NOT_GIVEN
from shipgen.targets.promtail import jobs

END_OF_LIFE = "2026-03-02"
TO_ALLOY = "alloy convert --source-format=promtail --output=config.alloy promtail.yaml"
OWN_NAMES = ("Entry", "Value")
"""Names that Promtail's templates give a meaning of their own; those that begin with `S_` are this pipeline's."""
_CLIENTS_OWN = ("endpoint", "tenant", "auth", "tls", "batch", "retry", "delivery", "buffer", "compression", "retention")
"""Settings of a sink that concern its client alone; all else is the pipeline's, which all clients share."""

Path = tuple[str | int, ...]


def attempts(give_up_after: int | str, max_backoff: int) -> int:
    """Attempts after which Promtail has waited about that many ms; 0 is for ever. Its pauses double from 500 ms up to
    ``max_backoff``, each cut to somewhere between itself and twice itself (`dskit/backoff`)."""
    if isinstance(give_up_after, str):
        return 0
    waited, pause, count = 0.0, 500.0, 0
    while waited < give_up_after and count < 1_000_000:
        waited += min(1.5 * pause, max_backoff)
        pause, count = min(2 * pause, max_backoff), count + 1
    return max(1, count)


def client(sink: Sink) -> dict[str, Any]:
    """A Loki sink as Promtail's client."""
    options = sink.options
    auth, tls, retry = options.get("auth", {}), options.get("tls"), options["retry"]
    basic = auth.get("basic", {})
    backoff = max(500, retry["max_backoff"])
    return {
        "name": sink.name, "url": options["endpoint"].rstrip("/") + "/loki/api/v1/push",
        "tenant": options.get("tenant", ""), "bearer": auth.get("bearer"),
        "basic": [(key, basic[ours]) for key, ours in (("username", "user"), ("password", "password")) if basic],
        "tls": {k: v for k, v in tls.items() if k != "verify"} if tls else None,
        "verify": tls.get("verify", True) if tls else True,
        "max_bytes": options["batch"]["max_bytes"], "max_wait_ms": options["batch"]["max_wait"],
        "max_backoff_ms": backoff, "attempts": attempts(retry["give_up_after"], backoff),
    }


def _secrets(pipeline: Pipeline) -> list[tuple[Path, str]]:
    """Variables that hold secrets, with their places in the policy."""
    refs = [ref for sink in pipeline.sinks for ref in common.sink_secrets(sink)]
    return [(where, ref.name) for where, ref in refs if ref.kind == "env"]


class Promtail:
    """The target `promtail`."""

    name = "promtail"
    versions = ("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6")
    main_config = "promtail/promtail.yaml"
    binary = "promtail"
    reads_rotated = False
    image_program = "/usr/bin/promtail"
    ready_line = "enable watchConfig"
    """The server is up. Files are opened at the first tick of the service discovery, 5 s later."""

    def check(self, pipeline: Pipeline, version: str) -> Iterator[Finding]:
        """Findings that depend on values: what every policy is told, sinks that differ, names that are taken."""
        yield Finding("end-of-life", Severity.NOTE, ("targets", self.name),
                      f"Promtail {version} gets no fixes any more: its end of life was {END_OF_LIFE}",
                      f"move to Grafana Alloy, which can read this configuration: {TO_ALLOY}")
        if pipeline.collector.node is None:
            yield self._approximated(version, ("collector", "node"), NOT_GIVEN)
        for source in pipeline.sources:
            if any(f.moves for f in source.families):
                yield self._approximated(version, ("sources", "<ray>", "components"), MOVED, ("sources", source.name))
            if not pipeline.rotation and any(f in rotation.by_ray(pipeline) for f in source.families):
                yield self._approximated(version, ("rotation", "by"), "ray", ("sources", source.name))
        for sink in pipeline.sinks:
            if "delivery" not in sink.options:
                leaf = ("sinks", "<loki>", "delivery")
                yield self._approximated(version, leaf, NOT_GIVEN, ("sinks", sink.name, "delivery"))
        for where, _ in _secrets(pipeline):
            yield Finding("needs-flag", Severity.WARNING, where,
                          "Promtail reads environment variables only with -config.expand-env=true; without it the "
                          "reference itself would be sent", "start it with the flag, or use {file: PATH}")
        yield from self._sinks(pipeline)
        yield from self._values(pipeline)
        for name in common.possible_fields(pipeline):
            if name.startswith("S_") or name in OWN_NAMES:
                yield Finding("unsupported", Severity.ERROR, _place_of(pipeline, name),
                              f"`{name}` is a name that Promtail or its pipeline has a use for", "choose another name")

    def _approximated(self, version: str, leaf: tuple[str, ...], value: str, path: Path = ()) -> Finding:
        """What the capability table says of something that the policy does not spell out."""
        row = capabilities.look_up(self.name, base.release(version), leaf, value)
        return Finding("approximated", Severity.WARNING, path or leaf, f"approximated: {row.text}", row.way_out)

    def _sinks(self, pipeline: Pipeline) -> Iterator[Finding]:
        """What would make one sink get something else than the first one."""
        first, names = pipeline.sinks[0], frozenset(s.name for s in pipeline.sinks)
        differ: list[tuple[Path, str]] = []
        for sink in pipeline.sinks[1:]:
            keys = [k for k in sink.options if k not in _CLIENTS_OWN and sink.options[k] != first.options.get(k)]
            keys += ["from"] * (sink.sources != first.sources) + ["when"] * (sink.when != first.when)
            differ += [(("sinks", sink.name, key), f"`{key}` is not that of {first.name}") for key in keys]
        differ += [(("parsing", "rules", rule.index, "sinks"), f"rule {rule.name} is not for all of them")
                   for rule in pipeline.rules if rule.sinks is not None and rule.sinks != names]
        for path, what in differ:
            yield Finding("unsupported", Severity.ERROR, path, f"Promtail sends the same to all sinks, but {what}",
                          "let sinks differ in endpoint, tenant, auth, tls, batch and retry alone; or run a second "
                          "Promtail with a policy of its own; or use another target")

    def _values(self, pipeline: Pipeline) -> Iterator[Finding]:
        """Text of the policy that would be a label that Loki can't read from Promtail."""
        texts: list[tuple[Path, Any]] = [
            (("sinks", sink.name, "labels", "static", name), value)
            for sink in pipeline.sinks for name, value in sink.options["labels"]["static"].items()
        ]
        texts += [(("cluster",), pipeline.cluster), (("collector", "node"), pipeline.collector.node)]
        for path, value in texts:
            if isinstance(value, str) and "\ufffd" in value:
                yield Finding("unsupported", Severity.ERROR, path,
                              "Promtail writes U+FFFD into a label as it is, and Loki then refuses all of the request",
                              "write another character")

    def files(self, pipeline: Pipeline, version: str) -> Iterable[File]:
        """`promtail/promtail.yaml`."""
        all_jobs = jobs.build(pipeline, pipeline.sinks[0])
        state = f"{common.state_dir(pipeline, self.name)}/positions.yaml"
        node = pipeline.collector.node
        env = sorted({name for _, name in _secrets(pipeline)})
        env += [] if isinstance(node, str) else [f"{node.name if node else jobs.HOST_NAME} (the node's name)"]
        notes = (
            f"Promtail reached its end of life on {END_OF_LIFE}. The way to Grafana Alloy: {TO_ALLOY}",
            *((f"Environment: {', '.join(env)}",) if env else ()),
        )
        start = " ".join(self.start_argv("promtail.yaml", pipeline, version))
        targets = [list(job.targets()) for job in all_jobs]
        clients = [client(s) for s in pipeline.sinks]
        context = {
            "header": common.header(pipeline, self.name, version, start, notes),
            "p": {
                "host": pipeline.collector.metrics_bind, "port": pipeline.collector.metrics_port, "positions": state,
                "discover_ms": pipeline.collector.discover_every, "clients": clients,
                "jobs": [{"name": j.name, "targets": t, "stages": j.stages}
                         for j, t in zip(all_jobs, targets, strict=True)],
            },
        }
        meant: dict[Path, Any] = {("positions", "filename"): state}
        meant |= {("clients", at, "url"): c["url"] for at, c in enumerate(clients)}
        meant |= {("scrape_configs", at, "static_configs", number, "labels", "__path__"): target["path"]
                  for at, several in enumerate(targets) for number, target in enumerate(several)}
        yield File(self.main_config, "promtail/promtail.yaml.j2", context, "yaml", meant)

    def start_argv(self, config: str, pipeline: Pipeline, version: str) -> tuple[str, ...]:
        """Start command. The flag for environment variables is there where a secret needs it; the rest of the file
        means the same with it and without."""
        flag = ("-config.expand-env=true",) if _secrets(pipeline) else ()
        return (self.binary, f"-config.file={config}", *flag)

    def validate_argv(self, config: str) -> tuple[str, ...]:
        """Promtail's own check."""
        return (self.binary, "-check-syntax", f"-config.file={config}")

    def not_validated(self) -> str:
        """What `-check-syntax` does not look at (`clients/cmd/promtail/main.go`, 3.6)."""
        return "the pipeline stages with their regexes and templates, globs, label names, TLS files and Loki itself"

    def image(self, version: str) -> str:
        """Image of a version: `grafana/promtail:<version>` (`clients/cmd/promtail/Dockerfile`)."""
        return f"grafana/promtail:{version if version.count('.') == 2 else version + '.0'}"


def _place_of(pipeline: Pipeline, name: str) -> Path:
    """Where a policy brings up a field of its own."""
    for rule in pipeline.rules:
        if rule.action == "add" and name in rule.options:
            return ("parsing", "rules", rule.index, "add", name)
    return next((("sources", s.name, "format", "regex") for s in pipeline.sources if f"(?P<{name}>" in s.regex), ())


TARGET = Promtail()

__all__ = ["TARGET", "Promtail"]
