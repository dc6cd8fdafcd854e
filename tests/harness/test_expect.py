"""What a policy makes of a record, worked out apart from what targets render."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shipgen.harness.expect import Expected, Record, expectations, holds, leftovers, line_key, masked
from shipgen.pipeline import conditions, resolve
from shipgen.policy import load

RECORD: Record = {
    "source": "ray",
    "time": 1_796_000_000_000_000_123,
    "level": "info",
    "component": "raylet",
    "cluster": "c",
    "node": "n",
    "session": "session_2x",
    "file": "raylet.out",
    "pid": "310",
    "message": "heartbeat ok",
    "raw": "[2026-12-01 05:36:20,182 I 310 322] (raylet) a.cc:1: heartbeat ok",
}


def expected(tmp_path: Any, extra: str = "", sink: str = "", **fields: Any) -> list[Expected]:
    """Expectations for one record under a policy."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\nname: t\ncluster: c\n"
        "sources: {ray: {type: ray}}\n"
        f"sinks: {{loki: {{type: loki, endpoint: 'http://loki:3100', {sink}}}}}\n"
        f"parsing: {{timezone: UTC, rules: [{extra}]}}\n"
    )
    pipeline = resolve(load([str(policy)]))
    record = {name: value for name, value in (RECORD | fields).items() if value is not None or name == "time"}
    return list(expectations(pipeline, pipeline.sinks[0], [record]))


def one(*args: Any, **fields: Any) -> Expected:
    (found,) = expected(*args, **fields)
    return found


def test_defaults(tmp_path: Any) -> None:
    found = one(tmp_path)
    assert found.labels == {"job": "t", "cluster": "c", "component": "raylet", "level": "info", "node": "n"}
    assert found.metadata == {"session": "session_2x", "file": "raylet.out", "pid": "310", "source": "ray"}
    assert (found.line, found.time_ns) == (RECORD["raw"], RECORD["time"])
    assert found.place == ("session_2x", "raylet.out")
    assert not found.loose
    assert not found.optional


def test_what_is_a_label_is_no_metadata(tmp_path: Any) -> None:
    found = one(tmp_path, "", "labels: {fields: [component, session]}, metadata: [session, component, pid]")
    assert found.labels.keys() >= {"component", "session"}
    assert found.metadata == {"pid": "310"}


def test_an_absent_field_gives_no_label_and_flags_are_metadata(tmp_path: Any) -> None:
    found = one(tmp_path, "", "metadata: [pid]", level=None, time=None, time_source="read", parse_error=True)
    assert "level" not in found.labels
    assert found.metadata == {"pid": "310", "time_source": "read", "parse_error": "true"}
    assert found.time_ns is None


@pytest.mark.parametrize(("style", "line"), [("raw", RECORD["raw"]), ("message", "heartbeat ok")])
def test_line(tmp_path: Any, style: str, line: str) -> None:
    assert one(tmp_path, "", f"line: {style}").line == line


def test_json_line_is_compared_parsed(tmp_path: Any) -> None:
    found = one(tmp_path, "", "line: json")
    data = json.loads(found.line)
    assert "component" not in data
    assert data["message"] == "heartbeat ok"
    shuffled = json.dumps(dict(reversed(data.items())) | {"time": "2026-12-01T00:00:00Z", "pid": 310}, indent=1)
    assert found.agrees(shuffled)
    assert not found.agrees(json.dumps(data | {"message": "other"}))


@pytest.mark.parametrize(
    ("when", "fields", "answer"),
    [
        ({"component": "raylet"}, {}, True),
        ({"component": ["gcs_server", "raylet"]}, {}, True),
        ({"component": "worker"}, {}, False),
        ({"pid": 310}, {"pid": 310}, True),
        ({"component": "raylet", "message": {"matches": "beat o"}}, {}, True),
        ({"message": {"matches": "^beat"}}, {}, False),
        ({"message": {"matches": "ok$"}}, {"message": "ok\n"}, False),
        ({"message": {"matches": "a.b"}}, {"message": "a\nb"}, False),
        ({"level": {"at_least": "warn"}}, {}, False),
        ({"level": {"at_least": "info"}}, {}, True),
        ({"level": {"at_least": "fatal"}}, {"level": None}, True),
        ({"level": {"below": "fatal"}}, {"level": None}, False),
        ({"level": {"below": "warn"}}, {}, True),
        ({"job_id": "1"}, {}, False),
        ({"not": {"job_id": "1"}}, {}, True),
        ({"job_id": {"exists": False}}, {}, True),
        ({"pid": {"exists": True}}, {}, True),
        ({"any": [{"level": "error"}, {"pid": "310"}]}, {}, True),
        ({"any": [{"level": "error"}, {"pid": "1"}]}, {}, False),
        ({"parse_error": True}, {"parse_error": True}, True),
    ],
)
def test_conditions(when: dict[str, Any], fields: dict[str, Any], answer: bool) -> None:
    record = {name: value for name, value in (RECORD | fields).items() if value is not None}
    if when == {"parse_error": True}:  # YAML's true, as a policy has it
        when = {"parse_error": "true"}
    assert holds(conditions.parse(when), record) is answer


def test_rules_in_order(tmp_path: Any) -> None:
    rules = (
        "{name: a, add: {team: x}},{name: b, when: {team: x}, add: {team: y}},{name: c, when: {team: x}, drop: true}"
    )
    assert one(tmp_path, rules, "metadata: [team]").metadata == {"team": "y"}
    assert expected(tmp_path, "{name: d, when: {component: raylet}, drop: true}") == []
    assert expected(tmp_path, "", "when: {level: {at_least: warn}}") == []


