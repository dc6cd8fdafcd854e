"""Values are data: hostile text in every free field comes out of the rendered configuration exactly, or is refused."""

from __future__ import annotations

import copy
import io
import itertools
import json
import re
from typing import Any

import pytest
import re2
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from making import FILE, HOSTILE, LOKI, SECRET, VARIABLE, FakeVector, Record, config_of, config_text, judged, policy

from shipgen.diagnostics import Diagnostic, PolicyError, Severity
from shipgen.pipeline import resolve
from shipgen.pipeline.checks import check
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.rendering.fluentd_conf import sections
from shipgen.rendering.quoting import go_string
from shipgen.targets import plan

LOGS = "/tmp/ray/session_2026-12-01_00-00-00_000000_1/logs"
LINE = "[2026-12-01 05:36:23,438 W 11309 11319] (raylet) a.cc:1: low"
SMALL = {"ray": {"type": "ray", "components": ["raylet"]}}
TEXTS = [text for text in HOSTILE if text]
PATHS = [f"/a{text}" for text in TEXTS if not set(text) & set("*?[]{},`\\")]


def arrived(
    data: dict[str, Any], line: str = LINE, file: str = f"{LOGS}/raylet.out", source: str = "ray:raylet"
) -> Record:
    """What the only sink gets of a line."""
    got = FakeVector(config_of(data)).send(source, {"message": line, "file": file})
    (events,) = (events for id_, events in got.items() if id_ != "shipgen::exporter")
    (event,) = events
    return event


def plain(event: Record) -> dict[str, Any]:
    """Labels of a Loki event."""
    labels: dict[str, Any] = json.loads(event["labels"])
    return labels


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_fields(text: str) -> None:
    data = policy(
        sources=SMALL, cluster=text, collector={"node": text[:253]}, sinks={"c": {"type": "console"}},
        parsing={"rules": [{"name": "a", "add": {"x": text}}, {"name": "b", "when": {"x": text, "cluster": [text, "-"]},
                                                                  "add": {"seen": f"<{text}>"}}]},
    )
    record = arrived(data)
    assert (record["cluster"], record["node"], record["x"]) == (text, text, text)
    assert record["seen"] == f"<{text}>"


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_labels(text: str) -> None:
    labels = {"static": {"a": text}, "fields": ["cluster"]}
    loki = {**LOKI, "labels": labels, "compression": "gzip"}
    assert plain(arrived(policy(sources=SMALL, cluster=text, sinks={"loki": loki}))) == {"a": text, "cluster": text}


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_replacements(text: str) -> None:
    rules = [{"name": "a", "redact": {"pattern": "l(o)w", "with": text}}]
    data = policy(sources=SMALL, parsing={"rules": rules}, sinks={"c": {"type": "console"}})
    assert arrived(data)["message"] == text
    record = arrived(data, json.dumps({"message": "low", "k": ["low"]}, separators=(",", ":")))
    assert json.loads(record["raw"]) == {"message": text, "k": [text]}


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_conditions_and_regexes(text: str) -> None:
    escaped = "".join(c if c.isalnum() or not c.isascii() else f"\\x{ord(c):02x}" for c in text)
    backslashed = "".join(f"\\{c}" if c in "\\.+*?()|[]{}^$'\"/" else c for c in text)
    for pattern in (escaped, backslashed):
        rules = [
            {"name": "a", "when": {"message": {"matches": f"^{pattern}$"}}, "add": {"found": "yes"}},
            {"name": "b", "when": {"message": text}, "add": {"same": "yes"}},
            {"name": "c", "redact": {"pattern": pattern, "with": "R"}, "when": {"not": {"message": "x"}}},
        ]
        data = policy(sources={"f": FILE}, parsing={"rules": rules}, sinks={"c": {"type": "console"}})
        record = arrived(data, text, "/var/log/app/x.log", "f") if text.strip(" \t\r\f\v") else None
        if record:
            assert (record["found"], record["same"]) == ("yes", "yes")
            assert "R" in record["message"]
        form = {"regex": f"^(?P<x>{pattern})(?P<message>.*)$"}
        data = policy(sources={"f": {**FILE, "format": form, "multiline": {"start": f"^{pattern}"}}},
                      sinks={"c": {"type": "console"}})
        if record:
            assert arrived(data, f"{text}|rest", "/var/log/app/x.log", "f")["x"] == text
        start = config_of(data)["sources"]["f"]["multiline"]["start_pattern"]
        assert re2.search(start, text)


