"""The reference of the record against entries labelled by hand, and its corners one by one."""

from __future__ import annotations

import ast
import calendar
import json
import re
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from shipgen.harness import reference
from shipgen.harness.reference import Entry, Options, continues, family_of, is_control, live_name, read_entries

DATA = Path(__file__).parent.parent / "data"
TREES = DATA / "ray-logs"
SESSION = "session_2026-12-01_00-00-00_000000_1"
WID = "a1b2c3d4" * 7
DAY = calendar.timegm((2026, 12, 1, 0, 0, 0))

# Named by the label's own keys or the same for all records, hence compared apart.
ALWAYS = {"source", "node", "session", "file", "raw", "message", "time", "time_source", "component"}
CONTROL = {"line", "lines", "time", "message", "ends", "raw", "extra", "component"}


def session_of(tree: str, part: str) -> Path:
    found = [path for path in (TREES / tree).glob("session_2*") if part in path.name and not path.is_symlink()]
    assert len(found) == 1
    return found[0]


@cache
def entries_of(tree: str, part: str, file: str) -> dict[int, Entry]:
    session = session_of(tree, part)
    data = (session / "logs" / file).read_bytes()
    return {entry.first_line: entry for entry in read_entries(file, data, Options(), session.name)}


def labels() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load((DATA / "labelled.yaml").read_text("utf-8"))
    return groups


def labelled_entries() -> list[Any]:
    return [
        pytest.param(group, {**group.get("same", {}), **entry}, id=f"{group['tree']}-{group['file']}-{entry['line']}")
        for group in labels()
        for entry in group["entries"]
    ]


