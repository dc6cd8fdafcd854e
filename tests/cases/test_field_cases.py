"""The field cases on the rendered text: faults that people who ship Ray's logs have met, on every target.

Each test is named after its case and says why it is there. `docs/field-cases.md` maps the keys that the cases use to
those of a policy; what a case asks of delivered records is tested in `e2e/test_field_cases.py` and by the parity cases.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from making import FILE, LOKI, loaded, policy, relay
from reading import READERS, Input, expanded, fluentd_sections, inside

from shipgen import cli
from shipgen.diagnostics import PolicyError
from shipgen.pipeline import resolve
from shipgen.pipeline.checks import check
from shipgen.rendering import bundle
from shipgen.rendering.bundle import Bundle
from shipgen.rendering.preview import preview
from shipgen.targets import base, plan
from shipgen.targets.plan import Choice

TARGETS = base.implemented()
LOGS = "/tmp/ray/session_2026-03-04_09-00-00_1_77/logs"
WORKER = "a" * 56
CASES = (
    *(1, 2, 4, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 19, 21, 23, 24, 25, 27, 28, 30, 31, 33, 34, 35, 37, 38, 40, 42, 44),
    *(45, 46),
)

RAYLET = """\
[2026-03-04 09:15:20,001 I 310 322] (raylet) node_manager.cc:88: heartbeat ok
[2026-03-04 09:15:21,777 W 310 322] (raylet) store.cc:40: plasma report follows:
objects in use: 3
bytes spilled: 0
[2026-03-04 09:15:22,400 E 310 310] (raylet) agent.cc:12: agent gone
""".splitlines()
MONITOR = """\
2026-03-04 09:15:24,732\tINFO autoscaler.py:408 --
======== Autoscaler status ========
Node status
 1 head
2026-03-04 09:15:29,001\tWARNING autoscaler.py:410 -- no demand
""".splitlines()
TRACEBACK = """\
2026-03-04 09:15:22,118\tERROR train.py:18 -- boom
Traceback (most recent call last):
  File "/app/train.py", line 16, in step
    1/0
ZeroDivisionError: division by zero
2026-03-04 09:15:23,004\tINFO train.py:25 -- continuing
""".splitlines()
PRINTS = ["warming up shard 3", "step 1 loss=0.42", "step 2", "3", "Epoch: 4", "ValueErrors so far: 5"]
JSON_LINES = ['{"message":"a"}', '{"message":"b"}']

each_target = pytest.mark.parametrize("target", TARGETS)


def chosen(target: str, **parts: Any) -> Choice:
    """What a target says about a policy."""
    one = loaded(policy(targets={}, **relay(target), **parts))
    return plan.choose(target, one, resolve(one))


def errors(target: str, **parts: Any) -> list[str]:
    """Leaves of which a target says that it can't."""
    return [d.path for d in chosen(target, **parts).diagnostics if d.severity.name == "ERROR"]


def refusals(**parts: Any) -> list[tuple[str, str]]:
    """Place and text of what is wrong with a policy, whatever the target."""
    with pytest.raises(PolicyError) as raised:
        loaded(policy(**parts))
    return [(d.path, f"{d.text}; {d.hint}") for d in raised.value.diagnostics]


def rendered(target: str, **parts: Any) -> Bundle:
    """The bundle of a target."""
    one = loaded(policy(targets={}, **relay(target), **parts))
    pipeline = resolve(one)
    choice = plan.choose(target, one, pipeline)
    assert choice.renders, [d.message for d in choice.diagnostics]
    return bundle.of(pipeline, [choice])


def text(target: str, **parts: Any) -> str:
    """The main configuration file of a target."""
    return rendered(target, **parts).files[base.get(target).main_config].decode()


def inputs(target: str, **parts: Any) -> list[Input]:
    """What a target reads."""
    return READERS[target](rendered(target, **parts).files)


def reading(all_of_them: list[Input], name: str) -> Input:
    """The one input that reads a live file of Ray's."""
    (one,) = [i for i in all_of_them if i.reads(f"{LOGS}/{name}")]
    return one


def ray(**settings: Any) -> dict[str, Any]:
    return {"ray": {"type": "ray", **settings}}


def loki(**settings: Any) -> dict[str, Any]:
    return {"loki": {**LOKI, **settings}}


def entries(one: Input, lines: list[str]) -> list[list[str]]:
    """Lines joined as an input joins them."""
    found: list[list[str]] = []
    for line in lines:
        if not found or one.starts is None or one.starts(line):
            found.append([])
        found[-1].append(line)
    return found


