"""`explain`: that the facts on the page are those of the catalogue, the table and the policy. Not its wording."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shipgen.catalog import measured, ray
from shipgen.catalog.ray import Rotates
from shipgen.pipeline import conditions, resolve, rotation
from shipgen.policy import load
from shipgen.policy.model import leaves
from shipgen.targets import base, capabilities, plan
from shipgen.targets.capabilities import Row, Status, deviations
from shipgen.targets.explain import explain, wording
from shipgen.targets.plan import Choice

EXAMPLES = Path(__file__).parents[2] / "examples"
LOKI = {"type": "loki", "endpoint": "http://loki:3100"}
RAY = {"type": "ray"}


def page_of(files: list[str], *targets: str) -> str:
    policy = load(files)
    pipeline = resolve(policy)
    return explain(policy, pipeline, [plan.choose(n, policy, pipeline) for n in plan.names(targets, policy)])


class Explained:
    """A page, with its lines joined again where they were wrapped."""

    def __init__(self, text: str) -> None:
        self.text = text
        flat = re.sub(r"\n {2,}(?![- ])", " ", text)
        self.lines = [line.strip(" -") for line in flat.splitlines()]

    def line(self, start: str) -> str:
        found = [one for one in self.lines if one.startswith(start)]
        assert len(found) == 1, (start, found)
        return found[0]

    def section(self, title: str) -> str:
        rest = self.text.split(f"\n{title}\n{'=' * len(title)}\n")[1]
        return re.sub(r"\n {2,}(?![- ])", " ", re.split(r"\n\n[^\n]+\n=+\n", rest)[0])

    def names(self, start: str) -> set[str]:
        return set(re.split(r", | and ", self.line(start).partition(": ")[2]))


@pytest.fixture
def told(tmp_path: Path) -> Any:
    def of(sink: dict[str, Any] | None = None, target: str = "0.57", **parts: Any) -> Explained:
        policy = {
            "version": 1,
            "name": "test",
            "targets": {"vector": {"version": target}},
            "sources": {"ray": RAY},
            "sinks": {"loki": {**LOKI, **(sink or {})}},
            **parts,
        }
        path = tmp_path / "policy.yaml"
        path.write_text(yaml.safe_dump(policy), "utf-8")
        return Explained(page_of([str(path)]))

    return of


# --- the page as a whole ---


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_examples(path: Path) -> None:
    page = page_of([str(path)])
    assert page == page_of([str(path)])
    assert page.endswith("\n")
    assert not re.search(r"\bNone\b|\x00| $", page, re.MULTILINE)
    assert all(len(line) <= wording.WIDTH for line in page.splitlines())
    for title in ("Sources", "Sinks", "Targets", "Rotation", "Ray's environment"):
        assert f"\n{title}\n{'=' * len(title)}\n" in page


def test_order_of_keys_means_nothing(tmp_path: Path) -> None:
    pages = []
    for keys in (["version", "name", "sources", "sinks"], ["sinks", "sources", "name", "version"]):
        policy = {"version": 1, "name": "test", "sources": {"b": RAY, "a": {"type": "file", "paths": ["/x"]}}}
        policy["sinks"] = {"loki": LOKI}
        path = tmp_path / "policy.yaml"
        path.write_text(yaml.safe_dump({k: policy[k] for k in keys}, sort_keys=False), "utf-8")
        pages.append(page_of([str(path)]))
    assert pages[0] == pages[1]


def test_hostile_text_stays_on_its_line(told: Any) -> None:
    hostile = 'a  "b" {x} %s \\ ' + "\u202e" + "é"
    page = told(parsing={"rules": [{"name": "r", "add": {"team": hostile}}]})
    assert 'a  "b" {x} %s \\ \\u202eé' in page.text


# --- sources ---


def test_every_family_is_read_or_left_out_with_a_reason(told: Any) -> None:
    page = told(sources={"ray": {"type": "ray", "exclude_components": ["monitor"]}})
    for family in ray.FAMILIES:
        line = page.line(f"{family.name}: {family.globs[0]}" if family.name == family.component else f"{family.name} (")
        assert all(glob in line for glob in family.globs)
        assert family.why_not_default in line
        assert ("not selected" in line) == (family.name == "monitor")
    assert "/tmp/ray/session_2*/logs/" in page.text
    assert "session_latest` is never read" in page.text


def test_where_entries_start(told: Any) -> None:
    page = told()
    for grouping, start in (
        (ray.Grouping.HEADER, "at a line that begins with a header"),
        (ray.Grouping.USER, "at each line that does not look like"),
        (ray.Grouping.LINE, "at each line:"),
    ):
        line = page.line(start)
        names = set(re.split(r", | and ", line.rpartition(": ")[2]))
        assert names == {f.name for f in ray.FAMILIES if f.default and f.grouping is grouping}


def repeats(page: Explained) -> dict[str, str]:
    fates = {}
    for what in ("headers of Serve", "headers of the C++ core", "workers' lines"):
        for line in page.lines:
            fate, _, rest = line.partition(": ")
            if rest.startswith(what):
                fates[what] = fate
    return fates


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, ["dropped", "dropped", "dropped"]),
        ({"sources": {"ray": {"type": "ray", "exclude_components": ["serve"]}}}, ["kept", "dropped", "dropped"]),
        ({"sources": {"ray": {"type": "ray", "components": ["worker", "serve"]}}}, ["dropped", "kept", None]),
        ({"sources": {"ray": {"type": "ray", "components": ["all"]}}}, [None, None, None]),
        ({"ray": {"driver": {"prefix": False}}}, ["dropped", "dropped", "arrive twice"]),
        ({"ray": {"application_format": "json"}}, ["dropped", "dropped", "arrive twice"]),
        ({"ray": {"driver": {"forward": False, "prefix": False}}}, ["dropped", "dropped", None]),
        (
            {"parsing": {"rules": [{"name": "r", "when": {"component": "serve"}, "drop": True}]}},
            ["kept", "dropped", "dropped"],
        ),
    ],
)
def test_repeats(told: Any, parts: dict[str, Any], expected: list[str | None]) -> None:
    found = repeats(told(**parts))
    assert [found.get(k) for k in ("headers of Serve", "headers of the C++ core", "workers' lines")] == expected


def test_replica_prints_move_with_serve_to_stderr_off(told: Any) -> None:
    moved = "moves what replicas print"
    assert any(moved in line for line in told(ray={"serve_to_stderr": False}).lines)
    assert not any(moved in line for line in told().lines)


def test_backups(told: Any) -> None:
    by_ray = told(rotation={"by": "ray"})
    line = by_ray.line("Backups: ")
    assert "(vector does)" in line
    assert "serve" in line
    assert "job_driver" not in line
    assert "job_driver" in by_ray.line("Copies by logrotate: ")
    copied = told(rotation={"by": "logrotate"})
    assert not any(one.startswith("Backups:") for one in copied.lines)
    assert "raylet" in copied.line("Copies by logrotate: ")
    excluded = told(sources={"ray": {"type": "ray", "rotated": "exclude"}})
    assert "not read (`rotated: exclude`)" in excluded.line("Backups: ")


def test_a_file_source(told: Any) -> None:
    page = told(
        collector={"root": "/host"},
        sources={
            "app": {
                "type": "file",
                "paths": ["/data/*.log"],
                "exclude": ["/data/tmp.log"],
                "start": "end",
                "ignore_older": "36h",
                "max_line": "64KiB",
                "on_long_line": "skip",
                "format": {"regex": "^(?P<at>[0-9]+)  (?P<message>.*)$", "time": {"field": "at", "layout": "epoch_s"}},
                "multiline": {"start": "^[0-9]", "max_lines": 7, "timeout": "1500ms"},
            }
        },
    )
    assert page.line("Files: ") == "Files: `/host/data/*.log`"
    assert "`/host/data/tmp.log`" in page.line("But not: ")
    assert all(part in page.line("An entry starts: ") for part in ("`^[0-9]`", "7 lines", "1500ms"))
    assert "`^(?P<at>[0-9]+)  (?P<message>.*)$`" in page.line("It is read: ")
    assert "`at`, written as epoch_s" in page.line("Its time: ")
    assert "36h" in page.line("Old files: ")
    assert "from their end" in page.line("First start: ")
    assert "over 64KiB is left out" in page.line("Size: ")
    assert "Ray's environment\n" not in page.text
    assert "Grows without bound" not in page.text


# --- sinks ---


def test_streams_and_cardinality(told: Any) -> None:
    head = {f.component for f in ray.FAMILIES if f.default}
    worker = {f.component for f in ray.FAMILIES if f.default and not f.head_only}
    page = told(cluster="c")
    line = page.line("Streams to expect: ")
    assert line.endswith(f"at most {len(head) * 7} from a head node, {len(worker) * 7} from a worker node")
    assert page.line("ray: 1").startswith(f"ray: {len(head) * 7} = {len(head)} components x 7 of `level`")
    assert page.line("`component`: ") == f"`component`: {len(head)} values"
    assert page.line("`level`: ") == "`level`: 6 values, or none"
    assert page.line("`cluster`: ") == "`cluster`: 1 value"
    assert page.line("`job`: ") == '`job`: always "test"'
    assert page.line("Labels: ").startswith("Labels: 5;")


def test_streams_without_node_or_bound(told: Any) -> None:
    page = told(
        {"labels": {"static": {}, "fields": ["source", "pid"], "allow_high_cardinality": True}},
        sources={"ray": {"type": "ray", "components": ["raylet"]}},
    )
    line = page.line("Streams to expect: ")
    assert "1 in all" in line
    assert "times the values of `pid`" in line
    assert "nobody knows" in page.line("`pid`: ")


def test_a_filter_on_the_level_lowers_the_count(told: Any) -> None:
    page = told({"when": {"level": {"at_least": "error"}, "component": ["raylet", "worker"]}})
    assert "at most 6 from each node" in page.line("Streams to expect: ")
    assert "= 2 components x 3 of `level` (error, fatal and none)" in page.line("ray: 6")
    assert "its `when` keeps it out" in page.line("from ray nothing of serve: ")


def test_rules_in_order_and_for_their_sinks(told: Any) -> None:
    rules = [
        {"name": "beats", "when": {"component": "raylet", "message": {"matches": "heartbeat  ok"}}, "drop": True},
        {"name": "tenth", "when": {"level": {"below": "info"}}, "sample": {"rate": 0.1, "by": "job_id"}},
        {"name": "other", "when": {"component": "export_events"}, "drop": True},
        {"name": "flood", "limit": {"records": 5000, "per": "90s", "by": ["file", "pid"]}},
        {"name": "mail", "redact": {"kind": "email", "with": "x y"}},
        {"name": "team", "when": {"not": {"level": {"exists": True}}}, "add": {"team": "rl"}, "sinks": ["out"]},
    ]
    page = told(parsing={"rules": rules}, sinks={"loki": LOKI, "out": {"type": "console", "when": {"level": "error"}}})
    loki, out = page.section("Sinks").split("\nout: console")
    assert re.findall(r"\d\. ([a-z-]+)", loki) == ["runtime-env-vars", "beats", "tenth", "other", "flood", "mail"]
    assert re.findall(r"\d\. ([a-z-]+)", out)[-1] == "team"
    for part in (
        'records where `component` is "raylet" and `message` matches `heartbeat  ok`',
        "10%",
        "`job_id`",
        "5,000 records every 90s",
        "`file` and `pid`",
        '"x y"',
        "of kind `email`",
    ):
        assert part in loki
    assert 'adds `team` "rl" to records where `level` is absent' in out
    assert [line.split(". ")[1].split(":")[0] for line in loki.splitlines() if "nothing that comes here" in line] == [
        "other"
    ]


def test_fields_metadata_and_line(told: Any) -> None:
    page = told({"metadata": ["session", "file"]})
    assert page.names("Structured metadata: ") >= {"session", "file", "parse_error", "entry_time", "time_source"}
    assert "worker_id" in page.line("Not delivered: ")
    assert not any(line.startswith("Not delivered") for line in told({"line": "json"}).lines)


@pytest.mark.parametrize(
    ("age", "window", "threshold"), [("2h", "60 minutes", "50 minutes"), ("6h", "3 hours", "2.8 hours")]
)
def test_late_entries(told: Any, age: str, window: str, threshold: str) -> None:
    page = told({"server": {"max_chunk_age": age}, "late": "drop"})
    assert f"more than {window} behind" in page.line("Loki throws away: ")
    assert "204" in page.line("Loki throws away: ")
    line = page.line("so entries ")
    assert f"more than {threshold} behind or 5 minutes ahead" in line
    assert "`late: drop`" in line
    assert f"`max_chunk_age` is {age}" in page.line("Assumed of the server: ")


def test_what_loki_loses_and_merges_was_measured(told: Any) -> None:
    page = told()
    assert str(measured.LOKI_TOO_FAR_BEHIND) == "67 of 2,224"
    assert "67 of 2,224" in page.line("Loki throws away: ")
    assert "7 of 1,493" in page.line("Loki stores once: ")
    assert "`entry_time`" in page.line("so entries ")


def test_lines_longer_than_the_server_takes(told: Any) -> None:
    assert "no line reaches it" in told().line("Assumed of the server: ")
    cut = "cut to it and marked"
    assert cut in told({"server": {"max_line_size": "100KiB"}}).line("Assumed of the server: ")
    assert cut in told({"line": "json"}).line("Assumed of the server: ")


def test_delivery(told: Any) -> None:
    page = told({"buffer": {"max_size": "2GiB", "when_full": "drop_newest"}, "retry": {"give_up_after": "1h"}})
    assert "vector: at least once" in page.line("Delivery: ")
    assert "2GiB" in page.line("Buffer: ")
    assert "new records are thrown away" in page.line("Buffer: ")
    assert "for 1h" in page.line("When the sink fails: ")
    assert told({"delivery": "best_effort"}).line("Delivery: ").startswith("Delivery: best effort")


def test_a_delivery_that_a_target_does_not_have(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("sinks.*.delivery", Status.UNSUPPORTED, "no", values=frozenset({"at_least_once"}))
    monkeypatch.setitem(capabilities.TABLE, "vector", (row, *capabilities.TABLE["vector"]))
    assert "vector: best effort" in told().line("Delivery: ")


# --- targets ---


def test_what_is_not_exact_in_the_policy_comes_first(told: Any) -> None:
    page = told(sources={"ray": {"type": "ray", "ignore_older": "7d"}})
    here, elsewhere = page.section("Targets").split("Not exact elsewhere in the language")
    (row,) = (r for r in deviations("vector", (0, 57), leaves()) if r.leaf == "sources.*.ignore_older")
    assert f"`sources.ray.ignore_older`: approximated: {row.text}" in here
    assert row.text not in elsewhere
    for other in deviations("vector", (0, 57), leaves()):
        assert (other.text in elsewhere) == (other is not row)


def test_value_used_and_way_out(told: Any) -> None:
    page = told({"buffer": {"max_size": "1MiB"}})
    line = page.line("`sinks.loki.buffer.max_size`: approximated: ")
    assert "268435488" in line
    assert "Way out: " in line


def test_a_target_that_cannot(told: Any) -> None:
    page = told({"buffer": {"when_full": "drop_oldest"}})
    assert "nothing, since it cannot" in page.line("Writes: ")
    assert "Way out: use block or drop_newest" in page.line("`sinks.loki.buffer.when_full`: unsupported: ")


def test_versions(told: Any) -> None:
    assert "\nvector 0.57\n" in told().text
    assert "\nvector 0.56\n" in told(target="0.56").text
    assert "older than" in told(target="0.10").section("Targets")
    assert "newer than" in told(target="0.99").section("Targets")
    assert "vector" in told(targets={}).section("Targets")


def test_other_keys_are_counted(told: Any) -> None:
    page = told(rotation={"max_size": "1MiB"})
    # name, sources.ray.type, sinks.loki.type and .endpoint
    assert page.line("Exact: ").startswith("Exact: 4 other keys")
    assert page.line("`rotation.max_size`: ")


def test_rows_behind_one_that_holds_for_some_values_are_found() -> None:
    """`give_up_after: never` is exact, any other value is not."""
    assert "sinks.*.retry.give_up_after" in {row.leaf for row in deviations("vector", (0, 57), leaves())}
    for name in base.implemented():
        newest = base.release(base.get(name).versions[-1])
        for row in capabilities.TABLE[name]:
            wanted = row.status not in (Status.EXACT, Status.ELSEWHERE) and row.since <= newest < row.before
            assert (row in deviations(name, newest, leaves())) == wanted


# --- rotation and Ray's environment ---


def grows(page: Explained) -> set[str]:
    return page.names("Grows without bound: ")


def test_what_grows(told: Any) -> None:
    assert grows(told()) == {f.name for f in ray.FAMILIES if f.rotates is not Rotates.ALWAYS}
    assert grows(told(rotation={})) == {f.name for f in ray.FAMILIES if f.rotates is Rotates.NEVER and not f.default}
    assert grows(told(rotation={}, sources={"ray": {"type": "ray", "components": ["all"]}})) == {"none"}
    logrotate = told(rotation={"by": "logrotate"})
    assert logrotate.names("logrotate copies and truncates") >= {f.name for f in ray.FAMILIES if f.default}


def test_price_of_rays_rotation(told: Any) -> None:
    assert "29 of 500" in told(rotation={"by": "ray"}).line("Price of Ray's rotation: ")
    for page in (told(), told(rotation={"by": "logrotate"})):
        assert "29 of 500" not in page.text


def test_arithmetic(told: Any) -> None:
    settings = {"max_size": "1GiB", "backups": 3, "expected_rate": "2MiB/s", "disk_budget": "1TiB"}
    page = told(
        rotation=settings,
        sinks={
            "loki": {**LOKI, "buffer": {"max_size": "14400MiB"}},
            "two": {**LOKI, "buffer": {"when_full": "drop_newest"}},
            "out": {"type": "console"},
        },
    )
    assert page.line("Ring of one file: ") == "Ring of one file: 4GiB = 1GiB x (3 backups + 1)"
    assert page.line("Ring time: ").startswith("Ring time: 34.1 minutes = 4GiB / 2MiB/s")
    assert f"{rotation.size(2 * 2**20 * 86400)} a day" in page.line("Bandwidth: ")
    assert page.line("Bandwidth: ").endswith("with 2 sinks over the network 4MiB/s")
    assert page.line("Buffer of loki: ").startswith("Buffer of loki: 2.00 hours")
    assert "34.1 minutes more" in page.line("Buffer of loki: ")
    assert "more" not in page.line("Buffer of two: ")
    files = int(re.findall(r"= (\d+) files", page.line("Worst-case disk: "))[0])
    policy_families = [f for f in ray.FAMILIES if f.default]
    assert files == rotation.least_files(policy_families)
    assert page.line("Worst-case disk: ").startswith(f"Worst-case disk: {rotation.size(files * 4 * 2**30)} =")
    assert "12GiB = 3 files" in page.line("each further worker process: ")
    assert f"enough for {(1024 - 4 * files) // 12} further" in page.line("Disk budget: ")
    small = told(rotation={**settings, "disk_budget": "10GiB"})
    assert small.line("Disk budget: ").endswith("too little")


def test_arithmetic_needs_numbers(told: Any) -> None:
    assert "nothing to reckon with" in told().line("Disk and ring time: ")
    assert "Ring time" not in told(rotation={}).text


def test_environment(told: Any) -> None:
    page = told(ray={"system_level": "warn", "application_format": "json"}, rotation={"max_size": "64MiB"}).section(
        "Ray's environment"
    )
    node, driver = page.split("`ray/driver.env`")
    assert "RAY_ROTATION_MAX_BYTES=67108864:" in node
    assert "RAY_ROTATION_BACKUP_COUNT=5:" in node
    assert "RAY_BACKEND_LOG_LEVEL=warning:" in node
    assert "RAY_LOGGING_CONFIG_ENCODING=JSON:" in driver
    assert "RAY_DEDUP_LOGS: " in driver.split("Not set")[1]
    assert "No variable is rendered" in told().section("Ray's environment")


# --- words ---


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({}, "all records"),
        ({"component": "raylet"}, 'records where `component` is "raylet"'),
        ({"component": ["a", "b", "c"]}, 'records where `component` is "a", "b" or "c"'),
        ({"pid": {"exists": True}}, "records where `pid` is there"),
        ({"pid": {"exists": False}}, "records where `pid` is absent"),
        ({"level": {"at_least": "warn"}}, "records where the level is warn or graver, or there is none"),
        ({"level": {"below": "warn"}}, "records where the level is below warn"),
        ({"not": {"component": "a"}}, 'records where this does not hold: (`component` is "a")'),
        (
            {"any": [{"component": "a", "pid": 1}, {"level": {"at_least": "warn"}}]},
            'records where (`component` is "a" and `pid` is "1") or (the level is warn or graver, or there is none)',
        ),
    ],
)
def test_conditions_in_words(when: dict[str, Any], words: str) -> None:
    assert wording.records(conditions.parse(when)).replace("\x00", " ") == words


def test_no_record_in_words() -> None:
    assert wording.records(conditions.NEVER) == "no record"


@pytest.mark.parametrize(
    ("ms", "words"),
    [(1, "1ms"), (1500, "1500ms"), (5000, "5s"), (90_000, "90s"), (7_200_000, "2h"), (604_800_000, "7d")],
)
def test_durations(ms: int, words: str) -> None:
    assert wording.duration(ms) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 second"), (0.5, "0.5 seconds"), (119, "119 seconds"), (120, "2 minutes"), (3600, "60 minutes"),
     (9000, "2.5 hours"), (172_800, "2 days")],
)  # fmt: skip
def test_spans(seconds: float, words: str) -> None:
    assert wording.span(seconds) == words


def test_choices_may_be_none_or_without_target() -> None:
    policy = load([str(EXAMPLES / "minimal.yaml")])
    pipeline = resolve(policy)
    nothing = Choice("fluentd", "", None, ())
    assert "fluentd" in explain(policy, pipeline, [nothing])
    assert "Known: vector" in explain(policy, pipeline, [])


# --- VeRL ---


def test_what_a_level_of_verl_costs(told: Any) -> None:
    engine = {"engine": {"type": "verl", "paths": ["/v.log"]}}
    rotation, verl = {"max_size": "175MiB", "backups": 3}, {"engine_worker": {"level": "debug"}}
    page = told(sources=engine, rotation=rotation, verl=verl)
    costs = "18.4 MB/s, 1590 GB a day, 15.7% of throughput; its ring of 700MiB turns over in 39.9 seconds"
    assert costs in page.line("DEBUG: ")
    assert "0.02 hours = 1GiB / 17.548MiB/s" in page.section("VeRL")
    assert "logrotate/verl" in page.section("Rotation")
    assert "WARN and above" in told(sources=engine).section("VeRL")
    assert "\nVeRL\n" not in told().text