def instant(clock: str) -> int:
    """Nanoseconds of a time of the day on which the trees were recorded."""
    hours, minutes, seconds = clock.split(":")
    whole, _, fraction = seconds.partition(".")
    return (DAY + int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 10**9 + int((fraction + "0" * 9)[:9])


def fits(wanted: str, got: object) -> bool:
    return isinstance(got, str) and (got.startswith(wanted[:-1]) if wanted.endswith("…") else got == wanted)


# ------------------------------------------------------------------------------------------------- labelled entries


@pytest.mark.parametrize(("group", "label"), labelled_entries())
def test_labelled_entry(group: dict[str, Any], label: dict[str, Any]) -> None:
    entries = entries_of(group["tree"], group["session"], group["file"])
    assert label["line"] in entries, sorted(entries)[:20]
    entry = entries[label["line"]]
    record = entry.record
    session = session_of(group["tree"], group["session"])
    lines = (session / "logs" / group["file"]).read_bytes().decode().split("\n")
    count = label.get("lines", 1)

    assert entry.lines == count
    assert record["raw"] == label.get(
        "raw", "\n".join(lines[label["line"] - 1 : label["line"] - 1 + count]).removesuffix("\r")
    )
    assert record["component"] == label["component"]
    assert record["session"] == session.name
    assert record["file"] == group.get("live", group["file"])
    assert (record["source"], record["node"]) == ("ray", "node")
    if label["time"] == "read":
        assert (record["time"], record["time_source"]) == (None, "read")
    else:
        assert record["time"] == instant(label["time"])
        assert "time_source" not in record
    assert fits(label["message"], record["message"]), record["message"]
    assert record["message"].endswith(label.get("ends", ""))

    extra: dict[str, Any] = {}
    for item in label.get("extra", []):
        extra |= item if isinstance(item, dict) else {item: record["extra"][item]}
    assert record.get("extra", {}) == extra
    assert ("extra" in record) == bool(extra)

    wanted = {key: value for key, value in label.items() if key not in CONTROL}
    got = {key: value for key, value in record.items() if key not in ALWAYS | {"extra"}}
    assert got.keys() == wanted.keys()
    assert all(fits(value, got[key]) for key, value in wanted.items()), got


@pytest.mark.parametrize("group", [group for group in labels() if group.get("cut")], ids=lambda group: group["file"])
def test_labelled_cuts(group: dict[str, Any]) -> None:
    delivered: set[int] = set()
    for entry in entries_of(group["tree"], group["session"], group["file"]).values():
        delivered |= set(range(entry.first_line, entry.first_line + entry.lines))
    assert not delivered & set(group["cut"])


def test_labels_cover_every_family_of_every_tree() -> None:
    labelled = {(group["tree"], reference.COMPONENT_OF[_family(group["file"])]) for group in labels()}
    families = {(group["tree"], _family(group["file"])) for group in labels()}
    for tree in {tree for tree, _ in labelled}:
        present = {
            reference.COMPONENT_OF[_family(below)]
            for _, below, path in reference.files(TREES / tree, Options(everything=True))
            if path.stat().st_size
        }
        assert present == {component for name, component in labelled if name == tree}
    assert {family for _, family in families} == set(reference.COMPONENT_OF) - {"io_worker"}  # always empty here
    assert len(labelled_entries()) >= 150


def _family(file: str) -> str:
    found = family_of(file)
    assert found is not None
    return found[0]


# ----------------------------------------------------------------------------------------------------- whole trees

# Records with the default components. Without backups and without any cut of `Once` the first three would be
# 1485, 997 and 2728.
COUNTS = {"text": 1451, "json": 967, "rotated": 7936, "text-worker-node": 193, "process-exit": 32}


@pytest.mark.parametrize("tree", COUNTS)
def test_counts_and_shape(tree: str) -> None:
    began = time.process_time()
    records = reference.read_tree(TREES / tree, Options())
    assert time.process_time() - began < 2
    assert len(records) == COUNTS[tree]
    for record in records:
        for key, value in record.items():
            if key == "time":
                assert (value is None) == (record.get("time_source") == "read")
                assert value is None or isinstance(value, int)
            elif key in ("parse_error", "truncated"):
                assert value is True
            else:
                assert isinstance(value, dict if key == "extra" else str)
                assert value != "" or key in ("message", "raw")
        assert record["raw"].strip() != ""
        assert not record["raw"].endswith(("\r", "\n"))
        assert "\r" not in record["message"]
        assert "\x1b[" not in record["message"]
        assert record.get("level", "info") in ("trace", "debug", "info", "warn", "error", "fatal")


@pytest.mark.parametrize("tree", COUNTS)
def test_no_line_is_lost(tree: str) -> None:
    """Every line is in a record, or is blank, a control line, a cut header or not finished."""
    for session, below, path in reference.files(TREES / tree, Options(everything=True)):
        data = path.read_bytes()
        lines = data.decode().split("\n")[:-1]
        covered = Counter[int]()
        for entry in read_entries(below, data, Options(everything=True), session):
            covered.update(range(entry.first_line, entry.first_line + entry.lines))
        assert set(covered.values()) <= {1}
        for number, line in enumerate(lines, 1):
            user = _family(below) in ("worker", "io_worker", "job_driver")
            assert (number in covered) or line.strip() == "" or (user and is_control(line)), (below, number)


def test_unfinished_lines() -> None:
    found = reference.unfinished_lines(TREES / "text", Options())
    assert len(found) == 7
    assert {line.length for line in found} == {len("partial last line without newline")}
    assert len(reference.unfinished_lines(TREES / "json", Options())) == 2
    assert reference.unfinished_lines(TREES / "rotated", Options()) == []


def test_other_zone_moves_text_times_only() -> None:
    utc = reference.read_tree(TREES / "json", Options())
    shanghai = reference.read_tree(TREES / "json", Options(timezone="Asia/Shanghai"))
    pairs = zip(utc, shanghai, strict=True)
    moves = Counter((here["time"] - there["time"]) // 10**9 for here, there in pairs if here["time"])
    assert set(moves) == {0, 8 * 3600}
    exact = [record for record in shanghai if "timestamp_ns" in record["raw"] and record["component"] != "serve"]
    assert exact
    assert all(record in utc for record in exact)


def test_session_latest_is_not_followed() -> None:
    sessions = {record["session"] for record in reference.read_tree(TREES / "text", Options())}
    assert sessions == {"session_2026-12-01_05-36-20_156597_11006", "session_2026-12-01_05-40-19_603859_18594"}


# ------------------------------------------------------------------------------------------------------ independence


def test_imports_nothing_of_the_product() -> None:
    tree = ast.parse(Path(reference.__file__).read_text("utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    assert names <= {"__future__", "json", "dataclasses", "datetime", "functools", "pathlib", "typing", "zoneinfo"}


CONTINUES = re.compile(
    r"^(?:\x1b\[[0-9;]*m)*(?:\[rank[0-9]+\]: )?(?:[ \t]|\r?$|(?:Traceback|Current thread|Thread|Stack)[^:]*\(most re"
    r"cent call (?:first|last)\):|During handling of the above exception, another exception occurred:|The above exce"
    r"ption was the direct cause of the following exception:|(?:(?:[A-Za-z_<][A-Za-z0-9_>]*\.)*(?:[A-Za-z_][A-Za-z0-"
    r"9_]*Error|[A-Za-z0-9_]*Exception|[A-Za-z0-9_]+Warning|KeyboardInterrupt|SystemExit|GeneratorExit|StopIteration"
    r"|StopAsyncIteration)|(?:[A-Za-z_<][A-Za-z0-9_>]*\.)+(?:[Ee]rror|timeout|gaierror|Empty|Full|TimeoutExpired)|(?"
    r":[A-Za-z_<][A-Za-z0-9_>]*\.)*(?:exceptions?|errors?)\.[A-Z][A-Za-z0-9_]*)(?:\([A-Za-z0-9_.]+\))?(?::?[ \t\r]*$"
    r"|: )|\*\*\* (?:SIG[A-Z0-9]+ |StackTrace )|PC: @|frame \x23[0-9]+: |Exception raised from [^:]+:[0-9]+ \(most r"
    r"ecent call first\):|Fatal Python error: |Python runtime state: |Extension modules: |[^ ]+\([^ ()]*\+0x[0-9a-f]"
    r"+\) ?\[0x[0-9a-f]+\]|[\])}]+[,;]?[ \t\r]*$)"
)


def test_predicates_say_what_the_regex_says_on_every_line() -> None:
    assert len(CONTINUES.pattern) == 923
    count = 0
    for path in TREES.rglob("*"):
        if path.is_file() and "session_latest" not in path.parts:
            for line in path.read_bytes().decode().split("\n"):
                count += 1
                assert continues(line) == bool(CONTINUES.match(line)), line
    assert count > 20000


PIECES = [
    *("\x1b[36m", "\x1b[0m", "\x1b[", "[rank0]: ", "[rank]: ", " ", "\t", "\r", ":", ": ", "x", ",", ";", "é", "0"),
    *("Traceback", " (most recent call last):", "(most recent call first):", "Thread 0x1", "Current thread", "Stack"),
    *("Error", "Exception", "Warning", "ValueError", "a.", ".", "<locals>.", "errors.", "exception.", "Foo", "error"),
    *("timeout", "(ValueError)", "(", ")", "+0x1f", ") ", "[0x2", "]", "}", "{", "*** SIG", "SEGV ", "*** StackTrace "),
    *("PC: @", "frame #", "12", "Exception raised from ", "f.cc", ":12", " (most recent call first):", "lib.so", "A"),
    *("KeyboardInterrupt", "StopIteration", "Full", ">", "<", "Fatal Python error: ", "Extension modules: "),
]


def test_predicates_say_what_the_regex_says_on_made_up_lines() -> None:
    state = 12345
    for _ in range(60_000):
        line = ""
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        pick = state >> 8
        for _ in range(1 + pick % 7):
            pick //= len(PIECES)
            line += PIECES[pick % len(PIECES)]
        assert continues(line) == bool(CONTINUES.match(line)), line


# ----------------------------------------------------------------------------------------------------------- corners


def read(path: str, text: str | bytes, **options: Any) -> list[dict[str, Any]]:
    data = text.encode() if isinstance(text, str) else text
    return reference.read_file(path, data, Options(**options), SESSION)


OUT = f"worker-{WID}-01000000-7.out"
ERR = f"worker-{WID}-01000000-7.err"
F1 = "[2026-12-01 05:36:20,182 E 7 8] core_worker.cc:12: boom\n"
F2 = "2026-12-01 05:36:20,182\tINFO a.py:3 -- hello\n"
F3 = "INFO 2026-12-01 05:36:20,182 app_D abcd1234 -- hello\n"
AT = instant("05:36:20.182")


@pytest.mark.parametrize(
    ("path", "family", "component"),
    [
        ("raylet.out", "raylet", "raylet"),
        ("raylet.err.3", "raylet", "raylet"),
        ("gcs_server.out.12", "gcs_server", "gcs_server"),
        (OUT, "worker", "worker"),
        ("old/" + ERR, "worker", "worker"),
        (f"io_worker-{WID}-7.err", "io_worker", "io_worker"),
        (f"python-core-worker-{WID}_7.log", "core_worker", "core_worker"),
        (f"python-core-driver-{WID}_7.log.1", "core_driver", "core_driver"),
        (f"python-core-spill_worker-{WID}_7.log", "io_core", "io_worker"),
        (f"python-core-restore_worker-{WID}_7.log", "io_core", "io_worker"),
        ("job-driver-my job (2).log", "job_driver", "job_driver"),
        ("jobs/supervisor-x.log", "job_supervisor", "job_supervisor"),
        ("dashboard.err", "dashboard", "dashboard"),
        ("dashboard_TrainHead.log.1", "dashboard", "dashboard"),
        ("dashboard_agent.log", "dashboard_agent", "dashboard_agent"),
        ("runtime_env_agent.out", "runtime_env_agent", "runtime_env_agent"),
        ("runtime_env_setup-01000000.log", "runtime_env_setup", "runtime_env_setup"),
        ("runtime_env_setup-ray_client_server_23000.log", "runtime_env_setup", "runtime_env_setup"),
        ("log_monitor.log", "log_monitor", "log_monitor"),
        ("monitor.out", "monitor", "monitor"),
        ("ray_client_server.err", "ray_client_server", "ray_client_server"),
        ("ray_client_server_23000.out", "ray_client_server", "ray_client_server"),
        ("serve/replica_app one_My Model ___1red0dv8.log", "serve", "serve"),
        (f"train/ray-train-sys-worker-{WID}.log", "train", "train"),
        ("ray-data/ray-data.log", "ray_data", "ray_data"),
        ("ray-data/ray-data-dataset_1_0.log", "ray_data_dataset", "ray_data"),
        ("events/event_CORE_WORKER_7.log", "events", "events"),
        ("export_events/event_EXPORT_NODE.log", "export_events", "export_events"),
        ("ray_process_exit.log", "process_exit", "process_exit"),
    ],
)
def test_families(path: str, family: str, component: str) -> None:
    assert family_of(path) == (family, component)


@pytest.mark.parametrize(
    "path",
    [
        "debug_state.txt",
        "raylet.log",
        "raylet.out.1.gz",
        "worker-abc-01000000-7.out",
        f"worker-{WID}-7.out",
        f"io-worker-{WID}-7.out",
        "dashboard_x.log",
        "dashboard_Head.log",
        "serve/x.log",
        "nsight/a.log",
        "jobs/x.log",
        "serve/sub/controller_1.log",
        "raylet.out/x",
    ],
)
def test_no_family(path: str) -> None:
    assert family_of(path) is None


def test_live_name() -> None:
    assert live_name(f"old/{OUT}.2") == OUT
    assert live_name("a.txt.1") == "a.txt.1"
    assert read("old/" + OUT + ".2", "x\n")[0]["file"] == OUT


def test_fields_of_names() -> None:
    def named(path: str) -> dict[str, Any]:
        record = read(path, "{}\n")[0]
        return {key: value for key, value in record.items() if key not in ALWAYS}

    assert named(OUT) == {"stream": "out", "worker_id": WID, "job_id": "01000000", "pid": "7"}
    assert named(f"worker-{WID}-ffffffff-7.err") == {"stream": "err", "worker_id": WID, "pid": "7"}
    assert named(f"io_worker-{WID}-7.err") == {"stream": "err", "worker_id": WID, "pid": "7"}
    assert named(f"python-core-worker-{WID}_7.log") == {"worker_id": WID, "pid": "7"}
    assert named(f"python-core-driver-02000000{'f' * 48}_7.log") == {
        "worker_id": f"02000000{'f' * 48}",
        "job_id": "02000000",
        "pid": "7",
    }
    assert named("jobs/supervisor-a.b.log") == {"submission_id": "a.b"}
    assert named("job-driver-x.log") == {"submission_id": "x"}
    assert named("runtime_env_setup-0a000000.log") == {"job_id": "0a000000"}
    assert named("runtime_env_setup-ray_client_server_23000.log") == {}
    assert named(f"train/ray-train-app-worker-{WID}.log") == {"worker_id": WID}
    assert named("serve/controller_9.log") == {"pid": "9"}
    assert named("serve/replica_a_b_12345678.log") == {"deployment": "a_b", "replica": "12345678"}
    assert named("export_events/event_EXPORT_TASK_9.log") == {"pid": "9"}
    assert named("export_events/event_EXPORT_DRIVER_JOB.log") == {}


def test_selection(tmp_path: Path) -> None:
    logs = tmp_path / SESSION / "logs"
    names = ["raylet.out", "raylet.out.1", "jobs/supervisor-x.log", "ray-data/ray-data.log", "debug_state.txt",
             "ray-data/ray-data-d.log", f"io_worker-{WID}-7.out", f"python-core-spill_worker-{WID}_7.log", "old/" + OUT,
             "job-driver-x.log", "job-driver-x.log.1", "events/event_GCS.log"]  # fmt: skip
    for name in names:
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_text("x\n")
    (tmp_path / "session_latest").symlink_to(SESSION)
    (tmp_path / "session_2_link").symlink_to(SESSION)

    def selected(**options: Any) -> set[str]:
        return {below for _, below, _ in reference.files(tmp_path, Options(**options))}

    default = {"raylet.out", "raylet.out.1", "ray-data/ray-data.log", f"io_worker-{WID}-7.out", "old/" + OUT,
               f"python-core-spill_worker-{WID}_7.log", "job-driver-x.log"}  # fmt: skip
    assert selected() == default
    assert selected(components=frozenset({"default"})) == default
    assert selected(backups=False) == default - {"raylet.out.1"}
    assert selected(everything=True) == set(names) - {"debug_state.txt", "job-driver-x.log.1"}
    assert selected(components=frozenset({"all"})) == selected(everything=True)
    assert selected(components=frozenset({"ray_data"})) == {"ray-data/ray-data.log"}
    assert selected(components=frozenset({"ray_data_dataset"})) == {"ray-data/ray-data-d.log"}
    assert selected(components=frozenset({"io_worker"})) == {
        f"io_worker-{WID}-7.out",
        f"python-core-spill_worker-{WID}_7.log",
    }
    assert selected(components=frozenset({"events", "job_supervisor"})) == {
        "events/event_GCS.log",
        "jobs/supervisor-x.log",
    }
    assert selected(exclude=frozenset({"raylet", "io_worker", "worker"})) == {
        "ray-data/ray-data.log",
        "job-driver-x.log",
    }


def test_common_fields() -> None:
    record = read("raylet.out", F1, source="src", cluster="c", node="n")[0]
    assert {key: record[key] for key in ("source", "cluster", "node", "session", "component", "file")} == {
        "source": "src",
        "cluster": "c",
        "node": "n",
        "session": SESSION,
        "component": "raylet",
        "file": "raylet.out",
    }
    assert "cluster" not in read("raylet.out", F1)[0]
    assert "session" not in reference.read_file("raylet.out", F1.encode(), Options(), None)[0]


def test_raw_and_blank_lines() -> None:
    text = "\n \t\r\nfirst\r\n\r\n  second\r\r\n\r\n   \n"
    (record,) = read(OUT, text)
    assert record["raw"] == "first\r\n\r\n  second\r"
    assert record["message"] == "first\n\n  second"
    assert read(OUT, "\n\r\n \n") == []
    assert read("raylet.out", "\n\r\n" + F1 + "\n\n")[0]["raw"] == F1.rstrip("\n")


def test_unfinished_line_is_left_out() -> None:
    assert [record["raw"] for record in read(OUT, "a\n  b\n  c")] == ["a\n  b"]
    assert read(OUT, "a") == []
    assert read("raylet.out", F1.rstrip("\n")) == []


def test_clean_message() -> None:
    raw = "\x1b[1;31mred\x1b[0m \x1b[2Kx\x1b[38:5:1my\x1b[ q\x1b[?25hz \x1b no \x1b[12"
    assert read(OUT, raw + "\n")[0]["message"] == "red xyz \x1b no \x1b[12"
    assert read(OUT, "\ra\rb\r\r\n")[0]["message"] == "b"
    assert read(OUT, "a\rb\x1b[0m\r\n\tc\rd\n")[0]["message"] == "b\nd"


def test_groups_in_component_files() -> None:
    text = "one\n\ntwo\n" + F1 + "tail\n\n" + F2 + '{"a":1}\n  x\n{"b":\n' + F3 + "2026-12-01 01:02:03 x\n"
    text += "I1201 05:31:12.796560   13308 f.cc:7] absl\nend\n[2026-12-01 05:36:20,182 E 7] no header\n"
    raws = [record["raw"] for record in read("gcs_server.out", text)]
    assert raws == [
        "one",
        "two",
        F1 + "tail",
        F2.strip(),
        '{"a":1}\n  x\n{"b":',
        F3.strip(),
        "2026-12-01 01:02:03 x",
        "I1201 05:31:12.796560   13308 f.cc:7] absl\nend\n[2026-12-01 05:36:20,182 E 7] no header",
    ]
    assert [record["raw"] for record in read("events/event_GCS.log", '{"a":1}\n\n  x\n' + F1)] == [
        '{"a":1}',
        "  x",
        F1.strip(),
    ]


def test_groups_where_users_write() -> None:
    text = "a\n  b\n\nc\nValueError: x\nSystemExit\n}\n" + F2 + "Traceback (most recent call last):\n{\n" + '{"x": 1}\n'
    assert [record["raw"] for record in read(OUT, text)] == [
        "a\n  b",
        "c\nValueError: x\nSystemExit\n}",
        F2 + "Traceback (most recent call last):",
        "{",
        '{"x": 1}',
    ]


def test_control_lines() -> None:
    tqdm = '{"__magic_token__": "__ray_tqdm_magic_token__", "x": 1}\n'
    text = ":job_id:01000000\n:actor_name:A(x: 1)\nTraceback (most recent call last):\n  x\n:task_name:f\r\n"
    text += tqdm + "b\n"
    for path in (OUT, ERR, "job-driver-x.log", f"io_worker-{WID}-7.out"):
        assert [record["raw"] for record in read(path, text)] == ["Traceback (most recent call last):\n  x", "b"]
    # A control line in a component file is a line like any other.
    assert len(read("raylet.out", ":job_id:01000000\n")) == 1
    assert len(read(OUT, ' {"__magic_token__": "__ray_tqdm_magic_token__"}\n')) == 1


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("text:task_name:f", "text"),
        ("text:actor_name:NamedRepr(shard=7)", "text"),
        ("text:job_id:01000000", "text"),
        ("text:task_name:f\r", "text"),
        ("a:task_name:f:task_name:g", "a:task_name:f"),
        ("text:task_name:", "text:task_name:"),
        ("text:task_name: f", "text:task_name: f"),
        ("text:task_name:a:b", "text:task_name:a:b"),
        ("text:job_id:xyz", "text:job_id:xyz"),
        ("  text:task_name:f g", "  text"),
    ],
)
def test_glued_markers(line: str, left: str) -> None:
    assert read(OUT, line + "\n")[0]["raw"] == left.rstrip("\r")
    assert read(OUT, "first\n  " + line + "\n  last\n")[0]["raw"] == f"first\n  {left}\n  last"
    assert read("job-driver-x.log", line + "\n")[0]["raw"] == line.rstrip("\r")


def test_lines_are_grouped_before_a_glued_marker_is_cut() -> None:
    assert [record["raw"] for record in read(OUT, "a\n}:task_name:f\nb\n :task_name:g\n")] == ["a", "}", "b"]


def test_header_fields() -> None:
    record = read("raylet.out", "[2026-12-01 05:36:20,182 C 7 8] (raylet) a_b.cc:12: m: n\n")[0]
    assert (record["time"], record["level"], record["pid"], record["thread"]) == (AT, "fatal", "7", "8")
    assert (record["caller"], record["message"]) == ("a_b.cc:12", "m: n")
    assert "level" not in read("raylet.out", F1.replace(" E ", " X "))[0]
    record = read("monitor.log", "2026-12-01 05:36:20,182\tCRITICAL a.py:3 -- \n")[0]
    assert (record["level"], record["caller"], record["message"]) == ("fatal", "a.py:3", "")
    assert "pid" not in record
    assert "level" not in read("monitor.log", F2.replace("INFO", "NOTE"))[0]


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("INFO {t} app_D abcd1234 -- m", {"deployment": "app_D", "replica": "abcd1234"}),
        ("INFO {t} app_D abcd1234 r-1 -- m", {"deployment": "app_D", "replica": "abcd1234", "request_id": "r-1"}),
        ("INFO {t} proxy 10.0.0.1 r-1 -- m", {"request_id": "r-1"}),
        ("INFO {t} proxy 10.0.0.1  -- m", {}),
        ("INFO {t} controller 99 -- m", {"pid": "99"}),
    ],
)
def test_serve_headers(head: str, fields: dict[str, str]) -> None:
    record = read("serve/proxy_10.0.0.1.log", head.format(t="2026-12-01 05:36:20,182") + "\n")[0]
    assert {key: value for key, value in record.items() if key not in ALWAYS | {"level"}} == fields
    assert (record["level"], record["time"], record["message"]) == ("info", AT, "m")


