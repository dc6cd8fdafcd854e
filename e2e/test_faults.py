"""Every fault, for a few seconds, on every shipper that is here. What is written meanwhile arrives all the same."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from shipgen.diagnostics import Severity
from shipgen.harness import report, scenarios
from shipgen.harness.faults import FAULTS
from shipgen.harness.runners import LocalRunner
from shipgen.harness.verify import Report, verify
from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan

RELAY = "relay: {target: vector, address: 127.0.0.1:PORT}\n"
POLICY = """\
version: 1
name: faults
targets: {TARGET: {version: "VERSION"}}
sources: {ray: {type: ray}}
sinks: {loki: {type: loki, endpoint: "http://loki.invalid:3100", retry: {max_backoff: 2s}}}
"""
VERSIONS = {"filebeat": "9.0"}
SECONDS = 5.0

#: Loss that the contract or the capability table speaks of: at most this share of what was written.
LOSES = {
    ("vector", "401"): 0.5,
    ("vector", "enospc"): 1.0,
    ("fluentbit", "enospc"): 0.5,
    ("fluentbit", "sigkill-in-outage"): 0.05,
    ("fluentbit", "sigkill"): 0.05,
    ("fluentbit", "rotation-while-killed"): 0.05,
    ("filebeat", "401"): 0.5,
    ("filebeat", "enospc"): 1.0,
    ("promtail", "401"): 0.5,
    ("promtail", "sigkill"): 0.5,
    ("promtail", "sigkill-in-outage"): 0.8,
    ("promtail", "rotation-in-outage"): 0.8,
    ("promtail", "rotation-while-killed"): 0.8,
}


def ran(target: str, fault: str, tmp_path: Path, seconds: float = SECONDS) -> Report:
    """A run of files that grow, with one fault."""
    file = tmp_path / "policy.yaml"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        relay = RELAY.replace("PORT", str(free.getsockname()[1])) if target == "filebeat" else ""
    version = VERSIONS.get(target, base.get(target).versions[-1])
    file.write_text(POLICY.replace("TARGET", target).replace("VERSION", version) + relay)
    loaded = load([str(file)])
    pipeline = resolve(loaded)
    choice = plan.choose(target, loaded, pipeline)
    assert choice.target is not None
    assert not [d for d in choice.diagnostics if d.severity is Severity.ERROR]
    live = scenarios.scenario("steady")
    live.turns = 8
    return verify(
        pipeline, lambda of: bundle.of(of, [choice]).files, choice.target, choice.version, live, LocalRunner(),
        keep=tmp_path / "kept", faults=[replace(FAULTS[fault], seconds=seconds)],
    )  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("target", base.implemented())
def test_nothing_is_lost(target: str, fault: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for program in ("loki", base.get(target).binary, *(("vector",) if target == "filebeat" else ())):
        if shutil.which(program) is None:
            reason = f"there is no `{program}` on PATH"
            (pytest.fail if request.config.getoption("--require-shippers") else pytest.skip)(reason)
    if fault == "enospc" and os.geteuid() != 0:
        pytest.skip("a small file system takes root")
    found = ran(target, fault, tmp_path)
    verdict = found.sinks["loki"]
    share = LOSES.get((target, fault), 0.0)
    if target == "fluentbit":  # its timer splits an entry that is being written (capabilities: multiline.timeout)
        assert max(verdict.wrong, verdict.extra) <= 3, report.written(found, "text")
        verdict.wrong = verdict.extra = 0
    if share:
        assert verdict.lost <= share * verdict.expected, report.written(found, "text")
    else:
        assert found.ok, report.written(found, "text")
    assert verdict.expected > 400
    assert verdict.duplicated < verdict.expected / 2, report.written(found, "text")
