"""`shipgen preview`: the records of real lines, by the rendered VRL run in-process."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from making import FILE, TREES, nanoseconds, policy, resolved

from shipgen.catalog import ray
from shipgen.diagnostics import UsageError
from shipgen.harness import reference
from shipgen.rendering import preview as previews

SESSION = "session_2026-12-01_05-36-20_156597_11006"
LOGS = TREES / "text" / SESSION / "logs"
CONSOLE = {"c": {"type": "console"}}


def shown(logs: list[str], as_path: str | None = None, stdin: str = "", **parts: Any) -> list[dict[str, Any]]:
    """Records of files, as the lines that are printed."""
    stream = io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8", "surrogateescape")), encoding="utf-8")
    pipeline = resolved(policy(**{"sinks": CONSOLE, "parsing": {"timezone": "UTC"}, **parts}))
    return [json.loads(line) for line in previews.preview(pipeline, logs, as_path, stream)]


@pytest.mark.parametrize("below", [
    "raylet.out", "gcs_server.out", "dashboard.log", "dashboard_agent.log", "monitor.log", "ray_client_server.out",
])
def test_recorded_files(below: str) -> None:
    options = reference.Options(node=previews._host())
    expected = reference.read_file(below, (LOGS / below).read_bytes(), options, SESSION)
    got = shown([str(LOGS / below)], sources={"ray": {"type": "ray", "components": ["all"]}})
    for ours, theirs in zip(got, expected, strict=True):
        assert list(ours) == ["time", *sorted(set(ours) - {"time"})]
        time = None if ours.get("time_source") == "read" else nanoseconds(ours["time"])
        assert {**ours, "time": time} == theirs


@pytest.mark.parametrize("family", ray.FAMILIES, ids=lambda f: f.name)
def test_a_family_comes_from_the_path(family: ray.Family, tmp_path: Path) -> None:
    pipeline = resolved(policy(sources={"ray": {"type": "ray", "components": ["all"]}}, sinks=CONSOLE))
    ids = {"worker-*": f"worker-{'a' * 56}-01000000-7", "io_worker-*": f"io_worker-{'a' * 56}-7"}
    for glob in family.globs:
        name = next((glob.replace(k, v) for k, v in ids.items() if glob.startswith(k)), glob.replace("*", "x"))
        for path in (f"/any/{SESSION}/logs/{name}", f"/any/logs/{name}", f"{tmp_path}/logs/{name}"):
            source, found, place = previews.locate(pipeline, path)
            assert (source.name, found) == ("ray", family)
            assert place.endswith(f"/logs/{name}")
            assert place.startswith(f"/tmp/ray/{SESSION if SESSION in path else 'session_2'}/logs/")
        if "/" not in name:
            assert previews.locate(pipeline, f"somewhere/{name}.1")[1] == family
            assert previews.locate(pipeline, name)[1] == family


def test_records_without_a_session_say_none(tmp_path: Path) -> None:
    (tmp_path / "raylet.out").write_text("[2026-12-01 05:36:23,438 I 1 2] a.cc:1: m\n")
    (record,) = shown([str(tmp_path / "raylet.out")])
    assert "session" not in record
    assert record["file"] == "raylet.out"
    assert record["time"] == "2026-12-01T05:36:23.438000000Z"


def test_several_files_and_stdin() -> None:
    got = shown(["-"], as_path="raylet.err", stdin="a\nb\r\nunfinished")
    assert [r["raw"] for r in got] == ["a", "b", "unfinished"]
    assert {r["file"] for r in got} == {"raylet.err"}
    got = shown([str(LOGS / "monitor.log"), str(LOGS / "raylet.out")])
    assert [r["file"] for r in got] == sorted((r["file"] for r in got), key=["monitor.log", "raylet.out"].index)


def test_bytes_that_are_no_text() -> None:
    (record,) = shown(["-"], as_path="raylet.out", stdin="\udcff\0x\n")
    assert record["raw"].endswith("x")


@pytest.mark.parametrize("root", ["/", "/host"])
def test_file_sources(root: str, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("2026-12-01 05:36:23 INFO m\n  more\n2026-12-01 05:36:24 WARN n\n")
    regex = r"^(?P<time>\S+ \S+) (?P<level>\S+) (?P<message>.*)$"
    form = {"regex": regex, "time": {"field": "time", "layout": "python"}}
    source = {**FILE, "paths": [f"{tmp_path}/*.log"], "format": form, "multiline": {"start": r"^\d"}}
    got = shown([str(log)], sources={"f": source, "g": FILE}, collector={"root": root})
    assert [(r["message"], r["level"]) for r in got] == [("m\n  more", "info"), ("n", "warn")]
    assert {r["file"] for r in got} == {str(log)}
    only = shown(["-"], stdin="2026-12-01 05:36:23 INFO m\n", sources={"f": source}, collector={"root": root})
    assert only[0]["message"] == "m"
    assert only[0]["file"] == str(Path.cwd() / "stdin")


def test_rules_that_hold_for_every_sink_apply() -> None:
    rules = [
        {"name": "a", "add": {"team": "x", "time2": "y"}}, {"name": "b", "when": {"level": "warn"}, "drop": True},
        {"name": "c", "redact": {"pattern": "cluster"}},
        {"name": "d", "drop": True, "sinks": ["c"], "when": {"level": "info"}}, {"name": "e", "sample": 0.5},
    ]
    parts = {"parsing": {"timezone": "UTC", "rules": rules}, "sinks": {**CONSOLE, "d": {"type": "console"}}}
    got = shown([str(LOGS / "raylet.out")], **parts)
    assert {r["team"] for r in got} == {"x"}
    assert "warn" not in {r.get("level") for r in got}
    assert {"info"} <= {r.get("level") for r in got}
    assert not any("cluster" in json.dumps({**r, "component": ""}) for r in got)
    told = "\n".join(previews.notes(resolved(policy(**parts)), None))
    assert "not applied, since they work on a stream: e" in told
    assert "not applied, since they hold for some sinks only: d" in told
    assert list(previews.notes(resolved(policy(**parts)), "vector")) == []


def test_rules_do_not_touch_the_time() -> None:
    rules = [{"name": "a", "redact": {"pattern": "[0-9:. UTC-]+", "with": "?"}}]
    got = shown([str(LOGS / "raylet.out")], parsing={"timezone": "UTC", "rules": rules})
    assert all(r["time"].startswith("2026-12-01T05:3") for r in got)


@pytest.mark.parametrize(("path", "said"), [
    ("unknown.txt", "--as"), ("/logs/unknown.txt", "--as"),
    ("raylet.out", "no source of the policy reads raylet files"),
])
def test_files_that_the_policy_does_not_read(path: str, said: str) -> None:
    pipeline = resolved(policy(sources={"ray": {"type": "ray", "components": ["worker"]}}, sinks=CONSOLE))
    with pytest.raises(UsageError, match=said):
        previews.locate(pipeline, path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for name in ("raylet.out", "logs/raylet.out"):
        with pytest.raises(UsageError, match="No such file"):
            shown([str(tmp_path / name)])
    (tmp_path / "raylet.out").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        shown([str(tmp_path / "raylet.out")])


@pytest.mark.parametrize(("arguments", "policies", "logs"), [
    (["p.yaml", "x.log"], ["p.yaml"], ["x.log"]), (["p", "x.log"], ["p"], ["x.log"]), (["-", "x"], ["-"], ["x"]),
    (["p.yaml", "q.yml", "-", "x"], ["p.yaml", "q.yml"], ["-", "x"]),
    (["p.yaml", "x", "q.yaml"], ["p.yaml", "q.yaml"], ["x"]),
])
def test_arguments(arguments: list[str], policies: list[str], logs: list[str]) -> None:
    assert previews.split_arguments(arguments) == (policies, logs)


def test_arguments_without_a_log() -> None:
    with pytest.raises(UsageError, match="no log file given"):
        previews.split_arguments(["p.yaml", "q.yaml"])


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "vrl_python", None)
    with pytest.raises(UsageError, match="pip install vrl-python"):
        shown([str(LOGS / "raylet.out")])
