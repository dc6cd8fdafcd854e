"""Parity cases through the real shippers: what arrives is what section 5 of the contract asks for, on every target.

`--update-parity` writes what arrived into the cases' `records/`; nothing else does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from parity_cases import Case, differences, excepted, expected, groups, write_expected, write_records
from parity_run import Laboratory, Refused

from shipgen.harness.runners import LocalRunner
from shipgen.targets import base

RUNS = [(target, policy, case) for target in base.implemented() for policy, some in groups().items() for case in some]


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    """One Loki for all runs."""
    with LocalRunner() as runner:
        yield Laboratory(runner)


@pytest.mark.parametrize(("target", "policy", "case"), RUNS, ids=[f"{t}-{case.name}" for t, _, case in RUNS])
def test_case(laboratory: Laboratory, request: pytest.FixtureRequest, target: str, policy: str, case: Case) -> None:
    exceptions = case.exceptions(target)
    for program in ("loki", base.get(target).binary):
        if shutil.which(program) is None and not exceptions.refused:
            reason = f"there is no `{program}` on PATH"
            (pytest.fail if request.config.getoption("--require-shippers") else pytest.skip)(reason)
    outcome = laboratory.outcome(target, policy, groups()[policy])
    if isinstance(outcome, Refused):
        assert exceptions.refused in outcome.paths
        return
    rows = outcome.rows[case.name]
    if request.config.getoption("--update-parity"):
        write_expected(case)
        write_records(case, target, outcome.origin, rows)
    found = excepted(differences(case, target, rows), exceptions)
    if found:
        told = "\n".join(str(one) for one in found[:20])
        pytest.fail(f"{len(found)} differences; logs and bundles are in {laboratory.keep()}\n{told}", pytrace=False)
    lacking = sum(field == "missing" for _, field, _ in exceptions.differs)
    if not lacking and not any(want.one.optional for want in expected(case)):
        assert not any(outcome.unseen.values()), f"{outcome.unseen} reached Loki twice, or were thrown away"
