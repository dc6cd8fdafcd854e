"""A real Ray with the rendered environment, its logs shipped while it writes them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

POLICY = """\
version: 1
name: live
targets: {vector: {version: "0.57"}}
ray: {driver: {forward: true, prefix: true, dedup: false, color: false}, serve_to_stderr: false}
rotation: {max_size: 512KiB, backups: 5}
sources: {ray: {type: ray}}
sinks: {loki: {type: loki, endpoint: "http://loki.invalid:3100"}}
"""


def test_everything_that_ray_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("loki", "vector"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no `{program}` on PATH")
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed (the extra `ray`)")
    monkeypatch.delenv("TMPDIR", raising=False)  # Ray's sockets want a short path
    (tmp_path / "policy.yaml").write_text(POLICY)
    argv = [sys.executable, "-m", "shipgen", "verify", str(tmp_path / "policy.yaml"), "-t", "vector", "--live-ray"]
    done = subprocess.run([*argv, "--report", "json"], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["sinks"]["loki"]
    assert found["expected"] > 300
    assert found["latency_s"]["n"] > 100