def test_every_target_is_read() -> None:
    assert set(TARGETS) <= set(READERS)


# --- which files ---


@each_target
def test_b01_a_backup_is_read_only_by_who_knows_files_by_their_inode(target: str) -> None:
    """A glob for live files that matches `.1` as well sends every rotated generation again where paths are keys."""
    found = inputs(target, sources=ray(components=["raylet"]))
    assert not any(glob.endswith("/*") for one in found for path in one.include for glob in expanded(path))
    for number in (1, 2, 10):
        assert all(one.by_inode for one in found if one.reads(f"{LOGS}/raylet.out.{number}"))
    refused = errors(target, sources=ray(rotated="include"))
    assert refused == ([] if base.get(target).reads_rotated else ["sources.ray.rotated"])
    excluded = inputs(target, sources=ray(rotated="exclude"))
    assert not any(one.reads(f"{LOGS}/raylet.out.1") for one in excluded)


@each_target
@pytest.mark.parametrize("rotation", [None, {"by": "ray"}])
def test_b02_worker_files_are_known_by_inode_or_path_never_by_their_first_lines(target: str, rotation: Any) -> None:
    """The first lines of all worker files of a job are equal: known by a checksum they are one file."""
    parts = {"rotation": rotation} if rotation else {}
    one = reading(inputs(target, sources=ray(), **parts), f"worker-{WORKER}-ffffffff-4242.out")
    assert one.by_inode or not base.get(target).reads_rotated
    assert "sources.ray.fingerprint" in dict(refusals(sources=ray(fingerprint={"lines": 1})))


def test_b02_vector_never_takes_a_checksum_of_worker_files() -> None:
    """Files that logrotate truncates are known by lines that tell them apart; worker files have none."""
    config = yaml.safe_load(text("vector", sources=ray(), rotation={"by": "logrotate"}))
    worker = config["sources"]["ray:worker"]
    assert worker["fingerprint"] == {"strategy": "device_and_inode"}


@each_target
def test_b04_a_glob_never_matches_the_link_beside_the_session(target: str, tmp_path: Path) -> None:
    """`session_*` also matches `session_latest`: one file under two paths, every line twice."""
    session = tmp_path / "tmp/ray/session_2026-03-04_09-00-00_1_77"
    (session / "logs").mkdir(parents=True)
    (session / "logs/raylet.out").write_text("x\n")
    (tmp_path / "tmp/ray/session_latest").symlink_to(session)
    found = [
        path
        for one in inputs(target, collector={"root": str(tmp_path), "node": "n"})
        for glob in one.include
        for each in expanded(glob)
        for path in Path("/").glob(each[1:])
    ]
    assert found == [session / "logs/raylet.out"]


@each_target
def test_b06_new_sessions_are_looked_for_often(target: str) -> None:
    """Fluent Bit and Fluentd look for new files once a minute by default; a head that restarts begins a new session."""
    assert {one.rescan_s for one in inputs(target)} == {5.0}
    assert {one.rescan_s for one in inputs(target, collector={"discover_every": "2s", "node": "n"})} == {2.0}


@each_target
def test_b07_an_age_limit_is_rendered_or_spoken_about(target: str) -> None:
    """Hundreds of thousands of dead workers' files: each shipper's knob closes, skips or only moves the start."""
    parts = {"sources": ray(ignore_older="24h")}
    about = [d for d in chosen(target, **parts).diagnostics if d.path == "sources.ray.ignore_older"]
    assert about or text(target, **parts) != text(target)
    moved = [one for one in inputs(target) if one.reads(f"{LOGS}/old/worker-{WORKER}-ffffffff-4242.out")]
    assert len(moved) == 1
    assert "limits" in dict(refusals(limits={"max_age": "24h"}))


@each_target
def test_b08_each_component_has_globs_of_its_own(target: str) -> None:
    """`logs/*` misses serve/ and events/, and ships state dumps that are rewritten in place and profiler dumps."""
    found = inputs(target, sources=ray(components=["raylet", "serve", "events"]))
    for name in ("raylet.out", "raylet.err", "serve/replica_a.log", "events/event_GCS.log"):
        assert reading(found, name)
    for name in ("debug_state.txt", "nsight/x.nsys-rep", "gcs_server.out", "monitor.log", "events/x.txt", "old/x.out"):
        assert not any(one.reads(f"{LOGS}/{name}") for one in found), name
    ((path, why),) = refusals(sources=ray(components=["raylet", "servee"]))
    assert path == "sources.ray.components[1]"
    assert "serve" in why


