"""The record of a Ray log line, computed the slow and obvious way: the oracle by which real shippers are judged.

This module imports nothing from shipgen and shares no code and no regular expression with it. It reads a log tree with
string scanning, `json`, `datetime` and `zoneinfo`, and gives the records that every target must deliver. Where the
contract leaves something open, this is how it is read here:

Entries
 - Lines end at LF. The unfinished last line of a file (no LF) makes no record; `unfinished_lines` lists such lines.
 - "Blank" is a line of nothing but space, TAB, CR, VT and FF. Blank lines at either end of an entry are cut.
 - `raw` loses one CR at its very end and nothing else; a CR inside stays.
 - events, export_events and train are JSON files: every line is a record. In all other component files an entry starts
   at a header, at a date or at a JSON object that fills its line; the lines before the first start are records one by
   one.
 - Continuation lines at the head of a file (rotation cut the entry in two) are one entry here. They may arrive one by
   one: `read_entries` shows them by `first_line` 1 and a first line that `continues`.
 - A control line is recognised as it stands: `:job_id:`, `:actor_name:` or `:task_name:` at the very start of the line,
   whatever follows. A marker glued to other text must have a value without colon that begins with no white space (hex
   for job_id); the last one on the line is cut. Lines are grouped before a glued marker is cut.
 - An entry longer than `max_entry` bytes of UTF-8, and each of its lines longer than `max_line`, is cut after grouping
   and before reading: all its fields come from what is left. So a JSON line that is itself too long no longer parses:
   `parse_error` and `truncated`. Whether it is a twin is judged on the whole line. Where long lines are skipped, they
   are left out before lines are joined.

Headers
 - A header counts only as a whole, as CATALOG.md writes it. F3 has two or three words before ` -- `; where there
   are more, as with a Serve deployment that has a blank in its name, level, time and message are read and no more.
 - F3 replica lines: `deployment` is the word after the time (`chain_Down`), `replica` the next, exactly the values of
   the JSON twin's keys; `request_id` is the third where there is one. Where an entry does not say them, the name of the
   file does. `controller` and `proxy` lines have no deployment and no replica; the second word of a controller is its
   pid. `route` and `application` are in the JSON form only.
 - F10, verl's `LEVEL:time:message`, is a header only in files where users write.
 - F9: its number is the pid; the year is missing, hence the read time.
 - A line that begins with a date may have a fraction of one to nine digits after `,` or `.`; what follows (a zone, say)
   is not looked at. Its level is the next word, if that is one of the upper case words. A date that does not exist
   (2026-13-01) starts an entry and gives no time.
 - The pairs of an F2b entry are read at the end of its last line: `timestamp_ns` of 19 digits, before it (if complete
   and in Ray's order) job_id, worker_id, node_id and the optional ones. `timestamp_ns` alone is enough for the time: a
   driver that is not connected yet has no ids.
 - Level words are upper case; in JSON all upper or all lower case. DEBUG, TRACE, WARN and FATAL are words too, CRITICAL
   and `C` are fatal. In JSON a letter is a level as well.

JSON
 - Only a first line that begins with `{"` is tried. ANSI codes are taken out only if it does not parse as it stands.
   NaN and Infinity are no JSON (Python writes them, no shipper's parser takes them).
 - A key with null or an empty string gives no field. Integers and floats become strings, booleans `true` and `false`; a
   list or an object gives no field. `message` may be empty: it only has to be a string.
 - `caller` needs both filename and lineno.
 - `timestamp` is the time only in events and export_events; elsewhere it is a user's key like any other.
 - `extra` holds every key that no field reads, with its value as it is (null and "" too): `task_func_name`, `component`
   and `component_name` among them. A key that a field reads is never in `extra`, even where another key won.

Twins
 - A cut applies only if the family that has the original is selected, whatever `cut_twins` says.
 - A Serve JSON line has `component_name`, or both `deployment` and `replica`; a C++ JSON line has a `levelname` of one
   letter.
 - What remains after a cut header has the fields of its path, the header's time and pid, and nothing else of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

Record = dict[str, Any]

# ---------------------------------------------------------------------------------------------------------------------
# Families
# ---------------------------------------------------------------------------------------------------------------------

COMPONENT_OF = {
    "raylet": "raylet",
    "gcs_server": "gcs_server",
    "worker": "worker",
    "core_worker": "core_worker",
    "core_driver": "core_driver",
    "io_worker": "io_worker",
    "io_core": "io_worker",
    "job_driver": "job_driver",
    "job_supervisor": "job_supervisor",
    "dashboard": "dashboard",
    "dashboard_agent": "dashboard_agent",
    "runtime_env_agent": "runtime_env_agent",
    "runtime_env_setup": "runtime_env_setup",
    "log_monitor": "log_monitor",
    "monitor": "monitor",
    "ray_client_server": "ray_client_server",
    "serve": "serve",
    "train": "train",
    "ray_data": "ray_data",
    "ray_data_dataset": "ray_data",
    "events": "events",
    "export_events": "export_events",
    "process_exit": "process_exit",
}
DEFAULT_FAMILIES = frozenset(COMPONENT_OF) - {"job_supervisor", "ray_data_dataset", "events", "export_events"}

USER_FAMILIES = frozenset({"worker", "io_worker", "job_driver"})  # files where users write
LINE_FAMILIES = frozenset({"events", "export_events", "train"})  # JSON files: a line is a record
EPOCH_FAMILIES = frozenset({"events", "export_events"})  # `timestamp` is epoch seconds
STREAM_FAMILIES = frozenset({"worker", "io_worker"})
# Ray never renames these itself; a numbered copy of one is the work of copytruncate and repeats it.
NO_BACKUP_FAMILIES = frozenset({"job_driver", "ray_client_server", "train", "ray_data", "ray_data_dataset",
                                "job_supervisor", "process_exit"})  # fmt: skip
# Which family must be selected for a cut to lose nothing.
ORIGINAL_OF = {"serve": "serve", "cpp": "core_worker", "driver": "worker"}

DIGITS = frozenset("0123456789")
HEX = frozenset("0123456789abcdef")
UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
WORD = UPPER | LOWER | DIGITS | frozenset("_")
BLANKS = " \t\r\v\f"

LEVEL_LETTERS = {"T": "trace", "D": "debug", "I": "info", "W": "warn", "E": "error", "F": "fatal", "C": "fatal"}
LEVEL_WORDS = {
    "TRACE": "trace",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warn",
    "WARNING": "warn",
    "ERROR": "error",
    "FATAL": "fatal",
    "CRITICAL": "fatal",
}


@dataclass(frozen=True)
class Options:
    """What of a policy decides how records come out."""

    source: str = "ray"
    cluster: str | None = None
    node: str = "node"
    timezone: str = "UTC"
    components: frozenset[str] | None = None
    everything: bool = False
    backups: bool = True
    max_entry: int = 240 * 1024
    max_line: int = 256 * 1024
    skips_long_lines: bool = False
    cut_twins: frozenset[str] = frozenset({"serve", "cpp", "driver"})
    exclude: frozenset[str] = frozenset()

    def families(self) -> frozenset[str]:
        """The families that are read."""
        wanted = {"default"} if self.components is None else self.components
        chosen = _families_named(wanted) if not self.everything else frozenset(COMPONENT_OF)
        return chosen - _families_named(self.exclude)

    def cuts(self) -> frozenset[str]:
        """The cuts that apply: those asked for whose original is read too."""
        if self.everything or "all" in (self.components or ()):
            return frozenset()
        chosen = self.families()
        return frozenset(cut for cut in self.cut_twins if ORIGINAL_OF[cut] in chosen)


class Entry(NamedTuple):
    """A record and the lines of the file it was made of (those cut from it not counted); the first line is 1."""

    first_line: int
    lines: int
    record: Record


class Unfinished(NamedTuple):
    """The last line of a file that has no newline yet."""

    session: str
    path: str
    length: int


def _families_named(selectors: frozenset[str] | set[str]) -> frozenset[str]:
    chosen: set[str] = set()
    for selector in selectors:
        if selector == "all":
            chosen |= set(COMPONENT_OF)
        elif selector == "default":
            chosen |= DEFAULT_FAMILIES
        else:
            chosen |= {family for family in DEFAULT_FAMILIES if COMPONENT_OF[family] == selector}
            if selector in COMPONENT_OF:
                chosen.add(selector)
    return frozenset(chosen)


def _all_in(text: str, alphabet: frozenset[str]) -> bool:
    return text != "" and all(character in alphabet for character in text)


def live_name(path: str) -> str:
    """The name a file had before it was rotated or moved: no `old/` in front, no `.N` behind."""
    path = path.removeprefix("old/")
    stem, dot, number = path.rpartition(".")
    if dot and _all_in(number, DIGITS) and stem.endswith((".log", ".out", ".err")):
        return stem
    return path


def family_of(path_below_logs: str) -> tuple[str, str] | None:
    """Family and component of a file by its path below `logs/` (rotated and moved names too); None if it is no log."""
    family = _classify(live_name(path_below_logs))[0]
    return None if family is None else (family, COMPONENT_OF[family])


def _classify(name: str) -> tuple[str | None, dict[str, str]]:
    """Family and the fields that the (live) name gives."""
    folder, _, base = name.rpartition("/")
    stem, _, ending = base.rpartition(".")
    if folder == "":
        return _classify_top(stem, ending)
    if ending != "log":
        return None, {}
    if folder == "jobs" and stem.startswith("supervisor-") and stem != "supervisor-":
        return "job_supervisor", {"submission_id": stem.removeprefix("supervisor-")}
    if folder == "serve":
        kind, _, identity = stem.partition("_")
        if kind in ("controller", "proxy", "replica") and identity:
            return "serve", _serve_named(kind, identity)
    if folder == "train":
        parts = stem.split("-")
        if len(parts) == 5 and parts[:2] == ["ray", "train"] and parts[2] in ("app", "sys"):
            role, worker = parts[3:]
            if role in ("controller", "worker") and _is_worker_id(worker):
                return "train", {"worker_id": worker}
    if folder == "ray-data" and stem == "ray-data":
        return "ray_data", {}
    if folder == "ray-data" and stem.startswith("ray-data-") and stem != "ray-data-":
        return "ray_data_dataset", {}
    if folder in ("events", "export_events"):
        prefix = "event_" if folder == "events" else "event_EXPORT_"
        if stem.startswith(prefix) and stem != prefix:
            pid = stem.rpartition("_")[2]
            return folder, {"pid": pid} if _all_in(pid, DIGITS) else {}
    return None, {}


def _serve_named(kind: str, identity: str) -> dict[str, str]:
    """`controller_<pid>`, `replica_<app>_<deployment>_<8 characters>`."""
    if kind == "controller" and _all_in(identity, DIGITS):
        return {"pid": identity}
    deployment, _, replica = identity.rpartition("_")
    if kind == "replica" and deployment and len(replica) == 8 and _all_in(replica, LOWER | DIGITS):
        return {"deployment": deployment, "replica": replica}
    return {}


def _is_worker_id(text: str) -> bool:
    return len(text) == 56 and _all_in(text, HEX)


def _known_job(job: str) -> dict[str, str]:
    return {} if job == "ffffffff" else {"job_id": job}


def _classify_top(stem: str, ending: str) -> tuple[str | None, dict[str, str]]:
    nothing: tuple[str | None, dict[str, str]] = (None, {})
    if ending in ("out", "err"):
        parts = stem.split("-")
        if parts[0] == "worker" and len(parts) == 4:
            worker, job, pid = parts[1:]
            if _is_worker_id(worker) and len(job) == 8 and _all_in(job, HEX) and _all_in(pid, DIGITS):
                return "worker", {"stream": ending, "worker_id": worker, "pid": pid} | _known_job(job)
            return nothing
        if parts[0] == "io_worker" and len(parts) == 3:
            worker, pid = parts[1:]
            if _is_worker_id(worker) and _all_in(pid, DIGITS):
                return "io_worker", {"stream": ending, "worker_id": worker, "pid": pid}
            return nothing
        if stem in ("raylet", "gcs_server", "ray_client_server"):
            return stem, {}
        if stem.startswith("ray_client_server_"):
            return ("ray_client_server", {}) if _all_in(stem.removeprefix("ray_client_server_"), DIGITS) else nothing
    if ending in ("log", "out", "err"):
        if stem in ("dashboard", "dashboard_agent", "runtime_env_agent", "log_monitor", "monitor"):
            return stem, {}
        if stem.startswith("dashboard_") and stem.endswith("Head"):
            letters = stem.removeprefix("dashboard_")
            return ("dashboard", {}) if letters.isascii() and letters.isalpha() and letters != "Head" else nothing
    if ending != "log":
        return nothing
    if stem == "ray_process_exit":
        return "process_exit", {}
    if stem.startswith("python-core-"):
        kind, _, identity = stem.removeprefix("python-core-").partition("-")
        worker, _, pid = identity.partition("_")
        if _is_worker_id(worker) and _all_in(pid, DIGITS):
            fields = {"worker_id": worker, "pid": pid}
            if kind == "worker":
                return "core_worker", fields
            if kind == "driver":
                return "core_driver", fields | _known_job(worker[:8])
            if kind in ("spill_worker", "restore_worker"):
                return "io_core", fields
        return nothing
    if stem.startswith("runtime_env_setup-"):
        job = stem.removeprefix("runtime_env_setup-")
        if len(job) == 8 and _all_in(job, HEX):
            return "runtime_env_setup", _known_job(job)
        port = job.removeprefix("ray_client_server_")
        return ("runtime_env_setup", {}) if port != job and _all_in(port, DIGITS) else nothing
    if stem.startswith("job-driver-") and stem != "job-driver-":
        return "job_driver", {"submission_id": stem.removeprefix("job-driver-")}
    return nothing


# ---------------------------------------------------------------------------------------------------------------------
# Scanning
# ---------------------------------------------------------------------------------------------------------------------


class Scanner:
    """Reads a line from left to right. Every step either advances or notes that the line does not fit."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.good = True

    def literal(self, wanted: str) -> bool:
        """Step over exactly this text."""
        if self.good and self.text.startswith(wanted, self.at):
            self.at += len(wanted)
            return True
        self.good = False
        return False

    def maybe(self, wanted: str) -> bool:
        """Step over this text if it is there."""
        if self.good and self.text.startswith(wanted, self.at):
            self.at += len(wanted)
            return True
        return False

    def run(self, alphabet: frozenset[str], least: int = 1, most: int = 1 << 30) -> str:
        """The longest run of these characters."""
        start = self.at
        if self.good:
            while self.at < len(self.text) and self.at - start < most and self.text[self.at] in alphabet:
                self.at += 1
            if self.at - start < least:
                self.good = False
        return self.text[start : self.at]

    def until(self, stops: str, least: int = 1) -> str:
        """Everything before the first of these characters (or the end)."""
        start = self.at
        if self.good:
            while self.at < len(self.text) and self.text[self.at] not in stops:
                self.at += 1
            if self.at - start < least:
                self.good = False
        return self.text[start : self.at]

    def rest(self) -> str:
        """What was not read yet."""
        return self.text[self.at :]


