"""Compares what stands in Loki with what should: which record is lost, twice there, wrong, or nobody's.

Records are matched by what they say and where they come from, as multisets; then every field of each pair is compared.
Loki's own doings are told apart: it stores entries with equal labels, time and line once, and it throws entries away.
How many entries reached it says how much of what is missing it can have merged.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from shipgen.harness.expect import Expected, leftovers, line_key
from shipgen.harness.loki import OWN_LABELS, OWN_METADATA, Entry

_SECOND = 10**9
#: How far a clock that is asked twice, and a shipper that counts in milliseconds, may be off.
_SLACK_NS = 2 * _SECOND
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What of a run decides which times are right.

    ``began_ns`` and ``ended_ns`` enclose the run. ``late`` is the sink's setting; an entry is late when it is older
    than ``late_after_ns`` or more than ``early_after_ns`` ahead. ``zone`` is the policy's: clocks change in it.
    """

    began_ns: int
    ended_ns: int
    late: str = "restamp"
    late_after_ns: int = 3000 * _SECOND
    early_after_ns: int = 300 * _SECOND
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Example:
    """One record about which something is wrong: ``what`` is lost, duplicated, extra, or the name of a wrong field."""

    what: str
    where: str
    wanted: str
    given: str


@dataclass(slots=True)
class Comparison:
    """The verdict on one sink. ``hidden`` of the ``duplicated`` reached Loki twice and stand there once."""

    expected: int = 0
    optional: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    hidden: int = 0
    wrong: int = 0
    extra: int = 0
    merged: int = 0
    late: int = 0
    wrong_by_field: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)
    pairs: list[tuple[Expected, Entry]] = field(default_factory=list, repr=False)

    @property
    def whole(self) -> bool:
        """Is every record there, at least once, as it should be, and nothing else?"""
        return not (self.lost or self.wrong or self.extra)

    @property
    def ok(self) -> bool:
        """Is every record there, once, as it should be, and nothing else?"""
        return self.whole and not self.duplicated

    def note(self, what: str, where: str, wanted: str = "", given: str = "") -> None:
        """Keep the first few of each kind."""
        if sum(example.what == what for example in self.examples) < _EXAMPLES:
            self.examples.append(Example(what, where, wanted, given))


def compare(
    expected: Sequence[Expected],
    entries: Sequence[Entry],
    circumstances: Circumstances,
    stored_or_merged: int | None = None,
) -> Comparison:
    """Compare one sink. ``stored_or_merged`` is how many entries reached its Loki and were not thrown away."""
    result = Comparison(
        expected=sum(not one.optional for one in expected),
        optional=sum(one.optional for one in expected),
        delivered=len(entries),
    )
    matching = _Matching(expected, entries)
    matching.by_text_and_place()
    matching.by_what_is_left_of_it()
    twice = matching.repeats()
    matching.by_one_of_both()
    for one, entry in matching.pairs:
        _check(one, entry, circumstances, result)
    missing = [one for one in matching.expected if not one.optional and not _dropped_as_late(one, circumstances)]
    _judge_missing(missing, matching, result, stored_or_merged)
    result.pairs = matching.pairs
    result.duplicated = len(twice) + result.hidden
    result.extra = len(matching.entries)
    for entry in twice:
        result.note("duplicated", _where(entry.place), given=entry.line)
    for entry in matching.entries:
        result.note("extra", _where(entry.place), given=entry.line)
    return result


def own_time(entry: Entry) -> int | None:
    """The entry's own time in ns: ``entry_time`` where it was restamped, None where it has none."""
    if "entry_time" in entry.metadata:
        return nanoseconds(entry.metadata["entry_time"])
    return None if entry.metadata.get("time_source") == "read" else entry.time_ns


