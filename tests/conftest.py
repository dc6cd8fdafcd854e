"""Options of the plain suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes what is rendered now to `tests/golden/`, for a look at the difference."""
    parser.addoption("--update-golden", action="store_true", help="write the expected files of tests/golden anew")
