"""The outputs of Fluentd: what their settings are for our plugins, and what of them Ruby's clients cannot do.

Read in grafana/loki's output at 1.2.20, zendesk/ruby-kafka at 1.5.1 and aws-sdk-s3 at 1.170.1, and run with these. What
a policy says reaches an output of ours as a program; a secret in it stays a reference, `{"env": NAME}` or `{"file":
PATH}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shipgen.diagnostics import Severity
from shipgen.pipeline.model import Pipeline, SecretRef, Sink
from shipgen.targets import common
from shipgen.targets.base import Finding

Program = dict[str, Any]

INDEX_DATES = {"none": None, "daily": "%Y.%m.%d", "monthly": "%Y.%m"}
"""What stands behind the name of an index that rotates."""
FOLDER_DATES = {"none": "", "daily": "date=%Y-%m-%d/", "hourly": "date=%Y-%m-%d/hour=%H/"}
ABSENT = "__HIVE_DEFAULT_PARTITION__"
"""Folder of records without the field."""
_EXTENSIONS = {None: ".jsonl", "gzip": ".jsonl.gz", "zstd": ".jsonl.zst"}
_AUTO = {"loki": "gzip", "elasticsearch": "gzip", "opensearch": "gzip", "s3": "gzip", "kafka": "gzip"}
"""What `compression: auto` is. Of an HTTP endpoint nothing is known, so nothing is compressed."""
_ACKS = {"all": -1, "leader": 1, "none": 0}
_GEMS = {"s3": ("aws-sdk-s3", "~> 1.170"), "kafka": ("ruby-kafka", "~> 1.5")}
_ZSTD = ("zstd-ruby", "~> 1.5")
BROKER_LIMIT = 1_048_588
"""`message.max.bytes` of a Kafka broker, if left alone."""
BATCH_ROOM = 4_096
"""Bytes of a batch and its request that are no record's."""


def compression(sink: Sink) -> tuple[str | None, int | None]:
    """Codec, and level where the policy gives one; no codec for no compression."""
    value = sink.options["compression"]
    codec, level = (value["codec"], value.get("level")) if isinstance(value, Mapping) else (value, None)
    codec = _AUTO.get(sink.type, "none") if codec == "auto" else codec
    return (None if codec == "none" else codec), level


def plain(tree: Any) -> Any:
    """Settings with their secrets as references."""
    if isinstance(tree, SecretRef):
        return {tree.kind: tree.name}
    return {k: plain(v) for k, v in tree.items()} if isinstance(tree, Mapping) else tree


