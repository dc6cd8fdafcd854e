"""The VRL that is rendered for Vector, run by Vector's engine over every recorded line: the reference's records."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from making import TREE_NAMES, TREES, FakeVector, Record, config_of, nanoseconds, policy

from shipgen.catalog import ray
from shipgen.harness import reference
from shipgen.pipeline import grouping

BASE = "/tmp/ray"
SESSION = "session_2026-12-01_00-00-00_000000_1"


@cache
def vector(components: str, zone: str, engine_zone: str = "UTC", **sources: Any) -> FakeVector:
    """Vector with a console sink, which gets every field of a record."""
    source = {"type": "ray", "components": [components], **sources}
    parts = {"parsing": {"timezone": zone}, "sources": {"ray": source}, "sinks": {"all": {"type": "console"}}}
    return FakeVector(config_of(policy(cluster="c", **parts)), engine_zone, rules=False)


def received(fake: FakeVector, below: str, data: bytes, session: str = SESSION) -> Iterator[Record]:
    """What comes out of a file, with times as the reference gives them."""
    (family,) = (f for f in ray.families_of(below) if f"ray:{f.name}" in fake.config["sources"])
    for group in grouping.ray_groups(data.decode("utf-8", "replace").split("\n")[:-1], family.grouping):
        got = fake.send(f"ray:{family.name}", {"message": group, "file": f"{BASE}/{session}/logs/{below}"})
        for record in got["out::all"]:
            time = nanoseconds(record.pop("time"))
            yield {**record, "time": None if record.get("time_source") == "read" else time}


def same(got: list[Record], expected: list[Record], where: str) -> None:
    """Equal, record by record; the first that is not is shown."""
    for ours, theirs in zip(got, expected, strict=False):
        without = {k: v for k, v in ours.items() if k != "timestamp"}
        assert without == theirs, f"{where}: {theirs['raw'][:300]!r}"
    assert len(got) == len(expected), where


def tree_agrees(tree: str, components: str, zone: str, every: int = 1, engine_zone: str = "UTC") -> int:
    """Compare every file of a tree (or one of so many); gives the number of records."""
    fake = vector(components, zone, engine_zone)
    options = reference.Options(
        cluster="c", timezone=engine_zone if zone == "local" else zone, everything=components == "all")
    count = 0
    for session, below, path in reference.files(TREES / tree, options)[::every]:
        data = path.read_bytes()
        expected = reference.read_file(below, data, options, session)
        same(list(received(fake, below, data, session)), expected, f"{tree}/{below}")
        count += len(expected)
    return count


@pytest.mark.parametrize("components", ["default", "all"])
@pytest.mark.parametrize("tree", TREE_NAMES)
def test_every_line_of_the_trees(tree: str, components: str) -> None:
    assert tree_agrees(tree, components, "UTC") > 30


@pytest.mark.parametrize(("zone", "components"), [
    ("Europe/Berlin", "default"), ("Europe/Berlin", "all"), ("America/New_York", "default"), ("Asia/Shanghai", "all"),
    ("Asia/Kolkata", "default"),
])
def test_other_zones(zone: str, components: str) -> None:
    assert sum(tree_agrees(tree, components, zone, 1 if tree == "text" else 6) for tree in TREE_NAMES) > 2000


def in_zone(zone: str, code: str) -> str:
    """What code prints that is run in a process of a zone: `local` is the zone of the process."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", f"from test_vector_records import *; {code}"],
        env={**os.environ, "TZ": zone, "PYTHONPATH": f"{here}:{here.parent}"}, capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_zone_of_the_node(zone: str) -> None:
    assert in_zone(zone, f"print(tree_agrees('text', 'default', 'local', 1, {zone!r}))") == "1451"


# --- corners ---