@each_target
def test_b10_nothing_moves_logs_off_the_files_that_are_read(target: str, tmp_path: Path) -> None:
    """With RAY_LOG_TO_STDERR=1 the files stay empty; people set it beside a sidecar to be safe."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        'version: 1\nname: t\nray: {env: {RAY_LOG_TO_STDERR: "1"}}\n'
        "sources: {ray: {type: ray}}\nsinks: {l: {type: console}}\n"
    )
    done = CliRunner().invoke(cli.main, ["render", str(file), "--target", target, "-o", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "RAY_LOG_TO_STDERR" in done.stderr
    assert "sources (ray)" in done.stderr
    assert not (tmp_path / "out").exists()


@each_target
def test_b11_files_are_read_from_their_beginning_and_offsets_kept(target: str) -> None:
    """Fluent Bit and Fluentd start at the end: a sidecar that comes up five seconds after Ray loses its start-up."""
    found = inputs(target, sources={**ray(), "app": FILE})
    assert all(one.from_beginning for one in found)
    assert all(inside(one.store.partition("#")[0], f"/var/lib/shipgen/t/{target}") for one in found)
    end = {"sources": ray(start="end")}
    if (refused := errors(target, **end)):
        assert refused == ["sources.ray.start"]
    else:
        assert not any(one.from_beginning for one in inputs(target, **end))


@each_target
def test_b12_what_is_excluded_is_the_same_for_every_shipper(target: str) -> None:
    """Excludes are globs here, regexes there, one or many, with and without stars that cross a slash."""
    source = {
        "type": "file", "paths": ["/data/logs/*.log", "/data/logs/*/*.log"],
        "exclude": [
            "/data/logs/*.gz.log", "/data/logs/old/*.log", "/data/logs/worker-*-ffffffff-[0-9].log", "/data/logs/a?.log"
        ],
    }  # fmt: skip
    found = inputs(target, sources={"app": source})
    wanted = {
        "/data/logs/x.log": True, "/data/logs/x.gz.log": False, "/data/logs/sub/x.gz.log": True,
        "/data/logs/old/x.log": False, "/data/logs/older/x.log": True, "/data/logs/old/x.gz.log": False,
        "/data/logs/worker-1-ffffffff-2.log": False, "/data/logs/worker-1-01000000-2.log": True,
        "/data/logs/sub/worker-1-ffffffff-2.log": True, "/data/logs/a1.log": False, "/data/logs/a12.log": True,
        "/data/logs/x.txt": False,
    }  # fmt: skip
    assert {path: any(one.reads(path) for one in found) for path in wanted} == wanted


# --- Ray's environment ---


def test_b13_a_driver_repeats_its_workers_recognisably_or_not_at_all() -> None:
    """Prefix, colour and a "repeated" suffix make JSON invalid on its way through a driver."""
    driver = {"forward": True, "prefix": False, "dedup": False, "color": False}
    files = rendered("vector", ray={"version": "2.60", "driver": driver}, sources=ray()).files
    lines = [line for line in files["ray/driver.env"].decode().splitlines() if not line.startswith("#")]
    assert lines == ["RAY_LOG_TO_DRIVER=1", "RAY_DISABLE_WORKER_LOG_PREFIX=1", "RAY_DEDUP_LOGS=0", "RAY_COLOR_PREFIX=0"]
    assert "every driver, before `import ray`" in files["ray/README.md"].decode()
    for prefix, told in ((False, True), (True, False)):
        one = loaded(policy(ray={"driver": {"forward": True, "prefix": prefix}}))
        assert any(d.path == "ray.driver.prefix" for d in check(resolve(one), one)) is told
    quiet = rendered("vector", ray={"driver": {"forward": False}}).files["ray/driver.env"].decode()
    assert "RAY_LOG_TO_DRIVER=0" in quiet


# --- entries ---


def kept_by_vector(config: str) -> bool:
    tree = yaml.safe_load(config)
    return not any(t.get("drop_on_error") for id_, t in tree["transforms"].items() if not id_.startswith("rule::"))


def kept_by_promtail(config: str) -> bool:
    stages = [s for job in yaml.safe_load(config)["scrape_configs"] for s in job["pipeline_stages"]]
    reasons = {s["drop"].get("drop_counter_reason") for s in stages if "drop" in s}
    malformed = [s for s in stages if s.get("json", {}).get("drop_malformed")]
    return reasons <= {"blank", "control", "twin", "repeat"} and not malformed


def kept_by_fluentd(config: str) -> bool:
    sources = [s for s in fluentd_sections(config) if s.name == "source" and "path" in s.settings]
    return all(s.settings["emit_unmatched_lines"] == "true" for s in sources)


def kept_by_fluentbit(config: str) -> bool:
    pipeline = yaml.safe_load(config)["pipeline"]
    greps = [f["exclude"] for f in pipeline["filters"] if f["name"] == "grep"]
    return greps == ["drop ^redaction_failed$"] and not any("parser" in one for one in pipeline["inputs"])


def kept_by_filebeat(config: str) -> bool:
    """It makes no record: what it sends is its relay's, which is Vector."""
    inputs = yaml.safe_load(config)["filebeat.inputs"]
    parsers = {name for one in inputs for parser in one.get("parsers", ()) for name in parser}
    return parsers == {"multiline"} and not any({"include_lines", "exclude_lines"} & set(one) for one in inputs)


