"""The target `fluentd`: what is rendered, read back with a reader of its own, and what it says about a policy."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from making import FILE, LOKI, judged, policy, resolved

from shipgen.catalog import formats, ray, redactions
from shipgen.diagnostics import Severity
from shipgen.rendering import bundle, quoting
from shipgen.rendering.environment import render
from shipgen.rendering.fluentd_conf import sections
from shipgen.targets import base, fluentd, fluentd_sinks

KAFKA = {"type": "kafka", "brokers": ["k:1", "l:2"], "topic": "t"}
HOSTILE = """it's \\ \\' "q" #{`id`} # c ${X} {{ j }} {% x %} %Y @include <match **> é日\U0001f600 \\"""


def given_policy(version: str = "1.19", **parts: Any) -> dict[str, Any]:
    return policy(targets={"fluentd": {"version": version}}, **parts)


def files(data: dict[str, Any]) -> dict[str, str]:
    """What is rendered for a policy."""
    choice = judged(data, "fluentd")
    assert choice.renders, choice.diagnostics
    return {path: text.decode() for path, text in bundle.of(resolved(data), [choice]).files.items()}


def config(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return sections(files(data)["fluentd/fluent.conf"])


def programs(data: dict[str, Any], type_: str) -> list[dict[str, Any]]:
    """Parameters of our filters of one type."""
    choice = judged(data, "fluentd")
    assert choice.target is not None
    main = next(iter(choice.target.files(resolved(data), choice.version))).context["v"]
    if type_ == "shipgen_rule":
        return [*main["rules"], *(r for s in main["sinks"] for r in s["rules"])]
    return [p["program"] for p in main["programs"] if p["type"] == type_]


def test_bundle_has_what_fluentd_needs() -> None:
    found = files(given_policy())
    names = {path.removeprefix("fluentd/") for path in found if path.startswith("fluentd/")}
    assert names == {"fluent.conf", "Gemfile", *(f"plugins/{name}.rb" for name in fluentd.PLUGINS)}
    assert "gem 'fluentd', '~> 1.19.0'\n" in found["fluentd/Gemfile"]
    assert "gem 'fluentd', '>= 1.16.2', '< 1.17'\n" in files(given_policy("1.16"))["fluentd/Gemfile"]
    assert "gem 'fluentd', '~> 1.18.2'\n" in files(given_policy("1.18.2"))["fluentd/Gemfile"]


def test_plugins_are_the_same_for_every_policy() -> None:
    one = files(given_policy())
    other = files(given_policy(name="other", cluster=HOSTILE, sources={"a": dict(FILE)}))
    assert {p: t for p, t in one.items() if p.endswith(".rb")} == {p: t for p, t in other.items() if p.endswith(".rb")}


def test_every_family_is_a_source_with_a_position_of_its_own() -> None:
    found = config(given_policy())
    tails = {name: s for name, s in found.items() if s.get("@type") == "shipgen_tail"}
    assert set(tails) == {f"in:ray.{f.name}" for f in ray.FAMILIES if f.default}
    assert len({s["pos_file"] for s in tails.values()}) == len(tails)
    worker = tails["in:ray.worker"]
    assert worker["pos_file"] == "/var/lib/shipgen/t/fluentd/ray.worker.pos"
    assert worker["path"].split("|")[0] == "/tmp/ray/session_2*/logs/worker-*.out"
    wanted = {"follow_inodes": "true", "rotate_wait": "0", "read_from_head": "true", "refresh_interval": "5.0",
              "emit_unmatched_lines": "true", "hold_position": "true", "glob_policy": "always"}
    assert {name: worker[name] for name in wanted} == wanted
    assert tails["in:ray.train"]["hold_position"] == "false"
    assert "glob_policy" not in config(given_policy("1.16"))["in:ray.worker"]


def test_loki_sink_is_buffered_on_disk_and_never_gives_up() -> None:
    text = files(given_policy())["fluentd/fluent.conf"]
    buffer = text.partition("<buffer>")[2].partition("</buffer>")[0]
    assert "retry_forever true" in buffer
    assert "overflow_action 'block'" in buffer
    assert "path '/var/lib/shipgen/t/fluentd/buffer/loki'" in buffer
    once = {**LOKI, "retry": {"give_up_after": "2h"}, "delivery": "best_effort"}
    text = files(given_policy(sinks={"loki": once}))["fluentd/fluent.conf"]
    assert "retry_timeout 7200.0" in text
    assert "@type 'memory'" in text


def test_hostile_text_arrives_as_it_stands() -> None:
    rules = [
        {"name": "r", "redact": {"pattern": "x'\\\\", "with": HOSTILE}}, {"name": "a", "add": {"team": HOSTILE}},
        {"name": "d", "when": {"message": HOSTILE}, "drop": True},
    ]
    sink = {**LOKI, "labels": {"static": {"job": HOSTILE}}, "metadata": ["team"]}
    data = given_policy(cluster=HOSTILE, collector={"node": HOSTILE}, parsing={"rules": rules}, sinks={"loki": sink})
    out = config(data)["out:loki"]
    assert out["program"]["static"] == {"job": HOSTILE}
    assert {p["cluster"] for p in programs(data, "shipgen_ray")} == {HOSTILE}
    _, redact, add, drop = programs(data, "shipgen_rule")
    assert redact["options"]["with"] == ["", HOSTILE]
    assert add["options"]["fields"] == {"team": HOSTILE}
    assert drop["when"]["values"] == [HOSTILE]
    code = [line for line in files(data)["fluentd/fluent.conf"].split("\n") if not line.startswith("#")]
    assert not [line for line in code if re.match(r"\s*\S+ [^'\s]*[\"#\[{]", line)]


def test_secrets_are_references() -> None:
    auth = {"basic": {"user": {"env": "LOKI_USER"}, "password": {"file": "/run/p's"}}}
    data = given_policy(sinks={"loki": {**LOKI, "auth": auth}})
    assert config(data)["out:loki"]["program"]["auth"] == auth
    assert "# Environment: LOKI_USER\n" in files(data)["fluentd/fluent.conf"]


def test_search_engines_and_endpoints_get_requests_of_their_own() -> None:
    key: dict[str, Any] = {"api_key": {"env": "KEY"}}
    sinks = {
        "es": {"type": "elasticsearch", "endpoints": ["https://a:9200/x/", "https://b:9200"], "auth": key},
        "os": {"type": "opensearch", "endpoints": ["https://o:9200"], "index": {"name": "logs"}, "compression": "none"},
        "web": {"type": "http", "endpoint": "https://h/in", "method": "PUT", "tls": {"verify": False},
                "headers": {"X-A": "it's", "X-B": {"env": "B"}}},
    }
    found = config(given_policy(sinks=sinks))
    es, search, web = (found[f"out:{name}"]["program"] for name in sinks)
    assert es["endpoints"] == ["https://a:9200/x/_bulk", "https://b:9200/_bulk"]
    assert (es["index"], es["date"], es["time"], es["codec"]) == ("logs-ray-default", None, "@timestamp", "gzip")
    assert es["auth"] == key
    assert (search["index"], search["date"], search["codec"]) == ("logs", "%Y.%m.%d", None)
    assert (web["method"], web["time"], web["codec"], web["index"]) == ("PUT", "time", None, None)
    assert web["headers"] == {"X-A": "it's", "X-B": {"env": "B"}}
    assert web["tls"] == {"verify": False}


def test_objects_and_messages() -> None:
    keys: dict[str, Any] = {"access_key_id": {"env": "K"}, "secret_access_key": {"file": "/run/s"}}
    sinks = {
        "a": {"type": "s3", "bucket": "logs", "credentials": keys, "sse": "aws:kms",
              "compression": {"codec": "zstd", "level": 9}, "prefix": {"by": ["component", "pid"], "date": "hourly"}},
        "b": {"type": "s3", "bucket": "logs", "endpoint": "http://s:9000", "path_style": True, "compression": "none"},
        "k": {**KAFKA, "key": "node", "acks": "leader", "sasl": {"user": {"env": "U"}, "password": {"env": "P"}}},
    }
    data = given_policy(sinks=sinks)
    found = config(data)
    a, b, k = (found[f"out:{name}"]["program"] for name in sinks)
    assert (a["region"], a["endpoint"], a["sse"], a["path_style"]) == (None, None, "aws:kms", False)
    assert (a["codec"], a["level"], a["extension"]) == ("zstd", 9, ".jsonl.zst")
    assert (a["by"], a["date"], a["name"]) == (["component", "pid"], "date=%Y-%m-%d/hour=%H/", "t")
    assert a["credentials"] == keys
    assert (b["region"], b["endpoint"], b["path_style"]) == ("us-east-1", "http://s:9000", True)
    assert (b["codec"], b["extension"], b["credentials"]) == (None, ".jsonl", None)
    assert (k["brokers"], k["topic"], k["key"], k["acks"]) == (["k:1", "l:2"], "t", "node", 1)
    assert k["sasl"] == {"mechanism": "SCRAM-SHA-512", "user": {"env": "U"}, "password": {"env": "P"}}
    assert (k["codec"], k["batch"]) == ("gzip", (1 << 20) - fluentd_sinks.BATCH_ROOM)
    text = files(data)
    assert text["fluentd/fluent.conf"].count("    <buffer folder>\n") == 2
    assert "# Environment: K, P, U\n" in text["fluentd/fluent.conf"]
    gems = re.findall(r"^gem '([^']+)'", text["fluentd/Gemfile"], re.MULTILINE)
    assert gems[-3:] == ["aws-sdk-s3", "ruby-kafka", "zstd-ruby"]
    assert "aws-sdk-s3" not in files(given_policy())["fluentd/Gemfile"]


def relayed(**parts: Any) -> dict[str, Any]:
    versions = {"fluentd": {"version": "1.19"}, "fluentbit": {"version": "5.1"}}
    relay = {"target": "fluentbit", "address": "127.0.0.1:6044"}
    return policy(**{"targets": versions, "relay": relay, **parts})


def test_with_a_relay_there_are_no_plugins_of_ours() -> None:
    data = relayed(sources={"ray": {"type": "ray"}, "a": {**FILE, "multiline": {"start": "^it's$"}}})
    found = files(data)
    shippers = {path for path in found if not path.startswith(("ray/", "logrotate/", "MANIFEST"))}
    assert shippers == {"fluentd/fluent.conf", "fluentd/Gemfile", "relay/fluent-bit.yaml", "relay/shipgen.lua"}
    assert re.findall(r"^gem '([^']+)'", found["fluentd/Gemfile"], re.MULTILINE) == ["fluentd"]
    assert not [line for line in found["fluentd/fluent.conf"].split("\n") if "shipgen_" in line]
    conf = config(data)
    assert conf["in:ray.worker"]["tag"] == conf["in:ray.job_driver"]["tag"] == "ray.user"
    assert conf["in:a.file"]["tag"] == "a.file"
    assert conf["in:ray.worker"]["pos_file"] == config(given_policy())["in:ray.worker"]["pos_file"]
    assert "format_firstline '/\\\\Ait\\'s\\\\Z/'" in found["fluentd/fluent.conf"]
    (entry,) = yaml.safe_load(found["relay/fluent-bit.yaml"])["pipeline"]["inputs"]
    assert (entry["name"], entry["listen"], entry["port"]) == ("forward", "127.0.0.1", 6044)
    assert base.get("fluentd").start_argv("/b/fluent.conf", resolved(data), "1.19") == (
        "fluentd", "--config", "/b/fluent.conf")


@pytest.mark.parametrize(("regex", "begins", "ruby"), [
    ("^a$", "found", r"/\Aa\Z/"), (r"\\z$", "found", r"/\\z\Z/"), ("^b", "not_found", r"/\A(?!.*(?:\Ab))/"),
])
def test_first_lines_have_their_line_feed(regex: str, begins: str, ruby: str) -> None:
    assert fluentd.firstline(regex, begins) == ruby


def test_what_a_relay_does_is_judged_as_the_relay() -> None:
    def said(**parts: Any) -> set[tuple[str, str, Severity]]:
        choice = judged(relayed(**parts), "fluentd")
        return {(d.path, d.code, d.severity) for d in choice.diagnostics if d.severity is not Severity.NOTE}

    kafka = {"k": {**KAFKA, "compression": "snappy"}}
    assert said(sinks=kafka) == set()
    assert judged(given_policy(sinks=kafka), "fluentd").renders is False
    late = {"loki": {**LOKI, "delivery": "at_least_once"}}
    assert ("sinks.loki.delivery", "approximated", Severity.WARNING) in said(sinks=late)
    away = {"target": "fluentbit", "address": "10.0.0.1:6044"}
    assert said(relay=away) == {("relay.address", "unsupported", Severity.ERROR)}
    other = given_policy(relay={"target": "vector"})
    assert "fluentd/plugins/shipgen.rb" in files(other)


def test_records_go_to_the_sinks_that_want_their_source() -> None:
    data = given_policy(
        sources={"ray": {"type": "ray"}, "app": dict(FILE)},
        sinks={"loki": {**LOKI, "from": ["ray"]}, "out": {"type": "file", "path": "/var/out.jsonl"}},
        parsing={"rules": [{"name": "no", "when": {"level": "debug"}, "drop": True, "sinks": ["out"]}]},
    )
    text = files(data)["fluentd/fluent.conf"]
    ray_routes = text.partition("<match ray.*>")[2].partition("</match>")[0]
    app_routes = text.partition("<match app.*>")[2].partition("</match>")[0]
    assert re.findall(r"@label (\S+)", ray_routes) == ["@sink-loki", "@sink-out"]
    assert re.findall(r"@label (\S+)", app_routes) == ["@sink-out"]
    assert "shipgen_rule" not in text.partition("<label @sink-loki>")[2].partition("</label>")[0]
    assert "shipgen_rule" in text.partition("<label @sink-out>")[2].partition("</label>")[0]


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"sources": {"a": {**FILE, "paths": ["/v/a|b.log"]}}}, "sources.a.paths"),
        ({"ray": {"temp_dir": "/tmp/a|b"}}, "ray.temp_dir"),
        ({"sinks": {"loki": {**LOKI, "tls": {"server_name": "x"}}}}, "sinks.loki.tls.server_name"),
        ({"sinks": {"loki": {**LOKI, "buffer": {"when_full": "drop_newest"}}}}, "sinks.loki.buffer.when_full"),
        ({"sinks": {"k": {**KAFKA, "tls": {"verify": False}}}}, "sinks.k.tls.verify"),
        ({"sinks": {"k": {**KAFKA, "compression": "lz4"}}}, "sinks.k.compression"),
        ({"sinks": {"k": {**KAFKA, "acks": "none", "delivery": "at_least_once"}}}, "sinks.k.acks"),
        ({"sinks": {"loki": {**LOKI, "compression": "snappy"}}}, "sinks.loki.compression"),
    ],
)
def test_refused(parts: dict[str, Any], path: str) -> None:
    errors = [d.path for d in judged(given_policy(**parts), "fluentd").diagnostics if d.severity is Severity.ERROR]
    assert errors == [path]


