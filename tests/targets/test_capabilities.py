"""The capability table: no leaf without a row, no row without a use, and what it says is said to the user."""

from __future__ import annotations

from typing import Any

import pytest
from making import judged, policy

from shipgen.diagnostics import Severity
from shipgen.policy import model
from shipgen.targets import base, capabilities, listing
from shipgen.targets.capabilities import TABLE, Row, Status, deviations, look_up, rows

LEAVES = model.leaves()
SAID = {Status.APPROXIMATED, Status.UNSUPPORTED, Status.NOT_YET, Status.RELAYED}


def versions(target: str) -> list[tuple[int, int]]:
    return [base.release(v) for v in base.get(target).versions]


@pytest.mark.parametrize("target", base.implemented())
def test_every_leaf_has_a_row(target: str) -> None:
    for leaf in LEAVES:
        for version in versions(target):
            assert isinstance(look_up(target, version, leaf), Row)
            assert isinstance(look_up(target, version, leaf, "no value of any row"), Row)


@pytest.mark.parametrize("target", base.implemented())
def test_no_row_is_dead(target: str) -> None:
    values = [None, "no value of any row", *(value for row in TABLE[target] for value in row.values)]
    alive = {
        id(look_up(target, version, leaf, value)) for version in versions(target) for leaf in LEAVES for value in values
    }
    assert [row.leaf for row in TABLE[target] if id(row) not in alive] == []


def test_tables_are_those_of_implemented_targets() -> None:
    assert set(TABLE) == set(base.implemented()) <= set(base.NAMES)
    assert base.NAMES == model.TARGETS


@pytest.mark.parametrize("target", base.implemented())
def test_what_is_not_exact_has_words(target: str) -> None:
    for row in TABLE[target]:
        assert (row.status in SAID) <= bool(row.text), row.leaf
        assert (row.status in SAID - {Status.APPROXIMATED}) <= bool(row.way_out), f"{row.leaf}: no way out"
        assert (row.status is Status.ELSEWHERE) <= bool(row.text), row.leaf
        assert row.text == row.text.strip().removesuffix(".")
        assert row.way_out == row.way_out.strip().removesuffix(".")
        assert row.since < row.before


def test_a_gap_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (Row("name"), Row("cluster", values=frozenset({"a"})), Row("ray.*", since=(0, 57)))
    monkeypatch.setitem(TABLE, "vector", table)
    assert look_up("vector", (0, 50), ("name",)).leaf == "name"
    for leaf, value in ((("version",), None), (("cluster",), "b"), (("ray", "version"), None)):
        with pytest.raises(KeyError, match=r"vector has no row for"):
            look_up("vector", (0, 50), leaf, value)


@pytest.mark.parametrize(("pattern", "leaf", "matches"), [
    ("name", "name", True), ("name", "names", False), ("a.b", "a", False), ("a", "a.b", False), ("**", "a.b.c", True),
    ("a.**", "a.b.c", True), ("a.**", "a.b", True), ("a.**", "b.a", False), ("a.*.c", "a.<x>.c", True),
    ("a.*.c", "a.b.c.d", False), ("a.<x>.**", "a.<x>.c", True), ("a.<x>.**", "a.<y>.c", False),
    ("a[].c", "a.[].c", True), ("a.*.c", "a.[].c", False), ("a[].**", "a.[].c.d", True),
])
def test_patterns(pattern: str, leaf: str, matches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "vector", (Row(pattern),))
    assert bool(rows("vector", tuple(leaf.split(".")))) is matches


def test_values_and_versions_narrow_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Row("a", Status.UNSUPPORTED, "x", "y", values=frozenset({"1", "true"}), before=(0, 57))
    monkeypatch.setitem(TABLE, "vector", (first, Row("a", since=(0, 56)), Row("**", Status.ELSEWHERE)))

    def status(version: tuple[int, int], value: Any) -> Status:
        return look_up("vector", version, ("a",), value).status

    assert status((0, 50), 1) is Status.UNSUPPORTED
    assert status((0, 50), None) is Status.UNSUPPORTED
    assert status((0, 50), 2) is Status.ELSEWHERE
    assert status((0, 56), 2) is Status.EXACT
    assert status((0, 57), 1) is Status.EXACT
    assert deviations("vector", (0, 50), [("a",), ("b",)]) == [first]


# --- what the user is told ---


def test_an_approximated_leaf_is_a_warning_at_its_place() -> None:
    data = policy(sources={"ray": {"type": "ray", "ignore_older": "7d"}})
    found, _confinement = judged(data).diagnostics
    assert (found.code, found.severity, found.path, found.target) == (
        "approximated", Severity.WARNING, "sources.ray.ignore_older", "vector")
    assert found.place
    assert found.message.startswith("sources.ray.ignore_older: vector: approximated: ")
    assert judged(data).renders


def test_defaults_are_not_talked_about() -> None:
    assert [d.code for d in judged(policy()).diagnostics] == ["template-confinement"]
    assert judged(policy(targets={"vector": {"version": "0.56"}})).diagnostics == ()


def test_a_sink_of_later_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "vector", (*capabilities.later("s3"), *TABLE["vector"]))
    choice = judged(policy(sinks={"later": {"type": "s3", "bucket": "ray-logs", "buffer": {"max_size": "2GiB"}}}))
    (found,) = choice.diagnostics
    assert (found.code, found.severity, found.path) == ("not-yet", Severity.ERROR, "sinks.later")
    assert found.hint
    assert not choice.renders


def test_a_value_that_is_not_there_is_refused_with_a_way_out() -> None:
    loki = {"type": "loki", "endpoint": "http://l", "buffer": {"max_size": "1GiB", "when_full": "drop_oldest"}}
    (found,) = judged(policy(sinks={"loki": loki})).diagnostics
    assert (found.code, found.severity, found.path) == ("unsupported", Severity.ERROR, "sinks.loki.buffer.when_full")
    assert "drop_newest" in found.hint


@pytest.mark.parametrize(("given", "code", "severity"), [
    ({}, "unpinned-version", Severity.WARNING), ({"version": "0.49"}, "unknown-version", Severity.ERROR),
    ({"version": "0.58"}, "unknown-version", Severity.WARNING),
    ({"version": "1.0.3"}, "unknown-version", Severity.WARNING),
])
def test_versions(given: dict[str, str], code: str, severity: Severity) -> None:
    choice = judged(policy(targets={"vector": given}, sinks={"c": {"type": "console"}}))
    assert [(d.code, d.severity) for d in choice.diagnostics] == [(code, severity)]
    assert choice.diagnostics[0].path.startswith("targets.vector")
    assert choice.renders is (severity is not Severity.ERROR)


@pytest.mark.parametrize("name", [n for n in base.NAMES if n not in base.implemented()])
def test_targets_of_later(name: str) -> None:
    choice = judged(policy(targets={name: {"version": "1.0"}}), name)
    assert [(d.code, d.path) for d in choice.diagnostics] == [("not-yet", f"targets.{name}")]
    assert not choice.renders


def test_listing_names_all_targets_and_what_they_lack() -> None:
    text = listing.listing()
    for name in base.NAMES:
        assert f"{name}:" in text
    for target in base.implemented():
        newest = base.release(base.get(target).versions[-1])
        for row in deviations(target, newest, LEAVES):
            assert row.text in text


def test_statuses_are_words_of_the_contract() -> None:
    words = {"exact", "approximated", "unsupported", "not-yet", "elsewhere"}
    assert {s.value for s in capabilities.Status} - {"relayed"} == words