def test_chance_makes_a_record_optional(tmp_path: Any) -> None:
    found = one(tmp_path, "{name: s, sample: 0.5}", "metadata: [sample_rate]")
    assert found.optional
    assert found.metadata == {"sample_rate": "0.5"}
    assert one(tmp_path, "{name: l, limit: {records: 1, per: 1s}}").optional
    assert not one(tmp_path, "{name: l, when: {component: worker}, limit: {records: 1, per: 1s}}").optional


def test_redaction_by_pattern_is_literal_and_covers_every_text(tmp_path: Any) -> None:
    rule = r"{name: r, redact: {pattern: 'h[a-z]+t', with: '$0\1[x]'}}"
    found = one(tmp_path, rule, "metadata: [message, thread]", thread="heart")
    assert found.line.endswith(r"$0\1[x]beat ok") or found.line.endswith(r"$0\1[x] ok")
    assert found.metadata["thread"] == r"$0\1[x]"
    assert not found.loose


def test_redaction_of_a_json_entry_works_on_its_values(tmp_path: Any) -> None:
    raw = '{"message": "token=\\u0061bc", "n": 1}'
    found = one(tmp_path, "{name: r, redact: {pattern: 'token=[^ \"]+', with: '<T>'}}", raw=raw, message="token=abc")
    assert found.loose
    assert found.agrees('{"n":1,"message":"<T>"}')
    assert found.agrees('{"n": 1, "message": "<T>"}')
    assert not found.agrees('{"n": 1, "message": "<T>d"}')
    assert not found.agrees('{"message": "<T>"}')
    assert not found.agrees('{"n": 2, "message": "<T>"}')


def test_redaction_by_kind_looks_at_what_is_left(tmp_path: Any) -> None:
    raw = "mail to someone@example.com now"
    found = one(tmp_path, "{name: r, redact: {kind: email}}", raw=raw)
    assert found.agrees("mail to [redacted] now")
    assert not found.agrees("mail to [redacted] later")
    assert leftovers(found, raw) == ["someone@example.com"]
    assert leftovers(found, "mail to [redacted] now") == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ipv4", "from 10.0.0.11 on"),
        ("ipv6", "from fe80::1:2 on"),
        ("bearer", "Authorization: Bearer abcdefghijklmnopqrst"),
        ("url_password", "http://me:secret@host/"),
        ("aws_key", "key AKIAABCDEFGHIJKLMNOP"),
        ("private_key", "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAxxxxxxxx"),
        ("ray_env_vars", 'env: {"env_vars": {"FOO": "bar"}}'),
    ],
)
def test_leftovers_of_every_kind(tmp_path: Any, kind: str, text: str) -> None:
    found = one(tmp_path, f"{{name: r, redact: {{kind: {kind}}}}}", raw=text)
    assert leftovers(found, text)
    assert not leftovers(found, "nothing to see in std::vector or 1.2.3")


def test_the_runtime_env_agent_prints_no_values(tmp_path: Any) -> None:
    raw = 'created: {"env_vars": {"FOO": "bar"}}, context'
    found = one(tmp_path, component="runtime_env_agent", raw=raw)
    assert found.agrees('created: {"env_vars": {"redacted": "[redacted]"}}, context')
    assert leftovers(found, raw) == ["bar"]
    assert not leftovers(found, 'created: {"env_vars": {"redacted": "[redacted]"}}, context')


def test_a_cut_entry_may_be_cut_elsewhere(tmp_path: Any) -> None:
    found = one(tmp_path, raw="x" * 100 + "y", truncated=True)
    assert found.agrees("x" * 100 + "y")
    assert found.agrees("x" * 90)
    assert not found.agrees("x" * 10)
    assert not found.agrees("x" * 90 + "z")


def test_a_json_line_that_the_server_would_not_take_loses_ends_of_texts_and_nothing_else(tmp_path: Any) -> None:
    texts = {"raw": "head " + "x" * 2000, "message": "x" * 2000}
    found = one(tmp_path, "", "line: json, server: {max_line_size: 3KiB}", **texts)
    whole = json.loads(found.line)
    assert found.metadata["truncated"] == "true"
    cut = {**whole, "truncated": True, "raw": texts["raw"][:700]}
    assert found.agrees(json.dumps(cut))
    for wrong in (whole, {**cut, "raw": "other"}, {**cut, "pid": "1"}, {**cut, "raw": "", "message": ""},
                  {k: v for k, v in cut.items() if k != "pid"}):
        assert not found.agrees(json.dumps(wrong)), wrong
    assert not found.agrees(found.line[:3000])
    assert one(tmp_path, "", "line: json, server: {max_line_size: 8KiB}", **texts).most is None


@pytest.mark.parametrize(
    ("original", "given", "answer"),
    [
        ("a secret b", "a [r] b", True),
        ("a secret b", "[r]", True),
        ("a secret b secret c", "a [r] b [r] c", True),
        ("a secret b", "a secret b", True),
        ("a secret b", "a [r] c", False),
        ("a b", "a [r] b c", False),
        ("aba", "ab[r]ba", False),
        ("a secret b x", "a [r] b", False),
    ],
)
def test_masked(original: str, given: str, answer: bool) -> None:
    assert masked(original, given, ["[r]"]) is answer


def test_what_each_target_shows_in_its_own_way() -> None:
    assert line_key("a\ufffd\ufffdb") == line_key("a\ufffdb") == line_key("a\0b")
    assert line_key('{"a": 1}') != line_key('{"a":1}')
