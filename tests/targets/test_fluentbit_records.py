"""The script that is rendered for Fluent Bit, run by LuaJIT over every recorded line: the reference's records."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lua import NOW, FakeFluentBit, Sent
from making import TREE_NAMES, TREES, Record, nanoseconds, policy, resolved
from test_vector_files import FILE, JSON, LINES, PLAIN
from test_vector_records import ALL_ONLY, AT, CORE, CORNERS, CPP, EARLY, SESSION, TRAIN, WORKER, fragments

from shipgen.catalog import ray
from shipgen.harness import reference
from shipgen.harness.reference_files import Reader

BASE = "/tmp/ray"
WITH_CR_INSIDE = {"CR at line ends, in text"}
"""Fluent Bit takes the CR from the end of every line, also where an entry goes on."""


@cache
def fluentbit(components: str, zone: str, **sources: Any) -> FakeFluentBit:
    """Fluent Bit with a console sink, which gets every field of a record; without rules."""
    source = {"type": "ray", "components": [components], **sources}
    parts = {"parsing": {"timezone": zone}, "sources": {"ray": source}, "sinks": {"all": {"type": "console"}}}
    return FakeFluentBit(policy(cluster="c", collector={"node": "node"}, **parts), rules=False)


def as_reference(sent: Sent) -> Record:
    """A line of the console, with its time as the reference gives it."""
    record: Record = json.loads(sent.record["line"])
    time = nanoseconds(record.pop("time"))
    return {**record, "time": None if record.get("time_source") == "read" else time}


def received(fake: FakeFluentBit, below: str, data: bytes, session: str = SESSION) -> Iterator[Record]:
    """What comes out of a file."""
    tag = f"ray.{ray.families_of(below)[0].grouping.value}"
    for group in fake.groups(tag, data):
        for sent in fake.send(tag, f"{BASE}/{session}/logs/{below}", group)["all"]:
            yield as_reference(sent)


def same(got: list[Record], expected: list[Record], where: str) -> None:
    """Equal, record by record; the first that is not is shown."""
    for ours, theirs in zip(got, expected, strict=False):
        assert ours == theirs, f"{where}: {theirs['raw'][:300]!r}"
    assert len(got) == len(expected), where


def tree_agrees(tree: str, components: str, zone: str, own_zone: str = "") -> int:
    """Compare every file of a tree; gives the number of records."""
    fake = fluentbit(components, zone)
    options = reference.Options(cluster="c", timezone=own_zone or zone, everything=components == "all")
    count = 0
    for session, below, path in reference.files(TREES / tree, options):
        data = path.read_bytes()
        expected = reference.read_file(below, data, options, session)
        same(list(received(fake, below, data, session)), expected, f"{tree}/{below}")
        count += len(expected)
    return count


@pytest.mark.parametrize("components", ["default", "all"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_every_line_of_the_trees(zone: str, components: str) -> None:
    assert sum(tree_agrees(tree, components, zone) for tree in TREE_NAMES) > 10_000


def in_zone(zone: str, code: str) -> str:
    """What code prints that is run in a process of a zone: `local` is the zone of the process."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", f"from test_fluentbit_records import *; {code}"],
        env={**os.environ, "TZ": zone, "PYTHONPATH": f"{here}:{here.parent}"}, capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_zone_of_the_node(zone: str) -> None:
    assert in_zone(zone, f"print(tree_agrees('text', 'default', 'local', {zone!r}))") == "1451"


# --- corners ---


def agree(below: str, data: bytes, components: str = "default", zone: str = "UTC", **source: Any) -> list[Record]:
    """Compare one file; gives the records."""
    options = reference.Options(cluster="c", timezone=zone, everything=components == "all")
    got = list(received(fluentbit(components, zone, **source), below, data))
    same(got, reference.read_file(below, data, options, SESSION), below)
    return got


@pytest.mark.parametrize("components", ["default", "all"])
@pytest.mark.parametrize("name", [n for n in CORNERS if n not in WITH_CR_INSIDE])
def test_corners(name: str, components: str) -> None:
    below, data = CORNERS[name]
    agree(below, data.encode() if isinstance(data, str) else data, components)


@pytest.mark.parametrize("name", ALL_ONLY)
def test_corners_of_files_that_are_not_read_by_default(name: str) -> None:
    below, data = ALL_ONLY[name]
    assert agree(below, data.encode(), "all")


def test_a_cr_inside_an_entry_is_lost() -> None:
    """Nothing else of it is: `message` has none anyway."""
    (record,) = received(fluentbit("default", "UTC"), "raylet.out", f"{CPP}\r\nmore\r\n".encode())
    assert record["raw"] == f"{CPP}\nmore"
    assert record["message"] == "low\nmore"


