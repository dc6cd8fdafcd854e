"""The README's commands, run as they stand; what installs or needs a shipper is run without those parts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import shipgen
from shipgen.policy import load

ROOT = Path(shipgen.__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
SHELL = [line for language, block in BLOCKS if language == "sh" for line in block.splitlines() if line.strip()]
SET_UP = [line for line in SHELL if "-m venv" in line]
OTHERS = [line for line in SHELL if "-m venv" not in line]


def run(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell line with this environment's `shipgen` in front on PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command], cwd=directory, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        check=False,
    )


def test_two_commands_set_up() -> None:
    assert len(SET_UP) == 2
    assert "pytest" in SET_UP[1]


def test_the_first_command_renders_and_previews(tmp_path: Path) -> None:
    steps = [s.strip().removeprefix(".venv/bin/") for s in SET_UP[0].split("&&")]
    assert [s.split()[0] for s in steps] == ["python3", "pip", "shipgen", "shipgen"]
    for name in ("examples", "shipgen"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = run(" && ".join(steps[2:]), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"component": "raylet"') == done.stdout.count("\n") > 50
    assert (tmp_path / "rendered" / "vector" / "vector.yaml").exists()


def test_the_four_lines_are_a_policy(tmp_path: Path) -> None:
    policy, _ = (block for language, block in BLOCKS if language == "yaml")
    assert len(policy.splitlines()) == 4
    (tmp_path / "p.yaml").write_text(policy, encoding="utf-8")
    load([str(tmp_path / "p.yaml")])


def test_the_commands_of_tonight(tmp_path: Path) -> None:
    logs = ROOT / "shipgen" / "harness" / "sample" / "session_2026-12-01_05-36-20_156597_11006" / "logs"
    shutil.copy(logs / "raylet.out", tmp_path)
    commands = [line for line in OTHERS if " verify " not in line]
    assert [c.split()[1] for c in commands if c.startswith("shipgen")] == [
        "init", "validate", "explain", "render", "render", "preview", "files", "check"]
    identity = "git init -q && git config user.name t && git config user.email t@t"
    for command in [identity, *commands]:
        done = run(command, tmp_path)
        assert done.returncode == 0, (command, done.stderr)
    # the last one is the diff, of nothing yet
    assert done.stdout == "the two policies mean the same, and so do their files\n"
    (tmp_path / "rendered" / "vector" / "vector.yaml").write_text("edited", encoding="utf-8")
    assert run("shipgen check policy.yaml -o rendered", tmp_path).returncode == 1


def test_the_hooks_of_the_readme_are_there() -> None:
    _, config = (block for language, block in BLOCKS if language == "yaml")
    there = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))}
    assert {hook["id"] for hook in yaml.safe_load(config)["repos"][0]["hooks"]} <= there
    assert (ROOT / "action.yml").is_file()
    assert (ROOT / "ci" / "gitlab.yml").is_file()


@pytest.mark.parametrize("link", re.findall(r"\]\((docs/[^)#]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).is_file()
