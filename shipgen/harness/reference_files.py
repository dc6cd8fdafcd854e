"""The record of a line of any other log file, computed the slow and obvious way; the companion of `reference`.

It reads the files of `file` and `verl` sources with string scanning, `json`, `datetime` and `zoneinfo`. Only where the
policy gives a regex is one used, by RE2, the engine that defines the subset a policy may use. Where the contract leaves
something open, this is how it is read here:

 - An entry is a line, or with `multiline` all lines up to the next in which `start` is found; lines before the first
   start are records one by one. Blank lines at either end of an entry are cut, and blank lines alone make none.
 - A line of more than `max_line` bytes is cut, or with `on_long_line: skip` left out before lines are joined. An entry
   of more than `max_lines` lines or `max_entry` bytes is cut.
 - A regex is searched in the first line, without colour codes; what follows joins the message, as it does behind a
   header. Where it is not found the entry has `parse_error`. A group that is absent or empty gives no field.
 - `level` counts in any case if it is a known word or letter. Text has no level and the time it was read.
 - JSON is read as in Ray's files.
 - Lines of VeRL's engine worker are read by `reference_verl`, unless the policy gives a format; its pairs in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from shipgen.catalog import verl
from shipgen.harness import reference, reference_verl
from shipgen.harness.reference import Record
from shipgen.pipeline.model import Source

_DIGITS_OF = {"epoch_s": 9, "epoch_ms": 6, "epoch_us": 3, "epoch_ns": 0}


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the files of one source below ``root``, the place where the node's files appear."""

    source: Source
    root: Path
    cluster: str | None = None
    node: str = "node"
    timezone: str = "UTC"

    def files(self) -> list[Path]:
        """What the globs name, in order. They stand below the root already."""
        chosen = {file for glob in self.source.paths for file in Path("/").glob(glob[1:])}
        left_out = {file for glob in self.source.exclude for file in Path("/").glob(glob[1:])}
        return [file for file in sorted(chosen - left_out) if file.is_file()]

    def records(self) -> list[Record]:
        """Every record of the source, by file and place in it."""
        return [record for file in self.files() for record in self.read(file, file.read_bytes())]

    def read(self, file: Path, data: bytes) -> Iterator[Record]:
        """The records of one file."""
        *lines, _unfinished = data.decode("utf-8", errors="replace").split("\n")
        for group in self._groups(lines):
            while group and reference.is_blank(group[-1]):
                group.pop()
            while group and reference.is_blank(group[0]):
                group.pop(0)
            if group:
                yield self._record(f"/{file.relative_to(self.root)}", group)

    def _groups(self, lines: list[str]) -> list[list[str]]:
        if self.source.on_long_line == "skip":
            lines = [line for line in lines if len(line.encode()) <= self.source.max_line]
        if self.source.continuation:
            return self._continued(lines)
        if self.source.multiline is None:
            return [[line] for line in lines]
        groups: list[list[str]] = []
        started = False
        for line in lines:
            starts = _search(self.source.multiline.start, line) is not None
            started = started or starts
            if starts or not started:
                groups.append([])
            groups[-1].append(line)
        return groups

    def _continued(self, lines: list[str]) -> list[list[str]]:
        groups: list[list[str]] = []
        for line in lines:
            if groups and reference_verl.continues(line):
                groups[-1].append(line)
            else:
                groups.append([line])
        return groups

    def _record(self, file: str, lines: list[str]) -> Record:
        source = self.source
        raw, cut = reference.cut_text("\n".join(lines).removesuffix("\r"), source.max_entry)
        pieces = [reference.cut_text(line, source.max_line) for line in raw.split("\n")]
        cut = cut or any(too_long for _, too_long in pieces)
        if source.multiline is not None and len(pieces) > source.multiline.max_lines:
            pieces, cut = pieces[: source.multiline.max_lines], True
        raw = "\n".join(text for text, _ in pieces)
        record: Record = {"source": source.name, "node": self.node, "file": file, "time": None, "raw": raw,
                          "message": reference.clean(raw)}  # fmt: skip
        if source.component:
            record["component"] = source.component
        if self.cluster is not None:
            record["cluster"] = self.cluster
        if cut:
            record["truncated"] = True
        first, newline, following = raw.partition("\n")
        if source.format == "json" and first.startswith('{"'):
            reference.read_json(record, first, newline + following, self.timezone)
        elif source.regex == verl.ENGINE_WORKER:
            reference_verl.read(record, record["message"], self.timezone)
        elif source.format == "regex":
            self._read_regex(record, *record["message"].partition("\n"))
        if source.pairs:
            reference_verl.read_words(record)
        if record["time"] is None:
            record["time_source"] = "read"
        return record

    def _read_regex(self, record: Record, first: str, newline: str, following: str) -> None:
        groups = _search(self.source.regex, first)
        if groups is None:
            record["parse_error"] = True
            return
        found = {name: text for name, text in groups.items() if text}
        if self.source.time is not None and (stamp := found.pop(self.source.time.field, None)) is not None:
            record["time"] = _instant(stamp, self.source.time.layout, self.timezone)
        word = found.pop("level", "").upper()
        if level := reference.LEVEL_LETTERS.get(word) or reference.LEVEL_WORDS.get(word):
            record["level"] = level
        if "message" in groups:
            record["message"] = (groups["message"] or "") + newline + following
            found.pop("message", None)
        record.update(found)


def _instant(stamp: str, layout: str, zone: str) -> int | None:
    """Nanoseconds since the epoch."""
    if layout == "python":
        return reference.text_time(stamp, zone)
    if layout == "rfc3339":
        return _rfc3339(stamp)
    if layout == "glog":
        return _glog(stamp, zone)
    whole, _, rest = stamp.partition(".")
    digits = _DIGITS_OF[layout]
    if not (whole.isascii() and whole.isdigit()) or (rest and not (rest.isascii() and rest.isdigit())):
        return None
    return int(whole + rest.ljust(digits, "0")[:digits])


def _rfc3339(stamp: str) -> int | None:
    head, point, tail = stamp.partition(".")
    digits = tail[: next((i for i, c in enumerate(tail) if not c.isdigit()), len(tail))] if point else ""
    try:
        instant = datetime.fromisoformat(head + tail.removeprefix(digits))
    except ValueError:
        return None
    if instant.tzinfo is None:
        return None
    return int(instant.timestamp()) * 10**9 + int(digits.ljust(9, "0")[:9])


def _glog(stamp: str, zone: str) -> int | None:
    """`MMDD HH:MM:SS.ffffff`: this year's, or the last one's where that would lie more than a day ahead."""
    now = datetime.now().timestamp() + 86_400
    year = datetime.fromtimestamp(now).year
    for candidate in (year, year - 1):
        instant = reference.text_time(f"{candidate}-{stamp[:2]}-{stamp[2:]}", zone)
        if instant is not None and instant <= now * 10**9:
            return instant
    return None


def _search(pattern: str, text: str) -> dict[str, Any] | None:
    """The named groups of a match, or None."""
    import re2

    found = re2.search(pattern, text)
    return None if found is None else dict(found.groupdict())