@pytest.mark.parametrize("components", ["default", "all"])
@pytest.mark.parametrize("below", [
    f"{WORKER}.out", f"{WORKER}.err", f"{EARLY}.out", f"io_worker-{'e' * 56}-5.err", "raylet.out", "dashboard.log",
    CORE, TRAIN, "serve/replica_a_b_91qtjyz2.log", "job-driver-raysubmit_x.log", "ray_client_server.out",
    f"old/{WORKER}.out",
])
def test_lines_in_any_order(below: str, components: str) -> None:
    source = random.Random(below)
    lines = [line for line in fragments() if not line.endswith("\r")]
    for _ in range(40):
        data = "".join(f"{source.choice(lines)}\n" for _ in range(source.randint(2, 9)))
        agree(below, data.encode(), components)


def of_stamp(stamp: str, zone: str) -> list[int | None]:
    """Times of entries of all kinds with a time."""
    lines = ("[{} I 1 2] a.cc:1: m", "{}\tINFO a.py:1 -- m", '{{"asctime":"{}","message":"m"}}', "{} INFO m")
    data = "".join(f"{line.format(stamp)}\n" for line in lines).encode()
    return [r["time"] for r in received(fluentbit("default", zone), f"io_worker-{'e' * 56}-5.out", data)]


@pytest.mark.parametrize(("zone", "stamp", "readings"), [
    ("Europe/Berlin", "2026-10-25 02:30:00,500", ("2026-10-25 00:30:00.5 UTC", "2026-10-25 01:30:00.5 UTC")),
    ("Europe/Berlin", "2026-03-29 02:30:00,500", ("2026-03-29 00:30:00.5 UTC", "2026-03-29 01:30:00.5 UTC")),
    ("America/New_York", "2026-11-01 01:59:59,999", ("2026-11-01 05:59:59.999 UTC", "2026-11-01 06:59:59.999 UTC")),
    ("America/New_York", "2026-03-08 02:00:00,000", ("2026-03-08 06:00:00 UTC", "2026-03-08 07:00:00 UTC")),
    ("Australia/Lord_Howe", "2026-04-05 01:45:00,000", ("2026-04-04 14:45:00 UTC", "2026-04-04 15:15:00 UTC")),
    ("America/Santiago", "2026-09-06 00:30:00,000", ("2026-09-06 03:30:00 UTC", "2026-09-06 04:30:00 UTC")),
])
def test_the_hours_that_repeat_or_are_missing(zone: str, stamp: str, readings: tuple[str, str]) -> None:
    """Either reading is right; 1970 and the time it was read never are."""
    times = [*of_stamp(stamp, zone), *json.loads(in_zone(zone, f"print(of_stamp({stamp!r}, 'local'))"))]
    assert len(times) == 8
    assert set(times) <= {nanoseconds(r) for r in readings}


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Shanghai", "Europe/Dublin"])
def test_every_hour_of_some_years(zone: str) -> None:
    options = reference.Options(cluster="c", timezone=zone)
    for year in (2015, 2026, 2049):
        start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
        lines = "".join(f"{datetime.fromtimestamp(start + h * 3600, UTC):%Y-%m-%d %H:%M:%S} INFO m\n"
                        for h in range(0, 8760, 5))
        got = [r["time"] for r in received(fluentbit("default", zone), f"{WORKER}.out", lines.encode())]
        assert got == [r["time"] for r in reference.read_file(f"{WORKER}.out", lines.encode(), options, SESSION)]


def test_what_a_path_gives() -> None:
    fake = fluentbit("default", "UTC")
    for name, fields in {
        f"{WORKER}.out": {"stream": "out", "pid": "77", "job_id": "01000000", "component": "worker"},
        f"old/{WORKER}.out": {"stream": "out", "file": f"{WORKER}.out"},
        f"{WORKER}.out.12": {"file": f"{WORKER}.out"},
        f"old/{WORKER}.err.1": {"file": f"{WORKER}.err"},
        f"{EARLY}.out": {"job_id": None, "worker_id": "b" * 56},
        "serve/controller_12.log": {"pid": "12", "deployment": None, "component": "serve"},
        "serve/replica_a_b_91qtjyz2.log": {"deployment": "a_b", "replica": "91qtjyz2", "pid": None},
        "serve/proxy_10.0.0.1.log.3": {"pid": None, "file": "serve/proxy_10.0.0.1.log"},
        "dashboard_NodeHead.log": {"component": "dashboard", "file": "dashboard_NodeHead.log"},
        f"python-core-spill_worker-{'f' * 56}_8.log": {"component": "io_worker", "pid": "8"},
        "job-driver-raysubmit_x.log": {"submission_id": "raysubmit_x"},
        "runtime_env_setup-01000000.log": {"job_id": "01000000"},
    }.items():
        for record in received(fake, name, b"[x]\n"):
            assert {k: record.get(k) for k in fields} == fields, name
            assert record["session"] == SESSION


