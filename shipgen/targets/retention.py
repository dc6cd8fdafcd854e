"""How long what was delivered is kept: for Loki streams with a period, for search engines a life cycle, for S3 rules of
the bucket. Nothing here is a shipper's; each file is in the words of the server that it is for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from shipgen.pipeline.model import Pipeline, Sink
from shipgen.rendering.quoting import logql_string
from shipgen.targets.base import File

README = "retention/README.md"
_DAY = 86_400_000
ROLLOVER = {"max_age": "1d", "max_primary_shard_size": "50gb"}
"""When a new index behind a data stream is begun."""


def files(pipeline: Pipeline, header: Mapping[str, str]) -> Iterator[File]:
    """A file for each sink that says how long, and a page on where they go."""
    told = []
    for sink in pipeline.sinks:
        if "retention" in sink.options:
            file, does = _MAKERS[sink.type](pipeline, sink, header)
            told.append({"path": file.path, "does": does})
            yield file
    if told:
        yield File(README, "retention/README.md.j2", {"header": header, "r": {"files": told}}, "markdown")


def _days(milliseconds: int) -> int:
    return math.ceil(milliseconds / _DAY)


def _document(path: str, document: Mapping[str, Any]) -> File:
    return File(path, "retention/document.json.j2", {"document": document}, "yaml",
                {(key,): value for key, value in document.items()})


def _loki(_: Pipeline, sink: Sink, header: Mapping[str, str]) -> tuple[File, str]:
    """Streams of the policy's own static labels, so that what others write is left alone."""
    given, static = sink.options["retention"], sink.options["labels"]["static"]
    tenant = sink.options.get("tenant", "fake")

    def selector(labels: Mapping[str, str]) -> str:
        return "{" + ", ".join(f"{name}={logql_string(value)}" for name, value in labels.items()) + "}"

    wanted = [(static, given["keep"]), *(({**static, **s["labels"]}, s["keep"]) for s in given["streams"])]
    # where several match, the highest priority counts: a later one
    streams = [{"selector": selector(labels), "priority": number, "period": f"{keep // 3_600_000}h"}
               for number, (labels, keep) in enumerate(wanted, 1)]
    meant: dict[tuple[str | int, ...], Any] = {("overrides", tenant, "retention_stream"): streams}
    context = {"header": header, "r": {"tenant": tenant, "streams": streams}}
    return File(f"retention/{sink.name}.yaml", "retention/loki.yaml.j2", context, "yaml", meant), (
        "for the file that Loki's `runtime_config` names; merge it into what is there. Loki deletes nothing unless its "
        "compactor has `retention_enabled: true`"
    )


def _name(pipeline: Pipeline, sink: Sink) -> str:
    return f"shipgen-{pipeline.name}-{sink.name}"


def _index(sink: Sink) -> str:
    """What the names of the sink's indices match."""
    if "index" in sink.options:
        return f"{sink.options['index']['name']}*"
    return "logs-{dataset}-{namespace}".format(**sink.options["data_stream"])


def _elasticsearch(pipeline: Pipeline, sink: Sink, _: Mapping[str, str]) -> tuple[File, str]:
    given, stream = sink.options["retention"], "index" not in sink.options
    phases: dict[str, Any] = {"hot": {"actions": {"rollover": ROLLOVER} if stream else {}}}
    if "cold_after" in given:
        phases["cold"] = {"min_age": f"{_days(given['cold_after'])}d", "actions": {"set_priority": {"priority": 0}}}
    phases["delete"] = {"min_age": f"{_days(given['keep'])}d", "actions": {"delete": {}}}
    name = _name(pipeline, sink)
    return _document(f"retention/{sink.name}.json", {"policy": {"phases": phases}}), (
        f"for `PUT _ilm/policy/{name}`; the index template of `{_index(sink)}` then names it: "
        f"`index.lifecycle.name: {name}`"
    )


def _opensearch(pipeline: Pipeline, sink: Sink, _: Mapping[str, str]) -> tuple[File, str]:
    given, stream = sink.options["retention"], "index" not in sink.options
    rollover = {"min_index_age": "1d", "min_primary_shard_size": "50gb"}
    path = [("hot", [{"rollover": rollover}] if stream else [], 0)]
    if "cold_after" in given:
        path.append(("cold", [{"read_only": {}}], _days(given["cold_after"])))
    path.append(("delete", [{"delete": {}}], _days(given["keep"])))
    states = [
        {"name": name, "actions": actions, "transitions": [
            {"state_name": following, "conditions": {"min_index_age": f"{days}d"}}
            for following, _, days in path[number + 1 : number + 2]
        ]}
        for number, (name, actions, _) in enumerate(path)
    ]
    pattern = _index(sink) if "*" in _index(sink) else f".ds-{_index(sink)}-*"
    policy = {
        "description": f"{_name(pipeline, sink)}, by shipgen", "default_state": "hot", "states": states,
        "ism_template": [{"index_patterns": [pattern], "priority": 100}],
    }
    return _document(f"retention/{sink.name}.json", {"policy": policy}), (
        f"for `PUT _plugins/_ism/policies/{_name(pipeline, sink)}`; it takes new indices by their names"
    )


def _s3(pipeline: Pipeline, sink: Sink, _: Mapping[str, str]) -> tuple[File, str]:
    given, prefix = sink.options["retention"], sink.options["prefix"]
    folder = f"{prefix['by'][0]}=" if prefix["by"] else "date=" if prefix["date"] != "none" else f"{pipeline.name}-"
    rule: dict[str, Any] = {
        "ID": _name(pipeline, sink), "Status": "Enabled", "Filter": {"Prefix": folder},
        "Expiration": {"Days": _days(given["keep"])}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
    }
    if "cold_after" in given:
        rule["Transitions"] = [{"Days": _days(given["cold_after"]), "StorageClass": given["storage_class"]}]
    return _document(f"retention/{sink.name}.json", {"Rules": [rule]}), (
        f"for `aws s3api put-bucket-lifecycle-configuration --bucket {sink.options['bucket']}`, which replaces all "
        "rules of the bucket: merge them with what is there"
    )


_MAKERS = {"loki": _loki, "elasticsearch": _elasticsearch, "opensearch": _opensearch, "s3": _s3}
