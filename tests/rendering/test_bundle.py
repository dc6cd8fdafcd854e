"""The bundle on disk: whole or not at all, owned by its manifest, the same bytes wherever it is rendered."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import yaml
from making import judged, policy, rendered, resolved

from shipgen import __version__
from shipgen.diagnostics import UsageError
from shipgen.rendering import bundle as bundles
from shipgen.rendering.bundle import MANIFEST, Bundle, ParseBackError, read_manifest, write
from shipgen.rendering.drift import compare
from shipgen.targets import base
from shipgen.targets.base import File

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray-loki.yaml"
FILES = {"vector/vector.yaml": b"a: 1\n", "ray/ray.env": b"A=1\n", "logrotate/ray": b"x\n"}


def bundle(files: dict[str, bytes] | None = None, **versions: str) -> Bundle:
    return Bundle(FILES if files is None else files, {}, "sha256:0", versions or {"vector": "0.57"})


def snapshot(directory: Path) -> dict[str, Any]:
    """Everything below a directory: bytes, link targets, and directories."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        found[name] = str(path.readlink()) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


def refused(what: Bundle, directory: Path, match: str = ".") -> None:
    """The write is refused, and nothing below the directory's parent has changed."""
    before = snapshot(directory.parent)
    with pytest.raises(UsageError, match=match):
        write(what, directory)
    assert snapshot(directory.parent) == before


def set_manifest(directory: Path, *files: str) -> None:
    content = {"shipgen": "0", "pipeline": "sha256:0", "targets": {}, "files": dict.fromkeys(files, "")}
    (directory / MANIFEST).write_text(json.dumps(content))


# --- writing ---


def test_a_new_directory(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    assert sorted(write(bundle(), place)) == sorted([*FILES, MANIFEST])
    assert {p: place.joinpath(p).read_bytes() for p in FILES} == FILES
    assert set(snapshot(place)) == {*FILES, MANIFEST, "vector", "ray", "logrotate"}
    assert (place / "vector/vector.yaml").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_manifest(tmp_path: Path) -> None:
    write(bundle(vector="0.57", filebeat="9.4"), tmp_path)
    text = (tmp_path / MANIFEST).read_text()
    assert text.endswith("}\n")
    assert json.loads(text) == {
        "shipgen": __version__, "pipeline": "sha256:0", "targets": {"filebeat": "9.4", "vector": "0.57"},
        "files": {p: "sha256:" + hashlib.sha256(data).hexdigest() for p, data in FILES.items()},
    }
    assert list(json.loads(text)["files"]) == sorted(FILES)


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    write(bundle(), tmp_path)
    times = {p: (tmp_path / p).stat().st_mtime_ns for p in FILES}
    assert write(bundle(), tmp_path) == []
    assert write(bundle({**FILES, "ray/ray.env": b"A=2\n"}), tmp_path) == ["ray/ray.env", MANIFEST]
    del times["ray/ray.env"]
    assert {p: (tmp_path / p).stat().st_mtime_ns for p in times} == times


def test_stale_files_go_and_files_of_others_stay(tmp_path: Path) -> None:
    write(bundle({**FILES, "vector/old/deep.yaml": b"", "promtail/promtail.yaml": b""}), tmp_path)
    (tmp_path / "promtail/promtail.yaml").write_bytes(b"edited")
    others = {"notes.txt": b"n", "vector/mine.yaml": b"m", "vector/old/mine": b"m", ".git/config": b"g"}
    for path, data in others.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "empty").mkdir()
    write(bundle({"vector/vector.yaml": b"a: 1\n"}), tmp_path)
    assert set(snapshot(tmp_path)) == {*others, "vector", "vector/old", ".git", "empty", "vector/vector.yaml", MANIFEST}
    assert {p: (tmp_path / p).read_bytes() for p in others} == others


def test_edited_files_are_overwritten(tmp_path: Path) -> None:
    write(bundle(), tmp_path)
    (tmp_path / "vector/vector.yaml").write_bytes(b"edited")
    (tmp_path / "ray/ray.env").unlink()
    assert write(bundle(), tmp_path) == ["vector/vector.yaml", "ray/ray.env"]
    assert (tmp_path / "vector/vector.yaml").read_bytes() == FILES["vector/vector.yaml"]


def test_a_file_of_others_in_the_way_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "out"
    (place / "ray").mkdir(parents=True)
    (place / "ray/ray.env").write_bytes(b"MINE=1\n")
    refused(bundle(), place, "ray.env: not shipgen's")
    (place / "ray/ray.env").write_bytes(FILES["ray/ray.env"])
    assert "ray/ray.env" not in write(bundle(), place)


