"""The shipper's own checker on what is rendered, and what that checker does not look at."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from shipgen.diagnostics import Diagnostic, OutsideError, Severity
from shipgen.pipeline.model import Pipeline
from shipgen.rendering import bundle
from shipgen.targets.plan import Choice

_LIMIT_S = 120


def check_natively(pipeline: Pipeline, choices: Iterable[Choice]) -> tuple[list[Diagnostic], int]:
    """Run each target's checker where its binary is on PATH. Gives findings, and exit code 3 where one could not
    run."""
    found: list[Diagnostic] = []
    code = 0
    for choice in choices:
        assert choice.target is not None
        binary = choice.target.binary
        if shutil.which(binary) is None:
            found.append(Diagnostic(
                "native-unchecked", Severity.WARNING, "", f"not checked: there is no `{binary}` on PATH",
                f"install it, or run it from the image {choice.target.image(choice.version)}", target=choice.name,
            ))
            code = OutsideError.exit_code
            continue
        with tempfile.TemporaryDirectory(prefix="shipgen-native-") as directory:
            bundle.write(bundle.of(pipeline, [choice]), Path(directory))
            argv = choice.target.validate_argv(str(Path(directory) / choice.target.main_config))
            try:
                done = subprocess.run(
                    argv, capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise OutsideError(f"`{' '.join(argv[:2])}` did not run: {error}") from error
        if done.returncode:
            said = " ".join((done.stdout + done.stderr).replace(directory, "").split())[-2000:]
            found.append(Diagnostic(
                "native-check", Severity.ERROR, "", f"`{binary}` refuses the rendered configuration: {said}",
                "this is a fault in shipgen: please report it", target=choice.name,
            ))
        found.append(Diagnostic(
            "native-unchecked", Severity.NOTE, "",
            f"{'ran' if done.returncode else 'checked by'} `{' '.join(argv[:-1])}`, which does not look at "
            f"{choice.target.not_validated()}", target=choice.name,
        ))
    return found, code
