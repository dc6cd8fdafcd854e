"""Checks that hold whatever the target: what each finds, where it says it stands, and what it leaves alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from shipgen.diagnostics import CODES, Diagnostic, Severity
from shipgen.pipeline import resolve, rotation
from shipgen.pipeline.checks import check
from shipgen.policy import load

EXAMPLES = Path(__file__).parents[2] / "examples"
LOKI = {"type": "loki", "endpoint": "http://loki:3100"}
FILE = {"type": "file", "path": "/var/out.jsonl"}
RAY = {"type": "ray"}
BY_RAY = {"by": "ray", "owner": "ray:ray"}
BY_LOGROTATE = {"by": "logrotate", "max_size": "256MiB", "owner": "ray:ray"}


def policy(**parts: Any) -> dict[str, Any]:
    return {"version": 1, "name": "ray", "sources": {"ray": RAY}, "sinks": {"loki": LOKI}, "rotation": BY_RAY, **parts}


AGES = "temp-dir-ages"
"""Said of every policy with Ray's own directory; has tests of its own."""


def findings(data: dict[str, Any]) -> list[Diagnostic]:
    loaded = load(["-"], io.StringIO(json.dumps({k: v for k, v in data.items() if v is not None}, indent=1)))
    found = [one for one in check(resolve(loaded), loaded) if one.code != AGES]
    for one in found:
        assert one.code in CODES
        assert one.place is not None
        assert one.severity is not Severity.ERROR
        assert (one.code, one.path) not in {(d.code, d.path) for d in loaded.diagnostics}, "said twice"
    return found


def said(data: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one.severity.value, one.code, one.path) for one in findings(data)]


def test_nothing_to_say() -> None:
    assert findings(policy()) == []
    assert findings(policy(rotation=BY_LOGROTATE, ray={"version": "2.60.1"})) == []
    assert findings(policy(rotation=None, sources={"f": {"type": "file", "paths": ["/a"]}})) == []


@pytest.mark.parametrize(("temp_dir", "said"), [
    ("/tmp/ray", True), ("/var/tmp/ray", True), ("/tmp", True), ("/tmpfs/ray", False), ("/data/tmp/ray", False),
])
def test_where_files_age(temp_dir: str, said: bool) -> None:
    data = policy(ray={"temp_dir": temp_dir}, collector={"state_dir": "/s"})
    loaded = load(["-"], io.StringIO(json.dumps(data)))
    found = [one for one in check(resolve(loaded), loaded) if one.code == AGES]
    assert [(one.path, one.severity) for one in found] == [("ray.temp_dir", Severity.NOTE)] * said
    assert AGES in CODES


# -- repeats in the driver's files --

REPEATS = "repeats"


@pytest.mark.parametrize(("ray", "source", "path"), [
    ({"driver": {"forward": True, "prefix": False}}, RAY, "ray.driver.prefix"),
    ({"driver": {"prefix": False}}, RAY, "ray.driver.prefix"),
    ({"driver": {"prefix": False}, "application_format": "json"}, RAY, "ray.driver.prefix"),
    ({"application_format": "json"}, RAY, "ray.application_format"),
    ({"application_format": "text", "driver": {"forward": True, "prefix": True}}, RAY, "ray.application_format"),
    ({"driver": {"prefix": False}}, {**RAY, "components": ["job_driver", "worker"]}, "ray.driver.prefix"),
    ({"driver": {"forward": True, "prefix": True}}, RAY, None),
    ({"driver": {"forward": True}}, RAY, None),
    ({}, RAY, None),
    ({"driver": {"forward": False, "prefix": False}, "application_format": "json"}, RAY, None),
    ({"driver": {"prefix": False}}, {**RAY, "exclude_components": ["job_driver"]}, None),
    ({"driver": {"prefix": False}}, {**RAY, "components": ["job_driver"]}, None),
])
def test_repeats_that_nothing_tells_apart(ray: dict[str, Any], source: dict[str, Any], path: str | None) -> None:
    assert said(policy(ray=ray, sources={"ray": source})) == ([("warning", REPEATS, path)] if path else [])


# -- Serve --

@pytest.mark.parametrize(("to_stderr", "components", "warned"), [
    (False, ["worker", "raylet"], True), (True, ["worker"], False), (None, ["worker"], False),
    (False, ["worker", "serve"], False), (False, ["raylet"], False), (False, ["default"], False),
])
def test_serve_lines_that_no_source_reads(to_stderr: bool | None, components: list[str], warned: bool) -> None:
    ray = {} if to_stderr is None else {"serve_to_stderr": to_stderr}
    found = said(policy(ray=ray, sources={"ray": {**RAY, "components": components}}))
    assert found == ([("warning", "unread-lines", "ray.serve_to_stderr")] if warned else [])