@pytest.mark.parametrize("path", PATHS)
def test_text_of_paths(path: str) -> None:
    data = policy(
        sources={**SMALL, "f": {**FILE, "paths": [f"{path}/*.log"], "exclude": [f"{path}/x*"]}},
        collector={"state_dir": path, "root": path}, ray={"temp_dir": f"{path}/ray"},
        sinks={"loki": {**LOKI, "tls": {"ca_file": path, "cert_file": path, "key_file": path}, "from": ["ray"]}},
        rotation={"owner": "ray:ray"},
    )
    parsed = config_of(data)
    assert parsed["data_dir"] == f"{path.rstrip('/')}/t/vector"
    assert parsed["sources"]["f"]["include"] == [f"{path}{path}/*.log"]
    assert parsed["sources"]["f"]["exclude"] == [f"{path}{path}/x*"]
    assert all(g.startswith(f"{path}{path}/ray/session_2*/logs/") for g in parsed["sources"]["ray:raylet"]["include"])
    assert {parsed["sinks"]["out::loki"]["tls"][k] for k in ("ca_file", "crt_file", "key_file")} == {path}
    record = arrived({**data, "sinks": {"c": {"type": "console", "from": ["ray"]}}},
                     file=f"{path}{path}/ray/session_2026/logs/raylet.out")
    assert (record["session"], record["file"]) == ("session_2026", "raylet.out")


@pytest.mark.parametrize("path", PATHS)
def test_text_of_a_file_sink(path: str) -> None:
    data = policy(sources=SMALL, sinks={"out": {"type": "file", "path": f"/var{path}"}})
    choice = judged(data)
    if choice.renders:
        assert config_of(data)["sinks"]["out::out"]["path"].replace("%%", "%") == f"/var{path}"
    else:
        assert [d.path for d in choice.diagnostics] == ["sinks.out.path"]


@pytest.mark.parametrize("url", [
    "http://l:3100/$X", "http://l/a$$b", "http://l/'(x)'", "https://[::1]:3100/%20%41", "http://l/a~b!c&d*e+f,g;h=i:j",
])
def test_text_of_urls_and_tenants(url: str) -> None:
    loki = {**LOKI, "endpoint": url, "tenant": "a'(b)*!._-"}
    sink = config_of(policy(sources=SMALL, sinks={"loki": loki}))["sinks"]["out::loki"]
    assert (sink["endpoint"], sink["tenant_id"]) == (url, "a'(b)*!._-")


@pytest.mark.parametrize("text", [t for t in TEXTS if "\\" not in t])
def test_names_of_policy_files(text: str) -> None:
    """They stand in the header."""
    one = load(["-"], io.StringIO(json.dumps(policy(sources=SMALL))))
    one.files = [f"dir/{text.replace('/', '')}.yaml", "\n$X\r.yaml"]
    pipeline = resolve(one)
    rendered = bundle.of(pipeline, [plan.choose("vector", one, pipeline)]).files["vector/vector.yaml"].decode()
    assert "dir/" not in rendered
    assert not VARIABLE.search(rendered)
    assert not SECRET.search(rendered)
    assert [line for line in rendered.split("\n")[:3] if not line.startswith("# ")] == []
    assert yaml.safe_load(rendered) == config_of(policy(sources=SMALL))


