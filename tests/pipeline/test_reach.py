"""What reaches a sink, and how many streams it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from shipgen.catalog import ray
from shipgen.catalog.formats import LEVEL_ORDER
from shipgen.pipeline import Pipeline, reach, resolve
from shipgen.policy import load

LEVELS = len(LEVEL_ORDER) + 1  # and none
COMPONENTS = {f.component for f in ray.FAMILIES if f.default}
ON_WORKERS = {f.component for f in ray.FAMILIES if f.default and not f.head_only}


def pipeline(
    tmp_path: Path, sink: dict[str, Any] | None = None, rules: list[Any] | None = None, **parts: Any
) -> Pipeline:
    policy = {
        "version": 1,
        "name": "test",
        "cluster": "c",
        "sources": {"ray": {"type": "ray"}},
        "sinks": {"loki": {"type": "loki", "endpoint": "http://loki:3100", **(sink or {})}},
        "parsing": {"rules": rules or []},
        **parts,
    }
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy), "utf-8")
    return resolve(load([str(path)]))


def most(of: Pipeline, **options: bool) -> int:
    return reach.most_streams(reach.streams(of, of.sinks[0]), **options)


def labels(*fields: str, **more: Any) -> dict[str, Any]:
    return {"labels": {"fields": list(fields), **more}}


def test_default_labels(tmp_path: Path) -> None:
    of = pipeline(tmp_path)
    assert most(of) == len(COMPONENTS) * LEVELS
    assert most(of, head=False) == len(ON_WORKERS) * LEVELS
    (one,) = reach.streams(of, of.sinks[0])
    assert one.count == most(of)
    assert one.unbounded == ()


@pytest.mark.parametrize(
    ("sink", "rules", "expected"),
    [
        ({"when": {"level": {"at_least": "info"}}}, [], len(COMPONENTS) * 5),
        ({"when": {"level": {"below": "info"}}}, [], len(COMPONENTS) * 2),
        ({"when": {"level": "error"}}, [], len(COMPONENTS)),
        ({"when": {"level": {"exists": True}}}, [], len(COMPONENTS) * 6),
        ({"when": {"component": ["worker", "raylet"]}}, [], 2 * LEVELS),
        ({"when": {"any": [{"component": "raylet"}, {"component": "worker", "level": "error"}]}}, [], LEVELS + 1),
        ({"when": {"not": {"component": "raylet"}}}, [], (len(COMPONENTS) - 1) * LEVELS),
        ({"when": {"message": {"matches": "x"}}}, [], len(COMPONENTS) * LEVELS),
        ({}, [{"name": "a", "when": {"component": "raylet"}, "drop": True}], (len(COMPONENTS) - 1) * LEVELS),
        ({}, [{"name": "a", "when": {"level": {"below": "warn"}}, "drop": True}], len(COMPONENTS) * 4),
        (
            {},
            [{"name": "a", "when": {"component": "raylet", "level": {"below": "info"}}, "drop": True}],
            len(COMPONENTS) * LEVELS - 2,
        ),
        ({}, [{"name": "a", "when": {"component": "raylet"}, "sample": 0.5}], len(COMPONENTS) * LEVELS),
        (labels("level"), [], LEVELS),
        (labels("cluster", "source"), [], 1),
        (labels("level", "session"), [], LEVELS),
        (labels("stream"), [], 3),
        (labels("component", "stream"), [], len(COMPONENTS) - 2 + 2 + 3),  # worker: out, err; io_worker: or none
        (labels("cluster", "time_source"), [], 3),
        ({**labels("cluster", "time_source"), "late": "keep"}, [], 2),
        (labels("cluster", "parse_error"), [], 2),
        (labels("cluster", "team"), [{"name": "t", "add": {"team": "a"}}], 1),
        (labels("cluster", "team"), [{"name": "t", "when": {"level": "info"}, "add": {"team": "a"}}], 2),
        (
            labels("component", "team"),
            [
                {"name": "t", "when": {"component": "raylet"}, "add": {"team": "a"}},
                {"name": "u", "when": {"component": "raylet", "level": "info"}, "add": {"team": "b"}},
            ],
            len(COMPONENTS) + 1,
        ),
    ],
)
def test_streams(tmp_path: Path, sink: dict[str, Any], rules: list[Any], expected: int) -> None:
    assert most(pipeline(tmp_path, sink, rules)) == expected


def test_streams_of_several_sources_are_told_apart_by_labels_only(tmp_path: Path) -> None:
    sources = {
        "ray": {"type": "ray", "components": ["raylet"]},
        "text": {"type": "file", "paths": ["/a.log"]},
        "json": {"type": "file", "paths": ["/b.log"], "format": "json"},
        "regex": {"type": "file", "paths": ["/c.log"], "format": {"regex": "^(?P<level>[A-Z]+) (?P<message>.*)$"}},
    }
    assert most(pipeline(tmp_path, labels("level"), sources=sources)) == LEVELS
    assert most(pipeline(tmp_path, labels("source", "level"), sources=sources)) == 3 * LEVELS + 1
    assert most(pipeline(tmp_path, labels("component", "level"), sources=sources)) == 2 * LEVELS


def test_a_label_without_bound_is_named(tmp_path: Path) -> None:
    of = pipeline(tmp_path, labels("component", "pid", allow_high_cardinality=True))
    assert {f for s in reach.streams(of, of.sinks[0]) for f in s.unbounded} == {"pid"}


def test_many_labels_are_not_enumerated(tmp_path: Path) -> None:
    fields = [f"f{i}" for i in range(10)]
    rules = [
        {"name": f"r{i}-{v}", "when": {"message": {"matches": v}}, "add": {f: v}}
        for i, f in enumerate(fields)
        for v in "abcd"
    ]
    assert most(pipeline(tmp_path, labels("level", "node", *fields), rules)) == LEVELS * 5**10


def test_what_keeps_a_part_out_is_named(tmp_path: Path) -> None:
    rules = [{"name": "no-worker", "when": {"component": "worker"}, "drop": True}]
    when = {"component": ["worker", "raylet", "serve"], "level": {"at_least": "info"}}
    of = pipeline(tmp_path, {"when": when}, rules)
    stopped = {a.part.name: a.stopped_by for a in reach.arrivals(of, of.sinks[0])}
    assert stopped["worker"] == "rule no-worker"
    assert stopped["monitor"] == "its `when`"
    assert stopped["raylet"] == ""


def test_a_level_that_cannot_be_keeps_everything_out(tmp_path: Path) -> None:
    of = pipeline(
        tmp_path,
        {"when": {"level": {"at_least": "warn"}}},
        [{"name": "loud", "when": {"level": {"at_least": "warn"}}, "drop": True}],
    )
    assert {a.stopped_by for a in reach.arrivals(of, of.sinks[0])} == {"what is asked of the level"}
    assert most(of) == 0


def test_rules_that_meet_nothing(tmp_path: Path) -> None:
    rules = [
        {"name": "never", "when": {"component": "serve"}, "drop": True},
        {"name": "sometimes", "when": {"component": "raylet"}, "drop": True},
    ]
    of = pipeline(tmp_path, rules=rules, sources={"ray": {"type": "ray", "components": ["raylet", "worker"]}})
    assert [reach.applies(r, of, of.sinks[0]) for r in of.rules] == [False, True]