def test_serve_header_with_blanks_in_the_name() -> None:
    record = read("serve/replica_a b_c_12345678.log", "INFO 2026-12-01 05:36:20,182 a b_c 12345678 x y -- m\n")[0]
    assert (record["level"], record["message"]) == ("info", "m")
    assert "time_source" not in record


def test_absl_header_has_no_time() -> None:
    record = read("ray_client_server.err", "E1201 05:31:12.796560   13308 f.cc:71] m\nmore\n")[0]
    assert (record["level"], record["pid"], record["caller"]) == ("error", "13308", "f.cc:71")
    assert (record["time"], record["time_source"], record["message"]) == (None, "read", "m\nmore")


@pytest.mark.parametrize(
    ("line", "clock", "level"),
    [
        ("2026-12-01 05:36:20 x", "05:36:20", None),
        ("2026-12-01 05:36:20,5 WARNING x", "05:36:20.5", "warn"),
        ("2026-12-01 05:36:20.123456789 ERROR", "05:36:20.123456789", "error"),
        ("2026-12-01 05:36:20,182\tDEBUG no place", "05:36:20.182", "debug"),
        ("2026-12-01 05:36:20,182 - INFO - x", "05:36:20.182", None),
        ("2026-12-01 05:36:20,182 INFO: x", "05:36:20.182", None),
        ("2026-12-01 05:36:20,182 I think", "05:36:20.182", None),
        ("2026-12-01 05:36:20+09:00 INFO x", "05:36:20", "info"),
        ("2026-12-01 05:36:20", "05:36:20", None),
    ],
)
def test_lines_with_a_date(line: str, clock: str, level: str | None) -> None:
    record = read(OUT, line + "\n")[0]
    assert (record["time"], record.get("level")) == (instant(clock), level)
    assert record["message"] == line
    assert "caller" not in record