def nanoseconds(text: str) -> int | None:
    """RFC 3339 in UTC with nine digits, as nanoseconds since the epoch; None for anything else."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})(?:Z|\+00:00)", text)
    if not found:
        return None
    try:
        whole = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    except ValueError:
        return None
    since = whole - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _SECOND + int(found[2])


class _Matching:
    """Pairs expected records with entries, the surest pairs first. What is in no pair stays in the two lists."""

    def __init__(self, expected: Sequence[Expected], entries: Sequence[Entry]) -> None:
        self.expected = list(expected)
        self.entries = list(entries)
        self.pairs: list[tuple[Expected, Entry]] = []
        self.json = any(one.json_line for one in expected)

    def by_text_and_place(self) -> None:
        """Same line, same file, same session; of several, those with the same time first."""
        self._pair(
            lambda one: (line_key(one.line, one.json_line), *one.place),
            lambda entry: (line_key(entry.line, self.json), *entry.place),
        )

    def by_what_is_left_of_it(self) -> None:
        """Records whose text is open: same file and session, and the line can be this record's."""
        by_place: dict[Hashable, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            by_place[entry.place].append(entry)
        taken: list[tuple[Expected, Entry]] = []
        for one in self.expected:
            near = by_place.get(one.place, [])
            fitting = [entry for entry in near if one.loose and one.agrees(entry.line)]
            if fitting:
                best = next((entry for entry in fitting if own_time(entry) == one.time_ns), fitting[0])
                near.remove(best)
                taken.append((one, best))
        self._take(taken)

    def repeats(self) -> list[Entry]:
        """Entries that say once more what an entry of a pair says; they leave the list."""
        said: dict[Hashable, list[Expected]] = defaultdict(list)
        for one, entry in self.pairs:
            said[entry.place, own_time(entry)].append(one)
            if own_time(entry) is None or one.time_ns is None:
                said[entry.place, line_key(entry.line, self.json)].append(one)
        found = [
            entry
            for entry in self.entries
            if any(one.agrees(entry.line) for one in said.get((entry.place, own_time(entry)), ()))
            or (entry.place, line_key(entry.line, self.json)) in said
        ]
        self._forget(found)
        return found

    def by_one_of_both(self) -> None:
        """What is left and has only the line, or only place and time, in common is wrong in the other."""
        self._pair(
            lambda one: (line_key(one.line, one.json_line), one.time_ns),
            lambda entry: (line_key(entry.line, self.json), own_time(entry)),
        )
        self._pair(
            lambda one: (*one.place, one.time_ns) if one.time_ns is not None else None,
            lambda entry: (*entry.place, own_time(entry)),
        )

    def _pair(self, key_of: Callable[[Expected], Hashable], key_of_entry: Callable[[Entry], Hashable]) -> None:
        groups: dict[Hashable, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            groups[key_of_entry(entry)].append(entry)
        wanted: dict[Hashable, list[Expected]] = defaultdict(list)
        for one in self.expected:
            if (key := key_of(one)) is not None and key in groups:
                wanted[key].append(one)
        taken: list[tuple[Expected, Entry]] = []
        for key, several in wanted.items():
            taken += _closest(several, groups[key])
        self._take(taken)

    def _take(self, taken: list[tuple[Expected, Entry]]) -> None:
        self.pairs += taken
        ids = {id(one) for one, _ in taken}
        self.expected = [one for one in self.expected if id(one) not in ids]
        self._forget(entry for _, entry in taken)

    def _forget(self, entries: Iterable[Entry]) -> None:
        ids = {id(entry) for entry in entries}
        self.entries = [entry for entry in self.entries if id(entry) not in ids]


def _closest(wanted: list[Expected], given: list[Entry]) -> list[tuple[Expected, Entry]]:
    """Pair what differs in nothing but its time: equal times first, the others in order.

    An entry with the time of one that is already paired repeats that one and is left over.
    """
    pairs: list[tuple[Expected, Entry]] = []
    by_time: dict[int | None, list[Entry]] = defaultdict(list)
    for entry in reversed(given):
        by_time[own_time(entry)].append(entry)
    rest = []
    for one in wanted:
        if by_time.get(one.time_ns):
            pairs.append((one, by_time[one.time_ns].pop()))
        else:
            rest.append(one)
    times = {one.time_ns for one, _ in pairs if one.time_ns is not None}
    spare = sorted(
        (entry for time, several in by_time.items() if time not in times for entry in several), key=lambda e: e.time_ns
    )
    # A record that had to come can have come with a wrong time; one that chance took has not come at all.
    rest.sort(key=lambda one: (one.optional, one.time_ns or 0))
    return pairs + list(zip(rest, spare, strict=False))


def _check(one: Expected, entry: Entry, circumstances: Circumstances, result: Comparison) -> None:
    """Compare one pair field by field."""
    where = _where(one.place)
    wrong: dict[str, tuple[str, str]] = {}
    if not one.agrees(entry.line):
        wrong["line"] = (one.line, entry.line)
    if left := leftovers(one, entry.line):
        wrong["redaction"] = ("nothing of its kind left", left[0])
    metadata = {k: v for k, v in entry.metadata.items() if k not in OWN_METADATA or k in one.metadata}
    restamped = "entry_time" in metadata
    result.late += restamped
    if restamped:
        del metadata["entry_time"]
        if metadata.get("time_source") == "late":
            del metadata["time_source"]
    labels = {k: v for k, v in entry.labels.items() if k not in OWN_LABELS or k in one.labels}
    for wanted, given in ((one.labels, labels), (one.metadata, metadata)):
        for name in wanted.keys() | given.keys():
            mine, theirs = wanted.get(name, ""), given.get(name, "")
            if not one.field_agrees(mine, theirs):
                wrong[name] = (mine, theirs)
    if fault := _time_fault(one, entry, circumstances):
        wrong["time"] = fault
    result.wrong += bool(wrong)
    for name, (mine, theirs) in wrong.items():
        result.wrong_by_field[name] += 1
        result.note(name, where, mine, theirs)


def _time_fault(one: Expected, entry: Entry, circumstances: Circumstances) -> tuple[str, str] | None:
    """What is wrong about an entry's time: what it should be, and what it is."""
    when_read = circumstances.began_ns - _SLACK_NS <= entry.time_ns <= circumstances.ended_ns + _SLACK_NS
    if one.time_ns is None:
        return None if when_read else ("the time it was read", shown(entry.time_ns))
    own = own_time(entry)
    if own is None:
        return shown(one.time_ns), entry.metadata.get("entry_time", "the time it was read")
    if own != one.time_ns and not either_reading(one.time_ns, own, circumstances.zone):
        return shown(one.time_ns), shown(own)
    if "entry_time" not in entry.metadata:
        return None
    if not when_read:
        return "the time it was read", shown(entry.time_ns)
    if circumstances.late != "restamp":
        return f"{shown(own)}, since late is {circumstances.late}", f"restamped {shown(entry.time_ns)}"
    behind = entry.time_ns - own
    if -circumstances.early_after_ns + 60 * _SECOND < behind < circumstances.late_after_ns - 60 * _SECOND:
        return f"{shown(own)}, not late", f"restamped {shown(entry.time_ns)}"
    return None


def either_reading(wanted: int, given: int, zone: str) -> bool:
    """Does the hour in which clocks change explain the difference?"""
    apart = abs(wanted - given)
    if apart > 2 * 3600 * _SECOND or apart % (1800 * _SECOND):
        return False
    at = datetime.fromtimestamp(wanted // _SECOND, ZoneInfo(zone))
    around = {datetime.fromtimestamp(at.timestamp() + h * 3600, ZoneInfo(zone)).utcoffset() for h in (-2, 2)}
    return len(around) > 1


def _dropped_as_late(one: Expected, circumstances: Circumstances) -> bool:
    """Is it right, or at least not wrong, that this one did not come?"""
    if circumstances.late != "drop" or one.time_ns is None:
        return False
    newest_threshold = circumstances.ended_ns - circumstances.late_after_ns
    return one.time_ns < newest_threshold or one.time_ns > circumstances.began_ns + circumstances.early_after_ns


def _judge_missing(
    missing: list[Expected], matching: _Matching, result: Comparison, stored_or_merged: int | None
) -> None:
    """Lost, or merged by Loki with an entry of equal labels, time and line.

    Where the stored time is the time of reading, it can't be known beforehand whether two were equal: as many as
    reached Loki and do not stand there can have been.
    """
    twins: dict[Hashable, set[int | None]] = defaultdict(set)
    for _, entry in matching.pairs:
        labels = {k: v for k, v in entry.labels.items() if k not in OWN_LABELS}
        stored = entry.time_ns if own_time(entry) == entry.time_ns else None
        twins[_stream(labels), line_key(entry.line, matching.json)].add(stored)
    unseen = len(missing) if stored_or_merged is None else max(0, stored_or_merged - result.delivered)
    surely, perhaps = [], []
    for one in missing:
        times = twins.get((_stream(one.labels), line_key(one.line, one.json_line)), set())
        if one.time_ns is not None and one.time_ns in times:
            surely.append(one)
        elif None in times:
            perhaps.append(one)
    merged = (surely + perhaps)[:unseen]
    ids = {id(one) for one in merged}
    result.merged = len(merged)
    result.hidden = 0 if stored_or_merged is None else unseen - len(merged)
    for one in missing:
        if id(one) not in ids:
            result.lost += 1
            result.note("lost", _where(one.place), wanted=one.line)


def _stream(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def _where(place: tuple[str, str]) -> str:
    return "/".join(part for part in place if part)


def shown(time_ns: int) -> str:
    """A time as people read it."""
    try:
        whole = datetime.fromtimestamp(time_ns // _SECOND, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{time_ns % _SECOND:09}Z"
