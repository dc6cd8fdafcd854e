"""The recorded trees, live files and policies of many kinds through a real Fluentd into a real Loki."""

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
from receivers.base import Answer, Request, decompressed
from receivers.web import LinesServer
from sinks import differences, prepare

from shipgen.harness import report
from shipgen.harness.replay import copy_tree
from shipgen.harness.runners import LocalRunner
from shipgen.harness.verify import Render, Stage, StaticTree
from shipgen.pipeline import resolve
from shipgen.pipeline.model import Pipeline
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import plan

RELAYED = POLICY + "relay: {target: fluentbit, address: 127.0.0.1:6044}\n"


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Verify a policy on Fluentd: a recorded tree by its name, or a scenario."""
    return run_of("fluentd", request, tmp_path)


def test_live_files(run: Run) -> None:
    life = live.Life()
    found = run(life)
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected == life.lines.count


def test_killed_while_files_turn(run: Run) -> None:
    """SIGKILL: entries that waited for their end are read again, so repeats are allowed, and loss is not."""
    life = live.Life(kill=True)
    found = run(life)
    verdict = found.sinks["loki"]
    assert verdict.lost == verdict.wrong == verdict.extra == 0, report.written(found, "text")
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


def metrics_of(pipeline: Pipeline) -> str:
    """What a Fluentd of this pipeline says about itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{pipeline.collector.metrics_port}/metrics") as answer:
        text: str = answer.read().decode()
    return text


class Counted:
    """Lines of a raylet, and what Fluentd's own metrics say once they were read."""

    name = "rules and metrics"

    def __init__(self) -> None:
        self.metrics = ""

    def before(self, stage: Stage) -> None:
        stage.writer.new_session()
        for number in range(30):
            level = "IW"[number % 2]
            stage.writer.write("raylet.out", f"[2026-12-01 05:36:23,{number:03} {level} 1 2] a.cc:1: line {number}")

    def during(self, stage: Stage) -> None:
        time.sleep(6)
        self.metrics = metrics_of(stage.pipeline)

    def truth(self, stage: Stage) -> Path:
        return stage.writer.ledger


def test_what_rules_drop_is_counted_under_their_names(run: Run) -> None:
    rules = ("parsing: {timezone: UTC, rules: ["
             "{name: infos, when: {level: info}, drop: true},"
             "{name: few, limit: {records: 5, per: 1h}}]}")
    counted = Counted()
    found = run(counted, POLICY.replace("parsing: {timezone: UTC}", rules))
    assert found.ok, report.written(found, "text")
    for name, count in {"infos": 15, "few": 10}.items():
        assert f'shipgen_rule_dropped_records_total{{rule="{name}"}} {count}.0' in counted.metrics, counted.metrics


def test_late_entries_that_are_dropped_are_counted(run: Run) -> None:
    counted = Counted()
    found = run(counted, POLICY.replace("type: loki,", "type: loki, late: drop,"))
    assert found.ok, report.written(found, "text")
    assert 'shipgen_rule_dropped_records_total{rule="late:loki"} 30.0' in counted.metrics, counted.metrics


def test_a_redaction_that_fails_delivers_nothing_of_the_text(run: Run) -> None:
    """A fault put into the plugin on purpose: the engine gives up on the pattern."""

    def broken(render: Render) -> Render:
        def rendered(pipeline: Pipeline) -> dict[str, bytes]:
            files, place = render(pipeline), "fluentd/plugins/filter_shipgen_rule.rb"
            begin = b"def hide(text, with = @options['with'])\n"
            assert begin in files[place]
            fault = b"raise Regexp::TimeoutError, 'on purpose' if text.include?('7')\n"
            return {**files, place: files[place].replace(begin, begin + fault)}
        return rendered

    rules = 'parsing: {timezone: UTC, rules: [{name: r, when: {component: raylet}, redact: {pattern: "line"}}]}'
    counted = Counted()
    found = run(counted, POLICY.replace("parsing: {timezone: UTC}", rules), broken)
    verdict = found.sinks["loki"]
    assert (verdict.lost, verdict.duplicated, verdict.wrong) == (0, 0, 3), report.written(found, "text")
    given = {e.what: e.given for e in verdict.examples}
    assert given.pop("line") == "[redaction failed]"
    assert given == {"pid": "", "caller": "", "thread": ""}
    assert 'shipgen_redaction_failed_total{rule="r"} 3.0' in counted.metrics, counted.metrics


