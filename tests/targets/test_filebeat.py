"""The target `filebeat`: what it reads, what its relay makes of it, and what it says about a policy."""

from __future__ import annotations

import re
from typing import Any

import pytest
import re2
import yaml
from making import FILE, HOSTILE, LOKI, TREES, config_of, judged, policy, resolved
from vrl_python import VRLRuntime

from shipgen.catalog import formats, ray, verl
from shipgen.diagnostics import Severity
from shipgen.rendering import bundle
from shipgen.targets import base, filebeat

VERSIONS = {"filebeat": {"version": "9.0"}, "vector": {"version": "0.57"}}
LOGS = "/tmp/ray/session_2026-12-01_00-00-00_000000_1/logs"


def given_policy(**parts: Any) -> dict[str, Any]:
    return policy(**{"targets": VERSIONS, "relay": {"target": "vector"}, **parts})


def files(data: dict[str, Any]) -> dict[str, str]:
    """What is rendered for a policy."""
    choice = judged(data, "filebeat")
    assert choice.renders, choice.diagnostics
    return {path: text.decode() for path, text in bundle.of(resolved(data), [choice]).files.items()}


def unescaped(value: Any) -> Any:
    """A tree as Filebeat reads it: `$` escapes `$` and `}`, and `${` is a variable."""
    if isinstance(value, str):
        assert not re.search(r"(?<!\$)(?:\$\$)*\$\{", value), value
        return re.sub(r"\$([$}])", r"\1", value)
    if isinstance(value, dict):
        return {k: unescaped(v) for k, v in value.items()}
    return [unescaped(v) for v in value] if isinstance(value, list) else value


def config(data: dict[str, Any]) -> dict[str, Any]:
    parsed: dict[str, Any] = unescaped(yaml.safe_load(files(data)["filebeat/filebeat.yml"]))
    return parsed


def inputs(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in config(data)["filebeat.inputs"]}


def relay(data: dict[str, Any]) -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(files(data)["relay/vector.yaml"])
    return parsed


def lines(data: dict[str, Any], id_: str, message: str) -> Any:
    """What the relay's first program makes of something that Filebeat read."""
    event = {
        "message": message, "fields": {"id": id_}, "log": {"file": {"path": f"{LOGS}/x"}}, "host": {"name": "n"},
        "source_type": "logstash", "@timestamp": "2026-12-01T12:00:00.000000001Z", "@metadata": {"beat": "filebeat"},
    }
    return VRLRuntime("UTC").execute(relay(data)["transforms"]["relay::line"]["source"], event).processed_event


# --- what is read ---


def test_every_family_is_an_input_of_its_own() -> None:
    found = inputs(given_policy())
    assert set(found) == {f"ray:{f.name}" for f in ray.FAMILIES if f.default}
    worker, raylet, train = (found[f"ray:{name}"] for name in ("worker", "raylet", "train"))
    assert f"{LOGS.replace(LOGS.split('/')[3], 'session_2*')}/old/worker-*.err.[0-9]*" in worker["paths"]
    joins = [one["parsers"][0]["multiline"] for one in (worker, raylet)]
    wanted = [(filebeat.cheap(formats.CONTINUATION), False), (formats.HEADER, True)]
    assert [(j["pattern"], j["negate"]) for j in joins] == wanted
    assert all((j["match"], j["timeout"]) == ("after", "700ms") for j in joins)
    assert "parsers" not in train
    for one in found.values():
        # first lines of worker files are equal, and files of less than 1 KiB are read too
        assert one["file_identity.native"] is None
        assert one["prospector.scanner"]["fingerprint.enabled"] is False
        # a file that is renamed, moved or deleted is read to its end, and known again
        assert one["close.on_state_change"] | {"removed": False, "renamed": False} == one["close.on_state_change"]
        assert (one["clean_removed"], one["clean_inactive"], one["line_terminator"]) == (False, -1, "line_feed")


@pytest.mark.parametrize("regex", [formats.CONTINUATION, verl.CONTINUATION, formats.HEADER])
def test_regexes_are_cheap_to_compile_and_mean_the_same(regex: str) -> None:
    """Filebeat compiles one for every file that it opens: 5,000 files took 27 s of CPU and were not done, now 5."""
    cheap = filebeat.cheap(regex)
    assert not re.search(r"\[\^[^]aA]*\]", cheap)
    ours, theirs = re2.compile(cheap), re2.compile(regex)
    written = ["Traceback (most recent call last):", "Traceback a: (most recent call last):", "x(a+0x1) [0x2]",
               "Exception raised from a b:1 (most recent call first):", "lib a.so(+0x1f) [0x2]", "(+0x1) [0x2]",
               "aaa(bab+0x1) [0x2]", "aaa(b(b+0x1) [0x2]"]
    lines = [line for path in TREES.rglob("worker-*") for line in path.read_text("utf-8", "replace").split("\n")]
    for line in [*lines, *written]:
        assert bool(ours.search(line)) is bool(theirs.search(line)), line


