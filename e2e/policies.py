"""What the tests on real shippers share: the smallest policy, and the type of the fixture that runs one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shipgen.harness.verify import Report

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

Run = Callable[..., Report]