def _second_stamp(scan: Scanner) -> str:
    """`YYYY-MM-DD HH:MM:SS`."""
    start = scan.at
    for length, after in ((4, "-"), (2, "-"), (2, " "), (2, ":"), (2, ":"), (2, "")):
        scan.run(DIGITS, length, length)
        scan.literal(after)
    return scan.text[start : scan.at] if scan.good else ""


def _milli_stamp(scan: Scanner) -> tuple[str, str]:
    """`YYYY-MM-DD HH:MM:SS,mmm`."""
    stamp = _second_stamp(scan)
    scan.literal(",")
    return stamp, scan.run(DIGITS, 3, 3)


@lru_cache(maxsize=4096)
def _instant(stamp: str, fraction: str, zone: str) -> int | None:
    """Nanoseconds since the epoch of a wall clock reading in a zone; the first of two in the hour that repeats."""
    try:
        wall = datetime(
            int(stamp[0:4]), int(stamp[5:7]), int(stamp[8:10]), int(stamp[11:13]), int(stamp[14:16]), int(stamp[17:19])
        )
        offset = wall.replace(tzinfo=ZoneInfo(zone), fold=0).utcoffset() or timedelta(0)
    except (ValueError, OverflowError):
        return None
    since = wall.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC) - offset
    seconds = since.days * 86400 + since.seconds
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0"))


