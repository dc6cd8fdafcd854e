"""Agents, a real Kafka, an aggregator, a real Loki: the record that arrives is the one that arrives without the hop."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import broker
import pytest
from policies import TREES
from receivers.web import LinesServer

from shipgen.harness import report
from shipgen.harness.runners import LocalRunner, ShipperHandle, TargetRun
from shipgen.harness.verify import Report, Stage, StaticTree, verify
from shipgen.pipeline import Pipeline, resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import aggregator, base, plan

POLICY: dict[str, Any] = {
    "version": 1, "name": "e2e", "cluster": "test", "parsing": {"timezone": "UTC"}, "sources": {"ray": {"type": "ray"}},
    "sinks": {"loki": {"type": "loki", "endpoint": "http://loki.invalid:3100"}},
}
AGENTS = [name for name in base.implemented() if name != "promtail"]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[broker.Broker]:
    if why := broker.missing():
        pytest.skip(why)
    for program in ("loki", "vector"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no `{program}` on PATH")
    listed = subprocess.run(["vector", "list"], capture_output=True, text=True, check=False).stdout
    if "kafka" not in listed.partition("Sinks:")[0]:
        pytest.skip("this Vector has no source kafka")
    with broker.Broker(tmp_path_factory.mktemp("kafka")) as one:
        yield one


class Behind:
    """A recorded tree, with an aggregator that runs before the agent does."""

    def __init__(self, tree: Path) -> None:
        self.tree = StaticTree(tree)
        self.name = self.tree.name
        self.handle: ShipperHandle | None = None

    def before(self, stage: Stage) -> None:
        self.tree.before(stage)
        self.start(stage)

    def during(self, stage: Stage) -> None:
        self.tree.during(stage)

    def truth(self, stage: Stage) -> Path:
        return self.tree.truth(stage)

    def start(self, stage: Stage) -> None:
        state = stage.run.state / stage.pipeline.name / aggregator.NAME
        state.mkdir(parents=True, exist_ok=True)
        argv = ("vector", "--config", str(stage.run.bundle / aggregator.CONFIG))
        self.handle = stage.runner.start_shipper(TargetRun(
            aggregator.NAME, argv, "", stage.run.bundle, stage.run.state, stage.root, {"TZ": "UTC"},
            ready="Vector has started"))


class Killed(Behind):
    """The aggregator is killed as soon as something has arrived, and started again."""

    def during(self, stage: Stage) -> None:
        end = time.monotonic() + 60
        while not stage.client.received() and time.monotonic() < end:
            time.sleep(0.05)
        assert self.handle is not None
        self.handle.kill()
        self.start(stage)


def verified(policy: dict[str, Any], target: str, scenario: Behind, tmp_path: Path) -> Report:
    """A policy through a target and the aggregator, on a tree; compared in Loki with section 5."""
    runner = LocalRunner()
    file = tmp_path / "policy.yaml"
    relay: dict[str, Any] = {}
    if target == "filebeat":
        relay = {"relay": {"target": "vector", "address": f"127.0.0.1:{runner.free_port()}"}}
    file.write_text(json.dumps({**policy, **relay, "targets": {target: {"version": base.get(target).versions[-1]}}}))
    loaded = load([str(file)])
    pipeline = resolve(loaded)
    choice = plan.choose(target, loaded, pipeline)
    assert choice.target is not None
    assert choice.renders, choice.diagnostics

    def render(here: Pipeline) -> dict[str, bytes]:
        files = dict(bundle.of(here, [choice]).files)
        elsewhere = replace(here, collector=replace(here.collector, metrics_port=runner.free_port()))
        files[aggregator.CONFIG] = bundle.of(elsewhere, [choice]).files[aggregator.CONFIG]
        return files

    agent: Any = choice.target
    return verify(pipeline, render, agent, choice.version, scenario, runner, keep=tmp_path / "kept")


def hop(kafka: broker.Broker, topic: str, **parts: Any) -> dict[str, Any]:
    return {**POLICY, "topology": {"via": "kafka", "brokers": [kafka.address], "topic": topic, "group": topic,
                                   "batch": {"max_wait": "200ms"}, **parts}}


@pytest.mark.parametrize("tree", ["text", "json"])
@pytest.mark.parametrize("target", AGENTS)
def test_the_same_record_arrives(kafka: broker.Broker, target: str, tree: str, tmp_path: Path) -> None:
    if shutil.which(base.get(target).binary) is None:
        pytest.skip(f"there is no `{base.get(target).binary}` on PATH")
    found = verified(hop(kafka, f"same-{target}-{tree}"), target, Behind(TREES / tree), tmp_path)
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected > 0


def test_nothing_is_lost_with_the_aggregator(kafka: broker.Broker, tmp_path: Path) -> None:
    found = verified(hop(kafka, "killed"), "vector", Killed(TREES / "text"), tmp_path)
    result = found.sinks["loki"]
    assert (result.lost, result.wrong, result.extra) == (0, 0, 0), report.written(found, "text")
    print(report.written(found, "text"))


def test_rules_and_sources_find_their_sinks(kafka: broker.Broker, tmp_path: Path) -> None:
    """Rules for all sinks run in the agent, others in the aggregator; a sink gets its sources only."""
    node = tmp_path / "node"
    for name in ("a", "b"):
        (node / "var/log").mkdir(parents=True, exist_ok=True)
        (node / f"var/log/{name}.log").write_text("one x@example.com\ntwo\n")
    runner = LocalRunner()
    with LinesServer() as only_a, LinesServer() as everything, runner:
        policy = {
            **hop(kafka, "rules"), "targets": {"vector": {"version": "0.57"}},
            "collector": {"root": str(node), "state_dir": str(tmp_path / "state"),
                          "metrics": {"port": runner.free_port()}},
            "sources": {n: {"type": "file", "paths": [f"/var/log/{n}.log"]} for n in ("a", "b")},
            "parsing": {"rules": [
                {"name": "all", "add": {"team": "rl"}},
                {"name": "some", "redact": {"kind": "email"}, "sinks": ["a"]},
                {"name": "last", "add": {"seen": "late"}},
            ]},
            "sinks": {
                "a": {"type": "http", "endpoint": only_a.url("/logs"), "from": ["a"], "batch": {"max_wait": "200ms"}},
                "all": {"type": "http", "endpoint": everything.url("/logs"), "batch": {"max_wait": "200ms"}},
            },
        }
        file = tmp_path / "policy.yaml"
        file.write_text(json.dumps(policy))
        loaded = load([str(file)])
        pipeline = resolve(loaded)
        choice = plan.choose("vector", loaded, pipeline)
        place = tmp_path / "bundle"
        bundle.write(bundle.of(pipeline, [choice]), place)
        config = place / aggregator.CONFIG
        port = policy["collector"]["metrics"]["port"]
        config.write_text(config.read_text().replace(f":{port}", f":{runner.free_port()}"))
        for name, path in ((aggregator.NAME, config), ("vector", place / "vector/vector.yaml")):
            (tmp_path / "state/e2e" / name).mkdir(parents=True)
            runner.start_shipper(TargetRun(name, ("vector", "--config", str(path)), "", place, tmp_path / "state", node,
                                           {"TZ": "UTC"}, ready="Vector has started"))
        _settle(everything, 4)
        _settle(only_a, 2)
        assert sorted((r["source"], r["message"], r["team"], r["seen"]) for r in everything.records) == sorted(
            (s, m, "rl", "late") for s in ("a", "b") for m in ("one x@example.com", "two"))
        assert sorted((r["source"], r["message"]) for r in only_a.records) == [("a", "one [redacted]"), ("a", "two")]
        assert {r["node"] for r in everything.records} == {socket.gethostname()}


def _settle(server: LinesServer, count: int) -> None:
    end = time.monotonic() + 60
    while server.count() < count and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(1)
