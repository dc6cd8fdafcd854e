"""Rules and conditions as VRL, run by Vector's engine on recorded lines, against what the harness expects of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from making import LOKI, TREES, FakeVector, Record, config_of, nanoseconds, policy, resolved, run

from shipgen.catalog import ray
from shipgen.harness import expect, reference
from shipgen.pipeline import conditions, grouping
from shipgen.policy.model import REDACT_KINDS
from shipgen.rendering.environment import environment
from shipgen.targets.base import condition_context

SECRETS = [
    "mail to jane.doe+x@example.com and bob@corp.example.org", "peer 10.0.0.12:6379 and [fe80::1:2] at v1.2.3",
    "Authorization: Bearer abc.def-ghi_jklmnop", "https://user:s3cret@host/path", "AKIAABCDEFGHIJKLMNOP x",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY----- rest", "token=abc123, token='x y' token=",
    "costs $1 and ${2}, 100%", "Creating runtime env: {\"env_vars\": {\"FOO\": \"ba\\\"r\", \"N\": \"1\"}} with",
    '{"message":"mail bob@example.com","levelname":"INFO","process":7,"k":{"deep":["a@b.example.com",1,null,true]}}',
    '{"message":"token=abc","asctime":"2026-12-01 05:29:04,009","n":1.5,"big":1796103383438123456}',
    '{"message":"\\u001b[31mtoken=abc\\u001b[0m","env_vars":{"A":"secret","B":"2"}}\ntoken=second line',
    '{"token=x":"keys stay","message":"m"}', '{"message":"broken token=abc',
    "日本 token=é", "no secret at all", "x" * 3000 + " token=long",
]


LOGS = "/tmp/ray/session_2026-12-01_00-00-00_000000_1/logs"
HEAD = "2026-12-01 05:36:23,438\tINFO a.py:3 -- "
HIDDEN = [(f"{LOGS}/dashboard.log", "dashboard", ("" if text.startswith("{") else HEAD) + text) for text in SECRETS]


@cache
def of_trees() -> list[tuple[str, str, str]]:
    """Some groups of every family: path, family, text."""
    found: list[tuple[str, str, str]] = []
    files: Counter[tuple[str, str]] = Counter()
    for tree in ("text", "json"):
        for session, below, path in reference.files(TREES / tree, reference.Options(everything=True)):
            (family,) = ray.families_of(below)
            lines = path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]
            groups = list(grouping.ray_groups(lines, family.grouping))
            files[tree, family.name] += bool(groups)
            if files[tree, family.name] <= 3:
                found += [(f"/tmp/ray/{session}/logs/{below}", family.name, group) for group in groups[:4]]
    return found


def arrived(data: dict[str, Any], events: Sequence[tuple[str, str, str]]) -> Iterator[tuple[str, Record]]:
    """What each Loki sink gets, with the sink's name."""
    fake = FakeVector(config_of(data))
    for path, family, text in events:
        for id_, got in fake.send(f"ray:{family}", {"message": text, "file": path}).items():
            for event in got:
                yield id_.removeprefix("out::"), event


def texts(labels: str) -> dict[str, str]:
    return {k: ("true" if v is True else str(v)) for k, v in json.loads(labels).items()}


