"""What the node gets whichever shipper runs: Ray's two environments, logrotate's file, and the page about them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from shipgen.catalog import environment, ray
from shipgen.catalog.environment import Scope
from shipgen.pipeline import Pipeline, resolve
from shipgen.policy import load, model
from shipgen.rendering.environment import render
from shipgen.targets import node
from shipgen.targets.vector import Vector

TREES = Path(__file__).parents[1] / "data" / "ray-logs"
LOKI = {"type": "loki", "endpoint": "http://loki:3100"}
ALL = {"ray": {"type": "ray", "components": ["all"]}}


def policy(**parts: Any) -> dict[str, Any]:
    return {"version": 1, "name": "ray", "sources": {"ray": {"type": "ray"}}, "sinks": {"loki": LOKI}, **parts}


def resolved(data: dict[str, Any], names: tuple[str, ...] = ("policy.yaml",)) -> Pipeline:
    loaded = load(["-"], io.StringIO(json.dumps(data, ensure_ascii=False)))
    loaded.files = list(names)
    return resolve(loaded)


def rendered(pipeline: Pipeline) -> dict[str, str]:
    return {f.path: render(f.template, **f.context) for f in node.files(pipeline)}


def env(text: str) -> dict[str, str]:
    """An env file as Docker reads it: `#` starts a comment line, and quotes are part of the value."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    pairs = [line.partition("=")[::2] for line in lines]
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)


EVERYTHING = {
    "version": "2.60", "application_format": "json", "system_format": "json", "system_level": "warn",
    "driver": {"forward": True, "prefix": True, "dedup": False, "color": False}, "serve_to_stderr": False,
}


def test_a_policy_that_says_nothing_of_ray_gets_nothing() -> None:
    assert rendered(resolved(policy())) == {}
    assert rendered(resolved(policy(ray={"version": "2.60", "temp_dir": "/ray"}))) == {}
    files = {"f": {"type": "file", "paths": ["/a"]}}
    assert rendered(resolved(policy(sources=files, rotation={"by": "logrotate"}))) == {}


def test_everything() -> None:
    files = rendered(resolved(policy(ray=EVERYTHING, rotation={"max_size": "64MiB", "backups": 3})))
    assert list(files) == ["ray/ray.env", "ray/driver.env", "logrotate/ray", "tmpfiles.d/ray.conf",
                           "ray/README.md"]
    assert env(files["ray/ray.env"]) == {
        "RAY_ROTATION_MAX_BYTES": "67108864", "RAY_ROTATION_BACKUP_COUNT": "3", "RAY_BACKEND_LOG_JSON": "1",
        "RAY_BACKEND_LOG_LEVEL": "warning", "RAY_SERVE_LOG_TO_STDERR": "0",
    }
    assert env(files["ray/driver.env"]) == {
        "RAY_LOGGING_CONFIG_ENCODING": "JSON", "RAY_LOG_TO_DRIVER": "1", "RAY_DISABLE_WORKER_LOG_PREFIX": "0",
        "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0",
    }


@pytest.mark.parametrize(("given", "node_env", "driver_env"), [
    ({"system_format": "text"}, {"RAY_BACKEND_LOG_JSON": "0"}, {}),
    ({"application_format": "text"}, {}, {"RAY_LOGGING_CONFIG_ENCODING": "TEXT"}),
    ({"serve_to_stderr": True}, {"RAY_SERVE_LOG_TO_STDERR": "1"}, {}),
    ({"driver": {"forward": False}}, {}, {"RAY_LOG_TO_DRIVER": "0"}),
    ({"driver": {"prefix": False}}, {}, {"RAY_DISABLE_WORKER_LOG_PREFIX": "1"}),
    ({"driver": {"dedup": True}}, {}, {"RAY_DEDUP_LOGS": "1"}),
    ({"driver": {"color": True}}, {}, {"RAY_COLOR_PREFIX": "1"}),
    ({"driver": {}}, {}, {}),
    *(({"system_level": level}, {"RAY_BACKEND_LOG_LEVEL": {"warn": "warning"}.get(level, level)}, {})
      for level in model.LEVELS),
])
def test_one_key_sets_one_variable(
    given: dict[str, Any], node_env: dict[str, str], driver_env: dict[str, str]
) -> None:
    files = rendered(resolved(policy(ray=given)))
    assert {path: env(text) for path, text in files.items() if path.endswith(".env")} == {
        path: values for path, values in (("ray/ray.env", node_env), ("ray/driver.env", driver_env)) if values}
    assert ("ray/README.md" in files) == bool(node_env or driver_env)