@pytest.mark.parametrize("line", ["2026-13-01 05:36:20 x", "2026-12-01T05:36:20 x", "2026-12-01 25:00:00 INFO x"])
def test_dates_that_are_none(line: str) -> None:
    assert read(OUT, line + "\n")[0]["time_source"] == "read"


def test_zones_and_clock_changes() -> None:
    def at(stamp: str, zone: str) -> int:
        record = read(OUT, f"{stamp} x\n", timezone=zone)[0]
        assert isinstance(record["time"], int)
        return record["time"] // 10**9

    assert at("2026-12-01 08:00:00", "Asia/Shanghai") == DAY
    assert at("2026-07-01 02:00:00", "Europe/Berlin") == calendar.timegm((2026, 7, 1, 0, 0, 0))
    assert at("2026-10-25 02:30:00", "Europe/Berlin") == calendar.timegm((2026, 10, 25, 0, 30, 0))  # the first of two
    assert at("2026-03-29 02:30:00", "Europe/Berlin") == calendar.timegm((2026, 3, 29, 1, 30, 0))  # in the gap


PAIRS = f"job_id=02000000 worker_id={WID} node_id=ab12"


def test_pairs_at_the_end_of_an_entry() -> None:
    rest = " actor_id=0c task_id=1d task_name=My Task.run task_func_name=a.b actor_name=big actor"
    rest += " timestamp_ns=1796103168966631516"
    line = f"2026-12-01 05:32:48,966\tERROR a.py:3 -- failed {PAIRS}{rest}"
    record = read(OUT, line + "\n")[0]
    assert record["time"] == 1796103168966631516
    wanted = {"job_id": "02000000", "worker_id": WID, "node_id": "ab12", "actor_id": "0c", "task_id": "1d",
              "task_name": "My Task.run", "actor_name": "big actor", "level": "error"}  # fmt: skip
    assert wanted.items() <= record.items()
    assert "task_func_name" not in record
    assert record["message"] == line.partition(" -- ")[2]
    # with a traceback they come after its last line
    head = "2026-12-01 05:32:48,966\tERROR a.py:3 -- failed\nTraceback (most recent call last):\nValueError: x"
    record = read(OUT, f"{head} {PAIRS} timestamp_ns=1796103168966631516\r\n")[0]
    assert (record["time"], record["node_id"]) == (1796103168966631516, "ab12")


