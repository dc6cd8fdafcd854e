"""What is rendered of some policies, side by side with them, so that a difference shows in review.

`pytest tests/targets/test_golden.py --update-golden` writes what is rendered now.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from shipgen.diagnostics import report
from shipgen.pipeline import resolve
from shipgen.pipeline.checks import check
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(p.parent.name for p in GOLDEN.glob("*/policy.yaml"))


def made(case: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Files of the bundle but the manifest, and `diagnostics.txt`."""
    monkeypatch.chdir(GOLDEN / case)
    policy = load(["policy.yaml"])
    pipeline = resolve(policy)
    names = [name for name in plan.names((), policy) or ("vector",) if name in base.implemented()]
    choices = [plan.choose(name, policy, pipeline) for name in names]
    found = [*policy.diagnostics, *check(pipeline, policy), *(d for c in choices for d in c.diagnostics)]
    said = io.StringIO()
    report(found, "text", stream=said, color=False)
    assert all(c.renders for c in choices), said.getvalue()
    files = bundle.of(pipeline, choices).files
    return {**files, "diagnostics.txt": said.getvalue().encode()}


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    files = made(case, monkeypatch)
    place = GOLDEN / case
    there = {str(p.relative_to(place)): p for p in place.rglob("*") if p.is_file() and p.name != "policy.yaml"}
    if request.config.getoption("--update-golden"):
        for path in there.keys() - files.keys():
            there[path].unlink()
        for path, data in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)
        return
    assert set(there) == set(files)
    for path, data in files.items():
        assert there[path].read_text("utf-8") == data.decode(), f"{case}/{path}"


def test_there_are_some() -> None:
    assert len(CASES) >= 5
