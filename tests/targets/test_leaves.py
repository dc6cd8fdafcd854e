"""No leaf of the policy is ignored in silence: whoever changes one gets another configuration, or is told why not."""

from __future__ import annotations

import copy
import io
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import yaml
from making import FILE, LOKI, relay

from shipgen.diagnostics import Diagnostic, PolicyError
from shipgen.pipeline import resolve
from shipgen.pipeline.checks import check
from shipgen.policy import load, model
from shipgen.rendering import bundle
from shipgen.targets import base, plan
from shipgen.targets.capabilities import Row, Status, look_up
from shipgen.targets.explain import explain

ABSENT = object()
Leaf = tuple[str, ...]

SOURCES: dict[str, dict[str, Any]] = {
    "ray": {"type": "ray", "components": ["raylet"]}, "file": FILE,
    "verl": {"type": "verl", "paths": ["/v"]},
}
SINKS: dict[str, dict[str, Any]] = {
    "loki": {**LOKI, "endpoint": "https://loki:3100"},
    "elasticsearch": {"type": "elasticsearch", "endpoints": ["https://e:9200"]},
    "opensearch": {"type": "opensearch", "endpoints": ["https://e:9200"]}, "s3": {"type": "s3", "bucket": "ray-logs"},
    "kafka": {"type": "kafka", "brokers": ["k:9092"], "topic": "t"}, "http": {"type": "http", "endpoint": "https://h/x"},
    "file": {"type": "file", "path": "/var/log/out.jsonl"}, "console": {"type": "console"},
}


class Pair(NamedTuple):
    """Two values of a leaf, and what has to stand around it: keys beside it (each `..` in front: one further up)."""

    one: Any
    other: Any
    beside: Mapping[str, Any] = MappingProxyType({})


BASIC = {"user": {"env": "A"}, "password": {"env": "A"}}
KEYS = {"access_key_id": {"env": "A"}, "secret_access_key": {"env": "A"}}

