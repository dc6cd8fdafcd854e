"""What CI systems take from this repository: pre-commit hooks, a GitHub action, a GitLab job, an image.

The shell in them is run as it stands; the tools themselves where they are installed (`pip install -e '.[test]'` does).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
GITLAB = list(yaml.safe_load_all((ROOT / "ci" / "gitlab.yml").read_text("utf-8")))
POLICY = 'version: 1\nname: t\ntargets: {vector: {version: "0.57"}}\nsources: {ray: {type: ray}}\n' \
    "sinks: {c: {type: console}}\n"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def tool(name: str) -> str:
    """Where a tool is; the test is skipped where it is not."""
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(argv: list[str], directory: Path, code: int = 0, **env: str) -> str:
    """What a command says, after a look at its exit code."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "GITHUB_", "PRE_COMMIT"))}
    environment |= {"PATH": PATH, "PYTHONPATH": str(ROOT), "GIT_CONFIG_GLOBAL": os.devnull, **env}
    done = subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, (argv, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def shipgen_on_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PATH with `shipgen` in front: that of this checkout."""
    script = tmp_path_factory.mktemp("bin") / "shipgen"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shipgen "$@"\n')
    script.chmod(0o755)
    return f"{script.parent}{os.pathsep}{PATH}"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory, shipgen_on_path: str) -> Path:
    """A repository as a team has it: the policy, and what it renders, committed."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "policy.yaml").write_text(POLICY)
    run(["shipgen", "render", "policy.yaml", "-o", "rendered"], directory, PATH=shipgen_on_path)
    git(directory, "init", "-q", "-b", "main")
    commit(directory)
    return directory


@pytest.fixture
def project(tmp_path: Path, pristine: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(pristine, tmp_path / "project"))


def git(directory: Path, *arguments: str) -> str:
    return run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], directory)


def commit(directory: Path) -> str:
    git(directory, "add", "-A")
    git(directory, "commit", "-qm", "x")
    return git(directory, "rev-parse", "HEAD").strip()


def edit(directory: Path) -> None:
    place = directory / "rendered" / "vector" / "vector.yaml"
    place.write_text(place.read_text("utf-8").replace("acknowledgements", "acknowledgement"), "utf-8")


# --- pre-commit ---


def test_hooks_name_commands_that_are_there() -> None:
    for hook in HOOKS:
        assert hook["language"] == "python"
        argv = [*hook["entry"].split()[1:], "--help"]
        assert "Usage:" in run([sys.executable, "-m", "shipgen", *argv], ROOT)


@needs_git
def test_pre_commit_reads_the_manifest() -> None:
    run([tool("pre-commit"), "validate-manifest", ".pre-commit-hooks.yaml"], ROOT)