def test_nothing_is_interpolated_anywhere() -> None:
    everything = " ".join(t for t in TEXTS if "\\" not in t)
    rule = {"name": "a", "add": {"x": everything[:500]}, "when": {"message": {"matches": "[$]{2}|$a"}}}
    text = config_text(policy(
        sources=SMALL, cluster=everything[:500], collector={"node": everything[:250]}, parsing={"rules": [rule]},
        sinks={"loki": {**LOKI, "labels": {"static": {"a": everything[:500]}}}},
    ))
    assert not VARIABLE.search(text)
    assert not SECRET.search(text)


# --- anything ---

Path = tuple[str | int, ...]
RULES: Path = ("parsing", "rules")
FREE: list[Path] = [
    ("name",), ("cluster",), ("collector", "node"), ("collector", "root"), ("collector", "state_dir"),
    ("ray", "temp_dir"), ("collector", "metrics", "bind"), ("sources", "f", "paths", 0), ("sources", "f", "exclude", 0),
    ("sources", "f", "format", "regex"), ("sources", "f", "multiline", "start"), ("parsing", "timezone"),
    (*RULES, 0, "name"), (*RULES, 0, "when", "message", "matches"), (*RULES, 0, "when", "cluster"),
    (*RULES, 0, "add", "x"), (*RULES, 1, "redact", "with"), (*RULES, 1, "redact", "pattern"),
    (*RULES, 2, "limit", "by", 0), ("sinks", "loki", "endpoint"), ("sinks", "loki", "tenant"),
    ("sinks", "loki", "labels", "static", "a"), ("sinks", "loki", "labels", "fields", 0),
    ("sinks", "loki", "metadata", 0), ("sinks", "loki", "auth", "bearer", "file"), ("sinks", "loki", "tls", "ca_file"),
    ("sinks", "out", "path"), ("rotation", "owner"), ("targets", "vector", "version"),
]
BASE = policy(
    cluster="c", rotation={"owner": "a:b"}, ray={"temp_dir": "/tmp/ray"},
    collector={"node": "n", "root": "/", "state_dir": "/var/lib/shipgen", "metrics": {"bind": "127.0.0.1"}},
    sources={**SMALL, "f": {**FILE, "exclude": ["/var/log/app/x*"], "format": {"regex": "^(?P<message>.*)$"},
                            "multiline": {"start": "^a"}}},
    parsing={"timezone": "UTC", "rules": [
        {"name": "a", "when": {"message": {"matches": "m"}, "cluster": "c"}, "add": {"x": "y"}},
        {"name": "b", "redact": {"pattern": "p", "with": "w"}},
        {"name": "c", "limit": {"records": 1, "by": ["file"]}}]},
    sinks={
        "loki": {**LOKI, "tenant": "t", "labels": {"static": {"a": "b"}, "fields": ["level"]}, "metadata": ["x"],
                 "auth": {"bearer": {"file": "/run/t"}}, "tls": {"ca_file": "/ca"}},
        "out": {"type": "file", "path": "/var/log/out"}},
)
fragments = st.sampled_from([
    *HOSTILE, "/", "a", "x.log", "(", ")", "*", "+", "(?P<m>", "\\d", "\\x41", "^", "http://", "\n", "\0", "\x85",
    "\u2028",
])
texts = st.lists(fragments | st.text(max_size=3), min_size=1, max_size=4).map("".join)


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(FREE), texts | texts.map("/".__add__), min_size=1, max_size=3))
def test_an_error_with_a_place_or_a_bundle_that_parses_back(changes: dict[Path, str]) -> None:
    data: Any = copy.deepcopy(BASE)
    for path, value in changes.items():
        parent = data
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = value
    found, files = outcome(json.dumps(data, ensure_ascii=False), "vector")
    written = files.get("vector/vector.yaml")
    assert all(d.place is not None for d in found)
    if written is None:
        assert any(d.severity is Severity.ERROR for d in found)
        return
    parsed = yaml.load(written, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert {m[0] for m in SECRET.finditer(written)} == {parsed["sinks"]["out::loki"]["auth"]["token"]}
    assert not VARIABLE.search(written)
    assert parsed["sinks"]["out::loki"]["endpoint"] == data["sinks"]["loki"]["endpoint"]
    assert parsed["sources"]["f"]["include"][0].endswith(data["sources"]["f"]["paths"][0])
    parsed["sinks"] = {"out::out": parsed["sinks"]["out::out"]}
    base = parsed["sources"]["ray:raylet"]["include"][0].split("/session_2*")[0]
    event = {"message": "line", "file": f"{base}/session_2026/logs/raylet.out"}
    (record,) = FakeVector(parsed, rules=False).send("ray:raylet", event)["out::out"]
    assert record["cluster"] == data["cluster"]


def outcome(text: str, target: str) -> tuple[list[Diagnostic], dict[str, str]]:
    """What is said about a policy, and what is rendered of it for a target."""
    try:
        one = load(["-"], io.StringIO(text))
    except PolicyError as error:
        return error.diagnostics, {}
    pipeline = resolve(one)
    choice = plan.choose(target, one, pipeline)
    found = [*one.diagnostics, *check(pipeline, one), *choice.diagnostics]
    if not choice.renders:
        return found, {}
    return found, {path: data.decode() for path, data in bundle.of(pipeline, [choice]).files.items()}


# --- Fluentd: one place for every value, and plugins that are the same whatever the policy says ---

FOR_FLUENTD = {"targets": {"fluentd": {"version": "1.19"}}}


def fluentd_sections(conf: str) -> dict[str, dict[str, Any]]:
    """Options of all sections that have an `@id`, and of filters under `filter:<number>`."""
    count = itertools.count()
    return sections(re.sub(r"(?m)^ *<filter .*>$", lambda m: f"{m[0]}\n@id filter:{next(count)}", conf))


def fluentd_files(data: dict[str, Any]) -> dict[str, str]:
    """The bundle of a policy that Fluentd can express."""
    found, files = outcome(json.dumps(data, ensure_ascii=False), "fluentd")
    assert files, [d.message for d in found]
    return files


PLUGINS = {p: t for p, t in fluentd_files({**policy(), **FOR_FLUENTD}).items() if p.endswith(".rb")}


@pytest.mark.parametrize("text", TEXTS)
def test_fluentd_gets_text_as_it_stands(text: str) -> None:
    escaped = "".join(c if c.isalnum() or not c.isascii() else f"\\x{ord(c):02x}" for c in text)
    path = f"/a{text}" if f"/a{text}" in PATHS and "|" not in text else "/a"
    header, secret = text.strip() or "-", {"bearer": {"file": path}}
    rules = [
        {"name": "a", "add": {"x": text}, "when": {"cluster": text}},
        {"name": "b", "redact": {"pattern": escaped, "with": text}},
        {"name": "c", "when": {"message": {"matches": escaped}}, "drop": True},
    ]
    files = fluentd_files(policy(
        **FOR_FLUENTD, parsing={"rules": rules}, ray={"temp_dir": f"{path}/ray"}, cluster=text,
        collector={"node": text[:253], "state_dir": path, "root": path},
        sources={**SMALL, "f": {**FILE, "paths": [f"{path}/*.log"], "exclude": [f"{path}/x*"],
                                "format": {"regex": f"^(?P<x>{escaped})$"}, "multiline": {"start": escaped}}},
        sinks={
            "loki": {**LOKI, "labels": {"static": {"a": text}}, "auth": secret, "tls": {"ca_file": path}},
            "web": {"type": "http", "endpoint": "http://w/'(x)'", "headers": {"X-A": header}},
            "out": {"type": "file", "path": f"/var{path}"},
        },
    ))
    found = fluentd_sections(files["fluentd/fluent.conf"])
    programs = [s["program"] for name, s in found.items() if name.startswith("filter:")]
    ray, file = (next(p for p in programs if p.get("source") == name) for name in ("ray", "f"))
    assert {(p["cluster"], p["node"]) for p in (ray, file)} == {(text, text)}
    a, b, c = (next(p for p in programs if p.get("name") == name) for name in "abc")
    assert (a["options"]["fields"], a["when"]["values"]) == ({"x": text}, [text])
    assert b["options"]["with"] == ["", text]
    assert file["regex"] == rf"\A(?<x>{b['options']['regex']})\z"
    assert b["options"]["regex"] == c["when"]["regex"]
    raylet, tail = found["in:ray.raylet"], found["in:f.file"]
    assert raylet["path"].split("|")[0].replace("%%", "%") == f"{path}{path}/ray/session_2*/logs/raylet.out"
    assert tail["path"].replace("%%", "%") == f"{path}{path}/*.log"
    assert [glob.replace("%%", "%") for glob in json.loads(tail["exclude_path"])] == [f"{path}{path}/x*"]
    loki, web, out = (found[f"out:{name}"] for name in ("loki", "web", "out"))
    assert (loki["program"]["static"], loki["program"]["auth"], loki["ca_cert"]) == ({"a": text}, secret, path)
    assert (web["program"]["headers"], out["path"]) == ({"X-A": header}, f"/var{path}")
    assert {p: t for p, t in files.items() if p in PLUGINS} == PLUGINS


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(FREE), texts | texts.map("/".__add__), min_size=1, max_size=3))
def test_fluentd_gives_an_error_with_a_place_or_what_parses_back(changes: dict[Path, str]) -> None:
    data: Any = {**copy.deepcopy(BASE), **copy.deepcopy(FOR_FLUENTD)}
    for path, value in changes.items():
        parent = data
        for step in path[:-1]:
            parent = parent.setdefault(step, {}) if isinstance(parent, dict) else parent[step]
        parent[path[-1]] = value
    found, files = outcome(json.dumps(data, ensure_ascii=False), "fluentd")
    assert all(d.place is not None for d in found)
    if not files:
        assert any(d.severity is Severity.ERROR for d in found)
        return
    parsed = fluentd_sections(files["fluentd/fluent.conf"])
    assert {p: t for p, t in files.items() if p in PLUGINS} == PLUGINS
    loki, rules = parsed["out:loki"], data["parsing"]["rules"]
    assert loki["url"] == data["sinks"]["loki"]["endpoint"].rstrip("/")
    assert loki["program"]["static"] == data["sinks"]["loki"]["labels"]["static"]
    assert loki["program"]["auth"] == data["sinks"]["loki"]["auth"]
    assert parsed["out:out"]["path"] == data["sinks"]["out"]["path"]
    assert parsed["in:f.file"]["path"].replace("%%", "%").endswith(data["sources"]["f"]["paths"][0])
    assert {parsed[f"filter:{n}"]["program"]["cluster"] for n in (0, 1)} == {data["cluster"]}
    acts = [s["program"] for name, s in parsed.items() if name.startswith("filter:")][2:]
    by_name = {act["name"]: act["options"] for act in acts}
    assert by_name[rules[0]["name"]]["fields"] == rules[0]["add"]
    assert by_name[rules[1]["name"]]["with"] == ["", rules[1]["redact"]["with"]]