@pytest.mark.parametrize(
    ("tail", "clock", "node"),
    [
        (" timestamp_ns=1796103168966631516", "05:32:48.966631516", None),
        (f" {PAIRS} timestamp_ns=179610316896663151", "05:32:48.966", None),
        (f" {PAIRS} timestamp_ns=1796103168966631516 x", "05:32:48.966", None),
        (f" job_id=1 {PAIRS} timestamp_ns=1796103168966631516", "05:32:48.966631516", "ab12"),
        (f" order_id=7 {PAIRS} timestamp_ns=1796103168966631516", "05:32:48.966631516", "ab12"),
        (" job_id=02 node_id=ab12 timestamp_ns=1796103168966631516", "05:32:48.966631516", None),
        (f" {PAIRS} extra=1 timestamp_ns=1796103168966631516", "05:32:48.966631516", None),
    ],
)
def test_pairs_that_are_not_whole(tail: str, clock: str, node: str | None) -> None:
    record = read(OUT, f"2026-12-01 05:32:48,966\tINFO a.py:3 -- m{tail}\n")[0]
    assert (record["time"], record.get("node_id")) == (instant(clock), node)


def test_pairs_only_after_a_python_header() -> None:
    record = read(OUT, f"print {PAIRS} timestamp_ns=1796103168966631516\n")[0]
    assert record["time_source"] == "read"
    assert "node_id" not in record