def test_a_file_source() -> None:
    source = {**FILE, "exclude": ["/var/log/app/[!a-c]?.log"], "multiline": {"start": "^=", "timeout": "7s"},
              "ignore_older": "7d", "start": "end"}
    found = inputs(given_policy(sources={"app": {**source, "paths": ["/var/log/[!x]/*.log"]}}))["app"]
    assert found["paths"] == ["/var/log/[^x]/*.log"]
    (regex,) = found["prospector.scanner"]["exclude_files"]
    assert [bool(re2.search(regex, f"/var/log/app/{name}.log")) for name in ("dx", "ax", "dxy")] == [True, False, False]
    assert found["parsers"][0]["multiline"] | {"pattern": "^=", "negate": True, "timeout": "7000ms"} == (
        found["parsers"][0]["multiline"])
    assert (found["ignore_older"], found["ignore_inactive"]) == ("604800000ms", "since_first_start")


@pytest.mark.parametrize("text", [t for t in HOSTILE if t and not set(t) & set("*?[]{},`\\")])
def test_hostile_text(text: str) -> None:
    regex = "".join(c if c.isalnum() or not c.isascii() else f"\\{c}" if c in "$.+()|^'\"/" else f"\\x{ord(c):02x}"
                    for c in text)
    data = given_policy(
        name="t", collector={"node": text[:253], "state_dir": f"/a{text}"}, ray={"temp_dir": f"/b{text}/ray"},
        sources={"ray": {"type": "ray", "components": ["raylet"]},
                 "f": {**FILE, "paths": [f"/c{text}/*"], "exclude": [f"/c{text}/x"], "multiline": {"start": regex}}},
    )
    read = config(data)
    assert read["name"] == text[:253]
    assert read["path.data"] == f"/a{text}".rstrip("/") + "/t/filebeat"
    second, first = read["filebeat.inputs"]
    assert first["paths"][0].removesuffix("/ray/session_2*/logs/raylet.out") == f"/b{text}".replace("//", "/")
    assert second["paths"] == [f"/c{text}/*"]
    assert re2.search(second["prospector.scanner"]["exclude_files"][0], f"/c{text}/x")
    assert second["parsers"][0]["multiline"]["pattern"] == regex


def test_the_name_of_the_node_comes_from_where_files_are_read() -> None:
    assert config(given_policy())["name"] == ""  # the host's own
    assert config(given_policy(collector={"node": "n1"}))["name"] == "n1"
    text = files(given_policy(collector={"node": {"env": "NODE"}}))["filebeat/filebeat.yml"]
    assert '\nname: "${NODE:}"\n' in text
    path = relay(given_policy(collector={"node": "n1"}))["transforms"]["ray:raylet:path"]["source"]
    assert ".node = .host\n" in path


# --- the relay ---


def test_the_relay_has_the_programs_of_vector() -> None:
    parts: dict[str, Any] = {
        "cluster": "c", "parsing": {"rules": [{"name": "r", "redact": {"kind": "email"}}]},
        "sinks": {"loki": LOKI, "out": {"type": "file", "path": "/var/log/x", "when": {"level": "error"}}},
        "sources": {"ray": {"type": "ray"},
                    "app": {**FILE, "paths": ["/var/log/app/[0-9]*"], "multiline": {"start": "^="}}},
    }
    ours, theirs = relay(given_policy(**parts)), config_of(policy(**parts))
    own = {id_: ours["transforms"].pop(id_) for id_ in ("relay::line", "relay::lanes")}
    read = {id_ for id_, s in theirs["sources"].items() if s["type"] == "file"}
    assert len(own["relay::lanes"]["route"]) == len(read)
    lane = {}
    for id_, transform in ours["transforms"].items():
        (first, *_) = transform["inputs"]
        if first.startswith("relay::lanes."):
            (lane[first],) = theirs["transforms"][id_]["inputs"]
            transform["inputs"] = [lane[first]]
    assert set(lane.values()) == read
    for name, route in own["relay::lanes"]["route"].items():
        assert route["source"] == f'(.source_type == "{lane[f"relay::lanes.{name}"]}")'
    assert ours["transforms"] == theirs["transforms"]
    assert ours["sinks"] == theirs["sinks"]
    assert [s["type"] for s in ours["sources"].values()] == ["internal_metrics", "logstash"]
    assert ours["data_dir"] == "/var/lib/shipgen/t/relay"


def test_a_group_arrives_as_a_file_source_gives_it() -> None:
    found = lines(given_policy(), "ray:worker", "a\n  b")
    assert found.pop("timestamp")
    assert found == {"message": "a\n  b", "file": f"{LOGS}/x", "host": "n", "source_type": "ray:worker"}


@pytest.mark.parametrize(("id_", "first", "parted"), [
    ("ray:raylet", "[2026-12-01 05:36:20,182 I 1 2] (raylet) a.cc:1: x", False), ("ray:raylet", "objects in use", True),
    ("ray:raylet", '{"message":"x"}', False), ("ray:worker", "objects in use", False),
    ("app", "= x", False), ("app", "x", True),
])
def test_lines_at_the_head_of_a_file_come_one_by_one(id_: str, first: str, parted: bool) -> None:
    data = given_policy(sources={"ray": {"type": "ray"}, "app": {**FILE, "multiline": {"start": "^="}}})
    found = lines(data, id_, f"{first}\nrest\nrest")
    if not parted:
        assert found["message"].count("\n") == 2
        return
    assert [one["message"] for one in found] == [first, "rest", "rest"]
    assert len({one["timestamp"] for one in found}) == 3
    assert {one["file"] for one in found} == {f"{LOGS}/x"}


