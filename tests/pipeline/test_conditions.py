"""Conditions: what `when` means, and what can be said of one before a record is seen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipgen.catalog.formats import LEVEL_ORDER
from shipgen.pipeline.conditions import (
    ALWAYS,
    NEVER,
    All,
    Any_,
    Below,
    Condition,
    Exists,
    Is,
    Matches,
    Not,
    fields,
    parse,
    partial,
)

Record = Mapping[str, str]


def holds(condition: Condition, record: Record) -> bool:
    """The condition on one record: what every target's rendering has to mean."""
    match condition:
        case Is(field, values):
            return record.get(field) in values
        case Matches(field, regex):
            return field in record and re.search(regex, record[field]) is not None
        case Exists(field):
            return field in record
        case Below(level):
            return "level" in record and LEVEL_ORDER.index(record["level"]) < LEVEL_ORDER.index(level)
        case Not(of):
            return not holds(of, record)
        case All(of):
            return all(holds(c, record) for c in of)
        case Any_(of):
            return any(holds(c, record) for c in of)


PRINT = {"component": "worker", "message": "hello\nworld"}
WARNING = {"component": "raylet", "message": "heartbeat ok", "level": "warn"}


@pytest.mark.parametrize(("when", "of_print", "of_warning"), [
    (None, True, True),
    ({}, True, True),
    ({"component": "raylet"}, False, True),
    ({"component": ["raylet", "worker"]}, True, True),
    ({"level": "warn"}, False, True),
    ({"level": {"below": "error"}}, False, True),
    ({"level": {"below": "warn"}}, False, False),
    ({"level": {"below": "trace"}}, False, False),
    ({"level": {"at_least": "warn"}}, True, True),
    ({"level": {"at_least": "error"}}, True, False),
    ({"not": {"level": {"below": "error"}}}, True, False),
    ({"level": {"exists": True}}, False, True),
    ({"level": {"exists": False}}, True, False),
    ({"level": {"at_least": "info", "exists": True}}, False, True),
    ({"level": {"at_least": "info", "below": "error"}}, False, True),
    ({"message": {"matches": "^hello$"}}, False, False),
    ({"message": {"matches": "beat"}}, False, True),
    ({"pid": {"matches": ""}}, False, False),
    ({"not": {"pid": "1"}}, True, True),
    ({"component": "raylet", "message": {"matches": "ok"}}, False, True),
    ({"component": "worker", "not": {"message": {"matches": "hello"}}}, False, False),
    ({"any": [{"component": "worker"}, {"level": "warn"}]}, True, True),
    ({"any": [{"component": "serve"}, {"level": "error"}]}, False, False),
    ({"any": [{"component": "worker"}], "level": "warn"}, False, False),
    ({"all": [{"level": "warn"}, {"message": {"matches": "^heart"}}, {"message": {"matches": "ok$"}}]}, False, True),
    ({"all": [{"not": {"level": {"exists": True}}}, {"any": [{"component": "worker"}]}], "pid": "1"}, False, False),
    ({"not": {"all": [{"component": "worker"}, {"level": {"exists": False}}]}}, False, True),
    ({"not": {"any": [{"component": "worker"}, {"level": "error"}]}}, False, True),
])
def test_when(when: Mapping[str, Any] | None, of_print: bool, of_warning: bool) -> None:
    assert (holds(parse(when), PRINT), holds(parse(when), WARNING)) == (of_print, of_warning)


def test_values_are_compared_as_text() -> None:
    assert parse({"pid": 7}) == Is("pid", ("7",))
    assert parse({"pid": [7, "8"]}) == Is("pid", ("7", "8"))


def test_a_single_test_stands_alone() -> None:
    assert parse({"a": "x"}) == Is("a", ("x",))
    assert parse(None) == parse({}) == ALWAYS


def test_fields() -> None:
    when = {"a": "x", "not": {"b": {"exists": True}}, "any": [{"c": {"matches": "."}}, {"level": {"below": "info"}}]}
    assert sorted(fields(parse(when))) == ["a", "b", "c", "level"]
    assert list(fields(ALWAYS)) == []


NAMES = ("component", "source", "stream")
VALUES = ("a", "b", "c")
LEAVES = st.one_of(
    st.builds(Is, st.sampled_from(NAMES), st.lists(st.sampled_from(VALUES), max_size=2).map(tuple)),
    st.builds(Matches, st.sampled_from(NAMES), st.sampled_from(["a", "[ab]", "^$", ""])),
    st.builds(Exists, st.sampled_from(NAMES)),
    st.builds(Below, st.sampled_from(LEVEL_ORDER)),
)
CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Any_, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)
RECORDS = st.fixed_dictionaries(
    {}, optional={**{name: st.sampled_from(VALUES) for name in NAMES}, "level": st.sampled_from(LEVEL_ORDER)}
)


@given(CONDITIONS, RECORDS, st.sets(st.sampled_from(NAMES)))
def test_what_is_left_holds_just_when_the_whole_does(condition: Condition, record: Record, told: set[str]) -> None:
    left = partial(condition, {name: record.get(name) for name in told})
    assert holds(left, record) == holds(condition, record)


@given(CONDITIONS, RECORDS)
def test_with_all_known_only_regexes_and_levels_are_left(condition: Condition, record: Record) -> None:
    left = partial(condition, {name: record.get(name) for name in NAMES})

    def undecided(part: Condition) -> bool:
        match part:
            case Matches() | Below():
                return True
            case Not(of):
                return undecided(of)
            case All(of) | Any_(of):
                return all(undecided(c) for c in of)
        return False

    assert left in (ALWAYS, NEVER) or undecided(left)


@given(CONDITIONS)
def test_nothing_known_decides_nothing_wrongly(condition: Condition) -> None:
    left = partial(condition, {})
    records: list[Record] = [{}, PRINT, WARNING, {"source": "a", "level": "fatal"}]
    if left in (ALWAYS, NEVER):
        assert all(holds(condition, record) == (left == ALWAYS) for record in records)