# ------------------------------------------------------------------------------------------------------------- JSON


def read_json(path: str = OUT, **keys: Any) -> dict[str, Any]:
    (record,) = read(path, json.dumps(keys) + "\n")
    return record


def test_json_times() -> None:
    asctime = "2026-12-01 05:36:20,182"
    assert read_json(timestamp_ns=1796103168966631516, asctime=asctime)["time"] == 1796103168966631516
    assert read_json(timestamp_ns="1796103168966631516", asctime=asctime)["time"] == AT
    assert read_json(timestamp_ns=1.5, asctime=asctime)["time"] == AT
    assert read_json(asctime="yesterday")["time_source"] == "read"
    assert read_json(timestamp=1796103168)["time_source"] == "read"
    assert read_json(timestamp=1796103168)["extra"] == {"timestamp": 1796103168}
    events = "events/event_GCS.log"
    assert read_json(events, timestamp=1796103168)["time"] == 1796103168 * 10**9
    assert read_json(events, timestamp="1796103168")["time"] == 1796103168 * 10**9
    assert "extra" not in read_json(events, timestamp="1796103168")
    assert read_json(events, timestamp="soon")["time_source"] == "read"
    assert read_json(events, timestamp=True)["time_source"] == "read"


@pytest.mark.parametrize(
    ("keys", "level"),
    [
        ({"levelname": "W"}, "warn"),
        ({"levelname": "INFO", "level": "error"}, "info"),
        ({"levelname": "odd", "severity": "ERROR"}, "error"),
        ({"level": "warning"}, "warn"),
        ({"level": "fatal"}, "fatal"),
        ({"level": 30}, None),
        ({"level": "Info"}, None),
        ({"level": "i"}, None),
        ({"levelname": ""}, None),
        ({"levelname": None, "level": "debug"}, "debug"),
    ],
)
def test_json_levels(keys: dict[str, Any], level: str | None) -> None:
    assert read_json(message="m", **keys).get("level") == level


