"""The target `promtail`: what is rendered, read back, and what it says about a policy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
import re2
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from making import FILE, HOSTILE, LOKI, judged, policy, resolved

from shipgen.catalog import ray, redactions
from shipgen.diagnostics import Severity
from shipgen.rendering import bundle, quoting
from shipgen.rendering.environment import render
from shipgen.targets import base
from shipgen.targets.promtail import attempts, jobs, regexes

ALL = " ".join(HOSTILE)
EXPANDED = re.compile(r"\$\{|\$\$|\\[\\/]")
"""What `-config.expand-env` changes in a file (drone/envsubst 1.0.3: `parse/scan.go`)."""


def given_policy(version: str = "3.6", **parts: Any) -> dict[str, Any]:
    return policy(targets={"promtail": {"version": version}}, **parts)


def text(data: dict[str, Any]) -> str:
    """`promtail.yaml`."""
    choice = judged(data, "promtail")
    assert choice.renders, [d.message for d in choice.diagnostics]
    return bundle.of(resolved(data), [choice]).files["promtail/promtail.yaml"].decode()


def config(data: dict[str, Any]) -> dict[str, Any]:
    """`promtail.yaml`, read back."""
    return _config(json.dumps(data))


@lru_cache(1)
def _config(data: str) -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.load(text(json.loads(data)), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return parsed


def said(data: dict[str, Any], severity: Severity = Severity.ERROR) -> list[str]:
    """Places that something of this severity is said about."""
    return [d.path for d in judged(data, "promtail").diagnostics if d.severity is severity]


def stages(data: dict[str, Any], kind: str) -> Iterator[Any]:
    """Stages of one kind, of all jobs."""
    for job in config(data)["scrape_configs"]:
        yield from (stage[kind] for stage in job["pipeline_stages"] if kind in stage)


def literals(program: str) -> list[str]:
    """The strings in a program of Go's templates, decoded."""
    found = re.finditer(r'`([^`]*)`|"((?:[^"\\]|\\.)*)"', program)
    return [m[1] if m[1] is not None else unescaped(m[2]) for m in found]


def unescaped(inner: str) -> str:
    """A string literal of Go without its quotes: only escapes by number are written."""
    return re.sub(r"\\x(..)|\\u(....)|\\U(.{8})", lambda m: chr(int(m[1] or m[2] or m[3], 16)), inner)


# --- what stands around the files ---


def test_header_says_the_end_of_life_and_how_to_start() -> None:
    head = text(given_policy()).split("server:")[0]
    assert "# Promtail reached its end of life on 2026-03-02. The way to Grafana Alloy: alloy convert" in head
    assert "# Start: promtail -config.file=promtail.yaml\n" in head
    secret = given_policy(sinks={"loki": {**LOKI, "auth": {"bearer": {"env": "TOKEN"}}}})
    assert "# Start: promtail -config.file=promtail.yaml -config.expand-env=true\n" in text(secret)
    assert re.search("# Environment: TOKEN, HOSTNAME", text(secret))
    of_a_file = given_policy(sinks={"loki": {**LOKI, "auth": {"bearer": {"file": "/run/t"}}}})
    assert "expand-env" not in text(of_a_file)
    assert said(secret, Severity.NOTE)[0] == "targets.promtail"
    assert "sinks.loki.auth.bearer" in said(secret, Severity.WARNING)
    assert "sinks.loki.auth.bearer" not in said(of_a_file, Severity.WARNING)


def test_start_command_is_the_one_in_the_header() -> None:
    target = base.get("promtail")
    for sink in (LOKI, {**LOKI, "auth": {"bearer": {"env": "TOKEN"}}}):
        data = given_policy(sinks={"loki": sink})
        start = target.start_argv("promtail.yaml", resolved(data), "3.6")
        assert f"# Start: {' '.join(start)}\n" in text(data)
    assert target.validate_argv("/b/promtail.yaml") == ("promtail", "-check-syntax", "-config.file=/b/promtail.yaml")


def test_defaults_are_written_out() -> None:
    data = given_policy(collector={"metrics": {"bind": "0.0.0.0", "port": 9000}, "discover_every": "7s"})
    found = config(data)
    assert (found["server"]["http_listen_address"], found["server"]["http_listen_port"]) == ("0.0.0.0", 9000)
    assert found["server"]["grpc_listen_port"] == 0
    assert found["positions"]["filename"] == "/var/lib/shipgen/t/promtail/positions.yaml"
    assert found["target_config"] == {"sync_period": "7000ms"}
    assert found["limits_config"] == {"readline_rate_enabled": False, "max_streams": 0, "max_line_size": 0}
    (client,) = found["clients"]
    assert client["backoff_config"] == {"min_period": "500ms", "max_period": "30000ms", "max_retries": 0}
    assert client["drop_rate_limited_batches"] is False


