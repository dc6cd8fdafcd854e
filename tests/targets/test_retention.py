"""How long servers keep what they got: each file in its server's words, and nothing where nothing is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from making import HOSTILE, LOKI, loaded, policy, resolved

from shipgen.diagnostics import PolicyError
from shipgen.rendering.environment import render
from shipgen.targets import node

SEARCH = {"type": "elasticsearch", "endpoints": ["http://e:9200"]}
S3 = {"type": "s3", "bucket": "ray-logs"}


def files(**sinks: Any) -> dict[str, Any]:
    found = {f.path: render(f.template, **f.context) for f in node.files(resolved(policy(sinks=sinks)))}
    return {path: text if path.endswith(".md") else yaml.safe_load(text) for path, text in found.items()}


def test_nothing_is_said() -> None:
    assert files(loki=LOKI, s3=S3, es=SEARCH) == {}


def test_loki_keeps_streams_of_this_policy_for_their_time() -> None:
    raylet = {"labels": {"job": "x", "component": "raylet"}, "keep": "1d"}
    streams = [{"labels": {"level": "debug"}, "keep": "2d"}, raylet]
    found = files(loki={**LOKI, "tenant": "ml", "retention": {"keep": "30d", "streams": streams}})
    assert found["retention/loki.yaml"] == {"overrides": {"ml": {"retention_stream": [
        {"selector": '{job="t"}', "priority": 1, "period": "720h"},
        {"selector": '{job="t", level="debug"}', "priority": 2, "period": "48h"},
        {"selector": '{job="x", component="raylet"}', "priority": 3, "period": "24h"},
    ]}}}
    assert "retention/loki.yaml" in found["retention/README.md"]


@pytest.mark.parametrize("text", [t for t in HOSTILE if t.isprintable() and t.strip()])
def test_hostile_labels_stay_labels(text: str) -> None:
    streams = [{"labels": {"component": text}, "keep": "2d"}]
    found = files(loki={**LOKI, "retention": {"keep": "30d", "streams": streams}})
    selector = found["retention/loki.yaml"]["overrides"]["fake"]["retention_stream"][1]["selector"]
    assert selector == f'{{job="t", component={json.dumps(text, ensure_ascii=False)}}}'


@pytest.mark.parametrize("tenant", ["team-a", "ML", "a'b(c)*!", "null", "12", "-"])
def test_any_tenant_is_a_key(tenant: str) -> None:
    found = files(loki={**LOKI, "tenant": tenant, "retention": {"keep": "30d"}})
    assert list(found["retention/loki.yaml"]["overrides"]) == [tenant]


def test_search_engines() -> None:
    keep = {"retention": {"keep": "90d", "cold_after": "7d"}}
    phases = files(es={**SEARCH, **keep})["retention/es.json"]["policy"]["phases"]
    assert list(phases) == ["hot", "cold", "delete"]
    assert (phases["cold"]["min_age"], phases["delete"]["min_age"]) == ("7d", "90d")
    assert "rollover" in phases["hot"]["actions"]
    daily = files(es={**SEARCH, "index": {"name": "ray"}, "retention": {"keep": "90d"}})["retention/es.json"]
    assert daily["policy"]["phases"]["hot"]["actions"] == {}
    states = files(os={**SEARCH, "type": "opensearch", **keep})["retention/os.json"]["policy"]["states"]
    assert [s["name"] for s in states] == ["hot", "cold", "delete"]
    assert [t["conditions"]["min_index_age"] for s in states for t in s["transitions"]] == ["7d", "90d"]


@pytest.mark.parametrize(("prefix", "folder"), [
    ({}, "component="), ({"by": []}, "date="), ({"by": [], "date": "none"}, "t-"), ({"by": ["node"]}, "node="),
])
def test_buckets(prefix: dict[str, Any], folder: str) -> None:
    (rule,) = files(s3={**S3, "prefix": prefix, "retention": {"keep": "30d"}})["retention/s3.json"]["Rules"]
    assert rule["Filter"] == {"Prefix": folder}
    assert rule["Expiration"] == {"Days": 30}
    assert "Transitions" not in rule
    cold = {"keep": "30d", "cold_after": "25h", "storage_class": "COLD"}
    (rule,) = files(s3={**S3, "retention": cold})["retention/s3.json"]["Rules"]
    assert rule["Transitions"] == [{"Days": 2, "StorageClass": "COLD"}]


@pytest.mark.parametrize(("sink", "path"), [
    ({**LOKI, "retention": {"keep": "23h"}}, "sinks.s.retention.keep"),
    ({**S3, "retention": {"keep": "2d", "cold_after": "2d"}}, "sinks.s.retention.cold_after"),
    ({**LOKI, "retention": {"keep": "2d", "streams": [{"labels": {"pid": "1"}, "keep": "2d"}]}},
     "sinks.s.retention.streams[0].labels.pid"),
    ({**LOKI, "retention": {"keep": "2d", "streams": [{"labels": {"level": "x"}, "keep": "1h"}]}},
     "sinks.s.retention.streams[0].keep"),
])
def test_what_no_server_can_do(sink: dict[str, Any], path: str) -> None:
    with pytest.raises(PolicyError) as raised:
        loaded(policy(sinks={"s": sink}))
    assert [d.path for d in raised.value.diagnostics] == [path]
