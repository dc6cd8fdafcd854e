"""Rules and conditions as Lua, run by LuaJIT on recorded lines, against what the harness expects of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import re2
from hypothesis import HealthCheck, given, settings
from lua import NOW, FakeFluentBit, Sent
from lupa.luajit21 import LuaRuntime
from making import FILE, LOKI, Record, judged, policy, resolved
from test_vector_rules import CONDITIONS, HIDDEN, LOGS, PATTERNS, RECORDS, of_trees, tree

from shipgen.catalog import ray
from shipgen.harness import expect, reference
from shipgen.pipeline import conditions
from shipgen.policy.model import REDACT_KINDS
from shipgen.rendering.environment import environment
from shipgen.targets.base import condition_context

Events = Sequence[tuple[str, str, str]]


def arrived(data: dict[str, Any], events: Events, now: float = NOW) -> Iterator[tuple[str, Sent]]:
    """What each sink gets, with its name."""
    fake = FakeFluentBit(data)
    for path, family, text in events:
        tag = f"ray.{ray.BY_NAME[family].grouping.value}"
        for name, got in fake.send(tag, path, f"{text}\n".encode(), now).items():
            for sent in got:
                yield name, sent


def texts(values: dict[str, Any]) -> dict[str, str]:
    return {k: "true" if v is True else str(v) for k, v in values.items()}


def agree(rules: list[dict[str, Any]], events: Events, **sink: Any) -> int:
    """Each record arrives as the harness expects it; gives how many there are."""
    loki = {**LOKI, "late": "keep", **sink}
    data = policy(
        cluster="c", collector={"node": "node"}, sources={"ray": {"type": "ray", "components": ["all"]}},
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
    got = [sent for _, sent in arrived(data, events)]
    assert len(got) == len(expected)
    for sent, wanted in zip(got, expected, strict=True):
        line = sent.record["line"]
        assert wanted.agrees(line), (line, wanted.line)
        assert expect.leftovers(wanted, line) == []
        for ours, theirs in ((texts(sent.record["l"]), wanted.labels), (texts(sent.record["m"]), wanted.metadata)):
            assert set(ours) == set(theirs)
            assert all(wanted.field_agrees(theirs[k], ours[k]) for k in ours), (ours, theirs)
        if wanted.time_ns is not None:
            assert sent.time == wanted.time_ns
        if wanted.record["raw"].startswith('{"') and "parse_error" not in wanted.record and "line" not in sink:
            assert isinstance(json.loads(line.split("\n")[0]), dict)  # it stays JSON
    return len(got)


@pytest.mark.parametrize("name", CONDITIONS)
def test_drop(name: str) -> None:
    assert agree([{"name": "r", "when": CONDITIONS[name], "drop": True}], of_trees()) < len(of_trees())


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


@pytest.mark.parametrize("redact", PATTERNS, ids=lambda r: r["pattern"])
@pytest.mark.parametrize("line", ["raw", "message", "json"])
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
    for _, sent in arrived(policy(parsing={"rules": rules}), HIDDEN):
        line = sent.record["line"]
        if line.startswith("{") and "broken" not in line:
            assert isinstance(json.loads(line.split("\n")[0]), dict)


def _record(message: str, redact: dict[str, Any], below: str = "dashboard.log") -> Record:
    rules = [{"name": "r", "redact": redact}]
    data = policy(sources={"ray": {"type": "ray"}}, sinks={"c": {"type": "console"}}, parsing={"rules": rules})
    ((_, sent),) = arrived(data, [(f"{LOGS}/{below}", ray.families_of(below)[0].name, message)])
    record: Record = json.loads(sent.record["line"])
    return record


@pytest.mark.parametrize("text", ["$1", "${a}", "$$", "\\1", "%1 %Y {{ x }}", "", '"', "é", "a\\b", "SECRET[a.b]"])
def test_replacements_are_literal(text: str) -> None:
    assert _record("a (b) c", {"pattern": "(?P<a>b)", "with": text})["message"] == f"a ({text}) c"
    record = _record('{"message":"a (b) c"}', {"pattern": "(?P<a>b)", "with": text})
    assert json.loads(record["raw"]) == {"message": f"a ({text}) c"}
    assert record["message"] == f"a ({text}) c"
    record = _record('{"env_vars" : {"A" : "b"}}', {"kind": "ray_env_vars", "with": text})
    assert json.loads(record["raw"]) == {"env_vars": {"redacted": text}}
    assert record["extra"] == {"env_vars": {"redacted": text}}


def test_every_string_field_is_redacted_and_nothing_else() -> None:
    entry = json.dumps({"message": "tok", "process": 12, "filename": "tok.py", "lineno": 3, "job_id": "tok1", "n": 4,
                        "deep": {"a": ["tok", 5, None, True, {"b": "xtokx"}], "big": 1796103383438123456, "f": 1.0},
                        "tok": "keys stay"})
    record = _record(entry, {"pattern": "tok", "with": "T"})
    assert (record["message"], record["caller"], record["job_id"]) == ("T", "T.py:3", "T1")
    deep = {"a": ["T", 5, None, True, {"b": "xTx"}], "big": 1796103383438123456, "f": 1.0}
    assert record["extra"] == {"n": 4, "deep": deep, "tok": "keys stay"}
    assert json.loads(record["raw"]) == {
        "message": "T", "process": 12, "filename": "T.py", "lineno": 3, "job_id": "T1", "n": 4, "deep": deep,
        "tok": "keys stay"}


def test_a_json_entry_without_a_secret_stays_as_it_was_written() -> None:
    entry = '{"b":1,  "a" : "x","message":"m", "e": "\\u00e9\\/"}'
    assert _record(entry, {"pattern": "secret"})["raw"] == entry
    assert _record(entry, {"kind": "ray_env_vars"})["raw"] == entry


def test_env_vars_are_redacted_by_default() -> None:
    """The agent's log prints them; nothing has to be asked for."""
    line = '2026-12-01 05:36:44,009\tINFO a.py:5 -- Creating runtime env: {"env_vars": {"KEY": "s3cret"}} with timeout'
    path = f"{LOGS}/runtime_env_agent.log"
    ((_, sent),) = arrived(policy(sinks={"c": {"type": "console"}}), [(path, "runtime_env_agent", line)])
    assert "s3cret" not in json.dumps(sent.record)
    assert '{"redacted": "[redacted]"}' in json.loads(sent.record["line"])["raw"]


