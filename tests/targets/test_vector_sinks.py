"""Vector's sinks other than Loki: their settings as rendered, what their records look like, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from making import FakeVector, config_of, config_text, judged, policy, run

from shipgen.diagnostics import Severity
from shipgen.targets import vector_sinks
from shipgen.targets.vector_sinks import RETRIED, backoff_attempts

LINE = "[2026-12-01 05:36:20,157 I 11309 11319] (raylet) a.cc:1: started"
PATH = "/tmp/ray/session_2026-12-01_00-00-00_000000_1/logs/raylet.out"
BATCH = {"max_bytes": 1048576, "timeout_secs": 1.0}
BUFFER = {"type": "disk", "max_size": 1073741824, "when_full": "block"}
REQUEST = {"retry_attempts": 9223372036854775807, "retry_initial_backoff_secs": 1, "retry_max_duration_secs": 30,
           "timeout_secs": 60}
TAIL = {"batch": BATCH, "request": REQUEST, "buffer": BUFFER, "acknowledgements": {"enabled": True}}
SEARCH = {"type": "elasticsearch", "endpoints": ["https://a:9200", "http://b:9200/es"]}
S3 = {"type": "s3", "bucket": "ray-logs"}
KAFKA = {"type": "kafka", "brokers": ["k1:9092", "[::1]:9093"], "topic": "ray-logs"}
HTTP = {"type": "http", "endpoint": "https://h/logs"}


def with_sink(sink: dict[str, Any], version: str = "0.57", **parts: Any) -> dict[str, Any]:
    return policy(sinks={"x": sink}, targets={"vector": {"version": version}}, **parts)


def sink_of(sink: dict[str, Any], version: str = "0.57", **parts: Any) -> dict[str, Any]:
    found: dict[str, Any] = config_of(with_sink(sink, version, **parts))["sinks"]["out::x"]
    assert found.pop("inputs") == ["shape::x"]
    return found


def said(sink: dict[str, Any], version: str = "0.57") -> list[tuple[str, Severity, str]]:
    return [(d.code, d.severity, d.path.removeprefix("sinks.x.")) for d in judged(with_sink(sink, version)).diagnostics]


# --- settings ---


@pytest.mark.parametrize("type_", ["elasticsearch", "opensearch"])
def test_search_in_a_data_stream(type_: str) -> None:
    assert sink_of({**SEARCH, "type": type_, "data_stream": {"dataset": "ray.x", "namespace": "prod"}}) == {
        "type": "elasticsearch", "endpoints": ["https://a:9200", "http://b:9200/es"], "api_version": "v8",
        "mode": "data_stream", "data_stream": {"type": "logs", "dataset": "ray.x", "namespace": "prod",
                                               "auto_routing": False, "sync_fields": False},
        "request_retry_partial": True, "encoding": {"except_fields": []}, "compression": "gzip", **TAIL}


@pytest.mark.parametrize(("rotate", "index"), [
    ("none", "ray-logs"), ("daily", "ray-logs-%Y.%m.%d"), ("monthly", "ray-logs-%Y.%m"), (None, "ray-logs-%Y.%m.%d"),
])
def test_search_in_an_index(rotate: str | None, index: str) -> None:
    settings = {"name": "ray-logs", **({"rotate": rotate} if rotate else {})}
    sink = sink_of({**SEARCH, "index": settings})
    assert (sink["mode"], sink["bulk"], "data_stream" in sink) == ("bulk", {"index": index, "action": "create"}, False)
    # the time that the index is named by stays in the event, and out of the document
    assert sink["encoding"] == {"except_fields": [] if rotate == "none" else ["timestamp"]}


def test_search_credentials() -> None:
    sink = sink_of({**SEARCH, "auth": {"api_key": {"file": "/run/secrets/key"}}})
    assert sink["request"]["headers"] == {"Authorization": "ApiKey SECRET[files0.key]"}
    assert "auth" not in sink
    sink = sink_of({**SEARCH, "auth": {"basic": {"user": {"env": "U"}, "password": {"file": "/run/secrets/p"}}}})
    assert sink["auth"] == {"strategy": "basic", "user": "${U:?U is not set}", "password": "SECRET[files0.p]"}


def test_s3() -> None:
    assert sink_of({**S3, "region": "eu-1", "sse": "aws:kms", "credentials": {
        "access_key_id": {"env": "AK"}, "secret_access_key": {"file": "/run/secrets/sk"}}}) == {
        "type": "aws_s3", "bucket": "ray-logs", "region": "eu-1", "force_path_style": False,
        "key_prefix": "component={{ @key.component }}/date=%F/t-{{ @key.node }}-", "timezone": "UTC",
        "filename_time_format": "%Y%m%dT%H%M%SZ", "filename_append_uuid": True, "filename_extension": "jsonl.gz",
        "content_type": "application/x-ndjson", "server_side_encryption": "aws:kms", "retry_strategy": {"type": "all"},
        "framing": {"method": "newline_delimited"},
        "encoding": {"codec": "json", "except_fields": ["timestamp", "@key"]}, "compression": "gzip",
        "auth": {"access_key_id": "${AK:?AK is not set}", "secret_access_key": "SECRET[files0.sk]"},
        **TAIL, "batch": {"max_bytes": 67108864, "timeout_secs": 300.0}, "request": {**REQUEST, "timeout_secs": 300}}


def test_s3_elsewhere() -> None:
    sink = sink_of({**S3, "endpoint": "https://rgw:7480", "path_style": True})
    assert (sink["endpoint"], sink["region"], sink["force_path_style"]) == ("https://rgw:7480", "us-east-1", True)
    # left out, the environment of the shipper says which
    assert not {"region", "endpoint", "auth", "server_side_encryption"} & set(sink_of(S3))


@pytest.mark.parametrize(("prefix", "template", "left_out"), [
    ({}, "component={{ @key.component }}/date=%F/t-{{ @key.node }}-", ["timestamp", "@key"]),
    ({"date": "none"}, "component={{ @key.component }}/t-{{ @key.node }}-", ["@key"]),
    ({"date": "hourly", "by": []}, "date=%F/hour=%H/t-{{ @key.node }}-", ["timestamp", "@key"]),
    ({"date": "none", "by": []}, "t-{{ @key.node }}-", ["@key"]),
    ({"by": ["node", "level"]}, "node={{ @key.node }}/level={{ @key.level }}/date=%F/t-{{ @key.node }}-",
     ["timestamp", "@key"]),
])
def test_s3_folders(prefix: dict[str, Any], template: str, left_out: list[str]) -> None:
    sink = sink_of({**S3, "prefix": prefix})
    assert (sink["key_prefix"], sink["encoding"]["except_fields"]) == (template, left_out)
    # Vector 0.57 refuses a template that begins with a field
    assert not sink["key_prefix"].startswith(("{{", "/"))


@pytest.mark.parametrize(("given", "algorithm", "extension"), [
    ("none", "none", "jsonl"), ("zstd", "zstd", "jsonl.zst"), ("auto", "gzip", "jsonl.gz"),
    ({"codec": "zstd", "level": 9}, {"algorithm": "zstd", "level": 9}, "jsonl.zst"),
])
def test_s3_compression(given: Any, algorithm: Any, extension: str) -> None:
    sink = sink_of({**S3, "compression": given})
    assert (sink["compression"], sink["filename_extension"]) == (algorithm, extension)


def test_kafka() -> None:
    assert sink_of({**KAFKA, "key": "node"}) == {
        "type": "kafka", "bootstrap_servers": "k1:9092,[::1]:9093", "topic": "ray-logs", "key_field": "node",
        "message_timeout_ms": 0, "socket_timeout_ms": 60000, "encoding": {"codec": "json"}, "compression": "lz4",
        "librdkafka_options": {
            "request.required.acks": "-1", "enable.idempotence": "false", "message.send.max.retries": "2147483647",
            "retry.backoff.max.ms": "30000", "reconnect.backoff.max.ms": "30000", "message.max.bytes": "4915200",
            "topic.metadata.propagation.max.ms": "2147000", "queue.buffering.max.kbytes": "65536"},
        "batch": BATCH, "buffer": BUFFER, "acknowledgements": {"enabled": True}}


def test_kafka_with_all_settings() -> None:
    sink = sink_of({
        **KAFKA, "acks": "leader", "compression": {"codec": "zstd", "level": 3}, "tls": {"ca_file": "/ca"},
        "sasl": {"mechanism": "PLAIN", "user": {"env": "U"}, "password": {"env": "P"}},
        "batch": {"max_bytes": "100KiB", "max_wait": "50ms"}, "retry": {"max_backoff": "50ms", "give_up_after": "1h"},
        "delivery": "best_effort"})
    options = sink["librdkafka_options"]
    assert "key_field" not in sink
    assert sink["sasl"] == {"enabled": True, "mechanism": "PLAIN", "username": "${U:?U is not set}",
                            "password": "${P:?P is not set}"}
    assert sink["tls"] == {"enabled": True, "ca_file": "/ca", "verify_certificate": True, "verify_hostname": True}
    assert sink["batch"] == {"max_bytes": 102400, "timeout_secs": 0.05}
    assert (options["request.required.acks"], options["compression.level"], sink["compression"]) == ("1", "3", "zstd")
    # librdkafka refuses a longest pause that is shorter than its first
    assert options["retry.backoff.max.ms"] == options["reconnect.backoff.max.ms"] == "100"
    assert sink["message_timeout_ms"] == 3_600_000
    assert sink["acknowledgements"] == {"enabled": False}


def test_kafka_takes_the_longest_entry() -> None:
    sources = {"ray": {"type": "ray", "max_entry": "8MiB"}}
    options = sink_of(KAFKA, sources=sources)["librdkafka_options"]
    # raw, message and extra, of nothing but control characters
    assert int(options["message.max.bytes"]) > 3 * 6 * 8 * 2**20
    assert int(options["queue.buffering.max.kbytes"]) * 1024 >= int(options["message.max.bytes"])
    assert all(isinstance(value, str) for value in options.values())


def test_kafka_without_acks() -> None:
    assert sink_of({**KAFKA, "acks": "none"})["librdkafka_options"]["request.required.acks"] == "0"
    assert said({**KAFKA, "acks": "none", "delivery": "at_least_once"})[-1] == ("conflict", Severity.ERROR, "acks")


def test_http() -> None:
    assert sink_of({**HTTP, "method": "PUT", "headers": {"X-Team": "é $X ${Y}", "X-Key": {"env": "K"}},
                    "auth": {"bearer": {"env": "T"}}, "compression": {"codec": "zstd", "level": 1}}) == {
        "type": "http", "uri": "https://h/logs", "method": "put", "framing": {"method": "newline_delimited"},
        "encoding": {"codec": "json"}, "retry_strategy": {"type": "custom", "status_codes": list(RETRIED)},
        "compression": {"algorithm": "zstd", "level": 1}, "auth": {"strategy": "bearer", "token": "${T:?T is not set}"},
        **TAIL, "request": {**REQUEST, "headers": {"X-Team": "é $X ${Y}", "X-Key": "${K:?K is not set}"}}}
    assert sink_of(HTTP)["compression"] == "none"


def test_http_tries_again_what_says_nothing_against_the_records() -> None:
    assert {401, 403, 404, 408, 429, 500, 503} < set(RETRIED)
    assert not {200, 204, 400, 413, 422} & set(RETRIED)
    assert "retry_strategy" not in sink_of(HTTP, "0.55")
    assert "retry_strategy" in sink_of(HTTP, "0.56")


@pytest.mark.parametrize("sink", [SEARCH, S3, HTTP, KAFKA], ids=lambda sink: sink["type"])
def test_only_http_differs_between_versions(sink: dict[str, Any]) -> None:
    for version in ("0.50", "0.56"):
        assert {**sink_of(sink, version), "retry_strategy": 0} == {**sink_of(sink), "retry_strategy": 0}
    assert "dangerously" not in config_text(with_sink(sink))


@pytest.mark.parametrize("sink", [SEARCH, S3, HTTP, KAFKA], ids=lambda sink: sink["type"])
def test_what_all_have(sink: dict[str, Any]) -> None:
    found = sink_of({**sink, "buffer": {"max_size": "2GiB", "when_full": "drop_newest"}, "delivery": "best_effort",
                     "tls": {"ca_file": "/a", "cert_file": "/b", "key_file": "/c", "verify": False}})
    assert found["buffer"] == {"type": "disk", "max_size": 2147483648, "when_full": "drop_newest"}
    assert found["acknowledgements"] == {"enabled": False}
    enabled = {"enabled": True} if sink["type"] == "kafka" else {}
    assert found["tls"] == {**enabled, "ca_file": "/a", "crt_file": "/b", "key_file": "/c",
                            "verify_certificate": False, "verify_hostname": False}


def test_patience_is_counted_in_attempts() -> None:
    assert sink_of({**S3, "retry": {"give_up_after": "1h"}})["request"]["retry_attempts"] == backoff_attempts(
        3_600_000, 30_000)


def test_rules_and_conditions_are_the_sinks_own() -> None:
    config = config_of(policy(
        sinks={"a": S3, "b": {**KAFKA, "from": ["app"], "when": {"level": {"at_least": "warn"}}}},
        sources={"ray": {"type": "ray"}, "app": {"type": "file", "paths": ["/a"]}},
        parsing={"rules": [{"name": "no", "when": {"component": "worker"}, "drop": True, "sinks": ["a"]}]}))
    assert config["transforms"]["shape::b"]["inputs"] == ["when::b"]
    assert config["transforms"]["shape::a"]["inputs"] == ["rule::no::a", "failed::runtime-env-vars"]


# --- records ---


def delivered(sink: dict[str, Any], line: str = LINE, **parts: Any) -> dict[str, Any]:
    vector = FakeVector(config_of(with_sink(sink, **parts)))
    (found,) = vector.send("ray:raylet", {"file": PATH, "message": line})["out::x"]
    return found


RECORD = {
    "message": "started", "raw": LINE, "level": "info", "source": "ray", "component": "raylet", "node": "node",
    "session": "session_2026-12-01_00-00-00_000000_1", "file": "raylet.out", "pid": "11309", "thread": "11319",
    "caller": "a.cc:1",
}
TIME = "2026-12-01T05:36:20.157000000Z"
ZONE = {"parsing": {"timezone": "UTC"}}


@pytest.mark.parametrize("sink", [SEARCH, S3, HTTP, KAFKA], ids=lambda sink: sink["type"])
def test_the_record_is_one_object(sink: dict[str, Any]) -> None:
    found = delivered(sink, **ZONE)
    left_out = {"timestamp", *sink_of(sink)["encoding"].get("except_fields", ())}
    time = "@timestamp" if sink is SEARCH else "time"
    assert {k: v for k, v in found.items() if k not in left_out} == {**RECORD, time: TIME}


def test_a_stream_takes_one_time_and_an_index_two() -> None:
    config = config_of(with_sink(SEARCH))
    assert "del(.timestamp)" in config["transforms"]["shape::x"]["source"]
    config = config_of(with_sink({**SEARCH, "index": {"name": "a"}}))
    assert "del(.timestamp)" not in config["transforms"]["shape::x"]["source"]


@pytest.mark.parametrize(("name", "folder"), [
    ("plain-Name_1.x", "plain-Name_1.x"), ("a b", "a b"), ("é", "é"), ("", "__HIVE_DEFAULT_PARTITION__"),
    ("serve/x.log", "serve%2Fx.log"), ("a=b", "a%3Db"), ("..", ".."), ("../../x", "..%2F..%2Fx"), ("100%", "100%25"),
    ("\"#%'*/:=?\\{[]^", "%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%5B%5D%5E"), ("{{ x }}%F", "%7B%7B x }}%25F"),
    ("x" * 200, "x" * 128), ("/" * 50, "%2F" * 42), ("é" * 100, "é" * 64),
])
def test_folders_are_named_as_hive_does(name: str, folder: str) -> None:
    rules = [{"name": "r", "add": {"f": name}}] if name else []
    found = delivered({**S3, "prefix": {"by": ["f"]}}, parsing={"rules": rules})
    assert found["@key"] == {"f": folder, "node": "node"}


def test_folders_by_what_is_no_text() -> None:
    found = delivered({**S3, "prefix": {"by": ["extra", "job_id"]}}, '{"asctime": "x", "message": "m", "a": 1}')
    assert found["@key"] == {"extra": "%7B%22a%22%3A1}", "job_id": "__HIVE_DEFAULT_PARTITION__", "node": "node"}


def test_the_rate_of_a_sample_is_a_number() -> None:
    config = config_of(with_sink(HTTP, parsing={"rules": [{"name": "r", "sample": 0.25}]}))
    shape = config["transforms"]["shape::x"]["source"]
    found = run(shape, {"sample_rate": "0.25"})
    assert found
    assert found["sample_rate"] == 0.25
    assert "sample_rate" not in (run(shape, {}) or {})


# --- what is said ---


@pytest.mark.parametrize(("sink", "path"), [
    ({"type": "file", "path": "/var/log/100%.jsonl"}, "path"), ({**HTTP, "endpoint": "https://h/a%2Fb"}, "endpoint"),
    ({**HTTP, "headers": {"A": "{{ x }}"}}, "headers.A"), ({**HTTP, "headers": {"A": "x", "B": "%F"}}, "headers.B"),
])
def test_templates_have_no_escapes(sink: dict[str, Any], path: str) -> None:
    assert said(sink) == [("unsupported", Severity.ERROR, path)]


@pytest.mark.parametrize(("sink", "code", "severity", "path"), [
    ({**HTTP, "headers": {"A": {"file": "/t"}}}, "approximated", Severity.WARNING, "headers.A"),
    ({**KAFKA, "batch": {"max_wait": "1h"}}, "approximated", Severity.WARNING, "batch.max_wait"),
    ({**KAFKA, "batch": {"max_bytes": "2MiB"}}, "approximated", Severity.WARNING, "batch.max_bytes"),
    ({**KAFKA, "retry": {"max_backoff": "1h"}}, "approximated", Severity.WARNING, "retry.max_backoff"),
    ({**KAFKA, "retry": {"give_up_after": "30d"}}, "approximated", Severity.WARNING, "retry.give_up_after"),
    ({**KAFKA, "delivery": "at_least_once"}, "approximated", Severity.WARNING, "delivery"),
    ({**KAFKA, "compression": {"codec": "snappy", "level": 1}}, "unsupported", Severity.ERROR, "compression.level"),
    ({**KAFKA, "tls": {"server_name": "a"}}, "unsupported", Severity.ERROR, "tls.server_name"),
    ({**SEARCH, "tls": {"server_name": "a"}}, "unsupported", Severity.ERROR, "tls.server_name"),
    ({**SEARCH, "delivery": "at_least_once"}, "approximated", Severity.WARNING, "delivery"),
    ({**S3, "buffer": {"max_size": "1MiB"}}, "approximated", Severity.WARNING, "buffer.max_size"),
    ({**S3, "buffer": {"when_full": "drop_oldest"}}, "unsupported", Severity.ERROR, "buffer.when_full"),
    ({**S3, "credentials": {"access_key_id": {"env": "A"}, "secret_access_key": {"file": "/s"}}}, "needs-flag",
     Severity.WARNING, "credentials.access_key_id"),
    ({**S3, "credentials": {"access_key_id": {"file": "/a b"}, "secret_access_key": {"file": "/s"}}}, "unsupported",
     Severity.ERROR, "credentials.access_key_id"),
])
def test_what_cannot_be_kept_is_said(sink: dict[str, Any], code: str, severity: Severity, path: str) -> None:
    assert said(sink) == [(code, severity, path)]


def test_one_authorization_is_enough() -> None:
    sink = {**HTTP, "headers": {"authorization": {"file": "/a"}}, "auth": {"bearer": {"file": "/t"}}}
    assert ("conflict", Severity.ERROR, "headers.authorization") in said(sink)


def test_waits_that_librdkafka_does_not_know_are_cut() -> None:
    sink = sink_of({**KAFKA, "batch": {"max_wait": "1h"}, "retry": {"max_backoff": "2h", "give_up_after": "30d"}})
    assert sink["batch"]["timeout_secs"] == vector_sinks.MAX_LINGER / 1000
    assert sink["message_timeout_ms"] == vector_sinks.MAX_TIMEOUT
    assert sink["librdkafka_options"]["retry.backoff.max.ms"] == str(vector_sinks.MAX_RETRY_PAUSE)
    assert sink["librdkafka_options"]["reconnect.backoff.max.ms"] == "3600000"


@pytest.mark.parametrize("sink", [
    S3, {**S3, "delivery": "at_least_once"}, HTTP, {**HTTP, "delivery": "at_least_once"}, SEARCH, KAFKA], ids=str)
def test_nothing_is_said_without_a_reason(sink: dict[str, Any]) -> None:
    assert said(sink) == []


def test_older_http_gives_up_early() -> None:
    assert said({**HTTP, "delivery": "at_least_once"}, "0.55") == [("approximated", Severity.WARNING, "delivery")]
