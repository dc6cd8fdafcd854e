"""Kafka between the nodes and the sinks: what the agents ship, and the Vector that takes it on.

Agents are the policy with Kafka as their only sink and with the rules that hold for every sink; the rest of the rules
and the sinks are the aggregator's. The messages are the records as JSON, so the same record arrives. Read in
vectordotdev/vector at v0.57.0 (`src/sources/kafka.rs`) and run on 0.57 with Kafka 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shipgen.diagnostics import Severity
from shipgen.pipeline.model import Pipeline
from shipgen.targets import common, vector, vector_sinks
from shipgen.targets.base import File, Finding

NAME = "aggregator"
CONFIG = "aggregator/vector.yaml"
SESSION_MS = 10_000
"""Silence after which the group gives a consumer's partitions to others. For so long nobody reads them when a consumer
was killed, the one that is started in its place neither; Kafka's own 45 s would be felt."""
_OTHER = -1


def agents(pipeline: Pipeline) -> Pipeline:
    """The pipeline of the nodes: the whole one where there is no hop."""
    if pipeline.hop is None:
        return pipeline
    shared, _ = common.shared_rules(pipeline)
    rules = tuple(replace(rule, sinks=None) for rule in shared)
    return replace(pipeline, rules=rules, sinks=(pipeline.hop.sink,), hop=None)


def behind(pipeline: Pipeline) -> Pipeline:
    """The pipeline of the aggregator: the rules that are left, and the sinks."""
    return replace(pipeline, rules=common.shared_rules(pipeline)[1])


def version(pipeline: Pipeline) -> str:
    """Version of the Vector that aggregates."""
    return pipeline.versions.get(vector.TARGET.name, vector.TARGET.versions[-1])


class _Aggregator(vector._Config):
    """The flat context of the aggregator's `vector.yaml`."""

    knows_fields = False  # rules of the agents have added some, and others may write to the topic

    def marks(self) -> dict[str, int]:
        names = [s.name for s in self.pipeline.sources]
        parted = any(len(sink.sources) < len(names) for sink in self.pipeline.sinks)
        return {name: i for i, name in enumerate(names)} if parted else {}

    def marks_of_others(self) -> list[int]:
        return [_OTHER]

    def heads(self) -> dict[str, list[str]]:
        hop = self.pipeline.hop
        assert hop is not None
        options = hop.sink.options
        sasl = options.get("sasl")
        id_ = "kafka::in"
        self.sources.append({
            "kind": "kafka", "id": id_, "brokers": ",".join(options["brokers"]), "topic": options["topic"],
            "group": hop.group, "session_ms": SESSION_MS, "drain_ms": SESSION_MS // 2,
            # of what waits for the sinks librdkafka keeps so much in memory, for each partition
            "client": [("queued.max.messages.kbytes", "16384")],
            "sasl": sasl and [("mechanism", sasl["mechanism"]), ("username", self.secrets.reference(sasl["user"])),
                              ("password", self.secrets.reference(sasl["password"]))],
            "tls": vector_sinks.tls(options["tls"], named=False) if "tls" in options else [],
        })
        self.meant |= {("sources", id_, "topics"): [options["topic"]], ("sources", id_, "group_id"): hop.group}
        program = {"marks": list(self.marked.items()), "other": _OTHER}
        record = self.remap("kafka::record", [id_], "vector/message.vrl.j2", program, role="entry")
        return {s.name: [record] for s in self.pipeline.sources}


def files(pipeline: Pipeline) -> Iterator[File]:
    """`aggregator/vector.yaml`, where there is a hop."""
    if pipeline.hop is not None:
        here = behind(pipeline)
        yield vector.config_file(_Aggregator(here, version(pipeline)), here, NAME, CONFIG, target="TARGET")


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """What the aggregator can't do as the policy says, and what goes another way than without it."""
    if pipeline.hop is None:
        return
    for finding in vector.TARGET.check_sinks(behind(pipeline), version(pipeline)):
        yield replace(finding, text=f"the aggregator: {finding.text}")
    for rule in common.shared_rules(pipeline)[1]:
        if rule.action == "redact":
            yield Finding("redacted-late", Severity.WARNING, ("parsing", "rules", rule.index),
                          "behind a rule that names its sinks, this one runs in the aggregator: Kafka holds the text "
                          "as it was", "put it before all rules that name sinks")
    topic = pipeline.hop.sink.options["topic"]
    for sink in pipeline.sinks:
        if sink.type == "kafka" and sink.options["topic"] == topic:
            yield Finding("conflict", Severity.ERROR, ("sinks", sink.name, "topic"),
                          "the aggregator would read what it writes", "use another topic, or remove this sink")