KEPT: Mapping[str, Callable[[str], bool]] = {
    "vector": kept_by_vector, "fluentbit": kept_by_fluentbit, "fluentd": kept_by_fluentd, "promtail": kept_by_promtail,
    "filebeat": kept_by_filebeat,
}  # fmt: skip


@each_target
def test_b14_a_line_that_does_not_parse_is_kept(target: str) -> None:
    """One switch does not make the tree JSON, and the line that a strict parser drops is usually the crash."""
    assert KEPT[target](text(target, sources={**ray(), "app": {**FILE, "format": "json"}}))


@each_target
def test_b16_a_marker_ends_the_entry_before_it(target: str) -> None:
    """Markers are Ray's control lines: one per task, and a start pattern glues them to the traceback before."""
    one = reading(inputs(target), f"worker-{WORKER}-ffffffff-4242.err")
    assert entries(one, [*TRACEBACK[:-1], ":task_name:evaluate", "done 1", "note :job_id: in text"]) == [
        TRACEBACK[:-1],
        [":task_name:evaluate"],
        ["done 1"],
        ["note :job_id: in text"],
    ]
    assert "sources.ray.markers" in dict(refusals(sources=ray(markers="keep")))


@each_target
def test_b17_headers_of_both_grammars_start_entries(target: str) -> None:
    """C++ and Python components write different headers: one pattern groups the one and shreds the other."""
    found = inputs(target)
    assert [len(e) for e in entries(reading(found, "raylet.out"), RAYLET)] == [1, 3, 1]
    assert [len(e) for e in entries(reading(found, "monitor.log"), MONITOR)] == [4, 1]
    as_json = '{"asctime":"2026-03-04 09:15:20,001","levelname":"W","message":"x","component":"raylet"}'
    assert [len(e) for e in entries(reading(found, "raylet.out"), [as_json, as_json, *RAYLET])] == [1, 1, 1, 3, 1]


def previewed(lines: list[str], **parts: Any) -> list[Any]:
    """Records that Vector's own VRL makes of lines of dashboard.log."""
    import json

    one = resolve(loaded(policy(**parts)))
    data = io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode()))
    return [json.loads(record) for record in preview(one, ["-"], f"{LOGS}/dashboard.log", data)]


def test_b19_a_comma_before_milliseconds_is_read() -> None:
    """`22,118` is the least portable fraction: most that can't read it fail in silence, with the time of reading."""
    (record,) = previewed(["2026-03-04 09:15:22,118\tINFO a.py:1 -- x"], parsing={"timezone": "UTC"})
    assert record["time"] == "2026-03-04T09:15:22.118000000Z"
    assert "time_source" not in record


@each_target
def test_b21_a_named_zone_stays_a_name(target: str) -> None:
    """An offset that is baked in is wrong for half of the year; two conversions shift twice."""
    berlin = {"parsing": {"timezone": "Europe/Berlin"}}
    files = rendered(target, **berlin).files
    assert any(b"Europe/Berlin" in data for data in files.values())
    assert refusals(parsing={"timezone": "Mars/Base"})[0][0] == "parsing.timezone"
    assert refusals(parsing={"timezone": ""})[0][0] == "parsing.timezone"
    assert resolve(loaded(policy())).timezone == "local"


