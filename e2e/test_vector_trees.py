"""The recorded trees through a real Vector into a real Loki: every record equals section 5 of the contract."""

from __future__ import annotations

import pytest
from policies import POLICY, Run

from shipgen.harness import report


@pytest.mark.parametrize("tree", ["text", "json", "rotated", "text-worker-node", "process-exit"])
def test_tree_arrives_whole(run: Run, tree: str) -> None:
    found = run(tree)
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected > 0
    assert found.discarded == {}


def test_all_components_arrive(run: Run) -> None:
    found = run("json", POLICY.replace("{type: ray}", "{type: ray, components: [all]}"))
    assert found.ok, report.written(found, "text")