@pytest.mark.parametrize(("max_entry", "max_line"), [("1KiB", "256KiB"), ("1KiB", "100B"), ("1KiB", "2000B")])
def test_long_lines_and_entries_are_cut(max_entry: str, max_line: str) -> None:
    fake = fluentbit("default", "UTC", max_entry=max_entry, max_line=max_line)
    data = f"{CPP}{'x' * 2000}\n{'y' * 102}\n[{AT},438 W 1 2] a.cc:1: m\n" + "short\n" * 1000
    for record in received(fake, "raylet.out", data.encode()):
        assert record["truncated"] is True
        assert len(record["raw"].encode()) <= 1024
        assert max(len(line.encode()) for line in record["raw"].split("\n")) <= 2000 if max_line != "100B" else 100
        assert record["raw"].endswith(record["message"][-50:])


def test_no_cut_falls_inside_a_character() -> None:
    for width in range(1, 5):
        line = "x" * width + "😀" * 40 + "\n"
        (record,) = received(fluentbit("default", "UTC", max_entry="64B"), "raylet.out", line.encode())
        assert record["raw"] == "x" * width + "😀" * ((64 - width) // 4)
        assert record["truncated"] is True


# --- files of other sources ---


def of_source(zone: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """A policy with one source of type file."""
    return policy(
        cluster="c", collector={"node": "node"}, parsing={"timezone": zone}, sinks={"all": {"type": "console"}},
        sources={"f": {"type": "file", "paths": ["/var/log/app/*.log"], **source}},
    )


@cache
def _file(zone: str, source: str) -> FakeFluentBit:
    return FakeFluentBit(of_source(zone, json.loads(source)))


def file_received(source: Mapping[str, Any], data: bytes, zone: str = "UTC", now: float = NOW) -> Iterator[Record]:
    """What comes out of a file."""
    fake = _file(zone, json.dumps(source))
    for group in fake.groups("f.file", data):
        for sent in fake.send("f.file", FILE, group, now)["all"]:
            yield as_reference(sent)


def file_agrees(source: Mapping[str, Any], text: str | bytes, zone: str = "UTC") -> list[Record]:
    """Compare with the reference; gives the records."""
    data = text.encode() if isinstance(text, str) else text
    (read,) = resolved(of_source(zone, source)).sources
    expected = list(Reader(read, Path("/"), "c", "node", zone).read(Path(FILE), data))
    got = list(file_received(source, data, zone))
    for ours, theirs in zip(got, expected, strict=True):
        if (theirs["time"] or 0) >= 2**63:
            theirs |= {"time": None, "time_source": "read"}  # no shipper has room for it
        assert ours == theirs
    return got


def test_text_and_json_of_files() -> None:
    assert len(file_agrees({}, LINES)) == 11
    file_agrees({}, b"\xff\xfea\n\xe2\x82\n\xf0\x9f\x98 \xed\xa0\x80 \xc0\xaf\n")
    assert len(file_agrees({"format": "json"}, JSON)) == 13
    file_agrees({"format": "json"}, LINES)
    joined = {"format": "json", "multiline": {"start": r'^\{"'}}
    file_agrees(joined, 'x\ny\n{"message":"m"}\n  more\n\n{"message":"n"}\nx\n')


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_regex_of_files(zone: str) -> None:
    source = {"format": {"regex": PLAIN, "time": {"field": "time", "layout": "python"}}}
    fractions, words = (",438", "", ".5", ".123456789"), ("INFO", "warning", "Error", "E", "c", "Nope", "d")
    text = "".join(f"2026-12-01 05:36:23{fraction} {word} m\n" for fraction in fractions for word in words)
    for record in file_agrees(source, text, zone):
        assert "time_source" not in record
    file_agrees(source, "no match\n\n2026-12-01 05:36:23 INFO \n2026-99-01 05:36:23 INFO m\n")
    file_agrees(source, "\x1b[1m2026-12-01 05:36:23 INFO m\x1b[0m\n")
    file_agrees({**source, "multiline": {"start": r"\d{4}-"}},
                "head\n2026-12-01 05:36:23 INFO first\n  second\n\n third\nx 2026-12-01 05:36:24 WARN x\n")
    groups = r"^(?P<pid>\d+)?,(?P<job_id>[^,]*),(?P<if>[^,]*),(?:(a)|b)?(?P<camel_case>.*)$"
    records = file_agrees({"format": {"regex": groups}}, "1,2,3,4\n,,,\n1,,x,\nno\n٣,a,b,c\n1,2,3,ab\n")
    assert [r.get("if") for r in records] == ["3", None, "x", None, None, "3"]
    records = file_agrees({"format": {"regex": "^(?P<message>a)?(?P<level>[A-Z]+)?"}}, "a\nINFO\nb\n")
    assert [r["message"] for r in records] == ["a", "", ""]


@pytest.mark.parametrize(("layout", "stamps"), {
    "python": [
        "2026-12-01 05:36:23,438", "2026-12-01 05:36:23", "2026-12-01 05:36:23.123456789", "2026-13-01 00:00:00", "x"],
    "rfc3339": [
        "2026-12-01T05:36:23Z", "2026-12-01T05:36:23.123456789+02:00", "2026-12-01T05:36:23.5-11:30", "2026-12-01", "x",
        "2026-12-01T05:36:23", "2026-02-30T05:36:23Z"],
    "epoch_s": [
        "1796103383", "1796103383.438123456", "1796103383.5", "1796103383.", "0", "-5", "x", "1e9", "99999999999",
        "1.2.3", "9223372036.854775807", "9223372036.854775808", "1796103383.4381234567"],
    "epoch_ms": ["1796103383438", "1796103383438.123456", "0", "9999999999999999", "1796103383438123"],
    "epoch_us": ["1796103383438123", "1796103383438123.456", "1796103383438123.4"],
    "epoch_ns": ["1796103383438123456", "9223372036854775807", "9223372036854775808", "99999999999999999999", "12.5"],
}.items())
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_layouts(layout: str, stamps: list[str], zone: str) -> None:
    source = {"format": {"regex": "^<(?P<at>[^>]*)> (?P<message>.*)$", "time": {"field": "at", "layout": layout}}}
    for record in file_agrees(source, "".join(f"<{stamp}> m\n" for stamp in stamps), zone):
        assert "at" not in record


@pytest.mark.parametrize(("stamp", "now", "expected"), [
    ("1201 05:36:23.438123", "2026-12-01 06:00:00", "2026-12-01 05:36:23.438123 UTC"),
    ("1231 23:59:59.000000", "2027-01-01 00:00:10", "2026-12-31 23:59:59 UTC"),
    ("0101 00:00:01.000000", "2026-12-31 23:59:59", "2027-01-01 00:00:01 UTC"),
    ("0229 10:00:00.000000", "2026-03-01 00:00:00", ""), ("1301 00:00:00.000000", "2026-03-01 00:00:00", ""),
])
def test_glog_has_no_year(stamp: str, now: str, expected: str) -> None:
    """This year's, or the last one's where that would lie more than a day ahead; around New Year, too."""
    regex = r"^(?P<level>[IWEF])(?P<t>\d{4} [\d:.]+) (?P<message>.*)$"
    source = {"format": {"regex": regex, "time": {"field": "t", "layout": "glog"}}}
    (record,) = file_received(source, f"W{stamp} m\n".encode(), now=nanoseconds(f"{now} UTC") / 1e9)
    assert record["level"] == "warn"
    assert record["time"] == (nanoseconds(expected) if expected else None)


@pytest.mark.parametrize(("limits", "text"), [
    ({"max_line": "10B"}, "0123456789abc\nshort\n" + "é" * 8 + "\n"),
    ({"max_entry": "10B"}, "0123456789abc\nshort\n" + "é" * 8 + "\n"),
    ({"multiline": {"start": "^A", "max_lines": 2}}, "A1\n2\n3\n4\nA5\n6\nA7\n"),
    ({"multiline": {"start": "^A", "max_lines": 1}}, "A1\n2\nA3\n"),
    ({"max_line": "4B", "max_entry": "12B", "multiline": {"start": "^A", "max_lines": 3}}, "A123456\n123456\n1\n2\n"),
])
def test_limits_of_files(limits: dict[str, Any], text: str) -> None:
    assert any(r.get("truncated") for r in file_agrees(limits, text))


def test_files_that_are_left_out() -> None:
    fake = FakeFluentBit(of_source("UTC", {"exclude": ["/var/log/*/x*", "/var/log/app/[ab].log", "/var/*/skip/*"]}))
    (tail,) = fake.config["pipeline"]["inputs"]
    assert tail["exclude_path"] == "/var/log/*/x*,/var/log/app/[ab].log,/var/*/skip/*"
    for name, kept in {"y": True, "x": False, "xy": False, "a": False, "c": True}.items():
        assert bool(fake.send("f.file", f"/var/log/app/{name}.log", b"m")["all"]) is kept, name


@pytest.mark.parametrize("root", ["/", "/host", "/host/", "/a/é"])
def test_paths_are_those_of_the_node(root: str) -> None:
    fake = FakeFluentBit({**of_source("UTC", {}), "collector": {"root": root, "node": "n"}})
    path = root.rstrip("/") + FILE
    assert fake.config["pipeline"]["inputs"][0]["path"] == root.rstrip("/") + "/var/log/app/*.log"
    (sent,) = fake.send("f.file", path, b"m")["all"]
    assert as_reference(sent)["file"] == FILE
