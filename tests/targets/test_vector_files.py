"""File sources: what Vector's VRL makes of their lines, against the reference for files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from making import FakeVector, Record, config_of, nanoseconds, policy, resolved

from shipgen.harness.reference_files import Reader
from shipgen.pipeline import Pipeline, grouping

FILE = "/var/log/app/x.log"


def _data(zone: str, source: dict[str, Any], collector: dict[str, Any] | None = None) -> dict[str, Any]:
    return policy(
        cluster="c", parsing={"timezone": zone}, sinks={"all": {"type": "console"}}, collector=collector or {},
        sources={"f": {"type": "file", "paths": ["/var/log/app/*.log"], **source}},
    )


@cache
def _vector(zone: str, source: str) -> tuple[FakeVector, Pipeline]:
    data = _data(zone, json.loads(source))
    return FakeVector(config_of(data), "local" if zone == "local" else "UTC"), resolved(data)


def received(zone: str, source: dict[str, Any], data: bytes) -> Iterator[Record]:
    """What comes out of a file, with times as the reference gives them."""
    fake, pipeline = _vector(zone, json.dumps(source))
    lines = data.decode("utf-8", "replace").split("\n")[:-1]
    for group in grouping.file_groups(lines, pipeline.sources[0]):
        for record in fake.send("f", {"message": group, "file": FILE})["out::all"]:
            time = nanoseconds(record.pop("time"))
            rest = {k: v for k, v in record.items() if k != "timestamp"}
            yield {**rest, "time": None if record.get("time_source") == "read" else time}


def agree(source: dict[str, Any], text: str | bytes, zone: str = "UTC") -> list[Record]:
    """Compare with the reference; gives the records."""
    data = text.encode() if isinstance(text, str) else text
    (read,) = resolved(_data(zone, source)).sources
    expected = list(Reader(read, Path("/"), "c", "node", zone).read(Path(FILE), data))
    got = list(received(zone, source, data))
    for ours, theirs in zip(got, expected, strict=True):
        assert ours == theirs
    return got


LINES = (
    "plain\n\n  indented\r\n\x1b[31mred\x1b[0m\n10%\r100%\r\n{\"a\":1}\n2026-12-01 05:36:23 ERROR x\n[x]\n"
    ":task_name:f\n日本\n\x00\n(f pid=1) y\n"
)
JSON = "".join(f"{line}\n" for line in (
    '{"message":"m","levelname":"WARNING","process":7,"k":{"a":[1,null]}}', '{"message":"m","exc_text":"E: x"}',
    '{"a":1', '{"severity":"error","level":"I","asctime":"2026-12-01 05:29:04,009"}',
    '{"timestamp_ns":1796103383438123456}', "{}", '{"timestamp":1796103383,"message":""}', "text between", '["a"]',
    '{"message":"\\u001b[1mb\\u001b[0m\\r"}', '{"pid":null}', '{"message":"\x1b[1mESC\x1b[0m"}',
    '{"filename":"a.py","lineno":3,"threadName":"T","job_id":"01"}',
))
PLAIN = r"^(?P<time>\S+ \S+) (?P<level>[A-Za-z]+) (?P<message>.*)$"


def test_text() -> None:
    assert len(agree({}, LINES)) == 11
    for record in agree({}, LINES):
        assert not {"level", "session", "component", "stream"} & set(record)
        assert record["file"] == FILE


def test_invalid_bytes() -> None:
    agree({}, b"\xff\xfea\n\xe2\x82\n")


def test_json() -> None:
    assert len(agree({"format": "json"}, JSON)) == 13
    agree({"format": "json"}, LINES)
    agree({"format": "json", "multiline": {"start": r'^\{"'}}, '{"message":"m"}\n  more\n\n{"message":"n"}\nx\n')


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_regex(zone: str) -> None:
    source = {"format": {"regex": PLAIN, "time": {"field": "time", "layout": "python"}}}
    fractions, words = (",438", "", ".5", ".123456789"), ("INFO", "warning", "Error", "E", "c", "Nope", "d")
    text = "".join(f"2026-12-01 05:36:23{fraction} {word} m\n" for fraction in fractions for word in words)
    for record in agree(source, text, zone):
        assert "time_source" not in record
    agree(source, "no match\n\n2026-12-01 05:36:23 INFO \n2026-99-01 05:36:23 INFO m\n")
    agree(source, "\x1b[1m2026-12-01 05:36:23 INFO m\x1b[0m\n")
    agree({"format": {"regex": PLAIN.replace("time>", "at>")}}, "a b INFO m\n")


def test_groups_become_fields() -> None:
    regex = r"^(?P<pid>\d+)?,(?P<job_id>[^,]*),(?P<if>[^,]*),(?P<camel_case>.*)$"
    records = agree({"format": {"regex": regex}}, "1,2,3,4\n,,,\n1,,x,\nno\n٣,a,b,c\n")
    assert [r.get("if") for r in records] == ["3", None, "x", None, None]
    assert [r.get("parse_error") for r in records] == [None, None, None, True, True]
    records = agree({"format": {"regex": "^(?P<message>a)?(?P<level>[A-Z]+)?"}}, "a\nINFO\nb\n")
    assert [r["message"] for r in records] == ["a", "", ""]


def test_the_regex_reads_the_first_line() -> None:
    form = {"regex": PLAIN, "time": {"field": "time", "layout": "python"}}
    source = {"format": form, "multiline": {"start": r"^\d{4}-"}}
    records = agree(source, "2026-12-01 05:36:23 INFO first\n  second\n\n  third\n2026-12-01 05:36:24 WARN x\r\ny\r\n")
    assert [r["message"] for r in records] == ["first\n  second\n\n  third", "x\ny"]
    assert [r["level"] for r in records] == ["info", "warn"]


def test_lines_before_the_first_start_stay_apart() -> None:
    """As Vector has it: they come one by one, none is lost."""
    got = list(received("UTC", {"multiline": {"start": "^A"}}, b"x\ny\nA\nz\nA\n"))
    assert [r["raw"] for r in got] == ["x", "y", "A\nz", "A"]


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
    limit = 2**63
    for stamp in stamps:
        (read,) = resolved(_data(zone, source)).sources
        line = f"<{stamp}> m\n".encode()
        (expected,) = Reader(read, Path("/"), "c", "node", zone).read(Path(FILE), line)
        (got,) = received(zone, source, line)
        if expected["time"] is not None and expected["time"] >= limit:
            expected |= {"time": None, "time_source": "read"}  # no shipper has room for it
        assert got == expected, stamp
        assert "at" not in got


def glog(stamp: str, zone: str) -> Record:
    source = {"format": {"regex": r"^(?P<level>[IWEF])(?P<t>\d{4} [\d:.]+) (?P<message>.*)$",
                         "time": {"field": "t", "layout": "glog"}}}
    (record,) = received(zone, source, f"W{stamp} m\n".encode())
    return record


def test_glog_has_no_year() -> None:
    """This year's, or the last one's where that would lie more than a day ahead; around New Year, too."""
    now = datetime.now(UTC)
    for days in (-362, -180, -30, -2, 0):
        at = now + timedelta(days=days)
        if (at.month, at.day) == (2, 29):
            continue
        record = glog(f"{at:%m%d %H:%M:%S.%f}", "UTC")
        assert record["level"] == "warn"
        assert record["time"] == int(at.timestamp()) * 10**9 + at.microsecond * 1000
    assert glog("1301 00:00:00.000000", "UTC")["time_source"] == "read"
    assert glog("0229 00:00:00.000000", "UTC").get("time", 0) != 0


def test_the_zone_of_the_node() -> None:
    code = (
        "from test_vector_files import *; form = {'regex': PLAIN, 'time': {'field': 'time', 'layout': 'python'}};"
        "print([r['time'] for r in received('local', {'format': form}, b'2026-12-01 05:36:23 INFO m\\n')])"
    )
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TZ": "Asia/Tokyo", "PYTHONPATH": f"{here}:{here.parent}"},
        capture_output=True, text=True, check=False,
    )
    assert f"[{nanoseconds('2026-11-30 20:36:23 UTC')}]" in done.stdout, done.stderr[-1000:]


@pytest.mark.parametrize("root", ["/", "/host", "/host/", "/a/é"])
def test_paths_are_those_of_the_node(root: str) -> None:
    data = _data("UTC", {}, {"root": root})
    (source,) = config_of(data)["sources"].keys() - {"shipgen::metrics"}
    path = root.rstrip("/") + FILE
    assert config_of(data)["sources"][source]["include"] == [root.rstrip("/") + "/var/log/app/*.log"]
    (record,) = FakeVector(config_of(data)).send("f", {"message": "m", "file": path})["out::all"]
    assert record["file"] == FILE


@pytest.mark.parametrize(("limits", "text"), [
    ({"max_line": "10B"}, "0123456789abc\nshort\n" + "é" * 8 + "\n"),
    ({"max_entry": "10B"}, "0123456789abc\nshort\n" + "é" * 8 + "\n"),
    ({"max_lines": 2}, "A1\n2\n3\n4\nA5\n6\nA7\n"),
    ({"max_lines": 1}, "A1\n2\nA3\n"),
    ({"max_line": "4B", "max_entry": "12B", "max_lines": 3}, "A123456\n123456\n1\n2\n"),
])
def test_limits(limits: dict[str, Any], text: str) -> None:
    multiline = {"start": "^A", **({"max_lines": limits.pop("max_lines")} if "max_lines" in limits else {})}
    source = {**limits, **({"multiline": multiline} if "A" in text else {})}
    records = agree(source, text)
    assert any(r.get("truncated") for r in records)
    assert not all(r.get("truncated") for r in records) or len(records) == 1


def test_a_policy_of_files_alone_has_nothing_of_ray() -> None:
    text = json.dumps(config_of(_data("UTC", {})))
    assert "session_2" not in text
    assert "runtime" not in text
