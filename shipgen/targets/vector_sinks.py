"""The sinks of Vector: what their settings are called there, and what of them it cannot do.

Read in vectordotdev/vector at v0.57.0 (`src/sinks/*/config.rs`, `src/template.rs`) and run on 0.56 and 0.57. What is
written out and why, where it is not a setting of the policy:

- Elasticsearch: `api_version`, or Vector asks the server at its start and guesses where it gets no answer;
  `request_retry_partial`, or records that one full shard turned away are lost; `auto_routing` and `sync_fields` off, or
  a field `data_stream` of the record decides where it goes, and one that is text ends Vector.
- S3: every refusal is tried again, since nothing in the bytes of an object can be wrong; the zone, or dates are the
  node's.
- Kafka: `message_timeout_ms`, or what is not delivered in five minutes is lost; `message.max.bytes`, or entries near
  `max_entry` are; `topic.metadata.propagation.max.ms`, or all is lost that waits for a topic that is being made; the
  memory of librdkafka, which is 1 GiB by default.
- HTTP: which answers are tried again. Vector gives up at every 4xx but 408 and 429.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import PurePosixPath
from typing import Any

from shipgen.diagnostics import Severity
from shipgen.pipeline.model import Pipeline, SecretRef, Sink
from shipgen.targets.base import Finding

MIN_BUFFER = 268_435_488
"""Smallest disk buffer, bytes (`lib/vector-buffers/src/config.rs`, 0.57)."""
ATTEMPTS_FOR_EVER = 9_223_372_036_854_775_807
"""Vector's own default for HTTP sinks, written out."""
CONFINED_SINCE = (0, 57)
"""From here on a template without a literal prefix is refused, `changelog.d/template_confinement.breaking.md`."""
STRATEGY_SINCE = (0, 56)
"""From here on the HTTP sink can be told which answers are tried again (release notes of 0.56)."""
RETRIED = (301, 302, 303, 307, 308, 401, 403, 404, 405, 407, 408, 409, 410, 415, 421, 423, 425, 429,
           *range(500, 512), *range(520, 528), 530, 598, 599)
"""Answers of an HTTP endpoint that say nothing against the records: all but 400, 413 and 422, of those in use."""

TYPES = {"s3": "aws_s3", "opensearch": "elasticsearch"}
"""Types of sinks that Vector calls otherwise."""
_AUTO = {"loki": "snappy", "elasticsearch": "gzip", "opensearch": "gzip", "s3": "gzip", "kafka": "lz4"}
"""What `compression: auto` is. Loki takes protobuf with snappy, the cheapest for it to read; of an HTTP endpoint
nothing is known, so nothing is compressed."""
_EXTENSIONS = {"none": "jsonl", "gzip": "jsonl.gz", "zstd": "jsonl.zst"}
_FOLDERS = {
    "none": [],
    "daily": [("text", "date="), ("time", "%F"), ("text", "/")],
    "hourly": [("text", "date="), ("time", "%F"), ("text", "/hour="), ("time", "%H"), ("text", "/")],
}
_DATES = {"none": [], "daily": [("text", "-"), ("time", "%Y.%m.%d")], "monthly": [("text", "-"), ("time", "%Y.%m")]}

MAX_LINGER = 900_000
"""Longest `queue.buffering.max.ms`; this and the next are of librdkafka's CONFIGURATION.md, 2.12."""
MAX_RETRY_PAUSE = 300_000
"""Longest `retry.backoff.max.ms`."""
MAX_PROPAGATION = 2_147_000
"""Longest `topic.metadata.propagation.max.ms` that works: librdkafka reckons in microseconds of 32 bits, and given an
hour, which it allows, it waits not at all (all 1,451 records were lost)."""
MAX_TIMEOUT = 2_147_483_647
"""Longest `message.timeout.ms`; 0 is none."""
BROKER_LIMIT = 1_048_588
"""`message.max.bytes` of a Kafka broker, if left alone. It refuses what is larger, and librdkafka gives that up."""


class Secrets:
    """References to secrets as Vector writes them, and what they need: variables, and backends for directories."""

    def __init__(self) -> None:
        self.env: set[str] = set()
        self.dirs: dict[str, str] = {}

    def reference(self, ref: SecretRef, before: str = "") -> dict[str, str]:
        """A reference for a template, which is told what kind it is, and a word that stands before the secret."""
        if ref.kind == "env":
            self.env.add(ref.name)
            return {"env": ref.name, "before": before}
        path = PurePosixPath(ref.name)
        backend = self.dirs.setdefault(str(path.parent), f"files{len(self.dirs)}")
        return {"file": f"{backend}.{path.name}", "before": before}


