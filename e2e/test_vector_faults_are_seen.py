"""A check that can't fail proves nothing: bundles that are broken on purpose, on a real Vector and a real Loki."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from policies import POLICY, Run

from shipgen.harness import report, verify
from shipgen.harness.verify import Render
from shipgen.pipeline.model import Pipeline

pytestmark = pytest.mark.parametrize("runner", ["local"], indirect=True)
TREE = "text-worker-node"


@pytest.fixture(autouse=True)
def less_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost here is lost for good."""
    monkeypatch.setattr(verify, "_PATIENCE_S", 9.0)


def broken(change: Callable[[dict[str, Any]], None]) -> Callable[[Render], Render]:
    """A bundle whose Vector configuration is changed after it was rendered."""

    def around(render: Render) -> Render:
        def rendered(pipeline: Pipeline) -> dict[str, bytes]:
            files = dict(render(pipeline))
            config = yaml.safe_load(files["vector/vector.yaml"])
            change(config)
            return files | {"vector/vector.yaml": yaml.safe_dump(config).encode()}

        return rendered

    return around


def raylet(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The source that reads the raylet's files, whatever its id is."""
    (found,) = (
        item for item in config["sources"].items() if any("raylet.out" in p for p in item[1].get("include", ()))
    )
    return found


def test_a_file_that_is_not_read(run: Run) -> None:
    def change(config: dict[str, Any]) -> None:
        raylet(config)[1]["include"] = ["/nowhere/*"]

    found = run(TREE, change=broken(change))
    verdict = found.sinks["loki"]
    assert verdict.lost > 10
    assert verdict.lost + verdict.delivered == verdict.expected
    assert not found.ok
    assert "FAILED" in report.written(found, "text")


def test_a_file_that_is_read_twice(run: Run) -> None:
    def change(config: dict[str, Any]) -> None:
        name, source = raylet(config)
        config["sources"]["again"] = source
        readers = [t for t in config["transforms"].values() if name in t["inputs"]]
        readers[0]["inputs"].append("again")

    verdict = run(TREE, change=broken(change)).sinks["loki"]
    assert verdict.duplicated > 10
    assert verdict.lost == verdict.wrong == verdict.extra == 0


def test_entries_that_are_not_joined(run: Run) -> None:
    def change(config: dict[str, Any]) -> None:
        del raylet(config)[1]["multiline"]

    verdict = run(TREE, change=broken(change)).sinks["loki"]
    assert verdict.wrong_by_field["line"] > 0
    assert verdict.extra > 0


def test_a_label_that_is_wrong(run: Run) -> None:
    def change(config: dict[str, Any]) -> None:
        (sink,) = (s for s in config["sinks"].values() if s["type"] == "loki")
        sink["labels"]["job"] = "other"

    verdict = run(TREE, change=broken(change)).sinks["loki"]
    assert dict(verdict.wrong_by_field) == {"job": verdict.expected}


def test_what_loki_throws_away_in_silence(run: Run) -> None:
    """Two sessions hours ago with their own times, beside lines that have none and so are of now."""
    found = run("text", POLICY.replace("type: loki,", "type: loki, late: keep,"))
    assert found.discarded.get("too_far_behind", 0) > 0
    assert found.sinks["loki"].lost == found.discarded["too_far_behind"]
    assert not found.ok


def test_a_redaction_that_fails_delivers_nothing_of_the_text(run: Run) -> None:
    """With the program of one of two redactions broken, its records come without their text, and none is lost."""

    def change(config: dict[str, Any]) -> None:
        program = config["transforms"]["rule::runtime-env-vars+first"]
        program["source"] = program["source"].replace('raw = (string(.raw) ?? "")', 'abort\n  raw = ""')

    rules = ("parsing: {timezone: UTC, rules: ["
             '{name: first, when: {component: raylet}, redact: {pattern: "Raylet"}},'
             "{name: team, add: {team: x}},"
             '{name: second, redact: {pattern: "nothing like this"}}]}')
    found = run(TREE, POLICY.replace("parsing: {timezone: UTC}", rules), broken(change))
    verdict = found.sinks["loki"]
    assert verdict.delivered == verdict.expected, report.written(found, "text")
    given = [e.given for e in verdict.examples if e.what in ("line", "extra")]
    assert given
    assert all("[redaction failed]" in text for text in given), given