@pytest.fixture
def relayed(run: Run, request: pytest.FixtureRequest) -> Run:
    """The same with a Fluent Bit beside it."""
    if shutil.which("fluent-bit") is None:
        reason = "there is no `fluent-bit` on PATH"
        (pytest.fail if request.config.getoption("--require-shippers") else pytest.skip)(reason)
    return run


@pytest.mark.parametrize("tree", ["text", "json", "rotated", "text-worker-node"])
def test_tree_arrives_whole_through_a_relay(relayed: Run, tree: str) -> None:
    found = relayed(tree, RELAYED)
    if tree == "rotated":  # lines that go on at the head of a file come one by one
        verdict = found.sinks["loki"]
        assert (verdict.lost, verdict.extra, verdict.wrong) == (1, 2, 0), report.written(found, "text")
    else:
        assert found.ok, report.written(found, "text")


def test_killed_while_files_turn_with_a_relay(relayed: Run) -> None:
    """SIGKILL: Fluentd's own input has counted the lines of the open entry in each file as read."""
    life = live.Life(kill=True)
    found = relayed(life, RELAYED)
    verdict = found.sinks["loki"]
    assert verdict.wrong == verdict.extra == 0, report.written(found, "text")
    assert verdict.lost <= len(live.RINGS + live.MOVED), report.written(found, "text")


class Choosy(LinesServer):
    """An endpoint that answers 400 to every request with one certain record in it."""

    def answer(self, request: Request) -> Answer:
        return (400, b"no") if b"dashboard.log" in decompressed(request.body, "gzip") else super().answer(request)


def test_records_that_an_endpoint_refuses_cost_no_others(tmp_path: Path) -> None:
    if shutil.which("fluentd") is None:
        pytest.skip("there is no `fluentd` on PATH")
    with LocalRunner() as runner, Choosy() as endpoint:
        sink = {"type": "http", "endpoint": endpoint.url("/logs"), "compression": "gzip"}
        job = prepare("fluentd", {"out": sink}, "json", tmp_path, runner)
        job.start()
        wanted = [one for one in job.expected() if b"dashboard.log" not in json.dumps(one).encode()]
        job.settle(endpoint, len(wanted))
        metrics = metrics_of(job.pipeline)
        job.stop()
    assert differences(wanted, endpoint.records) == {"missing": [], "surplus": []}
    refused = len(job.expected()) - len(wanted)
    assert refused
    assert f'shipgen_sink_refused_records_total{{sink="out"}} {refused}.0' in metrics, metrics


def test_native_check_takes_what_is_rendered(tmp_path: Path) -> None:
    if shutil.which("fluentd") is None:
        pytest.skip("there is no `fluentd` on PATH")
    file = tmp_path / "policy.json"
    sinks = {"f": {"type": "file", "path": str(tmp_path / "out" / "x.jsonl")}, "c": {"type": "console"}}
    file.write_text(json.dumps({
        "version": 1, "name": "t", "targets": {"fluentd": {"version": "1.19"}}, "sinks": sinks,
        "collector": {"state_dir": str(tmp_path / "state")}, "sources": {"ray": {"type": "ray"}},
    }))
    loaded = load([str(file)])
    pipeline = resolve(loaded)
    choice = plan.choose("fluentd", loaded, pipeline)
    assert choice.target is not None
    bundle.write(bundle.of(pipeline, [choice]), tmp_path / "bundle")
    argv = choice.target.validate_argv(str(tmp_path / "bundle" / choice.target.main_config))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[warn]" not in done.stdout + done.stderr