def test_b21_winter_and_summer_in_a_named_zone() -> None:
    """Both instants of the case, by Vector's own VRL."""
    lines = ["2026-03-04 09:15:22,118\tINFO a.py:1 -- x", "2026-07-04 09:15:22,118\tINFO a.py:1 -- y"]
    times = [r["time"] for r in previewed(lines, parsing={"timezone": "Europe/Berlin"})]
    assert times == ["2026-03-04T08:15:22.118000000Z", "2026-07-04T07:15:22.118000000Z"]


def test_b23_an_entry_without_a_time_says_so() -> None:
    """Tools stamp lines without a time with the time of reading, and nobody is told."""
    records = previewed(["a print", "2026-13-40 99:00:00,000\tINFO a.py:1 -- bad month"], parsing={"timezone": "UTC"})
    assert [r["time_source"] for r in records] == ["read", "read"]
    assert records[1]["raw"] == "2026-13-40 99:00:00,000\tINFO a.py:1 -- bad month"
    assert "parsing.on_missing_time" in dict(refusals(parsing={"on_missing_time": "previous"}))


@pytest.mark.skipif("promtail" not in TARGETS, reason="not rendered yet")
def test_b23_promtail_says_what_a_failed_timestamp_does() -> None:
    """Its default, `fudge`, gives the time of the line before plus a nanosecond."""
    stages = [s for job in yaml.safe_load(text("promtail"))["scrape_configs"] for s in job["pipeline_stages"]]
    stamps = [s["timestamp"] for s in stages if "timestamp" in s]
    assert stamps
    assert {s.get("action_on_failure") for s in stamps} == {"skip"}


def test_b24_age_is_judged_once_the_entry_has_its_time() -> None:
    """An age filter in front of the stage that reads the time compares the time of reading, and drops nothing."""
    config = yaml.safe_load(text("vector", sinks=loki(late="drop")))
    shape = config["transforms"]["shape::loki"]
    assert "abort" in shape["source"]
    behind = {id_ for id_, t in config["transforms"].items() if ".timestamp = own" in t["source"]}
    assert behind
    assert behind <= upstream(config, "shape::loki")
    assert "sinks.loki.drop_older_than" in dict(refusals(sinks=loki(drop_older_than="24h")))


def upstream(config: Mapping[str, Any], id_: str) -> set[str]:
    """Transforms that a transform's events come through."""
    inputs = {i.partition(".dropped")[0] for i in config["transforms"].get(id_, {"inputs": []})["inputs"]}
    return inputs.union(*(upstream(config, i) for i in inputs))


@each_target
def test_b25_the_last_entry_does_not_wait_for_the_next(target: str) -> None:
    """A worker writes its traceback and dies: without a flush it stays in the collector for ever."""
    source = {**FILE, "multiline": {"start": "^=", "timeout": "7s"}}
    found = inputs(target, sources={**ray(), "app": source})
    flushes = {round(one.flush_s, 3) for one in found if one.starts and not one.reads("/var/log/app/a.log")}
    assert flushes in ({0.7}, {2.0})
    assert [one.flush_s for one in found if one.reads("/var/log/app/a.log")] == [7.0]


@each_target
def test_b27_prints_and_json_are_not_glued(target: str) -> None:
    """"Anything not starting with a time belongs to the line before" makes one event of 500 prints."""
    found = inputs(target)
    out, err = (reading(found, f"worker-{WORKER}-ffffffff-4242.{stream}") for stream in ("out", "err"))
    assert entries(out, PRINTS) == [[line] for line in PRINTS]
    assert entries(err, JSON_LINES) == [[line] for line in JSON_LINES]
    assert [len(e) for e in entries(err, TRACEBACK)] == [5, 1]
    assert reading(found, f"train/ray-train-app-worker-{WORKER}.log").starts is None


def long_lines_of_vector(config: str) -> bool:
    files = [s for s in yaml.safe_load(config)["sources"].values() if s["type"] == "file"]
    return all(s["max_line_bytes"] >= 2**20 for s in files)


def long_lines_of_promtail(config: str) -> bool:
    return bool(yaml.safe_load(config)["limits_config"]["max_line_size"] == 0)


def long_lines_of_fluentd(config: str) -> bool:
    sources = [s for s in fluentd_sections(config) if s.name == "source" and "path" in s.settings]
    return all(int(s.settings["max_line_size"]) >= 2**20 for s in sources)


def long_lines_of_fluentbit(config: str) -> bool:
    tails = [one for one in yaml.safe_load(config)["pipeline"]["inputs"] if one["name"] == "tail"]
    return all(
        one["buffer_max_size"] >= max(2**20, one["buffer_chunk_size"]) and one["skip_long_lines"] for one in tails
    )