@pytest.mark.parametrize(("give_up", "longest", "count"), [
    ("never", 30_000, 0), (1, 30_000, 1), (3_600_000, 30_000, 125), (10_000, 500, 20),
])
def test_attempts_fill_the_time(give_up: int | str, longest: int, count: int) -> None:
    assert attempts(give_up, longest) == count


# --- files ---


def globs(data: dict[str, Any]) -> list[tuple[str, str]]:
    return [(t["labels"]["__path__"], t["labels"].get("__path_exclude__", ""))
            for job in config(data)["scrape_configs"] for t in job["static_configs"]]


def braced(glob: str) -> list[str]:
    """The globs that one with a brace stands for. doublestar has slashes in braces, but none in front of them."""
    found = re.fullmatch(r"(/[^{}]*)\{([^{}]*)\}", glob)
    return [found[1] + part for part in found[2].split(",")] if found else [glob]


def test_several_globs_become_one() -> None:
    paths, exclude = ["/var/log/a/*.log", "/data/b[0-9]/out.txt", "/x"], ["/var/log/a/x*", "/var/log/b/y"]
    data = given_policy(sources={"f": {**FILE, "paths": paths, "exclude": exclude}})
    ((include, left_out),) = globs(data)
    assert braced(include) == paths
    assert braced(left_out) == exclude
    assert left_out == "/var/log/{a/x*,b/y}"


def test_every_file_of_ray_is_in_one_glob_and_no_backup_in_any() -> None:
    found = [one for glob, _ in globs(given_policy(sources={"ray": {"type": "ray", "components": ["all"]}}))
             for one in braced(glob)]
    assert len(set(found)) == len(found)
    prefix = "/tmp/ray/session_2*/logs/"
    wanted = {f"{prefix}{glob}" for f in ray.FAMILIES for glob in f.globs}
    wanted |= {f"{prefix}old/{glob}" for f in ray.FAMILIES if f.moves for glob in f.globs}
    assert set(found) == wanted
    for glob in found:
        shape = re.escape(glob).replace(r"\*", "[^/]*").replace(r"\[0\-9\]", "[0-9]")
        name = glob.replace("*", "a")
        assert not re.fullmatch(shape, f"{name}.1"), glob
        assert not re.fullmatch(shape, f"{name}.12"), glob


@pytest.mark.parametrize(("source", "place"), [
    ({"rotated": "include"}, "rotated"), ({"start": "end"}, "start"), ({"ignore_older": "7d"}, "ignore_older"),
])
def test_what_needs_inodes_or_ages_is_refused(source: dict[str, Any], place: str) -> None:
    assert said(given_policy(sources={"ray": {"type": "ray", **source}})) == [f"sources.ray.{place}"]


def test_what_is_lost_and_repeated_is_said_once() -> None:
    def places(**parts: Any) -> set[str]:
        return set(said(given_policy(**parts), Severity.WARNING))

    worker, train = ({"ray": {"type": "ray", "components": [name]}} for name in ("worker", "train"))
    node, lost = {"node": "n"}, {"sinks.loki.delivery"}
    assert places(sources=train, collector=node) == lost
    kept = {"loki": {**LOKI, "delivery": "best_effort"}}
    assert places(sources=train, collector=node, sinks=kept) == set()
    assert places(sources=train) == {"collector.node"} | lost
    assert places(sources=worker, collector=node) == {"sources.ray"} | lost
    assert places(sources=train, collector=node, rotation={"by": "ray"}) == {"rotation.by"} | lost
    assert places(sources=train, collector=node, rotation={"by": "logrotate", "owner": "a:b"}) == {"rotation.by"} | lost
    both = [d.text for d in judged(given_policy(collector=node), "promtail").diagnostics if d.path == "sources.ray"]
    assert sum("reads no backups" in t for t in both) == 1
    assert sum("logs/old/" in t for t in both) == 1


