"""`shipgen verify` as people run it: exit codes, what goes where, and an end in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from policies import POLICY, TREES

from shipgen.harness import runners
from shipgen.harness.runners import Runner

COMMAND = [sys.executable, "-c", "from shipgen.cli import main; main()", "verify"]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


def verify(policy: Path, runner: Runner, *options: str) -> subprocess.Popen[str]:
    logs = TREES / "text-worker-node"
    argv = [*COMMAND, str(policy), "--target", "vector", "--logs", str(logs), "--runner", runner.kind, *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_whole_tree(policy: Path, runner: Runner) -> None:
    with verify(policy, runner) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert out.startswith(f"vector 0.57, {runner.kind} runner, ")
    assert "discarded by Loki: 0 before, 0 after" in out
    assert "ok in " in out
    assert "entries in Loki" in err


@pytest.mark.parametrize("runner", ["local"], indirect=True)
def test_reports(policy: Path, runner: Runner) -> None:
    with verify(policy, runner, "--report", "json") as process:
        assert json.loads(process.communicate(timeout=300)[0])["ok"] is True
    with verify(policy, runner, "--report", "junit") as process:
        assert ET.fromstring(process.communicate(timeout=300)[0]).tag == "testsuites"


@pytest.mark.parametrize("runner", ["local"], indirect=True)
def test_no_vector(policy: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What could be found stays findable, Vector does not."""
    (tmp_path / "bin").mkdir()
    for program in ("loki",):
        found = next(Path(part) / program for part in os.environ["PATH"].split(":") if (Path(part) / program).exists())
        (tmp_path / "bin" / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with verify(policy, runner) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert out == ""
    assert "there is no program `vector` on PATH" in err
    assert "timberio/vector:0.57.0-debian" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [1.0, 3.0, 5.0])
def test_interrupted(
    policy: Path,
    runner: Runner,
    number: signal.Signals,
    seconds: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may verify on this machine at the same time: what is looked at has the test's own directory in it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with verify(policy, runner) as process:
        time.sleep(seconds)
        started = [directory.name for directory in scratch.iterdir()]
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert list(scratch.iterdir()) == []
    for name in started:
        assert runners.tagged_processes(name) == []
        if isinstance(runner, runners.DockerRunner):
            label = f"{runners.TAG_LABEL}={name}"
            assert runner.client.containers.list(all=True, filters={"label": label}) == []
            assert runner.client.networks.list(filters={"label": label}) == []


@pytest.mark.parametrize("runner", ["local"], indirect=True)
@pytest.mark.parametrize(
    ("moment", "number", "options"),
    [
        ("starting Loki", signal.SIGINT, ()),
        ("replaying", signal.SIGTERM, ()),
        ("starting vector", signal.SIGINT, ("--scenario", "live")),
        ("fault loki-down", signal.SIGTERM, ("--fault", "loki-down:60s")),
        ("fault slow", signal.SIGINT, ("--fault", "slow:60s")),
        ("fault sigkill", signal.SIGTERM, ("--fault", "sigkill:60s")),
        pytest.param(
            "fault enospc", signal.SIGINT, ("--fault", "enospc:60s"),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="a small file system takes root"),
        ),
        ("entries in Loki", signal.SIGINT, ()),
        ("stopping vector", signal.SIGTERM, ()),
        ("comparing", signal.SIGTERM, ()),
    ],
)  # fmt: skip
def test_interrupted_at_a_moment(
    policy: Path, runner: Runner, moment: str, number: signal.Signals, options: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    argv = [*COMMAND, str(policy), "--target", "vector", "--runner", runner.kind, *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(moment in line for line in process.stderr)
        started = [directory.name for directory in scratch.iterdir()]
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert out == ""
    assert list(scratch.iterdir()) == []
    assert str(scratch) not in Path("/proc/self/mounts").read_text()
    assert [pid for name in started for pid in runners.tagged_processes(name)] == []


def test_killed_and_run_again(policy: Path, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL leaves everything behind; the next run finds and removes it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with verify(policy, runner) as process:
        time.sleep(4)
        process.kill()
        process.communicate()
    (left,) = (directory.name for directory in scratch.iterdir())
    with verify(policy, runner) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert list(scratch.iterdir()) == []
    assert runners.tagged_processes(left) == []
    if isinstance(runner, runners.DockerRunner):
        label = f"{runners.TAG_LABEL}={left}"
        assert runner.client.containers.list(all=True, filters={"label": label}) == []
        assert runner.client.networks.list(filters={"label": label}) == []
