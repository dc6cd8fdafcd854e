"""Policies of many kinds through a real Vector: what arrives is what the policy makes of the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from policies import POLICY, TREES, Run

from shipgen.harness import report
from shipgen.harness.replay import copy_tree
from shipgen.harness.verify import StaticTree

pytestmark = pytest.mark.parametrize("runner", ["local"], indirect=True)

RULES = r"""{timezone: UTC, rules: [
  {name: no-status, when: {component: monitor, message: {matches: Autoscaler}}, drop: true},
  {name: some, when: {component: core_worker}, sample: 0.3},
  {name: ids, redact: {pattern: '[0-9a-f]{56}', with: '<id $0 \1>'}},
  {name: mail, redact: {kind: email}},
  {name: addresses, when: {component: [raylet, gcs_server]}, redact: {kind: ipv4, with: x.x.x.x}},
  {name: team, when: {not: {level: {at_least: warn}}}, add: {team: 'rl {{ infra }} $X ${Y} %F'}},
  {name: flood, when: {component: dashboard}, limit: {records: 5, per: 1h, by: [file]}}]}"""
TWO = """sinks:
  loki: {type: loki, endpoint: "http://a.invalid", when: {level: {at_least: warn}}}
  all: {type: loki, endpoint: "http://b.invalid", tenant: x, labels: {static: {job: all}, fields: [component]}}
parsing: {timezone: UTC, rules: [{name: no-serve, when: {component: serve}, drop: true, sinks: [all]}]}
"""


def sink(settings: str) -> str:
    """The smallest policy with settings of its Loki sink."""
    return POLICY.replace("type: loki,", f"type: loki, {settings},")


POLICIES = {
    "rules": sink("metadata: [session, file, pid, team, sample_rate, message]").replace("{timezone: UTC}", RULES),
    "json-line": sink("line: json"),
    "json-line-cut": sink("line: json, server: {max_line_size: 2200B}"),
    "message-line": sink("line: message"),
    "labels": sink("labels: {fields: [component, file, pid, worker_id], allow_high_cardinality: true}"),
    "late-drop": sink("late: drop"),
    "two-sinks": POLICY.partition("parsing:")[0] + "sources: {ray: {type: ray}}\n" + TWO,
    "components": POLICY.replace("{type: ray}", "{type: ray, components: [raylet, worker, serve, ray_data]}"),
    "no-cluster": POLICY.replace("cluster: test\n", ""),
    "far-east": POLICY.replace("timezone: UTC", "timezone: Asia/Shanghai"),
    "local-zone": POLICY.replace("timezone: UTC", "timezone: local"),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policy(run: Run, name: str) -> None:
    found = run("json", POLICIES[name])
    assert found.ok, report.written(found, "text")
    assert all(verdict.expected for verdict in found.sinks.values()) or name == "late-drop"


def test_backups_left_out(run: Run) -> None:
    found = run("rotated", POLICY.replace("{type: ray}", "{type: ray, rotated: exclude}"))
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected < 7936


FILES = """sources:
  ray: {type: ray}
  trainer:
    type: file
    paths: ["/data/jobs/*/train.log"]
    exclude: ["/data/jobs/tmp-*/train.log"]
    format:
      regex: '^(?P<time>\\S+ \\S+) (?P<level>[A-Z]+) (?P<message>.*)$'
      time: {field: time, layout: python}
    multiline: {start: '^\\d{4}-\\d\\d-\\d\\d '}
  plain: {type: file, paths: ["/var/log/app/*.log"]}
  missing: {type: file, paths: ["/var/log/none/*.log"]}
"""


def test_files_of_other_sources(run: Run, tmp_path: Path) -> None:
    """A tree that looks like a node: Ray's files and others, each in its place."""
    node = tmp_path / "tree"
    copy_tree(TREES / "text-worker-node", node / "tmp" / "ray")
    for job in ("a", "b", "tmp-1"):
        (node / "data" / "jobs" / job).mkdir(parents=True)
        lines = [f"2026-12-01 05:36:{n:02},{n:03} INFO step {n} of {job}\n  and more" for n in range(20)]
        (node / "data" / "jobs" / job / "train.log").write_text("\n".join(["before any start", *lines, ""]))
    (node / "var" / "log" / "app").mkdir(parents=True)
    (node / "var" / "log" / "app" / "x.log").write_text("".join(f"line {n}\n" for n in range(30)))
    found = run(StaticTree(node), POLICY.replace("sources: {ray: {type: ray}}\n", FILES))
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected == 193 + 2 * 21 + 30
    assert found.left_out == ["source missing: none of its files is in what was replayed"]
