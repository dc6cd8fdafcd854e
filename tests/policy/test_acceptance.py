"""Whole policies: those in ``positive/`` load, those in ``negative/`` give exactly the errors their first lines name.

A first line reads ``# error: LINE:COLUMN CODE PATH`` (or ``warning``, ``note``); 0:0 is the file as a whole.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shipgen.diagnostics import Diagnostic, PolicyError, Severity
from shipgen.policy import load

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


def cases(folder: str) -> list[Path]:
    return sorted((HERE / folder).glob("*.yaml"))


def expected(path: Path) -> list[tuple[str, ...]]:
    text = path.read_text("utf-8-sig")
    found = re.findall(r"^# (error|warning|note): (\d+:\d+) ([a-z-]+) ?(.*)$", text, re.MULTILINE)
    return sorted(found)


def seen(diagnostics: list[Diagnostic]) -> list[tuple[str, ...]]:
    assert all(one.place is not None for one in diagnostics)
    return sorted(
        (one.severity.value, f"{p.line}:{p.column}", one.code, one.path) for one in diagnostics if (p := one.place)
    )


@pytest.mark.parametrize("path", cases("positive"), ids=lambda path: path.stem)
def test_accepted(path: Path) -> None:
    assert seen(load([str(path)]).diagnostics) == expected(path)


@pytest.mark.parametrize("path", cases("negative"), ids=lambda path: path.stem)
def test_refused(path: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        load([str(path)])
    errors = [one for one in caught.value.diagnostics if one.severity is Severity.ERROR]
    assert seen(errors) == expected(path)
    for one in errors:
        assert one.message.isprintable()
        assert "hunter2" not in one.message, "a secret is never repeated"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_clean(path: Path) -> None:
    assert load([str(path)]).diagnostics == []


def test_every_error_has_a_way_out() -> None:
    """Each message says what would be right: as a hint, or because the text itself does."""
    for path in cases("negative"):
        with pytest.raises(PolicyError) as caught:
            load([str(path)])
        for one in caught.value.diagnostics:
            assert one.hint or re.search(
                r" is not |needs |must be|required|not every|pattern|once|more than", one.text
            ), one
