"""What `check` finds: every file that differs, why, and a diff that mends it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shipgen import __version__
from shipgen.diagnostics import Severity, UsageError
from shipgen.rendering.bundle import MANIFEST, Bundle, write
from shipgen.rendering.drift import compare, summary, unified

FILES = {"vector/vector.yaml": b"a: 1\n", "ray/ray.env": b"A=1\n", "logrotate/ray": b"x\n"}


def bundle(files: dict[str, bytes] | None = None) -> Bundle:
    return Bundle(FILES if files is None else files, {}, "sha256:0", {"vector": "0.57"})


def test_no_drift(tmp_path: Path) -> None:
    write(bundle(), tmp_path)
    (tmp_path / "notes.txt").write_bytes(b"")
    assert list(compare(bundle(), tmp_path)) == []
    assert summary([], bundle(), Path("out")) == "out: all 4 files are what the policy renders"


def test_edited_missing_and_stale(tmp_path: Path) -> None:
    write(bundle({**FILES, "old": b"s"}), tmp_path)
    (tmp_path / "vector/vector.yaml").write_bytes(b"a: 2\n")
    (tmp_path / "ray/ray.env").unlink()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    found = list(compare(bundle(), tmp_path))
    assert [(d.kind, d.path) for d in found] == [
        ("outdated", MANIFEST), ("missing", "ray/ray.env"), ("edited", "vector/vector.yaml"), ("stale", "old")]
    assert found[2].diff == "--- a/vector/vector.yaml\n+++ b/vector/vector.yaml\n@@ -1 +1 @@\n-a: 2\n+a: 1\n"
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    for drift in found:
        diagnostic = drift.diagnostic(tmp_path, "shipgen render 'p q.yaml' -o {x}")
        assert (diagnostic.code, diagnostic.severity) == ("drift", Severity.ERROR)
        assert diagnostic.place
        assert diagnostic.place.file == str(tmp_path / drift.path)
        assert drift.path in diagnostic.message
        assert diagnostic.message.endswith("render again: shipgen render 'p q.yaml' -o {x}")
    assert summary(found, bundle(), Path("out")) == (
        "out: 4 of 5 files differ from the policy (1 edited, 1 outdated, 1 missing, 1 stale)")


def _crlf(place: Path) -> None:
    place.write_bytes(place.read_bytes().replace(b"\n", b"\r\n"))


@pytest.mark.parametrize(("change", "kind"), [
    (lambda place: place.write_bytes(b"a: 1 # mine\n"), "edited"),
    (_crlf, "line-ends"),
    (lambda place: write(bundle({**FILES, "vector/vector.yaml": b"a: 0\n"}), place.parents[1]), "outdated"),
])
def test_why_a_file_differs(tmp_path: Path, change: Callable[[Path], object], kind: str) -> None:
    write(bundle(), tmp_path)
    place = tmp_path / "vector/vector.yaml"
    change(place)
    assert [d.kind for d in compare(bundle(), tmp_path) if d.path != MANIFEST] == [kind]


def test_another_release_is_named(tmp_path: Path) -> None:
    write(bundle({**FILES, "vector/vector.yaml": b"a: 0\n"}), tmp_path)
    manifest = tmp_path / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "shipgen": "0.0.0"}))
    assert {d.kind for d in compare(bundle(), tmp_path)} == {"other-release"}
    assert all(__version__ in d.diagnostic(tmp_path, "").text for d in compare(bundle(), tmp_path))


def test_the_place_is_the_first_line_that_differs() -> None:
    for there, line in ((b"a\nx\nc\n", 2), (b"a\nb\n", 2), (b"a\nb\nc\nd\n", 3), (b"", 1)):
        assert unified("f", there, b"a\nb\nc\n")[1] == line, there


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize(("old", "new"), [
    (b"a: 1\nb: 2\n", b"a: 1\nb: 3\n"), (b"a: 1", b"a: 1\n"), (b"a\r\n", b"a\n"), (b"", b"a\n"),
    (b"x\n" * 50 + b"--- y\n", b"x\n" * 49 + b"+++ z\n"),
])
def test_git_applies_the_diff(tmp_path: Path, old: bytes, new: bytes) -> None:
    (tmp_path / "f").write_bytes(old)
    argv, diff = ["git", "apply", "--whitespace=nowarn", "-"], unified("f", old, new)[0].encode()
    done = subprocess.run(argv, cwd=tmp_path, input=diff, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f").read_bytes() == new


def test_files_too_long_to_compare_are_named_only() -> None:
    text, line = unified("f", b"a\n" * 30_000, b"b\n")
    assert text.splitlines()[2:] == ["(too long to compare)"]
    assert line == 1


def test_nothing_there_at_all(tmp_path: Path) -> None:
    assert {d.kind for d in compare(bundle(), tmp_path / "none")} == {"missing"}
    (tmp_path / "ray").write_bytes(b"a file")
    assert ("missing", "ray/ray.env") in [(d.kind, d.path) for d in compare(bundle(), tmp_path)]


@pytest.mark.parametrize(("there", "lines"), [
    (b"a: 1", ["-a: 1", "\\ No newline at end of file", "+a: 1"]),
    (b"a: 2\r\n", ["-a: 2\r", "+a: 1"]),
    (b"a: 1\x0cb\n", ["-a: 1\x0cb", "+a: 1"]),
    (b"\xff\n", ["-\ufffd", "+a: 1"]),
    (b"", ["+a: 1"]),
])
def test_diffs_of_odd_files(tmp_path: Path, there: bytes, lines: list[str]) -> None:
    write(bundle(), tmp_path)
    (tmp_path / "vector/vector.yaml").write_bytes(there)
    (drift,) = compare(bundle(), tmp_path)
    assert drift.diff.split("\n")[3:-1] == lines


@pytest.mark.parametrize("link", ["vector", "vector/vector.yaml"])
def test_links_are_not_followed(tmp_path: Path, link: str) -> None:
    place, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    write(bundle(), place)
    (place / "vector/vector.yaml").write_bytes(b"a: secret\n")
    (place / link).rename(elsewhere)
    (place / link).symlink_to(elsewhere)
    found = list(compare(bundle(), place))
    assert [(d.kind, d.path, d.diff) for d in found] == [("no-file", "vector/vector.yaml", "")]


@pytest.mark.parametrize(("make", "said"), [(os.mkdir, "Is a directory"), (os.mkfifo, "no plain file")])
def test_what_is_no_file_is_not_read(make: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    write(bundle(), tmp_path)
    (tmp_path / "ray/ray.env").unlink()
    make(tmp_path / "ray/ray.env")
    assert [d.kind for d in compare(bundle(), tmp_path)] == ["no-file"]
    with pytest.raises(UsageError, match=said):
        write(bundle(), tmp_path)