def test_families_that_are_read_alike_share_a_job() -> None:
    found = config(given_policy())["scrape_configs"]
    names = [job["job_name"] for job in found]
    assert len(names) == len(set(names))
    assert len(names) < len([f for f in ray.FAMILIES if f.default]) // 2
    components = {t["labels"]["component"] for job in found for t in job["static_configs"]}
    assert components == {f.component for f in ray.FAMILIES if f.default}


# --- what is sent ---


def test_the_path_is_no_label_and_nothing_is_that_was_not_asked_for() -> None:
    loki = {**LOKI, "labels": {"static": {"job": "j"}, "fields": ["component", "level"]}, "metadata": ["pid"]}
    for job in config(given_policy(sinks={"loki": loki}))["scrape_configs"]:
        dropped = {name for stage in job["pipeline_stages"] for name in stage.get("labeldrop", ())}
        labels = [stage["labels"] for stage in job["pipeline_stages"] if "labels" in stage]
        assert dropped >= {"filename", *(n for t in job["static_configs"] for n in t["labels"]
                                         if not n.startswith("__"))}
        assert labels == [{"component": "component", "level": "level"}]
        assert {"structured_metadata": {n: n for n in ("pid", "parse_error", "entry_time", "time_source",
                                                        "truncated")}} in job["pipeline_stages"]
        assert {"static_labels": {"job": "j"}} in job["pipeline_stages"]


def test_a_time_that_does_not_parse_is_said_not_guessed() -> None:
    every = list(stages(given_policy(), "timestamp"))
    assert every
    assert {stage["action_on_failure"] for stage in every} == {"skip"}


def test_auth_and_tls() -> None:
    basic = {"user": {"env": "LOKI_USER"}, "password": {"file": "/run/p's"}}
    tls = {"ca_file": "/ca.pem", "cert_file": "/c.pem", "key_file": "/k.pem", "server_name": "loki", "verify": False}
    one = {**LOKI, "endpoint": "https://l:3100/", "tenant": "a'(b)*!", "auth": {"basic": basic}, "tls": tls}
    two = {**LOKI, "auth": {"bearer": {"file": "/run/t"}}, "batch": {"max_bytes": "64KiB", "max_wait": "2s"}}
    three = {**LOKI, "auth": {"bearer": {"env": "TOKEN"}}}
    clients = {c["name"]: c for c in config(given_policy(sinks={"one": one, "two": two, "three": three}))["clients"]}
    first, second, third = (clients[name] for name in ("one", "two", "three"))
    assert first["url"] == "https://l:3100/loki/api/v1/push"
    assert first["tenant_id"] == "a'(b)*!"
    assert first["basic_auth"] == {"username": "${LOKI_USER}", "password_file": "/run/p's"}
    assert first["tls_config"] == {**{k: v for k, v in tls.items() if k != "verify"}, "insecure_skip_verify": True}
    assert (second["bearer_token_file"], second["batchsize"], second["batchwait"]) == ("/run/t", 65536, "2000ms")
    assert third["bearer_token"] == "${TOKEN}"
    assert "tls_config" not in third
    assert "tenant_id" not in third


@pytest.mark.parametrize("secret", [*HOSTILE[1:], " 'a' # \\ ", "x: [y", "'"])
def test_a_secret_arrives_as_it_stands(secret: str) -> None:
    """Promtail puts the variable into the text of the file, and then reads that as YAML."""
    basic = {"user": {"env": "A"}, "password": {"env": "A"}}
    sinks = {"a": {**LOKI, "auth": {"basic": basic}}, "b": {**LOKI, "auth": {"bearer": {"env": "A"}}}}
    clients = yaml.safe_load(text(given_policy(sinks=sinks)).replace("${A}", secret))["clients"]
    assert clients[0]["basic_auth"] == {"username": secret, "password": secret}
    assert clients[1]["bearer_token"] == secret


@pytest.mark.parametrize(("other", "place"), [
    ({"when": {"level": "error"}}, "when"), ({"line": "json"}, "line"), ({"metadata": ["pid"]}, "metadata"),
    ({"labels": {"static": {"a": "b"}}}, "labels"), ({"late": "drop"}, "late"), ({"from": ["ray"]}, "from"),
    ({"server": {"max_line_size": "9KiB"}}, "server"),
])
def test_sinks_that_want_other_records_are_refused(other: dict[str, Any], place: str) -> None:
    sources = {"ray": {"type": "ray"}, "f": FILE}
    assert said(given_policy(sources=sources, sinks={"a": LOKI, "b": {**LOKI, **other}})) == [f"sinks.b.{place}"]


