"""Every golden configuration for Vector passes Vector's own checker, also where that builds the sinks."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from shipgen.targets.base import release
from shipgen.targets.vector import ENV_FLAG, TARGET

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
CASES = sorted(p.parent.parent.name for p in GOLDEN.glob("*/vector/vector.yaml"))
BINARIES = {"0.57": "vector", "0.56": "vector-0.56"}
"""Names under which versions of Vector may be on PATH."""


@cache
def components(binary: str) -> set[str]:
    """What a build of Vector has: some are made with few features."""
    listed = subprocess.run([binary, "list"], capture_output=True, text=True, check=True).stdout
    return {line.removeprefix("- ") for line in listed.splitlines() if line.startswith("- ")}


def binary_for(case: str, request: pytest.FixtureRequest) -> str:
    """The binary that a golden is for; a test without it is skipped, or fails with --require-shippers."""
    policy = yaml.safe_load((GOLDEN / case / "policy.yaml").read_text("utf-8"))
    version = policy.get("targets", {}).get("vector", {}).get("version", TARGET.versions[-1])
    binary = BINARIES[version]
    config = yaml.safe_load((GOLDEN / case / "vector" / "vector.yaml").read_text("utf-8"))
    reason = ""
    if shutil.which(binary) is None:
        reason = f"there is no `{binary}` on PATH"
    else:
        wanted = {c["type"] for kind in ("sources", "transforms", "sinks") for c in config[kind].values()}
        if missing := wanted - components(binary):
            reason = f"this build of {binary} has no {', '.join(sorted(missing))}"
    if reason:
        (pytest.fail if request.config.getoption("--require-shippers") else pytest.skip)(reason)
    return binary


def environment(binary: str) -> dict[str, str]:
    """With what the secrets of the goldens are references to."""
    flag = {ENV_FLAG: "true"} if release(subprocess.run(
        [binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]) >= (0, 57) else {}
    return {**os.environ, "LOKI_TOKEN": "t", "ES_KEY": "k", "NODE_NAME": "n", **flag}


@pytest.mark.parametrize("case", CASES)
def test_the_checker_has_nothing_to_say(case: str, request: pytest.FixtureRequest) -> None:
    binary = binary_for(case, request)
    argv = [binary, *TARGET.validate_argv(str(GOLDEN / case / TARGET.main_config))[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment(binary), timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_the_sinks_can_be_built(case: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Template confinement, labels and certificates are only looked at where the checker builds the sinks."""
    binary = binary_for(case, request)
    text = (GOLDEN / case / "vector" / "vector.yaml").read_text("utf-8")
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if "/etc/ssl/ca.pem" in text and not certificates.is_file():
        pytest.skip(f"there is no {certificates}")
    (tmp_path / "state").mkdir()
    for name in ("user", "password"):
        (tmp_path / name).write_text("x\n")
    data_dir = yaml.safe_load(text)["data_dir"]
    for there, here in ((data_dir, tmp_path / "state"), ("/run/secrets", tmp_path), ("/etc/ssl/ca.pem", certificates)):
        text = text.replace(f'"{there}"', f'"{here}"')
    config = tmp_path / "vector.yaml"
    config.write_text(text, "utf-8")
    argv = [binary, "validate", "--skip-healthchecks", "--config-yaml", str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment(binary), timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
