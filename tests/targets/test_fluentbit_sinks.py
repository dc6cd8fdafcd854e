"""Fluent Bit's outputs: their settings as rendered, what reaches which of them, what is refused, by version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lua import FakeFluentBit, config_of, parsed, rendered
from making import FILE, HOSTILE, LOKI, judged, policy

from shipgen.diagnostics import Severity
from shipgen.targets.fluentbit_sinks import attempts

PATH = "/tmp/ray/session_2026-12-01_00-00-00_000000_1/logs"
ENTRY = b"[2026-12-01 05:36:20,157 I 11309 11319] (raylet) a.cc:1: started\n"
NET = {"net.keepalive": True, "net.connect_timeout": 10, "net.io_timeout": 60}
TLS = {"tls": True, "tls.verify": True, "tls.verify_hostname": True}
TAIL = {"workers": 1, "retry_limit": "no_limits"}
SEARCH = {"type": "elasticsearch", "endpoints": ["https://a:9200/es/"]}
S3 = {"type": "s3", "bucket": "ray-logs"}
KAFKA = {"type": "kafka", "brokers": ["k1:9092", "[::1]:9093"], "topic": "ray-logs"}
HTTP = {"type": "http", "endpoint": "https://h/logs"}
BASIC = {"basic": {"user": {"env": "U"}, "password": {"file": "/run/secrets/p"}}}
S3_PLAIN = {**S3, "endpoint": "http://rgw", "prefix": {"by": []}}
TEXTS = [text for text in HOSTILE if text.strip()]
ALL = "".join(TEXTS)[:512]


def with_sink(sink: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return policy(**{"sinks": {"x": sink}, **parts})


def output_of(sink: dict[str, Any], version: str = "5.1", **parts: Any) -> dict[str, Any]:
    """The only output of a sink, without what all have."""
    (found,) = config_of(with_sink(sink, **parts), version)["pipeline"]["outputs"]
    found = dict(found)
    assert found.pop("match_regex") == "^(?:ray)[.]"
    assert found.pop("alias") == "x"
    units = found.pop("processors")["logs"]
    assert units[0] == {"name": "lua", "script": "shipgen.lua", "call": "variant_1", "time_as_table": True,
                        "protected_mode": True}
    wants_map = sink["type"] in ("elasticsearch", "opensearch", "http", "console")
    assert [unit["name"] for unit in units[1:]] == ["parser"] * wants_map
    return found


def said(sink: dict[str, Any], version: str = "5.1", **parts: Any) -> list[tuple[str, Severity, str]]:
    data = with_sink(sink, targets={"fluentbit": {"version": version}}, **parts)
    found = judged(data, "fluentbit").diagnostics
    return [(d.code, d.severity, d.path.removeprefix("sinks.x.")) for d in found if d.path.startswith("sinks.x.")]


# --- settings ---


@pytest.mark.parametrize(("type_", "plugin"), [("elasticsearch", "es"), ("opensearch", "opensearch")])
def test_search(type_: str, plugin: str) -> None:
    assert output_of({**SEARCH, "type": type_, "auth": BASIC, "data_stream": {"dataset": "r.x", "namespace": "p"}}) == {
        "name": plugin, "host": "a", "port": 9200, "path": "/es", "logstash_format": False, "index": "logs-r.x-p",
        "write_operation": "create", "suppress_type_name": True, "time_key": "@timestamp",
        "time_key_format": "%Y-%m-%dT%H:%M:%S", "time_key_nanos": True, "include_tag_key": False,
        "replace_dots": False, "generate_id": False, "current_time_index": False, "buffer_size": False,
        "trace_error": True, "compress": "gzip", "http_user": "${U}", "http_passwd": "${SHIPGEN_FILE_1}",
        **TLS, **NET, **TAIL}


@pytest.mark.parametrize(("rotate", "format_"), [("daily", "%Y.%m.%d"), ("monthly", "%Y.%m"), ("none", None)])
def test_search_in_an_index(rotate: str, format_: str | None) -> None:
    output = output_of({**SEARCH, "index": {"name": "ray-logs", "rotate": rotate}})
    if format_ is None:
        assert (output["logstash_format"], output["index"]) == (False, "ray-logs")
    else:
        assert "index" not in output
        assert [output[f"logstash_{key}"] for key in ("format", "prefix", "prefix_separator", "dateformat")] == [
            True, "ray-logs", "-", format_]


def test_http() -> None:
    sink = {**HTTP, "endpoint": "http://[::1]/a/b$c", "method": "PUT", "compression": "gzip", "auth": {
        "bearer": {"env": "T"}}, "headers": {"X-Team": "a b", "X-Key": {"file": "/run/k"}}}
    assert output_of(sink) == {
        "name": "http", "host": "::1", "port": 80, "uri": "/a/b$c", "format": "json_lines", "json_date_key": False,
        "allow_duplicated_headers": False, "log_response_payload": False, "http_method": "PUT", "compress": "gzip",
        "header": ["X-Key ${SHIPGEN_FILE_1}", "X-Team a b", "Authorization Bearer ${T}"],
        **TLS, "tls": False, **NET, **TAIL}
    assert output_of({**HTTP, "auth": BASIC})["http_passwd"] == "${SHIPGEN_FILE_1}"


def test_kafka() -> None:
    sink = {**KAFKA, "key": "node", "acks": "leader", "compression": {"codec": "zstd", "level": 3},
            "tls": {"ca_file": "/ca", "verify": False}, "retry": {"max_backoff": "50ms", "give_up_after": "1h"},
            "sasl": {"mechanism": "SCRAM-SHA-512", "user": {"env": "U"}, "password": {"file": "/p"}}}
    output = output_of(sink)
    client = {k.removeprefix("rdkafka."): output.pop(k) for k in list(output) if k.startswith("rdkafka.")}
    tries = output.pop("retry_limit")
    assert attempts(3_600_000, 2) == tries
    assert output == {"name": "kafka", "brokers": "k1:9092,[::1]:9093", "topics": "ray-logs", "format": "raw",
                      "raw_log_key": "line", "queue_full_retries": 10, "message_key_field": "key", "workers": 1}
    assert client == {
        "request.required.acks": "1", "enable.idempotence": "false", "message.send.max.retries": "2147483647",
        "message.timeout.ms": "3600000", "retry.backoff.max.ms": "100", "reconnect.backoff.max.ms": "100",
        "message.max.bytes": "4915200", "queue.buffering.max.kbytes": "65536", "queue.buffering.max.ms": "1000",
        "batch.size": "1048576", "topic.metadata.propagation.max.ms": "2147000", "compression.codec": "zstd",
        "compression.level": "3", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "${U}", "sasl.password": "${SHIPGEN_FILE_1}", "ssl.ca.location": "/ca",
        "enable.ssl.certificate.verification": "false", "ssl.endpoint.identification.algorithm": "none"}


def test_s3() -> None:
    sink = {**S3, "endpoint": "http://rgw:7480/", "region": "eu-1", "prefix": {"by": ["cluster"], "date": "none"},
            "buffer": {"max_size": "2GiB"}, "batch": {"max_bytes": "10MB", "max_wait": "90s"}, "compression": "zstd"}
    assert output_of(sink, cluster="a-b", collector={"node": "n"}) == {
        "name": "s3", "bucket": "ray-logs", "region": "eu-1", "endpoint": "http://rgw:7480",
        "s3_key_format": "/cluster=a-b/t-n-%Y%m%dT%H%M%S-$UUID.jsonl.zst", "log_key": "line", "compression": "zstd",
        "content_type": "application/x-ndjson", "use_put_object": True, "preserve_data_ordering": False,
        "total_file_size": 10_000_000, "upload_timeout": 90, "retry_exhausted_action": "quarantine",
        "store_dir": "/var/lib/shipgen/t/fluentbit/s3/x", "static_file_path": True,
        "store_dir_limit_size": 2 << 30, "tls": False, "tls.verify": True, **NET, "workers": 1,
        "retry_limit": 2_147_483_647}


def test_objects_of_each_folder_have_an_output() -> None:
    """What reaches them is what their folder says."""
    data = with_sink({**S3, "prefix": {"by": ["source", "component"], "date": "daily"}},
                     sources={"ray": {"type": "ray", "components": ["raylet", "gcs_server"]}, "app": FILE},
                     collector={"node": {"env": "NODE"}})
    fake = FakeFluentBit(data)
    outputs = {o["alias"]: o for o in fake.config["pipeline"]["outputs"]}
    folders = {alias: o["s3_key_format"].split("/date=")[0] for alias, o in outputs.items()}
    assert folders == {
        "x.ray.raylet": "/source=ray/component=raylet", "x.ray.gcs_server": "/source=ray/component=gcs_server",
        "x.app.other": "/source=app/component=__HIVE_DEFAULT_PARTITION__"}
    assert all("/date=%Y-%m-%d/t-${NODE}-%Y" in o["s3_key_format"] for o in outputs.values())
    assert len({o["store_dir"] for o in outputs.values()}) == 3
    for tag, path, alias in (("ray.header", f"{PATH}/gcs_server.out", "x.ray.gcs_server"),
                             ("app.file", "/var/log/app/x.log", "x.app.other")):
        for send in (fake.send, fake.send_unfiltered):
            assert [name for name, sent in send(tag, path, ENTRY).items() if sent] == [alias]


def test_credentials_of_s3_reach_the_environment() -> None:
    keys = {"access_key_id": {"env": "AK"}, "secret_access_key": {"file": "/run/sk"}}
    script = rendered(with_sink({**S3, "credentials": keys}))["fluentbit/shipgen.lua"].decode()
    assert 'os.getenv("AK")' in script
    assert 'io.open("/run/sk")' in script
    assert 'setenv("AWS_SECRET_ACCESS_KEY", value, 1)' in script
    assert "setenv" not in rendered(with_sink(S3))["fluentbit/shipgen.lua"].decode()


def test_file_and_console() -> None:
    assert output_of({"type": "file", "path": "/var/out/x y.jsonl"}) == {
        "name": "file", "path": "/var/out", "file": "x y.jsonl", "format": "template", "template": "{line}",
        "mkdir": True, **TAIL}
    assert output_of({"type": "console"}) == {"name": "stdout", "format": "json_lines", "json_date_key": False, **TAIL}


# --- text of the policy ---


def test_text_of_headers() -> None:
    headers = {f"X-{n}": text for n, text in enumerate(TEXTS)}
    refused = {f"headers.{name}" for name, text in headers.items() if "${" in text}
    assert {path for code, _, path in said({**HTTP, "headers": headers}) if code == "unsupported"} == refused != set()
    headers = {name: text for name, text in headers.items() if "${" not in text}
    assert sorted(output_of({**HTTP, "headers": headers})["header"]) == sorted(f"{k} {v}" for k, v in headers.items())


@pytest.mark.parametrize("text", ["a/b", "a b", "%Y", "$TAG", "é", "a?b", "a=b"])
def test_keys_of_objects_have_only_what_fluent_bit_signs_right(text: str) -> None:
    sink = {**S3, "prefix": {"by": ["cluster", "node"]}}
    found = judged(with_sink(sink, cluster=text, collector={"node": text}), "fluentbit").diagnostics
    assert [d.path for d in found if d.severity is Severity.ERROR] == ["cluster", "collector.node"]
    # which does not matter where it is in no key
    assert output_of({**S3, "prefix": {"by": []}}, cluster=text, collector={"node": {"env": "NODE"}})


def test_text_of_paths() -> None:
    path = "/a" + "".join(t for t in TEXTS if not set(t) & set("*?[]{},`\\/"))
    tls = {"ca_file": path, "cert_file": path, "key_file": path}
    for sink in (SEARCH, HTTP, {**S3, "prefix": {"by": []}}):
        output = output_of({**sink, "tls": tls})
        assert {output[f"tls.{key}"] for key in ("ca_file", "crt_file", "key_file")} == {path}
    output = output_of({**KAFKA, "tls": tls})
    assert {output[f"rdkafka.ssl.{key}.location"] for key in ("ca", "certificate", "key")} == {path}
    config = config_of(with_sink({**HTTP, "auth": {"bearer": {"file": path}}}))
    assert config["env"] == [{"name": "SHIPGEN_FILE_1", "uri": f"file://{path}", "refresh_interval": 0}]
    assert ("unsupported", Severity.ERROR, "path") in said({"type": "file", "path": path})
    output = output_of({"type": "file", "path": f"{path}/x".replace("$", "")})
    assert (output["path"], output["file"]) == (path.replace("$", ""), "x")


def test_text_of_records() -> None:
    rules = [{"name": "a", "add": {f"x{n}": text for n, text in enumerate(TEXTS)}}]
    fake = FakeFluentBit(with_sink(HTTP, cluster=ALL, collector={"node": ALL[:253]}, parsing={"rules": rules}))
    (sent,) = fake.send("ray.header", f"{PATH}/raylet.out", ENTRY)["x"]
    record = json.loads(sent.record["line"])
    assert (record["cluster"], record["node"]) == (ALL, ALL[:253])
    assert [record[f"x{n}"] for n in range(len(TEXTS))] == TEXTS


# --- versions, and what is refused ---


@pytest.mark.parametrize(("version", "inputs", "service", "loki"), [
    ("3.2", (), False, "structured_metadata"), ("4.0", (), False, "structured_metadata_map_keys"),
    ("4.1", ("read_newly_discovered_files_from_head",), True, "structured_metadata_map_keys"),
    ("4.2", ("read_newly_discovered_files_from_head", "truncate_long_lines"), True, "structured_metadata_map_keys"),
    ("5.1", ("read_newly_discovered_files_from_head", "truncate_long_lines"), True, "structured_metadata_map_keys"),
])
def test_options_of_versions(version: str, inputs: tuple[str, ...], service: bool, loki: str) -> None:
    files = rendered(with_sink(LOKI), version)
    config = parsed(files["fluentbit/fluent-bit.yaml"])
    for tail in config["pipeline"]["inputs"]:
        found = {"read_newly_discovered_files_from_head", "truncate_long_lines"} & set(tail)
        assert found == set(inputs)
        assert version == "5.1" or ".[0-9]*" not in tail["path"]
    assert ("multiline_buffer_limit" in config["service"]) == service
    (output,) = config["pipeline"]["outputs"]
    assert {k for k in output if k.startswith("structured_metadata")} == {loki}
    assert (b"sqlite3_exec" in files["fluentbit/shipgen.lua"]) == (version == "5.1")


@pytest.mark.parametrize(("sink", "since", "path"), [
    ({**HTTP, "method": "PUT"}, "4.2", "method"),
    ({**SEARCH, "auth": {"api_key": {"env": "K"}}}, "4.1", "auth.api_key"),
    ({**LOKI, "auth": {"bearer": {"file": "/run/t"}}}, "5.1", "auth.bearer"),
    ({**HTTP, "compression": "zstd"}, "4.0", "compression"),
    ({**HTTP, "compression": {"codec": "zstd"}}, "4.0", "compression.codec"),
    ({**S3_PLAIN, "compression": "zstd"}, "4.1", "compression"),
    ({**S3_PLAIN, "delivery": "at_least_once"}, "5.1", "delivery"),
    ({**LOKI, "endpoint": "https://10.0.0.1"}, "5.1", "endpoint"),
    ({**SEARCH, "endpoints": ["https://[::1]:9200"]}, "5.1", "endpoints"),
])
def test_what_older_versions_lack(sink: dict[str, Any], since: str, path: str) -> None:
    before = {"5.1": "5.0", "5.0": "4.2", "4.2": "4.1", "4.1": "4.0", "4.0": "3.2"}[since]
    assert [one for one in said(sink, since) if one[1] is Severity.ERROR] == []
    assert [one for one in said(sink, before) if one[1] is Severity.ERROR] == [("unsupported", Severity.ERROR, path)]


@pytest.mark.parametrize(("sink", "path"), [
    ({**S3, "prefix": {"by": ["pid"]}}, "prefix.by"),
    ({**S3, "sse": "aws:kms"}, "sse"),
    ({**SEARCH, "type": "opensearch", "auth": {"api_key": {"env": "K"}}}, "auth.api_key.env"),
    ({**SEARCH, "delivery": "at_least_once"}, "delivery"),
    ({**KAFKA, "delivery": "at_least_once"}, "delivery"),
    ({"type": "console", "target": "stderr"}, "target"),
    ({**HTTP, "compression": {"codec": "gzip", "level": 9}}, "compression.level"),
])
def test_refused(sink: dict[str, Any], path: str) -> None:
    assert ("unsupported", Severity.ERROR, path) in said(sink)


def test_credentials_of_two_buckets_must_agree() -> None:
    keys = {"access_key_id": {"env": "A"}, "secret_access_key": {"env": "B"}}
    others = {**keys, "access_key_id": {"env": "C"}}
    sinks = {"x": {**S3, "credentials": keys}, "y": {**S3, "bucket": "other", "credentials": others}}
    found = judged(policy(sinks=sinks), "fluentbit").diagnostics
    assert [d.path for d in found if d.severity is Severity.ERROR] == ["sinks.x.credentials", "sinks.y.credentials"]


def test_several_addresses_and_large_objects_are_approximated() -> None:
    assert ("approximated", Severity.WARNING, "endpoints") in said({**SEARCH, "endpoints": ["http://a", "http://b"]})
    assert ("approximated", Severity.WARNING, "batch.max_bytes") in said({**S3, "batch": {"max_bytes": "64MiB"}})


def test_what_a_bucket_is_told_by_default() -> None:
    """Fluent Bit's client of S3 has weaknesses of its own."""
    tls, tries = (("approximated", Severity.WARNING, path) for path in ("tls.verify", "retry.give_up_after"))
    small = {**S3, "batch": {"max_bytes": "1MB"}}
    for sink in (small, {**small, "endpoint": "https://rgw"}):
        assert tls in said(sink)
        assert tries not in said(sink)
        assert {tls, tries} <= set(said(sink, "4.2"))
    assert tls not in said({**small, "endpoint": "http://rgw"})
    assert tls not in said({**small, "tls": {"verify": False}})
    assert "retry_exhausted_action" not in output_of(S3_PLAIN, "5.0")


def test_attempts_fill_the_time() -> None:
    assert attempts(1, 30) == 1
    assert attempts(3_600_000, 30) < attempts(3_600_000, 2) < 3600
    assert attempts(10**15, 2) == 1_000_000


@pytest.mark.parametrize(("version", "rotated", "read", "approximated"), [
    ("5.1", None, True, False), ("5.0", None, False, True), ("5.0", "auto", False, True),
    ("4.2", "include", True, True), ("3.2", "exclude", False, False),
])
def test_backups_by_version(version: str, rotated: str | None, read: bool, approximated: bool) -> None:
    sources = {"ray": {"type": "ray", "components": ["raylet"], **({"rotated": rotated} if rotated else {})}}
    data = policy(sources=sources, sinks={"c": {"type": "console"}}, targets={"fluentbit": {"version": version}})
    (tail,) = config_of(data, version)["pipeline"]["inputs"]
    assert ("raylet.out.[0-9]*" in tail["path"]) == read
    found = [(d.code, d.path) for d in judged(data, "fluentbit").diagnostics]
    assert found == [("approximated", "sources.ray.rotated")] * approximated
