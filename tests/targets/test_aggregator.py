"""The hop through Kafka: what agents and aggregator are made of, and what of a message becomes the record."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from making import LOKI, FakeVector, Record, judged, policy, resolved

from shipgen.diagnostics import Severity
from shipgen.rendering import bundle
from shipgen.targets import aggregator, base

HOP = {"via": "kafka", "brokers": ["k1:9092", "k2:9092"], "topic": "ray-logs"}
RAY = {"ray": {"type": "ray", "components": ["raylet"]}}
AB = {name: {"type": "file", "paths": [f"/var/log/{name}.log"]} for name in ("a", "b")}
SENT = {"raw": "r", "message": "m", "source": "a", "node": "n", "level": "info", "pid": "7", "truncated": True,
        "sample_rate": 0.25, "extra": {"k": [1, 2.5, None]}, "topic": "mine", "time": "2026-12-01T05:36:23.438123456Z"}


def files_of(data: dict[str, Any], target: str = "vector") -> dict[str, str]:
    choice = judged(data, target)
    assert choice.renders, choice.diagnostics
    return {path: text.decode() for path, text in bundle.of(resolved(data), [choice]).files.items()}


def behind(data: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(files_of(data)[aggregator.CONFIG])
    return config


def arrived(data: dict[str, Any], message: Any) -> dict[str, list[Record]]:
    """What each sink gets of a message."""
    text = message if isinstance(message, str) else json.dumps(message)
    got = FakeVector(behind(data)).send("kafka::in", {"message": text})
    return {id_.removeprefix("out::"): events for id_, events in got.items() if id_ != "shipgen::exporter"}


def test_without_a_hop_there_is_no_aggregator() -> None:
    assert aggregator.CONFIG not in files_of(policy())


def test_the_source() -> None:
    """As its own options have it: nothing of before the group's first start is missed, no offset is kept that the sinks
    do not have, and no field of the record is overwritten."""
    source = behind(policy(sources=RAY, topology=HOP))["sources"]["kafka::in"]
    assert source["bootstrap_servers"] == "k1:9092,k2:9092"
    assert (source["topics"], source["group_id"]) == (["ray-logs"], "shipgen-t")
    assert source["auto_offset_reset"] == "earliest"
    assert source["drain_timeout_ms"] < source["session_timeout_ms"]
    assert [source[f"{name}_key"] for name in ("topic", "partition", "offset", "headers")] == [""] * 4


def test_the_agent_has_kafka_alone() -> None:
    data = policy(sources=RAY, topology=HOP, sinks={"loki": LOKI, "c": {"type": "console"}})
    agent = yaml.safe_load(files_of(data)["vector/vector.yaml"])
    assert set(agent["sinks"]) == {"shipgen::exporter", "out::kafka"}
    assert agent["sinks"]["out::kafka"]["key_field"] == "node"
    assert set(behind(data)["sinks"]) == {"shipgen::exporter", "out::loki", "out::c"}
    assert agent["data_dir"] != behind(data)["data_dir"]


def test_the_record_is_that_of_the_agent() -> None:
    (got,) = arrived(policy(sources=AB, topology=HOP, sinks={"c": {"type": "console"}}), SENT)["c"]
    assert {k: v for k, v in got.items() if k != "timestamp"} == SENT


def test_rules_run_where_they_can() -> None:
    rules = [{"name": "all", "add": {"x": "1"}}, {"name": "some", "add": {"y": "2"}, "sinks": ["c"]},
             {"name": "rest", "redact": {"kind": "email"}}]
    data = policy(sources=AB, topology=HOP, parsing={"rules": rules},
                  sinks={"c": {"type": "console"}, "d": {"type": "console"}})
    files = files_of(data)
    ours = [set(yaml.safe_load(files[path])["transforms"]) for path in ("vector/vector.yaml", aggregator.CONFIG)]
    assert [{i for i in ids if i.startswith("rule::")} for ids in ours] == [
        {"rule::all"}, {"rule::some::c", "rule::rest::c", "rule::rest::d"}]
    got = arrived(data, {**SENT, "message": "x@example.com"})
    assert [(e["message"], e.get("y")) for e in (*got["c"], *got["d"])] == [("[redacted]", "2"), ("[redacted]", None)]
    # what a redaction finds lies in Kafka until then, and that is said
    said = judged(data).diagnostics
    assert [(d.code, d.path) for d in said if d.code == "redacted-late"] == [("redacted-late", "parsing.rules[2]")]


def test_sources_find_their_sinks() -> None:
    data = policy(sources=AB, topology=HOP, sinks={
        "a": {"type": "console", "from": ["a"]}, "b": {"type": "console", "from": ["b"]}, "all": {"type": "console"}})
    for source, sinks in (("a", ["a", "all"]), ("b", ["b", "all"]), ("what", ["a", "b", "all"])):
        got = arrived(data, {**SENT, "source": source})
        assert sorted(sink for sink, events in got.items() if events) == sorted(sinks)
    assert "@from" not in got["all"][0]


@pytest.mark.parametrize("text", ["plain", "{", '{"a": 1', "[1]", "3", '"x"', "null"])
def test_what_is_no_record_is_delivered_as_it_is(text: str) -> None:
    (got,) = arrived(policy(sources=AB, topology=HOP, sinks={"c": {"type": "console"}}), text)["c"]
    assert (got["raw"], got["message"], got["parse_error"], got["time_source"]) == (text, text, True, "read")


def test_metadata_of_loki_is_what_the_policy_lists() -> None:
    """Whatever else the message holds."""
    (got,) = arrived(policy(sources=AB, topology=HOP), {**SENT, "surprise": "x", "topic": "y"})["loki"]
    assert {"surprise", "topic", "extra"} & set(json.loads(got["metadata"])) == set()
    assert json.loads(got["metadata"])["pid"] == "7"


# --- what is judged by whom ---


def said(data: dict[str, Any], target: str, severity: Severity = Severity.ERROR) -> set[str]:
    return {d.path for d in judged(data, target).diagnostics if d.severity is severity}


def test_sinks_are_the_aggregators() -> None:
    """A sink, or a setting of one, that the agent's target has not."""
    s3 = {"type": "s3", "bucket": "ray-logs", "region": "us-east-1", "sse": "AES256"}
    data = policy(sources=RAY, sinks={"s3": s3}, targets={"fluentbit": {"version": "5.1"}})
    assert said(data, "fluentbit") == {"sinks.s3.sse"}
    assert said({**data, "topology": HOP}, "fluentbit") == set()