def test_rules_in_order_on_redacted_text() -> None:
    rules = [
        {"name": "a", "redact": {"pattern": "raylet", "with": "R"}},
        {"name": "b", "when": {"file": {"matches": "^R"}}, "add": {"seen": "yes"}},
        {"name": "c", "when": {"component": "raylet"}, "drop": True},
        {"name": "d", "redact": {"pattern": "yes", "with": "no"}},
        {"name": "e", "redact": {"pattern": "no", "with": "maybe"}, "when": {"seen": "no"}},
    ]
    agree(rules, of_trees()[::4], metadata=["file", "seen"])


def test_a_redaction_that_fails_delivers_nothing_of_the_text() -> None:
    data = policy(sinks={"a": {"type": "console"}, "b": LOKI}, cluster="c", collector={"node": "n"},
                  parsing={"rules": [{"name": "r", "redact": {"pattern": "secret"}}]})
    fake = FakeFluentBit(data)
    path = f"{LOGS}/raylet.out"
    fake.fault = "secret"
    sent = fake.send("ray.header", path, b"[2026-12-01 05:36:23,438 W 1 2] a.cc:1: a secret\n")
    kept = {"source": "ray", "file": "raylet.out", "component": "raylet", "node": "n", "cluster": "c",
            "session": LOGS.split("/")[3], "time_source": "read"}
    (ours,) = sent["a"]
    record = json.loads(ours.record["line"])
    assert record.pop("time").startswith("2026-")
    assert record == {**kept, "raw": "[redaction failed]", "message": "[redaction failed]"}
    (theirs,) = sent["b"]
    assert theirs.record["line"] == "[redaction failed]"
    assert {**theirs.record["m"], **theirs.record["l"]} == {**kept, "job": "t"}
    assert fake.counted == ["redaction_failed"]


@pytest.mark.parametrize("more", [{}, {"b": LOKI}])
def test_what_no_sink_takes_is_not_delivered_when_a_redaction_fails(more: dict[str, Any]) -> None:
    sinks = {"a": {"type": "console", "when": {"component": "gcs_server"}}, **more}
    rules = [{"name": "r", "redact": {"pattern": "secret"}}, {"name": "d", "drop": True, "sinks": list(more) or ["a"]}]
    fake = FakeFluentBit(policy(sinks=sinks, parsing={"rules": rules}))
    fake.fault = "secret"
    entry = b"[2026-12-01 05:36:23,438 W 1 2] a.cc:1: a secret\n"
    assert fake.send("ray.header", f"{LOGS}/raylet.out", entry) == {name: [] for name in sinks}
    assert fake.counted == ["redaction_failed", *(["rule.d.b"] if more else [])]


