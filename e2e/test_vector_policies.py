"""Policies of many kinds through a real Vector: what arrives is what the policy makes of the records."""

from __future__ import annotations

import pytest
from policies import POLICY, Run

from shipgen.harness import report

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
