"""What of a pipeline can reach a sink, and in how many streams, as far as that is known before any record is seen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from shipgen.catalog import formats, verl
from shipgen.catalog.ray import Family
from shipgen.pipeline import conditions
from shipgen.pipeline.conditions import ALWAYS, NEVER, Condition
from shipgen.pipeline.model import Pipeline, Rule, Sink, Source
from shipgen.policy.model import RECORD_FIELDS

Values = tuple[str | None, ...] | None
"""Values that a field can have; None among them means absent. None instead of them: nobody knows how many."""

_OF_ANY_FILE = frozenset(
    {"time", "time_source", "entry_time", "parse_error", "truncated", "message", "raw", "source", "node", "cluster"}
    | {"file"}
)
_OF_ANY_JSON = frozenset({"level", "pid", "thread", "caller", "extra", *formats.JSON_IDS, *formats.JSON_SERVE})
_FLAG: Values = ("true", None)


@dataclass(frozen=True, slots=True)
class Part:
    """Records that the same is known of: one component's of a Ray source, or all of another source."""

    source: Source
    families: tuple[Family, ...] = ()

    @property
    def component(self) -> str | None:
        """Field `component` of these records."""
        if self.families:
            return self.families[0].component
        return self.source.component or None

    @property
    def name(self) -> str:
        """What to call them."""
        return self.component or self.source.name

    @property
    def head_only(self) -> bool:
        """Whether only a head node has them."""
        return bool(self.families) and all(f.head_only for f in self.families)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What of a part reaches a sink.

    ``when`` is what is left of the sink's condition once the part is known; what rules do comes on top. ``levels`` are
    those that can arrive (None: records without a level). ``stopped_by`` names what keeps all of it away, if anything.
    """

    part: Part
    when: Condition
    levels: tuple[str | None, ...]
    stopped_by: str = ""


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams of one or more parts in a Loki sink: the values of each label, for parts that have them alike."""

    source: str
    parts: tuple[Part, ...]
    values: Mapping[str, Values]

    @property
    def count(self) -> int:
        """Most streams that they can make on one node in one session; labels without a bound count as one value."""
        each = prod(len(v) for name, v in self.values.items() if v and name != "component")
        return each * (len(self.parts) if "component" in self.values else 1)

    @property
    def unbounded(self) -> tuple[str, ...]:
        """Labels whose values nobody can count beforehand."""
        return tuple(name for name, v in self.values.items() if v is None)


def parts(source: Source) -> Iterator[Part]:
    """The parts of a source, in the order of the catalogue."""
    if not source.families:
        yield Part(source)
    for component in dict.fromkeys(f.component for f in source.families):
        yield Part(source, tuple(f for f in source.families if f.component == component))


def known(part: Part, pipeline: Pipeline) -> dict[str, str | None]:
    """Fields that are the same in every record of a part; None where no record has the field."""
    source = part.source
    found: dict[str, str | None] = {"source": source.name, "component": part.component, "cluster": pipeline.cluster}
    groups = set(re.compile(source.regex).groupindex)
    if "event" not in groups:
        found["event"] = None
    if not source.families and not source.pairs:
        there = _OF_ANY_FILE | groups | (_OF_ANY_JSON if source.format == "json" else set())
        found |= {f: None for f in RECORD_FIELDS if f not in there}
    return found


def arrival(part: Part, sink: Sink, pipeline: Pipeline) -> Arrival:
    """What of a part reaches a sink."""
    facts = known(part, pipeline)
    drops = [r for r in pipeline.rules_for(sink) if r.action == "drop"]
    gates: list[tuple[str, Condition]] = [(f"rule {r.name}", conditions.Not(r.when)) for r in drops]
    gates.append(("its `when`", sink.when))
    stopped = next((name for name, gate in gates if conditions.partial(gate, facts) == NEVER), "")
    gate = conditions.All(tuple(_levels_spelled_out(gate) for _, gate in gates))
    levels = [facts["level"]] if "level" in facts else [*formats.LEVEL_ORDER, None]
    passing = tuple(v for v in levels if not stopped and conditions.partial(gate, {**facts, "level": v}) != NEVER)
    if not passing and not stopped:
        stopped = "what is asked of the level"
    return Arrival(part, conditions.partial(sink.when, facts), passing, stopped)


