"""The shipper's own checker on what is rendered, and what that checker does not look at."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from shipgen.diagnostics import Diagnostic, OutsideError, Severity
from shipgen.pipeline.model import Pipeline
from shipgen.rendering import bundle
from shipgen.targets.base import Target
from shipgen.targets.plan import Choice

_LIMIT_S = 120


def check_natively(pipeline: Pipeline, choices: Iterable[Choice]) -> tuple[list[Diagnostic], int]:
    """Run each target's checker where its binary is on PATH. Gives findings, and exit code 3 where one could not
    run."""
    found: list[Diagnostic] = []
    code = 0
    for choice in choices:
        assert choice.target is not None
        with tempfile.TemporaryDirectory(prefix="shipgen-native-") as directory:
            # some checkers make the directory for the shipper's state
            here = replace(pipeline, collector=replace(pipeline.collector, state_dir=f"{directory}/state"))
            bundle.write(bundle.of(here, [choice]), Path(directory))
            checked = [(choice.target, choice.version, choice.target.main_config)]
            if choice.relay:
                checked.append((choice.relay.target, choice.relay.version, choice.relay.config))
            for target, version, config in checked:
                if shutil.which(target.binary):
                    found += _checked(target, Path(directory), config, choice.name)
                    continue
                found.append(Diagnostic(
                    "native-unchecked", Severity.WARNING, "",
                    f"not checked: there is no `{target.binary}` on PATH",
                    f"install it, or run it from the image {target.image(version)}", target=choice.name,
                ))
                code = OutsideError.exit_code
    return found, code


def _checked(target: Target, directory: Path, config: str, name: str) -> Iterator[Diagnostic]:
    """What a shipper's checker says of one file of a bundle."""
    argv = target.validate_argv(str(directory / config))
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OutsideError(f"`{' '.join(argv[:2])}` did not run: {error}") from error
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).replace(str(directory), "").split())[-2000:]
        yield Diagnostic(
            "native-check", Severity.ERROR, "", f"`{target.binary}` refuses the rendered configuration: {said}",
            "this is a fault in shipgen: please report it", target=name,
        )
    command = " ".join(argv[:-1]).replace(str(directory), "")
    yield Diagnostic(
        "native-unchecked", Severity.NOTE, "",
        f"{'ran' if done.returncode else 'checked by'} `{command}`, which does not look at {target.not_validated()}",
        target=name,
    )
