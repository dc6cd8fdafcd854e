"""`shipgen files`: who ships each file of a real tree."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from making import TREE_NAMES, TREES, policy, resolved

from shipgen.diagnostics import Diagnostic, Severity
from shipgen.harness import reference
from shipgen.pipeline.inventory import glob_regex, inventory, matches

SESSION = "session_2026-12-01_00-00-00_000000_1"


def listed(root: Path, **parts: Any) -> tuple[dict[str, str], list[Diagnostic]]:
    """Each file below the root with who ships it."""
    rows, found = inventory(resolved(policy(**parts)), root)
    pairs = [row.split("\t") for row in rows]
    assert len({path for path, _ in pairs}) == len(pairs), "a file is listed twice"
    return {str(Path(path).relative_to(root)): by for path, by in pairs}, found


def node(root: Path, *files: str, session: str = SESSION) -> Path:
    for name in files:
        path = root / "tmp" / "ray" / session / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    return root


@pytest.mark.parametrize("components", ["default", "all"])
@pytest.mark.parametrize("tree", TREE_NAMES)
def test_recorded_trees_have_no_strays(tree: str, components: str, tmp_path: Path) -> None:
    """What is shipped is what the reference reads."""
    (tmp_path / "ray").symlink_to(TREES / tree)
    sources = {"ray": {"type": "ray", "components": [components]}}
    rows, found = listed(tmp_path, ray={"temp_dir": "/ray"}, sources=sources)
    assert found == []
    options = reference.Options(everything=components == "all")
    read = {f"ray/{session}/logs/{below}" for session, below, _ in reference.files(TREES / tree, options)}
    assert {path for path, by in rows.items() if by.startswith("ray: ")} == read
    assert all(re.match("ray: |no log: |a backup of | *[a-z_]+ is not selected", by) for by in rows.values())


def test_what_a_row_says(tmp_path: Path) -> None:
    worker = f"worker-{'a' * 56}-01000000-7.out"
    node(tmp_path, "raylet.out", "raylet.out.1", "debug_state.txt", "job-driver-x.log", "job-driver-x.log.1", worker,
         f"old/{worker}", "old/raylet.out", "events/event_JOBS.log", "new.log", "deep/er/new.txt")
    rows, found = listed(tmp_path)
    below = {path.split("/logs/")[1]: by for path, by in rows.items()}
    assert below == {
        "raylet.out": "ray: raylet", "raylet.out.1": "ray: raylet", worker: "ray: worker",
        f"old/{worker}": "ray: worker", "job-driver-x.log": "ray: job_driver",
        "job-driver-x.log.1": "a backup of job-driver-x.log",
        "debug_state.txt": "no log: a state dump, rewritten in place every few seconds",
        "events/event_JOBS.log": "events is not selected (structured events, not log lines)",
        "old/raylet.out": "nobody", "new.log": "nobody", "deep/er/new.txt": "nobody",
    }
    assert {(d.code, d.severity) for d in found} == {("stray-file", Severity.ERROR)}
    assert len(found) == 3
    assert all(d.place and d.place.file in d.text for d in found)


@pytest.mark.parametrize(("parts", "expected"), [
    ({"rotation": {"by": "logrotate"}}, "a backup of raylet.out"), ({"rotation": {"by": "ray"}}, "ray: raylet"),
    ({"sources": {"ray": {"type": "ray", "rotated": "exclude"}}}, "a backup of raylet.out"),
])
def test_backups(parts: dict[str, Any], expected: str, tmp_path: Path) -> None:
    rows, _ = listed(node(tmp_path, "raylet.out.3"), **parts)
    assert list(rows.values()) == [expected]


def test_links_to_sessions_are_none(tmp_path: Path) -> None:
    node(tmp_path, "raylet.out")
    node(tmp_path, "gcs_server.out", session="session_2027")
    ray = tmp_path / "tmp" / "ray"
    (ray / "session_latest").symlink_to(ray / SESSION)
    (ray / "session_2099").symlink_to(ray / SESSION)
    (ray / "session_2098").write_text("a file")
    rows, found = listed(tmp_path)
    assert [path.split("/")[2] for path in rows] == [SESSION, "session_2027"]
    assert found == []


def test_two_sources_of_one_file(tmp_path: Path) -> None:
    node(tmp_path, "raylet.out", "gcs_server.out")
    sources = {
        "a": {"type": "ray", "components": ["raylet"]}, "b": {"type": "ray", "components": ["raylet", "gcs_server"]},
        "f": {"type": "file", "paths": ["/tmp/ray/*/logs/gcs*.out", "/tmp/ray/*/logs/*_server.out"]},
    }
    rows, found = listed(tmp_path, sources=sources)
    assert {path.split("/logs/")[1]: by for path, by in rows.items()} == {
        "raylet.out": "a: raylet, b: raylet", "gcs_server.out": "b: gcs_server, f"}
    assert [(d.code, d.severity) for d in found] == [("file-read-twice", Severity.WARNING)] * 2
    assert any("b: gcs_server and f" in d.text for d in found)


def test_a_file_source_takes_strays(tmp_path: Path) -> None:
    node(tmp_path, "new.log")
    sources = {"ray": {"type": "ray"}, "f": {"type": "file", "paths": ["/tmp/ray/*/logs/new.log"]}}
    rows, found = listed(tmp_path, sources=sources)
    assert (list(rows.values()), found) == (["f"], [])


@pytest.mark.parametrize("root", ["/", "/host", "/host/"])
def test_paths_are_looked_up_below_the_root(root: str, tmp_path: Path) -> None:
    (tmp_path / "var/log").mkdir(parents=True)
    for name in ("a.log", "b.log", "c.txt", ".hidden.log"):
        (tmp_path / "var/log" / name).write_text("")
    (tmp_path / "var/log/d.log").mkdir()
    node(tmp_path, "raylet.out")
    sources = {"ray": {"type": "ray"}, "f": {"type": "file", "paths": ["/var/log/*.log"], "exclude": ["/var/log/b*"]}}
    rows, found = listed(tmp_path, collector={"root": root}, sources=sources)
    assert {path.split("/")[-1]: by for path, by in rows.items()} == {
        "raylet.out": "ray: raylet", "a.log": "f", ".hidden.log": "f"}
    assert found == []


def test_nothing_there(tmp_path: Path) -> None:
    assert listed(tmp_path / "none") == ({}, [])
    (tmp_path / "tmp").write_text("a file")
    assert listed(tmp_path, sources={"r": {"type": "ray"}, "f": {"type": "file", "paths": ["/", "/tmp/x"]}}) == ({}, [])


def test_names_that_are_no_text(tmp_path: Path) -> None:
    logs = node(tmp_path, "raylet.out") / "tmp" / "ray" / SESSION / "logs"
    with open(os.fsencode(logs) + b"/\xff\n.log", "w"):  # noqa: PTH123 - a name of bytes
        pass
    rows, found = inventory(resolved(policy()), tmp_path)
    assert len(rows) == 2
    assert [d.code for d in found] == ["stray-file"]


@pytest.mark.parametrize(("glob", "path", "fits"), [
    ("/a/*.log", "/a/x.log", True), ("/a/*.log", "/a/b/x.log", False), ("/a/*.log", "/a/.log", True),
    ("/a/?.log", "/a/x.log", True), ("/a/?.log", "/a/.log", False), ("/a/?", "/a//", False), ("/a/[ab]", "/a/b", True),
    ("/a/[a-c]x", "/a/bx", True), ("/a/[!a-c]", "/a/d", True), ("/a/[!a-c]", "/a/a", False), ("/a/[!a]", "/a//", False),
    ("/a.b", "/aXb", False), ("/a+(b)$^|", "/a+(b)$^|", True), ("/a", "/ab", False), ("/b", "/a/b", False),
    ("/a/*", "/a/x\ny", True), ("/é*", "/éa", True), ("/a", "/a\n", False),
])
def test_globs(glob: str, path: str, fits: bool) -> None:
    (source,) = resolved(policy(sources={"f": {"type": "file", "paths": [glob]}})).sources
    assert matches(source, path) is fits
    assert glob_regex(glob).startswith("\\A")