def test_json_pid_thread_caller() -> None:
    assert read_json(process=1, source_pid=2, pid=3)["pid"] == "1"
    assert read_json(source_pid=2, pid="3")["pid"] == "2"
    assert read_json(process="", pid="3")["pid"] == "3"
    assert read_json(pid=None)["pid"] == "7"  # that of the file name
    assert read_json(thread=140, threadName="Main")["thread"] == "140"
    assert read_json(threadName="Main")["thread"] == "Main"
    assert read_json(filename="a.py", lineno=3)["caller"] == "a.py:3"
    assert "caller" not in read_json(filename="a.py")
    assert "extra" not in read_json(filename="a.py", threadName="x", process=1)


def test_json_ids_and_extra() -> None:
    ids: dict[str, Any] = {
        "job_id": "",
        "worker_id": None,
        "node_id": "NIL_ID",
        "actor_id": 12,
        "task_id": [1],
        "deployment": True,
    }
    record = read_json(route="/x", **ids)
    assert (record["job_id"], record["worker_id"]) == ("01000000", WID)  # a missing key never overwrites
    assert (record["node_id"], record["actor_id"], record["route"]) == ("NIL_ID", "12", "/x")
    assert record["deployment"] == "true"
    assert not record.keys() & {"task_id", "extra"}
    extra: dict[str, Any] = {"a": None, "b": "", "c": {"d": [1]}, "task_func_name": "f", "component": "x", "name": "n"}
    assert read_json(message="m", **extra)["extra"] == extra


def test_json_messages() -> None:
    assert read_json(message="m")["message"] == "m"
    assert read_json(message="\x1b[1mm\x1b[0m\r\nn\ro")["message"] == "m\no"
    assert read_json(message="m", exc_text="E\nF")["message"] == "m\nE\nF"
    assert read_json(message="m", exc_text=None)["message"] == "m"
    assert read_json(message="")["message"] == ""
    assert read_json(message=3)["message"] == '{"message": 3}'
    assert read_json(msg="x")["message"] == '{"msg": "x"}'
    text = json.dumps({"message": "m", "exc_text": "E"}) + "\n  more\n\nTraceback (most recent call last):\n"
    (record,) = read(OUT, text)
    assert record["message"] == "m\nE\n  more\n\nTraceback (most recent call last):"
    assert record["raw"] == text.rstrip("\n")


def test_json_with_raw_escapes() -> None:
    line = '{"asctime":"2026-12-01 05:36:20,182","levelname":"E","message":"a \x1b[36mred\x1b[39m b"}'
    (record,) = read("raylet.out", line + "\n")
    assert (record["message"], record["raw"], record["time"]) == ("a red b", line, AT)
    assert "parse_error" not in record


@pytest.mark.parametrize(
    "line",
    ['{"a": 1', '{"a": }', '{"a": NaN}', '{"a": "tab\there"}', '{"unfinished', '{"a": 1} x', '{"a": "\x1b"}'],
)
def test_parse_errors_keep_the_line(line: str) -> None:
    (record,) = read(OUT, line + "\n  more\n")
    assert record["parse_error"] is True
    assert (record["time"], record["time_source"]) == (None, "read")
    assert record["raw"] == line + "\n  more"
    assert record["pid"] == "7"


@pytest.mark.parametrize("line", ["{", "{'a': 1}", "{}", '{ "a": 1}', "[1]", ' {"a": ', '\x1b[1m{"a": 1}'])
def test_free_text_is_no_error(line: str) -> None:
    (record,) = read(OUT, line + "\n")
    assert record["message"] == line.removeprefix("\x1b[1m")
    assert not record.keys() & {"parse_error", "extra", "level"}


# ------------------------------------------------------------------------------------------------------------ twins


SERVE_JSON = (
    '{"asctime":"2026-12-01 05:36:20,182","levelname":"INFO","message":"m","process":5,"component_name":"proxy"}\n'
)
CPP_JSON = '{"asctime":"2026-12-01 05:36:20,182","levelname":"E","message":"m","filename":"a.cc","lineno":1}\n'
TRACE = "Traceback (most recent call last):\n  x\n"