def test_a_rule_for_one_of_two_sinks_is_refused() -> None:
    rule = {"name": "r", "when": {"level": "debug"}, "drop": True, "sinks": ["a"]}
    sinks = {"a": LOKI, "b": {**LOKI, "tenant": "x"}}
    assert said(given_policy(sinks=sinks, parsing={"rules": [rule]})) == ["parsing.rules[0].sinks"]
    assert not said(given_policy(sinks=sinks, parsing={"rules": [{**rule, "sinks": ["b", "a"]}]}))


@pytest.mark.parametrize("name", ["Entry", "Value", "S_json"])
def test_names_that_promtail_has_a_use_for(name: str) -> None:
    assert said(given_policy(parsing={"rules": [{"name": "r", "add": {name: "x"}}]}, sinks={"loki": {
        **LOKI, "metadata": [name]}})) == [f"parsing.rules[0].add.{name}"]


def test_a_label_that_loki_would_refuse() -> None:
    labels = {"static": {"a": "x\ufffd"}}
    assert said(given_policy(sinks={"loki": {**LOKI, "labels": labels}})) == ["sinks.loki.labels.static.a"]
    assert said(given_policy(cluster="\ufffd", collector={"node": "n\ufffd"})) == ["cluster", "collector.node"]


# --- rules ---


def test_redactions_have_something_to_fall_back_on() -> None:
    """Before each program that may fail stands what is delivered if it does."""
    rules = [{"name": "a", "redact": {"kind": "email"}},
             {"name": "b", "when": {"level": "info"}, "redact": {"pattern": "x"}}]
    for job in config(given_policy(parsing={"rules": rules}))["scrape_configs"]:
        programs = [s["template"] for s in job["pipeline_stages"] if "template" in s]
        before = {after["source"]: one for one, after in pairwise(programs)
                  if one["source"] == after["source"] and literals(one["template"])}
        assert literals(before["S_when_b"]["template"]) == [jobs.FAILED]
        (seed,) = literals(before["S_entry"]["template"])
        assert f'S_failed="{jobs.FAILED}"' in seed
        counted = [s["metrics"] for s in job["pipeline_stages"] if "metrics" in s]
        sources = {m["source"] for one in counted for m in one.values()}
        assert sources >= {"S_failed", "S_json_a", "S_json_b", "S_when_b"}
        assert {m["config"]["value"] for one in counted for m in one.values()} == {jobs.FAILED}


def test_metrics_of_no_two_redactions_have_one_name() -> None:
    """Promtail does not start with two of one name."""
    sources = {name: {**FILE, "paths": [f"/{name}"]} for name in ("a", "a_b", "a-b")}
    rules = [{"name": name, "when": {"level": "info"}, "redact": {"pattern": "x"}} for name in ("c", "b_c", "b-c")]
    names = [name for stage in stages(given_policy(sources=sources, parsing={"rules": rules}), "metrics")
             for name in stage]
    assert len(names) == len(set(names))
    assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) for name in names)


def test_dropped_records_are_counted_under_their_rule() -> None:
    rules = [{"name": "no-debug", "when": {"level": "debug"}, "drop": True},
             {"name": "few", "sample": {"rate": 0.1, "by": "pid"}}]
    reasons = {stage["drop_counter_reason"] for stage in stages(given_policy(parsing={"rules": rules}), "drop")}
    assert reasons >= {"rule-no-debug", "rule-few"}
    limit = {"name": "l", "limit": {"records": 60, "per": "1m", "by": ["file"]}}
    (found, *_) = stages(given_policy(parsing={"rules": [limit]}), "limit")
    assert (found["rate"], found["burst"], found["drop"], found["by_label_name"]) == (1.0, 60, True, jobs.LIMIT_LABEL)


@pytest.mark.parametrize("kind", redactions.KINDS)
def test_both_spellings_of_a_kind_redact_alike(kind: str) -> None:
    """One for the stage that replaces groups, one for the function that replaces matches."""
    how = regexes.redaction({"kind": kind})
    groups = re2.compile(how["expression"]).groups
    assert groups == 1
    for sample in ("a@b.example 10.0.0.1 AKIAABCDEFGHIJKLMNOP token: abc", '"env_vars": {"A": "b"}', "Bearer abc.def"):
        stage = replaced(how["expression"], how["text"], sample)
        keep = "\\1" if how["replacement"].startswith("${1}") else ""
        written = how["replacement"].removeprefix("${1}").replace("$$", "$").replace("\\", "\\\\")
        assert stage == re2.sub(how["regex"], keep + written, sample)


