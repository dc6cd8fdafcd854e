"""shipgen as CI installs it: the hooks by pre-commit itself, the image by a Docker engine. Needs package registries."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
POLICY = (ROOT / "examples" / "minimal.yaml").read_text("utf-8")
NO_NETWORK = ("Could not find a version", "Temporary failure", "ConnectionError", "NewConnectionError", "no such host")


def run(argv: list[str], directory: Path, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv, cwd=directory, env={**os.environ, **env}, capture_output=True, text=True, timeout=900, check=False)
    if any(sign in done.stdout + done.stderr for sign in NO_NETWORK):
        pytest.skip(f"`{' '.join(argv[:3])}` gets no packages here: {(done.stdout + done.stderr).strip()[-200:]}")
    return done


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a policy and what it renders."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "policy.yaml").write_text(POLICY)
    shipgen = ["python", "-m", "shipgen", "render", "policy.yaml", "-t", "vector", "-o", "rendered"]
    assert run(shipgen, directory, PYTHONPATH=str(ROOT)).returncode == 0
    for argv in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        assert run(["git", *argv], directory).returncode == 0
    return directory


@pytest.mark.skipif(shutil.which("pre-commit") is None, reason="there is no `pre-commit` on PATH")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="pre-commit installs from a Git checkout")
def test_pre_commit_installs_and_runs_the_hooks(project: Path, tmp_path: Path) -> None:
    env = {"PRE_COMMIT_HOME": str(tmp_path / "cache"), "PYTHONPATH": ""}
    argv = ["pre-commit", "try-repo", str(ROOT), "--all-files", "--verbose"]
    done = run(argv, project, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rendered: all 2 files are what the policy renders" in done.stdout
    (project / "rendered/vector/vector.yaml").write_text("mine\n")
    done = run(argv, project, **env)
    assert done.returncode == 1
    assert "was edited after it was rendered" in done.stdout


def test_the_image_builds_and_checks(project: Path) -> None:
    if shutil.which("docker") is None or run(["docker", "info"], ROOT).returncode:
        pytest.skip("there is no Docker engine")
    tag = "shipgen:e2e"
    built = run(["docker", "build", "--network", "host", "-t", tag, "."], ROOT)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    try:
        command = ["docker", "run", "--rm", "-v", f"{project}:/work", tag]
        done = run([*command, "check", "policy.yaml", "-o", "rendered"], project)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "all 2 files are what the policy renders" in done.stdout
        assert run([*command, "--help"], project).returncode == 0
    finally:
        run(["docker", "rmi", "-f", tag], ROOT)
