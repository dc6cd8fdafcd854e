"""Real shippers: where they come from, and what happens where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest
from policies import POLICY, TREES, Run

from shipgen.diagnostics import OutsideError
from shipgen.harness import loki
from shipgen.harness.runners import DockerRunner, LocalRunner, Runner
from shipgen.harness.verify import Render, Report, Scenario, StaticTree, Target, verify
from shipgen.pipeline import resolve
from shipgen.pipeline.model import Pipeline
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-shippers",
        action="store_true",
        help="fail where a shipper or Loki is missing, instead of skipping the test",
    )
    parser.addoption(
        "--update-parity",
        action="store_true",
        help="write the records that real shippers deliver in this run into the parity cases",
    )


@cache
def docker_engine() -> str:
    """Empty if a Docker engine answers, else why it does not."""
    try:
        assert DockerRunner().client
    except OutsideError as error:
        return str(error)
    return ""


@pytest.fixture(params=["local", "docker"])
def runner(request: pytest.FixtureRequest) -> Runner:
    """A runner that can start Loki and Vector: programs on PATH, and containers where a Docker engine answers."""

    def missing(reason: str) -> NoReturn:
        if request.config.getoption("--require-shippers"):
            pytest.fail(reason)
        pytest.skip(reason)

    if request.param == "local":
        for program in ("loki", "vector"):
            if shutil.which(program) is None:
                missing(f"there is no `{program}` on PATH")
        return LocalRunner()
    if reason := docker_engine():
        pytest.skip(reason)
    docker = DockerRunner()
    target = base.get("vector")
    for image in (loki.IMAGE, target.image(target.versions[-1])):
        try:
            docker.have(image)
        except OutsideError as error:
            missing(str(error))
    return docker


@pytest.fixture
def run(runner: Runner, tmp_path: Path) -> Run:
    """Verify a policy on Vector: a recorded tree by its name, or a scenario."""

    def run(
        scenario: str | Scenario, policy: str = POLICY, change: Callable[[Render], Render] = lambda render: render
    ) -> Report:
        file = tmp_path / "policy.yaml"
        file.write_text(policy)
        loaded = load([str(file)])
        pipeline = resolve(loaded)
        choice = plan.choose("vector", loaded, pipeline)
        target: Target | None = choice.target
        assert target is not None, choice.diagnostics

        def render(of: Pipeline) -> dict[str, bytes]:
            return dict(bundle.of(of, [choice]).files)

        what = StaticTree(TREES / scenario) if isinstance(scenario, str) else scenario
        return verify(pipeline, change(render), target, choice.version, what, runner, keep=tmp_path / "kept")

    return run
