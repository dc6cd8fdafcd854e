"""The verdict: every kind of fault is seen, named and told from what Loki does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shipgen.harness.compare import Circumstances, Comparison, compare, nanoseconds, own_time
from shipgen.harness.expect import Expected
from shipgen.harness.loki import Entry

SECOND = 10**9
NOW = 1_796_000_000 * SECOND
RUN = Circumstances(began_ns=NOW, ended_ns=NOW + 60 * SECOND)
LABELS = {"job": "t", "component": "raylet"}


def record(line: str, time_ns: int | None = NOW, file: str = "raylet.out", **rest: Any) -> Expected:
    metadata = {"file": file, "session": "s"} | ({} if time_ns is not None else {"time_source": "read"})
    return Expected(labels=dict(LABELS), metadata=metadata, line=line, time_ns=time_ns, **rest)


def stored(one: Expected, read_ns: int = NOW + SECOND, **changes: Any) -> Entry:
    """The entry that a record should become."""
    labels = one.labels | {"service_name": "raylet"}
    metadata = one.metadata | {"detected_level": "info"}
    entry = Entry(labels, metadata, one.time_ns if one.time_ns is not None else read_ns, one.line)
    return replace(entry, **changes)


def restamped(one: Expected, entry_time: str, time_ns: int = NOW + SECOND) -> Entry:
    return stored(one, metadata=one.metadata | {"time_source": "late", "entry_time": entry_time}, time_ns=time_ns)


def faults(found: Comparison) -> dict[str, int]:
    names = ("lost", "duplicated", "hidden", "wrong", "extra", "merged")
    return {name: getattr(found, name) for name in names if getattr(found, name)}


def test_everything_there() -> None:
    records = [record("a"), record("b", None), record("b", None), record("c", NOW + 5)]
    found = compare(records, [stored(one) for one in reversed(records)], RUN, 4)
    assert found.ok
    assert (found.expected, found.delivered, faults(found)) == (4, 4, {})


def test_lost() -> None:
    found = compare([record("a"), record("b")], [stored(record("a"))], RUN, 1)
    assert faults(found) == {"lost": 1}
    assert [(e.what, e.where, e.wanted) for e in found.examples] == [("lost", "s/raylet.out", "b")]


def test_duplicated_and_seen() -> None:
    """A second reading of a line without a time has a time of its own, so Loki stores both."""
    found = compare([record("a", None)], [stored(record("a", None)), stored(record("a", None), NOW + 9)], RUN, 2)
    assert faults(found) == {"duplicated": 1}


def test_duplicated_and_restamped() -> None:
    one = record("a", nanoseconds("2020-01-01T00:00:00.000000000Z"))
    twice = [restamped(one, "2020-01-01T00:00:00.000000000Z", NOW + n) for n in (1, 2)]
    assert faults(compare([one], twice, RUN, 2)) == {"duplicated": 1}


def test_duplicated_and_hidden_by_loki() -> None:
    found = compare([record("a")], [stored(record("a"))], RUN, 3)
    assert faults(found) == {"duplicated": 2, "hidden": 2}
    assert not found.ok


def test_one_sent_twice_and_another_never() -> None:
    """The counts add up, and still one is lost: a line of a time that is there already is no replacement."""
    found = compare([record("a", NOW), record("a", NOW + 1)], [stored(record("a")), stored(record("a"))], RUN, 2)
    assert faults(found) == {"lost": 1, "duplicated": 1}


def test_merged_by_loki() -> None:
    """Equal labels, time and line from two files stand there once."""
    records = [record("died", file="a.log"), record("died", file="b.log")]
    found = compare(records, [stored(records[0])], RUN, 2)
    assert found.ok
    assert faults(found) == {"merged": 1}


def test_what_never_reached_loki_was_not_merged() -> None:
    records = [record("died", file="a.log"), record("died", file="b.log")]
    assert faults(compare(records, [stored(records[0])], RUN, 1)) == {"lost": 1}


def test_merged_because_read_at_the_same_time() -> None:
    records = [record("hello", None), record("hello", None), record("hello", None)]
    assert faults(compare(records, [stored(records[0])], RUN, 3)) == {"merged": 2}
    assert faults(compare(records, [stored(records[0])], RUN, 2)) == {"merged": 1, "lost": 1}


def test_other_labels_are_not_merged() -> None:
    other = replace(record("died"), labels=LABELS | {"level": "info"})
    assert faults(compare([record("died"), other], [stored(record("died"))], RUN, 2)) == {
        "lost": 1,
        "duplicated": 1,
        "hidden": 1,
    }


def test_extra() -> None:
    found = compare([record("a")], [stored(record("a")), stored(record("z", NOW + 9, file="x.log"))], RUN, 2)
    assert faults(found) == {"extra": 1}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"labels": LABELS | {"component": "gcs_server"}}, "component"),
        ({"labels": {"job": "t"}}, "component"),
        ({"labels": LABELS | {"level": "info"}}, "level"),
        ({"metadata": {"file": "raylet.out", "session": "s", "pid": "1"}}, "pid"),
        ({"metadata": {"file": "raylet.out"}}, "session"),
        ({"metadata": {"session": "s"}}, "file"),
        ({"time_ns": NOW + 1}, "time"),
        ({"time_ns": 0}, "time"),
        ({"line": "b"}, "line"),
    ],
)
def test_wrong_field(change: dict[str, Any], field: str) -> None:
    found = compare([record("a")], [stored(record("a"), **change)], RUN, 1)
    assert faults(found) == {"wrong": 1}
    assert dict(found.wrong_by_field) == {field: 1}
    assert found.examples[0].what == field


def test_a_group_that_was_cut_is_wrong_and_extra() -> None:
    one = record("head\ntail")
    parts = [stored(one, line="head"), stored(record("tail", None))]
    assert faults(compare([one], parts, RUN, 2)) == {"wrong": 1, "extra": 1}


def test_read_time_must_be_the_time_of_the_run() -> None:
    one = record("a", None)
    assert compare([one], [stored(one, NOW + 30 * SECOND)], RUN, 1).ok
    assert dict(compare([one], [stored(one, NOW - 3600 * SECOND)], RUN, 1).wrong_by_field) == {"time": 1}
    missing = stored(record("a"), time_ns=NOW + SECOND)
    assert dict(compare([one], [missing], RUN, 1).wrong_by_field) == {"time_source": 1}


def test_a_time_of_its_own_must_not_be_the_time_it_was_read() -> None:
    one = record("a", NOW)
    entry = stored(one, metadata=one.metadata | {"time_source": "read"}, time_ns=NOW + SECOND)
    assert set(compare([one], [entry], RUN, 1).wrong_by_field) == {"time", "time_source"}


def test_late_entries() -> None:
    old = nanoseconds("2026-11-30T00:00:00.123456789Z")
    one = record("a", old)
    good = restamped(one, "2026-11-30T00:00:00.123456789Z")
    found = compare([one], [good], RUN, 1)
    assert found.ok
    assert found.late == 1
    for fault in (
        restamped(one, "2026-11-30T00:00:00.123456788Z"),
        restamped(one, "2026-11-30T00:00:00.123Z"),
        restamped(one, "2026-11-30T00:00:00.123456789Z", NOW - 3600 * SECOND),
    ):
        assert dict(compare([one], [fault], RUN, 1).wrong_by_field) == {"time": 1}
    keeps = replace(RUN, late="keep")
    assert compare([one], [stored(one)], keeps, 1).ok
    assert dict(compare([one], [good], keeps, 1).wrong_by_field) == {"time": 1}


def test_an_entry_that_is_not_late_keeps_its_time() -> None:
    one = record("a", NOW)
    entry = restamped(one, "2026-11-30T00:53:20.000000000Z")
    assert own_time(entry) == NOW
    assert dict(compare([one], [entry], RUN, 1).wrong_by_field) == {"time": 1}


def test_late_drop() -> None:
    old, new = record("old", NOW - 4000 * SECOND), record("new", NOW)
    drops = replace(RUN, late="drop")
    assert compare([old, new], [stored(new)], drops, 1).ok
    assert faults(compare([old, new], [stored(old)], drops, 1)) == {"lost": 1}


def test_the_hour_that_repeats_may_be_read_either_way() -> None:
    berlin = replace(RUN, zone="Europe/Berlin")
    repeated = nanoseconds("2026-10-25T00:30:00.000000000Z")
    assert repeated is not None
    one = record("a", repeated)
    other = restamped(one, "2026-10-25T01:30:00.000000000Z")
    assert compare([one], [other], berlin, 1).ok
    assert not compare([one], [other], RUN, 1).ok
    assert not compare([one], [restamped(one, "2026-10-25T01:31:00.000000000Z")], berlin, 1).ok
    summer = record("a", nanoseconds("2026-07-01T00:30:00.000000000Z"))
    assert not compare([summer], [restamped(summer, "2026-07-01T01:30:00.000000000Z")], berlin, 1).ok


def test_what_chance_may_take() -> None:
    records = [record(f"l{n}", NOW + n, optional=True) for n in range(10)] + [record("sure")]
    found = compare(records, [stored(one) for one in (records[3], records[10])], RUN, 2)
    assert found.ok
    assert (found.expected, found.optional, found.delivered) == (1, 10, 2)
    wrong = stored(records[3], labels=LABELS | {"level": "info"})
    assert faults(compare(records, [wrong, stored(records[10])], RUN, 2)) == {"wrong": 1}


def test_redacted_texts_are_matched_by_what_is_left() -> None:
    masks = {"masks": ("[r]",), "kinds": ("email",)}
    records = [record("to a@example.com", NOW, **masks), record("to b@example.com", NOW + 1, **masks)]
    given = [stored(one, line="to [r]") for one in records]
    assert compare(records, given, RUN, 2).ok
    assert faults(compare(records, [*given, replace(given[1])], RUN, 3)) == {"duplicated": 1}
    plain = [stored(records[0]), given[1]]
    assert dict(compare(records, plain, RUN, 2).wrong_by_field) == {"redaction": 1}


def test_only_the_first_examples_are_kept() -> None:
    records = [record(f"l{n}", NOW + n) for n in range(50)]
    found = compare(records, [], RUN, 0)
    assert found.lost == 50
    assert len(found.examples) == 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1970-01-01T00:00:01.000000002Z", 1_000_000_002),
        ("1970-01-01T00:00:01.000000002+00:00", 1_000_000_002),
        ("1970-01-01T00:00:01.002Z", None),
        ("1970-01-01T00:00:01.000000002", None),
        ("1970-13-01T00:00:01.000000002Z", None),
        ("yesterday", None),
    ],
)
def test_nanoseconds(text: str, value: int | None) -> None:
    assert nanoseconds(text) == value
