"""Copies of recorded trees, and a writer that does to files what Ray does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shipgen.diagnostics import UsageError
from shipgen.harness.replay import UNNAMED_SESSION, LiveWriter, copy_tree

SESSION = "session_2026-12-01_05-36-20_156597_11006"


def session(under: Path, name: str = SESSION) -> Path:
    logs = under / name / "logs"
    (logs / "serve").mkdir(parents=True)
    (logs / "raylet.out").write_text("a\n")
    (logs / "serve" / "controller_1.log").write_text("b\n")
    os.utime(logs / "raylet.out", (1000, 1000))
    return under / name


def test_a_directory_of_sessions(tmp_path: Path) -> None:
    source, target = tmp_path / "recorded", tmp_path / "ray"
    session(source)
    newest = SESSION.replace("05-36", "06-00")
    session(source, newest)
    (source / "session_latest").symlink_to(newest)
    (source / SESSION / "runtime_resources").mkdir()
    os.mkfifo(source / SESSION / "logs" / "pipe")
    target.mkdir()
    assert copy_tree(source, target) == sorted([SESSION, newest])
    assert (target / SESSION / "logs" / "serve" / "controller_1.log").read_text() == "b\n"
    assert (target / SESSION / "logs" / "raylet.out").stat().st_mtime == 1000
    assert not (target / SESSION / "runtime_resources").exists()
    assert not (target / SESSION / "logs" / "pipe").exists()
    link = target / "session_latest"
    assert link.readlink().is_absolute()
    assert link.resolve() == (target / newest).resolve()


@pytest.mark.parametrize("below", ["", "logs"])
def test_one_session_or_its_logs(tmp_path: Path, below: str) -> None:
    source = session(tmp_path / "recorded") / below
    (tmp_path / "ray").mkdir()
    assert copy_tree(source, tmp_path / "ray") == [SESSION]
    assert (tmp_path / "ray" / SESSION / "logs" / "raylet.out").exists()


def test_logs_taken_out_of_their_session(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "raylet.out").write_text("a\n")
    (tmp_path / "ray").mkdir()
    assert copy_tree(tmp_path / "x", tmp_path / "ray") == [UNNAMED_SESSION]


def test_no_logs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no session_2"):
        copy_tree(tmp_path, tmp_path)
    with pytest.raises(UsageError, match="no such directory"):
        copy_tree(tmp_path / "missing", tmp_path)


@pytest.fixture
def writer(tmp_path: Path) -> LiveWriter:
    (tmp_path / "ray").mkdir()
    return LiveWriter(tmp_path / "ray", tmp_path / "ledger")


def test_the_ledger_keeps_what_a_ring_overwrites(writer: LiveWriter) -> None:
    with writer:
        writer.new_session()
        for number in range(5):
            writer.write("raylet.out", f"line {number}")
            writer.rotate("raylet.out", backups=2)
        names = sorted(path.name for path in writer.logs().iterdir())
        assert names == ["old", "raylet.out", "raylet.out.1", "raylet.out.2"]
        assert (writer.logs() / "raylet.out.1").read_text() == "line 4\n"
        assert (writer.logs() / "raylet.out.2").read_text() == "line 3\n"
        assert (writer.logs() / "raylet.out").read_text() == ""
    kept = writer.ledger / writer.session / "logs" / "raylet.out"
    assert kept.read_text() == "".join(f"line {n}\n" for n in range(5))


def test_rotation_moves_the_inode(writer: LiveWriter) -> None:
    with writer:
        writer.new_session()
        writer.write("raylet.out", "a")
        before = (writer.logs() / "raylet.out").stat().st_ino
        writer.rotate("raylet.out")
        assert (writer.logs() / "raylet.out.1").stat().st_ino == before
        assert (writer.logs() / "raylet.out").stat().st_ino != before


def test_lines_that_are_not_finished(writer: LiveWriter) -> None:
    with writer:
        writer.new_session()
        writer.partial("w.out", "half")
        assert (writer.logs() / "w.out").read_text() == "half"
        writer.partial("w.out", " done\n")
        writer.write("w.out", "next")
        assert (writer.logs() / "w.out").read_text() == "half done\nnext\n"


def test_a_dead_worker(writer: LiveWriter) -> None:
    with writer:
        writer.new_session()
        writer.write("worker-1.out", "a")
        writer.move_to_old("worker-1.out")
        assert (writer.logs() / "old" / "worker-1.out").read_text() == "a\n"
        assert not (writer.logs() / "worker-1.out").exists()
    assert (writer.ledger / writer.session / "logs" / "worker-1.out").read_text() == "a\n"


def test_a_new_session_while_the_old_one_still_writes(writer: LiveWriter) -> None:
    with writer:
        old = writer.new_session()
        writer.write("raylet.out", "a")
        new = writer.new_session()
        assert old < new
        writer.write("raylet.out", "late", session=old)
        writer.write("raylet.out", "b")
        assert (writer.logs(old) / "raylet.out").read_text() == "a\nlate\n"
        assert (writer.logs() / "raylet.out").read_text() == "b\n"
        assert (writer.temp_dir / "session_latest").resolve() == (writer.temp_dir / new).resolve()
