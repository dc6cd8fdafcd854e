"""Every policy and every command of the documentation, page by page, as they stand there.

A YAML block with a title is written to a file of that name; then the page's shell blocks run, in order, in that
directory. `# exit N` behind a command is what it must end with, `# needs PROGRAM, ..` what it can't run without. A text
block behind a shell block has lines that the last command must have said.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from shipgen.diagnostics import CODES
from shipgen.policy import load

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
LANGUAGES = {"yaml", "sh", "text", "console", "json", "logql"}
"""`console` is for root on a node, the last two are for other programs; none of those is run here."""


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    for found in BLOCK.finditer((DOCS / page).read_text("utf-8")):
        yield found[1], found[2] or "", found[3]


def commands(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Commands of a shell block: the line, its exit code, the programs it needs."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            code = re.search(r"# exit (\d+)", line)
            needs = re.search(r"# needs (.+)$", line)
            yield line, int(code[1]) if code else 0, needs[1].split(", ") if needs else []


@pytest.mark.parametrize("page", [p for p in PAGES if any(kind == "sh" for kind, _, _ in blocks(p))])
def test_commands(page: str, tmp_path: Path) -> None:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    said = ""
    for kind, title, text in blocks(page):
        if title:
            (tmp_path / title).write_text(text, encoding="utf-8")
        elif kind == "sh":
            for line, code, needs in commands(text):
                assert line.split()[0] in ("shipgen", "echo", "pip"), f"{line}: is that run anywhere?"
                if line == "pip install ." or needs:  # the end-to-end tests have what others need
                    continue
                done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True,
                                      check=False)
                assert done.returncode == code, (line, done.stdout, done.stderr)
                said = done.stdout + done.stderr
        elif kind == "text":
            for line in text.splitlines():
                assert line in said, (line, said)


@pytest.mark.parametrize("page", [
    p for p in PAGES if p != "mistakes.md" and any(kind == "yaml" for kind, _, _ in blocks(p))])
def test_policies_load_without_errors(page: str, tmp_path: Path) -> None:
    for kind, title, text in blocks(page):
        if kind == "yaml" and title != "wrong.yaml":
            assert isinstance(yaml.safe_load(text), dict)
            if text.startswith("version:"):
                (tmp_path / "policy.yaml").write_text(text, encoding="utf-8")
                load([str(tmp_path / "policy.yaml")])


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_of_known_kinds(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert text.count("```") == 2 * len(list(blocks(page)))
    assert {kind for kind, _, _ in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_pages(page: str) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (DOCS / page).read_text("utf-8")):
        if "://" not in link:
            assert (DOCS / page).parent.joinpath(link).is_file(), link


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))

    def leaves(tree: object) -> Iterator[str]:
        if isinstance(tree, str):
            yield tree
        elif isinstance(tree, dict | list):
            for one in tree.values() if isinstance(tree, dict) else tree:
                yield from leaves(one)

    assert sorted(leaves(site["nav"])) == PAGES
    assert site["strict"] is True


def test_the_failure_guide_names_codes_that_exist() -> None:
    text = (DOCS / "failures.md").read_text("utf-8")
    named = set(re.findall(r"^\| `([a-z]+(?:-[a-z]+)*)` \|", text, re.MULTILINE))
    assert named
    assert named <= set(CODES)


def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(ROOT / "mkdocs.yml"),
                           "-d", str(tmp_path / "site")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in PAGES:
        assert (tmp_path / "site" / page).with_suffix(".html").is_file()
    assert not list((tmp_path / "site").rglob("*.py"))