# -- what the records look like to a sink ------------------------------------------------------------------------------


def keys(sink: Sink) -> list[str]:
    """Fields that name the folder and the object that a record is stored in."""
    return list(dict.fromkeys([*sink.options["prefix"]["by"], "node"])) if sink.type == "s3" else []


def keeps_time(sink: Sink) -> bool:
    """Whether a template of the sink formats the record's time, which then stays in the event and out of what is
    sent."""
    by_date = {"s3": ("prefix", "date"), "elasticsearch": ("index", "rotate"), "opensearch": ("index", "rotate")}
    if sink.type not in by_date:
        return False
    settings, key = by_date[sink.type]
    return bool(sink.options.get(settings, {}).get(key, "none") != "none")


def object_program(pipeline: Pipeline, sink: Sink, *, marked: bool) -> dict[str, Any]:
    """Context of `object.vrl.j2`."""
    search = TYPES.get(sink.type, sink.type) == "elasticsearch"
    return {
        "marked": marked, "sampled": any(r.action == "sample" for r in pipeline.rules_for(sink)), "keys": keys(sink),
        "fingerprint": bool(pipeline.fingerprint), "search": search, "time": "@timestamp" if search else "time",
        "keeps_time": keeps_time(sink),
    }


# -- settings ----------------------------------------------------------------------------------------------------------


def settings(pipeline: Pipeline, sink: Sink, version: tuple[int, int], secrets: Secrets) -> dict[str, Any]:
    """Context of `sink.yaml.j2`, but for id and inputs."""
    options = sink.options
    found: dict[str, Any] = {
        "type": TYPES.get(sink.type, sink.type), "auth": [], "headers": [], "tls": [], "batch": None, "request": None,
        "buffer": None, "acknowledged": options.get("delivery") != "best_effort",
        "confined": version >= CONFINED_SINCE,
        "left_out": ["timestamp"] * keeps_time(sink) + ["@key"] * bool(keys(sink)),
    }
    if "auth" in options:
        found |= _auth(options["auth"], secrets)
    if "tls" in options:
        found["tls"] = tls(options["tls"], named=sink.type != "kafka")
    if "compression" in options:
        found["compression"] = compression(sink)
    if "batch" in options:
        found["batch"] = {"max_bytes": options["batch"]["max_bytes"],
                          "timeout_secs": options["batch"]["max_wait"] / 1000}
    if "retry" in options and sink.type != "kafka":
        never = options["retry"]["give_up_after"] == "never"
        found["request"] = {
            "max_backoff": ceil(options["retry"]["max_backoff"] / 1000),
            "attempts": ATTEMPTS_FOR_EVER if never else
            backoff_attempts(options["retry"]["give_up_after"], options["retry"]["max_backoff"]),
            "timeout": 300 if sink.type == "s3" else 60,
        }
    if "buffer" in options:
        found["buffer"] = {"max_size": max(MIN_BUFFER, options["buffer"]["max_size"]),
                           "when_full": options["buffer"]["when_full"]}
    return found | _OWN[sink.type](pipeline, sink, version, secrets, found)


def _auth(auth: Mapping[str, Any], secrets: Secrets) -> dict[str, Any]:
    """A strategy with its secrets; an API key is a header."""
    if "api_key" in auth:
        return {"headers": [("Authorization", secrets.reference(auth["api_key"], "ApiKey "))]}
    if "bearer" in auth:
        return {"auth": [("strategy", "bearer"), ("token", secrets.reference(auth["bearer"]))]}
    return {"auth": [("strategy", "basic"), *((k, secrets.reference(auth["basic"][k])) for k in ("user", "password"))]}


def compression(sink: Sink) -> tuple[str, int | None]:
    """Algorithm and level."""
    value = sink.options["compression"]
    if isinstance(value, Mapping):
        return value["codec"], value.get("level")
    return (_AUTO.get(sink.type, "none") if value == "auto" else value), None


def tls(options: Mapping[str, Any], *, named: bool) -> list[tuple[str, Any]]:
    """TLS settings under Vector's names. ``named``: the scheme of the endpoint says whether there is TLS at all."""
    names = {"ca_file": "ca_file", "cert_file": "crt_file", "key_file": "key_file"}
    found: list[tuple[str, Any]] = [(theirs, options[ours]) for ours, theirs in names.items() if ours in options]
    verify = options.get("verify", True)
    enabled = [] if named else [("enabled", True)]
    return [*enabled, *found, ("verify_certificate", verify), ("verify_hostname", verify)]


