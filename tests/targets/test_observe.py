"""Alerts, dashboard and scrape jobs: what they ask for is what the sink has, and nothing else is asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from making import HOSTILE, LOKI, judged, policy, relay, resolved

from shipgen.cli import main
from shipgen.diagnostics import UsageError
from shipgen.rendering import bundle as bundles
from shipgen.targets import base, deploy, observe

VERL = {"engine": {"type": "verl", "paths": ["/var/log/verl/*.log"]}}
METRICS = {"verl": {"engine_worker": {"metrics": {"port": 9091}}}}


def files(target: str = "vector", **parts: Any) -> dict[str, Any]:
    """The files, parsed, by path."""
    parts = {"targets": {target: {"version": base.get(target).versions[-1]}}, **relay(target), **parts}
    choice = judged(policy(**parts), target)
    assert choice.renders, choice.diagnostics
    found = bundles.of(resolved(policy(**parts)), [choice], observe.KINDS).files
    return {path: yaml.safe_load(data) for path, data in found.items()
            if path.startswith(("alerts/", "dashboard/", "prometheus/"))}


def rules(found: dict[str, Any], file: str = "alerts/loki.yaml") -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in found[file]["groups"][0]["rules"]}


def test_rules_of_verl() -> None:
    found = rules(files(sources=VERL, rotation={}))
    assert set(found) == {"VerlDispatchAnomalies", "VerlMemAnomalies", "VerlNetAnomalies", "VerlCheckpointAnomalies",
                          "ErrorBurst", "NodeSilent", "RingTooSmall"}
    assert found["VerlNetAnomalies"]["annotations"]["look_closer"].endswith("--node {{ $labels.node }} --yes")
    assert found["RingTooSmall"]["expr"].endswith(f"> {3 * 2**30 / 600:.0f}")
    assert "Verl" not in str(rules(files()))
    assert "RingTooSmall" not in rules(files())


@pytest.mark.parametrize(("sink", "absent"), [
    ({"metadata": ["file"]}, {"VerlNetAnomalies", "VerlMemAnomalies"}),
    ({"metadata": ["event", "file"]}, {"VerlMemAnomalies", "VerlDispatchAnomalies"}),
    ({"labels": {"fields": ["component", "level"]}, "metadata": ["event"]}, {"NodeSilent", "RingTooSmall"}),
    ({"labels": {"fields": ["node"]}, "metadata": ["event"]}, {"ErrorBurst"}),
])
def test_what_a_sink_does_not_get_is_not_asked_for(sink: dict[str, Any], absent: set[str]) -> None:
    found = rules(files(sources=VERL, rotation={}, sinks={"loki": {**LOKI, **sink}}))
    assert not absent & set(found)
    assert found


def test_labels_are_asked_for_as_labels_and_the_rest_as_metadata() -> None:
    labels = {"static": {"job": 'a"b'}, "fields": ["level"]}
    sink = {**LOKI, "labels": labels, "metadata": ["node", "component", "event"]}
    expr = rules(files(sources=VERL, sinks={"loki": sink}))["ErrorBurst"]["expr"]
    assert '{job="a\\"b", level=~"error|fatal"}' in expr
    net = rules(files(sources=VERL, sinks={"loki": sink}))["VerlNetAnomalies"]["expr"]
    assert '{job="a\\"b"} | component="engine_worker" | event="NET" |~' in net


@pytest.mark.parametrize("target", base.implemented())
def test_each_shipper_is_watched(target: str) -> None:
    found = files(target, **METRICS)
    shipper = "vector" if target == "filebeat" else target
    names = {rule["alert"] for rule in found["alerts/prometheus.yaml"]["groups"][0]["rules"]}
    assert {"VerlWorkerDown", "ShipperDown", "ShipperFails"} <= names
    jobs = {job["job_name"]: job for job in found["prometheus/scrape.yaml"]["scrape_configs"]}
    assert set(jobs) == {"verl_worker", f"shipgen-t-{shipper}"}
    assert jobs["verl_worker"]["relabel_configs"][0]["replacement"] == "$1:9091"
    assert jobs["verl_worker"]["scrape_interval"] == "10s"
    panels = found["dashboard/loki.json"]["panels"]
    assert any(panel["title"] == f"{shipper}: records" for panel in panels)


def test_the_dashboard_has_room_for_each_panel() -> None:
    board = files(sources=VERL)["dashboard/loki.json"]
    panels = board["panels"]
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}
    assert len(places) == len({p["id"] for p in panels}) == len(panels)
    assert {"VeRL events", "Top tasks", "Tasks by status", "Heap", "Errors", "Loki: thrown away"} <= {
        p["title"] for p in panels}
    assert {p["datasource"]["uid"] for p in panels} == {"${loki}", "${prometheus}"}


@pytest.mark.parametrize("text", [t for t in HOSTILE if t.isprintable() and t.strip()])
def test_hostile_text_stays_text(text: str) -> None:
    sink = {**LOKI, "labels": {"static": {"job": text}}}
    found = files(sinks={"loki": sink})
    assert f"job={json.dumps(text, ensure_ascii=False)}" in rules(found)["ErrorBurst"]["expr"]


def test_without_loki_there_is_nothing_to_ask() -> None:
    data = policy(sinks={"c": {"type": "console"}})
    for kind in ("alerts", "dashboard"):
        with pytest.raises(UsageError, match="no sink of type loki"):
            bundles.of(resolved(data), [judged(data)], [kind])
    assert bundles.of(resolved(data), [judged(data)], ["prometheus"]).files["prometheus/scrape.yaml"]


def test_on_the_command_line(tmp_path: Path) -> None:
    file, out = tmp_path / "p.yaml", tmp_path / "out"
    file.write_text(json.dumps(policy()))
    run = CliRunner().invoke(main, ["render", str(file), "--with", "alerts,prometheus", "-o", str(out)])
    assert run.exit_code == 0, run.output
    assert json.loads((out / "MANIFEST.json").read_text())["with"] == ["alerts", "prometheus"]
    assert CliRunner().invoke(main, ["check", str(file), "-o", str(out)]).exit_code == 0
    assert deploy.kinds(["dashboard,systemd"]) == ("systemd", "dashboard")


def test_promtool_takes_them(tmp_path: Path) -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("there is no `promtool` on PATH")
    for target in base.implemented():
        found = files(target, **METRICS)
        (tmp_path / "rules.yaml").write_text(json.dumps(found["alerts/prometheus.yaml"]))
        (tmp_path / "prometheus.yaml").write_text(json.dumps(found["prometheus/scrape.yaml"]))
        shipper = "vector" if target == "filebeat" else target
        labels = {"severity": "critical", "shipper": shipper, "job": f"shipgen-t-{shipper}", "node": "n"}
        series = 'up{{job="{}", node="n"}}'.format(labels["job"])
        fires = {"exp_labels": labels, "exp_annotations": {"summary": f"n: {shipper} gives no metrics"}}
        asked = [{"eval_time": "4m", "alertname": "ShipperDown", "exp_alerts": []},
                 {"eval_time": "8m", "alertname": "ShipperDown", "exp_alerts": [fires]}]
        case = {"interval": "1m", "input_series": [{"series": series, "values": "1 0x10"}], "alert_rule_test": asked}
        (tmp_path / "tests.yaml").write_text(json.dumps({"rule_files": ["rules.yaml"], "tests": [case]}))
        for argv in (["check", "rules", "rules.yaml"], ["check", "config", "--syntax-only", "prometheus.yaml"],
                     ["test", "rules", "tests.yaml"]):
            run = subprocess.run([promtool, *argv], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stdout + run.stderr