WORKER = f"worker-{'a' * 56}-01000000-77"
EARLY = f"worker-{'b' * 56}-ffffffff-78"
CORE = f"python-core-worker-{'c' * 56}_99.log"
TRAIN = f"train/ray-train-app-worker-{'d' * 56}.log"
AT = "2026-12-01 05:36:23"
CPP = f"[{AT},438 W 11309 11319] (raylet) a.cc:1: low"
PYTHON = f"{AT},438\tINFO a.py:3 -- started"
IDS = "job_id=01 worker_id=ab node_id=cd"
NS = "timestamp_ns=1796103383438123456"
CPP_JSON = (
    '{"asctime":"2026-12-01 05:29:04,009","levelname":"I","message":"hi","process":12,"filename":"a.cc","lineno":4}'
)

CORNERS: dict[str, tuple[str, bytes | str]] = {
    "CR at line ends, in text": ("raylet.out", f"{CPP}\r\nmore\r\n{CPP}\r\n"),
    "CR at line ends, in JSON": ("raylet.out", f"{CPP_JSON}\r\n{CPP_JSON}\r\n"),
    "CR at line ends, where users write": (f"{WORKER}.out", "a\r\n\r\nb\r\n"),
    "CR alone": (f"{WORKER}.out", "\r\n\r\r\n"),
    "invalid UTF-8": (f"{WORKER}.out", b"\xff\xfe text \xc3\n\xe2\x82 half\n"),
    "invalid UTF-8 behind a header": ("raylet.out", CPP.encode() + b"\xff\xed\xa0\x80\n"),
    "NUL": (f"{WORKER}.out", "a\0b\n\0\n"),
    "empty lines around": ("dashboard.log", f"\n\n{PYTHON}\n\n  \nin the middle\n\n\t\n{PYTHON}\n\n"),
    "only blank lines": ("dashboard.log", "\n \n\t\n\r\n\x0b\x0c\n"),
    "an empty file": ("dashboard.log", ""),
    "an unfinished line": ("dashboard.log", f"{PYTHON}\nno newline"),
    "markers alone": (f"{WORKER}.out", ":job_id:01000000\n:actor_name:A\n:task_name:f\nout\n:task_name:g\n"),
    "markers before a block": (f"{WORKER}.err", ":task_name:f\nTraceback (most recent call last):\n  File\nE: x\n"),
    "markers behind a blank": (f"{WORKER}.err", ":actor_name:A\n\n  indented\n"),
    "glued markers": (f"{WORKER}.out", "text:task_name:f\ntext:job_id:01000000\nt:actor_name:A:b\nx:task_name: y\n"),
    "a glued marker in the middle": (f"{WORKER}.out", "a:task_name:f\n  more:actor_name:B\n  end\n"),
    "no markers in other files": ("raylet.out", f"{CPP} x:task_name:f\n:task_name:f\n"),
    "a job without an id": (f"{EARLY}.out", "hello\n"),
    "a driver without a job": (f"python-core-driver-ffffffff{'0' * 48}_5.log", f"{CPP}\n"),
    "a long line": ("raylet.out", f"{CPP} {'x' * 300_000}\nmore\n{CPP}\n"),
    "a long line of wide characters": ("raylet.out", f"{CPP} {'日' * 100_000}\n"),
    "a long entry of many lines": ("raylet.out", f"{CPP}\n" + "0123456789\n" * 30_000),
    "a long JSON line": ("raylet.out", '{"levelname":"I","message":"' + "x" * 300_000 + '"}\n'),
    "an ESC that JSON does not allow": ("raylet.out", '{"message":"\x1b[1mbold\x1b[0m","levelname":"W"}\n'),
    "an ESC that is no colour": ("raylet.out", '{"message":"\x1b bold"}\n'),
    "broken JSON": ("raylet.out", '{"a":1\n{"a":NaN}\n{"a":1}{"b":2}\n{"a":1} \n{"":1}\n{}\n{ "a":1}\n'),
    "JSON with text behind": (f"{WORKER}.err", '{"message":"m","exc_text":"Traceback\\n  x"}\n  and more\n'),
    "JSON values of all kinds": (
        "raylet.out", '{"pid":null,"thread":"","job_id":[1],"node_id":{"a":1},"route":true,"k":2}\n'),
    "JSON keys that come first": ("raylet.out", '{"process":1,"source_pid":2,"pid":3,"thread":4,"threadName":"T"}\n'),
    "JSON levels": ("raylet.out", "".join(f'{{"{k}":"{v}"}}\n' for k in ("levelname", "severity", "level")
                                          for v in ("I", "warning", "Info", "FATAL", "x", ""))),
    "JSON times": ("raylet.out", '{"timestamp_ns":1796103383438123456,"asctime":"2026-01-01 00:00:00"}\n'
                   '{"timestamp_ns":-1,"asctime":"2026-01-01 00:00:00.5"}\n{"timestamp_ns":"5"}\n{"timestamp":5}\n'),
    "JSON messages": (
        "raylet.out", '{"message":5}\n{"message":""}\n{"message":"a\\r\\n\\u001b[31mb\\u001b[0m"}\n'),
    "a surrogate pair": ("raylet.out", '{"message":"\\ud83d\\ude00"}\n'),
    "a repeat in JSON": (f"{WORKER}.err", f"{CPP_JSON}\n  behind it\n" + '{"deployment":"d","replica":"r"}\n'),
    "a repeat in text": (f"{WORKER}.err", f"{CPP}\n*** SIGSEGV received\n{CPP}\nINFO {AT},438 d r q -- m\n  x\n"),
    "headers of users are theirs": (f"{WORKER}.out", f"{CPP}\n{PYTHON}\nINFO {AT},438 d r q -- m\n{CPP_JSON}\n"),
    "Serve": (
        "serve/replica_a_b_91qtjyz2.log",
        f"INFO {AT},438 a_b 91qtjyz2 req-1 -- m\nWARNING {AT},438 a_b 91qtjyz2 -- m\n"
        f"INFO {AT},438 two words 91 q -- m\nERROR {AT},438 a_b 91qtjyz2  -- m\n"),
    "Serve's controller and proxy": (
        "serve/controller_12.log", f"INFO {AT},438 controller 13 -- m\nINFO {AT},438 proxy ::1 r -- m\n"),
    "F9": (
        "raylet.err", "I1201 05:31:12.796560   13308 fork.cc:71] Other\nmore\nF1201 05:31:12.796560 1 a.cc:2] x\n"),
    "F2b": (
        f"{WORKER}.err",
        f"{PYTHON} {IDS} actor_id=ef task_id=01 task_name=my task task_func_name=m.f actor_name=A {NS}\n"
        f"{PYTHON} {IDS} {NS}\n{PYTHON} {NS}\n{PYTHON} {NS} x\n{PYTHON} {IDS} task_name= {NS}\n"
        f"{PYTHON} a\n  b {IDS} {NS}\n"),
    "dates of users": (
        f"{WORKER}.out",
        f"{AT} INFO a\n{AT}.123456789 b\n{AT},5 ERROR\n{AT} INFOx\n{AT}+01:00 WARN c\n{AT}\n"
        f"{AT}\tDEBUG d\n{AT}  CRITICAL\n{AT}INFO e\n{AT} info f\n"),
    "dates that are none": (
        f"{WORKER}.out", "2026-13-01 00:00:00 INFO a\n2026-02-30 00:00:00,000\tINFO a.py:1 -- x\n"
                            "0000-01-01 00:00:00 WARN b\n2026-12-01 24:00:00 c\n"),
    "dates far away": (f"{WORKER}.out", "1600-01-01 00:00:00 INFO a\n9999-12-31 23:59:59 b\n"),
    "levels": ("raylet.out", "".join(f"[{AT},438 {c} 1 2] a.cc:1: m\n" for c in "TDIWEFCX")),
    "progress": (f"{WORKER}.err", "  0%|   | 0/2\r 50%|#  | 1/2\r100%|###| 2/2\r\ndone\n"),
    "progress bars of Ray": (f"{WORKER}.out", '{"__ray_tqdm_magic_token__":"x","desc":"a"}\nout\n'),
    "colours": (f"{WORKER}.err", f"\x1b[36m(f pid=12)\x1b[0m hello\n\x1b[31mTraceback (most recent call last):\x1b[0m\n"
                f"\x1b[0m{AT} INFO coloured header\n\x1b[2K\x1b[?25hx\n"),
    "repeats of a driver": (
        "job-driver-raysubmit_x.log", "\x1b[36m(f pid=12)\x1b[0m a\n(A(x) pid=1, ip=10.0.0.2) b\n  c\nown\n"),
    "repeats in Ray Client": ("ray_client_server_23000.err", "(f pid=12) a\nown\n"),
    "train": (TRAIN, '{"asctime":"2026-12-01 05:29:04,009","levelname":"INFO","message":"m"}\n\ntext\n'),
    "other blanks": (f"{WORKER}.out", "\u00a0x\n\u3000y\n\ufeffz\n\u2028\n\x85\n"),
    "brackets": (f"{WORKER}.out", "{\n  a\n}\n[1,\n]);\n"),
}
ALL_ONLY: dict[str, tuple[str, str]] = {
    "events": (
        "events/event_JOBS.log", '{"timestamp":1796103383,"severity":"INFO","message":"m","source_pid":4,"x":1}\n'
        '{"timestamp":"1796103383","severity":"x"}\n{"timestamp":null}\n'),
    "export": ("export_events/event_EXPORT_TASK_12.log", '{"timestamp":1796103383,"event_data":{"a":[1]}}\n'),
    "supervisor": ("jobs/supervisor-raysubmit_x.log", f"{PYTHON} {IDS} {NS}\n"),
    "dataset": ("ray-data/ray-data-x.log", f"{PYTHON}\n"),
}


