"""Parity cases: one policy, one input, and what each real shipper made of it, side by side.

A case is a folder of `e2e/parity/`:

    policy.yaml             cases with equal policies go through one shipper process
    input/                  `session_2*/logs/...` as Ray leaves it, other files at their absolute path
    expected.jsonl          what the contract asks for, worked out by the reference in plain Python
    records/<target>.jsonl  what the real shipper delivered into the real Loki; the first line says how it was made
    lines.jsonl             optional: written by hand, the lines of records whose text the reference leaves open
    bounds.yaml             optional: how many of the records that chance or a limit may take have to come, by sink
    exceptions.yaml         optional: what a target does differently, and the row of the capability table that says so

Nothing here starts anything: `parity_run` does.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from shipgen.harness import reference
from shipgen.harness.compare import either_reading, own_time
from shipgen.harness.expect import Expected, expectations, leftovers, line_key, visible
from shipgen.harness.loki import OWN_LABELS, OWN_METADATA, Entry, place_of
from shipgen.harness.reference_files import Reader
from shipgen.harness.verify import reference_options
from shipgen.pipeline import resolve
from shipgen.pipeline.model import Pipeline, Sink
from shipgen.policy import load

ROOT = Path(__file__).parent / "parity"
ZONE = "America/St_Johns"
"""Zone of every shipper process: half an hour off, so that a time that was read in it by mistake shows."""
LONG = 2000
"""Longer lines are committed by their beginning, length and hash."""
_SECOND = 10**9
_AHEAD_NS = 300 * _SECOND

Line = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One folder."""

    directory: Path

    @property
    def name(self) -> str:
        """Name of the case."""
        return self.directory.name

    @property
    def policy(self) -> Path:
        """The policy."""
        return self.directory / "policy.yaml"

    @property
    def input(self) -> Path:
        """The node's files."""
        return self.directory / "input"

    def records(self, target: str) -> Path:
        """Where a target's records are kept."""
        return self.directory / "records" / f"{target}.jsonl"

    def places(self) -> tuple[frozenset[str], frozenset[str]]:
        """Sessions, and absolute paths of other files, that belong to this case."""
        sessions = frozenset(path.name for path in self.input.glob("session_*"))
        others = (path for path in self.input.rglob("*") if path.is_file())
        relative = (path.relative_to(self.input) for path in others)
        return sessions, frozenset(f"/{path}" for path in relative if path.parts[0] not in sessions)

    def digest(self) -> str:
        """Hash of policy and input: records made of something else are stale."""
        found = hashlib.sha256(self.policy.read_bytes())
        for path in sorted(path for path in self.input.rglob("*") if path.is_file()):
            found.update(f"\0{path.relative_to(self.input)}\0".encode() + path.read_bytes())
        return found.hexdigest()

    def hand_written(self) -> list[str] | None:
        """Lines of records whose text the reference leaves open."""
        file = self.directory / "lines.jsonl"
        return [json.loads(line) for line in file.read_text("utf-8").split("\n") if line] if file.exists() else None

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Least and most optional records, by sink."""
        file = self.directory / "bounds.yaml"
        return {name: (low, high) for name, (low, high) in _yaml(file).items()} if file.exists() else {}

    def exceptions(self, target: str) -> Exceptions:
        """What a target does differently."""
        file = self.directory / "exceptions.yaml"
        found = _yaml(file).get(target, []) if file.exists() else []
        if isinstance(found, Mapping):
            return Exceptions(refused=found["refused"])
        return Exceptions(differs=tuple((row["leaf"], row["field"], row["count"]) for row in found))


@dataclass(frozen=True, slots=True)
class Exceptions:
    """A target refuses a leaf of the policy, or differs in a field (or `missing`, `extra`) so many times, because of a
    leaf."""

    refused: str = ""
    differs: tuple[tuple[str, str, int], ...] = ()


@cache
def cases() -> tuple[Case, ...]:
    """Every case, by name."""
    return tuple(Case(policy.parent) for policy in sorted(ROOT.glob("*/policy.yaml")))


def groups() -> dict[str, list[Case]]:
    """Cases that go through one shipper process, by the hash of their policy."""
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        found[hashlib.sha256(case.policy.read_bytes()).hexdigest()].append(case)
    return dict(found)


def _yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text("utf-8"))


# ---------------------------------------------------------------------------------------------------------------------
# Records


@dataclass(frozen=True, slots=True)
class Row:
    """A delivered record in its canonical form. ``time`` is its own time in ns or `read`; ``late`` says that it was
    restamped, as the fields `entry_time` and `time_source` do, which are not repeated in ``metadata``."""

    sink: str
    time: str
    late: bool
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    line: Line

    @property
    def place(self) -> tuple[str, str]:
        """Session and file."""
        return place_of(self.labels, self.metadata)

    @property
    def text(self) -> str:
        """The line, or its beginning."""
        return self.line if isinstance(self.line, str) else f"{self.line['begins']}..."

    def written(self) -> str:
        """As one line of JSON."""
        late = {"late": True} if self.late else {}
        content = {"sink": self.sink, "time": self.time, **late, "labels": dict(sorted(self.labels.items())),
                   "metadata": dict(sorted(self.metadata.items())), "line": self.line}  # fmt: skip
        return json.dumps(content, ensure_ascii=False)


def row(sink: str, entry: Entry, began_ns: int, ended_ns: int) -> Row:
    """The canonical form of what Loki holds. A time of reading outside of the run shows as what it is."""
    labels = {k: v for k, v in entry.labels.items() if k not in OWN_LABELS}
    metadata = {k: v for k, v in entry.metadata.items() if k not in OWN_METADATA}
    when_read = began_ns - 2 * _SECOND <= entry.time_ns <= ended_ns + 2 * _SECOND
    own = own_time(entry)
    late = "entry_time" in metadata and metadata.get("time_source") == "late" and own is not None and when_read
    if late:
        del metadata["entry_time"], metadata["time_source"]
    elif not when_read and own is None:
        own = entry.time_ns
    return Row(sink, "read" if own is None else str(own), late, labels, metadata, shortened(entry.line))


def shortened(line: str) -> Line:
    """The line, or what is kept of one that is too long to read."""
    if len(line) <= LONG:
        return line
    data = line.encode()
    return {"begins": line[:100], "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Rows by sink, place, time and text."""
    return sorted(rows, key=lambda r: (r.sink, r.place, r.time, r.text, r.written()))


