"""The recorded trees, live files and policies of many kinds through a real Fluent Bit into a real Loki."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
import test_vector_live as live
import test_vector_policies as others
from policies import POLICY, TREES, Run, run_of

from shipgen.harness import report
from shipgen.harness.replay import copy_tree
from shipgen.harness.verify import Render, Stage, StaticTree
from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import plan


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Verify a policy on Fluent Bit: a recorded tree by its name, or a scenario."""
    return run_of("fluentbit", request, tmp_path)


def test_live_files(run: Run) -> None:
    life = live.Life()
    found = run(life)
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected == life.lines.count


def test_killed_while_files_turn(run: Run) -> None:
    """SIGKILL: the entry that was open in a file is lost, and no more; repeats are allowed."""
    life = live.Life(kill=True)
    found = run(life)
    verdict = found.sinks["loki"]
    assert verdict.wrong == verdict.extra == 0, report.written(found, "text")
    assert verdict.lost <= len(live.RINGS + live.MOVED), report.written(found, "text")
    assert verdict.duplicated <= life.lines.count // 2, report.written(found, "text")


def test_files_of_other_sources(run: Run, tmp_path: Path) -> None:
    node = tmp_path / "tree"
    copy_tree(TREES / "text-worker-node", node / "tmp" / "ray")
    for job in ("a", "tmp-1"):
        (node / "data" / "jobs" / job).mkdir(parents=True)
        lines = [f"2026-12-01 05:36:{n:02},{n:03} INFO step {n} of {job}\n  and more" for n in range(20)]
        (node / "data" / "jobs" / job / "train.log").write_text("\n".join(["before any start", *lines, ""]))
    (node / "var" / "log" / "app").mkdir(parents=True)
    (node / "var" / "log" / "app" / "x.log").write_text("".join(f"line {n}\n" for n in range(30)))
    found = run(StaticTree(node), POLICY.replace("sources: {ray: {type: ray}}\n", others.FILES))
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected == 193 + 21 + 30


class Counted:
    """Lines that rules drop, and what Fluent Bit's own metrics say of them."""

    name = "rules and metrics"

    def __init__(self) -> None:
        self.metrics = ""

    def before(self, stage: Stage) -> None:
        writer = stage.writer
        writer.new_session()
        for number in range(30):
            level = "IW"[number % 2]
            writer.write("raylet.out", f"[2026-12-01 05:36:23,{number:03} {level} 1 2] a.cc:1: line {number}")

    def during(self, stage: Stage) -> None:
        time.sleep(5)
        port = stage.pipeline.collector.metrics_port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/metrics/prometheus") as answer:
            self.metrics = answer.read().decode()

    def truth(self, stage: Stage) -> Path:
        return stage.writer.ledger


def test_what_rules_drop_is_counted_under_their_names(run: Run) -> None:
    rules = ("parsing: {timezone: UTC, rules: ["
             "{name: infos, when: {level: info}, drop: true},"
             "{name: few, limit: {records: 5, per: 1h}}]}")
    counted = Counted()
    found = run(counted, POLICY.replace("parsing: {timezone: UTC}", rules))
    assert found.ok, report.written(found, "text")
    for name, count in {"rule.infos": 15, "rule.few": 10, "redaction_failed": 0}.items():
        line = f'fluentbit_filter_drop_records_total{{name="{name}"}} {count}'
        assert line in counted.metrics or count == 0, counted.metrics


def test_a_redaction_that_fails_delivers_nothing_of_the_text(run: Run) -> None:
    """A fault put into the script on purpose: the engine gives up on the pattern."""

    def broken(render: Render) -> Render:
        def rendered(pipeline: object) -> dict[str, bytes]:
            files = dict(render(pipeline))  # type: ignore[arg-type]
            script = files["fluentbit/shipgen.lua"]
            assert b"local function redact(r, change, change_json)\n" in script
            files["fluentbit/shipgen.lua"] = script.replace(
                b"local function redact(r, change, change_json)\n",
                b"local function redact(r, change, change_json)\n  error('on purpose')\n")
            return files
        return rendered

    rules = 'parsing: {timezone: UTC, rules: [{name: r, when: {component: raylet}, redact: {pattern: "Raylet"}}]}'
    found = run("text-worker-node", POLICY.replace("parsing: {timezone: UTC}", rules), broken)
    verdict = found.sinks["loki"]
    wanted = {e.what for e in verdict.examples}
    assert verdict.lost == verdict.duplicated == 0 or "lost" in wanted, report.written(found, "text")
    assert all("[redaction failed]" in e.given for e in verdict.examples if e.what in ("line", "extra"))
    assert any("[redaction failed]" in e.given for e in verdict.examples)


def test_native_check_takes_what_is_rendered(tmp_path: Path) -> None:
    if shutil.which("fluent-bit") is None:
        pytest.skip("there is no `fluent-bit` on PATH")
    file = tmp_path / "policy.json"
    sinks = {"f": {"type": "file", "path": str(tmp_path / "out" / "x.jsonl")}, "c": {"type": "console"}}
    file.write_text(json.dumps({
        "version": 1, "name": "t", "targets": {"fluentbit": {"version": "5.1"}}, "sinks": sinks,
        "collector": {"state_dir": str(tmp_path / "state")}, "sources": {"ray": {"type": "ray"}},
    }))
    loaded = load([str(file)])
    pipeline = resolve(loaded)
    choice = plan.choose("fluentbit", loaded, pipeline)
    assert choice.target is not None
    bundle.write(bundle.of(pipeline, [choice]), tmp_path / "bundle")
    argv = choice.target.validate_argv(str(tmp_path / "bundle" / choice.target.main_config))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[ warn]" not in done.stdout + done.stderr
    assert "[error]" not in done.stdout + done.stderr