def long_lines_of_filebeat(config: str) -> bool:
    return all(one["message_max_bytes"] >= 2**20 for one in yaml.safe_load(config)["filebeat.inputs"])


LONG_LINES: Mapping[str, Callable[[str], bool]] = {
    "filebeat": long_lines_of_filebeat,
    "vector": long_lines_of_vector,
    "fluentbit": long_lines_of_fluentbit,
    "fluentd": long_lines_of_fluentd,
    "promtail": long_lines_of_promtail,
}


@each_target
def test_b28_the_limit_of_a_line_is_written_out(target: str) -> None:
    """Left to its default, one printed tensor over 32 KiB ends the collection of that file in Fluent Bit."""
    assert LONG_LINES[target](text(target, sources=ray(max_line="1MiB")))
    for way in ("truncate", "skip"):
        assert "sources.ray.max_line" not in errors(target, sources=ray(max_line="1MiB", on_long_line=way))


# --- sinks ---


def test_b30_unbounded_fields_are_no_labels() -> None:
    """Worker ids and pids are in Ray's file names; a stream for each, and Loki answers 429."""
    fields = ["cluster", "component", "worker_id", "task_id", "actor_id", "pid", "file", "actor_name"]
    told = dict(refusals(cluster="c", sinks=loki(labels={"fields": fields})))
    assert set(told) == {f"sinks.loki.labels.fields[{i}]" for i in range(2, 8)}
    assert all("allow_high_cardinality" in why for why in told.values())
    allowed = {"fields": [*fields, "session"], "allow_high_cardinality": True}
    assert loaded(policy(cluster="c", sinks=loki(labels=allowed)))
    assert loaded(policy(sinks=loki(labels={"fields": ["node", "session"]})))


@pytest.mark.skipif("promtail" not in TARGETS, reason="not rendered yet")
def test_b30_promtail_drops_the_label_that_nobody_asked_for() -> None:
    """Promtail makes the path a label by itself."""
    for job in yaml.safe_load(text("promtail"))["scrape_configs"]:
        assert any("filename" in stage.get("labeldrop", ()) for stage in job["pipeline_stages"])


def test_b31_labels_are_some_legal_and_not_too_many() -> None:
    """No label is a 400 with a message about parsing; illegal names are refused or rewritten; Loki takes fifteen."""
    assert refusals(sinks=loki(labels={"static": {}, "fields": []}))[0][0] == "sinks.loki.labels"
    assert refusals(sinks=loki(labels={"static": {}, "fields": ["level"]}))[0][0] == "sinks.loki.labels"
    for name in ("ray.io/cluster", "a.b", "a-b", "1a", "__a", ""):
        assert refusals(sinks=loki(labels={"static": {name: "x"}}))
    ((_, why),) = refusals(sinks=loki(labels={"static": {f"l{i}": "x" for i in range(14)}}))
    assert "at most 14" in why


@pytest.mark.parametrize("version", ["0.56", "0.57"])
def test_b33_vector_has_no_template_but_the_two_of_loki(version: str) -> None:
    """From 0.57 on a template without literal text in front is refused; older ones refuse the option that allows it."""
    parts = {
        "targets": {"vector": {"version": version}},
        "sinks": {
            **loki(),
            "stream": {"type": "kafka", "brokers": ["k:9092"], "topic": "ray-logs", "key": "node"},
            "archive": {"type": "s3", "bucket": "ray-logs", "prefix": {"by": ["component"], "date": "daily"}},
            "out": {"type": "file", "path": "/var/log/out.jsonl"},
        },
    }
    one = loaded(policy(**parts))
    pipeline = resolve(one)
    choice = plan.choose("vector", one, pipeline)
    config = yaml.safe_load(bundle.of(pipeline, [choice]).files["vector/vector.yaml"])
    templates = {}
    for id_, sink in config["sinks"].items():
        if found := re.findall(r".?\{\{[^}]*\}\}", str({k: v for k, v in sink.items() if k != "inputs"})):
            templates[id_] = found
    assert templates.pop("out::loki") == ["'{{ labels }}", "'{{ metadata }}"]
    assert all(not template.startswith(("'", '"')) for found in templates.values() for template in found), templates
    allowed = "dangerously_allow_unconfined_template_resolution"
    assert (allowed in config["sinks"]["out::loki"]) is (version == "0.57")
    assert any(d.code == "template-confinement" for d in choice.diagnostics) is (version == "0.57")