@needs_git
def test_pre_commit_stops_a_hand_edited_file(project: Path, tmp_path: Path, shipgen_on_path: str) -> None:
    """The hooks as they stand, but run from PATH: to install them takes a network (e2e does)."""
    pre_commit = tool("pre-commit")
    local = {"repos": [{"repo": "local", "hooks": [{**hook, "language": "system"} for hook in HOOKS]}]}
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(local))
    commit(project)
    env = {"PATH": shipgen_on_path, "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    said = run([pre_commit, "run", "--all-files"], project, **env)
    assert said.count("Passed") == 2
    edit(project)
    git(project, "add", "-A")
    said = run([pre_commit, "run"], project, code=1, **env)
    assert re.search(r"shipgen validate\.+(Passed|Skipped|.*no files)", said)
    assert "vector/vector.yaml was edited after it was rendered" in said
    assert "rendered: 1 of 2 files differs from the policy (1 edited)" in said
    (project / "policy.yaml").write_text(POLICY + "clustr: x\n")
    git(project, "add", "-A")
    said = run([pre_commit, "run"], project, code=1, **env)
    assert "did you mean `cluster`" in said


# --- GitHub ---


def test_the_action_fits_its_schema() -> None:
    run([tool("check-jsonschema"), "--builtin-schema", "vendor.github-actions", "action.yml"], ROOT)


def test_no_expression_is_put_into_a_script() -> None:
    """What a pull request says reaches the shell as a variable, never as text of the program."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"], step["name"]


@pytest.fixture
def act(project: Path, tmp_path: Path, shipgen_on_path: str) -> Callable[..., tuple[str, str]]:
    """Runs the action's steps but the installation, as GitHub's shell does; gives what they say and the summary."""
    summary = tmp_path / "summary.md"

    def steps(code: int = 0, **inputs: str) -> tuple[str, str]:
        values = {name: str(spec["default"]) for name, spec in ACTION["inputs"].items()} | {"base": ""} | inputs
        summary.write_text("")
        said = ""
        for step in ACTION["runs"]["steps"][1:]:
            if "inputs.base != ''" in step.get("if", "") and not values["base"]:
                continue
            env = {name: _expression(text, values, tmp_path) for name, text in step["env"].items()}
            argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            env |= {"PATH": shipgen_on_path, "GITHUB_STEP_SUMMARY": str(summary)}
            said += run(argv, project, code if step is ACTION["runs"]["steps"][-1] else 0, **env)
        return said, summary.read_text("utf-8")

    return steps


def _expression(text: str, inputs: dict[str, str], temp: Path) -> str:
    found = re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: inputs[m[1]], text)
    return found.replace("${{ runner.temp }}", str(temp))


@needs_git
def test_the_action_checks(project: Path, act: Callable[..., tuple[str, str]]) -> None:
    said, summary = act()
    assert "::notice title=summary::rendered: all 2 files are what the policy renders" in said
    assert "### Rendered files" in summary
    edit(project)
    said, summary = act(code=1)
    assert "::error file=rendered/vector/vector.yaml,line=" in said
    assert "rendered: 1 of 2 files differs from the policy (1 edited)" in summary


@needs_git
def test_the_action_says_what_a_pull_request_changes(
    project: Path, act: Callable[..., tuple[str, str]], shipgen_on_path: str
) -> None:
    base = git(project, "rev-parse", "HEAD").strip()
    (project / "policy.yaml").write_text(POLICY.replace("name: t", "name: u"))
    run(["shipgen", "render", "policy.yaml", "-o", "rendered"], project, PATH=shipgen_on_path)
    commit(project)
    _, summary = act(base=base)
    assert "### What this changes" in summary
    assert "- read again: everything by vector, from the beginning" in summary
    (project / "new.yaml").write_text(POLICY)
    run(["shipgen", "render", "new.yaml", "-o", "rendered"], project, PATH=shipgen_on_path)
    assert "What this changes" not in act(base=base, policy="new.yaml")[1]


@needs_git
def test_the_action_takes_overlays_and_odd_names(
    project: Path, act: Callable[..., tuple[str, str]], shipgen_on_path: str
) -> None:
    (project / "prod;touch pwned.yaml").write_text("cluster: prod\n")
    base = commit(project)
    (project / "$(touch pwned).yaml").write_text("cluster: 'x'\n")
    run(["shipgen", "render", "policy.yaml", "$(touch pwned).yaml", "-o", "rendered"], project, PATH=shipgen_on_path)
    act(code=2, base=base, policy="policy.yaml $(touch pwned).yaml", strict="true")
    assert not (project / "pwned").exists()


# --- GitLab ---


def test_the_gitlab_job_fits_its_schema(tmp_path: Path) -> None:
    """The schema is of the job; the header with the inputs is a document of its own."""
    job = (ROOT / "ci" / "gitlab.yml").read_text("utf-8").split("\n---\n")[1]
    place = tmp_path / "gitlab-ci.yml"
    place.write_text(job)
    argv = ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", str(place)]
    run([tool("check-jsonschema"), *argv], ROOT)


@pytest.mark.parametrize("edited", [False, True])
@needs_git
def test_the_gitlab_job(project: Path, shipgen_on_path: str, edited: bool) -> None:
    header, jobs = GITLAB
    inputs = {name: spec["default"] for name, spec in header["spec"]["inputs"].items()} | {"package": ""}
    job: dict[str, Any] = jobs["shipgen"]
    env = {k: re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda m: inputs[m[1]], v) for k, v in job["variables"].items()}
    if edited:
        edit(project)
    said = run(["sh", "-ec", "\n".join(job["script"])], project, int(edited), PATH=shipgen_on_path, **env)
    assert ("1 edited" in said) == edited
    suite = ET.parse(project / "shipgen.xml").getroot()
    assert len(suite.findall(".//failure")) == int(edited)


# --- the image ---


def _instructions() -> list[list[str]]:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def _ignored(name: str) -> bool:
    """Whether the build does not get to see a file or directory of the top level."""
    kept = True
    for pattern in (ROOT / ".dockerignore").read_text("utf-8").split():
        if pattern == "*":
            kept = False
        elif pattern.startswith("!") and pattern[1:] == name:
            kept = True
    return not kept


def test_the_image_is_built_of_what_is_there() -> None:
    copied = [name for i in _instructions() if i[0] == "COPY" and not i[1].startswith("--from") for name in i[1:-1]]
    assert {"shipgen", "templates", "pyproject.toml"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name
        assert not _ignored(name), name
    for name in ("tests", "e2e", ".git", ".venv", "docs"):
        assert _ignored(name), name


def test_the_image_is_nobodys_and_has_a_pinned_base() -> None:
    steps = _instructions()
    assert all(re.fullmatch(r"python:3\.\d+-slim", i[1]) for i in steps if i[0] == "FROM")
    final = steps[max(i for i, step in enumerate(steps) if step[0] == "FROM"):]
    assert [i for i in final if i[0] == "USER"] == [["USER", "65532:65532"]]
    assert ["ENTRYPOINT", '["shipgen"]'] in final
