"""The reference of VeRL's lines, by hand and against the catalogue's regexes, which share nothing with it."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from making import policy, resolved

from shipgen.catalog import verl
from shipgen.harness import reference_verl
from shipgen.harness.reference_files import Reader

PIECES = [
    "2026-12-01 10:00:00", ",123", ".5", "[", "]", " ", "\t", "WARN", "ERROR:", "[INFO]", "[MEM]", "[NET]", "[OTHER]",
    "[DISPATCH]", "[CHECKPOINT]", "task_id=7", "a=1", "=", '"', ";", "(", ")", "x y", "heap usage 89%", "level=x",
    "Heap usage: 9.5 %", "threshold 90%", "held by w-1", "session 7f3a.", "Session: 12", "failed", "queued,", "timeout",
    "\r", "é",
]


def by_regexes(line: str) -> dict[str, str]:
    found = re.search(verl.ENGINE_WORKER, line)
    assert found
    fields = {name: text for name, text in found.groupdict().items() if text}
    text = fields.setdefault("message", "")
    pairs: dict[str, str] = {}
    for pair in re.finditer(verl.PAIR, text):
        if (value := pair["quoted"] or pair["value"]) and pair["key"] not in verl.RESERVED:
            pairs.setdefault(pair["key"], value)
    for prose in verl.PROSE:
        if prose.event in ("", fields.get("event", "")) and (match := re.search(prose.regex, text)):
            assert prose.word in text
            pairs.setdefault(prose.field, match[1])
    return {**pairs, **fields}


def by_reference(line: str) -> dict[str, Any]:
    record: dict[str, Any] = {}
    reference_verl.read(record, line, "UTC")
    reference_verl.read_words(record)
    return record


def test_reference_and_regexes_agree() -> None:
    chance = random.Random(6)
    for _ in range(3000):
        line = "".join(chance.choices(PIECES, k=chance.randint(1, 9)))
        mine, theirs = by_reference(line), by_regexes(line)
        stamp, level = theirs.pop("time", ""), theirs.pop("level", "")
        assert ("time" in mine) == bool(stamp), line
        assert ("level" in mine) == bool(level), line
        mine = {name: value for name, value in mine.items() if name not in ("time", "level")}
        assert mine == theirs, line


@pytest.mark.parametrize(("line", "fields"), [
    ("2026-12-01 10:00:00,123 WARN [MEM] heap usage 89% (threshold 90%)",
     {"event": "MEM", "level": "warn", "heap_pct": "89", "threshold_pct": "90", "time": 1796119200123000000}),
    ("[CHECKPOINT] task_id=3827 waiting for lock (held by worker-45)",
     {"event": "CHECKPOINT", "task_id": "3827", "held_by": "worker-45"}),
    ("INFO [NET] session_id=s-7 timeout", {"event": "NET", "session_id": "s-7", "level": "info"}),
    ("[DISPATCH] task_id=1 status=ok failed", {"event": "DISPATCH", "task_id": "1", "status": "ok"}),
    ("no event, but pid=4 node=n", {"pid": "4", "node": None, "event": None, "level": None}),
])
def test_lines_of_the_articles(line: str, fields: dict[str, Any]) -> None:
    record = by_reference(line)
    assert {name: record.get(name) for name in fields} == fields


def test_a_trace_of_java_is_one_entry(tmp_path: Path) -> None:
    log = tmp_path / "e.log"
    trace = "java.lang.OutOfMemoryError: heap\n\tat A.b(A.java:1)\nCaused by: x.Y: z"
    log.write_text(f"[MEM] no room\n{trace}\n[MEM] next\n")
    (source,) = resolved(policy(sources={"e": {"type": "verl", "paths": [str(log)]}})).sources
    first, second = Reader(source, Path("/")).records()
    assert (first["raw"].count("\n"), second["message"], second["component"]) == (3, "next", "engine_worker")
