"""`shipgen explain`: what a policy does, in words, for the people who run the cluster.

Each section of the page is a module, each subject in it a small function. What is said of files, variables, targets and
measurements is read off the catalogue, the capability table and the resolved pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence

from shipgen.pipeline.model import Pipeline, SecretRef
from shipgen.policy import Policy
from shipgen.targets.common import shared_rules
from shipgen.targets.explain import cluster, shippers, sinks, sources, verl
from shipgen.targets.explain.wording import Page, code, duration, listing, text
from shipgen.targets.plan import Choice

__all__ = ["explain"]


def explain(policy: Policy, pipeline: Pipeline, choices: Sequence[Choice]) -> str:
    """What the policy does, as plain text: sources, sinks, targets, rotation, Ray's environment."""
    page = Page()
    page.title(f"Policy {pipeline.name}")
    _head(page, pipeline)
    page.title("Sources")
    for source in pipeline.sources:
        sources.tell(page, source, policy, pipeline, choices)
    page.title("Sinks")
    for sink in pipeline.sinks:
        sinks.tell(page, sink, pipeline, choices)
    page.title("Targets")
    shippers.tell(page, policy, choices)
    page.title("Rotation")
    cluster.tell_rotation(page, pipeline)
    if any(s.families for s in pipeline.sources):
        page.title("Ray's environment")
        cluster.tell_environment(page, pipeline)
    if pipeline.verl or any(s.type == "verl" for s in pipeline.sources):
        page.title("VeRL")
        verl.tell(page, pipeline)
    return str(page)


def _head(page: Page, pipeline: Pipeline) -> None:
    page.fact("From", listing(pipeline.files))
    page.fact("Cluster", text(pipeline.cluster) if pipeline.cluster else "not named, so records have no `cluster`")
    match pipeline.collector.node:
        case None:
            node = "the kernel's host name"
        case SecretRef(name=name):
            node = f"what the environment variable {code(name)} holds"
        case name:
            node = text(name)
    page.fact("Node", node)
    zone = "the node's" if pipeline.timezone == "local" else pipeline.timezone
    page.fact("Zone of times that carry none", f"{zone}; a wrong one makes entries look hours late or early")
    page.fact("New files and sessions", f"noticed within {duration(pipeline.collector.discover_every)}")
    if pipeline.hop is not None:
        options = pipeline.hop.sink.options
        shared, rest = shared_rules(pipeline)
        rules = f"the rules {listing(code(r.name) for r in shared)}" if shared else "no rules"
        behind = f", the rules {listing(code(r.name) for r in rest)}" if rest else ""
        page.fact("On the way", f"through Kafka, topic {code(options['topic'])} at {listing(options['brokers'])}. On "
                  f"the nodes: reading, {rules}. In the aggregator ({code('aggregator/vector.yaml')}, as many as "
                  f"the load needs, consumer group {code(pipeline.hop.group)}){behind}: the sinks")
