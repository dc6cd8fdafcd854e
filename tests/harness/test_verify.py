"""The whole check with a small Loki and a small shipper: what is wrong is found, and nothing else."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from shipgen.diagnostics import OutsideError, UsageError
from shipgen.harness import report, verify
from shipgen.harness.runners import LocalRunner
from shipgen.harness.verify import Report, StaticTree
from shipgen.pipeline import resolve
from shipgen.pipeline.model import Pipeline
from shipgen.policy import load

HERE = Path(__file__).parent
POLICY = """
version: 1
name: t
cluster: c
parsing: {timezone: UTC}
sources:
  ray: {type: ray}
  other: {type: file, paths: [/var/log/x.log]}
sinks:
  loki: {type: loki, endpoint: "https://loki.invalid", from: [ray], late: keep, auth: {bearer: {env: T}}, tls: {}}
  out: {type: console}
"""
LINES = """\
[2026-12-01 05:36:20,182 I 310 322] (raylet) a.cc:1: first
[2026-12-01 05:36:21,182 W 310 322] (raylet) a.cc:2: second
tail
[2026-12-01 05:36:22,182 E 310 322] (raylet) a.cc:3: third
[2026-12-01 05:36:23,182 E 310 322] (raylet) a.cc:3: unfini"""


def pipeline(tmp_path: Path, text: str = POLICY) -> Pipeline:
    (tmp_path / "policy.yaml").write_text(text)
    return resolve(load([str(tmp_path / "policy.yaml")]))


class FakeTarget:
    name = "fake"
    main_config = "fake/fake.json"
    reads_rotated = True
    ready_line = "fake has started"

    def start_argv(self, config: str, _pipeline: Pipeline, _version: str) -> tuple[str, ...]:
        return ("env", "FLAG=1", "fake", config)

    def image(self, version: str) -> str:
        return f"fake:{version}"


Run = Callable[..., Report]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    scratch, programs = tmp_path / "scratch", tmp_path / "bin"
    for directory in (scratch, programs):
        directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    for name in ("loki", "shipper"):
        program = programs / {"loki": "loki", "shipper": "fake"}[name]
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / f"fake_{name}.py"} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(verify, "_CALM_S", 0.3)
    monkeypatch.setattr(verify, "_PATIENCE_S", 1.0)
    logs = tmp_path / "ray" / "session_2026-12-01_05-36-20_156597_11006" / "logs"
    logs.mkdir(parents=True)
    (logs / "raylet.out").write_text(LINES)

    def run(fault: str = "", progress: Callable[[str], None] = lambda _: None) -> Report:
        runner = LocalRunner()

        def render(of: Pipeline) -> dict[str, bytes]:
            (sink,) = of.sinks
            assert "auth" not in sink.options
            assert "tls" not in sink.options
            (source,) = (source for source in of.sources if source.type == "ray")
            config = {"tree": source.base, "loki": sink.options["endpoint"], "fault": fault, "node": runner.node}
            return {"fake/fake.json": json.dumps(config).encode()}

        scenario = StaticTree(tmp_path / "ray")
        return verify.verify(
            pipeline(tmp_path), render, FakeTarget(), "1.0", scenario, runner, progress, keep=tmp_path / "kept"
        )

    return run


def test_everything_arrives(run: Run, tmp_path: Path) -> None:
    found = run("")
    assert found.ok, report.written(found, "text")
    verdict = found.sinks["loki"]
    assert (verdict.expected, verdict.delivered, found.unfinished) == (3, 3, 1)
    assert found.left_out == [
        "sink out: only Loki is read back",
        "source other: none of its files is in what was replayed",
    ]
    assert not (tmp_path / "kept").exists()
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "counts"),
    [
        ("loses", {"lost": 1}),
        ("repeats", {"duplicated": 1, "hidden": 1}),
        ("wrong", {"wrong": 1}),
        ("epoch", {"wrong": 1}),
    ],
)
def test_a_fault_is_found(run: Run, tmp_path: Path, fault: str, counts: dict[str, int]) -> None:
    found = run(fault)
    assert not found.ok
    verdict = found.sinks["loki"]
    names = ("lost", "duplicated", "hidden", "wrong", "extra")
    assert {name: getattr(verdict, name) for name in names if getattr(verdict, name)} == counts
    assert found.kept == str(tmp_path / "kept")
    assert (tmp_path / "kept" / "fake.log").read_text() == "fake has started\n"
    assert (tmp_path / "kept" / "bundle" / "fake" / "fake.json").exists()


def test_what_loki_throws_away_fails_the_run(run: Run) -> None:
    found = run("old")
    assert found.discarded == {"too_far_behind": 1}
    assert not found.ok


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("dies at start", r"fake ended before it was ready; its log ends with:\n  fake: no such option"),
        ("dies", r"fake ended by itself; its log ends with:\n(.*\n)*.*fake: out of memory"),
    ],
)
def test_a_shipper_that_dies(run: Run, tmp_path: Path, fault: str, said: str) -> None:
    told: list[str] = []
    with pytest.raises(OutsideError, match=said) as error:
        run(fault, told.append)
    assert error.value.exit_code == 3
    assert told[-1] == f"logs and bundle are kept in {tmp_path / 'kept'}"
    assert list((tmp_path / "scratch").iterdir()) == []


def test_nothing_to_verify(tmp_path: Path) -> None:
    text = POLICY.partition("sinks:")[0] + "sinks: {out: {type: console}}\n"
    with pytest.raises(UsageError, match="no Loki sink gets records of a source of type ray or file"):
        verify.retarget(pipeline(tmp_path, text), root="/r", state_dir="/s", metrics_port=1, endpoint="http://x")


def test_retarget(tmp_path: Path) -> None:
    text = (
        POLICY.replace("{type: ray}", "{type: ray, start: end, ignore_older: 7d}")
        + "  two: {type: loki, endpoint: http://b}\n"
    )
    here = verify.retarget(
        pipeline(tmp_path, text), root="/r", state_dir="/s", metrics_port=7, endpoint="http://x", tenants=True
    )
    other, ray = here.sources
    assert (ray.base, ray.start, ray.ignore_older) == ("/r/tmp/ray", "beginning", None)
    assert other.paths == ("/r/var/log/x.log",)
    assert (here.collector.root, here.collector.state_dir, here.collector.metrics_port) == ("/r", "/s", 7)
    assert [(s.name, s.options["endpoint"], s.options["tenant"], s.sources) for s in here.sinks] == [
        ("loki", "http://x", "loki", ("ray",)),
        ("two", "http://x", "two", ("other", "ray")),
    ]


def test_retarget_of_what_stands_below_a_root(tmp_path: Path) -> None:
    text = POLICY.replace("cluster: c", "collector: {root: /host}")
    here = verify.retarget(pipeline(tmp_path, text), root="/r", state_dir="/s", metrics_port=7, endpoint="http://x")
    other, ray = here.sources
    assert (ray.base, other.paths) == ("/r/tmp/ray", ("/r/var/log/x.log",))


def test_local_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    assert verify.local_zone() == "Asia/Shanghai"
    monkeypatch.setenv("TZ", ":Europe/Berlin")
    assert verify.local_zone() == "Europe/Berlin"
    monkeypatch.delenv("TZ")
    assert verify.local_zone()


def test_reports(run: Run) -> None:
    found = run("wrong")
    text = report.written(found, "text")
    assert "fake 1.0, local runner, " in text
    assert "loki         3          3     0           0      1      0       0" in text
    assert "loki: wrong by field: level 1" in text
    assert 'expected "error"' in text
    assert 'got      "fatal"' in text
    assert "left out: 1 last lines without a newline, which no shipper delivers" in text
    assert "FAILED in " in text
    data = json.loads(report.written(found, "json"))
    assert data["ok"] is False
    assert data["sinks"]["loki"]["wrong_by_field"] == {"level": 1}
    assert data["sinks"]["loki"]["examples"][0]["expected"] == "error"
    suite = ET.fromstring(report.written(found, "junit")).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("5", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "1 stored with a wrong field"


def test_a_report_shows_no_control_characters() -> None:
    found = Report("fake", "1", "local", "x")
    found.sinks["loki"] = verify.Comparison(lost=1)
    found.sinks["loki"].note("lost", "s/a\x1b[31m.out", "b\x07\n" + "c" * 1000)
    for style in report.FORMATS:
        text = report.written(found, style)
        assert "\x1b" not in text
        assert "\x07" not in text
    ET.fromstring(report.written(found, "junit"))