def agree(rules: list[dict[str, Any]], events: Sequence[tuple[str, str, str]], **sink: Any) -> int:
    """Each record arrives as the harness expects it; gives how many there are."""
    loki = {**LOKI, "late": "keep", "compression": "gzip", **sink}
    data = policy(
        cluster="c", sources={"ray": {"type": "ray", "components": ["all"]}},
        parsing={"timezone": "UTC", "rules": rules}, sinks={"loki": loki},
    )
    pipeline = resolved(data)
    options = reference.Options(cluster="c", everything=True)
    records: list[Record] = []
    for path, _, text in events:
        session, below = path.removeprefix("/tmp/ray/").split("/logs/", 1)
        records += reference.read_file(below, f"{text}\n".encode(), options, session)
    (target,) = pipeline.sinks
    expected = list(expect.expectations(pipeline, target, records))
    got = [event for _, event in arrived(data, events)]
    assert len(got) == len(expected)
    for event, wanted in zip(got, expected, strict=True):
        line = event["message"]
        assert wanted.agrees(line), (line, wanted.line)
        assert expect.leftovers(wanted, line) == []
        labels, metadata = texts(event["labels"]), texts(event["metadata"])
        for ours, theirs in ((labels, wanted.labels), (metadata, wanted.metadata)):
            assert set(ours) == set(theirs)
            assert all(wanted.field_agrees(theirs[k], ours[k]) for k in ours), (ours, theirs)
        if wanted.time_ns is not None:
            assert nanoseconds(event["timestamp"]) == wanted.time_ns
        if wanted.record["raw"].startswith('{"') and "parse_error" not in wanted.record and "line" not in sink:
            assert isinstance(json.loads(line.split("\n")[0]), dict)  # it stays JSON
    return len(got)