SINKS_FOR_ALL: dict[str, dict[str, Any]] = {
    "one": {"a": LOKI},
    "one that differs in time": {"a": {**LOKI, "late": "drop"}},
    "several": {"a": LOKI, "b": {"type": "console", "when": {"level": {"at_least": "error"}}}},
    "several that want the same": {"a": {"type": "console"}, "b": {"type": "file", "path": "/var/x"}},
}


@pytest.mark.parametrize("sinks", SINKS_FOR_ALL.values(), ids=SINKS_FOR_ALL)
def test_an_entry_that_was_open_at_the_end_is_the_same_record(sinks: dict[str, Any]) -> None:
    """No filter sees it: its outputs make the record."""
    rules = [{"name": "r", "redact": {"pattern": "secret"}}, {"name": "d", "when": {"level": "info"}, "drop": True}]
    fake = FakeFluentBit(policy(cluster="c", collector={"node": "n"}, parsing={"rules": rules}, sinks=sinks))
    counts = []
    for fault in ("", "secret"):
        fake.fault = fault
        for level in "IWE":
            for below in ("raylet.out", "not-asked-for.txt"):
                entry = f"[2026-12-01 05:36:23,438 {level} 1 2] a.cc:1: a secret\n  and more\n".encode()
                wanted = fake.send("ray.header", f"{LOGS}/{below}", entry)
                assert fake.send_unfiltered("ray.header", f"{LOGS}/{below}", entry) == wanted
                counts.append(sum(map(len, wanted.values())))
    assert max(counts) == len(sinks)
    assert min(counts) == 0


def test_an_entry_that_cannot_be_read_is_still_delivered_and_redacted() -> None:
    data = policy(sinks={"a": {"type": "console"}}, parsing={"rules": [{"name": "r", "redact": {"pattern": "secret"}}]})
    fake = FakeFluentBit(data)
    fake.fault = "(?<level>[A-Z]) (?<pid>"  # of the header of C++ entries
    (sent,) = fake.send("ray.header", f"{LOGS}/raylet.out", b"[2026-12-01 05:36:23,438 W 1 2] a.cc:1: a secret\n")["a"]
    record = json.loads(sent.record["line"])
    assert record["raw"] == "[2026-12-01 05:36:23,438 W 1 2] a.cc:1: a [redacted]"
    assert record["parse_error"] is True
    assert fake.counted == []


# --- what goes by count ---


def lines(count: int, component: str = "raylet") -> Events:
    text = "[2026-12-01 05:36:23,438 W {} 2] a.cc:1: line {}"
    return [(f"{LOGS}/{component}.out", component, text.format(i % 7, i)) for i in range(count)]


def counted(rules: list[dict[str, Any]], events: Events, seconds: float = 0.0) -> tuple[list[Record], list[str]]:
    """Records of a console, and names of the rules that dropped others; an entry comes so many seconds behind the
    one before."""
    fake = FakeFluentBit(policy(parsing={"rules": rules}, sinks={"c": {"type": "console"}}))
    got = []
    for index, (path, _, text) in enumerate(events):
        got += fake.send("ray.header", path, f"{text}\n".encode(), NOW + index * seconds)["c"]
    return [json.loads(sent.record["line"]) for sent in got], fake.counted


def test_sample() -> None:
    rules = [{"name": "s", "when": {"component": "raylet"}, "sample": 0.25}]
    got, dropped = counted(rules, [*lines(2000), *lines(10, "gcs_server")])
    kept = [r for r in got if r["component"] == "raylet"]
    assert 380 < len(kept) < 620
    assert {r["sample_rate"] for r in kept} == {0.25}
    assert len(got) - len(kept) == 10
    assert not any("sample_rate" in r for r in got if r["component"] != "raylet")
    assert dropped == ["rule.s"] * (2000 - len(kept))


