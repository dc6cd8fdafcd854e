"""What `shipgen diff` says that a change of policy does."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from making import FILE, LOKI, loaded
from test_leaves import Leaf, policies

from shipgen.diagnostics import CODES, PolicyError, Severity
from shipgen.pipeline import resolve
from shipgen.policy import model
from shipgen.rendering import bundle
from shipgen.rendering.review import Review, as_json, as_text, review
from shipgen.targets import plan
from shipgen.targets.changes import KINDS, Change, Side, changes

TARGETS = ("vector", "fluentbit", "fluentd", "promtail")
BASE: dict[str, Any] = {
    "version": 1, "name": "t", "targets": {"vector": {"version": "0.57"}},
    "sources": {"ray": {"type": "ray"}, "app": FILE}, "sinks": {"loki": LOKI},
}


def side(data: dict[str, Any], targets: tuple[str, ...] = ()) -> Side:
    one = loaded(data)
    pipeline = resolve(one)
    return Side(one, pipeline, tuple(plan.choose(t, one, pipeline) for t in plan.names(targets, one)))


def between(old: dict[str, Any], new: dict[str, Any], *targets: str) -> Review:
    return review(side(old, targets), side(new, targets))


def of(old: dict[str, Any], new: dict[str, Any], *targets: str) -> list[Change]:
    return changes(side(old, targets), side(new, targets))


def changed(**parts: Any) -> dict[str, Any]:
    """The base with some parts merged in; None takes one out."""

    def merged(one: Any, over: Any) -> Any:
        if not isinstance(one, dict) or not isinstance(over, dict):
            return over
        both = {k: merged(one.get(k), v) for k, v in over.items()}
        return {k: v for k, v in {**one, **both}.items() if v is not None}

    return dict(merged(copy.deepcopy(BASE), parts))


RULE = {"name": "quiet", "when": {"component": "raylet", "message": {"matches": "heartbeat"}}, "drop": True}
DROP = {"name": "dash", "when": {"component": "dashboard"}, "drop": True}
ALL = "from ray, all of it: "

SAID: list[tuple[dict[str, Any], str]] = [
    # the policy
    ({"cluster": "a"}, "policy  setting: `cluster` is `a`, was not set"),
    ({"name": "u"}, "policy  renamed: `t` is `u` now; offsets and buffers are kept"),
    ({"collector": {"discover_every": "9s"}}, "policy  setting: `collector.discover_every` is 9s, was 5s"),
    # sources
    ({"sources": {"app": None}}, "source app fewer records: removed: it read `/var/log/app/*.log`"),
    ({"sources": {"b": {**FILE, "paths": ["/b"]}}}, "source b more records: added: reads `/b`"),
    ({"sources": {"app": {"paths": ["/b"]}}}, "source app more records: reads `/b` as well, from their beginning"),
    ({"sources": {"ray": {"exclude_components": ["monitor"]}}}, "source ray fewer records: no longer reads monitor"),
    ({"sources": {"ray": {"exclude_components": ["serve"]}}},
     "source ray more records: Serve's headers in a worker's .err, which serve/*.log has too, are no longer dropped"),
    ({"sources": {"app": {"format": {"regex": "(?P<shard>.)"}}}}, "source app fields: `shard` as well"),
    ({"sources": {"app": {"max_line": "1KiB"}}}, "source app setting: `sources.app.max_line` is 1KiB, was 256KiB"),
    # sinks: records
    ({"sinks": {"loki": {"when": {"level": {"at_least": "info"}}}}},
     f"sink loki fewer records: {ALL}records of level trace and debug no longer arrive"),
    ({"sinks": {"loki": {"when": {"component": "raylet"}}}},
     "sink loki fewer records: from ray, all but raylet: nothing arrives any more: its `when` keeps it out"),
    ({"sinks": {"loki": {"when": {"component": "raylet"}}}},
     'sink loki other records: gets records where `component` is "raylet"; before, all records'),
    ({"sinks": {"loki": {"from": ["ray"]}}},
     "sink loki fewer records: from app: nothing arrives any more: no longer sent here"),
    ({"parsing": {"rules": [DROP]}},
     "sink loki fewer records: from ray, dashboard: nothing arrives any more: rule dash keeps it out"),
    ({"parsing": {"rules": [RULE]}}, "sink loki fewer records: rule quiet is new here: it throws away records where"),
    ({"parsing": {"rules": [{"name": "mail", "redact": {"kind": "email"}}]}},
     "sink loki fields: rule mail is new here: it replaces what is of kind `email`"),
    ({"parsing": {"rules": [{**DROP, "when": {"source": "app", "component": "raylet"}}]}},
     "policy  setting: rule dash is new; it meets no record on its way to a sink"),
    ({"sinks": {"more": {"type": "console"}}}, "sink more more records: added: console, which gets all records of"),
    # sinks: streams
    ({"sinks": {"loki": {"labels": {"fields": ["component"]}}}}, "sink loki new streams: label `level` is gone"),
    ({"sinks": {"loki": {"labels": {"static": {"job": "x"}}}}}, 'sink loki new streams: label `job` is "x", was "t"'),
    ({"cluster": "a"}, "sink loki new streams: label `cluster` is new"),
    ({"name": "u"}, 'sink loki new streams: label `job` is "u", was "t"'),
    # sinks: fields and settings
    ({"sinks": {"loki": {"metadata": ["pid"]}}}, "sink loki fields: delivers `source`, `session`, `file`, `stream`,"),
    ({"sinks": {"loki": {"line": "json"}}}, "sink loki setting: `sinks.loki.line` is `json`, was `raw`"),
    ({"sinks": {"loki": {"endpoint": "http://new"}}},
     "sink loki setting: `sinks.loki.endpoint` is `http://new`, was `http://loki:3100`"),
    ({"sinks": {"loki": {"batch": {"max_wait": "5s"}}}},
     "sink loki setting: `sinks.loki.batch.max_wait` is 5s, was 1s"),
    # Ray
    ({"ray": {"system_level": "warn"}},
     "ray  environment: `RAY_BACKEND_LOG_LEVEL=warning` in ray/ray.env (was not set)"),
    ({"ray": {"application_format": "json"}},
     "ray  environment: `RAY_LOGGING_CONFIG_ENCODING=JSON` in ray/driver.env (was not set): for every driver"),
    ({"rotation": {"by": "ray"}}, "rotation  setting: files of raylet, gcs_server, worker,"),
    # targets
    ({"targets": {"vector": {"version": "0.56"}}}, "target vector target: rendered for 0.56, before for 0.57"),
    ({"targets": {"fluentd": {"version": "1.19"}}}, "target fluentd target: rendered now, for 1.19"),
]


@pytest.mark.parametrize(("parts", "said"), SAID)
def test_what_is_said(parts: dict[str, Any], said: str) -> None:
    found = [f"{c.about} {c.name} {c.kind}: {c.text}" for c in of(BASE, changed(**parts))]
    assert [line for line in found if line.startswith(said)], "\n".join(found)


@pytest.mark.parametrize("parts", [p for p, _ in SAID])
def test_there_and_back(parts: dict[str, Any]) -> None:
    """Whatever is a change one way is one the other way; nothing is a change of itself."""
    new = changed(**parts)
    assert of(BASE, new)
    assert of(new, BASE)
    assert not of(new, new)


def test_a_policy_written_otherwise_is_no_change() -> None:
    other = json.loads(json.dumps(BASE, sort_keys=True))
    other["collector"] = {"state_dir": "/var/lib/shipgen"}
    other["sinks"]["loki"] |= {"batch": {"max_bytes": "1024KiB"}, "from": ["app", "ray"]}
    it = between(BASE, other, *TARGETS)
    assert not it.differs, as_text(it)
    assert it.summary == "the two policies mean the same, and so do their files"


def test_a_rename_is_known_for_one() -> None:
    new = changed(sources={"ray": None, "cluster": {"type": "ray", "exclude_components": ["monitor"]}})
    said = [(c.about, c.name, c.kind) for c in of(BASE, new)]
    assert ("source", "cluster", "renamed") in said
    assert ("source", "cluster", "read again") in said
    assert not [name for about, name, _ in said if (about, name) == ("source", "ray")]
    sink = changed(sinks={"loki": None, "main": {**LOKI, "tenant": "x"}})
    assert [(c.name, c.kind) for c in of(BASE, sink)] == [("main", "renamed"), ("main", "setting")]


# --- offsets ---

RENAMED = changed(sources={"ray": None, "cluster": {"type": "ray"}})


@pytest.mark.parametrize(("old", "new", "again"), [
    (BASE, changed(name="u"), {"vector", "fluentbit", "fluentd", "promtail"}),
    (BASE, changed(collector={"state_dir": "/x"}), {"vector", "fluentbit", "fluentd", "promtail"}),
    (BASE, RENAMED, {"vector", "fluentbit", "fluentd"}),  # Promtail knows files by their path alone
    (BASE, changed(sources={"ray": {"exclude_components": ["monitor"]}}), set()),
    (changed(sources={"ray": {"exclude_components": ["monitor"]}}), BASE, set()),
    (BASE, changed(sources={"app": None}), set()),
    (BASE, changed(parsing={"rules": [RULE]}, cluster="c"), set()),
    (changed(rotation={"by": "ray"}), changed(rotation={"by": "logrotate"}), {"vector"}),
    (BASE, changed(rotation={"by": "ray"}), {"vector"}),
])
def test_who_reads_again(old: dict[str, Any], new: dict[str, Any], again: set[str]) -> None:
    found = [c for c in of(old, new, *TARGETS) if c.kind in ("read again", "lines skipped")]
    assert {t for t in TARGETS for c in found if t in c.text.partition(":")[0]} == again


def test_files_followed_from_their_end_are_not_read_again() -> None:
    old, new = (changed(sources={"app": None, name: {**FILE, "start": "end"}}) for name in ("one", "two"))
    (lost,) = [c for c in of(old, new) if c.kind in ("read again", "lines skipped")]
    assert lost.kind == "lines skipped"
    assert "what is written while the shipper restarts is not delivered" in lost.text


def test_the_fingerprint_said_to_change_is_the_one_that_is_rendered() -> None:
    """Vector's offsets are under what its files are known by: where that changes in the bundle, it is said."""
    old, new = (side(changed(rotation={"by": by})) for by in ("ray", "logrotate"))
    known_by = [
        {id_.partition(":")[2]: s["fingerprint"] for id_, s in yaml.safe_load(
            bundle.of(one.pipeline, one.choices).files["vector/vector.yaml"])["sources"].items() if "fingerprint" in s}
        for one in (old, new)
    ]
    differ = {family for family in known_by[0] if known_by[0][family] != known_by[1][family]}
    (change,) = [c for c in changes(old, new) if c.kind == "read again"]
    assert set(change.text.partition(" by ")[0].replace(" and ", ", ").split(", ")) == differ