def agree(below: str, data: bytes, components: str = "default", zone: str = "UTC", **source: Any) -> list[Record]:
    """Compare one file; gives the records."""
    options = reference.Options(cluster="c", timezone=zone, everything=components == "all")
    got = list(received(vector(components, zone, **source), below, data))
    same(got, reference.read_file(below, data, options, SESSION), below)
    return got


@pytest.mark.parametrize("components", ["default", "all"])
@pytest.mark.parametrize("name", CORNERS)
def test_corners(name: str, components: str) -> None:
    below, data = CORNERS[name]
    agree(below, data.encode() if isinstance(data, str) else data, components)


@pytest.mark.parametrize("name", ALL_ONLY)
def test_corners_of_files_that_are_not_read_by_default(name: str) -> None:
    below, data = ALL_ONLY[name]
    assert agree(below, data.encode(), "all")


def fragments() -> list[str]:
    """Lines of the corners, and of nothing else."""
    texts = [d for _, d in (*CORNERS.values(), *ALL_ONLY.values()) if isinstance(d, str) and len(d) < 5000]
    apart = {line for text in texts for line in text.split("\n") if "two words" not in line}
    return sorted(apart)


@pytest.mark.parametrize("components", ["default", "all"])
@pytest.mark.parametrize("below", [
    f"{WORKER}.out", f"{WORKER}.err", f"{EARLY}.out", f"io_worker-{'e' * 56}-5.err", "raylet.out", "dashboard.log",
    CORE, TRAIN, "serve/replica_a_b_91qtjyz2.log", "job-driver-raysubmit_x.log", "ray_client_server.out",
    f"old/{WORKER}.out",
])
def test_lines_in_any_order(below: str, components: str) -> None:
    source = random.Random(below)
    lines = fragments()
    for _ in range(12):
        data = "".join(f"{source.choice(lines)}\n" for _ in range(source.randint(2, 9)))
        agree(below, data.encode(), components)