def text_time(text: str, zone: str) -> int | None:
    """The instant of a text that begins with a date and a time of day, with or without a fraction."""
    scan = Scanner(text)
    stamp = _second_stamp(scan)
    if not scan.good:
        return None
    fraction = ""
    if scan.maybe(",") or scan.maybe("."):
        fraction = scan.run(DIGITS, 0, 9)
    return _instant(stamp, fraction, zone)


def _escape_end(text: str, start: int) -> int:
    """Where the CSI sequence at `start` ends, or `start` if there is none: ESC [ parameters intermediates final."""
    at = start + 2
    if not text.startswith("\x1b[", start):
        return start
    while at < len(text) and "\x30" <= text[at] <= "\x3f":
        at += 1
    while at < len(text) and "\x20" <= text[at] <= "\x2f":
        at += 1
    return at + 1 if at < len(text) and "\x40" <= text[at] <= "\x7e" else start


def _without_ansi(text: str) -> str:
    pieces = []
    start = 0
    at = text.find("\x1b[")
    while at >= 0:
        end = _escape_end(text, at)
        pieces.append(text[start:at])
        start = end
        at = text.find("\x1b[", max(end, at + 1))
    return text if not pieces else "".join(pieces) + text[start:]


def _after_colours(line: str) -> str:
    """The line without the colour codes (ESC [ digits and semicolons m) in front of it."""
    at = 0
    while line.startswith("\x1b[", at):
        end = at + 2
        while end < len(line) and (line[end] in DIGITS or line[end] == ";"):
            end += 1
        if not line.startswith("m", end):
            break
        at = end + 1
    return line[at:]