def test_b34_vector_sends_the_line_alone() -> None:
    """The same record as raw text, as JSON with the collector's own fields, or with its quotes doubled."""
    assert yaml.safe_load(text("vector"))["sinks"]["out::loki"]["encoding"] == {"codec": "text"}


SINKS: Mapping[str, Mapping[str, Any]] = {
    "loki": LOKI,
    "elasticsearch": {"type": "elasticsearch", "endpoints": ["https://es:9200"]},
    "opensearch": {"type": "opensearch", "endpoints": ["https://es:9200"]},
    "s3": {"type": "s3", "bucket": "ray-logs"},
    "kafka": {"type": "kafka", "brokers": ["k:9092"], "topic": "ray-logs"},
    "http": {"type": "http", "endpoint": "https://h.example"},
    "file": {"type": "file", "path": "/var/log/out.jsonl"},
    "console": {"type": "console"},
}


@each_target
@pytest.mark.parametrize("kinds", [*([kind] for kind in SINKS), ["loki", "s3"], ["elasticsearch", "kafka"]], ids=str)
def test_b35_a_sink_that_a_shipper_lacks_is_refused_by_name(target: str, kinds: list[str]) -> None:
    """People write `output.s3` for Filebeat and learn at start-up; Promtail speaks to Loki only."""
    sinks = {f"to-{kind}": SINKS[kind] for kind in kinds}
    choice = chosen(target, sinks=sinks)
    if choice.renders:
        assert rendered(target, sinks=sinks).files
        return
    wrong = [d for d in choice.diagnostics if d.severity.name == "ERROR"]
    assert all(d.path.startswith(tuple(f"sinks.{name}" for name in sinks)) for d in wrong)
    assert all(d.text and d.hint for d in wrong)


def test_b35_promtail_takes_loki_alone() -> None:
    """And says that it has reached its end of life, as a note."""
    if "promtail" not in TARGETS:
        pytest.skip("not rendered yet")
    assert errors("promtail", sinks={"k": SINKS["kafka"]}) == ["sinks.k"]
    assert "2026-03-02" in text("promtail")
    assert any(d.severity.name == "NOTE" and "end of life" in d.text for d in chosen("promtail").diagnostics)


@each_target
def test_b37_no_object_overwrites_another(target: str) -> None:
    """Many nodes flush at once into the same key, and the last one wins."""
    sinks = {"archive": {"type": "s3", "bucket": "ray-logs", "prefix": {"by": ["component"]}, "compression": "gzip"}}
    if not chosen(target, sinks=sinks).renders:
        pytest.skip("has no sink of this type, or not yet")
    config = "".join(data.decode() for data in rendered(target, sinks=sinks).files.values())
    assert re.search(r"filename_append_uuid: true|\$UUID|%\{(?:uuid_flush|hex_random)\}|unique_id_hex\(chunk", config)
    assert "jsonl.gz" in config


@pytest.mark.parametrize("version", ["0.50", "0.56", "0.57"])
def test_b38_vector_finds_no_dollar_but_those_of_secrets(version: str) -> None:
    """Up to 0.56 `$name` is replaced anywhere in the file, later only with a flag: no escape is right for both."""
    parts = {
        "targets": {"vector": {"version": version}},
        "sinks": loki(labels={"static": {"team": "a$b", "n": "$1 ${x} $$ $"}, "fields": ["component"]},
                      auth={"basic": {"user": {"env": "U"}, "password": {"env": "LOKI_TOKEN"}}}),
        "parsing": {"rules": [{"name": "x", "redact": {"pattern": "end$", "with": "$0 ${1}"}}]},
    }  # fmt: skip
    one = loaded(policy(**parts))
    pipeline = resolve(one)
    choice = plan.choose("vector", one, pipeline)
    config = bundle.of(pipeline, [choice]).files["vector/vector.yaml"].decode()
    code = "\n".join(line for line in config.splitlines() if not line.startswith("#"))
    assert set(re.findall(r"\$[{]?([\w.]+)", code)) == {"U", "LOKI_TOKEN"}
    told = any(d.code == "needs-flag" for d in choice.diagnostics)
    assert told is (version == "0.57")


