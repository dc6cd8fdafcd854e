"""Semantic checks, as far as the policies of ``negative/`` don't show them; and what messages never repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shipgen.diagnostics import PolicyError
from shipgen.policy import checks, load, model
from shipgen.policy.loading import SECRET_KEYS
from shipgen.policy.wording import nearest

SECRET = "hunter2-S3cr3t"


def policy(**parts: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "ray",
        "sources": {"ray": {"type": "ray"}},
        "sinks": {"loki": {"type": "loki", "endpoint": "http://loki:3100"}},
        **parts,
    }


def found(tmp_path: Path, data: Any) -> list[tuple[str, str]]:
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(data), "utf-8")
    try:
        diagnostics = load([str(path)]).diagnostics
    except PolicyError as error:
        diagnostics = error.diagnostics
    for one in diagnostics:
        assert SECRET not in one.message
    return [(one.code, one.path) for one in diagnostics]


def rules(*given: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return policy(parsing={"rules": [{"name": f"r{n}", **rule} for n, rule in enumerate(given)]}, **parts)


# --- secrets ---


@pytest.mark.parametrize("sink", sorted(model.SINKS.options))
@pytest.mark.parametrize(
    "shape", [SECRET, [SECRET], {SECRET: "x"}, {"x": SECRET}, {"env": SECRET}, {"file": SECRET}, 5, None]
)
@pytest.mark.parametrize("deep", range(4))
def test_no_message_repeats_what_stands_below_auth(tmp_path: Path, sink: str, shape: Any, deep: int) -> None:
    value = shape
    for name in ["bearer", "basic", "password"][:deep]:
        value = {name: value, SECRET + "x": shape}
    parts = {**dict.fromkeys(sorted(SECRET_KEYS), value), "headers": {"X-Name": value}}
    found(tmp_path, policy(sinks={"s": {"type": sink, **parts}}))


@pytest.mark.parametrize(
    "value",
    [f"https://me:{SECRET}@loki", f"https://{SECRET}@loki", f"https://:{SECRET}@loki", f"https://loki/?token={SECRET}",
     f"https://loki/#{SECRET}@", f"me:{SECRET}@loki", f" https://a:{SECRET}@b", f"ftp://a:{SECRET}@b"],
)  # fmt: skip
def test_no_message_repeats_the_password_of_a_url(tmp_path: Path, value: str) -> None:
    for parts in (
        {"type": "loki", "endpoint": value},
        {"type": "http", "endpoint": value},
        {"type": "s3", "bucket": "logs", "endpoint": value},
        {"type": "elasticsearch", "endpoints": [value]},
        {"type": "kafka", "topic": "t", "brokers": [value]},
    ):
        assert found(tmp_path, policy(sinks={"s": parts}))
    if value.startswith("https://me:"):
        assert ("literal-secret", "cluster") in found(tmp_path, policy(cluster=value))
        assert ("literal-secret", "relay.address") in found(
            tmp_path, policy(relay={"target": "vector", "address": value})
        )


def test_headers_that_carry_secrets_take_references(tmp_path: Path) -> None:
    for name in ("Authorization", "X-Api-Key", "Cookie", "X-Auth-Token", "Proxy-Authorization", "X-SECRET"):
        sink = {"type": "http", "endpoint": "http://h", "headers": {name: SECRET}}
        assert found(tmp_path, policy(sinks={"h": sink})) == [("literal-secret", f"sinks.h.headers.{name}")]
        sink = {"type": "http", "endpoint": "http://h", "headers": {name: {"env": "TOKEN"}}}
        assert found(tmp_path, policy(sinks={"h": sink})) == []


# --- suggestions ---


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("componets", ["components", "type"], "components"),
        ("maxSize", ["max_size"], "max_size"),
        ("MAX-SIZE", ["max_size", "max_wait"], "max_size"),
        ("zzz", ["components"], ""),
        ("", ["a"], ""),
        ("x" * 100_000, ["a"], ""),
    ],
)
def test_nearest(name: str, known: list[str], expected: str) -> None:
    assert nearest(name, known) == expected


def test_every_key_is_suggested_for_a_slip_of_it(tmp_path: Path) -> None:
    for name in model.POLICY.keys:
        slip = name[:-1] + name[-1] * 2
        path = tmp_path / "policy.yaml"
        path.write_text(json.dumps(policy(**{slip: {}})), "utf-8")
        with pytest.raises(PolicyError, match=f"unknown key `{slip}`; did you mean `{name}`"):
            load([str(path)])


# --- fields ---


def test_fields_of_earlier_rules_groups_and_events_are_known(tmp_path: Path) -> None:
    drop = {"when": {"team": "x"}, "drop": True}
    add = {"add": {"team": "x"}}
    line = {"sinks": {"loki": {"type": "loki", "endpoint": "http://loki:3100", "line": "json"}}}
    assert found(tmp_path, rules(add, drop, **line)) == []
    assert found(tmp_path, rules(drop, add, **line)) == [("unknown-field", "parsing.rules[0].when.team")]
    source = {"type": "file", "paths": ["/a"], "format": {"regex": "^(?P<team>.*)"}}
    assert found(tmp_path, rules(drop, sources={"a": source})) == []
    verl = {"engine": {"type": "verl", "paths": ["/a"]}}
    assert found(tmp_path, rules(drop, sources=verl)) == [], "VeRL's events may have any key"
    slip = {"when": {"componennt": "x"}, "drop": True}
    assert found(tmp_path, rules(slip, sources=verl)) == [("unknown-field", "parsing.rules[0].when.componennt")]


def test_a_field_that_reaches_no_sink(tmp_path: Path) -> None:
    add = {"add": {"team": "x"}}
    warned = [("field-reaches-no-sink", "parsing.rules[0].add.team")]
    loki = {"type": "loki", "endpoint": "http://loki:3100"}
    console = {"type": "console"}
    assert found(tmp_path, rules(add)) == warned
    assert found(tmp_path, rules(add, sinks={"loki": {**loki, "metadata": ["team"]}})) == []
    assert found(tmp_path, rules(add, sinks={"loki": {**loki, "labels": {"fields": ["node", "team"]}}})) == []
    assert found(tmp_path, rules(add, sinks={"loki": {**loki, "line": "json"}})) == []
    assert found(tmp_path, rules(add, sinks={"loki": loki, "out": console})) == []
    assert found(tmp_path, rules({**add, "sinks": ["loki"]}, sinks={"loki": loki, "out": console})) == warned


def test_values_of_known_fields(tmp_path: Path) -> None:
    good: list[dict[str, Any]] = [{"component": c} for c in (*model.COMPONENTS, "engine_worker")]
    good += [{"level": level} for level in model.LEVELS] + [{"stream": "err"}, {"truncated": True}, {"pid": [1, 2]}]
    assert found(tmp_path, rules({"when": {"any": good}, "drop": True})) == []
    wrong: list[dict[str, Any]] = [
        {"truncated": "true"},
        {"time": "2026"},
        {"extra": "x"},
        {"stream": "stdout"},
        {"time_source": "file"},
    ]
    for test in wrong:
        (problem,) = found(tmp_path, rules({"when": test, "drop": True}))
        assert problem[1] == f"parsing.rules[0].when.{next(iter(test))}"


def test_selectors_have_the_components(tmp_path: Path) -> None:
    known = checks.selectors()
    assert {"default", "all", *model.COMPONENTS} <= known
    for name in known - {"default", "all"}:
        sources = {"ray": {"type": "ray", "components": [name], "exclude_components": []}}
        assert found(tmp_path, policy(sources=sources)) == []


# --- labels, paths, zones ---


def test_labels_that_are_always_there(tmp_path: Path) -> None:
    def labels(fields: list[str], static: dict[str, str] | None = None, **parts: Any) -> list[tuple[str, str]]:
        sink = {"type": "loki", "endpoint": "http://l", "labels": {"static": static or {}, "fields": fields}}
        return found(tmp_path, policy(sinks={"l": sink}, **parts))

    assert labels(["node"]) == []
    assert labels(["source"]) == []
    assert labels([], {"job": "x"}) == []
    assert labels(["cluster"], cluster="a") == []
    assert labels(["session", "event"]) == [("no-certain-label", "sinks.l.labels")]
    assert labels([f"l{n}" for n in range(13)], {"job": "x"})[0][0] == "unknown-field"
    assert ("too-many-labels", "sinks.l.labels") in labels([f"l{n}" for n in range(14)], {"job": "x"})


@pytest.mark.parametrize(
    "field", [f for f in model.RECORD_FIELDS if f.endswith(("_id", "_name"))] + ["pid", "file", "raw"]
)
def test_labels_with_unbounded_values(tmp_path: Path, field: str) -> None:
    labels: dict[str, Any] = {"fields": ["node", field]}
    sink = {"type": "loki", "endpoint": "http://l", "labels": labels}
    assert found(tmp_path, policy(sinks={"l": sink})) == [("high-cardinality-label", "sinks.l.labels.fields[1]")]
    labels["allow_high_cardinality"] = True
    assert found(tmp_path, policy(sinks={"l": sink})) == []


@pytest.mark.parametrize(
    ("state_dir", "temp_dir", "wrong"),
    [
        ("/tmp/ray", "/tmp/ray", True),
        ("/tmp/ray/", "/tmp/ray", True),
        ("//tmp//ray/x", "/tmp/ray/", True),
        ("/tmp/x/../ray/x", "/tmp/ray", True),
        ("/anything", "/", True),
        ("/tmp/ray-state", "/tmp/ray", False),
        ("/tmp", "/tmp/ray", False),
    ],
)
def test_the_state_stays_out_of_rays_tree(tmp_path: Path, state_dir: str, temp_dir: str, wrong: bool) -> None:
    data = policy(collector={"state_dir": state_dir}, ray={"temp_dir": temp_dir})
    assert found(tmp_path, data) == ([("output-in-ray-tree", "collector.state_dir")] if wrong else [])


@pytest.mark.parametrize("zone", ["local", "UTC", "Europe/Berlin", "Etc/GMT+5", "America/Argentina/Ushuaia"])
def test_zones(tmp_path: Path, zone: str) -> None:
    assert found(tmp_path, policy(parsing={"timezone": zone})) == []


@pytest.mark.parametrize(
    "zone", ["", "Local", "../etc/passwd", "/etc/localtime", "America", "posix/UTC", "Mars/Base", "CEST"]
)
def test_no_zones(tmp_path: Path, zone: str) -> None:
    assert [path for _, path in found(tmp_path, policy(parsing={"timezone": zone}))] == ["parsing.timezone"]


@pytest.mark.parametrize(
    "name", ["log_to_stderr", "env", "RAY_LOG_TO_STDERR", "ray_log_to_stderr", "RAY_BACKEND_LOG_LEVEL"]
)
def test_what_would_empty_the_files_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(policy(ray={name: 1})), "utf-8")
    with pytest.raises(PolicyError, match=r"RAY_LOG_TO_STDERR.*sources \(ray\)"):
        load([str(path)])