def test_a_killed_run_is_made_good(tmp_path: Path) -> None:
    (tmp_path / "vector").mkdir()
    (tmp_path / "vector/.vector.yaml.shipgen-new").write_bytes(b"half")
    write(bundle(), tmp_path)
    assert set(snapshot(tmp_path)) == {*FILES, MANIFEST, "vector", "ray", "logrotate"}


# --- links ---


@pytest.mark.parametrize("link", ["vector", "vector/vector.yaml", MANIFEST, "logrotate"])
@pytest.mark.parametrize("dangling", [False, True])
def test_links_are_refused(tmp_path: Path, link: str, dangling: bool) -> None:
    place, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    write(bundle(), place)
    moved = place / link
    moved.rename(elsewhere)
    moved.symlink_to(tmp_path / "nowhere" if dangling else elsewhere)
    refused(bundle(dict.fromkeys(FILES, b"new")), place, "symbolic link|not shipgen's")


def test_a_link_at_the_name_of_a_staged_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"v")
    place = tmp_path / "out"
    (place / "vector").mkdir(parents=True)
    (place / "vector/.vector.yaml.shipgen-new").symlink_to(victim)
    write(bundle(), place)
    assert victim.read_bytes() == b"v"
    assert not (place / "vector/vector.yaml").is_symlink()


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    write(bundle(), tmp_path / "out")
    assert (tmp_path / "real/vector/vector.yaml").is_file()


def test_stale_links_stay(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"k")
    place = tmp_path / "out"
    place.mkdir()
    (place / "a").symlink_to(tmp_path / "kept")
    (place / "d").symlink_to(tmp_path)
    set_manifest(place, "a", "d/kept")
    write(bundle(), place)
    assert (tmp_path / "kept").read_bytes() == b"k"
    assert (place / "a").is_symlink()


# --- forged manifests ---


@pytest.mark.parametrize("path", [
    "../victim", "/victim", "a/../../victim", "", ".", "..", "a/..", "./a", "a/.", "a//b", "a/", "a\0b", "a\nb",
    "\ud800", "out/../../victim",
])
def test_forged_paths(tmp_path: Path, path: str) -> None:
    (tmp_path / "victim").write_bytes(b"v")
    place = tmp_path / "out"
    place.mkdir()
    set_manifest(place, path)
    refused(bundle(), place, "not a manifest that shipgen wrote")


@pytest.mark.parametrize("content", [
    "", "{", "null", "[]", "1", '"x"', "{}", '{"files": {}}', '{"targets": {}}', '{"files": [], "targets": {}}',
    '{"files": {}, "targets": []}', '{"files": "abc", "targets": {}}', '{"files": null, "targets": {}}',
    "[" * 100_000, "\ufeff{}", "\\", '{"files": {"a": 1}, "targets": null}',
])
def test_what_is_no_manifest(tmp_path: Path, content: str) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "abc").write_bytes(b"")
    (place / MANIFEST).write_text(content)
    refused(bundle(), place, "not a manifest that shipgen wrote")
    (place / MANIFEST).write_bytes(b"\xff\xfe{}")
    refused(bundle(), place, "not a manifest that shipgen wrote")


def test_a_manifest_that_names_directories_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_bytes(b"f")
    set_manifest(tmp_path, "d", "f/x", "gone", "gone/too")
    write(bundle(), tmp_path)
    assert {"d", "f"} <= set(snapshot(tmp_path))


def test_read_manifest(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    assert read_manifest(tmp_path / "no" / "such") is None
    (tmp_path / "file").write_bytes(b"")
    assert read_manifest(tmp_path / "file") is None
    write(bundle(), tmp_path)
    manifest = read_manifest(tmp_path)
    assert manifest
    assert manifest["targets"] == {"vector": "0.57"}
    (tmp_path / MANIFEST).unlink()
    (tmp_path / MANIFEST).mkdir()
    with pytest.raises(UsageError):
        read_manifest(tmp_path)


# --- failures leave the directory untouched ---


def test_a_file_where_a_directory_must_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"f")
    refused(bundle(), tmp_path / "file")
    refused(bundle(), tmp_path / "file" / "out")
    place = tmp_path / "out"
    place.mkdir()
    (place / "ray").write_bytes(b"mine")
    refused(bundle(), place)


def test_a_directory_where_a_file_must_be(tmp_path: Path) -> None:
    for path in (*FILES, MANIFEST):
        place = tmp_path / path.replace("/", "-")
        (place / path).mkdir(parents=True)
        refused(bundle(), place)


def _failing(real: Callable[..., Any], calls: Iterator[bool], error: BaseException) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls):
            raise error
        return real(*args, **kwargs)

    return call