def backoff_attempts(give_up_after: int, max_backoff: int) -> int:
    """Attempts after which Vector has waited about ``give_up_after`` ms: its pauses grow like Fibonacci numbers from
    1 s up to ``max_backoff`` ms (`src/sinks/util/retries.rs`)."""
    left, longest = give_up_after / 1000, ceil(max_backoff / 1000)
    pause, following, attempts = 1, 1, 0
    while left > 0 and pause < longest:
        left -= pause
        pause, following = following, pause + following
        attempts += 1
    return max(1, attempts + ceil(max(0.0, left) / longest))


Context = dict[str, Any]
_Version = tuple[int, int]


def _loki(_: Pipeline, sink: Sink, __: _Version, ___: Secrets, ____: Context) -> Context:
    return {"endpoint": sink.options["endpoint"], "tenant": sink.options.get("tenant", "")}


def _search(pipeline: Pipeline, sink: Sink, __: _Version, ___: Secrets, ____: Context) -> Context:
    # the sink takes the key out of the record, which keeps its field `fingerprint`
    id_key = "@id" if pipeline.fingerprint else ""
    found: Context = {"endpoints": sink.options["endpoints"], "index": None, "id_key": id_key}
    if "index" in sink.options:
        index = sink.options["index"]
        return found | {"index": [("text", index["name"]), *_DATES[index["rotate"]]]}
    return found | {"stream": sink.options["data_stream"]}


def _s3(pipeline: Pipeline, sink: Sink, _: _Version, secrets: Secrets, found: Context) -> Context:
    options = sink.options
    prefix, endpoint = options["prefix"], options.get("endpoint")
    folders = [part for f in prefix["by"] for part in (("text", f"{f}="), ("field", f"@key.{f}"), ("text", "/"))]
    name = [("text", f"{pipeline.name}-"), ("field", "@key.node"), ("text", "-")]
    return {
        "bucket": options["bucket"], "endpoint": endpoint, "path_style": options["path_style"],
        # other servers want a region in the signature and do not look at it
        "region": options.get("region", "us-east-1" if endpoint else None),
        "prefix": [*folders, *_FOLDERS[prefix["date"]], *name], "extension": _EXTENSIONS[found["compression"][0]],
        "sse": options.get("sse"),
        "auth": [(k, secrets.reference(ref)) for k, ref in options.get("credentials", {}).items()],
    }


