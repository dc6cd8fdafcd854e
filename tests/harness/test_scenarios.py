"""What scenarios write is what the ledger says; faults and scenarios are found by their names."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shipgen.diagnostics import OutsideError, UsageError
from shipgen.harness import defaults, faults, live_ray, reference, report, scenarios
from shipgen.harness.compare import Comparison
from shipgen.harness.expect import Expected
from shipgen.harness.flow import Flow, flow_of
from shipgen.harness.loki import Entry
from shipgen.harness.replay import LiveWriter
from shipgen.harness.runners import Usage
from shipgen.harness.verify import Report, StaticTree


class FakeStage(SimpleNamespace):
    """A stage on which nothing reads."""

    def now(self, _: str = "") -> datetime:
        return datetime.now(UTC)

    def stamp(self) -> str:
        return scenarios.written(self.now())

    def suffer(self, turn: Callable[[], None]) -> None:
        for _ in self.faults:
            turn()


def stage(tmp_path: Path, *given: faults.Fault) -> Any:
    pipeline = SimpleNamespace(sources=[SimpleNamespace(type="ray")])
    writer = LiveWriter(tmp_path / "ray", tmp_path / "ledger")
    return FakeStage(pipeline=pipeline, writer=writer, faults=given)


@pytest.mark.parametrize("name", scenarios.NAMES[1:])
def test_what_is_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "_TURN_S", 0.0)
    live = scenarios.scenario(name)
    live.many = min(live.many, 40)
    here = stage(tmp_path, faults.FAULTS["429"])
    with here.writer as writer:
        live.before(here)
        writer.timing = True
        live.during(here)
    options = reference.Options(source="ray", cluster="c", node="n")
    records = reference.read_tree(live.truth(here), options)
    assert len(records) == live.lines.count
    assert not any(record.get("parse_error") for record in records)
    assert len(reference.unfinished_lines(live.truth(here), options)) == 1
    seen = {path.relative_to(tmp_path / "ray").parts[2:] for path in (tmp_path / "ray").rglob("*") if path.is_file()}
    assert (("raylet.out.1",) in seen) == (name in ("live", "rotation"))
    assert any(parts[0] == "old" for parts in seen) == (name in ("live", "moved"))
    assert (len(list((tmp_path / "ledger").iterdir())) > 1) == (name in ("live", "session"))
    assert (max(len(record["raw"]) for record in records) > 190_000) == (name == "long-lines")
    assert (len(live.names) == 68) == (name == "many-files")
    assert writer.size == sum(path.stat().st_size for path in (tmp_path / "ledger").rglob("*") if path.is_file())


def test_a_policy_without_rays_files(tmp_path: Path) -> None:
    here = stage(tmp_path)
    here.pipeline.sources[0].type = "file"
    with pytest.raises(UsageError, match="--scenario live writes Ray's files"):
        scenarios.scenario("live").before(here)


def test_faults_by_name() -> None:
    assert faults.fault("loki-down").seconds == 120
    assert faults.fault("429:1.5s").seconds == 1.5
    with pytest.raises(UsageError, match=r"no fault is called 'down'; there are: loki-down, 429"):
        faults.fault("down")
    with pytest.raises(UsageError, match=r"--fault 429:2: '2' not a duration; write a duration such as 2m"):
        faults.fault("429:2")


def test_the_page_has_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
    assert [name for name in (*faults.FAULTS, *scenarios.NAMES) if f"`{name}`" not in page] == []


def test_no_small_disk_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(OutsideError, match="enospc mounts a small file system, which takes root"):
        defaults.faults(["enospc"])
    assert len(defaults.faults(["429", "500"])) == 2


def test_scenarios_by_name(tmp_path: Path) -> None:
    assert defaults.scenario("", None, False).name == str(defaults.SAMPLE)
    assert defaults.scenario("", None, True).name == "steady"
    assert defaults.scenario("", tmp_path, True).name == str(tmp_path)
    assert isinstance(defaults.scenario("static", None, True), StaticTree)
    assert defaults.scenario("moved", None, False).name == "moved"
    with pytest.raises(UsageError, match="no scenario is called 'x'; there are: static, steady"):
        defaults.scenario("x", None, False)
    with pytest.raises(UsageError, match="--logs is a recorded tree, and --scenario live writes its own"):
        defaults.scenario("live", tmp_path, False)


def test_no_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--live-ray is a scenario of its own"):
        defaults.scenario("live", None, False, live_ray=True)
    monkeypatch.setattr(live_ray.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(OutsideError, match=r"Ray is not installed here, so nothing was verified; pip install"):
        defaults.scenario("", None, False, live_ray=True)
    file = tmp_path / "ray.env"
    assert live_ray.read_environment(file) == {}
    file.write_text("# A 'comment'\nA=1\nB='two words'\nC=\n")
    assert live_ray.read_environment(file) == {"A": "1", "B": "two words", "C": ""}


def expected(at: int, line: str) -> Expected:
    record = {"session": "s", "file": "f", "raw": line}
    return Expected({}, {}, line, at, record=record)


def test_latency_and_order() -> None:
    wanted = [expected(at, f"line {at}\n more") for at in range(4)]
    place = {"session": "s", "file": "f"}
    found = Comparison(pairs=[(one, Entry({}, place, one.time_ns or 0, one.line)) for one in wanted])
    came = {(at, f"line {at}\n more", ("s", "f")): (number, 100.0 + at) for at, number in enumerate((0, 2, 1, 2))}
    flow = flow_of(wanted, found, came, {("s", "f", f"line {at}"): 99.0 for at in range(1, 4)})
    assert (flow.latencies, flow.out_of_order, len(flow.arrived)) == ([2.0, 3.0, 4.0], 1, 4)
    assert (flow.latency(0.5), flow.latency(0.99), Flow().latency(0.5)) == (3.0, 4.0, None)


def test_report_of_faults() -> None:
    flow = Flow([0.5, 1.0], 1, [100.0, 101.0])
    found = Report(
        "vector", "0.57", "local", "<steady>", sinks={"loki": Comparison(expected=2, delivered=2, duplicated=1)},
        faults=[("429", 100.0, 120.0)], flows={"loki": flow}, usage=Usage(2.0, 50_000_000), size=30_000_000,
        discarded_after={"line_too_long": 2}, tolerated=frozenset({"line_too_long"}), written=[99.5, 100.0], restarts=1,
    )  # fmt: skip
    assert found.ok
    text = report.written(found, "text")
    assert "read 30.00 MB of text in 2.00 s of CPU (15.0 MB/s), with at most 50 MB of memory" in text
    assert "loki: from write to arrival p50 1.00 s, p99 1.00 s, of 2 records" in text
    assert "fault 429 for 20 s; repeats are no failure" in text
    assert 'failures="0"' in report.written(found, "junit")
    page = report.written(found, "html")
    assert "<title>vector 0.57: &lt;steady&gt;</title>" in page
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http-equiv", "")
    found.sinks["loki"].lost = 1
    assert not found.ok


@pytest.mark.parametrize(("name", "style"), [("json", "json"), ("a/b.xml", "junit"), ("r.html", "html")])
def test_what_report_names(name: str, style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    assert report.style_of(name) == (style, None if name == style else Path(name))
    with pytest.raises(UsageError, match=r"--report r\.pdf: give text, json, junit, or a file"):
        report.style_of("r.pdf")


@pytest.mark.parametrize("name", ["nowhere/r.html", "d.json"])
def test_a_report_that_could_not_be_written_is_refused_before_the_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "d.json").mkdir()
    with pytest.raises(UsageError, match="can't be written"):
        report.style_of(str(tmp_path / name))