def test_before_1_17_only_a_star_makes_a_pattern() -> None:
    data = {"sources": {"a": {**FILE, "paths": ["/v/[ab].log"]}}}
    assert not judged(given_policy("1.16", **data), "fluentd").renders
    assert judged(given_policy("1.17", **data), "fluentd").renders


def test_small_batches_are_made_larger_and_said_so() -> None:
    sink = {**LOKI, "batch": {"max_bytes": "10KiB"}}
    data = given_policy(sinks={"loki": sink})
    said = [d for d in judged(data, "fluentd").diagnostics if d.path == "sinks.loki.batch.max_bytes"]
    assert said
    assert {d.severity for d in said} == {Severity.WARNING}
    smallest = fluentd_sinks.smallest_chunk(resolved(data))
    assert f"chunk_limit_size {smallest}\n" in files(data)["fluentd/fluent.conf"]


@pytest.mark.parametrize(
    ("pattern", "ruby"),
    [
        ("^a$", r"\Aa\z"), ("(?m)^a$", "^a$"), (r"\^[$^]\$", r"\^[$^]\$"), (r"(?P<x>\d+)", "(?<x>[0-9]+)"),
        (r"[\d\s]\W", r"[0-9\t\n\f\r ][^0-9A-Za-z_]"), (r"\ba\B", r"(?a:\b)a(?a:\B)"), (r"\x{e9}[\x{1f600}]\x41",
         r"\u{e9}[\u{1f600}]\x41"), (r"\(?P<x>", r"\(?P<x>"),
    ],
)
def test_regexes_mean_in_ruby_what_they_mean_elsewhere(pattern: str, ruby: str) -> None:
    assert quoting.ruby_source(pattern) == ruby