@pytest.mark.skipif("fluentd" not in TARGETS, reason="not rendered yet")
def test_b40_fluentd_evaluates_no_text_of_the_policy() -> None:
    """`#{...}` in double quotes is Ruby code."""
    static = {"note": "x#{`id`}y", "q": "it's \\ ok", "h": "a #b", "d": '"#{1}"'}
    config = text("fluentd", sinks=loki(labels={"static": static, "fields": ["component"]}))
    for line in config.splitlines():
        if not line.lstrip().startswith("#"):
            outside = re.sub(r"'(?:[^'\\]|\\.)*'", "", line)
            assert "#{`id`}" not in outside
            assert "#{1}" not in outside
    assert refusals(sinks=loki(labels={"static": {"a": "x\ny"}}))[0][0] == "sinks.loki.labels.static.a"


def test_b42_a_regex_that_engines_read_differently_is_refused_where_it_is() -> None:
    """One policy regex lands in four engines behind as many quoting layers."""
    for pattern, character in (("(?!x)y", 1), ("(a|b", 1), ("a(?<=b)", 2), (r"(a)\1", 4), ("a++", 3), (r"\h", 1)):
        rule = {"name": "x", "when": {"raw": {"matches": pattern}}, "drop": True}
        ((path, why),) = refusals(parsing={"rules": [rule]})
        assert path == "parsing.rules[0].when.raw.matches"
        assert f"character {character} " in why, (pattern, why)


@each_target
def test_b42_slashes_quotes_and_hashes_are_plain_characters(target: str) -> None:
    """Delimiters are escaped only where they exist. What such a regex drops: the parity case rule-drop."""
    rule = {"name": "x", "when": {"raw": {"matches": r"""^\[debug\] "hot" path=/a/b \d+$|a/b'c#d"""}}, "drop": True}
    assert rendered(target, parsing={"rules": [rule]}).files != rendered(target).files


@each_target
def test_b44_braces_are_few(target: str) -> None:
    """A rendered file may go through a chart's template engine; there is no mode that escapes for one, and none is
    promised (struck): `embed` is refused, and Vector's file has two pairs of braces for a Loki sink."""
    assert "embed" in dict(refusals(embed="helm"))
    if target == "vector":
        assert len(re.findall(r"\{\{", text("vector"))) == 2


@pytest.mark.skipif("fluentbit" not in TARGETS, reason="not rendered yet")
def test_b45_fluent_bit_finds_every_parser_that_it_names() -> None:
    """A parser file that is not loaded, a missing last newline, two parsers on an input: it goes on with half of it."""
    config = text("fluentbit", sources={**ray(), "app": {**FILE, "multiline": {"start": "^="}}})
    assert config.endswith("\n")
    assert not config.endswith("\n\n")
    tree = yaml.safe_load(config)
    known = {p["name"] for p in tree.get("multiline_parsers", [])}
    for one in tree["pipeline"]["inputs"]:
        assert not ("parser" in one and "multiline.parser" in one)
        assert one.get("multiline.parser", next(iter(known), None)) in known


@each_target
def test_b46_offsets_are_kept_under_names_that_stay(target: str) -> None:
    """One source added in front that shifts the numbering is enough to read everything again."""
    a, b = {**FILE, "paths": ["/a/*.log"]}, {**FILE, "paths": ["/b/*.log"]}
    renders = [
        inputs(target, sources={"a": a, "b": b, **ray()}),
        inputs(target, sources={"new": {**FILE, "paths": ["/n/*.log"]}, **ray(), "b": b, "a": a}),
        inputs(target, sources={"a": a, "b": b, **ray()}, sinks=loki(labels={"static": {"other": "label"}})),
    ]
    for name in ("/a/x.log", "/b/x.log", f"{LOGS}/raylet.out"):
        kept = {(one.id, one.store) for found in renders for one in found if one.reads(name)}
        assert len(kept) == 1, kept
    for found in renders:
        assert len({one.store for one in found}) == len(found)
        assert not any(inside(one.store, "/tmp/ray") for one in found)
    assert refusals(collector={"state_dir": "/tmp/ray/state"})[0][0] == "collector.state_dir"


def test_b46_stores_of_shippers_differ() -> None:
    """Two shippers on one node, while one replaces the other, must not share a store."""
    stores = [{one.store for one in inputs(target)} for target in TARGETS if target in READERS]
    assert len(set().union(*stores)) == sum(len(s) for s in stores)


def test_every_case_is_here_or_struck() -> None:
    """32 cases: each has a test of its name, and a row in docs/field-cases.md."""
    page = (Path(__file__).parents[2] / "docs" / "field-cases.md").read_text("utf-8")
    for number in CASES:
        assert any(name.startswith(f"test_b{number:02}_") for name in globals()), number
        assert f"| B{number:02} |" in page, number