def test_the_hop_is_the_agents() -> None:
    data = policy(sources=RAY, topology={**HOP, "tls": {"server_name": "k"}}, targets={"promtail": {"version": "3.6"}})
    for target in ("vector", "fluentbit"):
        assert said(data, target) == {"topology.tls.server_name"}
    assert said(data, "promtail") == {"topology"}
    # what the sinks are promised must hold from the file on
    data = policy(sources=RAY, topology=HOP, sinks={"loki": {**LOKI, "delivery": "at_least_once"}})
    assert said(data, "fluentbit") == {"sinks.loki.delivery"}
    assert said(data, "vector") == set()
    data = policy(sources=RAY, topology={**HOP, "retry": {"give_up_after": "100d"}})
    assert "topology.retry.give_up_after" in said(data, "vector", Severity.WARNING)


def test_no_circle() -> None:
    sink = {"type": "kafka", "brokers": ["k1:9092"], "topic": "ray-logs"}
    assert said(policy(sources=RAY, topology=HOP, sinks={"k": sink}), "vector") == {"sinks.k.topic"}
    assert said(policy(sources=RAY, topology=HOP, sinks={"k": {**sink, "topic": "other"}}), "vector") == set()


def test_secrets_of_the_hop() -> None:
    sasl = {"user": {"file": "/run/secrets/user"}, "password": {"env": "K"}}
    data = policy(sources=RAY, topology={**HOP, "sasl": sasl, "tls": {"ca_file": "/ca"}})
    source = behind(data)["sources"]["kafka::in"]
    assert (source["sasl"]["username"], source["sasl"]["password"]) == ("SECRET[files0.user]", "${K:?K is not set}")
    assert source["tls"]["ca_file"] == "/ca"
    assert "topology.sasl.password" in said(data, "vector", Severity.WARNING)
    assert "ALLOW_ENV" in files_of(data)[aggregator.CONFIG].split("data_dir")[0]


@pytest.mark.parametrize("target", [name for name in base.implemented() if name != "promtail"])
def test_agents_of_every_target_share_one_aggregator(target: str) -> None:
    version = {target: {"version": base.get(target).versions[-1]}}
    relay = {"relay": {"target": "vector"}} if target == "filebeat" else {}
    data = policy(sources=RAY, topology=HOP, targets=version, **relay)
    files = files_of(data, target)
    assert files[aggregator.CONFIG] == files_of(policy(sources=RAY, topology=HOP, targets=version))[aggregator.CONFIG]
    assert [path for path, text in files.items() if "loki:3100" in text] == [aggregator.CONFIG]


def test_agents_without_their_relay() -> None:
    assert said(policy(sources=RAY, topology=HOP), "filebeat") == {"topology"}