# --- nothing goes untold ---


@pytest.mark.parametrize("leaf", model.leaves(), ids=".".join)
def test_no_leaf_changes_in_silence(leaf: Leaf) -> None:
    one, other, _ = policies(leaf, "vector")
    try:
        sides = side(one), side(other)
    except PolicyError:
        pytest.skip("one of the two values is refused")
    assert changes(*sides)


SECRET = "hunter2-S3CR3T"


@pytest.mark.parametrize("auth", [
    {"bearer": {"env": "TOKEN"}}, {"basic": {"user": {"env": "U"}, "password": {"file": "/p"}}},
])
def test_no_word_of_what_may_be_secret(auth: dict[str, Any]) -> None:
    old = changed(sinks={"web": {"type": "http", "endpoint": "http://h", "headers": {"X-Key": SECRET}, "auth": auth}})
    new = changed(sinks={"web": {"type": "http", "endpoint": "http://h", "headers": {"X-Key": f"{SECRET}2"}}})
    for it in (between(old, new), between(new, old)):
        assert SECRET not in as_text(it, diff=False)
        assert SECRET not in json.dumps([c.text for c in it.changes])
        assert "`sinks.web.headers.X-Key` is another one now" in " ".join(as_text(it).split())


# --- the page ---


def test_the_page_and_the_document() -> None:
    it = between(BASE, changed(sinks={"loki": {"labels": {"fields": ["node"]}}}))
    text = as_text(it)
    assert text.startswith("2 changes (new streams); 1 file of the bundle\n\nSink loki\n---------\n- new streams: ")
    assert "- vector/vector.yaml: modified, +" in text
    assert "\n--- a/vector/vector.yaml\n+++ b/vector/vector.yaml\n@@ " in text
    assert "@@" not in as_text(it, diff=False)
    document = json.loads(as_json(it, []))
    assert document["changes"][0] | {"text": ""} == {
        "about": "sink", "name": "loki", "kind": "new streams", "severity": "warning", "path": "sinks.loki.labels",
        "text": ""}
    assert [(f["path"], f["status"]) for f in document["files"]] == [("vector/vector.yaml", "modified")]


def test_what_is_lost_weighs_more() -> None:
    it = between(BASE, changed(name="u", sinks={"loki": {"when": {"level": "info"}}}))
    assert [d.severity for d in it.diagnostics() if d.code == "policy-change"] == [Severity.NOTE] * 2
    assert {d.code for d in it.diagnostics() if d.severity is Severity.WARNING} == {
        "rereads-files", "new-streams", "fewer-records"}
    assert all(code in CODES for code, _ in KINDS.values())
    assert it.summary.startswith(f"{len(it.changes)} changes (read again, fewer records, new streams); ")