PAIRS: dict[str, Pair] = {
    "version": Pair(1, 2),
    "targets.*.version": Pair("0.1", "999.0"),
    "name": Pair("t", "u"),
    "cluster": Pair("a", "b"),
    "collector.node": Pair("a", "b"),
    "collector.node.*": Pair("A", "B"),
    "collector.root": Pair("/", "/host"),
    "collector.state_dir": Pair("/a", "/b"),
    "collector.metrics.bind": Pair("127.0.0.1", "0.0.0.0"),
    "collector.metrics.port": Pair(9598, 9599),
    "collector.discover_every": Pair("5s", "7s"),
    "ray.version": Pair("2.60", "2.59"),
    "ray.temp_dir": Pair("/tmp/ray", "/data/ray"),
    "ray.*_format": Pair("text", "json"),
    "ray.system_level": Pair("info", "debug"),
    "ray.driver.*": Pair(True, False),
    "ray.serve_to_stderr": Pair(True, False),
    "rotation.by": Pair("ray", "logrotate"),
    "rotation.max_size": Pair("1GiB", "2GiB"),
    "rotation.backups": Pair(3, 4),
    "rotation.expected_rate": Pair("1MiB/s", "2MiB/s"),
    "rotation.downtime": Pair("1m", "1h", {"expected_rate": "100MiB/s"}),
    "rotation.disk_budget": Pair("100TiB", "1MiB"),
    "rotation.owner": Pair("a:b", "c:d", {"by": "logrotate"}),
    "verl.*.level": Pair("info", "debug"),
    "verl.engine_worker.heartbeat": Pair(True, False),
    "verl.engine_worker.execution_trace": Pair(True, False),
    "verl.engine_worker.compression_level": Pair(3, 5),
    "verl.engine_worker.checkpoint_interval": Pair("300s", "60s"),
    "verl.engine_worker.metrics.port": Pair(9091, 9092),
    "verl.engine_worker.metrics.path": Pair("/metrics", "/m"),
    "verl.engine_worker.metrics.interval": Pair("10s", "5s"),
    "verl.upstream.metrics_*": Pair("/a", "/b"),
    "sources.*.type": Pair("ray", "nope"),
    "sources.<ray>.components": Pair(["raylet"], ["worker"]),
    "sources.<ray>.exclude_components": Pair([], ["worker"], {"components": ["raylet", "worker"]}),
    "sources.*.paths": Pair(["/a/*.log"], ["/b/*.log"]),
    "sources.*.exclude": Pair([], ["/var/log/app/x*"]),
    "sources.*.start": Pair("beginning", "end"),
    "sources.*.ignore_older": Pair(ABSENT, "7d"),
    "sources.*.rotated": Pair("include", "exclude"),
    "sources.*.max_entry": Pair("240KiB", "100KiB"),
    "sources.*.max_line": Pair("2KiB", "1KiB"),
    "sources.*.on_long_line": Pair("truncate", "skip"),
    "sources.<verl>.dialect": Pair("engine_worker", "upstream"),
    "sources.<file>.format": Pair("text", "json"),
    "sources.*.format.regex": Pair("^(?P<a>x)", "^(?P<a>y)"),
    "sources.*.format.time.field": Pair("a", "b", {"layout": "python", "..regex": "(?P<a>x)(?P<b>y)"}),
    "sources.*.format.time.layout": Pair("python", "epoch_ms", {"field": "a", "..regex": "(?P<a>x)"}),
    "sources.*.multiline.start": Pair("^a", "^b"),
    "sources.*.multiline.max_lines": Pair(500, 10, {"start": "^a"}),
    "sources.*.multiline.timeout": Pair("3s", "5s", {"start": "^a"}),
    "parsing.timezone": Pair("UTC", "Europe/Berlin"),
    "parsing.fingerprint": Pair(ABSENT, "sha3-256"),
    "parsing.rules.[].name": Pair("a", "b", {"drop": True, "when": {"level": "debug"}}),
    "parsing.rules.[].sinks": Pair(["s"], ["c"], {"drop": True, "when": {"level": "debug"}}),
    "parsing.rules.[].drop": Pair(True, False),
    "parsing.rules.[].sample": Pair(0.1, 0.2),
    "parsing.rules.[].sample.rate": Pair(0.1, 0.2),
    "parsing.rules.[].sample.by": Pair(ABSENT, "job_id", {"rate": 0.1}),
    "parsing.rules.[].redact.pattern": Pair("a", "b"),
    "parsing.rules.[].redact.kind": Pair("email", "ipv4"),
    "parsing.rules.[].redact.with": Pair("x", "y", {"pattern": "a"}),
    "parsing.rules.[].limit.records": Pair(5, 6),
    "parsing.rules.[].limit.per": Pair("1s", "2s", {"records": 5}),
    "parsing.rules.[].limit.by": Pair([], ["file"], {"records": 5}),
    "parsing.rules.[].add.*": Pair("x", "y"),
    "*.when.any.[]": Pair({"level": "info"}, {"level": "warn"}),
    "*.when.all.[]": Pair({"level": "info"}, {"level": "warn"}),
    "*.when.not": Pair({"level": "info"}, {"level": "warn"}),
    "*.when.level": Pair("info", "warn"),
    "*.when.level.at_least": Pair("info", "warn"),
    "*.when.level.below": Pair("info", "warn"),
    "*.when.*.matches": Pair("a", "b"),
    "*.when.*.exists": Pair(True, False),
    "*.when.*": Pair("raylet", "worker"),
    "sinks.*.retention.keep": Pair("30d", "60d"),
    "sinks.*.retention.cold_after": Pair("7d", "8d", {"keep": "30d"}),
    "sinks.<s3>.retention.storage_class": Pair("GLACIER", "COLD", {"keep": "30d", "cold_after": "7d"}),
    "sinks.<loki>.retention.streams.[].labels.*": Pair(
        "a", "b", {"..keep": "7d", "......keep": "30d", "........labels": {"fields": ["node", "a"]}}),
    "sinks.<loki>.retention.streams.[].keep": Pair("7d", "8d", {"labels": {"level": "debug"}, "....keep": "30d"}),
    "sinks.*.type": Pair("loki", "nope"),
    "sinks.*.from": Pair(["a"], ["b"]),
    "sinks.*.endpoint": Pair("https://a", "https://b"),
    "sinks.*.endpoints": Pair(["https://a:1"], ["https://b:1"]),
    "sinks.<loki>.tenant": Pair("a", "b"),
    "sinks.<loki>.labels.static.*": Pair("a", "b"),
    "sinks.<loki>.labels.fields": Pair(["level", "node"], ["component", "node"]),
    "sinks.<loki>.labels.allow_high_cardinality": Pair(False, True, {"fields": ["pid", "node"]}),
    "sinks.<loki>.metadata": Pair(["pid"], ["file"]),
    "sinks.<loki>.line": Pair("raw", "message"),
    "sinks.<loki>.server.max_chunk_age": Pair("2h", "4h"),
    "sinks.<loki>.server.max_line_size": Pair("2KiB", "1KiB"),
    "sinks.<loki>.late": Pair("restamp", "keep"),
    "sinks.*.auth.basic.user.*": Pair("/A", "/B", {"..password": {"env": "X"}}),
    "sinks.*.auth.basic.password.*": Pair("/A", "/B", {"..user": {"env": "X"}}),
    "sinks.*.auth.*.*": Pair("/A", "/B"),
    "sinks.*.tls.cert_file": Pair("/a", "/b", {"key_file": "/k"}),
    "sinks.*.tls.key_file": Pair("/a", "/b", {"cert_file": "/c"}),
    "sinks.*.tls.*_file": Pair("/a", "/b"),
    "sinks.*.tls.server_name": Pair("a", "b"),
    "sinks.*.tls.verify": Pair(True, False),
    "sinks.*.batch.max_bytes": Pair("1MiB", "2MiB"),
    "sinks.*.batch.max_wait": Pair("1s", "2s"),
    "sinks.*.compression": Pair("none", "gzip"),
    "sinks.*.compression.codec": Pair("gzip", "zstd"),
    "sinks.<loki>.compression.codec": Pair("gzip", "snappy"),
    "sinks.*.compression.level": Pair(1, 9, {"codec": "gzip"}),
    "sinks.*.delivery": Pair("at_least_once", "best_effort"),
    "sinks.*.buffer.max_size": Pair("1GiB", "2GiB"),
    "sinks.*.buffer.when_full": Pair("block", "drop_newest"),
    "sinks.*.retry.max_backoff": Pair("30s", "60s"),
    "sinks.*.retry.give_up_after": Pair("never", "1h"),
    "sinks.*.data_stream.*": Pair("a", "b"),
    "sinks.*.index.name": Pair("a", "b"),
    "sinks.*.index.rotate": Pair("daily", "monthly", {"name": "a"}),
    "sinks.<s3>.bucket": Pair("aaa", "bbb"),
    "sinks.<s3>.prefix.by": Pair(["component"], ["node"]),
    "sinks.<s3>.prefix.date": Pair("daily", "hourly"),
    "sinks.<s3>.region": Pair("a", "b"),
    "sinks.<s3>.path_style": Pair(True, False),
    "sinks.<s3>.credentials.access_key_id.*": Pair("/A", "/B", {"..secret_access_key": {"env": "X"}}),
    "sinks.<s3>.credentials.secret_access_key.*": Pair("/A", "/B", {"..access_key_id": {"env": "X"}}),
    "sinks.<s3>.sse": Pair("AES256", "aws:kms"),
    "sinks.<kafka>.brokers": Pair(["a:1"], ["b:1"]),
    "sinks.<kafka>.topic": Pair("a", "b"),
    "sinks.<kafka>.key": Pair("node", "file"),
    "sinks.<kafka>.acks": Pair("all", "leader"),
    "sinks.<kafka>.sasl.mechanism": Pair("PLAIN", "SCRAM-SHA-256", BASIC),
    "sinks.<kafka>.sasl.user.*": Pair("/A", "/B", {"..password": {"env": "X"}}),
    "sinks.<kafka>.sasl.password.*": Pair("/A", "/B", {"..user": {"env": "X"}}),
    "sinks.<http>.method": Pair("POST", "PUT"),
    "sinks.<http>.headers.*": Pair("a", "b"),
    "sinks.<http>.headers.*.*": Pair("/A", "/B"),
    "sinks.<file>.path": Pair("/a", "/b"),
    "sinks.<console>.target": Pair("stdout", "stderr"),
    "topology.via": Pair("kafka", "nope"),
    "topology.group": Pair("a", "b"),
    "relay.target": Pair(ABSENT, "vector"),
    "relay.address": Pair("127.0.0.1:1", "127.0.0.1:2", {"target": "vector"}),
}
"""Leaf patterns (`*` is one step or part of one, at the beginning any number) to two values; of those that fit, the one
with the most letters counts."""