def test_no_regex_of_the_catalogue_is_left_with_ends_of_lines() -> None:
    every = [r for _, r in fluentd.plugin_facts()["regexes"]] + [k.regex for k in redactions.KINDS.values()]
    for regex in [*every, formats.HEADER, formats.CONTINUATION, *(f.pattern for f in ray.FAMILIES)]:
        outside = re.sub(r"\\.|\[(?:\\.|[^\]])*\]", "", quoting.ruby_source(regex))
        assert regex.startswith("(?m)") or not re.search(r"[$^]", outside)


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"))))
@settings(deadline=None)
def test_quoted_text_reads_back(text: str) -> None:
    options = f"option {quoting.fluentd('-' + text)}\nparameters {quoting.fluentd_json({'a': [text]})}"
    found = sections(f"<match>\n@id 'x'\n{options}\n</match>")["x"]
    assert found["option"] == "-" + text
    assert found["parameters"] == {"a": [text]}


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b", "\ud800"])
def test_what_has_no_place_in_quotes_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="single-quoted"):
        quoting.fluentd(text)


@pytest.mark.parametrize(
    "text",
    ["<a>\n</b>", "<a>\n", "b c", *(f"<a>\nb {v}\n</a>" for v in ('"#{x}"', "'x", "'x' y", "x # y", "[1]"))],
)
def test_reader_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"line|closed"):
        sections(text)


def test_reads_back_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "render_template", lambda name, **c: render(name, **c).replace("loki:3100", "x:1"))
    choice = judged(given_policy(), "fluentd")
    with pytest.raises(bundle.ParseBackError):
        bundle.of(resolved(given_policy()), [choice])


def test_commands() -> None:
    target = base.get("fluentd")
    pipeline = resolved(given_policy())
    assert target.start_argv("/b/fluent.conf", pipeline, "1.19")[-1] == "/b/plugins"
    assert target.start_argv("fluent.conf", pipeline, "1.19")[-1] == "plugins"
    assert "--dry-run" in target.validate_argv("/b/fluent.conf")
