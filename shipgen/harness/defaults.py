"""What `verify` uses where nothing is asked for: a small recorded tree, and a runner that can work here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shipgen.harness.runners import Runner

SAMPLE = Path(__file__).with_name("sample")
"""A worker node's logs, recorded from Ray 2.60 (13 families, 193 records)."""


def runner(kind: str | None, binary: str, pull: str) -> Runner:
    """The runner of a kind; left out, the local one where Loki and the shipper are on PATH, else Docker."""
    from shipgen.harness.runners import DockerRunner, LocalRunner

    local = kind == "local" or (kind is None and all(shutil.which(name) for name in ("loki", binary)))
    return LocalRunner() if local else DockerRunner(pull=pull)