def _kafka(pipeline: Pipeline, sink: Sink, _: _Version, secrets: Secrets, found: Context) -> Context:
    options = sink.options
    pause, give_up = options["retry"]["max_backoff"], options["retry"]["give_up_after"]
    longest = max(s.max_entry for s in pipeline.sources)
    algorithm, level = found["compression"]
    client = {
        "request.required.acks": {"all": "-1", "leader": "1", "none": "0"}[options["acks"]],
        # one error that it cannot recover from, and an idempotent producer refuses all that follows
        "enable.idempotence": "false",
        "message.send.max.retries": str(MAX_TIMEOUT),
        "retry.backoff.max.ms": str(min(max(pause, 100), MAX_RETRY_PAUSE)),
        "reconnect.backoff.max.ms": str(min(max(pause, 100), 3_600_000)),
        # raw, message and extra may each be an entry, and JSON writes a control character in six
        "message.max.bytes": str(min(max(20 * longest, 1_000_000), 1_000_000_000)),
        "topic.metadata.propagation.max.ms": str(MAX_PROPAGATION),
        "queue.buffering.max.kbytes": str(max(65_536, 20 * longest // 1024)),
        **({"compression.level": str(level)} if level is not None else {}),
    }
    sasl = options.get("sasl")
    return {
        "brokers": ",".join(options["brokers"]), "topic": options["topic"], "key": options.get("key"),
        "compression": (algorithm, None), "client": list(client.items()),
        "timeout_ms": 0 if give_up == "never" else min(give_up, MAX_TIMEOUT),
        "batch": {**found["batch"], "timeout_secs": min(options["batch"]["max_wait"], MAX_LINGER) / 1000},
        "sasl": sasl and [("mechanism", sasl["mechanism"]), ("username", secrets.reference(sasl["user"])),
                          ("password", secrets.reference(sasl["password"]))],
    }


def _http(_: Pipeline, sink: Sink, version: _Version, secrets: Secrets, __: Context) -> Context:
    return {
        "endpoint": sink.options["endpoint"], "method": sink.options["method"].lower(),
        "headers": [(name, secrets.reference(value) if isinstance(value, SecretRef) else value)
                    for name, value in sink.options["headers"].items()],
        "retried": list(RETRIED) if version >= STRATEGY_SINCE else [],
    }


def _file(_: Pipeline, sink: Sink, __: _Version, ___: Secrets, ____: Context) -> Context:
    return {"path": sink.options["path"], "base_dir": str(PurePosixPath(sink.options["path"]).parent)}


def _console(_: Pipeline, sink: Sink, __: _Version, ___: Secrets, ____: Context) -> Context:
    return {"target": sink.options["target"]}


_OWN = {"loki": _loki, "elasticsearch": _search, "opensearch": _search, "s3": _s3, "kafka": _kafka, "http": _http,
        "file": _file, "console": _console}

_MEANT = {
    "loki": {"endpoint": "endpoint"}, "elasticsearch": {"endpoints": "endpoints"}, "aws_s3": {"bucket": "bucket"},
    "kafka": {"bootstrap_servers": "brokers", "topic": "topic"}, "http": {"uri": "endpoint"}, "file": {"path": "path"},
}


def meant(context: Context) -> Context:
    """What a sink's settings have to read back as, wherever it goes to."""
    return {theirs: context[ours] for theirs, ours in _MEANT.get(context["type"], {}).items()}


# -- what a sink cannot do ---------------------------------------------------------------------------------------------


def findings(sink: Sink) -> Iterator[Finding]:
    """What depends on the values of a sink's settings."""
    path: tuple[str | int, ...] = ("sinks", sink.name)
    size = sink.options.get("buffer", {}).get("max_size")
    if size is not None and size < MIN_BUFFER:
        yield Finding("approximated", Severity.WARNING, (*path, "buffer", "max_size"),
                      f"Vector's smallest disk buffer is {MIN_BUFFER} bytes; that is used",
                      "at least 257MiB is kept as written")
    if "compression" in sink.options:
        algorithm, level = compression(sink)
        if algorithm == "snappy" and level is not None:
            yield Finding("unsupported", Severity.ERROR, (*path, "compression", "level"),
                          "snappy has no levels", "leave `level` out, or use codec: gzip")
    for where, text in _templates(sink):
        if "%" in text or "{{" in text:
            yield Finding("unsupported", Severity.ERROR, (*path, *where),
                          "Vector takes `%` for part of a time and `{{` for a field here, and neither can be escaped",
                          "do without them")
    if sink.type == "http":
        yield from _http_findings(sink, path)
    elif sink.type == "kafka":
        yield from _kafka_findings(sink, path)


def _templates(sink: Sink) -> Iterator[tuple[tuple[str, ...], str]]:
    """Literal text that Vector reads as a template."""
    if sink.type == "file":
        yield ("path",), sink.options["path"]
    elif sink.type == "http":
        yield ("endpoint",), sink.options["endpoint"]
        yield from ((("headers", k), v) for k, v in sink.options["headers"].items() if isinstance(v, str))


def _http_findings(sink: Sink, path: tuple[str | int, ...]) -> Iterator[Finding]:
    for name, value in sink.options["headers"].items():
        if name.lower() == "authorization" and "auth" in sink.options:
            yield Finding("conflict", Severity.ERROR, (*path, "headers", name),
                          "Vector takes `auth` or a header Authorization, not both", "remove one of them")
        if isinstance(value, SecretRef):
            yield Finding("approximated", Severity.WARNING, (*path, "headers", name),
                          "Vector reads the value of a header as a template, that of a secret too: one with `%` before "
                          "a letter, or with `{{`, arrives changed", "use such a secret under `auth`")


def _kafka_findings(sink: Sink, path: tuple[str | int, ...]) -> Iterator[Finding]:
    options = sink.options
    wait, batch = options["batch"]["max_wait"], options["batch"]["max_bytes"]
    pause, give_up = options["retry"]["max_backoff"], options["retry"]["give_up_after"]
    for where, given, most, words in (
        (("batch", "max_wait"), wait, MAX_LINGER, "15 minutes"),
        (("retry", "max_backoff"), pause, MAX_RETRY_PAUSE, "5 minutes between two attempts on one connection"),
        (("retry", "give_up_after"), 0 if give_up == "never" else give_up, MAX_TIMEOUT, "2147483647 ms"),
    ):
        if given > most:
            yield Finding("approximated", Severity.WARNING, (*path, *where),
                          f"librdkafka waits for {words} at most; that is used", "a shorter one is kept as written")
    if batch > BROKER_LIMIT:
        yield Finding("approximated", Severity.WARNING, (*path, "batch", "max_bytes"),
                      f"a broker refuses batches over its message.max.bytes ({BROKER_LIMIT} if left alone), and what "
                      "it refuses is lost", "use at most 1MiB, or raise message.max.bytes of the topic beyond this")
    if options["acks"] == "none" and options.get("delivery") == "at_least_once":
        yield Finding("conflict", Severity.ERROR, (*path, "acks"),
                      "with `none` nobody says that a record arrived, so at_least_once cannot be kept",
                      "use acks: all, or delivery: best_effort")