# --- Promtail: YAML, Go's templates in it, and the expansion of variables before both ---

FOR_PROMTAIL = {"targets": {"promtail": {"version": "3.6"}}}
EXPANDED = re.compile(r"\$\{|\$\$|\\[\\/]")
"""What `-config.expand-env` changes in a file."""


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from([p for p in FREE if p[:2] != ("sinks", "out")]),
                       texts | texts.map("/".__add__), min_size=1, max_size=3))
def test_promtail_gives_an_error_with_a_place_or_what_parses_back(changes: dict[Path, str]) -> None:
    data: Any = {**copy.deepcopy(BASE), **copy.deepcopy(FOR_PROMTAIL)}
    del data["sinks"]["out"]
    for path, value in changes.items():
        parent = data
        for step in path[:-1]:
            parent = parent.setdefault(step, {}) if isinstance(parent, dict) else parent[step]
        parent[path[-1]] = value
    found, files = outcome(json.dumps(data, ensure_ascii=False), "promtail")
    assert all(d.place is not None for d in found)
    if not files:
        assert any(d.severity is Severity.ERROR for d in found)
        return
    written = files["promtail/promtail.yaml"]
    assert not EXPANDED.search(written)
    parsed = yaml.load(written, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (client,), jobs = parsed["clients"], {job["job_name"]: job for job in parsed["scrape_configs"]}
    (file,), stages = jobs["f"]["static_configs"], jobs["f"]["pipeline_stages"]
    loki, source, rules = data["sinks"]["loki"], data["sources"]["f"], data["parsing"]["rules"]
    assert client["url"] == loki["endpoint"].rstrip("/") + "/loki/api/v1/push"
    assert client["bearer_token_file"] == loki["auth"]["bearer"]["file"]
    assert file["labels"]["__path__"].endswith(source["paths"][0])
    assert file["labels"]["__path_exclude__"].endswith(source["exclude"][0])
    assert file["labels"]["cluster"] == data["cluster"]
    assert {"static_labels": loki["labels"]["static"]} in stages
    assert [s["multiline"]["firstline"] for s in stages if "multiline" in s] == [source["multiline"]["start"]]
    texts_of_rules = {rules[1]["redact"]["with"]}
    if rules[0]["when"]["cluster"] == data["cluster"]:
        texts_of_rules.add(rules[0]["add"]["x"])
    programs = "".join(s[k].get("template", s[k].get("replace", "")) for s in stages for k in s if k in (
        "template", "replace"))
    assert all(str(go_string(text)) in programs for text in texts_of_rules if text)


# --- Filebeat: YAML in which `${` begins a variable, and the configuration of Vector as its relay ---

FOR_FILEBEAT = {
    "targets": {"filebeat": {"version": "9.0"}, "vector": {"version": "0.57"}}, "relay": {"target": "vector"},
}


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from([*FREE, ("relay", "address"), ("relay", "target")]),
                       texts | texts.map("/".__add__), min_size=1, max_size=3))
