"""The pages of the documentation that are made from data are those that would be made now."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from shipgen.catalog import ray
from shipgen.policy.model import POLICY
from shipgen.targets import base, capabilities
from shipgen.targets.capabilities import Status

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_edited_or_missing_page_is_noticed(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "HERE", tmp_path)
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    capsys.readouterr()
    page = tmp_path / "files.md"
    page.write_text(page.read_text("utf-8") + "more\n", "utf-8")
    assert generate.main(["--check"]) == 1
    assert "docs/files.md" in capsys.readouterr().err
    assert generate.main(["--what"]) == 2


def test_every_family_key_and_deviation_is_on_its_page(generate: ModuleType) -> None:
    pages = generate.pages()
    for family in ray.FAMILIES:
        assert f"| `{family.name}` | `{family.component}` |" in pages["files.md"]
    for key in POLICY.keys:
        assert f"## `{key}`" in pages["policy.md"]
    for name in base.implemented():
        for row in capabilities.TABLE[name]:
            if row.status not in (Status.EXACT, Status.ELSEWHERE):
                assert row.text in pages["capabilities.md"]


def test_tables_are_whole(generate: ModuleType) -> None:
    """Every row of a table has as many cells as its head: no `|` of a value splits a cell."""
    for name in ("capabilities.md", "files.md"):
        cells = 0
        for line in generate.pages()[name].splitlines():
            if not line.startswith("|"):
                cells = 0
                continue
            bars = line.replace("\\|", "").count("|")
            assert bars == (cells or bars), line
            cells = bars


# --- mistakes ---


def test_a_hundred_mistakes_and_what_is_said_of_each(generate: ModuleType) -> None:
    """Each has a finding of its code, at a place, with a way out, short enough to be read. The page is the golden."""
    found = generate.mistakes()
    assert len(found) >= 100
    assert len({case["code"] for case, _ in found}) >= 40
    assert len({case["mistake"] for case, _ in found}) == len(found)
    for case, said in found:
        assert said, f"{case['mistake']}: nothing is said of {case['code']}"
        for one in said:
            assert one.place is not None, case["mistake"]
            assert one.place.line or case.get("whole"), case["mistake"]
            assert one.hint or re.search(r" is not |needs |must be |write |wants |takes ", one.text), one.message
            assert len(one.message) < 450, one.message
            assert not re.search(r"glc_abcdef|me:pw|Bearer abc", one.message), one.message


def test_a_mistake_is_blamed_on_the_file_that_it_is_in(generate: ModuleType) -> None:
    for case, said in generate.mistakes():
        if "over" in case:
            inside = case["over"].splitlines()
            for one in said:
                text = inside if one.place.file == "prod.yaml" else case["policy"].splitlines()
                assert one.path.rpartition(".")[2] in text[one.place.line - 1]
