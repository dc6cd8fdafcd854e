"""The recorded trees and policies of many kinds through each real shipper but Vector into a real Loki."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_vector_policies as others
from policies import ALL, TWO_TENANTS, Run, run_of

from shipgen.harness import report


@pytest.fixture(params=["fluentbit", "fluentd", "filebeat", "promtail"])
def target(request: pytest.FixtureRequest) -> str:
    """A target's name."""
    return str(request.param)


@pytest.fixture
def run(target: str, request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Verify a policy on the target: a recorded tree by its name, or a scenario."""
    return run_of(target, request, tmp_path)


@pytest.mark.parametrize("tree", ["text", "json", "rotated", "text-worker-node", "process-exit"])
def test_tree_arrives_whole(run: Run, tree: str) -> None:
    found = run(tree)
    assert found.ok, report.written(found, "text")
    assert found.sinks["loki"].expected > 0


@pytest.mark.parametrize("tree", ["json", "rotated"])
def test_all_components_arrive(run: Run, tree: str) -> None:
    found = run(tree, ALL)
    assert found.ok, report.written(found, "text")


@pytest.mark.parametrize("name", others.POLICIES)
def test_policy(run: Run, target: str, name: str) -> None:
    found = run("json", TWO_TENANTS if (target, name) == ("promtail", "two-sinks") else others.POLICIES[name])
    assert found.ok, report.written(found, "text")
    assert all(verdict.expected for verdict in found.sinks.values()) or name == "late-drop"