def test_long_lines_that_are_to_be_left_out() -> None:
    data = given_policy(sources={"ray": {"type": "ray", "max_line": "1KiB", "on_long_line": "skip"}})
    long = "x" * 1025
    assert lines(data, "ray:worker", f"a\n{long}\n{long[1:]}")["message"] == f"a\n{long[1:]}"
    assert lines(data, "ray:worker", long)["message"] == ""


def test_both_agree_on_where_they_meet() -> None:
    data = given_policy(relay={"target": "vector", "address": "[::1]:7000"})
    output = config(data)["output.logstash"]
    assert output["hosts"] == [relay(data)["sources"]["relay::lines"]["address"]] == ["[::1]:7000"]
    # one batch at a time, none of them sent again while the relay waits for a sink
    assert (output["pipelining"], output["timeout"], output["compression_level"]) == (0, "24h", 0)
    start = next(line for line in files(data)["filebeat/filebeat.yml"].splitlines() if "Start first" in line)
    assert start == "# Start first: vector --config relay/vector.yaml"


# --- what it says ---


@pytest.mark.parametrize("sink", [
    LOKI, {"type": "elasticsearch", "endpoints": ["https://e"]}, {"type": "s3", "bucket": "bbb"}, {"type": "console"},
    {"type": "http", "endpoint": "https://h"}, {"type": "kafka", "brokers": ["k:1"], "topic": "t"},
    {"type": "opensearch", "endpoints": ["https://e"]}, {"type": "file", "path": "/var/x"},
])
def test_without_a_relay(sink: dict[str, Any]) -> None:
    data = given_policy(sinks={"s": sink})
    assert judged(data, "filebeat").renders
    del data["relay"]
    found = [d for d in judged(data, "filebeat").diagnostics if d.severity is Severity.ERROR]
    assert [(d.code, d.path, d.hint) for d in found] == [("unsupported", "sinks.s", "add relay: {target: vector}")]


def test_what_the_relay_can_not_do_is_said_of_its_version() -> None:
    http = {"type": "http", "endpoint": "https://h", "delivery": "at_least_once"}
    data = given_policy(sinks={"h": http, "l": {**LOKI, "buffer": {"when_full": "drop_oldest"}}})
    assert [d.path for d in judged(data, "filebeat").diagnostics if d.severity is Severity.ERROR] == [
        "sinks.l.buffer.when_full"]
    for version, told in (("0.55", True), ("0.56", False)):
        data = given_policy(targets={**VERSIONS, "vector": {"version": version}}, sinks={"h": http})
        assert any(d.path == "sinks.h.delivery" for d in judged(data, "filebeat").diagnostics) is told
        assert f"for Vector {version}" in files(data)["relay/vector.yaml"]


@pytest.mark.parametrize(("parts", "code", "path"), [
    ({"relay": {"target": "fluentbit"}}, "unsupported", "relay.target"),
    ({"relay": {"target": "vector", "address": "collector:6044"}}, "unsupported", "relay.address"),
    ({"relay": {"target": "vector", "address": "10.0.0.1:6044"}}, "relay-in-the-clear", "relay.address"),
    ({"targets": {"filebeat": {"version": "9.0"}}}, "unpinned-version", "relay.target"),
    ({"targets": {**VERSIONS, "vector": {"version": "0.49"}}}, "unknown-version", "targets.vector.version"),
    ({"targets": {**VERSIONS, "filebeat": {"version": "8.16"}}}, "unknown-version", "targets.filebeat.version"),
    ({"collector": {"metrics": {"bind": "localhost"}}}, "unsupported", "collector.metrics.bind"),
    ({"sources": {"ray": {"type": "ray", "start": "end"}}}, "approximated", "sources.ray.start"),
    ({"rotation": {"by": "ray"}}, "inode-reuse", "rotation.backups"),
    ({}, "restart-after-outage", "relay.target"),
])
def test_findings(parts: dict[str, Any], code: str, path: str) -> None:
    assert (code, path) in {(d.code, d.path) for d in judged(given_policy(**parts), "filebeat").diagnostics}


def test_commands_and_image() -> None:
    target = base.get("filebeat")
    pipeline = resolved(given_policy())
    assert target.start_argv("f.yml", pipeline, "9.0") == ("filebeat", "--strict.perms=false", "-e", "-c", "f.yml")
    assert target.validate_argv("f.yml")[:3] == ("filebeat", "test", "config")
    assert target.image("9.0") == "docker.elastic.co/beats/filebeat:9.0.0"
    assert target.image("8.17.3") == "docker.elastic.co/beats/filebeat:8.17.3"