@pytest.mark.parametrize("method", ["mkdir", "open", "replace", "unlink", "rmdir", "exists", "is_symlink", "iterdir"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()], ids=["full", "ctrl-c"])
def test_whatever_fails_the_directory_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: BaseException
) -> None:
    """Each call of the file system fails in its turn."""
    new = bundle({"vector/vector.yaml": b"new\n", "vector/deep/er/a": b"n", "ray/ray.env": b"A=1\n", "b/c": b"n"})
    source = tmp_path / "source"
    write(bundle({**FILES, "old/stale": b"s"}), source)
    (source / "notes").write_bytes(b"n")
    for turn in range(200):
        place = tmp_path / f"{turn}"
        shutil.copytree(source, place)
        before = snapshot(place)
        calls = chain(repeat(False, turn), [True], repeat(False))
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, _failing(getattr(Path, method), calls, error))
            try:
                write(new, place)
            except (UsageError, KeyboardInterrupt):
                failed = True
            else:
                failed = False
        if not failed:
            assert turn, f"{method} is never called"
            assert (place / "b/c").is_file()
            return
        assert snapshot(place) == before, f"call {turn} of {method}"
    pytest.fail("never got through")


@contextlib.contextmanager
def nobody() -> Iterator[Path]:
    """Root may write anywhere: in here that is over. Gives a directory of nobody's own."""
    directory = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    try:
        if root:
            os.chown(directory, 65534, 65534)
            os.seteuid(65534)
        yield directory
    finally:
        if root:
            os.seteuid(0)
        for path in [directory, *directory.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(directory)


@pytest.mark.parametrize("locked", ["", "vector", "old", "new-place"])
def test_a_directory_that_may_not_be_written(locked: str) -> None:
    with nobody() as home:
        place = home / "out"
        write(bundle({**FILES, "old/stale": b"s"}), place)
        (place / "new-place").mkdir()
        before = snapshot(place)
        (place / locked).chmod(0o555)
        with pytest.raises(UsageError, match="Permission denied"):
            write(bundle({"vector/vector.yaml": b"new\n", "ray/ray.env": b"new\n", "new-place/x": b""}), place)
        (place / locked).chmod(0o755)
        assert snapshot(place) == before


def test_files_that_may_not_be_read() -> None:
    with nobody() as home:
        write(bundle(), home / "out")
        (home / "out/vector/vector.yaml").chmod(0)
        for call in (lambda: write(bundle(), home / "out"), lambda: list(compare(bundle(), home / "out"))):
            with pytest.raises(UsageError, match="Permission denied"):
                call()
        (home / "out" / MANIFEST).chmod(0)
        with pytest.raises(UsageError, match="Permission denied"):
            read_manifest(home / "out")


# --- what is rendered ---

FULL = policy(
    cluster="c", rotation={"by": "ray"}, ray={"system_format": "json", "application_format": "json"},
    parsing={"rules": [{"name": "a", "add": {"b": "c", "a": "d"}}, {"name": "z", "redact": {"kind": "email"}}]},
    sinks={"loki": {"type": "loki", "endpoint": "http://l:3100", "metadata": ["a", "b"]},
           "c": {"type": "console", "when": {"level": ["info", "warn"], "component": "raylet"}}},
)


def test_files_of_a_bundle() -> None:
    found = rendered(FULL)
    assert sorted(found.files) == [
        "logrotate/ray", "ray/README.md", "ray/driver.env", "ray/ray.env", "tmpfiles.d/ray.conf", "vector/vector.yaml"]
    assert found.mains == {"vector": "vector/vector.yaml"}
    for path, data in found.files.items():
        assert data.endswith(b"\n")
        assert not data.endswith(b"\n\n")
        assert b"\r" not in data
        head = data.decode().split("\n")[:4]
        if not path.endswith(".md"):
            assert "Generated by shipgen from" in head[0]
            assert "Do not edit" in head[0]
            assert "shipgen render" in head[1]


def test_pipeline_hash_is_that_of_what_is_meant() -> None:
    one = bundles.pipeline_hash(resolved(FULL))
    assert re.fullmatch("sha256:[0-9a-f]{64}", one)
    assert one == bundles.pipeline_hash(resolved(json.loads(json.dumps(FULL, sort_keys=True))))
    for changed in (
        {**FULL, "cluster": "d"}, {**FULL, "name": "u"}, {**FULL, "sources": {"ray2": {"type": "ray"}}},
        {**FULL, "parsing": {"rules": [FULL["parsing"]["rules"][1], FULL["parsing"]["rules"][0]]}},
        {**FULL, "ray": {}}, {**FULL, "rotation": {"backups": 6}},
    ):
        assert bundles.pipeline_hash(resolved(changed)) != one


@pytest.mark.parametrize(("grammar", "text", "meant"), [
    ("yaml", "a: {b: [1, 2]}", {("a", "b", 1): 3}), ("env", "A=1\n# c\n", {(): {"A": "2"}}),
])
def test_what_does_not_parse_back_is_never_written(grammar: str, text: str, meant: dict[Any, Any]) -> None:
    with pytest.raises(ParseBackError):
        bundles._parse_back(File("x", "", {}, grammar, meant), text)


def test_parse_back_reads_what_was_meant() -> None:
    choice = judged(FULL)
    assert choice.target
    (file,) = choice.target.files(resolved(FULL), "0.57")
    meant = {path: value for path, value in file.meant.items() if path[0] == "sources"}
    assert len(meant) == 2 * len(resolved(FULL).sources[0].families)


# --- determinism ---


def _command(policy_file: str, out: Path, cwd: Path, **env: str) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LANG", "TZ", "PYTHONHASHSEED")}
    subprocess.run(
        [sys.executable, "-m", "shipgen", "render", policy_file, "-t", "vector", "-o", str(out)],
        cwd=cwd, env={**environment, **env}, check=True, capture_output=True,
    )
    return snapshot(out)


def _reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _reordered(v) for k, v in reversed(value.items())}
    return [_reordered(v) for v in value] if isinstance(value, list) else value


