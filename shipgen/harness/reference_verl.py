"""The record of a line of VeRL's engine worker, computed the slow and obvious way; a companion of `reference`.

String scanning only. Where the contract leaves something open, this is how it is read here:

 - Before the text there may be a date and a time (with a fraction or without), then a level in capitals, then an event
   in brackets; each may be absent, time and level may be in brackets, and what is there is no part of the message. A
   word in brackets that is no known event belongs to the message.
 - A pair is `key=value` or `key="value"` behind a blank, a comma, a semicolon, an opening bracket or nothing. The first
   one of a key counts, an empty one gives no field, and none changes a field that shipgen sets. Only the first line of
   the message is read, also for what is said in words; words fill no field that a pair has.
 - Words count by event: heap and threshold in MEM, a session in NET, a status in DISPATCH; `held by` in any line.
"""

from __future__ import annotations

from shipgen.harness import reference
from shipgen.harness.reference import Record

EVENTS = ("DISPATCH", "MEM", "NET", "CHECKPOINT")
LEVEL_WORDS = ("TRACE", "DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
STATUS_WORDS = frozenset(
    {"queued", "assigned", "started", "running", "retrying", "succeeded", "completed", "failed", "rejected", "timeout"}
    | {"cancelled"}
)
SET_BY_SHIPGEN = frozenset(
    {"time", "time_source", "entry_time", "parse_error", "truncated", "message", "raw", "level", "source", "component"}
    | {"node", "session", "file", "stream", "cluster", "event", "extra", "timestamp", "sample_rate"}
)
LETTERS = reference.UPPER | reference.LOWER
OPENING, CLOSING = " \t,;([{", ' \t\r\n,;()[]{}"'


def continues(line: str) -> bool:
    """Does the line belong to the one before it?"""
    return reference.continues(line) or reference._after_colours(line).startswith("Caused by: ")


def read(record: Record, message: str, zone: str) -> None:
    """Fill a record from its clean text."""
    first, newline, following = message.partition("\n")
    rest = _time(record, first, zone)
    rest = _level(record, rest)
    rest = _event(record, rest)
    record["message"] = rest + newline + following


def read_words(record: Record) -> None:
    """Fill a record from pairs and words of its message."""
    text = record["message"].partition("\n")[0]
    found = _pairs(text)
    for name, value in (*found.items(), *_words(text, record.get("event", "")).items()):
        if value and name not in SET_BY_SHIPGEN and name not in record:
            record[name] = value


def _behind(text: str, ends: str) -> str | None:
    """What follows one of some characters (if any of them is there) and at least one blank."""
    if text[:1] and text[0] in ends:
        text = text[1:]
    rest = text.lstrip(" \t")
    return rest if rest != text else None


def _time(record: Record, line: str, zone: str) -> str:
    text = line.removeprefix("[")
    scan = reference.Scanner(text)
    stamp = reference._second_stamp(scan)
    if not scan.good:
        return line
    end = scan.at
    if text[end : end + 1] in (".", ",") and text[end + 1 : end + 2].isdecimal():
        end += 1
        limit = end + 9
        while end < limit and end < len(text) and text[end] in reference.DIGITS:
            end += 1
    rest = _behind(text[end:], "]")
    if rest is None:
        return line
    record["time"] = reference.text_time(stamp + text[19:end], zone)
    return rest


def _level(record: Record, line: str) -> str:
    text = line.removeprefix("[")
    for word in LEVEL_WORDS:
        rest = _behind(text.removeprefix(word), "]:") if text.startswith(word) else None
        if rest is not None:
            record["level"] = reference.LEVEL_WORDS[word]
            return rest
    return line


def _event(record: Record, line: str) -> str:
    for event in EVENTS:
        if line.startswith(f"[{event}]"):
            record["event"] = event
            return line.removeprefix(f"[{event}]").lstrip(" \t")
    return line


def _pairs(text: str) -> dict[str, str]:
    """Every pair, from left to right; a pair begins where the one before it ended."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        starts = at if at == 0 else at + 1
        pair = _pair(text, starts) if at == 0 or text[at] in OPENING else None
        if pair is None and at == 0 and text[0] in OPENING:
            pair = _pair(text, 1)
        if pair is None:
            at += 1
            continue
        key, value, at = pair
        if value:
            found.setdefault(key, value)
    return found


def _pair(text: str, at: int) -> tuple[str, str, int] | None:
    scan = reference.Scanner(text)
    scan.at = at
    head = scan.run(LETTERS | {"_"}, 1, 1)
    key = head + scan.run(reference.WORD, 0, 63)
    scan.literal("=")
    if not scan.good:
        return None
    if scan.text.startswith('"', scan.at):
        end = scan.text.find('"', scan.at + 1)
        return (key, scan.text[scan.at + 1 : end], end + 1) if end >= 0 else None
    value = scan.until(CLOSING)
    return (key, value, scan.at) if scan.good else None


def _number_behind(text: str, *words: str) -> str:
    """The number in `word 89%` or `word: 89 %`."""
    for at in range(len(text)):
        word = next((one for one in words if text.startswith(one, at)), "")
        if not word:
            continue
        scan = reference.Scanner(text)
        scan.at = at + len(word)
        scan.maybe(":")
        scan.literal(" ")
        number = scan.run(reference.DIGITS)
        if scan.text[scan.at : scan.at + 1] == "." and scan.text[scan.at + 1 : scan.at + 2] in reference.DIGITS:
            scan.literal(".")
            number += "." + scan.run(reference.DIGITS)
        scan.maybe(" ")
        if scan.literal("%"):
            return number
    return ""


def _words(text: str, event: str) -> dict[str, str]:
    found = {}
    if event == "MEM":
        found["heap_pct"] = _number_behind(text, "heap usage", "Heap usage")
        found["threshold_pct"] = _number_behind(text, "threshold")
    if event == "NET":
        found["session_id"] = _session(text)
    if event == "DISPATCH":
        found["status"] = _status(text)
    _, held, after = text.partition("held by ")
    if held:
        scan = reference.Scanner(after)
        found["held_by"] = scan.until(" \t\r\n,;()", least=0)
    return found


def _session(text: str) -> str:
    """`session 7f3a`: letters, digits, `_`, `.` and `-`, with a digit among them; a dot behind ends a sentence."""
    for at in range(len(text)):
        if text.startswith(("session", "Session"), at):
            scan = reference.Scanner(text)
            scan.at = at + len("session")
            scan.maybe(":")
            if scan.literal(" "):
                word = scan.run(reference.WORD | {".", "-"}, 0)
                head, dot, tail = word.rpartition(".")
                while dot and not reference.DIGITS & set(tail):
                    word = head
                    head, dot, tail = word.rpartition(".")
                if reference.DIGITS & set(word):
                    return word
    return ""


def _status(text: str) -> str:
    """The first known word that stands alone."""
    for position, character in enumerate(f" {text}"):
        if character not in " \t(":
            continue
        word = text[position:]
        end = next((i for i, c in enumerate(word) if c not in reference.LOWER), len(word))
        if word[:end] in STATUS_WORDS and (end == len(word) or word[end] in " \t\r,;:.)"):
            return word[:end]
    return ""