# --- what the reference leaves to the reader ---


def of_stamp(stamp: str, zone: str) -> Iterator[Record]:
    """Records of entries of all kinds with a time."""
    for line in ("[{} I 1 2] a.cc:1: m", "{}\tINFO a.py:1 -- m", '{{"asctime":"{}","message":"m"}}', "{} INFO m"):
        yield from received(vector("default", zone, "local"), f"{WORKER}.out", f"{line.format(stamp)}\n".encode())


@pytest.mark.parametrize(("zone", "stamp", "readings"), [
    ("Europe/Berlin", "2026-10-25 02:30:00,500", ("2026-10-25 00:30:00.5 UTC", "2026-10-25 01:30:00.5 UTC")),
    ("Europe/Berlin", "2026-03-29 02:30:00,500", ("2026-03-29 00:30:00.5 UTC", "2026-03-29 01:30:00.5 UTC")),
    ("America/New_York", "2026-11-01 01:59:59,999", ("2026-11-01 05:59:59.999 UTC", "2026-11-01 06:59:59.999 UTC")),
    ("America/New_York", "2026-03-08 02:00:00,000", ("2026-03-08 06:00:00 UTC", "2026-03-08 07:00:00 UTC")),
    ("Australia/Lord_Howe", "2026-04-05 01:45:00,000", ("2026-04-04 14:45:00 UTC", "2026-04-04 15:15:00 UTC")),
    ("Europe/Dublin", "2026-10-25 01:30:00,000", ("2026-10-25 00:30:00 UTC", "2026-10-25 01:30:00 UTC")),
    ("America/Santiago", "2026-09-06 00:30:00,000", ("2026-09-06 03:30:00 UTC", "2026-09-06 04:30:00 UTC")),
])
def test_the_hours_that_repeat_or_are_missing(zone: str, stamp: str, readings: tuple[str, str]) -> None:
    """Either reading is right; 1970 and the time it was read never are."""
    of_node = in_zone(zone, f"print([*of_stamp({stamp!r}, 'local')])") if zone == "Europe/Berlin" else "[]"
    for record in (*of_stamp(stamp, zone), *literal_eval(of_node)):
        assert "time_source" not in record
        assert record["time"] in [nanoseconds(r) for r in readings]


