"""A policy resolved, above all: which lines of a Ray source are repeats of lines that the same sinks get anyway."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conditions import holds

from shipgen.catalog.ray import FAMILIES
from shipgen.pipeline import Pipeline, resolve
from shipgen.pipeline.conditions import ALWAYS, All, Is, Not
from shipgen.pipeline.model import Multiline, SecretRef, TimeField, Twins
from shipgen.policy import load

LOKI = {"type": "loki", "endpoint": "http://loki:3100"}
FILE = {"type": "file", "path": "/var/out.jsonl"}


def policy(**parts: Any) -> dict[str, Any]:
    return {"version": 1, "name": "ray", "sources": {"ray": {"type": "ray"}}, "sinks": {"loki": LOKI}, **parts}


def resolved(data: Mapping[str, Any]) -> Pipeline:
    return resolve(load(["-"], io.StringIO(json.dumps(data))))


def twins(pipeline: Pipeline, source: str = "ray") -> tuple[str, ...]:
    of = next(s.twins for s in pipeline.sources if s.name == source)
    return tuple(name for name in Twins.__slots__ if getattr(of, name))


EVERY = ("serve", "cpp", "driver")


def with_source(**settings: Any) -> dict[str, Any]:
    return policy(sources={"ray": {"type": "ray", **settings}})


def with_sinks(**whens: Any) -> dict[str, Any]:
    return policy(sinks={name: {**LOKI, **({"when": when} if when else {})} for name, when in whens.items()})


def with_rule(**rule: Any) -> dict[str, Any]:
    return policy(parsing={"rules": [{"name": "r", **rule}]})


@pytest.mark.parametrize(("data", "expected"), [
    (policy(), EVERY),
    # what is selected
    (with_source(components=["all"]), ()),
    (with_source(components=["all"], exclude_components=["events"]), ()),
    (with_source(components=["worker", "serve"]), ("serve", "driver")),
    (with_source(components=["worker", "core_worker"]), ("cpp", "driver")),
    (with_source(components=["job_driver"]), ()),
    (with_source(exclude_components=["serve"]), ("cpp", "driver")),
    (with_source(exclude_components=["worker"]), ("serve", "cpp")),
    # another source's files are another source's lines
    (policy(sources={"ray": {"type": "ray", "components": ["worker"]}, "b": {"type": "ray", "components": ["serve"]}}),
     ("driver",)),
    # sinks that judge both copies alike
    (with_sinks(a={"level": {"at_least": "info"}}), EVERY),
    (with_sinks(a={"message": {"matches": "x"}}, b=None), EVERY),
    (with_sinks(a={"source": "ray"}), EVERY),
    (with_sinks(a={"component": ["worker", "serve", "core_worker", "job_driver"]}), EVERY),
    (with_sinks(a={"not": {"component": "raylet"}}), EVERY),
    # sinks that do not: a repeat is cut only if it would reach none that the original does not reach
    (with_sinks(a={"component": "worker"}), ("driver",)),
    (with_sinks(a={"component": "serve"}), EVERY),
    (with_sinks(a=None, b={"component": "serve"}), EVERY),
    (with_sinks(a=None, b={"component": "worker"}), ("driver",)),
    (with_sinks(a={"component": ["worker", "serve"]}), ("serve", "driver")),
    (with_sinks(a={"component": "job_driver"}), ("serve", "cpp")),
    (with_sinks(a={"component": ["worker", "ray_client_server"]}), ("driver",)),
    (with_sinks(a={"component": ["ray_client_server"]}), ("serve", "cpp")),
    (with_sinks(a={"any": [{"component": "worker"}, {"level": "error"}]}), ()),
    (with_sinks(a={"file": {"matches": "^worker"}}), ()),
    (with_sinks(a={"stream": "err"}), ()),
    (with_sinks(a={"pid": {"exists": True}}), ()),
    # a sink that gets nothing from this source
    (policy(sources={"ray": {"type": "ray"}, "f": {"type": "file", "paths": ["/a"]}},
            sinks={"a": {**LOKI, "from": ["ray"]}, "b": {**FILE, "from": ["f"], "when": {"component": "serve"}}}),
     EVERY),
    # rules
    (with_rule(when={"component": "raylet"}, drop=True), EVERY),
    (with_rule(when={"component": "serve"}, drop=True), ("cpp", "driver")),
    (with_rule(when={"component": "worker"}, drop=True), ("serve", "cpp")),
    (with_rule(when={"component": "job_driver"}, drop=True), EVERY),
    (with_rule(when={"component": "worker"}, sample=0.5), ()),
    (with_rule(when={"component": "job_driver"}, limit={"records": 1, "per": "1s"}), ("serve", "cpp")),
    (with_rule(when={"component": "worker"}, add={"x": "y"}), EVERY),
    (with_rule(when={"component": "worker"}, redact={"kind": "email"}), EVERY),
    (with_rule(when={"level": "debug"}, drop=True), EVERY),
    (with_rule(when={"source": "ray", "component": ["worker", "serve"]}, drop=True), ("serve", "cpp")),
    (policy(sinks={"a": LOKI, "b": FILE}, parsing={"rules": [
        {"name": "r", "when": {"component": "serve"}, "drop": True, "sinks": ["b"]}]}), ("cpp", "driver")),
    (policy(sinks={"a": {**LOKI, "when": {"component": "serve"}}, "b": FILE}, parsing={"rules": [
        {"name": "r", "when": {"component": "serve"}, "drop": True, "sinks": ["a"]}]}), EVERY),
    (policy(parsing={"rules": [{"name": "a", "when": {"component": "worker"}, "add": {"x": "y"}},
                               {"name": "b", "when": {"x": "y"}, "drop": True}]}), ()),
])
def test_twins(data: Mapping[str, Any], expected: tuple[str, ...]) -> None:
    assert twins(resolved(data)) == expected


FIELDS = {"component": ["worker", "serve", "core_worker", "job_driver", "raylet"], "level": ["info", "error"],
          "source": ["ray", "other"], "stream": ["out", "err"], "message": ["x", "y"]}
LEAF = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda f: st.lists(st.sampled_from(FIELDS[f]), min_size=1, max_size=3, unique=True).map(lambda v: {f: v}))
WHEN = st.recursive(LEAF | st.just({"level": {"at_least": "error"}}), lambda inner: st.one_of(
    inner.map(lambda w: {"not": w}), st.lists(inner, min_size=1, max_size=2).map(lambda ws: {"any": ws}),
    st.lists(inner, min_size=1, max_size=2).map(lambda ws: {"all": ws})), max_leaves=3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.none() | WHEN, min_size=1, max_size=2),
    st.lists(st.tuples(st.none() | WHEN, st.sampled_from(["drop", "add"])), max_size=2),
    st.fixed_dictionaries({}, optional={"level": st.sampled_from(FIELDS["level"]), "message": st.just("x")}),
)
def test_what_is_cut_reaches_every_sink_as_its_original(
    whens: list[Any], rules: list[tuple[Any, str]], record: dict[str, str]
) -> None:
    actions = {"drop": {"drop": True}, "add": {"add": {"x": "y"}}}
    data = policy(
        sources={"ray": {"type": "ray"}, "other": {"type": "ray", "components": ["raylet"]}},
        sinks={f"s{i}": {**FILE, **({"when": w} if w else {})} for i, w in enumerate(whens)},
        parsing={"rules": [{"name": f"r{i}", **({"when": w} if w else {}), **actions[a]}
                           for i, (w, a) in enumerate(rules)]},
    )
    pipeline = resolved(data)

    def fate(component: str, stream: Mapping[str, str]) -> set[str]:
        whole = {**record, "source": "ray", "component": component, **stream}
        dropped = any(r.action == "drop" and holds(r.when, whole) for r in pipeline.rules)
        return set() if dropped else {s.name for s in pipeline.sinks if holds(s.when, whole)}

    found = twins(pipeline)
    for name, original in (("serve", "serve"), ("cpp", "core_worker")):
        if name in found:
            assert fate("worker", {"stream": "err"}) <= fate(original, {})
    if "driver" in found:
        assert fate("job_driver", {}) <= fate("worker", {"stream": "out"})


def test_sources() -> None:
    pipeline = resolved(policy(
        collector={"root": "/host"}, ray={"temp_dir": "/tmp/ray/"},
        sources={
            "ray": {"type": "ray", "ignore_older": "7d", "start": "end"},
            "own": {"type": "file", "paths": ["/data/*/a.log"], "exclude": ["/data/tmp/a.log"],
                    "format": {"regex": "^(?P<t>[0-9]+) (?P<message>.*)$", "time": {"field": "t", "layout": "epoch_s"}},
                    "multiline": {"start": "^[0-9]", "max_lines": 3, "timeout": "2s"}},
            "plain": {"type": "file", "paths": ["/b"]},
        },
    ))
    own, plain, of_ray = pipeline.sources
    assert (of_ray.name, of_ray.base, of_ray.ignore_older, of_ray.start) == ("ray", "/host/tmp/ray", 604_800_000, "end")
    assert {f.name for f in of_ray.families} == {f.name for f in FAMILIES if f.default}
    assert (own.paths, own.exclude) == (("/host/data/*/a.log",), ("/host/data/tmp/a.log",))
    assert (own.format, own.time, own.multiline) == ("regex", TimeField("t", "epoch_s"), Multiline("^[0-9]", 3, 2000))
    assert (plain.format, plain.regex, plain.time, plain.multiline, plain.twins) == ("text", "", None, None, Twins())


def test_rules() -> None:
    pipeline = resolved(policy(parsing={"rules": [
        {"name": "half", "sample": 0.5},
        {"name": "some", "sample": {"rate": 0.25, "by": "pid"}, "sinks": ["loki"]},
        {"name": "flood", "when": {"not": {"level": {"below": "info"}}}, "limit": {"records": 9, "per": "1m"}},
    ]}))
    built_in, half, some, flood = pipeline.rules
    assert (built_in.name, built_in.action, built_in.index) == ("runtime-env-vars", "redact", -1)
    assert built_in.when == All((Is("source", ("ray",)), Is("component", ("runtime_env_agent",))))
    assert (half.options, half.when, half.sinks, half.index) == ({"rate": 0.5}, ALWAYS, None, 0)
    assert (some.options, some.sinks, some.index) == ({"rate": 0.25, "by": "pid"}, frozenset({"loki"}), 1)
    assert isinstance(flood.when, Not)
    assert flood.options["per"] == 60_000
    assert pipeline.rules_for(pipeline.sinks[0]) == pipeline.rules


def test_no_built_in_rule_where_the_agent_is_not_read() -> None:
    assert resolved(with_source(exclude_components=["runtime_env_agent"])).rules == ()


def test_secrets_are_references_wherever_they_stand() -> None:
    auth = {"basic": {"user": {"env": "U"}, "password": {"file": "/run/p"}}}
    pipeline = resolved(policy(collector={"node": {"env": "NODE"}}, sinks={"loki": {**LOKI, "auth": auth}}))
    assert pipeline.sinks[0].options["auth"] == {"basic": {"user": SecretRef("env", "U"),
                                                           "password": SecretRef("file", "/run/p")}}
    assert pipeline.collector.node == SecretRef("env", "NODE")
    assert resolved(policy()).collector.node is None
    assert resolved(policy(collector={"node": "n1"})).collector.node == "n1"


def test_sinks_take_all_sources_unless_told() -> None:
    sources = {"a": {"type": "file", "paths": ["/a"]}, "b": {"type": "file", "paths": ["/b"]}}
    pipeline = resolved(policy(sources=sources, sinks={"x": FILE, "y": {**FILE, "from": ["b"]}}))
    assert [s.sources for s in pipeline.sinks] == [("a", "b"), ("b",)]
    assert all(not {"type", "from", "when"} & set(s.options) for s in pipeline.sinks)


def test_key_order_means_nothing() -> None:
    ray = {"system_level": "warn", "version": "2.60"}
    data = policy(sinks={"b": LOKI, "a": FILE}, ray=ray, rotation={"backups": 2})

    def turned(value: Any) -> Any:
        return {k: turned(value[k]) for k in reversed(value)} if isinstance(value, dict) else value

    assert resolved(turned(data)) == resolved(data)