def gems(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Gems that the sinks of a pipeline need, beside those that every one has, with their constraints."""
    found = [_GEMS[sink.type] for sink in pipeline.sinks if sink.type in _GEMS]
    zstd = [_ZSTD for sink in pipeline.sinks if "compression" in sink.options and compression(sink)[0] == "zstd"]
    return list(dict.fromkeys(found + zstd))


# -- programs ----------------------------------------------------------------------------------------------------------


def context(pipeline: Pipeline, sink: Sink, state: str) -> Program:
    """Flat context of a sink for `fluent.conf.j2`, but for its rules. ``state`` is where buffers lie."""
    found: Program = {"name": sink.name, "id": f"out:{sink.name}", "buffer": _buffer(pipeline, sink, state),
                      "by_folder": sink.type == "s3"}
    plugin, options, program = _OWN[sink.type](pipeline, sink)
    if "compression" in sink.options:
        codec, level = compression(sink)
        program = {**program, "codec": codec, "level": level}
    return found | {"type": plugin, "options": options, "program": plain(program)}


Own = tuple[str, list[tuple[str, Any]], Program]
"""Plugin, options of its own, program."""


def _loki(pipeline: Pipeline, sink: Sink) -> Own:
    options = sink.options
    labels, server = options["labels"], options["server"]
    given: list[tuple[str, Any]] = [("url", options["endpoint"].rstrip("/"))]
    if options.get("tenant"):
        given.append(("tenant", options["tenant"]))
    tls = options.get("tls", {})
    names = {"ca_file": "ca_cert", "cert_file": "cert", "key_file": "key"}
    given += [(theirs, tls[ours]) for ours, theirs in names.items() if ours in tls]
    given.append(("insecure_tls", not tls.get("verify", True)))
    return "shipgen_loki", given, {
        "static": labels["static"], "labels": labels["fields"], "metadata": common.loki_metadata(options),
        "line": options["line"], "late": options["late"], "max_behind": common.max_behind(server),
        "max_ahead": common.MAX_AHEAD, "auth": options.get("auth"),
        "max_line_size": None if common.lines_fit(pipeline, options) else server["max_line_size"],
    }


def _http(_: Pipeline, sink: Sink) -> Own:
    options = sink.options
    return "shipgen_http", [], {
        "endpoints": [options["endpoint"]], "method": options["method"], "headers": options["headers"],
        "auth": options.get("auth"), "tls": options.get("tls"), "index": None, "date": None, "time": "time",
    }


def _search(_: Pipeline, sink: Sink) -> Own:
    options = sink.options
    index: Program = {"index": None, "date": None}
    if "index" in options:
        index = {"index": options["index"]["name"], "date": INDEX_DATES[options["index"]["rotate"]]}
    else:
        stream = options["data_stream"]
        index["index"] = f"logs-{stream['dataset']}-{stream['namespace']}"
    return "shipgen_http", [], {
        "endpoints": [f"{e.rstrip('/')}/_bulk" for e in options["endpoints"]], "method": "POST", "headers": {},
        "auth": options.get("auth"), "tls": options.get("tls"), "time": "@timestamp", **index,
    }


def _s3(pipeline: Pipeline, sink: Sink) -> Own:
    options = sink.options
    endpoint = options.get("endpoint")
    return "shipgen_s3", [], {
        "bucket": options["bucket"], "endpoint": endpoint, "path_style": options["path_style"],
        # other servers want a region in the signature and do not look at it
        "region": options.get("region", "us-east-1" if endpoint else None), "sse": options.get("sse"),
        "credentials": options.get("credentials"), "tls": options.get("tls"), "by": options["prefix"]["by"],
        "date": FOLDER_DATES[options["prefix"]["date"]], "absent": ABSENT, "name": pipeline.name,
        "extension": _EXTENSIONS[compression(sink)[0]],
    }


def _kafka(_: Pipeline, sink: Sink) -> Own:
    options = sink.options
    return "shipgen_kafka", [], {
        "brokers": options["brokers"], "topic": options["topic"], "key": options.get("key"),
        "acks": _ACKS[options["acks"]], "sasl": options.get("sasl"), "tls": options.get("tls"),
        "batch": max(1, options["batch"]["max_bytes"] - BATCH_ROOM),
    }


def _file(_: Pipeline, sink: Sink) -> Own:
    return "shipgen_lines", [("target", "file"), ("path", sink.options["path"])], {}


def _console(_: Pipeline, sink: Sink) -> Own:
    return "shipgen_lines", [("target", sink.options["target"])], {}


_OWN = {"loki": _loki, "elasticsearch": _search, "opensearch": _search, "s3": _s3, "kafka": _kafka, "http": _http,
        "file": _file, "console": _console}


def _buffer(pipeline: Pipeline, sink: Sink, state: str) -> Program:
    options = sink.options
    wanted = options.get("buffer", {"max_size": 1 << 30, "when_full": "block"})
    batch = options.get("batch", {"max_bytes": 1 << 20, "max_wait": 1000})
    retry = options.get("retry", {"max_backoff": 30_000, "give_up_after": "never"})
    memory = sink.type == "console" or options.get("delivery") == "best_effort"
    chunk = max(batch["max_bytes"], smallest_chunk(pipeline))
    return {
        "type": "memory" if memory else "file", "path": "" if memory else f"{state}/buffer/{sink.name}",
        "total": max(wanted["max_size"], 2 * chunk), "chunk": chunk,
        "overflow": "drop_oldest_chunk" if wanted["when_full"] == "drop_oldest" else "block",
        "flush": batch["max_wait"], "max_backoff": max(1000, retry["max_backoff"]),
        "give_up": None if retry["give_up_after"] == "never" else retry["give_up_after"],
    }


def smallest_chunk(pipeline: Pipeline) -> int:
    """What a chunk of a buffer must have room for: the longest record, whose text it may hold several times. Fluentd
    throws away a record that no chunk can hold."""
    return 4 * max(s.max_entry for s in pipeline.sources) + 65_536


# -- what a sink cannot do ---------------------------------------------------------------------------------------------


def findings(pipeline: Pipeline, sink: Sink) -> Iterator[Finding]:
    """What depends on the values of a sink's settings."""
    path: tuple[str | int, ...] = ("sinks", sink.name)
    smallest = smallest_chunk(pipeline)
    if (size := sink.options.get("batch", {}).get("max_bytes", smallest)) < smallest and sink.type != "kafka":
        yield Finding("approximated", Severity.WARNING, (*path, "batch", "max_bytes"),
                      f"a chunk must have room for the longest entry: {smallest} bytes are used, not {size}",
                      "make `max_entry` of the sources smaller")
    chunk = max(size, smallest)
    if (size := sink.options.get("buffer", {}).get("max_size", 2 * chunk)) < 2 * chunk:
        yield Finding("approximated", Severity.WARNING, (*path, "buffer", "max_size"),
                      f"a buffer must have room for two chunks; {2 * chunk} bytes are used or more",
                      "give it more")
    if sink.type == "kafka":
        yield from _kafka_findings(sink, path)


def _kafka_findings(sink: Sink, path: tuple[str | int, ...]) -> Iterator[Finding]:
    options = sink.options
    if options["batch"]["max_bytes"] > BROKER_LIMIT:
        yield Finding("approximated", Severity.WARNING, (*path, "batch", "max_bytes"),
                      f"a broker refuses batches over its message.max.bytes ({BROKER_LIMIT} if left alone); those are "
                      "sent again in halves",
                      "use at most 1MiB, or raise message.max.bytes of the topic beyond this")
    if options["acks"] == "none" and options.get("delivery") == "at_least_once":
        yield Finding("conflict", Severity.ERROR, (*path, "acks"),
                      "with `none` nobody says that a record arrived, so at_least_once cannot be kept",
                      "use acks: all, or delivery: best_effort")