def arrivals(pipeline: Pipeline, sink: Sink) -> tuple[Arrival, ...]:
    """Every part of the sink's sources, with what of it arrives."""
    sources = (s for s in pipeline.sources if s.name in sink.sources)
    return tuple(arrival(part, sink, pipeline) for s in sources for part in parts(s))


def applies(rule: Rule, pipeline: Pipeline, sink: Sink) -> bool:
    """Whether a rule can meet any record on its way to a sink."""
    sources = (s for s in pipeline.sources if s.name in sink.sources)
    return any(conditions.partial(rule.when, known(p, pipeline)) != NEVER for s in sources for p in parts(s))


def _levels_spelled_out(condition: Condition) -> Condition:
    """The condition with `below` as a list of levels, so that it can be judged once the level is known."""
    match condition:
        case conditions.Below(level):
            return conditions.Is("level", formats.LEVEL_ORDER[: formats.LEVEL_ORDER.index(level)])
        case conditions.Not(of):
            return conditions.Not(_levels_spelled_out(of))
        case conditions.All(of) | conditions.Any_(of):
            return type(condition)(tuple(_levels_spelled_out(c) for c in of))
    return condition


# --- streams ---


def values(field: str, arriving: Arrival, pipeline: Pipeline, sink: Sink) -> Values:
    """Values that a field has in the records of an arrival, on one node and in one session."""
    part, facts = arriving.part, known(arriving.part, pipeline)
    if field in facts:
        return (facts[field],)
    match field:
        case "level":
            return arriving.levels
        case "node" | "session":
            return (field,) if field == "node" or part.families else (None,)
        case "stream":
            ways = ["stream" in f.fields for f in part.families]
            return (*(("out", "err") if any(ways) else ()), *((None,) if not all(ways) else ()))
        case "event" if part.source.regex == verl.ENGINE_WORKER:
            return (*verl.EVENTS, None)
        case "parse_error" | "truncated":
            return _FLAG
        case "time_source":
            return ("read", "late", None) if sink.options.get("late") == "restamp" else ("read", None)
    return _added(field, pipeline.rules_for(sink), facts)


def _added(field: str, rules: Sequence[Rule], facts: Mapping[str, str | None]) -> Values:
    """Values that rules give to a field; None for a field of the record itself."""
    adding = [r for r in rules if r.action == "add" and field in r.options]
    if not adding:
        return None
    reached = [(str(r.options[field]), conditions.partial(r.when, facts)) for r in adding]
    texts = list(dict.fromkeys(text for text, when in reached if when != NEVER))
    always = any(when == ALWAYS for _, when in reached)
    return (*texts, *(() if always else (None,)))


def streams(pipeline: Pipeline, sink: Sink) -> tuple[Streams, ...]:
    """The streams of a Loki sink, parts with equal values of their labels put together."""
    fields: Sequence[str] = sink.options["labels"]["fields"]
    groups: dict[tuple[object, ...], list[Arrival]] = {}
    shaped: dict[tuple[object, ...], dict[str, Values]] = {}
    for one in arrivals(pipeline, sink):
        if one.stopped_by:
            continue
        shape = {f: values(f, one, pipeline, sink) for f in fields}
        key = (one.part.source.name, *((f, v) for f, v in shape.items() if f != "component"))
        groups.setdefault(key, []).append(one)
        shaped.setdefault(key, shape)
    return tuple(Streams(str(key[0]), tuple(a.part for a in found), shaped[key]) for key, found in groups.items())


def most_streams(found: Sequence[Streams], *, head: bool = True) -> int:
    """Most streams from a head node, or from a worker node: those of different parts with equal labels are one."""
    if not head:
        found = [replace(s, parts=tuple(p for p in s.parts if not p.head_only)) for s in found]
    together = sum(s.count for s in found if s.parts)
    if together > _TOO_MANY_TO_LIST:
        return together
    distinct: set[tuple[str | None, ...]] = set()
    for one in found:
        for part in one.parts:
            sides = [(part.component,) if f == "component" else v or ("*",) for f, v in one.values.items()]
            distinct.update(product(*sides))
    return len(distinct)


_TOO_MANY_TO_LIST = 100_000