def test_filebeat_gives_an_error_with_a_place_or_what_parses_back(changes: dict[Path, str]) -> None:
    data: Any = {**copy.deepcopy(BASE), **copy.deepcopy(FOR_FILEBEAT)}
    for path, value in changes.items():
        parent = data
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = value
    found, files = outcome(json.dumps(data, ensure_ascii=False), "filebeat")
    assert all(d.place is not None for d in found)
    if not files:
        assert any(d.severity is Severity.ERROR for d in found)
        return
    written = files["filebeat/filebeat.yml"]
    # nothing is left of what Filebeat would take for a variable, once its escapes are gone
    assert "${" not in written.replace("$$", "")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    read = yaml.load(written.replace("$$", "$"), Loader=loader)
    inputs, source = {one["id"]: one for one in read["filebeat.inputs"]}, data["sources"]["f"]
    assert read["name"] == data["collector"]["node"]
    assert inputs["f"]["paths"][0].endswith(source["paths"][0].replace("[!", "[^"))
    assert inputs["f"]["parsers"][0]["multiline"]["pattern"] == source["multiline"]["start"]
    relay = files["relay/vector.yaml"]
    parsed = yaml.load(relay, Loader=loader)
    assert {m[0] for m in SECRET.finditer(relay)} == {parsed["sinks"]["out::loki"]["auth"]["token"]}
    assert not VARIABLE.search(relay)
    assert parsed["sinks"]["out::loki"]["endpoint"] == data["sinks"]["loki"]["endpoint"]
    address = data["relay"].get("address", "127.0.0.1:6044")
    assert parsed["sources"]["relay::lines"]["address"] == read["output.logstash"]["hosts"][0] == address
