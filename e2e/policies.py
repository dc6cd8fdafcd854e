"""What the tests on real shippers share: the smallest policy, and what runs one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shipgen.harness.runners import LocalRunner
from shipgen.harness.verify import Render, Report, Scenario, StaticTree, verify
from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan

TREES = Path(__file__).parent.parent / "tests" / "data" / "ray-logs"
POLICY = """\
version: 1
name: e2e
cluster: test
targets: {vector: {version: "0.57"}}
parsing: {timezone: UTC}
sources: {ray: {type: ray}}
sinks: {loki: {type: loki, endpoint: "http://loki.invalid:3100"}}
"""

VECTOR = 'targets: {vector: {version: "0.57"}}'
FILEBEAT = 'targets: {filebeat: {version: "9.0"}, vector: {version: "0.57"}}\nrelay: {target: vector}'
ALL = POLICY.replace("{type: ray}", "{type: ray, components: [all]}")
TWO_TENANTS = POLICY.replace("sinks: {", 'sinks: {other: {type: loki, endpoint: "http://b.invalid", tenant: x}, ')
"""For Promtail: two sinks that differ in more than who they are is what it can't do."""

Run = Callable[..., Report]


def run_of(name: str, request: pytest.FixtureRequest, directory: Path) -> Run:
    """Verifies policies on one target, with this machine's programs: a recorded tree by its name, or a scenario.
    ``change`` may put faults into what is rendered."""
    target = base.get(name)
    head, relays = f'targets: {{{name}: {{version: "{target.versions[-1]}"}}}}', ()
    if name == "filebeat":
        head, relays = FILEBEAT, ("vector",)
    for program in ("loki", target.binary, *relays):
        if shutil.which(program) is None:
            reason = f"there is no `{program}` on PATH"
            (pytest.fail if request.config.getoption("--require-shippers") else pytest.skip)(reason)

    def run(
        scenario: str | Scenario, policy: str = POLICY, change: Callable[[Render], Render] = lambda render: render
    ) -> Report:
        file = directory / "policy.yaml"
        file.write_text(policy.replace(VECTOR, head))
        loaded = load([str(file)])
        pipeline = resolve(loaded)
        choice = plan.choose(name, loaded, pipeline)
        assert choice.renders, choice.diagnostics
        what = StaticTree(TREES / scenario) if isinstance(scenario, str) else scenario
        render = change(lambda of: dict(bundle.of(of, [choice]).files))
        return verify(pipeline, render, target, choice.version, what, LocalRunner(), keep=directory / "kept")

    return run