def test_sample_by_a_field() -> None:
    got, _ = counted([{"name": "s", "sample": {"rate": 0.5, "by": "pid"}}], lines(700))
    kept = {r["pid"] for r in got}
    assert len(got) == 100 * len(kept)
    assert 0 < len(kept) < 7
    rates = []
    for start in range(0, 4000, 1000):
        events = [(p, c, t.replace(" W ", f" W {start + i}")) for i, (p, c, t) in enumerate(lines(1000))]
        rates.append(len(counted([{"name": "s", "sample": {"rate": 0.3, "by": "pid"}}], events)[0]) / 1000)
    assert all(0.2 < rate < 0.4 for rate in rates), rates
    assert 300 < len(counted([{"name": "s", "sample": {"rate": 0.5, "by": "job_id"}}], lines(1000))[0]) < 700


def test_limit() -> None:
    rule = {"name": "l", "limit": {"records": 5, "per": "500ms"}}
    got, dropped = counted([rule], lines(100), 0.02)  # two seconds
    assert (len(got), dropped) == (20, ["rule.l"] * 80)
    got, _ = counted([{**rule, "limit": {"records": 5, "per": "500ms", "by": ["pid", "job_id"]}}], lines(70))
    assert len(got) == 35
    got, _ = counted([{**rule, "limit": {"records": 1_000_000_000, "per": "2h"}}], lines(70))
    assert len(got) == 70


def test_rules_of_one_sink_are_counted_for_that_sink() -> None:
    rules = [{"name": "all", "when": {"pid": 1}, "drop": True},
             {"name": "quiet", "when": {"level": {"below": "error"}}, "drop": True, "sinks": ["loki"]}]
    data = policy(parsing={"rules": rules}, sinks={"loki": LOKI, "archive": {"type": "file", "path": "/var/x"}})
    fake = FakeFluentBit(data)
    got = [fake.send("ray.header", path, text.encode()) for path, _, text in lines(7)]
    assert sum(len(g["loki"]) for g in got) == 0
    assert sum(len(g["archive"]) for g in got) == 6
    assert sorted(fake.counted) == ["rule.all"] + ["rule.quiet.loki"] * 6
    greps = [f for f in fake.config["pipeline"]["filters"] if f["name"] == "grep"]
    assert [f["alias"] for f in greps] == ["rule.all", "rule.quiet.loki", "redaction_failed"]


@cache
def runtime() -> LuaRuntime:
    """A Lua with what conditions need."""
    lua = LuaRuntime(encoding=None)
    lua.globals()[b"found"] = lambda text, number: re2.search(REGEXES[number], text.decode()) is not None
    lua.execute(b"""function matches(value, number)
      if value == true then value = "true" end
      return type(value) == "string" and found(value, number)
    end""")
    return lua


REGEXES: list[str] = []


def numbered(condition: dict[str, Any]) -> dict[str, Any]:
    """The condition with places of its regexes in REGEXES."""
    if condition["kind"] == "matches":
        REGEXES.append(condition["regex"])
        return {**condition, "number": len(REGEXES) - 1}
    of = condition.get("of")
    return condition if not of else {**condition, "of": [*map(numbered, of)] if isinstance(of, list) else numbered(of)}


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree)
def test_any_condition(when: dict[str, Any]) -> None:
    condition = conditions.parse(when)
    template = environment().get_template("fluentbit/condition.lua.j2").module
    source = str(template.when(numbered(condition_context(condition)))).replace("REGEX[", "(").replace("])", "))")  # type: ignore[attr-defined]
    test = runtime().eval(f"function(r) return {source} end".encode())
    for record in RECORDS:
        given = {k.encode(): v.encode() if isinstance(v, str) else v for k, v in record.items()}
        assert test(runtime().table_from(given)) == expect.holds(condition, record), (source, record)


def test_patterns_that_hold_the_engine_up_are_noted() -> None:
    slow = "(a+)+b"
    data = policy(
        sources={"f": {**FILE, "format": {"regex": f"^(?P<x>{slow})(?P<message>.*)$"}, "multiline": {"start": slow}}},
        parsing={"rules": [{"name": "a", "when": {"not": {"any": [{"message": {"matches": slow}}]}}, "drop": True},
                           {"name": "b", "redact": {"pattern": slow}}, {"name": "c", "redact": {"pattern": "a+b"}}]},
        sinks={"loki": {**LOKI, "when": {"message": {"matches": slow}}}}, targets={"fluentbit": {"version": "5.1"}})
    noted = [d.path for d in judged(data, "fluentbit").diagnostics if d.code == "slow-regex"]
    assert noted == ["sources.f.format.regex", "sources.f.multiline.start", "parsing.rules[0].when",
                     "parsing.rules[1].redact.pattern", "sinks.loki.when"]