# -- rotation --

def test_without_rotation_files_grow() -> None:
    found = findings(policy(rotation=None))
    assert [(d.severity, d.code, d.path) for d in found] == [(Severity.NOTE, "unbounded-growth", "sources.ray")]
    assert all(name in found[0].text for name in ("raylet", "gcs_server", "worker", "job_driver"))
    assert "dashboard" not in found[0].text


def test_logrotate_is_told_only_of_what_a_source_reads() -> None:
    found = findings(policy(rotation=BY_LOGROTATE, sources={"ray": {**RAY, "components": ["raylet"]}}))
    assert [(d.code, d.path) for d in found] == [("unbounded-growth", "rotation.by")]
    assert "worker" in found[0].text
    assert said(policy(sources={"ray": {**RAY, "components": ["raylet"]}})) == []


@pytest.mark.parametrize(("rotation", "expected"), [
    ({"by": "ray"}, [("note", "logrotate-owner", "rotation")]),
    ({"by": "ray", "owner": "ray"}, [("note", "logrotate-owner", "rotation.owner")]),
    ({"by": "logrotate", "max_size": "1MiB"}, [("warning", "logrotate-owner", "rotation")]),
    ({"by": "logrotate", "owner": "ray:ray"}, [("note", "ray-rotates-too", "rotation.max_size")]),
    ({"by": "logrotate", "owner": "ray:ray", "max_size": "511MiB"}, []),
])
def test_logrotate(rotation: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert said(policy(rotation=rotation)) == expected


def test_logrotate_needs_no_owner_where_it_has_nothing_to_do() -> None:
    only = {"ray": {**RAY, "components": ["raylet", "worker"]}}
    assert said(policy(rotation={"by": "ray"}, sources=only)) == []


def test_budget_says_its_arithmetic() -> None:
    only = {"ray": {**RAY, "components": ["raylet", "worker"]}}
    settings = {"by": "logrotate", "max_size": "100MiB", "backups": 4, "owner": "a:b"}
    # raylet.out, raylet.err, and of one worker .out and .err
    at_limit = policy(rotation={**settings, "disk_budget": "2000MiB"}, sources=only)
    assert "over-budget" not in {d.code for d in findings(at_limit)}
    over = policy(rotation={**settings, "disk_budget": "1999MiB"}, sources=only)
    found = next(d for d in findings(over) if d.code == "over-budget")
    assert (found.severity, found.path) == (Severity.WARNING, "rotation.disk_budget")
    assert "100MiB x 5 x 4 = 1.953GiB, over 1.952GiB" in found.text
    assert "each once" in found.text


def test_budget_counts_all_that_ray_rotates() -> None:
    found = findings(policy(rotation={**BY_RAY, "disk_budget": "1GiB"}))
    assert [d.code for d in found] == ["over-budget"]
    only = {"ray": {**RAY, "components": ["raylet"]}}
    fewer = findings(policy(rotation={**BY_RAY, "disk_budget": "1GiB"}, sources=only))
    assert [d.code for d in fewer] == ["over-budget"], "Ray rotates the files that nobody reads, too"


@pytest.mark.parametrize(("rotation", "level", "path"), [
    ({**BY_RAY, "expected_rate": "5MiB/s"}, "info", None),
    ({**BY_RAY, "expected_rate": "6MiB/s"}, None, "rotation.expected_rate"),
    ({**BY_RAY, "expected_rate": "5MiB/s", "downtime": "11m"}, None, "rotation.expected_rate"),
    (BY_RAY, "debug", "verl.engine_worker.level"),
    (BY_RAY, "warn", None),
    ({**BY_RAY, "max_size": "2GiB"}, "debug", None),
])
def test_a_ring_that_turns_over_while_a_shipper_is_down(
    rotation: dict[str, Any], level: str | None, path: str | None
) -> None:
    verl = {"engine_worker": {"level": level}} if level else {}
    data = policy(rotation=rotation, verl=verl, sources={"e": {"type": "verl", "paths": ["/a"]}})
    assert [one for one in said(data) if one[0] == "warning"] == (
        [("warning", "ring-too-small", path)] if path else [])


def test_verl_without_rotation_grows() -> None:
    data = policy(rotation=None, sources={"e": {"type": "verl", "paths": ["/a"]}})
    assert said(data) == [("note", "unbounded-growth", "sources.e")]


@pytest.mark.parametrize(("number", "text"), [
    (1, "1B"), (1000, "1000B"), (1536, "1.5KiB"), (64 * 2**20, "64MiB"), (3 * 2**30, "3GiB"), (5000 * 2**40, "5000TiB"),
])
def test_sizes(number: int, text: str) -> None:
    assert rotation.size(number) == text


# -- the version of Ray --

@pytest.mark.parametrize(("version", "noted"), [("2.60", False), ("2.60.3", False), ("2.6", True), ("2.9", True),
                                                ("2.61", True), ("3.60", True)])
def test_version(version: str, noted: bool) -> None:
    found = said(policy(ray={"version": version}))
    assert found == ([("note", "other-ray-version", "ray.version")] if noted else [])


# -- fields --

def with_rule(to: dict[str, Any], /, **rule: Any) -> dict[str, Any]:
    return policy(sinks=to, parsing={"rules": [{"name": "r", **rule}]})


FIELD = ("warning", "field-reaches-no-sink", "parsing.rules[0].add.team")
TEAM: dict[str, Any] = {"add": {"team": "x"}}
OTHER = {"f": {"type": "file", "paths": ["/a"]}}


def test_an_added_field_that_the_policy_checks_found_is_not_said_again() -> None:
    assert said(with_rule({"loki": LOKI}, **TEAM)) == []


@pytest.mark.parametrize("sink", [
    FILE, {**LOKI, "line": "json"}, {**LOKI, "metadata": ["team"]},
    {**LOKI, "labels": {"fields": ["component", "team"], "static": {"a": "b"}}},
])
def test_an_added_field_that_arrives(sink: dict[str, Any]) -> None:
    assert said(with_rule({"a": LOKI, "b": sink}, **TEAM)) == []


def test_an_added_field_whose_records_go_elsewhere() -> None:
    sinks = {"a": {**LOKI, "from": ["ray"]}, "b": {**FILE, "from": ["f"]}}
    data = with_rule(sinks, when={"source": "ray"}, **TEAM) | {"sources": {"ray": RAY, **OTHER}}
    assert said(data) == [FIELD]
    assert "rule r adds `team`" in findings(data)[0].text
    assert "a, b" in findings(data)[0].text
    data["parsing"]["rules"][0]["when"] = {"source": "f"}
    assert said(data) == []


def test_a_sample_rate_that_does_not_arrive_is_noted() -> None:
    rate = [("note", "field-reaches-no-sink", "parsing.rules[0].sample")]
    assert said(with_rule({"loki": LOKI}, sample=0.5)) == rate
    assert said(with_rule({"loki": LOKI, "f": FILE}, sample=0.5, sinks=["loki"])) == rate
    assert said(with_rule({"loki": LOKI, "f": FILE}, sample=0.5)) == []


def groups(**more: Any) -> dict[str, Any]:
    form = {"regex": "^(?P<t>[0-9]+) (?P<level>[A-Z]+) (?P<step>[0-9]+) (?P<pid>[0-9]+) (?P<message>.*)$",
            "time": {"field": "t", "layout": "epoch_s"}}
    return policy(sources={"f": {"type": "file", "paths": ["/a"], "format": form}}, rotation=None, **more)


@pytest.mark.parametrize(("more", "warned"), [
    ({}, True),
    ({"sinks": {"a": LOKI, "b": FILE}}, False),
    ({"sinks": {"loki": {**LOKI, "metadata": ["step", "pid"]}}}, False),
    ({"sinks": {"loki": {**LOKI, "when": {"step": {"exists": True}}}}}, False),
    ({"parsing": {"rules": [{"name": "r", "when": {"not": {"step": "0"}}, "drop": True}]}}, False),
    ({"parsing": {"rules": [{"name": "r", "limit": {"records": 1, "per": "1s", "by": ["step"]}}]}}, False),
])
def test_a_group_that_nobody_gets_or_reads(more: dict[str, Any], warned: bool) -> None:
    found = findings(groups(**more))
    expected = [("field-reaches-no-sink", "sources.f.format.regex")] if warned else []
    assert [(d.code, d.path) for d in found] == expected
    assert all("`step`" in d.text for d in found)


def test_a_source_that_no_sink_takes() -> None:
    data = policy(sources={"ray": RAY, **OTHER}, sinks={"loki": {**LOKI, "from": ["ray"]}})
    assert said(data) == [("warning", "unread-lines", "sources.f")]


# -- places --

def test_findings_stand_where_they_are_written() -> None:
    found = {d.path: d.place for d in findings(policy(ray={"version": "2.9"}, rotation={"by": "ray"}))}
    lines = json.dumps(policy(ray={"version": "2.9"}, rotation={"by": "ray"}), indent=1).splitlines()
    version, whole = found["ray.version"], found["rotation"]
    assert version
    assert whole
    assert '"version": "2.9"' in lines[version.line - 1]
    assert version.column > 1
    assert whole.line > 1


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.name)
def test_examples_are_valid(example: Path) -> None:
    loaded = load([str(example)])
    assert all(d.severity is not Severity.ERROR for d in check(resolve(loaded), loaded))
