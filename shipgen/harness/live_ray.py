"""A real Ray as a scenario: it runs with the rendered environment, and its logs are shipped as they are written."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shipgen.diagnostics import OutsideError, UsageError
from shipgen.harness.runners import TAG_VARIABLE, tail

if TYPE_CHECKING:
    from shipgen.harness.verify import Stage

_SECONDS = 15.0
_LIMIT_S = 300.0
#: A path of a socket has at most 107 characters, and Ray makes `<temp_dir>/session_<time>_<pid>/sockets/plasma_store`.
_LONGEST = 107 - len("/session_2026-12-01_05-36-20_156597_4194304/sockets/plasma_store.1")


class LiveRay:
    """Ray runs a small program. What stands in its files afterwards is what has to have arrived."""

    name = "a Ray program"
    own_times = True

    def __init__(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise OutsideError("Ray is not installed here, so nothing was verified; pip install 'shipgen[ray]'")

    def before(self, stage: Stage) -> None:
        """Nothing is there but the directory."""
        if not any(source.type == "ray" for source in stage.pipeline.sources):
            raise UsageError("--live-ray writes Ray's files, and the policy has no source of type ray")
        if len(str(stage.temp_dir)) > _LONGEST:
            raise OutsideError(f"{stage.temp_dir} is too long for Ray's sockets (at most {_LONGEST} characters); "
                               "set TMPDIR to a shorter directory")
        stage.temp_dir.mkdir(parents=True)

    def during(self, stage: Stage) -> None:
        """Start Ray, and wait until its program has ended."""
        environment = {**os.environ, TAG_VARIABLE: stage.runner.workdir.name, "RAY_USAGE_STATS_ENABLED": "0"}
        for name in ("ray.env", "driver.env"):
            environment |= read_environment(stage.run.bundle / "ray" / name)
        program = Path(__file__).with_name("ray_program.py")
        log = stage.runner.workdir / "ray.log"
        with log.open("wb") as output:
            argv = [sys.executable, str(program), str(stage.temp_dir), str(_SECONDS)]
            try:
                done = subprocess.run(
                    argv, env=environment, cwd=stage.runner.workdir, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, timeout=_LIMIT_S, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise OutsideError(f"Ray's program did not end within {_LIMIT_S:g} s") from None
        if done.returncode:
            raise OutsideError(f"Ray's program failed; it ended with:\n{tail(log.read_text(errors='replace'))}")
        stage.suffer()

    def truth(self, stage: Stage) -> Path:
        """Ray's own directory."""
        return stage.temp_dir


def read_environment(file: Path) -> dict[str, str]:
    """The variables of a rendered environment file; none where the policy renders none."""
    if not file.exists():
        return {}
    pairs = (word.partition("=") for line in file.read_text().splitlines() for word in shlex.split(line, comments=True))
    return {name: value for name, _, value in pairs}