@pytest.mark.parametrize(("twin", "pid"), [(F1, "7"), (F3, "7"), (SERVE_JSON, "5"), (CPP_JSON, "7")])
def test_twins_in_worker_err(twin: str, pid: str) -> None:
    assert read(ERR, twin) == []
    assert read(ERR, twin + "\n \n") == []
    (record,) = read(ERR, twin + "\n" + TRACE)
    assert (record["raw"], record["message"]) == (TRACE.rstrip("\n"), TRACE.rstrip("\n"))
    assert (record["time"], record["pid"]) == (AT, pid)
    assert not record.keys() & {"level", "time_source", "caller", "thread", "deployment", "replica"}
    assert read_entries(ERR, (twin + "\n" + TRACE).encode(), Options(), SESSION)[0].first_line == 3
    for path in (OUT, f"io_worker-{WID}-7.err", "job-driver-x.log"):
        assert len(read(path, twin)) == 1
    assert len(read(ERR, twin, everything=True)) == 1
    assert len(read(ERR, twin, cut_twins=frozenset())) == 1


def test_cuts_need_the_original() -> None:
    assert read(ERR, F3, cut_twins=frozenset({"serve"})) == []
    assert len(read(ERR, F3, cut_twins=frozenset({"cpp"}))) == 1
    assert len(read(ERR, F1, cut_twins=frozenset({"serve"}))) == 1
    assert len(read(ERR, F1, components=frozenset({"worker", "serve"}))) == 1
    assert read(ERR, F1, components=frozenset({"worker", "core_worker"})) == []
    assert len(read(ERR, F3, exclude=frozenset({"serve"}))) == 1
    assert len(read("job-driver-x.log", "(f pid=1) x\n", components=frozenset({"job_driver"}))) == 1


def test_what_is_no_twin() -> None:
    assert len(read(ERR, F2)) == 1
    assert len(read(ERR, '{"levelname":"ERROR","message":"m","deployment":"blue"}\n')) == 1
    assert read(ERR, '{"levelname":"ERROR","message":"m","deployment":"a","replica":"b"}\n') == []
    assert len(read(ERR, SERVE_JSON.rstrip("}\n") + "\n")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "(f pid=12) x",
        "(f pid=12, ip=10.0.0.2) x",
        "(pid=12) x",
        "(Named(shard=7) pid=12) x",
        "\x1b[36m(f pid=12)\x1b[0m x",
        "\x1b[36m(f pid=12, ip=10.0.0.2)\x1b[0m \x1b[32m [repeated 2x across cluster]\x1b[0m",
    ],
)
def test_driver_repeats(line: str) -> None:
    assert read("job-driver-x.log", line + "\n") == []
    (record,) = read("job-driver-x.log", line + "\n" + TRACE)
    assert (record["raw"], record["time"], record["time_source"]) == (TRACE.rstrip("\n"), None, "read")
    assert not record.keys() & {"pid", "level"}
    assert len(read(OUT, line + "\n")) == 1
    assert read("ray_client_server_23000.out", line + "\n") == []


@pytest.mark.parametrize(
    "line",
    ["(raylet) x", "(f pid=x) y", "x (f pid=1) y", "(f pid=1)x", "(f pid=1, x) y", "(fpid=1) y", "(f pid=1, ip=) y"],
)
def test_no_driver_repeats(line: str) -> None:
    assert len(read("job-driver-x.log", line + "\n")) == 1


# -------------------------------------------------------------------------------------------------- sizes and bytes


def test_long_entries_are_cut_between_characters() -> None:
    (record,) = read(OUT, "é" * 10 + "\n", max_entry=7)
    assert (record["raw"], record["message"], record["truncated"]) == ("é" * 3, "é" * 3, True)
    assert "truncated" not in read(OUT, "é" * 10 + "\n", max_entry=20)[0]
    assert read("raylet.out", F1 + "x" * 99 + "\n", max_entry=len(F1))[0]["message"] == "boom\n"
    (record,) = read(OUT, json.dumps({"message": "x" * 99}) + "\n", max_entry=50)
    assert (record["parse_error"], record["truncated"]) == (True, True)
    assert read(ERR, F3.replace("hello", "x" * 99), max_entry=50) == []


def test_long_lines_are_cut_or_left_out() -> None:
    text = F1 + "x" * 99 + "\nshort\n"
    (record,) = read("raylet.out", text, max_line=len(F1))
    assert (record["raw"], record["truncated"]) == (F1 + "x" * len(F1) + "\nshort", True)
    (record,) = read("raylet.out", text, max_line=len(F1), skips_long_lines=True)
    assert record["raw"] == F1 + "short"
    assert "truncated" not in record


def test_invalid_bytes() -> None:
    (record,) = read(OUT, b"a\xff\x00b \xe4\xb8\n")
    assert record["raw"] == "a\ufffd\x00b \ufffd"


def test_half_a_surrogate_pair() -> None:
    (record,) = read(OUT, '{"message": "a\\ud83d\\ude00 \\ud83d", "job_id": "\\udc00"}\n')
    assert (record["message"], record["job_id"]) == ("a\U0001f600 \ufffd", "\ufffd")


def test_head_of_a_rotated_file_is_marked_by_its_place() -> None:
    file = "worker-575a77aed4f1a999371174501400750ffcdd4ee0b0198b9e036ffb5c-01000000-13199.out.1"
    entries = list(entries_of("rotated", "2026", file).values())
    heads = [entry for entry in entries if entry.first_line == 1 and continues(entry.record["raw"].split("\n")[0])]
    assert [entry.lines for entry in heads] == [2]