def pair_of(leaf: Leaf) -> Pair:
    """The two values of a leaf; what a hop shares with a Kafka sink has the same ones."""
    if leaf[0] == "topology" and leaf[1] not in ("via", "group"):
        leaf = ("sinks", "<kafka>", *leaf[1:])
    dotted = ".".join(leaf)
    fitting = [pattern for pattern in PAIRS if _fits(pattern, dotted)]
    assert fitting, f"no two values for {dotted}"
    pair = PAIRS[max(fitting, key=lambda pattern: len(pattern.replace("*", "")))]
    if leaf[-1] == "env":
        pair = pair._replace(one="A", other="B")
    return pair


def _fits(pattern: str, dotted: str) -> bool:
    head = r".*\." if pattern.startswith("*.") else ""
    body = re.escape(pattern.removeprefix("*.")).replace(r"\*", r"[^.]*")
    return re.fullmatch(head + body, dotted) is not None


def policies(leaf: Leaf, target: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Two policies that differ in one leaf, and its path in them."""
    pair = pair_of(leaf)
    if leaf[0] == "targets":
        pair = Pair(base.get(target).versions[-1], pair.other)
    path: list[str | int] = []
    data: dict[str, Any] = {
        "version": 1, "name": "t", "targets": {target: {"version": base.get(target).versions[-1]}},
        "sources": {"ray": SOURCES["ray"], "a": FILE}, "sinks": {"s": LOKI}, **relay(target),
    }
    data = copy.deepcopy(data)
    for index, step in enumerate(leaf):
        if step.startswith("<") and leaf[0] in ("sources", "sinks"):
            kind = step[1:-1]
            data[leaf[0]] = {"s": copy.deepcopy((SOURCES if leaf[0] == "sources" else SINKS)[kind])}
            path.append("s")
        elif step == "[]":
            path.append(0)
        elif step == "*":
            path.append({"targets": target, "when": "component"}.get(leaf[index - 1], "a"))
        else:
            path.append(step)
    if leaf[0] == "relay":
        data.pop("relay", None)
    if leaf[0] == "topology":
        data["topology"] = {"via": "kafka", "brokers": ["k:9092"], "topic": "t"}
    if leaf[-1] == "from":
        data["sources"]["b"] = {**FILE, "paths": ["/b"]}
        data["sinks"]["keep"] = copy.deepcopy(data["sinks"]["s"])
    if leaf[:3] == ("parsing", "rules", "[]"):
        data["sinks"]["c"] = {"type": "console"} if target in ("vector", "filebeat") else copy.deepcopy(LOKI)
        data["parsing"] = {"rules": [{"name": "r", **({"drop": True} if leaf[3] == "when" else {})}]}
    if leaf[-1] == "allow_high_cardinality" or leaf[0] == "cluster":
        data["cluster"] = "c"
    both = [_with(copy.deepcopy(data), path, value, pair.beside) for value in (pair.one, pair.other)]
    return both[0], both[1], "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in path).lstrip(".")


def _with(data: dict[str, Any], path: list[str | int], value: Any, beside: Mapping[str, Any]) -> dict[str, Any]:
    parents: list[Any] = [data]
    for step, following in pairwise(path):
        here = parents[-1]
        empty: Any = [] if following == 0 else {}
        if isinstance(step, int):
            while len(here) <= step:
                here.append(copy.deepcopy(empty))
        elif not isinstance(here.get(step), dict | list):
            here[step] = empty
        parents.append(here[step])
    for key, extra in beside.items():
        name = key.lstrip(".")
        parents[-1 - (len(key) - len(name)) // 2][name] = copy.deepcopy(extra)
    if value is not ABSENT:
        here = parents[-1]
        if isinstance(path[-1], int):
            here[path[-1] :] = [value]
        else:
            here[path[-1]] = value
    return data


class Outcome(NamedTuple):
    """What a policy gives: files without comments (None where it is refused), and what is said about it."""

    files: dict[str, Any] | None
    said: frozenset[tuple[str, str, str]]


def explained(text: str, target: str) -> str:
    """What `explain` says of a policy."""
    policy = load(["-"], io.StringIO(text))
    pipeline = resolve(policy)
    return explain(policy, pipeline, [plan.choose(target, policy, pipeline)])


@cache
def outcome(text: str, target: str) -> Outcome:
    """Load, judge and render."""

    def said(found: list[Diagnostic]) -> frozenset[tuple[str, str, str]]:
        return frozenset((d.code, d.path, d.text) for d in found)

    try:
        policy = load(["-"], io.StringIO(text))
    except PolicyError as error:
        return Outcome(None, said(error.diagnostics))
    pipeline = resolve(policy)
    choice = plan.choose(target, policy, pipeline)
    found = [*policy.diagnostics, *check(pipeline, policy), *choice.diagnostics]
    files = None
    if choice.renders:
        files = {path: parsed(path, data.decode()) for path, data in bundle.of(pipeline, [choice]).files.items()}
    return Outcome(files, said(found))


def parsed(path: str, text: str) -> Any:
    """What a file says, without its comments."""
    if path.endswith((".yaml", ".yml")):
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]


def cases() -> Iterator[tuple[str, Leaf]]:
    for target in base.implemented():
        for leaf in model.leaves():
            yield target, leaf


@pytest.mark.parametrize(("target", "leaf"), list(cases()), ids=lambda v: v if isinstance(v, str) else ".".join(v))
def test_no_leaf_is_ignored(target: str, leaf: Leaf) -> None:
    one, other, path = policies(leaf, target)
    texts = [json.dumps(data) for data in (one, other)]
    before, after = (outcome(text, target) for text in texts)
    row = look_up(target, base.release(base.get(target).versions[-1]), leaf)
    if row.status is Status.RELAYED:
        row = look_up("vector", base.release(base.get("vector").versions[-1]), leaf)
    told = [said for said in before.said | after.said if said[1] == path or _names(row, said[1], path)]
    if before.files is None or after.files is None:
        by_its_switch = leaf[-1] == "allow_high_cardinality" and before.files != after.files
        assert told or by_its_switch, f"{path} is refused without being named: {before.said} {after.said}"
    elif row.status is Status.ELSEWHERE:
        different = before.files != after.files or explained(texts[0], target) != explained(texts[1], target)
        assert different or told or leaf[0] == "relay", f"{path} is read nowhere"
    else:
        assert before.files != after.files or told, f"{path} changes nothing: {before.said ^ after.said}"


def _names(row: Row, said: str, path: str) -> bool:
    """What a target has nothing for, or not yet, is refused once: at the source or the sink."""
    whole = row.status in (Status.NOT_YET, Status.UNSUPPORTED) and row.leaf.endswith((">.**", "topology.**"))
    return whole and path.startswith(f"{said.removesuffix('.type')}.")


def test_every_pattern_is_used() -> None:
    beside = [id(pair_of(leaf).beside) for leaf in model.leaves()]
    values = [pair_of(leaf)[:2] for leaf in model.leaves()]
    used = {p for p, pair in PAIRS.items() if pair[:2] in values and (not pair.beside or id(pair.beside) in beside)}
    assert set(PAIRS) == used
