"""What `verify` uses where nothing is asked for: a small recorded tree, and a runner that can work here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from shipgen.diagnostics import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shipgen.harness.faults import Fault
    from shipgen.harness.runners import Runner
    from shipgen.harness.verify import Scenario

SAMPLE = Path(__file__).with_name("sample")
"""A worker node's logs, recorded from Ray 2.60 (13 families, 193 records)."""


def runner(kind: str | None, binary: str, pull: str) -> Runner:
    """The runner of a kind; left out, the local one where Loki and the shipper are on PATH, else Docker."""
    from shipgen.harness.runners import DockerRunner, LocalRunner

    local = kind == "local" or (kind is None and all(shutil.which(name) for name in ("loki", binary)))
    return LocalRunner() if local else DockerRunner(pull=pull)


def faults(names: Sequence[str]) -> tuple[Fault, ...]:
    """Faults as `--fault` names them. UsageError for one that is none, OutsideError for one that can't be made here."""
    from shipgen.harness.faults import fault, possible

    found = tuple(fault(name) for name in names)
    possible(found)
    return found


def scenario(name: str, logs: Path | None, with_faults: bool, live_ray: bool = False) -> Scenario:
    """The scenario of a name; left out, a recorded tree, or with faults and no tree files that grow."""
    from shipgen.harness import scenarios
    from shipgen.harness.verify import StaticTree

    if live_ray:
        from shipgen.harness.live_ray import LiveRay

        if name or logs is not None:
            raise UsageError("--live-ray is a scenario of its own; leave --scenario and --logs out")
        return LiveRay()
    name = name or ("steady" if with_faults and logs is None else "static")
    if name not in scenarios.NAMES:
        raise UsageError(f"no scenario is called {name!r}; there are: {', '.join(scenarios.NAMES)}")
    if name == "static":
        return StaticTree(logs or SAMPLE)
    if logs is not None:
        raise UsageError(f"--logs is a recorded tree, and --scenario {name} writes its own; leave one of them out")
    return scenarios.scenario(name)
