"""The shapes of a resolved policy. Sizes are bytes, durations milliseconds, rates bytes per second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shipgen.catalog.ray import Family
from shipgen.pipeline.conditions import Condition


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret is found at run time: an environment variable or a file. Never its value."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Collector:
    """Where the shipper runs. ``node`` is a literal, a reference to a variable, or None for the kernel's host name."""

    node: str | SecretRef | None
    root: str
    state_dir: str
    metrics_bind: str
    metrics_port: int
    discover_every: int


@dataclass(frozen=True, slots=True)
class TimeField:
    """Which group of a file's regex is the time, and in which layout."""

    field: str
    layout: str


@dataclass(frozen=True, slots=True)
class Multiline:
    """An entry starts where ``start`` matches; None groups nothing."""

    start: str
    max_lines: int
    timeout: int


@dataclass(frozen=True, slots=True)
class Twins:
    """Which lines of a Ray source are repeats of lines that the same sinks get from another family."""

    serve: bool = False
    cpp: bool = False
    driver: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """Files to read.

    For a Ray source ``families`` says which; ``base`` is the temp directory under the collector's root. Other sources
    have ``paths`` and ``exclude`` (globs, under the root) and their own ``format``; ``component`` is what their records
    have as such, if anything. A line in which ``continuation`` is found belongs to the line before it. With ``pairs``
    the words of VeRL's events become fields.
    """

    name: str
    type: str
    start: str
    rotated: str
    ignore_older: int | None
    max_entry: int
    max_line: int
    on_long_line: str
    base: str = ""
    families: tuple[Family, ...] = ()
    twins: Twins = Twins()
    paths: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    format: str = "text"
    regex: str = ""
    time: TimeField | None = None
    multiline: Multiline | None = None
    component: str = ""
    continuation: str = ""
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to matching records. ``action`` is drop, sample, redact, limit or add; ``options`` are its settings.

    ``sinks`` are the sinks it works for; None means all. ``index`` is its place in the policy; -1 for a built-in rule.
    """

    name: str
    when: Condition
    action: str
    options: Mapping[str, Any]
    sinks: frozenset[str] | None = None
    index: int = -1


@dataclass(frozen=True, slots=True)
class Sink:
    """Where records go. ``options`` are the sink's own settings, with secrets as :class:`SecretRef`."""

    name: str
    type: str
    sources: tuple[str, ...]
    when: Condition
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hop:
    """Kafka between the nodes and the sinks: agents write to ``sink``, aggregators of a consumer group read there."""

    sink: Sink
    group: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A policy resolved. ``files`` names the policy files, for headers and for the regeneration hint."""

    name: str
    cluster: str | None
    files: tuple[str, ...]
    collector: Collector
    timezone: str
    sources: tuple[Source, ...]
    rules: tuple[Rule, ...]
    sinks: tuple[Sink, ...]
    ray: Mapping[str, Any] = field(default_factory=dict)
    rotation: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    relay: Mapping[str, Any] | None = None
    verl: Mapping[str, Any] = field(default_factory=dict)
    hop: Hop | None = None
    fingerprint: str = ""

    def rules_for(self, sink: Sink) -> tuple[Rule, ...]:
        """Rules that work for a sink, in order."""
        return tuple(r for r in self.rules if r.sinks is None or sink.name in r.sinks)
