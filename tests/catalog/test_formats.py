"""The regexes of Ray's formats: four engines judge each recorded line alike, and read out of it what stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onigurumacffi
import pytest
import re2
import vrl_python

from shipgen.catalog import formats, verl
from shipgen.policy import model
from shipgen.rendering.quoting import vrl_regex

TREES = Path(__file__).parents[1] / "data" / "ray-logs"

REGEXES = {
    name: value for name, value in vars(formats).items()
    if name.isupper() and isinstance(value, str) and name not in ("DATE", "TQDM")
} | {
    "verl": verl.ENGINE_WORKER, "verl-continuation": verl.CONTINUATION, "verl-pair": verl.PAIR,
    **{f"verl-{prose.field}": prose.regex for prose in verl.PROSE},
}
VERL = [
    "WARNING:2026-12-01 05:00:00,123:rollout is slow", "Caused by: a.b.C: d", "[MEM] heap usage 89% (threshold 90%)",
    "2026-12-01 05:00:00,123 WARN [CHECKPOINT] task_id=3827 waiting for lock (held by worker-45)",
    "[2026-12-01 05:00:00.1] [ERROR]: [NET] session 7f3a.2. peer=\"a b\",x={y}", "INFO\t[DISPATCH]task_id=1 failed\r",
    "[DISPATCH] faıled task_ıd=1 é=1 a=é", "x=" + "y" * 5_000, "held by " * 2_000,
]
HOSTILE = [
    "", " ", "\t", "\r", "x\r", "\x00", "{\"\x00\"}", "\x1b[", ":job_id:", "text:task_name:f",
    "2026-12-01 05:00:00 INFO中文", "2026-12-01 05:00:00 INFOé", "2026-12-01 05:00:00 INFO\r",
    "2026-12-01 05:00:00\u00a0INFO x", "[2026-12-01 05:00:00,１23 I 1 1] a.cc:1: x", "２026-12-01 05:00:00,123",
    "\u00a0x", "\u3000x", "\u2028x", "[rank１]: x", "abc.Ａrror: x", "Ünicode.MyError: x", "MyErrör: x", "ValueErrorſ",
    "x" * 20_000, "[" * 2_000, "a." * 2_000, "(pid=" * 500,
]
"""What the trees do not have: other scripts, other blanks, and lines that slow a backtracking engine down."""


@cache
def lines() -> list[str]:
    found = {*HOSTILE, *VERL}
    for path in TREES.rglob("*"):
        if path.is_file() and not path.is_symlink():
            found.update(path.read_bytes().decode("utf-8", "replace").split("\n"))
    return sorted(found)


def rust(pattern: str) -> list[list[str] | None]:
    """Groups of each line by the engine of Vector: None where nothing is found."""
    program = (
        "map_values(array!(.lines)) -> |line| {\n"
        f"  found, err = parse_regex(string!(line), {vrl_regex(pattern)}, numeric_groups: true)\n"
        "  if err == null { found } else { null }\n"
        "}"
    )
    # numbers of groups are no use: Vector's count leaves out those that took no part
    names = [name for _, name in sorted((i, n) for n, i in re.compile(pattern).groupindex.items())]
    assert len(names) == re.compile(pattern).groups or not names
    keys = ["0", *(names or map(str, range(1, re2.compile(pattern).groups + 1)))]
    result = vrl_python.VRLRuntime.run(program, {"lines": lines()}, "UTC").runtime_result
    return [None if r is None else [r.get(key) or "" for key in keys] for r in result]


def groups(match: re.Match[str] | None, count: int) -> list[str] | None:
    return None if match is None else [match.group(i) or "" for i in range(count + 1)]


@pytest.mark.parametrize("name", REGEXES)
def test_engines_judge_alike(name: str) -> None:
    pattern = REGEXES[name]
    python, google = re.compile(pattern), re2.compile(pattern)
    ruby = onigurumacffi.compile(pattern.replace("(?P<", "(?<"))
    found = 0
    for line, by_rust in zip(lines(), rust(pattern), strict=True):
        by_python = groups(python.search(line), python.groups)
        found += by_python is not None
        assert by_python == groups(google.search(line), python.groups), f"RE2: {line[:200]!r}"
        assert by_python == groups(ruby.search(line), python.groups), f"Oniguruma: {line[:200]!r}"
        assert by_python == by_rust, f"Rust: {line[:200]!r}"
    assert found or name == "LEVEL_WORD", "no line of the trees has it"


def read(pattern: str, line: str) -> dict[str, str] | None:
    match = re.search(pattern, line)
    return {k: v for k, v in match.groupdict().items() if v} | {"": line[match.end():]} if match else None


T = "2026-12-01 05:36:20"


@pytest.mark.parametrize(("name", "line", "expected"), [
    ("CPP", f"[{T},182 I 11011 11012] (gcs_server) event.cc:499: Ray: started",
     {"time": f"{T},182", "level": "I", "pid": "11011", "thread": "11012", "caller": "event.cc:499",
      "": "Ray: started"}),
    ("CPP", f"[{T},182 E 1 2] core_worker.cc:1: ",
     {"time": f"{T},182", "level": "E", "pid": "1", "thread": "2", "caller": "core_worker.cc:1", "": ""}),
    ("CPP", "[state-dump] NodeManager:", None),
    ("PYTHON", f"{T},588\tINFO log_monitor.py:304 -- Beginning -- x",
     {"time": f"{T},588", "level": "INFO", "caller": "log_monitor.py:304", "": "Beginning -- x"}),
    ("PYTHON", f"{T},588\tINFO (monitor) monitor.py:1 -- x",
     {"time": f"{T},588", "level": "INFO", "caller": "monitor.py:1", "": "x"}),
    ("PYTHON", f"{T},588 INFO a.py:1 -- x", None),
    ("SERVE", f"INFO {T},891 proxy 10.0.0.11 -- x",
     {"level": "INFO", "time": f"{T},891", "deployment": "proxy", "replica": "10.0.0.11", "": "x"}),
    ("SERVE", f"INFO {T},891 app_Echo 1red0dv8 9f-1 -- GET /x 200",
     {"level": "INFO", "time": f"{T},891", "deployment": "app_Echo", "replica": "1red0dv8", "request_id": "9f-1",
      "": "GET /x 200"}),
    ("SERVE", f"INFO {T},891 app one_My Model 1red0dv8 9f-1 -- x", {"level": "INFO", "time": f"{T},891", "": "x"}),
    ("ABSL", "I1201 05:31:12.796560   13308 fork_posix.cc:71] Other threads",
     {"level": "I", "pid": "13308", "caller": "fork_posix.cc:71", "": "Other threads"}),
    ("DATED", f"{T} WARNING myapp: x", {"time": T, "level": "WARNING", "": "myapp: x"}),
    ("DATED", f"{T}.123456 x", {"time": f"{T}.123456", "": " x"}),
    ("DATED", f"{T},1 INFOS x", {"time": f"{T},1", "": " INFOS x"}),
    ("DATED", f"{T}+02:00 ERROR", {"time": T, "level": "ERROR", "": ""}),
    ("DATED", f"at {T}", None),
    ("DRIVER_REPEAT", "\x1b[36m(Act(1) pid=11677, ip=10.0.0.12)\x1b[0m same", {"": "same"}),
    ("DRIVER_REPEAT", "(pid=1) x", {"": "x"}),
    ("DRIVER_REPEAT", "(raylet) x", None),
    ("MARKER", ":job_id:01000000", {"": "01000000"}),
    ("MARKER", "x:job_id:01000000", None),
    ("GLUED_MARKER", "unfinished:task_name:f", {"": ""}),
    ("GLUED_MARKER", "see :task_name: in the docs", None),
    ("JSON_LINE", '{"a":1}\r', {"": ""}),
    ("JSON_LINE", '{"a":', None),
    ("JSON_LINE", "{}", None),
])
def test_what_a_line_says(name: str, line: str, expected: dict[str, str] | None) -> None:
    assert read(REGEXES[name], line) == expected


def test_pairs_at_the_end_of_an_entry() -> None:
    head = f"x job_id=01000000 worker_id={'a' * 56} node_id={'b' * 56}"
    assert read(formats.PAIRS, f"{head} timestamp_ns=1796103048164093102") == {
        "job_id": "01000000", "worker_id": "a" * 56, "node_id": "b" * 56, "timestamp_ns": "1796103048164093102", "": ""}
    more = f"{head} actor_id=c task_id=d task_name=my task task_func_name=m.f actor_name=An actor"
    found = read(formats.PAIRS, f"{more} timestamp_ns=1796103048164093102")
    assert found
    assert (found["task_name"], found["actor_name"]) == ("my task", "An actor")
    assert read(formats.PAIRS, f"{head} timestamp_ns=1796103048164093102 y") is None


STARTS = [
    f"[{T},182 I 1 1] a.cc:1: x", f"{T},588\tINFO a.py:1 -- x", f"INFO {T},891 proxy 1 -- x", f"{T} free text",
    "I1201 05:31:12.796560   13308 fork_posix.cc:71] x", '{"asctime":"x"}',
]
INSIDE = ["", " ", "[state-dump] x", "Traceback (most recent call last):", "{", '{"unfinished', "- x", "Node status"]


def test_header_files_start_entries_at_headers() -> None:
    assert all(re.search(formats.HEADER, line) for line in STARTS)
    assert not any(re.search(formats.HEADER, line) for line in INSIDE)


def test_user_files_continue_entries() -> None:
    for line in ["", "\r", "  indented", "\tx", "Traceback (most recent call last):", "ValueError: x", "SystemExit: 1",
                 "ray.exceptions.RayTaskError(ValueError): x", "[rank0]: Traceback (most recent call last):", "}", "])",
                 "*** SIGSEGV received at time=1 ***", "PC: @     0x7f", "frame #0: x", "Fatal Python error: Aborted"]:
        assert re.search(formats.CONTINUATION, line), line
    for line in [*STARTS, "print", "Error: x", "Warning: x", "caught ValueError: x", "ValueError('x')", "{", ":job_id"]:
        assert not re.search(formats.CONTINUATION, line), line


def spellings() -> Iterator[str]:
    yield from "TDIWECF"
    yield from ("TRACE", "DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL")


def test_levels() -> None:
    assert formats.LEVEL_ORDER == model.LEVELS
    assert set(formats.LEVELS) == set(spellings())
    assert set(formats.LEVELS.values()) == set(formats.LEVEL_ORDER)
    for word in spellings():
        assert formats.LEVELS[word] == formats.LEVELS[word[0]]
        assert re.search(formats.LEVEL_WORD, word)
    assert re.search(formats.LEVEL_WORD, "warning")
    assert not any(re.search(formats.LEVEL_WORD, word) for word in ("i", "Info", "NOTSET", "INFO ", "", "LEVEL 5"))
