"""The configuration that is rendered for Vector: versions, identity, globs, ids, sinks. What its VRL makes of lines is
tested in test_vector_records.py and test_vector_rules.py."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from making import (
    FILE,
    LOKI,
    SECRET,
    TREE_NAMES,
    TREES,
    VARIABLE,
    FakeVector,
    Record,
    config_of,
    config_text,
    judged,
    nanoseconds,
    policy,
    resolved,
)

from shipgen.catalog import ray
from shipgen.diagnostics import Severity
from shipgen.targets.base import release
from shipgen.targets.vector import ENV_FLAG, TARGET, is_secret_name
from shipgen.targets.vector_sinks import MIN_BUFFER, backoff_attempts

BASE = "/tmp/ray/session_2026-12-01_00-00-00_000000_1/logs"
ALL = {"ray": {"type": "ray", "components": ["all"]}}
SECRETS = {
    "one": {**LOKI, "auth": {"bearer": {"env": "TOKEN_1"}}},
    "two": {**LOKI, "auth": {"basic": {"user": {"env": "U"}, "password": {"file": "/run/secrets/p.txt"}}}},
    "three": {**LOKI, "auth": {"bearer": {"file": "/run/secrets/t-1"}}},
    "four": {**LOKI, "auth": {"bearer": {"file": "/t"}}},
    "out": {"type": "file", "path": "/var/log/out/ray d.jsonl"},
}


def of_version(version: str, **parts: Any) -> dict[str, Any]:
    return policy(**{"sinks": SECRETS, **parts, "targets": {"vector": {"version": version}}})


# --- versions ---


@pytest.mark.parametrize("version", [*TARGET.versions, "0.57.1", "0.99", "1.2"])
def test_confinement_is_told_only_to_versions_that_know_it(version: str) -> None:
    sinks = config_of(of_version(version))["sinks"]
    confined = release(version) >= (0, 57)
    for name in ("one", "two", "three", "four"):
        sink = sinks[f"out::{name}"]
        assert ("dangerously_allow_unconfined_template_resolution" in sink) is confined
        assert sink.get("dangerously_allow_unconfined_template_resolution", True) is True
    assert sinks["out::out"].get("base_dir") == ("/var/log/out" if confined else None)
    codes = {d.code for d in judged(of_version(version)).diagnostics}
    assert ("template-confinement" in codes) is confined
    assert ("needs-flag" in codes) is confined


def test_nothing_else_differs_between_versions() -> None:
    old, new = config_of(of_version("0.50")), config_of(of_version("0.57"))
    assert all(config_of(of_version(v)) == old for v in TARGET.versions if release(v) < (0, 57))
    for sink in new["sinks"].values():
        sink.pop("dangerously_allow_unconfined_template_resolution", None)
        sink.pop("base_dir", None)
    assert old == new


@pytest.mark.parametrize(("sinks", "needs"), [(SECRETS, True), ({"three": SECRETS["three"]}, False)])
def test_start_command(sinks: dict[str, Any], needs: bool) -> None:
    for version in ("0.50", "0.56", "0.57", "0.58"):
        pipeline = resolved(of_version(version, sinks=sinks))
        argv = TARGET.start_argv("vector.yaml", pipeline, version)
        assert argv[-3:] == ("vector", "--config", "vector.yaml")
        assert (f"{ENV_FLAG}=true" in argv) is (needs and release(version) >= (0, 57))
        assert f"# Start: {' '.join(argv)}\n" in config_text(of_version(version, sinks=sinks))


def test_other_commands() -> None:
    assert TARGET.validate_argv("v.yaml") == ("vector", "validate", "--no-environment", "--config-yaml", "v.yaml")
    assert TARGET.image("0.57") == "timberio/vector:0.57.0-debian"
    assert TARGET.image("0.56.1") == "timberio/vector:0.56.1-debian"


# --- secrets, and what Vector would take for one ---


def test_secrets_are_references() -> None:
    parsed = config_of(of_version("0.57"))
    sinks = parsed["sinks"]
    assert sinks["out::one"]["auth"] == {"strategy": "bearer", "token": "${TOKEN_1:?TOKEN_1 is not set}"}
    two = sinks["out::two"]["auth"]
    assert (two["strategy"], two["user"]) == ("basic", "${U:?U is not set}")
    three, four = (sinks[f"out::{name}"]["auth"]["token"] for name in ("three", "four"))
    for value, path in ((two["password"], "/run/secrets/p.txt"), (three, "/run/secrets/t-1"), (four, "/t")):
        found = SECRET.fullmatch(value)
        assert found
        backend = parsed["secret"][found[1]]
        assert str(Path(backend["path"]) / found[2]) == path
        assert backend["type"] == "directory"
        assert backend["remove_trailing_whitespace"] is True
    assert len(parsed["secret"]) == 2
    assert "# Environment: TOKEN_1, U\n" in config_text(of_version("0.57"))


def test_vector_finds_no_other_variables_or_secrets() -> None:
    text = config_text(of_version(
        "0.56", cluster="$X ${Y} $$ SECRET[a.b]", collector={"node": "SECRET[c.d]$Z"},
        sources={"ray": {"type": "ray"}, "f": {**FILE, "format": {"regex": r"^\$(?P<a>[$]b$|SECRET\[x.y\])$a|$"},
                                               "multiline": {"start": "^$a|$_"}}},
        parsing={"rules": [
            {"name": "a", "when": {"message": {"matches": "$a$"}, "file": "$X"}, "add": {"b": "${HOME}"}},
            {"name": "b", "redact": {"pattern": "SECRET[x.y]", "with": "$1 ${X} SECRET[a.b] $$"}},
        ]},
    ))
    assert {m[2] for m in VARIABLE.finditer(text)} == {"TOKEN_1", "U"}
    assert {m[2] for m in SECRET.finditer(text)} == {"p.txt", "t-1", "t"}
    assert len(SECRET.findall(text)) == 3
    assert "secret" not in config_of(policy())


@pytest.mark.parametrize(("name", "fine"), [
    ("token", True), ("a.b-c_1", True), ("", False), ("a b", False), ("é", False), ("a/b", False),
    ("a$", False),
])
def test_secret_names(name: str, fine: bool) -> None:
    assert is_secret_name(name) is fine
    if name and not fine and "/" not in name:
        choice = judged(policy(sinks={"loki": {**LOKI, "auth": {"bearer": {"file": f"/run/{name}"}}}}))
        assert [(d.code, d.path) for d in choice.diagnostics if d.severity is Severity.ERROR] == [
            ("unsupported", "sinks.loki.auth.bearer")]


# --- sources ---


def test_files_are_known_by_device_and_inode() -> None:
    for source in _file_sources(policy(sources={**ALL, "f": FILE})).values():
        assert source["fingerprint"] == {"strategy": "device_and_inode"}
        assert source["ignore_checkpoints"] is False
        assert source["read_from"] == "beginning"
        assert "ignore_older_secs" not in source


def test_files_that_logrotate_truncates_are_known_by_their_lines() -> None:
    for id_, source in _file_sources(policy(sources=ALL, rotation={"by": "logrotate"})).items():
        lines = ray.BY_NAME[id_.removeprefix("ray:")].telling_lines
        expected = {"strategy": "checksum", "lines": lines, "ignored_header_bytes": 0} if lines else {
            "strategy": "device_and_inode"}
        assert source["fingerprint"] == expected


def _file_sources(data: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in config_of(data)["sources"].items() if v["type"] == "file"}


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    """A glob as Rust's `glob` reads it in a path: `*` and `?` within one directory, `[0-9]` as it stands."""
    parts = re.findall(r"\[[^]]+\]|.", glob)
    words = {"*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(p) or (p if len(p) > 1 else re.escape(p)) for p in parts))


def _matches(glob: str, path: str) -> bool:
    return _pattern(glob).fullmatch(path) is not None


@cache
def _real_files() -> list[str]:
    """Paths below a session's parent, of all trees; with `session_latest` spelled out."""
    found = set()
    for tree in TREE_NAMES:
        for path in (TREES / tree).rglob("*"):
            if path.is_file():
                found.add(str(path.relative_to(TREES / tree)))
    extra = {"old/" + Path(p).name for p in found if "/worker-" in p} | {"ray_client_server_23000.out"}
    session = next(iter(found)).split("/")[0]
    found |= {f"{session}/logs/{name}" for name in extra}
    return sorted(found)


def _readers(sources: dict[str, Any], path: str) -> list[str]:
    return [id_ for id_, s in sources.items() for g in s["include"] if _matches(g, path) if path not in s["exclude"]]


@pytest.mark.parametrize("components", ["default", "all"])
@pytest.mark.parametrize(("rotation", "rotated"), [
    (None, "auto"), ({"by": "ray"}, "auto"), ({"by": "ray"}, "include"), ({"by": "ray"}, "exclude"),
    ({"by": "logrotate"}, "auto"),
])
def test_each_real_file_is_read_once(components: str, rotation: dict[str, Any] | None, rotated: str) -> None:
    data = policy(sources={"ray": {"type": "ray", "components": [components], "rotated": rotated}})
    if rotation:
        data["rotation"] = rotation
    sources = _file_sources(data)
    assert len(_real_files()) > 300
    read = 0
    for path in _real_files():
        below = path.split("/logs/", 1)[1]
        families = [f for f in ray.families_of(below) if f"ray:{f.name}" in sources]
        copies = (rotation or {}).get("by") == "logrotate" or any(f.rotates is ray.Rotates.NEVER for f in families)
        if ray.live_name(below) != below.removeprefix("old/") and (copies or rotated == "exclude"):
            families = []
        expected = [f"ray:{f.name}" for f in families]
        assert len(expected) <= 1
        assert _readers(sources, f"/tmp/ray/{path}") == expected, path
        read += len(expected)
        latest = "/tmp/ray/session_latest/logs/" + below
        assert _readers(sources, latest) == [], latest
    assert read > 100


def test_globs_are_where_the_policy_says() -> None:
    sources = _file_sources(policy(collector={"root": "/host/"}, ray={"temp_dir": "/data//ray/"}))
    assert {g.split("/session_2*/logs/")[0] for s in sources.values() for g in s["include"]} == {"/host/data/ray"}
    source = _file_sources(
        policy(collector={"root": "/host"}, sources={"f": {**FILE, "exclude": ["/var/log/app/x*.log"]}}))["f"]
    assert source["include"] == ["/host/var/log/app/*.log"]
    assert source["exclude"] == ["/host/var/log/app/x*.log"]


@pytest.mark.parametrize(("rotated", "include", "exclude"), [
    ("auto", ["/var/log/app/*.log"], []),
    ("include", ["/var/log/app/*.log", "/var/log/app/*.log.[0-9]*"], []),
    ("exclude", ["/var/log/app/*.log"], ["/var/log/app/*.log.[0-9]*"]),
])
def test_backups_of_other_files(rotated: str, include: list[str], exclude: list[str]) -> None:
    source = _file_sources(policy(sources={"f": {**FILE, "rotated": rotated}}))["f"]
    assert (source["include"], source["exclude"]) == (include, exclude)


def test_what_vector_would_leave_out_too_much_of_the_program_leaves_out() -> None:
    """In a glob that excludes, Vector's `*` goes on into directories below."""
    data = policy(
        sources={"f": {"type": "file", "paths": ["/data/*/*/x.log", "/data/*/x.log"],
                       "exclude": ["/data/tmp-*/x.log", "/data/a/b[0-9]/x.log"]}}, sinks={"c": {"type": "console"}})
    assert config_of(data)["sources"]["f"]["exclude"] == ["/data/a/b[0-9]/x.log"]
    arrives = _arrives(data)
    assert arrives("/data/tmp-1/b/x.log")
    assert not arrives("/data/tmp-1/x.log")
    assert arrives("/data/tmp/x.log")


def _arrives(data: dict[str, Any]) -> Callable[[str], bool]:
    fake = FakeVector(config_of(data))
    return lambda file: bool(fake.send("f", {"message": "m", "file": file})["out::c"])


def test_capitals_are_not_small_letters() -> None:
    """In a part of a path with wildcards Vector takes them for the same."""
    console = {"c": {"type": "console"}}
    arrives = _arrives(policy(sources={"f": {**FILE, "paths": ["/var/log/*.log", "/x/[a-c]?"]}}, sinks=console))
    assert arrives("/var/log/X.log")
    assert not arrives("/var/log/x.LOG")
    assert arrives("/x/bB")
    assert not arrives("/x/Bb")
    for path in ("/var/log/x.log", "/var/LOG/*", "/x/[0-9]"):
        program = config_of(policy(sources={"f": {**FILE, "paths": [path]}}, sinks=console))["transforms"]["f:entry"]
        assert "if !(match(" not in program["source"]


def test_settings_of_sources() -> None:
    given = {"start": "end", "ignore_older": "7d", "max_line": "1MiB", "on_long_line": "skip"}
    sources = {"ray": {"type": "ray", **given}, "f": {**FILE, **given, "multiline": {"start": r"^\d", "timeout": "5s"}}}
    found = _file_sources(policy(collector={"discover_every": "1500ms"}, sources=sources))
    for source in found.values():
        assert source["read_from"] == "end"
        assert source["ignore_older_secs"] == 7 * 86400
        assert source["max_line_bytes"] == 1024 * 1024
        assert source["glob_minimum_cooldown_ms"] == 1500
    assert found["f"]["multiline"] == {
        "mode": "halt_before", "start_pattern": "^[0-9]", "condition_pattern": "^[0-9]", "timeout_ms": 5000}
    assert "multiline" not in _file_sources(policy(sources={"f": FILE}))["f"]


def test_lines_are_read_whole_and_cut_later() -> None:
    for max_line, expected in (("1KiB", 8 * 1024 * 1024), ("9MiB", 9 * 1024 * 1024)):
        for source in _file_sources(policy(sources={"f": {**FILE, "max_line": max_line}})).values():
            assert source["max_line_bytes"] == expected


@pytest.mark.parametrize("family", ray.FAMILIES, ids=lambda f: f.name)
def test_grouping(family: ray.Family) -> None:
    multiline = config_of(policy(sources=ALL))["sources"][f"ray:{family.name}"].get("multiline")
    if family.grouping is ray.Grouping.LINE:
        assert multiline is None
    else:
        assert multiline["mode"] == ("halt_before" if family.grouping is ray.Grouping.HEADER else "continue_through")
        assert multiline["timeout_ms"] == 700
        assert (multiline["start_pattern"] == "^") is (family.grouping is ray.Grouping.USER)


# --- ids and places ---


def _ids(data: dict[str, Any]) -> dict[str, set[str]]:
    parsed = config_of(data)
    return {"dir": {parsed["data_dir"]}, "sources": set(parsed["sources"]), "sinks": set(parsed["sinks"])}


def test_ids_of_state_stay() -> None:
    """Offsets lie under the ids of sources, disk buffers under those of sinks."""
    before = policy(sources={"ray": {"type": "ray"}, "b": FILE})
    base = _ids(before)
    rules: list[dict[str, Any]] = [
        {"name": "x", "drop": True, "when": {"level": "debug"}}, {"name": "y", "add": {"a": "b"}}]
    for changed in (
        {**before, "sources": {"b": {**FILE, "start": "end"}, "ray": {"type": "ray", "rotated": "exclude"}}},
        {**before, "cluster": "c", "collector": {"node": "n"}, "rotation": {"by": "ray"}},
        {**before, "parsing": {"rules": rules}}, {**before, "parsing": {"rules": rules[::-1]}},
        {**before, "targets": {"vector": {"version": "0.50"}}},
        {**before, "sinks": {"loki": {**LOKI, "endpoint": "http://other", "labels": {"static": {"a": "b"}}}}},
    ):
        assert _ids(changed) == base
    for more in (
        {**before, "sources": {"a": FILE, **before["sources"], "c": ALL["ray"]}},
        {**before, "sinks": {"a": LOKI, **before["sinks"], "z": {"type": "console", "from": ["b"]}}},
    ):
        assert all(_ids(more)[kind] >= base[kind] for kind in base)
    assert _ids({**before, "name": "u"})["dir"] == {"/var/lib/shipgen/u/vector"}


NASTY = [
    "ray", "ray-worker", "ray-worker-path", "ray-worker-entry", "ray-header-entry", "rule", "rule-a", "rule-a-failed",
    "when", "when-ray", "shape", "shape-ray", "out", "out-ray", "from", "shipgen", "shipgen-metrics", "failed",
    "metrics", "a--b", "a_b",
]


def test_ids_never_collide() -> None:
    """Whatever is called what: sources, rules and sinks may have the same names, and such as look like parts of ids."""
    console = {"type": "console", "when": {"level": {"at_least": "info"}}}
    data = policy(
        sources={name: {"type": "ray"} if i % 2 else FILE for i, name in enumerate(NASTY)},
        sinks={name: {**console, "from": [NASTY[i], NASTY[i - 1]]} for i, name in enumerate(NASTY)},
        parsing={"rules": [
            {"name": name, "redact": {"kind": "email"}, **({} if i < 5 else {"sinks": ["ray", "out"]})} if i % 2 else
            {"name": name, "add": {"a": "b"}} for i, name in enumerate(NASTY)
        ]},
    )
    parsed = config_of(data)  # refuses a key that stands twice
    ids = [*parsed["sources"], *parsed["transforms"], *parsed["sinks"]]
    assert len(ids) == len(set(ids))
    outputs = {*parsed["sources"], *parsed["transforms"]}
    readers = [c["inputs"] for kind in ("transforms", "sinks") for c in parsed[kind].values()]
    assert all(len(set(inputs)) == len(inputs) > 0 for inputs in readers)
    assert {i.removesuffix(".dropped") for inputs in readers for i in inputs} == outputs
    assert not [i for i in ids if "." in i or "*" in i]


@pytest.mark.parametrize(("state_dir", "expected"), [
    ("/var/lib/shipgen", "/var/lib/shipgen/t/vector"), ("/data/", "/data/t/vector"),
    ("/a b'\"$X", "/a b'\"$X/t/vector"),
])
def test_state_directory(state_dir: str, expected: str) -> None:
    assert config_of(policy(collector={"state_dir": state_dir}))["data_dir"] == expected


@pytest.mark.parametrize(("bind", "address"), [
    ("127.0.0.1", "127.0.0.1:9598"), ("0.0.0.0", "0.0.0.0:9598"), ("::1", "[::1]:9598"), ("::", "[::]:9598"),
])
def test_metrics(bind: str, address: str) -> None:
    parsed = config_of(policy(collector={"metrics": {"bind": bind}}))
    (exporter,) = (s for s in parsed["sinks"].values() if s["type"] == "prometheus_exporter")
    assert exporter["address"] == address
    assert parsed["sources"][exporter["inputs"][0]]["type"] == "internal_metrics"


@pytest.mark.parametrize("bind", ["localhost", "node-1", "1.2.3", "256.0.0.1", ":::"])
def test_names_are_no_addresses(bind: str) -> None:
    choice = judged(policy(collector={"metrics": {"bind": bind}}, sinks={"c": {"type": "console"}}))
    assert [(d.code, d.path) for d in choice.diagnostics] == [("unsupported", "collector.metrics.bind")]
    assert not choice.renders


# --- sinks ---


def _loki(**settings: Any) -> dict[str, Any]:
    sink: dict[str, Any] = config_of(policy(sinks={"loki": {**LOKI, **settings}}))["sinks"]["out::loki"]
    return sink


def test_loki_as_it_is_left_alone() -> None:
    sink = _loki()
    assert sink.pop("inputs") == ["shape::loki"]
    assert sink == {
        "type": "loki", "endpoint": "http://loki:3100", "path": "/loki/api/v1/push", "labels": {"*": "{{ labels }}"},
        "structured_metadata": {"*": "{{ metadata }}"}, "dangerously_allow_unconfined_template_resolution": True,
        "remove_timestamp": True, "out_of_order_action": "accept", "encoding": {"codec": "text"},
        "compression": "snappy", "batch": {"max_bytes": 1048576, "timeout_secs": 1.0},
        "request": {"retry_attempts": 2**63 - 1, "retry_initial_backoff_secs": 1, "retry_max_duration_secs": 30,
                    "timeout_secs": 60},
        "buffer": {"type": "disk", "max_size": 1024**3, "when_full": "block"}, "acknowledgements": {"enabled": True},
    }


def test_loki_settings() -> None:
    sink = _loki(
        tenant="a'(b)*!", delivery="best_effort", batch={"max_bytes": "5MB", "max_wait": "250ms"},
        buffer={"max_size": "2GiB", "when_full": "drop_newest"}, retry={"max_backoff": "500ms", "give_up_after": "1h"},
        compression={"codec": "gzip", "level": 9},
        tls={"ca_file": "/a", "cert_file": "/b", "key_file": "/c", "verify": False},
    )
    assert sink["tenant_id"] == "a'(b)*!"
    assert sink["acknowledgements"] == {"enabled": False}
    assert sink["batch"] == {"max_bytes": 5_000_000, "timeout_secs": 0.25}
    assert sink["buffer"] == {"type": "disk", "max_size": 2 * 1024**3, "when_full": "drop_newest"}
    assert sink["request"]["retry_max_duration_secs"] == 1
    assert sink["request"]["retry_attempts"] == 3600
    assert sink["compression"] == {"algorithm": "gzip", "level": 9}
    assert sink["tls"] == {"ca_file": "/a", "crt_file": "/b", "key_file": "/c",
                           "verify_certificate": False, "verify_hostname": False}


@pytest.mark.parametrize(("given", "expected"), [
    ("auto", "snappy"), ("none", "none"), ("gzip", "gzip"), ("snappy", "snappy"), ({"codec": "snappy"}, "snappy"),
    ({"codec": "gzip"}, "gzip"),
])
def test_compression(given: Any, expected: Any) -> None:
    assert _loki(compression=given)["compression"] == expected


def test_snappy_has_no_levels() -> None:
    choice = judged(policy(sinks={"loki": {**LOKI, "compression": {"codec": "snappy", "level": 3}}}))
    assert [d.path for d in choice.diagnostics if d.severity is Severity.ERROR] == ["sinks.loki.compression.level"]


@pytest.mark.parametrize(("given", "expected"), [
    ("1MiB", MIN_BUFFER), (f"{MIN_BUFFER - 1}B", MIN_BUFFER), (f"{MIN_BUFFER}B", MIN_BUFFER), ("257MiB", 257 * 1024**2),
])
def test_small_buffers_are_raised_and_told_of(given: str, expected: int) -> None:
    sinks = {"loki": {**LOKI, "buffer": {"max_size": given}}}
    assert _loki(buffer={"max_size": given})["buffer"]["max_size"] == expected
    raised = [d for d in judged(policy(sinks=sinks)).diagnostics if d.code == "approximated"]
    assert bool(raised) is (int(given.rstrip("MiB")) < MIN_BUFFER and given != "257MiB")
    for diagnostic in raised:
        assert (diagnostic.path, diagnostic.severity) == ("sinks.loki.buffer.max_size", Severity.WARNING)
        assert str(MIN_BUFFER) in diagnostic.text


@pytest.mark.parametrize(("give_up", "backoff", "attempts"), [
    (1, 30_000, 1), (1000, 30_000, 1), (4000, 30_000, 3), (7000, 30_000, 4), (3_600_000, 1000, 3600), (60_000, 1, 60),
    (2**53 * 1000, 1000, 2**53), (86_400_000, 60_000, 1448),
])
def test_attempts_fill_the_time(give_up: int, backoff: int, attempts: int) -> None:
    assert backoff_attempts(give_up, backoff) == attempts


def test_console_and_file() -> None:
    given = {"c": {"type": "console", "target": "stderr"}, "f": {"type": "file", "path": "/var/log/a b'\"$X.jsonl"}}
    sinks = config_of(policy(sinks=given))["sinks"]
    assert sinks["out::c"] == {
        "type": "console", "inputs": ["shape::c"], "target": "stderr", "encoding": {"codec": "json"},
        "acknowledgements": {"enabled": True}}
    assert sinks["out::f"] == {
        "type": "file", "inputs": ["shape::f"], "path": "/var/log/a b'\"$X.jsonl", "compression": "none",
        "encoding": {"codec": "json"}, "base_dir": "/var/log", "acknowledgements": {"enabled": True}}


@pytest.mark.parametrize(("sink", "path"), [
    ({"labels": {"static": {"Team": "x"}}}, "sinks.loki.labels.static.Team"),
    ({"labels": {"static": {"a": "b"}, "fields": ["component", "Team"]}}, "sinks.loki.labels.fields[1]"),
    ({"metadata": ["pid", "Team"]}, "sinks.loki.metadata[1]"),
])
def test_names_that_vector_would_write_in_small_letters_are_refused(sink: dict[str, Any], path: str) -> None:
    rules = [{"name": "a", "add": {"Team": "x"}}]
    choice = judged(policy(parsing={"rules": rules}, sinks={"loki": {**LOKI, **sink}}))
    assert [(d.code, d.path) for d in choice.diagnostics if d.severity is Severity.ERROR] == [("unsupported", path)]


def test_a_field_named_timestamp_is_refused() -> None:
    choice = judged(policy(
        parsing={"rules": [{"name": "a", "add": {"x": "y", "timestamp": "z"}}]}, sinks={"c": {"type": "console"}},
        sources={"f": {**FILE, "format": {"regex": "(?P<timestamp>a)"}}},
    ))
    assert [d.path for d in choice.diagnostics] == ["parsing.rules[0].add.timestamp", "sources.f.format.regex"]
    fine = {**FILE, "format": {"regex": "(?P<timestamp>a)", "time": {"field": "timestamp", "layout": "python"}}}
    assert judged(policy(sources={"f": fine}, sinks={"c": {"type": "console"}})).renders


# --- which records reach which sink ---

TWO = {"a": {**FILE, "paths": ["/a"]}, "b": {**FILE, "paths": ["/b"]}, "c": {**FILE, "paths": ["/c"]}}


@pytest.mark.parametrize("rules", [
    [], [{"name": "r", "add": {"x": "y"}}], [{"name": "r", "redact": {"pattern": "[abc]", "with": "b"}}],
    [{"name": "r", "add": {"x": "y"}, "sinks": ["one"]}],
    [{"name": "r", "limit": {"records": 1}}, {"name": "s", "sample": 0.5}],
    [{"name": "r", "add": {"x": "y"}}, {"name": "s", "redact": {"pattern": "a"}, "sinks": ["two", "all"]}],
])
@pytest.mark.parametrize("kind", [
    {"type": "console"}, LOKI, {**LOKI, "line": "json"}, {**LOKI, "metadata": ["source"]},
])
def test_a_sink_gets_its_sources_alone(rules: list[dict[str, Any]], kind: dict[str, Any]) -> None:
    sinks = {"one": {**kind, "from": ["a"]}, "two": {**kind, "from": ["b", "c"]}, "all": kind}
    fake = FakeVector(config_of(policy(sources=TWO, sinks=sinks, parsing={"rules": rules})))
    for source, expected in (("a", {"one", "all"}), ("b", {"two", "all"}), ("c", {"two", "all"})):
        got = fake.send(source, {"message": f"from {source}", "file": f"/{source}"})
        assert {id_.removeprefix("out::") for id_, events in got.items() if events} == expected
        assert all(len(events) <= 1 for events in got.values())
        assert "@from" not in json.dumps(got)


def test_rules_for_some_sinks_keep_their_order() -> None:
    rules = [
        {"name": "a", "add": {"x": "1"}}, {"name": "b", "add": {"y": "only"}, "sinks": ["one"]},
        {"name": "c", "when": {"y": "only"}, "add": {"z": "seen"}},
        {"name": "d", "when": {"z": "seen"}, "drop": True, "sinks": ["two"]},
    ]
    sinks = {"one": {"type": "console"}, "two": {"type": "console"}}
    fake = FakeVector(config_of(policy(sources={"f": FILE}, sinks=sinks, parsing={"rules": rules})))
    got = fake.send("f", {"message": "m", "file": "/var/log/app/f.log"})
    (one,), (two,) = got["out::one"], got["out::two"]
    assert {k: one.get(k) for k in "xyz"} == {"x": "1", "y": "only", "z": "seen"}
    assert {k: two.get(k) for k in "xyz"} == {"x": "1", "y": None, "z": None}


# --- what a Loki sink gets ---


def shaped(message: str, node: Any = "n1", **settings: Any) -> Record:
    """The event that the Loki sink gets of an entry of raylet's, with labels and metadata read."""
    sinks = {"loki": {**LOKI, "compression": "gzip", **settings}}
    data = policy(collector={"node": node}, sinks=sinks, parsing={"timezone": "UTC"})
    fake = FakeVector(config_of(data), rules=False)
    (event,) = fake.send("ray:raylet", {"message": message, "file": f"{BASE}/raylet.out"})["out::loki"]
    assert set(event) == {"message", "timestamp", "labels", "metadata"}
    return {**event, "labels": json.loads(event["labels"]), "metadata": json.loads(event["metadata"])}


ENTRY = "[2026-12-01 05:36:23,438 W 11309 11319] (raylet) a.cc:1: low"


def test_labels_and_metadata_leave_out_what_is_absent() -> None:
    event = shaped(ENTRY, late="keep")
    assert event["labels"] == {"job": "t", "component": "raylet", "level": "warn", "node": "n1"}
    assert event["metadata"] == {
        "source": "ray", "session": BASE.split("/")[3], "file": "raylet.out", "pid": "11309", "thread": "11319",
        "caller": "a.cc:1"}
    assert event["message"] == ENTRY
    text = "é'\"\\${X}{{ y }}"
    event = shaped("no header", late="keep", labels={"static": {"a": text}, "fields": ["level", "stream"]})
    assert event["labels"] == {"a": text}
    assert event["metadata"]["time_source"] == "read"
    assert "level" not in event["metadata"]


@pytest.mark.parametrize("metadata", [[], ["pid"], ["pid", "cluster", "extra", "raw"], ["truncated", "thread"]])
def test_metadata_is_what_is_listed_and_what_always_goes_there(metadata: list[str]) -> None:
    event = shaped('{"message":"m","process":4,"k":1,"broken":NaN}', late="keep", metadata=metadata)
    assert set(event["metadata"]) <= {*metadata, "parse_error", "time_source", "entry_time", "truncated"}
    assert event["metadata"]["parse_error"] in (True, "true")
    if "raw" in metadata:
        assert event["metadata"]["raw"].startswith('{"message"')


def test_lines() -> None:
    assert shaped(ENTRY, late="keep", line="message")["message"] == "low"
    line = json.loads(shaped(ENTRY, late="keep", line="json")["message"])
    assert line == {
        "time": "2026-12-01T05:36:23.438000000Z", "source": "ray", "session": BASE.split("/")[3], "file": "raylet.out",
        "pid": "11309", "thread": "11319", "caller": "a.cc:1", "message": "low", "raw": ENTRY}


@pytest.mark.parametrize("line", ["raw", "message", "json"])
def test_lines_are_cut_to_what_the_server_takes(line: str) -> None:
    event = shaped(ENTRY + "é" * 5000, late="keep", line=line, server={"max_line_size": "1001B"})
    assert 990 < len(event["message"].encode()) <= 1001
    assert event["metadata"]["truncated"] in (True, "true")


@pytest.mark.parametrize(("count", "limit"), [(100, 500), (400, 500), (5000, 1001)])
def test_a_json_line_that_is_cut_is_still_an_object(count: int, limit: int) -> None:
    text = f'{ENTRY}"{"é" * count}'
    message = shaped(text, late="keep", line="json", server={"max_line_size": f"{limit}B"})["message"]
    line = json.loads(message)
    assert limit - 4 < len(message.encode()) <= limit
    assert (line["truncated"], line["pid"]) == (True, "11309")
    assert text.startswith(line["raw"])
    assert text.endswith(line["message"]) == (count == 100)
    assert ("low" + text.partition("low")[2]).startswith(line["message"])


def test_late_entries() -> None:
    old, now = ENTRY.replace("2026", "2020"), "no header"
    event = shaped(old)
    assert event["metadata"]["entry_time"] == "2020-12-01T05:36:23.438000000Z"
    assert event["metadata"]["time_source"] == "late"
    assert nanoseconds(event["timestamp"]) > nanoseconds("2026-01-01 00:00:00 UTC")
    event = shaped(old, late="keep")
    assert "entry_time" not in event["metadata"]
    assert nanoseconds(event["timestamp"]) == nanoseconds("2020-12-01 05:36:23.438 UTC")
    with pytest.raises(ValueError, match="not enough values"):
        shaped(old, late="drop")
    with pytest.raises(ValueError, match="not enough values"):
        shaped(ENTRY.replace("2026", "2090"), late="drop")
    assert shaped(ENTRY.replace("2026", "2090"))["metadata"]["time_source"] == "late"
    assert shaped(now, late="keep")["metadata"]["time_source"] == "read"


@pytest.mark.parametrize("year", ["1600", "2300", "9999"])
def test_times_that_have_no_nanoseconds_are_not_sent(year: str) -> None:
    """Vector's Loki sink drops a record with such a time."""
    for late in ("keep", "restamp"):
        event = shaped(ENTRY.replace("2026", year), late=late)
        assert abs(nanoseconds(event["timestamp"])) < 2**63
        assert event["metadata"]["time_source"] == ("read" if late == "keep" else "late")


def test_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shaped(ENTRY, node="n 'x' \"$Y\" é")["labels"]["node"] == "n 'x' \"$Y\" é"
    monkeypatch.delenv("SHIPGEN_TEST_NODE", raising=False)
    assert shaped(ENTRY, node={"env": "SHIPGEN_TEST_NODE"})["labels"]["node"] == "node"
    monkeypatch.setenv("SHIPGEN_TEST_NODE", "other $X")
    assert shaped(ENTRY, node={"env": "SHIPGEN_TEST_NODE"})["labels"]["node"] == "other $X"
