"""Alerts in a real Loki with its ruler: the rules load as they are rendered, and over synthetic streams those fire that
should, and no other. The interval alone is shortened."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from shipgen.harness import loki
from shipgen.harness.loki import LokiClient
from shipgen.harness.runners import LocalRunner
from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import plan

POLICY = """
version: 1
name: alerts
cluster: prod-a
targets: {vector: {version: "0.57"}}
rotation: {max_size: 1MiB, backups: 1}
verl: {engine_worker: {metrics: {port: 9091}}}
sources:
  ray: {type: ray}
  engine: {type: verl, paths: [/var/log/verl/*.log]}
sinks:
  loki:
    type: loki
    endpoint: "http://loki:3100"
    retention: {keep: 30d, streams: [{labels: {level: debug}, keep: 2d}]}
"""
GOOD = {
    "DISPATCH": ("task_id=1 completed", {"status": "completed"}), "MEM": ("heap usage 40%", {"heap_pct": "40"}),
    "NET": ("session_id=1 opened", {}), "CHECKPOINT": ("task_id=1 saved", {}),
}
BAD = {
    "DISPATCH": ("task_id=1 failed", {"status": "failed"}), "MEM": ("heap usage 89%", {"heap_pct": "89"}),
    "NET": ("session_id=1 timed out", {}), "CHECKPOINT": ("task_id=1 waiting for lock (held by w-2)", {}),
}
_SECOND = 10**9


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What is rendered."""
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(POLICY)
    policy = load([str(path)])
    pipeline = resolve(policy)
    return dict(bundle.of(pipeline, [plan.choose("vector", policy, pipeline)], ["alerts", "dashboard"]).files)


class Ruler:
    """A Loki that evaluates rules."""

    def __init__(self, url: str) -> None:
        self.url = url

    def push(self, labels: dict[str, str], lines: list[tuple[int, str, dict[str, str]]]) -> None:
        """Lines with their time in ns and their metadata."""
        stream = {"job": "alerts", "cluster": "prod-a", **labels}
        body = {"streams": [{"stream": stream, "values": [[str(at), line, metadata] for at, line, metadata in lines]}]}
        request = urllib.request.Request(f"{self.url}/loki/api/v1/push", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        urllib.request.urlopen(request).read()

    def events(self, node: str, event: str, row: str) -> None:
        """Lines of one event, ten a second: `b` is an anomaly, `g` none."""
        began = time.time_ns() - 60 * _SECOND
        lines = []
        for number, kind in enumerate(row):
            text, metadata = (BAD if kind == "b" else GOOD)[event]
            lines.append((began + number * _SECOND // 10, f"[{event}] {text}", {"event": event, **metadata}))
        self.push({"component": "engine_worker", "node": node}, lines)

    def get(self, path: str) -> Any:
        """An answer."""
        with urllib.request.urlopen(f"{self.url}{path}") as answer:
            return json.load(answer)

    def rules(self) -> dict[str, dict[str, Any]]:
        """Rules by name, once each has been evaluated after now."""
        since = time.time() + 1
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            groups = self.get("/prometheus/api/v1/rules")["data"]["groups"]
            found = {rule["name"]: rule for group in groups for rule in group["rules"]}
            if found and all(_seconds(rule["lastEvaluation"]) > since for rule in found.values()):
                return found
            time.sleep(0.5)
        raise TimeoutError("rules are not evaluated")


def _seconds(text: str) -> float:
    from datetime import datetime

    head, _, rest = text.replace("Z", "+00:00").partition(".")
    zone = rest[rest.find("+"):] if "+" in rest else rest[rest.find("-"):] if "-" in rest else ""
    return datetime.fromisoformat(f"{head}{zone}").timestamp()


@pytest.fixture(scope="module")
def ruler(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory,
          request: pytest.FixtureRequest) -> Iterator[Ruler]:
    """A Loki with stock limits and the rules of the policy."""
    if (program := shutil.which("loki")) is None:
        reason = "there is no `loki` on PATH"
        (pytest.fail if request.config.getoption("--require-shippers") else pytest.skip)(reason)
    directory = tmp_path_factory.mktemp("loki")
    rules = directory / "rules" / "fake"
    rules.mkdir(parents=True)
    text = files["alerts/loki.yaml"].decode()
    assert 'interval: "30s"' in text
    (rules / "loki.yaml").write_text(text.replace('interval: "30s"', 'interval: "2s"'))
    with LocalRunner() as runner:
        port = runner.free_port()
        tree = json.loads(loki.config(str(directory), port, runner.free_port()))
        del tree["limits_config"]["max_query_series"]
        tree["ruler"] = {
            "storage": {"type": "local", "local": {"directory": str(directory / "rules")}}, "enable_api": True,
            "rule_path": str(directory / "scratch"), "ring": {"kvstore": {"store": "inmemory"}},
            "poll_interval": "2s",
        }
        overrides = directory / "overrides.yaml"
        overrides.write_bytes(files["retention/loki.yaml"])
        tree["runtime_config"] = {"file": str(overrides), "period": "1s"}
        tree["compactor"] = {"working_directory": str(directory / "compactor"), "retention_enabled": True,
                             "delete_request_store": "filesystem"}
        config = directory / "loki.yaml"
        config.write_text(json.dumps(tree))
        log = (directory / "log").open("wb")
        process = subprocess.Popen([program, f"-config.file={config}"], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            LokiClient(url).wait_ready(alive=lambda: process.poll() is None)
            yield Ruler(url)
        finally:
            process.kill()
            process.wait()
            log.close()


def nodes(rule: dict[str, Any], *states: str) -> set[str]:
    """Nodes for which an alert is in one of some states."""
    return {alert["labels"]["node"] for alert in rule["alerts"] if alert["state"] in states}


ROWS = {
    "four": "bbbb", "five": "bbbbb", "four-four": "bbbbgbbbb", "five-after": "bbgbbbbb", "over": "bbbbbg",
    "none": "g" * 9, "many": "g" + "b" * 700, "apart": "bgbgbgbgbgb",
}
FIRE = {"five", "five-after", "many"}


def test_what_fires(ruler: Ruler) -> None:
    now = time.time_ns()
    for event in GOOD:
        for name, row in ROWS.items():
            ruler.events(f"{event}-{name}", event, row)
    for node, errors in (("calm", 50), ("burst", 51)):
        lines = [(now - 30 * _SECOND + i, f"error {i}", {"file": "raylet.out"}) for i in range(errors)]
        ruler.push({"component": "raylet", "level": "error", "node": node}, lines)
        ruler.push({"component": "raylet", "level": "info", "node": node}, lines * 3)
    for node, minutes in (("awake", 5), ("silent", 20), ("gone", 70)):
        ruler.push({"component": "raylet", "node": node}, [(now - minutes * 60 * _SECOND, "last words", {})])
    # the ring of 2 MiB has to last 600 s: 3495 B/s
    for node, size in (("slow", 1), ("fast", 3)):
        lines = [(now - 60 * _SECOND + i, f"{i} {'x' * 100_000}", {"file": "raylet.out", "session": "s"})
                 for i in range(size * 10)]
        ruler.push({"component": "raylet", "level": "info", "node": node}, lines)

    rules = ruler.rules()
    assert {name: rule["lastError"] for name, rule in rules.items() if rule.get("lastError")} == {}
    assert {rule["health"] for rule in rules.values()} == {"ok"}
    for event in GOOD:
        fired = nodes(rules[f"Verl{event.title()}Anomalies"], "firing")
        assert fired == {f"{event}-{name}" for name in FIRE}, event
    assert nodes(rules["ErrorBurst"], "firing") == {"burst"}
    assert nodes(rules["NodeSilent"], "firing") == {"silent"}
    assert nodes(rules["RingTooSmall"], "pending", "firing") == {"fast"}
    (alert,) = (a for a in rules["VerlNetAnomalies"]["alerts"] if a["labels"]["node"] == "NET-five")
    assert alert["annotations"]["look_closer"].endswith("--node NET-five --yes")


def test_loki_takes_the_times_for_which_streams_are_kept(ruler: Ruler) -> None:
    asks = urllib.request.Request(f"{ruler.url}/config/tenant/v1/limits", headers={"X-Scope-OrgID": "fake"})
    with urllib.request.urlopen(asks) as answer:
        taken = yaml.safe_load(answer)["retention_stream"]
    assert [(one["selector"], one["priority"]) for one in taken] == [
        ('{job="alerts"}', 1), ('{job="alerts", level="debug"}', 2)]
    assert [str(one["period"]) for one in taken] == ["30d", "2d"]


def test_the_dashboard_asks_what_loki_answers(ruler: Ruler, files: dict[str, bytes]) -> None:
    board = yaml.safe_load(files["dashboard/loki.json"])
    ruler.events("board", "MEM", "gb")
    asked = [t["expr"] for p in board["panels"] for t in p["targets"] if t["datasource"]["type"] == "loki"]
    assert len(asked) > 5
    answered = 0
    for expr in asked:
        asks = {"query": expr.replace("$__auto", "10m"), "start": time.time_ns() - 3600 * _SECOND}
        data = ruler.get(f"/loki/api/v1/query_range?{urllib.parse.urlencode(asks)}")["data"]
        answered += bool(data["result"])
    assert answered > 5