def test_equal_lines_stay_two_records() -> None:
    got = agree(f"{WORKER}.out", b"same\nsame\n")
    assert [r["raw"] for r in got] == ["same", "same"]


@pytest.mark.parametrize(("max_entry", "max_line", "expected"), [
    ("1KiB", "256KiB", [1024, 1024]), ("1KiB", "100B", [203, 1024]), ("1KiB", "2000B", [1024, 1024]),
])
def test_long_lines_and_entries_are_cut(max_entry: str, max_line: str, expected: list[int]) -> None:
    fake = vector("default", "UTC", max_entry=max_entry, max_line=max_line)
    data = f"{CPP}{'x' * 2000}\n{'y' * 102}\n[{AT},438 W 1 2] a.cc:1: m\n" + "short\n" * 1000
    got = list(received(fake, "raylet.out", data.encode()))
    assert [len(r["raw"]) for r in got][:2] == expected or max_line == "100B"
    for record in got:
        assert record["truncated"] is True
        assert len(record["raw"].encode()) <= 1024
        if max_line == "100B":
            assert max(len(line.encode()) for line in record["raw"].split("\n")) <= 100
        assert record["raw"].endswith(record["message"][-50:])


def test_no_cut_falls_inside_a_character() -> None:
    for width in range(1, 5):
        line = "x" * width + "😀" * 40 + "\n"
        (record,) = received(vector("default", "UTC", max_entry="64B"), "raylet.out", line.encode())
        assert record["raw"] == "x" * width + "😀" * ((64 - width) // 4)
        assert record["truncated"] is True


def test_what_a_path_gives() -> None:
    fake = vector("default", "UTC")
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
            found = {k: record.get(k) for k in fields}
            assert found == fields, name
            assert record["session"] == SESSION


def test_json_lines_of_console_and_file() -> None:
    """`time` is RFC 3339 with nine digits; nothing of Vector's own is left."""
    event = {"message": CPP, "file": f"{BASE}/{SESSION}/logs/raylet.out"}
    (record,) = vector("default", "UTC").send("ray:raylet", event)["out::all"]
    assert json.loads(json.dumps(record))["time"] == "2026-12-01T05:36:23.438000000Z"
    assert not {"host", "source_type", "@from", "@h", "@entry"} & set(record)