def replaced(expression: str, by: str, sample: str) -> str:
    """What Promtail's `replace` stage makes of a text: each captured group becomes the text."""
    out, at = "", 0
    for match in re2.finditer(expression, sample):
        start, end = match.span(1)
        out, at = out + sample[at:start] + by, end
    return out + sample[at:]


# --- hostile text ---


def hostile(value: str) -> dict[str, Any]:
    rules = [
        {"name": "r", "redact": {"pattern": "x'\\\\/", "with": value}}, {"name": "a", "add": {"team": value}},
        {"name": "d", "when": {"message": value}, "drop": True},
        {"name": "c", "when": {"team": [value, "-"]}, "redact": {"kind": "email", "with": value}},
    ]
    loki = {**LOKI, "labels": {"static": {"a": value}}, "metadata": ["team"]}
    return given_policy(cluster=value, collector={"node": value[:200]}, parsing={"rules": rules},
                        sources={"ray": {"type": "ray", "components": ["raylet"]}}, sinks={"loki": loki})


@pytest.mark.parametrize("value", [*HOSTILE[1:], ALL, "{{ .Entry }}", "\\/", "\\\\", "`", "<<x>>", "{{- fail -}}"])
def test_hostile_text_arrives_as_it_stands(value: str) -> None:
    data = hostile(value)
    written = text(data)
    assert not EXPANDED.search(written)
    targets = [t["labels"] for job in config(data)["scrape_configs"] for t in job["static_configs"]]
    assert {t["cluster"] for t in targets} == {value}
    assert {t["node"] for t in targets} == {value[:200]}
    assert all(stage == {"a": value} for stage in stages(data, "static_labels"))
    strings = [literal for stage in stages(data, "template") for literal in literals(stage["template"])]
    assert value in strings
    texts = {stage["replace"] for stage in stages(data, "replace")} - {""}
    assert {literals(one)[0] for one in texts} >= {value}


@pytest.mark.parametrize("value", [text for text in HOSTILE if text and not set(text) & set("*?[]{},`\\")])
def test_hostile_paths(value: str) -> None:
    path = f"/a{value}"
    data = given_policy(
        sources={"f": {**FILE, "paths": [f"{path}/*.log", f"{path}/b/?.txt"], "exclude": [f"{path}/x*"]}},
        collector={"state_dir": path, "root": path}, sinks={"loki": {**LOKI, "tls": {"ca_file": path}}})
    found = config(data)
    assert found["positions"]["filename"] == f"{path.rstrip('/')}/t/promtail/positions.yaml"
    assert found["clients"][0]["tls_config"]["ca_file"] == path
    assert [braced(g) for g, _ in globs(data)] == [[f"{path}{path}/*.log", f"{path}{path}/b/?.txt"]]
    (regex,) = [s["expression"] for s in stages(data, "regex") if s.get("source") == "filename"]
    assert re2.search(regex, f"{path}{path}/y.log")["file"] == f"{path}/y.log"
    assert not EXPANDED.search(text(data))


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20) | st.sampled_from(HOSTILE))
@settings(deadline=None)
def test_quoted_text_reads_back(value: str) -> None:
    scalar = str(quoting.promtail_yaml(value))
    assert yaml.safe_load(scalar) == value
    assert not EXPANDED.search(scalar)
    assert literals(str(quoting.go_string(value))) == [value]
    (printed,) = literals(yaml.safe_load(str(quoting.go_literal("-" + value))))
    assert printed == "-" + value
    assert re2.search(f"^(?:{regexes.literal(value)})$", value)


def test_reads_back_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "render_template", lambda name, **c: render(name, **c).replace("loki:3100", "x:1"))
    choice = judged(given_policy(), "promtail")
    with pytest.raises(bundle.ParseBackError):
        bundle.of(resolved(given_policy()), [choice])


def test_lines_of_json_that_are_too_long_stay_objects() -> None:
    loki = {**LOKI, "line": "json", "server": {"max_line_size": "9KiB"}}
    found = [s["template"] for s in stages(given_policy(sinks={"loki": loki}), "template") if s["source"] == "S_line"]
    assert found
    assert all("if gt (len $line) 9216 " in program and jobs.MARK in literals(program) for program in found)