CONDITIONS: dict[str, dict[str, Any]] = {
    "equal": {"component": "raylet"},
    "one of": {"component": ["raylet", "worker"], "stream": "err"},
    "level": {"level": "warn"},
    "levels": {"level": ["info", "error"]},
    "at least": {"level": {"at_least": "warn"}},
    "at least the least": {"level": {"at_least": "trace"}},
    "below": {"level": {"below": "warn"}},
    "below the least": {"level": {"below": "trace"}},
    "between": {"level": {"at_least": "debug", "below": "error"}},
    "level matches": {"level": {"matches": "^w"}},
    "level exists": {"level": {"exists": False}},
    "matches": {"message": {"matches": r"(?i)worker|\bactor\b"}},
    "matches in several lines": {"raw": {"matches": r"^[^\n]*\n"}},
    "matches what is absent": {"actor_name": {"matches": "."}},
    "exists": {"job_id": {"exists": True}},
    "is absent": {"job_id": {"exists": False}},
    "any": {"any": [{"component": "raylet"}, {"level": "error"}, {"job_id": {"exists": True}}]},
    "all": {"all": [{"message": {"matches": "o"}}, {"message": {"matches": "e"}}, {"component": "raylet"}]},
    "not": {"not": {"component": "raylet"}},
    "not what is absent": {"not": {"job_id": "01000000"}},
    "not matches what is absent": {"not": {"actor_name": {"matches": "x"}}},
    "nested": {"any": [{"not": {"any": [{"level": "info"}, {"not": {"stream": "out"}}]}}, {"pid": {"matches": "^1"}}]},
    "numbers": {"pid": 11309},
    "flags": {"parse_error": True},
    "no flags": {"parse_error": False},
    "not a flag": {"not": {"parse_error": True}},
    "flags match": {"parse_error": {"matches": "^true$"}},
    "session": {"session": {"matches": "^session_2026"}, "file": {"matches": r"\.(out|err)$"}},
    "time source": {"time_source": "read"},
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_drop(name: str) -> None:
    count = agree([{"name": "r", "when": CONDITIONS[name], "drop": True}], of_trees()[::2])
    assert count < len(of_trees()[::2])


@pytest.mark.parametrize("name", CONDITIONS)
def test_sink_conditions(name: str) -> None:
    agree([], of_trees()[::3], when=CONDITIONS[name])


@pytest.mark.parametrize("sink", [
    {"metadata": ["team", "pid"]}, {"labels": {"static": {"a": "b"}, "fields": ["team"]}}, {"line": "json"},
    {"line": "message"},
])
def test_add(sink: dict[str, Any]) -> None:
    rules = [
        {"name": "a", "add": {"team": "rl {{ infra }} $X ${Y} %F '\"\\", "other": "x"}},
        {"name": "b", "when": {"level": "warn"}, "add": {"team": "second"}},
        {"name": "c", "when": {"team": "second"}, "add": {"third": "é日"}},
        {"name": "d", "when": {"third": {"exists": True}, "component": "worker"}, "drop": True},
    ]
    agree(rules, of_trees()[::3], **sink)


PATTERNS = [
    {"pattern": r"token=[^\s\"',}]+", "with": "token=[redacted]"},
    {"pattern": "o", "with": "0"},
    {"pattern": "[0-9a-f]{8,}"},
    {"pattern": "(?i)INFO", "with": "$1 ${x} $$ \\1 {{ y }}"},
    {"pattern": r"\b\d+\b", "with": "#"},
    {"pattern": "^.", "with": "^"},
    {"pattern": "raylet|worker", "with": "é'\"\\"},
    {"pattern": "(?P<a>t)(o)", "with": "${a}$2"},
]


@pytest.mark.parametrize("redact", PATTERNS, ids=lambda r: r["pattern"])
@pytest.mark.parametrize("line", ["raw", "message"])
def test_redaction_by_pattern(redact: dict[str, Any], line: str) -> None:
    agree([{"name": "r", "redact": redact}], of_trees()[::5], line=line)
    agree([{"name": "r", "redact": redact}], HIDDEN, line=line)


@pytest.mark.parametrize("kind", REDACT_KINDS)
@pytest.mark.parametrize("with_", [None, "x.x", "é $1 ${2}", 'a"b\\c'])
def test_redaction_by_kind(kind: str, with_: str | None) -> None:
    redact = {"kind": kind} if with_ is None else {"kind": kind, "with": with_}
    rules = [{"name": "r", "redact": redact}]
    if with_ is None:
        agree(rules, [h for h in HIDDEN if "env_vars" not in h[2] or kind != "ray_env_vars"] + of_trees()[::5])
    for _, event in arrived(policy(parsing={"rules": rules}), HIDDEN):
        line = event["message"]
        if line.startswith("{") and "broken" not in line:
            assert isinstance(json.loads(line.split("\n")[0]), dict)


def _record(message: str, redact: dict[str, Any], below: str = "dashboard.log", **sources: Any) -> Record:
    data = policy(
        sources={"ray": {"type": "ray", **sources}}, sinks={"c": {"type": "console"}},
        parsing={"rules": [{"name": "r", "redact": redact}]},
    )
    family = ray.families_of(below)[0].name
    event = {"message": message, "file": f"{LOGS}/{below}"}
    (record,) = FakeVector(config_of(data)).send(f"ray:{family}", event)["out::c"]
    return record


@pytest.mark.parametrize("text", ["$1", "${a}", "$$", "\\1", "%Y {{ x }}", "", '"', "é", "a\\b", "SECRET[a.b]"])
def test_replacements_are_literal(text: str) -> None:
    assert _record("a (b) c", {"pattern": "(?P<a>b)", "with": text})["message"] == f"a ({text}) c"
    record = _record('{"message":"a (b) c"}', {"pattern": "(?P<a>b)", "with": text})
    assert json.loads(record["raw"]) == {"message": f"a ({text}) c"}
    assert record["message"] == f"a ({text}) c"
    record = _record('{"env_vars":{"A":"b"}}', {"kind": "ray_env_vars", "with": text})
    assert json.loads(record["raw"]) == {"env_vars": {"redacted": text}}
    assert record["extra"] == {"env_vars": {"redacted": text}}


def test_every_string_field_is_redacted_and_nothing_else() -> None:
    entry = json.dumps({"message": "tok", "process": 12, "filename": "tok.py", "lineno": 3, "job_id": "tok1", "n": 4,
                        "deep": {"a": ["tok", 5, None, True, {"b": "xtokx"}]}, "tok": "keys stay"})
    record = _record(entry, {"pattern": "tok", "with": "T"})
    assert record["message"] == "T"
    assert record["caller"] == "T.py:3"
    assert record["job_id"] == "T1"
    assert record["extra"] == {"n": 4, "deep": {"a": ["T", 5, None, True, {"b": "xTx"}]}, "tok": "keys stay"}
    assert json.loads(record["raw"]) == {
        "message": "T", "process": 12, "filename": "T.py", "lineno": 3, "job_id": "T1", "n": 4,
        "deep": {"a": ["T", 5, None, True, {"b": "xTx"}]}, "tok": "keys stay"}


def test_a_json_entry_without_a_secret_stays_as_it_was_written() -> None:
    entry = '{ "b":1,  "a" : "x","message":"m"}'.replace("{ ", "{")
    assert _record(entry, {"pattern": "secret"})["raw"] == entry


def test_raylet_and_driver_lines_of_env_vars_are_redacted_by_default() -> None:
    """The agent's log prints them; nothing has to be asked for."""
    data = policy(sinks={"c": {"type": "console"}})
    path = f"{LOGS}/runtime_env_agent.log"
    line = '2026-12-01 05:36:44,009\tINFO a.py:5 -- Creating runtime env: {"env_vars": {"KEY": "s3cret"}} with timeout'
    (record,) = FakeVector(config_of(data)).send("ray:runtime_env_agent", {"message": line, "file": path})["out::c"]
    assert "s3cret" not in json.dumps(record)
    assert '{"redacted": "[redacted]"}' in record["raw"]


def test_rules_in_order_on_redacted_text() -> None:
    rules = [
        {"name": "a", "redact": {"pattern": "raylet", "with": "R"}},
        {"name": "b", "when": {"file": {"matches": "^R"}}, "add": {"seen": "yes"}},
        {"name": "c", "when": {"component": "raylet"}, "drop": True},
        {"name": "d", "redact": {"pattern": "yes", "with": "no"}},
        {"name": "e", "redact": {"pattern": "no", "with": "maybe"}, "when": {"seen": "no"}},
    ]
    agree(rules, of_trees()[::4], metadata=["file", "seen"])


def test_rules_have_one_way_in() -> None:
    """With two, what lies behind would be compiled twice, for each redaction before it."""
    rules = [{"name": f"{kind}{n}", **rule} for n in range(3) for kind, rule in (
        ("r", {"redact": {"pattern": f"t{n}"}}), ("a", {"add": {f"f{n}": "x"}}))]
    config = config_of(policy(parsing={"rules": rules}, sinks={"c": {"type": "console"}}))
    steps = {id_: t["inputs"] for id_, t in config["transforms"].items() if id_.startswith("rule::")}
    behind = [inputs for inputs in steps.values() if inputs[0].startswith("rule::")]
    assert len(behind) == 5
    assert all(len(inputs) == 1 for inputs in behind)
    failed = {id_ for id_ in config["transforms"] if id_.startswith("failed::")}
    assert len(failed) == 3
    assert failed < set(config["transforms"]["shape::c"]["inputs"])


def test_what_of_a_record_is_left_when_its_redaction_fails() -> None:
    config = config_of(policy(sinks={"c": {"type": "console"}}, cluster="c"))
    program = config["transforms"]["failed::runtime-env-vars"]["source"]
    kept = {
        "source": "ray", "file": "f", "component": "x", "node": "n", "session": "s", "cluster": "c", "timestamp": "t"}
    gone = {"raw": "secret", "message": "secret", "extra": {"a": "secret"}, "caller": "secret", "job_id": "secret"}
    assert run(program, {**kept, **gone}) == {**kept, "raw": "[redaction failed]", "message": "[redaction failed]"}
    redact = config["transforms"]["rule::runtime-env-vars"]
    assert (redact["drop_on_error"], redact["reroute_dropped"]) == (True, True)
    for id_, transform in config["transforms"].items():
        if transform["type"] == "remap" and not id_.startswith("rule::"):
            assert (transform["drop_on_error"], transform["drop_on_abort"]) == (False, True), id_


def test_sample_and_limit() -> None:
    rules = [
        {"name": "s", "when": {"component": "worker"}, "sample": {"rate": 0.00001, "by": "job_id"}},
        {"name": "t", "sample": 0.25},
        {"name": "l", "when": {"level": {"at_least": "warn"}},
         "limit": {"records": 5, "per": "500ms", "by": ["file", "pid"]}},
        {"name": "m", "limit": {"records": 1_000_000_000, "per": "2h"}},
    ]
    found = config_of(policy(parsing={"rules": rules}))["transforms"]
    assert {k: v for k, v in found["rule::s"].items() if k not in ("inputs", "exclude")} == {
        "type": "sample", "ratio": 0.00001, "sample_rate_key": "sample_rate", "key_field": "job_id"}
    assert {k: v for k, v in found["rule::t"].items() if k not in ("inputs", "exclude")} == {
        "type": "sample", "ratio": 0.25, "sample_rate_key": "sample_rate"}
    assert {k: v for k, v in found["rule::l"].items() if k not in ("inputs", "exclude")} == {
        "type": "throttle", "threshold": 5, "window_secs": 0.5, "key_field": "{{ file }}|{{ pid }}",
        "internal_metrics": {"emit_events_discarded_per_key": False}}
    assert (found["rule::m"]["threshold"], found["rule::m"]["window_secs"]) == (1_000_000_000, 7200.0)

    def excluded(rule: str, **event: Any) -> bool:
        after = run(f".out = ({found[rule]['exclude']['source']})", event)
        assert after is not None
        return bool(after["out"])

    assert not excluded("rule::s", component="worker")
    assert excluded("rule::s", component="raylet")
    assert not excluded("rule::t")
    assert not excluded("rule::l", level="error")
    assert not excluded("rule::l")
    assert excluded("rule::l", level="info")


# --- any condition ---

FIELDS = ["component", "level", "message", "job_id", "pid", "parse_error", "team", "stream"]
VALUES = ["raylet", "info", "warn", "a", "A b", "01000000", "true", "", "x$y", "no", "é", '"', "12"]
words = st.sampled_from(FIELDS)


def _tests(level: bool) -> st.SearchStrategy[Any]:
    regex = st.sampled_from(["a", "^a", "b$", "(?i)A", r"\w+", r"\d", "^$", "é", r"\$", "x|y", "[^a]"])
    maps = st.fixed_dictionaries({}, optional={"matches": regex, "exists": st.booleans()}).filter(bool)
    if level:
        names = st.sampled_from(expect.LEVELS)
        bounds = st.fixed_dictionaries({}, optional={"at_least": names, "below": names}).filter(bool)
        return names | st.lists(names, min_size=1, max_size=3) | bounds | maps
    return st.sampled_from(VALUES) | st.lists(st.sampled_from(VALUES), min_size=1, max_size=3) | maps


leaf = words.flatmap(lambda f: _tests(f == "level").map(lambda t: {f: t}))
tree = st.recursive(
    leaf,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda of: {"any": of})
    | inner.map(lambda of: {"not": of})
    | st.tuples(inner, leaf).map(lambda pair: {**pair[0], **pair[1]}), max_leaves=6)

RECORDS: list[Record] = [
    {}, {"component": "raylet", "level": "info", "message": "a"}, {"level": "warn", "message": "A b", "pid": "12"},
    {"level": "fatal", "job_id": "01000000", "stream": "err"}, {"level": "trace", "message": ""}, {"parse_error": True},
    {"message": "x$y", "team": "no"}, {"message": "é\nb", "component": "worker"}, {"message": '"', "level": "debug"},
    {"message": "a\nx", "level": "error", "team": "raylet", "truncated": True}, {"job_id": "", "pid": "7"},
]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree)
def test_any_condition(when: dict[str, Any]) -> None:
    condition = conditions.parse(when)
    template = environment().get_template("vector/condition.vrl.j2").module
    source = re.sub(r"\s*\n\s*", " ", str(template.when(condition_context(condition)))).strip()  # type: ignore[attr-defined]
    for record in RECORDS:
        after = run(f".holds = ({source})", record)
        assert after is not None
        assert after["holds"] == expect.holds(condition, record), (source, record)