def test_both_rotation_variables_or_none() -> None:
    assert env(rendered(resolved(policy(rotation={})))["ray/ray.env"]) == {
        "RAY_ROTATION_MAX_BYTES": "536870912", "RAY_ROTATION_BACKUP_COUNT": "5"}
    assert "ray/ray.env" not in rendered(resolved(policy(rotation={"by": "logrotate"})))


def test_every_variable_has_its_key_and_its_words() -> None:
    given = {**{v.leaf: None for v in environment.VARIABLES}}
    leaves = {leaf for leaf in model.leaves() if leaf[0] == "ray"} - {("ray", "version"), ("ray", "temp_dir")}
    assert {leaf for leaf in given if leaf[0] == "ray"} == leaves
    assert len(given) == len(environment.VARIABLES)
    for variable in environment.VARIABLES:
        assert variable.does
        assert variable.unset
        assert variable.source
    assert {v.name for v in environment.VARIABLES if v.scope is Scope.DRIVER} == {
        "RAY_LOGGING_CONFIG_ENCODING", "RAY_LOG_TO_DRIVER", "RAY_DISABLE_WORKER_LOG_PREFIX", "RAY_DEDUP_LOGS",
        "RAY_COLOR_PREFIX"}


def test_what_empties_the_files_is_never_set() -> None:
    files = rendered(resolved(policy(ray=EVERYTHING, rotation={})))
    for other in environment.EMPTIES_FILES:
        assert other.name not in files["ray/ray.env"] + files["ray/driver.env"]
        assert other.name in files["ray/README.md"]


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_a_shell_reads_the_env_files_as_meant() -> None:
    pipeline = resolved(policy(ray=EVERYTHING, rotation={}), names=("a$(touch x)`id`'\".yaml", "b\n; c.yaml"))
    for file in node.files(pipeline):
        if file.grammar == "env":
            text = render(file.template, **file.context)
            command = ["sh", "-c", f"set -a; {text}\nenv"]
            run = subprocess.run(command, env={}, capture_output=True, text=True, check=True)
            found = dict(line.split("=", 1) for line in run.stdout.splitlines())
            assert {k: v for k, v in found.items() if k.startswith("RAY_")} == file.meant[()]
            assert run.stderr == ""


def test_page_names_each_setting_and_what_is_left() -> None:
    files = rendered(resolved(policy(ray={"driver": {"dedup": False}}, rotation={"by": "ray"})))
    page = files["ray/README.md"]
    assert "`RAY_DEDUP_LOGS=0`" in page
    assert "`RAY_ROTATION_MAX_BYTES=536870912`" in page
    assert "`RAY_LOG_TO_DRIVER` is not set" in page
    assert "job_supervisor" in page.split("Nothing rotates")[1]
    assert "rotation.owner" in page
    owned = rendered(resolved(policy(rotation={"owner": "ray"})))["ray/README.md"]
    assert "rotation.owner" not in owned
    assert "driver.env" not in owned
    assert len(page.splitlines()) < 80


def test_page_warns_of_private_tmp_only_under_tmp() -> None:
    for temp_dir, warned in (("/tmp/ray", True), ("/var/tmp/x", True), ("/tmpfs/ray", False), ("/data/ray", False)):
        page = rendered(resolved(policy(ray={"temp_dir": temp_dir}, rotation={})))["ray/README.md"]
        assert ("PrivateTmp" in page) == warned


@pytest.mark.parametrize("name", ["`x`.yaml", "a|b*[c](d)<e>.yaml", "``.yaml", "\u2028\x85\nRAY_X=1.yaml", "$X.yaml"])
def test_a_policy_file_of_any_name_stays_in_one_line_of_the_headers(name: str) -> None:
    plain = rendered(resolved(policy(ray=EVERYTHING, rotation={})))
    for path, text in rendered(resolved(policy(ray=EVERYTHING, rotation={}), names=(name,))).items():
        assert len(text.splitlines()) == len(plain[path].splitlines())
        assert [a for a in text.splitlines() if a.startswith("RAY_")] == [
            a for a in plain[path].splitlines() if a.startswith("RAY_")]


# -- logrotate --