def write_records(case: Case, target: str, origin: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Commit what a real shipper delivered."""
    body = "".join(f"{r.written()}\n" for r in ordered(rows))
    head = {**origin, "case": case.digest(), "rows": hashlib.sha256(body.encode()).hexdigest()}
    file = case.records(target)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"from": head}) + "\n" + body, "utf-8")


def read_records(case: Case, target: str) -> tuple[dict[str, str], list[Row], str]:
    """Where committed records come from, the records, and the hash of how they stand in the file."""
    head, _, body = case.records(target).read_bytes().partition(b"\n")
    parsed = [json.loads(line) for line in body.decode().split("\n") if line]
    rows = [Row(r["sink"], r["time"], r.get("late", False), r["labels"], r["metadata"], r["line"]) for r in parsed]
    return json.loads(head)["from"], rows, hashlib.sha256(body).hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# What is expected


@dataclass(frozen=True, slots=True)
class Want:
    """One record that should come, and how."""

    sink: str
    one: Expected
    late: bool

    @property
    def row(self) -> Row:
        """In the canonical form."""
        time_ = "read" if self.one.time_ns is None else str(self.one.time_ns)
        line = shortened(self.one.line)
        return Row(self.sink, time_, self.late, self.one.labels, self.one.metadata, line)

    def written(self) -> str:
        """As one line of JSON, with what is left open."""
        left = {"optional": self.one.optional, "cut": self.one.cut, "redacted": bool(self.one.masks)}
        text = json.loads(self.row.written())
        return json.dumps({**text, **({"open": left} if any(left.values()) else {})}, ensure_ascii=False)

    def agrees(self, line: Line) -> bool:
        """Can this be the record's line?"""
        if isinstance(line, str):
            return self.one.agrees(line) and not leftovers(self.one, line)
        mine = self.one.line.encode()
        if self.one.cut:
            return self.one.line.startswith(line["begins"]) and len(mine) // 2 < line["bytes"] <= len(mine)
        return shortened(self.one.line) == line


def pipeline_of(case: Case, **override: Any) -> Pipeline:
    """The case's policy, resolved as if the node's root were its input."""
    return resolve(load([str(case.policy), "-"], stdin=_as_file({"collector": {"root": str(case.input)}, **override})))


def zone_of(pipeline: Pipeline) -> str:
    """Zone of times that carry none."""
    return ZONE if pipeline.timezone == "local" else pipeline.timezone


def _as_file(content: Any) -> Any:
    import io

    return io.StringIO(json.dumps(content))


@cache
def expected(case: Case) -> tuple[Want, ...]:
    """What the contract asks for, in the order of the files."""
    pipeline = pipeline_of(case)
    node = pipeline.collector.node
    assert isinstance(node, str), f"{case.name}: records hold the node, so the policy names one"
    zone = zone_of(pipeline)
    records: list[dict[str, Any]] = []
    for source in pipeline.sources:
        if source.type == "ray":
            options = reference_options(pipeline, source, reads_rotated=True, node=node, zone=zone)
            records += reference.read_tree(case.input, options)
        else:
            records += Reader(source, case.input, pipeline.cluster, node, zone).records()
    wants: list[Want] = []
    for sink in pipeline.sinks:
        for one in expectations(pipeline, sink, records):
            late = _is_late(one, sink)
            if not (late and sink.options["late"] == "drop"):
                wants.append(Want(sink.name, one, late and sink.options["late"] == "restamp"))
    return tuple(wants)


def _is_late(one: Expected, sink: Sink) -> bool:
    """Would Loki throw it away beside one of now? The inputs are months or years old, so today's time will do."""
    if one.time_ns is None:
        return False
    behind_ns = (sink.options["server"]["max_chunk_age"] // 2000 - 600) * _SECOND
    now = time.time_ns()
    return not now - behind_ns <= one.time_ns <= now + _AHEAD_NS


def write_expected(case: Case) -> None:
    """Write down what is expected, for a reader to check."""
    (case.directory / "expected.jsonl").write_text(expected_text(case), "utf-8")


def expected_text(case: Case) -> str:
    """The content of `expected.jsonl`."""
    return "".join(f"{want.written()}\n" for want in expected(case))


# ---------------------------------------------------------------------------------------------------------------------
# Comparison


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it should be. ``field`` is `missing` or `extra` for whole records."""

    case: str
    target: str
    sink: str
    place: tuple[str, str]
    field: str
    wanted: str
    given: str

    def __str__(self) -> str:
        where = "/".join(part for part in self.place if part)
        head = f"{self.case}, {self.target}, sink {self.sink}, {where or 'no place'}: {self.field}"
        return f"{head}\n  expected {_shown(self.wanted)}\n  got      {_shown(self.given)}"


def _shown(text: str) -> str:
    quoted = json.dumps(text) if text else "nothing"
    return quoted if len(quoted) <= 300 else f"{quoted[:300]}... ({len(text)} characters)"


def paired(wants: Sequence[Want], rows: Sequence[Row]) -> tuple[list[tuple[Want, Row]], list[Want], list[Row]]:
    """Pair records, the surest pairs first; what is in no pair is given too."""
    pairs: list[tuple[Want, Row]] = []
    missing, left = list(wants), list(rows)

    def pair(key: Callable[[Row], Hashable], agree: Callable[[Want, Row], bool]) -> None:
        nonlocal missing
        near: dict[Hashable, list[Row]] = defaultdict(list)
        for r in left:
            near[key(r)].append(r)
        still = []
        for want in missing:
            candidates = near[key(want.row)]
            found = next((i for i, r in enumerate(candidates) if agree(want, r)), None)
            if found is None:
                still.append(want)
            else:
                pairs.append((want, candidates.pop(found)))
        missing, left[:] = still, [r for some in near.values() for r in some]

    pair(lambda r: (r.sink, r.place, r.time, r.text), lambda _w, _r: True)
    pair(lambda r: (r.sink, r.place), lambda w, r: w.agrees(r.line))
    pair(lambda r: (r.sink, r.place, r.time), lambda _w, r: r.time != "read")
    pair(lambda r: (r.sink, r.place), lambda w, _r: not w.one.optional)
    pair(lambda r: r.sink, lambda w, r: w.agrees(r.line))
    return pairs, missing, left


def differences(case: Case, target: str, rows: Sequence[Row]) -> Iterator[Difference]:
    """Everything in which a target's records are not as expected."""
    wants, zone = expected(case), zone_of(pipeline_of(case))
    pairs, missing, extra = paired(wants, rows)
    for want, given in pairs:
        for field, mine, theirs in _fields(want, given, zone):
            yield Difference(case.name, target, want.sink, want.one.place, field, mine, theirs)
    for want in missing:
        if not want.one.optional:
            yield Difference(case.name, target, want.sink, want.one.place, "missing", want.one.line, "")
    for given in extra:
        yield Difference(case.name, target, given.sink, given.place, "extra", "", given.text)
    bounds = case.bounds()
    for sink in sorted({want.sink for want in wants if want.one.optional}):
        came = sum(want.sink == sink and want.one.optional for want, _ in pairs)
        least, most = bounds[sink]
        if not least <= came <= most:
            wanted = f"{least} to {most} of those that may come"
            yield Difference(case.name, target, sink, ("", ""), "count", wanted, str(came))
    if (lines := case.hand_written()) is not None:
        given_lines = [given for want, given in pairs if want.one.masks]
        yield from _hand_written(case, target, lines, given_lines)


def same_time(want: Want, given: Row, zone: str) -> bool:
    """Equal, or another reading of the hour in which clocks change."""
    mine = want.row.time
    return mine == given.time or ("read" not in (mine, given.time) and either_reading(int(mine), int(given.time), zone))


def _in_metadata(text: str) -> str:
    """Loki stores a blank for each byte of U+FFFD in labels and structured metadata."""
    return re.sub("[ \N{REPLACEMENT CHARACTER}]+", " ", visible(text))


def _fields(want: Want, given: Row, zone: str) -> Iterator[tuple[str, str, str]]:
    mine = want.row
    if not want.agrees(given.line):
        yield "line", want.one.line, given.text
    if not same_time(want, given, zone):
        yield "time", mine.time, given.time
    if mine.late != given.late:
        yield "late", str(mine.late), str(given.late)
    for wanted, got in ((mine.labels, given.labels), (mine.metadata, given.metadata)):
        for name in sorted(wanted.keys() | got.keys()):
            if not want.one.field_agrees(_in_metadata(wanted.get(name, "")), _in_metadata(got.get(name, ""))):
                yield name, wanted.get(name, ""), got.get(name, "")


def _hand_written(case: Case, target: str, lines: Sequence[str], rows: Sequence[Row]) -> Iterator[Difference]:
    left = list(rows)
    for line in lines:
        found = next((r for r in left if said(r.line) == said(line)), None)
        if found is None:
            yield Difference(case.name, target, "", ("", ""), "line (by hand)", line, "")
        else:
            left.remove(found)
    for r in left:
        yield Difference(case.name, target, r.sink, r.place, "line (by hand)", "", r.text)


def said(line: Line) -> Hashable:
    """Equal for two lines that say the same, whatever the order of a JSON object's keys."""
    if not isinstance(line, str):
        return line["sha256"]
    first, _, rest = line.partition("\n")
    return line_key(first, json_line=True), rest


def excepted(found: Iterable[Difference], exceptions: Exceptions) -> list[Difference]:
    """What is left of differences once those are taken away that the capability table knows; each exception has to hold
    exactly as often as it says."""
    left = list(found)
    for leaf, field, count in exceptions.differs:
        known = [d for d in left if d.field == field]
        left = [d for d in left if d.field != field]
        if len(known) != count:
            case, target = (known[0].case, known[0].target) if known else ("", "")
            left.append(Difference(case, target, "", ("", ""), field, f"{count}, by {leaf}", str(len(known))))
    return left
