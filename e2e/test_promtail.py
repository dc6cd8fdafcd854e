"""The recorded trees, live files and policies of many kinds through a real Promtail into a real Loki."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import test_vector_live as live
import test_vector_policies as others
import yaml
from policies import ALL, POLICY, TREES, TWO_TENANTS, Run, run_of

from shipgen.harness import report
from shipgen.harness.replay import copy_tree
from shipgen.harness.verify import Render, Stage, StaticTree
from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import plan
from shipgen.targets.promtail import Promtail
from shipgen.targets.promtail.jobs import FAILED

POLICIES = {name: text for name, text in others.POLICIES.items() if name != "two-sinks"} | {"two-tenants": TWO_TENANTS}


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Verify a policy on Promtail."""
    return run_of("promtail", request, tmp_path)


@pytest.mark.parametrize("flag", ["", "-config.expand-env=true"])
def test_text_of_a_policy_means_the_same_with_variables_expanded(
    run: Run, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Promtail.start_argv
    monkeypatch.setattr(Promtail, "start_argv", lambda *given: (*start(*given), *([flag] if flag else [])))
    labels = r"""labels: {static: {a: '${HOME} $HOME $$ \\/ \/', b: '{{ .Entry }} << x >> "`'}, fields: [component]}"""
    found = run("json", POLICIES["rules"].replace("type: loki,", f"type: loki, {labels},"))
    assert found.ok, report.written(found, "text")


@pytest.mark.parametrize("kill", [False, True])
def test_live_files(run: Run, kill: bool) -> None:
    """What the capability table says of rotation and of moved files: that much is lost or repeated, and no more."""
    life = live.Life(kill=kill)
    found = run(life)
    verdict, told = found.sinks["loki"], report.written(found, "text")
    assert 0 < verdict.lost < life.lines.count // 3, told
    assert 8 * 17 <= verdict.duplicated < life.lines.count // 4, told
    assert verdict.wrong + verdict.extra <= 12, told
    assert not found.discarded
    examples = [(e.what, e.where) for e in verdict.examples]
    assert all(any(name in where for name in live.RINGS) for what, where in examples if what == "lost"), told
    assert any(name in where for what, where in examples if what == "duplicated" for name in live.MOVED), told


def test_files_of_other_sources(run: Run, tmp_path: Path) -> None:
    node = tmp_path / "tree"
    copy_tree(TREES / "text-worker-node", node / "tmp" / "ray")
    for job in ("a", "tmp-1"):
        (node / "data" / "jobs" / job).mkdir(parents=True)
        lines = [f"2026-12-01 05:36:{n:02},{n:03} INFO step {n} of {job}\n  and more" for n in range(20)]
        (node / "data" / "jobs" / job / "train.log").write_text("\n".join(["before any start", *lines, ""]))
    for place in ("var/log/app", "srv"):
        (node / place).mkdir(parents=True)
        (node / place / "x.log").write_text("".join(f"line {n}\n" for n in range(30)))
    files = others.FILES.replace('["/var/log/app/*.log"]', '["/var/log/app/*.log", "/srv/?.log"]')
    found = run(StaticTree(node), POLICY.replace("sources: {ray: {type: ray}}\n", files))
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected == 193 + 21 + 30 + 30


class Watched:
    """A recorded tree; and what Promtail's metrics and Loki say when all of it has arrived."""

    name = "a tree, and metrics"

    def __init__(self, tree: str) -> None:
        self.tree = StaticTree(TREES / tree)
        self.metrics: dict[str, float] = {}
        self.lines: list[str] = []

    def before(self, stage: Stage) -> None:
        self.tree.before(stage)

    def during(self, stage: Stage) -> None:
        stage.settle()
        with urllib.request.urlopen(f"http://127.0.0.1:{stage.pipeline.collector.metrics_port}/metrics") as answer:
            text = answer.read().decode()
        for name, value in re.findall(r"^([^#\n]\S*) (\S+)$", text, re.MULTILINE):
            self.metrics[name] = float(value)
        self.lines = [entry.line for entry in stage.client.read_all(start_ns=time.time_ns() - 86_400 * 10**9)]

    def truth(self, stage: Stage) -> Path:
        return self.tree.truth(stage)

    def count(self, pattern: str) -> int:
        """The sum of the metrics of a name."""
        return sum(int(value) for name, value in self.metrics.items() if re.match(pattern, name))


def test_what_rules_drop_is_counted_under_their_names(run: Run) -> None:
    rules = ("parsing: {timezone: UTC, rules: ["
             "{name: infos, when: {component: raylet, level: info}, drop: true},"
             "{name: few, when: {component: gcs_server}, limit: {records: 5, per: 1h}}]}")
    watched = Watched("text")
    found = run(watched, POLICY.replace("parsing: {timezone: UTC}", rules))
    assert found.ok, report.written(found, "text")
    assert watched.count(r'logentry_dropped_lines_total\{reason="rule-infos"\}') > 0
    assert not watched.count("shipgen_redaction")


def faulty(source: str) -> Callable[[Render], Render]:
    """Puts a fault into the programs that make a value, where they do more than to say what stays if they fail."""

    def change(render: Render) -> Render:
        def rendered(pipeline: Any) -> dict[str, bytes]:
            files = dict(render(pipeline))
            config = yaml.safe_load(files["promtail/promtail.yaml"])
            stages = [stage["template"] for job in config["scrape_configs"] for stage in job["pipeline_stages"]
                      if "template" in stage and stage["template"]["source"] == source]
            programs = [stage for stage in stages if "\n" in stage["template"]]
            assert programs
            for stage in programs:
                stage["template"] = stage["template"].replace("{{- if", '{{- fail "on purpose" -}}{{- if', 1)
                assert "fail" in stage["template"]
            files["promtail/promtail.yaml"] = yaml.safe_dump(config).encode()
            return files

        return rendered

    return change


RAY = "redact: {pattern: '(?i)ray[a-z]*'}"
FAULTS = {
    "a JSON entry": ("json", "S_json_r", f"{{name: r, {RAY}}}", r"shipgen_redaction_failed_\w+Zr_total"),
    "a condition": ("json", "S_when_r", f"{{name: r, when: {{level: {{at_least: info}}}}, {RAY}}}",
                    r"shipgen_redaction_undecided_\w+Zr_total"),
    "what an entry says": ("json", "S_entry", f"{{name: r, {RAY}}}", r"shipgen_redaction_failed_[^Z]+_total"),
    "a condition on text": ("text-worker-node", "S_when_r", f"{{name: r, when: {{level: info}}, {RAY}}}",
                            r"shipgen_redaction_undecided_\w+Zr_total"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_redaction_that_fails_delivers_nothing_of_the_text(run: Run, name: str) -> None:
    tree, source, rule, metric = FAULTS[name]
    sink = others.sink("metadata: [session, file, message, caller, team]")
    watched = Watched(tree)
    found = run(watched, sink.replace("{timezone: UTC}", f"{{timezone: UTC, rules: [{rule}]}}"), faulty(source))
    failed = watched.lines.count(FAILED)
    assert failed, report.written(found, "text")
    assert watched.count(metric) == failed
    assert failed == watched.count("shipgen_redaction_")
    assert len(watched.lines) >= found.sinks["loki"].expected
    if "when" not in rule:
        assert not [line for line in watched.lines if re.search("(?i)ray", line)]


def test_redactions_that_work_are_not_counted_as_failed(run: Run) -> None:
    watched = Watched("json")
    rules = (f"{{timezone: UTC, rules: [{{name: a, {RAY}}}, "
             "{name: b, when: {level: info}, redact: {pattern: 'o+', with: $1}}]}")
    found = run(watched, others.sink("metadata: [file, message, caller]").replace("{timezone: UTC}", rules))
    assert found.ok, report.written(found, "text")
    assert watched.count("shipgen_redaction_") == 0


def renderings() -> Iterator[tuple[str, str]]:
    yield "all", ALL
    yield from POLICIES.items()


def test_native_check_takes_what_is_rendered(tmp_path: Path) -> None:
    if shutil.which("promtail") is None:
        pytest.skip("there is no `promtail` on PATH")
    for name, text in renderings():
        file = tmp_path / "policy.yaml"
        file.write_text(text.replace('vector: {version: "0.57"}', 'promtail: {version: "3.6"}'))
        loaded = load([str(file)])
        pipeline = resolve(loaded)
        choice = plan.choose("promtail", loaded, pipeline)
        assert choice.target is not None
        bundle.write(bundle.of(pipeline, [choice]), tmp_path / name)
        argv = choice.target.validate_argv(str(tmp_path / name / choice.target.main_config))
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