def test_the_same_bytes_everywhere(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there" / "deep"
    here.mkdir()
    there.mkdir(parents=True)
    text = EXAMPLE.read_text("utf-8").replace("cluster: demo", "cluster: 'é日 $X'")
    (here / "policy.yaml").write_text(text, "utf-8")
    other = yaml.safe_dump(_reordered(yaml.safe_load(text)), sort_keys=False, allow_unicode=True)
    (there / "policy.yaml").write_text(f"# another comment\n{other}", "utf-8")
    runs = [
        _command("policy.yaml", tmp_path / "1", here, PYTHONHASHSEED="0", TZ="UTC", LC_ALL="C.UTF-8"),
        _command("policy.yaml", tmp_path / "2", there, PYTHONHASHSEED="1", TZ="Asia/Shanghai", LC_ALL="C"),
        _command(str(here / "policy.yaml"), tmp_path / "3", there, PYTHONHASHSEED="77", LC_ALL="POSIX", PYTHONUTF8="0"),
        _command("../../here/policy.yaml", tmp_path / "4", there, LANG="de_DE.UTF-8", TZ="America/New_York",
                 XDG_CACHE_HOME=str(tmp_path / "cache")),
    ]
    assert all(run == runs[0] for run in runs)
    everything = b"".join(data for data in runs[0].values() if data).decode()
    assert str(tmp_path) not in everything
    assert not re.search(r"20\d\d-\d\d-\d\d|\d\d:\d\d:\d\d", everything)
    assert len(socket.gethostname()) < 4 or socket.gethostname() not in everything


EVERYTHING = """
import hashlib, json, sys
from click.testing import CliRunner
from shipgen.cli import main
place, target = sys.argv[1:]
said = {}
for words in ("render p.yaml -t {t} -o {o}", "validate p.yaml -t {t} --format json", "validate p.yaml --format sarif",
              "explain p.yaml -t {t}", "diff q.yaml p.yaml -t {t}", "check p.yaml -o {o}", "targets", "schema"):
    result = CliRunner().invoke(main, [w.format(t=target, o=f"{place}/{target}") for w in words.split()])
    said[words] = [result.exit_code, result.stdout]
print(json.dumps(said))
"""


@pytest.mark.parametrize("target", base.implemented())
def test_every_command_says_the_same_everywhere(target: str, tmp_path: Path) -> None:
    """Whatever the hash seed, the locale, the zone and the directory: for each target."""
    data = {**FULL, "cluster": "é日", "sinks": {"loki": FULL["sinks"]["loki"]}}
    data["sources"] = {"a": {"type": "ray"}, "b": {"type": "file", "paths": ["/a", "/b"]}}
    if target == "filebeat":
        data["relay"] = {"target": "vector"}
    runs = []
    for name, env in (
        ("one", {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}),
        ("two", {"PYTHONHASHSEED": "4242", "TZ": "Asia/Kathmandu", "LC_ALL": "POSIX", "COLUMNS": "40"}),
    ):
        place = tmp_path / name
        place.mkdir()
        (place / "p.yaml").write_text(json.dumps(data, ensure_ascii=False), "utf-8")
        (place / "q.yaml").write_text(json.dumps({**data, "name": "other"}), "utf-8")
        environment = {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LANG", "TZ", "PYTHONHASHSEED")}
        argv = [sys.executable, "-c", EVERYTHING, "out", target]
        done = subprocess.run(argv, cwd=place, env={**environment, **env}, capture_output=True, text=True, check=True)
        runs.append((json.loads(done.stdout), snapshot(place / "out")))
    assert runs[0] == runs[1]
    assert all(code == 0 for code, _ in runs[0][0].values())