def clean(text: str) -> str:
    """A message as a person wants to see it: no ANSI codes, no CR at line ends, of progress bars the last state."""
    lines = _without_ansi(text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def is_blank(line: str) -> bool:
    """Nothing but white space?"""
    return line.strip(BLANKS) == ""


# ---------------------------------------------------------------------------------------------------------------------
# Headers
# ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Header:
    """What a header line says. `kind` is one of cpp, python, serve, logging, absl, date."""

    kind: str
    stamp: str = ""
    fraction: str = ""
    level: str | None = None
    message: str | None = None  # None: the whole entry
    fields: dict[str, str] | None = None


def _header(line: str) -> Header | None:
    if line == "":
        return None
    first = line[0]
    if first == "[":
        return _cpp_header(line)
    if first in DIGITS:
        return _python_header(line) or _date_header(line)
    if first in UPPER:
        return _absl_header(line) or _serve_header(line)
    return None


def _place(scan: Scanner) -> str:
    """`file:line`."""
    start = scan.at
    scan.until(": ")
    scan.literal(":")
    scan.run(DIGITS)
    return scan.text[start : scan.at]


def _cpp_header(line: str) -> Header | None:
    """F1: `[date time,mmm L pid thread] (component) file:line: message`."""
    scan = Scanner(line)
    scan.literal("[")
    stamp, fraction = _milli_stamp(scan)
    scan.literal(" ")
    letter = scan.run(UPPER, 1, 1)
    scan.literal(" ")
    pid = scan.run(DIGITS)
    scan.literal(" ")
    thread = scan.run(DIGITS)
    scan.literal("]")
    if scan.maybe(" ("):
        scan.run(WORD)
        scan.literal(")")
    scan.literal(" ")
    place = _place(scan)
    scan.literal(": ")
    if not scan.good:
        return None
    fields = {"pid": pid, "thread": thread, "caller": place}
    return Header("cpp", stamp, fraction, LEVEL_LETTERS.get(letter), scan.rest(), fields)


def _python_header(line: str) -> Header | None:
    """F2: `date time,mmm TAB LEVEL file:line -- message`."""
    scan = Scanner(line)
    stamp, fraction = _milli_stamp(scan)
    scan.literal("\t")
    word = scan.run(UPPER)
    scan.literal(" ")
    place = _place(scan)
    scan.literal(" -- ")
    if not scan.good:
        return None
    return Header("python", stamp, fraction, LEVEL_WORDS.get(word), scan.rest(), {"caller": place})


def _serve_header(line: str) -> Header | None:
    """F3: `LEVEL date time,mmm component id [request] -- message`."""
    scan = Scanner(line)
    word = scan.run(UPPER)
    scan.literal(" ")
    stamp, fraction = _milli_stamp(scan)
    scan.literal(" ")
    if not scan.good:
        return None
    who = scan.at
    component = scan.until(" ")
    scan.literal(" ")
    identity = scan.until(" ")
    request = ""
    if not scan.maybe(" -- "):
        scan.literal(" ")
        request = scan.until(" ", least=0)
        scan.literal(" -- ")
    if not scan.good:
        _, dashes, message = line[who:].partition(" -- ")
        return Header("serve", stamp, fraction, LEVEL_WORDS.get(word), message, {}) if dashes else None
    fields = {"request_id": request} if request else {}
    if component == "controller":
        if _all_in(identity, DIGITS):
            fields["pid"] = identity
    elif component != "proxy":
        fields |= {"deployment": component, "replica": identity}
    return Header("serve", stamp, fraction, LEVEL_WORDS.get(word), scan.rest(), fields)


def _logging_header(line: str) -> Header | None:
    """F10, of the open-source verl: `LEVEL:date time,mmm:message`."""
    scan = Scanner(line)
    word = scan.run(UPPER)
    scan.literal(":")
    stamp, fraction = _milli_stamp(scan)
    scan.literal(":")
    return Header("logging", stamp, fraction, LEVEL_WORDS.get(word), scan.rest()) if scan.good else None


def _absl_header(line: str) -> Header | None:
    """F9: `I1201 05:31:12.796560   13308 fork_posix.cc:71] message`."""
    scan = Scanner(line)
    letter = scan.run(frozenset("IWEF"), 1, 1)
    for length, after in ((4, " "), (2, ":"), (2, ":"), (2, "."), (6, " ")):
        scan.run(DIGITS, length, length)
        scan.literal(after)
    scan.run(frozenset(" "), 0)
    pid = scan.run(DIGITS)
    scan.literal(" ")
    place = _place(scan)
    scan.literal("] ")
    if not scan.good:
        return None
    return Header("absl", "", "", LEVEL_LETTERS[letter], scan.rest(), {"pid": pid, "caller": place})


def _date_header(line: str) -> Header | None:
    """A line that begins with a date and a time: anybody's format, so only time and a level word are read."""
    scan = Scanner(line)
    stamp = _second_stamp(scan)
    if not scan.good:
        return None
    fraction = ""
    if scan.maybe(",") or scan.maybe("."):
        fraction = scan.run(DIGITS, 0, 9)
    words = scan.rest().replace("\t", " ").rstrip("\r").split(" ")
    # The text right behind the time belongs to it (a zone); the next word comes after white space.
    following = [word for word in words[1:] if word]
    return Header("date", stamp, fraction, LEVEL_WORDS.get(following[0]) if following else None)


def _fills_line(line: str) -> bool:
    """A JSON object that fills the line, by its ends."""
    body = line.removesuffix("\r")
    return body.startswith('{"') and body.endswith("}") and len(body) > 2


PAIR_NAMES = ("actor_id", "task_id", "task_name", "task_func_name", "actor_name")


def _pairs(last_line: str) -> tuple[int | None, dict[str, str]]:
    """Time and ids of the `key=value` pairs at the end of an entry, as LoggingConfig's TEXT encoding writes them."""
    text, found, digits = last_line.rstrip("\r").rpartition(" timestamp_ns=")
    if not found or len(digits) != 19 or not _all_in(digits, DIGITS):
        return None, {}
    start = text.rfind(" job_id=")
    return int(digits), _id_pairs(text[start:]) if start >= 0 else {}


def _id_pairs(text: str) -> dict[str, str]:
    scan = Scanner(text)
    fields = {}
    for key in ("job_id", "worker_id", "node_id"):
        scan.literal(f" {key}=")
        fields[key] = scan.run(HEX)
    for position, key in enumerate(PAIR_NAMES):
        if not scan.maybe(f" {key}="):
            continue
        if key.endswith("_id"):
            fields[key] = scan.run(HEX)
            continue
        # A name may contain blanks: it reaches to the next key that there is.
        ends = [scan.text.find(f" {later}=", scan.at) for later in PAIR_NAMES[position + 1 :]]
        end = min((end for end in ends if end >= 0), default=len(scan.text))
        fields[key] = scan.text[scan.at : end]
        scan.at = end
    if not scan.good or scan.rest():
        return {}
    fields.pop("task_func_name", None)
    return {key: value for key, value in fields.items() if value}


# ---------------------------------------------------------------------------------------------------------------------
# Grouping where users write
# ---------------------------------------------------------------------------------------------------------------------

CONTROL_PREFIXES = (":job_id:", ":actor_name:", ":task_name:")
TQDM_TOKEN = "__ray_tqdm_magic_token__"
EXCEPTION_ENDS = ("KeyboardInterrupt", "SystemExit", "GeneratorExit", "StopIteration", "StopAsyncIteration")
DOTTED_ENDS = ("Error", "error", "timeout", "gaierror", "Empty", "Full", "TimeoutExpired")
CHAIN_LINES = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
CRASH_STARTS = ("PC: @", "*** StackTrace ", "Fatal Python error: ", "Python runtime state: ", "Extension modules: ")


def is_control(line: str) -> bool:
    """A marker or progress-bar state that Ray writes for its own use."""
    return line.startswith(CONTROL_PREFIXES) or (line.startswith('{"') and TQDM_TOKEN in line)


def continues(line: str) -> bool:
    """Does this line, in a file where users write, belong to the entry before it?"""
    text = _after_colours(line)
    if text.startswith("[rank"):
        scan = Scanner(text)
        scan.literal("[rank")
        scan.run(DIGITS)
        scan.literal("]: ")
        if scan.good:
            text = scan.rest()
    return (
        text in ("", "\r")
        or text[0] in " \t"
        or text.startswith(CHAIN_LINES)
        or text.startswith(CRASH_STARTS)
        or _opens_trace(text)
        or _closes_trace(text)
        or _signal_or_frame(text)
        or _raised_from(text)
        or _library_frame(text)
        or _library_frame(line)
        or _closing_bracket(text)
    )


def _opens_trace(text: str) -> bool:
    """`Traceback (most recent call last):` and what faulthandler and torch write alike."""
    before, colon, _ = text.partition(":")
    return (
        colon != ""
        and before.startswith(("Traceback", "Current thread", "Thread", "Stack"))
        and before.endswith(("(most recent call first)", "(most recent call last)"))
    )


def _closes_trace(text: str) -> bool:
    """The line that names the exception: `ValueError: x`, `socket.timeout`, `pkg.errors.Nope: x`."""
    scan = Scanner(text)
    name = scan.run(WORD | frozenset("<>."), 1)
    if not scan.good or not _names_exception(name.split(".")):
        return False
    if scan.maybe("("):  # RayTaskError(ValueError)
        scan.run(WORD | frozenset("."), 1)
        if not scan.literal(")"):
            return False
    after = scan.rest()
    return after.startswith(": ") or after.removeprefix(":").strip(" \t\r") == ""


def _names_exception(parts: list[str]) -> bool:
    *modules, last = parts
    for module in modules:
        if module == "" or module[0] in DIGITS or module[0] == ">" or "<" in module[1:]:
            return False
    if not _all_in(last, WORD):
        return False
    if last.endswith("Exception") or last in EXCEPTION_ENDS:
        return True
    if last.endswith("Error") and last != "Error" and last[0] not in DIGITS:
        return True
    if last.endswith("Warning") and last != "Warning":
        return True
    if not modules:
        return False
    return last in DOTTED_ENDS or (modules[-1] in ("exception", "exceptions", "error", "errors") and last[0] in UPPER)


def _signal_or_frame(text: str) -> bool:
    """`*** SIGSEGV received` and `frame #3: `."""
    if text.startswith("*** SIG"):
        scan = Scanner(text)
        scan.literal("*** SIG")
        scan.run(UPPER | DIGITS)
        return scan.literal(" ")
    if text.startswith("frame #"):
        scan = Scanner(text)
        scan.literal("frame #")
        scan.run(DIGITS)
        return scan.literal(": ")
    return False


def _raised_from(text: str) -> bool:
    """`Exception raised from place.cpp:12 (most recent call first):`."""
    if not text.startswith("Exception raised from "):
        return False
    scan = Scanner(text)
    scan.literal("Exception raised from ")
    scan.until(":")
    scan.literal(":")
    scan.run(DIGITS)
    return scan.literal(" (most recent call first):")


def _library_frame(text: str) -> bool:
    """`libtorch.so(symbol+0x1f) [0x7f12]`."""
    word = text.partition(" ")[0]
    at = word.find("(", 1)
    while at > 0:
        scan = Scanner(text)
        scan.at = at + 1
        inside = scan.until(" ()", least=0)
        _, plus, offset = inside.rpartition("+0x")
        scan.literal(")")
        scan.maybe(" ")
        scan.literal("[0x")
        scan.run(HEX)
        scan.literal("]")
        if scan.good and plus and _all_in(offset, HEX):
            return True
        at = word.find("(", at + 1)
    return False


def _closing_bracket(text: str) -> bool:
    rest = text.lstrip("])}")
    return rest != text and rest.removeprefix("," if rest.startswith(",") else ";").strip(" \t\r") == ""


def _without_glued_marker(line: str) -> str:
    """The line without the marker that was written right behind unfinished output."""
    at, value = -1, ""
    for prefix in CONTROL_PREFIXES:
        found = line.rfind(prefix)
        if found > at:
            at, value = found, line[found + len(prefix) :].removesuffix("\r")
    if at <= 0 or value == "" or ":" in value or value[0] in BLANKS:
        return line
    if line.startswith(":job_id:", at) and not _all_in(value, HEX):
        return line
    return line[:at]


def _is_repeat(line: str) -> bool:
    """F8: a line that the driver repeats, `(name pid=1, ip=10.0.0.2) text` in colour."""
    text = _after_colours(line)
    if not text.startswith("("):
        return False
    at = text.find("pid=")
    while at >= 0:
        scan = Scanner(text)
        scan.at = at + len("pid=")
        scan.run(DIGITS)
        if scan.maybe(", ip="):
            scan.until(")")
        if scan.literal(")") and (at == 1 or text[at - 1] == " ") and _after_colours(scan.rest()).startswith(" "):
            return True
        at = text.find("pid=", at + 1)
    return False


# ---------------------------------------------------------------------------------------------------------------------
# JSON
# ---------------------------------------------------------------------------------------------------------------------

ID_KEYS = ("worker_id", "job_id", "actor_id", "actor_name", "task_id", "task_name", "node_id", "submission_id",
           "deployment", "replica", "request_id", "route", "application")  # fmt: skip
READ_KEYS = frozenset(ID_KEYS) | {"message", "exc_text", "timestamp_ns", "asctime", "levelname", "severity", "level",
                                  "process", "source_pid", "pid", "thread", "threadName", "filename",
                                  "lineno"}  # fmt: skip


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _json_object(line: str) -> dict[str, Any] | None:
    """The object that this line is, with its colour codes taken out if there is no other way."""
    for text in (line, _without_ansi(line)):
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else None
    return None


def _sound(text: str) -> str:
    """The text with U+FFFD for half of a surrogate pair, which JSON can escape and UTF-8 cannot say."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _text_of(data: dict[str, Any], key: str) -> str | None:
    value = data.get(key)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return json.dumps(value)
    return _sound(value) if isinstance(value, str) and value != "" else None


def _first_text(data: dict[str, Any], *keys: str) -> str | None:
    return next((text for text in (_text_of(data, key) for key in keys) if text is not None), None)


def _json_time(data: dict[str, Any], epoch: bool, zone: str) -> int | None:
    exact = data.get("timestamp_ns")
    if isinstance(exact, int) and not isinstance(exact, bool) and exact > 0:
        return exact
    written = data.get("asctime")
    if isinstance(written, str):
        instant = text_time(written, zone)
        if instant is not None:
            return instant
    if epoch:
        seconds = data.get("timestamp")
        if isinstance(seconds, str) and _all_in(seconds, DIGITS):
            seconds = int(seconds)
        if isinstance(seconds, int) and not isinstance(seconds, bool):
            return seconds * 1_000_000_000
    return None


def _json_level(data: dict[str, Any]) -> str | None:
    for key in ("levelname", "severity", "level"):
        value = data.get(key)
        if isinstance(value, str):
            if value in LEVEL_LETTERS:
                return LEVEL_LETTERS[value]
            if value in LEVEL_WORDS or value.islower():
                level = LEVEL_WORDS.get(value.upper())
                if level is not None:
                    return level
    return None


def _json_fields(data: dict[str, Any], epoch: bool) -> Record:
    fields: Record = {key: text for key in ID_KEYS if (text := _text_of(data, key)) is not None}
    for name, keys in (("pid", ("process", "source_pid", "pid")), ("thread", ("thread", "threadName"))):
        text = _first_text(data, *keys)
        if text is not None:
            fields[name] = text
    place, number = _text_of(data, "filename"), _text_of(data, "lineno")
    if place is not None and number is not None:
        fields["caller"] = f"{place}:{number}"
    extra = {k: v for k, v in data.items() if k not in READ_KEYS and not (epoch and k == "timestamp")}
    if extra:
        fields["extra"] = extra
    return fields


def read_json(record: Record, first: str, following: str, zone: str, *, epoch: bool = False) -> None:
    """Fill a record from the JSON object that its first line is; what follows joins the message."""
    data = _json_object(first)
    if data is None:
        record["parse_error"] = True
        return
    record["time"] = _json_time(data, epoch, zone)
    record.update(_json_fields(data, epoch))
    level = _json_level(data)
    if level is not None:
        record["level"] = level
    message = data.get("message")
    if isinstance(message, str):
        trace = data.get("exc_text")
        if isinstance(trace, str) and trace != "":
            message += "\n" + trace
        record["message"] = clean(_sound(message) + following)


def _is_serve_json(data: dict[str, Any]) -> bool:
    return "component_name" in data or ("deployment" in data and "replica" in data)


def _is_cpp_json(data: dict[str, Any]) -> bool:
    level = data.get("levelname")
    return isinstance(level, str) and len(level) == 1 and level in UPPER


# ---------------------------------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------------------------------


class _Group(NamedTuple):
    number: int  # of the first line
    lines: list[str]


def _split(data: bytes) -> tuple[list[str], str]:
    """The finished lines, and what stands after the last newline."""
    *lines, tail = data.decode("utf-8", errors="replace").split("\n")
    return lines, tail


def _trim(group: _Group) -> _Group | None:
    """The group without the blank lines at its ends; None if nothing is left."""
    number, lines = group
    start, end = 0, len(lines)
    while start < end and is_blank(lines[start]):
        start += 1
    while end > start and is_blank(lines[end - 1]):
        end -= 1
    return _Group(number + start, lines[start:end]) if start < end else None


def _component_groups(lines: list[str], line_by_line: bool) -> list[_Group]:
    groups: list[_Group] = []
    started = False
    for number, line in enumerate(lines, 1):
        if not line_by_line and (_fills_line(line) or _header(line) is not None):
            started = True
            groups.append(_Group(number, [line]))
        elif started:
            groups[-1].lines.append(line)
        else:
            groups.append(_Group(number, [line]))
    return groups


def _user_groups(lines: list[str], markers: bool) -> list[_Group]:
    joined: list[_Group] = []
    for number, line in enumerate(lines, 1):
        if joined and not is_control(line) and continues(line):
            joined[-1].lines.append(line)
        else:
            joined.append(_Group(number, [line]))
    groups = []
    for number, members in joined:
        skip = 1 if is_control(members[0]) else 0
        kept = members[skip:]
        groups.append(_Group(number + skip, [_without_glued_marker(line) for line in kept] if markers else kept))
    return groups


def cut_text(raw: str, limit: int) -> tuple[str, bool]:
    """`raw`, or its beginning of at most `limit` bytes that ends between two characters."""
    encoded = raw.encode("utf-8")
    if len(encoded) <= limit:
        return raw, False
    return encoded[:limit].decode("utf-8", errors="ignore"), True


class _File:
    """One file being read: what its path says, and how its entries become records."""

    def __init__(self, path: str, options: Options, session: str | None) -> None:
        name = live_name(path)
        family, self.named = _classify(name)
        if family is None:
            raise ValueError(f"not a Ray log file: {path}")
        self.family: str = family
        self.component = COMPONENT_OF[family]
        self.options = options
        self.epoch = family in EPOCH_FAMILIES
        self.cuts = options.cuts()
        self.fixed: Record = {"source": options.source, "component": self.component, "node": options.node, "file": name}
        if options.cluster is not None:
            self.fixed["cluster"] = options.cluster
        if session is not None:
            self.fixed["session"] = session

    def entries(self, data: bytes) -> list[Entry]:
        lines, _ = _split(data)
        if self.options.skips_long_lines:
            lines = [line for line in lines if len(line.encode()) <= self.options.max_line]
        if self.family in USER_FAMILIES:
            groups = _user_groups(lines, markers=self.family in STREAM_FAMILIES)
        else:
            groups = _component_groups(lines, line_by_line=self.family in LINE_FAMILIES)
        entries = []
        for group in groups:
            trimmed = _trim(group)
            if trimmed is None:
                continue
            entry = self._entry(trimmed)
            if entry is not None:
                entries.append(entry)
        return entries

    def _entry(self, group: _Group) -> Entry | None:
        twin = self._twin(group.lines[0])
        if twin is None:
            return Entry(group.number, len(group.lines), self._record(group.lines))
        rest = _trim(_Group(group.number + 1, group.lines[1:]))
        if rest is None:
            return None
        record = self._plain(*self._raw(rest.lines))
        record.update(twin)
        if record["time"] is None:
            record["time_source"] = "read"
        return Entry(rest.number, len(rest.lines), record)

    def _twin(self, line: str) -> Record | None:
        """Time and pid of a first line that is a repeat of another file's and so is cut; None if it stays."""
        if self.family in ("job_driver", "ray_client_server"):
            return {"time": None} if "driver" in self.cuts and _is_repeat(line) else None
        if self.family != "worker" or self.named.get("stream") != "err":
            return None
        header = _header(line)
        if header is not None and header.kind in self.cuts and header.kind in ("serve", "cpp"):
            time = _instant(header.stamp, header.fraction, self.options.timezone)
            pid = (header.fields or {}).get("pid")
            return {"time": time} | ({"pid": pid} if pid else {})
        data = _json_object(line) if line.startswith('{"') else None
        if data is not None and (
            ("serve" in self.cuts and _is_serve_json(data)) or ("cpp" in self.cuts and _is_cpp_json(data))
        ):
            pid = _first_text(data, "process", "source_pid", "pid")
            return {"time": _json_time(data, self.epoch, self.options.timezone)} | ({"pid": pid} if pid else {})
        return None

    def _raw(self, lines: list[str]) -> tuple[str, bool]:
        raw, cut = cut_text("\n".join(lines).removesuffix("\r"), self.options.max_entry)
        pieces = [cut_text(line, self.options.max_line) for line in raw.split("\n")]
        return "\n".join(text for text, _ in pieces), cut or any(too_long for _, too_long in pieces)

    def _plain(self, raw: str, truncated: bool) -> Record:
        """The record of an entry about which nothing is known but its place and its text."""
        record = self.fixed | self.named | {"time": None, "raw": raw, "message": clean(raw)}
        if truncated:
            record["truncated"] = True
        return record

    def _record(self, lines: list[str]) -> Record:
        record = self._plain(*self._raw(lines))
        raw: str = record["raw"]
        first, newline, following = raw.partition("\n")
        if first.startswith('{"'):
            read_json(record, first, newline + following, self.options.timezone, epoch=self.epoch)
        else:
            self._read_text(record, first, newline + following)
        if record["time"] is None:
            record["time_source"] = "read"
        return record

    def _read_text(self, record: Record, first: str, following: str) -> None:
        header = _header(first)
        if header is None and self.family in USER_FAMILIES:
            header = _logging_header(first)
        if header is None:
            return
        if header.stamp:
            record["time"] = _instant(header.stamp, header.fraction, self.options.timezone)
        if header.level is not None:
            record["level"] = header.level
        record.update(header.fields or {})
        if header.message is not None:
            record["message"] = clean(header.message + following)
        if header.kind == "python":
            exact, ids = _pairs((first + following).rpartition("\n")[2])
            record.update(ids)
            record["time"] = exact if exact is not None else record["time"]


# ---------------------------------------------------------------------------------------------------------------------
# The interface
# ---------------------------------------------------------------------------------------------------------------------


def read_entries(path_below_logs: str, data: bytes, options: Options, session: str | None) -> list[Entry]:
    """The records of one file with the lines they stand on. Selection by `components` is not applied here."""
    return _File(path_below_logs, options, session).entries(data)


def read_file(path_below_logs: str, data: bytes, options: Options, session: str | None) -> list[Record]:
    """The records of one file, in order. Selection by `components` is not applied here."""
    return [entry.record for entry in read_entries(path_below_logs, data, options, session)]


def files(temp_dir: Path, options: Options) -> list[tuple[str, str, Path]]:
    """(session, path below `logs/`, file) of every file that is read, in order."""
    chosen = options.families()
    found = []
    for session in sorted(temp_dir.glob("session_2*")):
        if session.is_symlink() or not session.is_dir():
            continue
        logs = session / "logs"
        for path in sorted(logs.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            below = path.relative_to(logs).as_posix()
            family = family_of(below)
            if family is None or family[0] not in chosen:
                continue
            is_backup = live_name(below) != below.removeprefix("old/")
            if is_backup and (not options.backups or family[0] in NO_BACKUP_FAMILIES):
                continue
            found.append((session.name, below, path))
    return found


def read_tree(temp_dir: Path, options: Options) -> list[Record]:
    """Every record of Ray's tree under `temp_dir`, by session, file and place in it."""
    records: list[Record] = []
    for session, below, path in files(temp_dir, options):
        records += read_file(below, path.read_bytes(), options, session)
    return records


def unfinished_lines(temp_dir: Path, options: Options) -> list[Unfinished]:
    """The last lines without newline: no shipper delivers one, so they are no records here."""
    unfinished = []
    for session, below, path in files(temp_dir, options):
        _, tail = _split(path.read_bytes())
        if tail:
            unfinished.append(Unfinished(session, below, len(tail.encode("utf-8"))))
    return unfinished
