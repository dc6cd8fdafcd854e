"""Options of the plain suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes what is rendered now to `tests/golden/`, for a look at the difference."""
    parser.addoption("--update-golden", action="store_true", help="write the expected files of tests/golden anew")

# The same examples in every run of CI, so that what fails there fails anywhere; new ones on every other machine.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