def parsed(text: str) -> tuple[list[str], list[str]]:
    """Patterns and directives of logrotate's file, read without shipgen's help."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    patterns, _, directives = body.partition("\n{\n")
    found = re.findall(r'^"((?:[^"\\]|\\.)*)"$', patterns, re.MULTILINE)
    assert len(found) == len(patterns.splitlines())
    assert directives.endswith("\n}")
    return [re.sub(r"\\(.)", r"\1", p) for p in found], [d.strip() for d in directives.splitlines()[:-1]]


def families(patterns: list[str], base: str = "/tmp/ray") -> set[str]:
    globs = [p.removeprefix(f"{base}/session_2*/logs/") for p in patterns]
    assert len(set(globs)) == len(globs)
    return {f.name for f in ray.FAMILIES for g in f.globs if g in globs}


NEVER = {f.name for f in ray.FAMILIES if f.rotates is ray.Rotates.NEVER}


@pytest.mark.parametrize(("by", "components", "expected"), [
    ("ray", ["default"], {"job_driver", "ray_client_server", "train", "ray_data", "process_exit"}),
    ("ray", ["all"], NEVER),
    ("ray", ["raylet", "worker", "dashboard"], set()),
    ("logrotate", ["raylet", "job_driver"], {"raylet", "job_driver"}),
    ("logrotate", ["all"], set(ray.BY_NAME)),
])
def test_logrotate_has_what_nothing_else_rotates(by: str, components: list[str], expected: set[str]) -> None:
    sources = {"ray": {"type": "ray", "components": components}}
    files = rendered(resolved(policy(sources=sources, rotation={"by": by, "max_size": "1MB", "backups": 2})))
    assert ("logrotate/ray" in files) == bool(expected)
    if expected:
        patterns, directives = parsed(files["logrotate/ray"])
        assert families(patterns) == expected
        assert directives == ["size 1000000", "rotate 2", "copytruncate", "missingok", "notifempty", "nocompress",
                              "nodateext"]


def test_two_sources_of_the_same_files_make_one_pattern() -> None:
    sources = {"a": {"type": "ray"}, "b": {"type": "ray", "components": ["job_driver", "events"]}}
    patterns, _ = parsed(rendered(resolved(policy(sources=sources, rotation={})))["logrotate/ray"])
    assert {"job_driver", "events"} <= families(patterns)


def test_paths_are_those_of_the_node() -> None:
    pipeline = resolved(policy(collector={"root": "/host"}, ray={"temp_dir": "/data/ray/"}, rotation={}))
    patterns, _ = parsed(rendered(pipeline)["logrotate/ray"])
    assert all(p.startswith("/data/ray/session_2*/logs/") for p in patterns)


@pytest.mark.parametrize(("owner", "su"), [
    ("ray", "su ray ray"), ("ray:users", "su ray users"), ("a.b-c:_d", "su a.b-c _d"),
])
def test_owner(owner: str, su: str) -> None:
    assert parsed(rendered(resolved(policy(rotation={"owner": owner})))["logrotate/ray"])[1][-1] == su


@pytest.mark.parametrize("tree", ["text", "json", "rotated", "text-worker-node", "process-exit"])
def test_each_recorded_file_has_one_pattern_and_no_backup_has_any(tree: str) -> None:
    pipeline = resolved(policy(sources=ALL, rotation={"by": "logrotate"}, ray={"temp_dir": "/r"}))
    patterns = [p.removeprefix("/r/") for p in node.globs(pipeline)]
    found = [path for p in patterns for path in (TREES / tree).glob(p)]
    assert len(found) == len(set(found))
    live = {p for p in (TREES / tree).glob("session_2*/logs/**/*") if p.is_file()}
    below = {p: str(p).partition("/logs/")[2] for p in live}
    assert set(found) == {p for p, b in below.items() if ray.families_of(b) and ray.live_name(b) == b}


@pytest.mark.parametrize("by", ["ray", "logrotate"])
def test_no_shipper_reads_the_copies(by: str) -> None:
    pipeline = resolved(policy(sources={"ray": {**ALL["ray"], "rotated": "include"}}, rotation={"by": by}))
    config = next(iter(Vector().files(pipeline, "0.57"))).context["v"]
    include = [g for s in config["sources"] for g in s["include"]]
    for pattern in node.globs(pipeline):
        live = pattern.replace("session_2*", "session_2026-12-01").replace("*", "x")
        assert [g for g in include if fnmatchcase(live, g)]
        assert not [g for g in include for n in (1, 12) if fnmatchcase(f"{live}.{n}", g)]


LOGROTATE = shutil.which("logrotate") or shutil.which("logrotate", path="/usr/sbin:/sbin")
HOSTILE = ["plain", "two words", "#hash", "quote\"d", "it's", "$HOME", "%d;~!&|<>=()", "日志-😀", " lead", "tail "]


def logrotate(config: Path) -> tuple[int, str]:
    """A run with a state file beside the config; exit code and all that it says."""
    assert LOGROTATE
    command = [LOGROTATE, "--state", str(config.with_name("state")), str(config)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return run.returncode, run.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    old = os.umask(0o022)
    yield tmp_path
    os.umask(old)


@pytest.mark.skipif(LOGROTATE is None, reason="needs logrotate")
@pytest.mark.parametrize("name", HOSTILE)
def test_real_logrotate_copies_and_truncates(tree: Path, name: str) -> None:
    base = tree / name
    logs = base / "session_2026-12-01_05-29-04_009312_11006" / "logs"
    logs.mkdir(parents=True)
    (base / "session_latest").symlink_to(logs.parent)
    driver, small, empty = logs / "job-driver-my job.log", logs / "job-driver-small.log", logs / "job-driver-empty.log"
    other = logs / "raylet.out"
    for path, size in ((small, 10), (empty, 0), (other, 5000)):
        path.write_text("x" * size)
    data = policy(ray={"temp_dir": str(base)}, rotation={"max_size": "1kB", "backups": 2})
    if os.getuid() == 0:
        data["rotation"]["owner"] = "root:root"
    config = tree / "ray"
    config.write_text(rendered(resolved(data))["logrotate/ray"])
    with driver.open("a") as writer:
        inode = driver.stat().st_ino
        for letter in "abcd":
            writer.write(letter * 2000 + "\n")
            writer.flush()
            assert logrotate(config) == (0, "")
        writer.write("after\n")
    assert driver.read_text() == "after\n", "no hole where the old text was"
    assert driver.stat().st_ino == inode
    assert [Path(f"{driver}.{n}").read_text()[0] for n in (1, 2)] == ["d", "c"]
    assert sorted(p.name for p in logs.iterdir()) == sorted(
        [p.name for p in (driver, small, empty, other)] + [f"{driver.name}.{n}" for n in (1, 2)])
    assert other.stat().st_size == 5000


@pytest.mark.skipif(LOGROTATE is None, reason="needs logrotate")
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, whom logrotate guards")
def test_real_logrotate_needs_an_owner_in_directories_of_everyone(tree: Path) -> None:
    logs = tree / "session_2026-12-01" / "logs"
    logs.mkdir(parents=True)
    logs.chmod(0o777)
    (logs / "job-driver-a.log").write_text("x" * 2000)
    config = tree / "ray"
    for owner, code, files in ({}, 1, 1), ({"owner": "root"}, 0, 2):
        data = policy(ray={"temp_dir": str(tree)}, rotation={"max_size": "1kB", **owner})
        config.write_text(rendered(resolved(data))["logrotate/ray"])
        status, output = logrotate(config)
        assert status == code
        assert ("insecure permissions" in output) == bool(code)
        assert len(list(logs.iterdir())) == files


# --- ageing ---


def test_only_what_lies_below_tmp_ages() -> None:
    ages = {"/tmp/ray": True, "/var/tmp/x/../ray": True, "/tmp": True, "/tmpx/ray": False, "/data/tmp/ray": False}
    for temp_dir, does in ages.items():
        data = policy(ray={"temp_dir": temp_dir}, collector={"state_dir": "/s"}, rotation={})
        assert (node.TMPFILES in rendered(resolved(data))) is does, temp_dir
    files = {"f": {"type": "file", "paths": ["/a/*.log"]}}
    assert node.TMPFILES not in rendered(resolved(policy(sources=files, rotation={})))
    assert node.TMPFILES not in rendered(resolved(policy()))


TMPFILES = shutil.which("systemd-tmpfiles")


@pytest.mark.skipif(TMPFILES is None, reason="needs systemd-tmpfiles")
def test_systemd_leaves_rays_files_alone(tmp_path: Path) -> None:
    swept = tmp_path / "tmp"
    for name in ("ray %h x", "other"):
        old = swept / name / "session_1" / "logs" / "raylet.out"
        old.parent.mkdir(parents=True)
        old.write_text("x\n")
        for path in (old, *old.parents[:4]):
            os.utime(path, (1, 1))
    pipeline = resolved(policy(rotation={}))
    (file,) = (f for f in node.files(pipeline) if f.path == node.TMPFILES)
    ours, theirs = tmp_path / "ray.conf", tmp_path / "tmp.conf"
    ours.write_text(render(file.template, header=file.context["header"], temp_dir=f"{swept}/ray %h x"))
    theirs.write_text(f"e {swept} - - - m:1s\n")  # by the time of writing alone: nobody can set the others back
    command = [str(TMPFILES), "--clean", str(theirs), str(ours)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (swept / "ray %h x/session_1/logs/raylet.out").exists()
    assert not (swept / "other/session_1/logs/raylet.out").exists()
