"""What one policy does that another did not: records, streams, offsets, fields, Ray's environment, settings.

All of it is read off two resolved pipelines, so that a policy written otherwise which means the same is no change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from shipgen.catalog.environment import Scope
from shipgen.catalog.ray import FAMILIES
from shipgen.diagnostics import Diagnostic, Severity
from shipgen.pipeline import reach, rotation
from shipgen.pipeline.model import Pipeline, Rule, Sink, Source
from shipgen.policy import Policy, model
from shipgen.policy.loading import secret_path
from shipgen.targets import common, node
from shipgen.targets.explain import wording
from shipgen.targets.explain.wording import code, listing, text
from shipgen.targets.plan import Choice

Path = tuple[str | int, ...]

KINDS: Mapping[str, tuple[str, Severity]] = {
    "read again": ("rereads-files", Severity.WARNING),
    "lines skipped": ("skips-lines", Severity.WARNING),
    "fewer records": ("fewer-records", Severity.WARNING),
    "new streams": ("new-streams", Severity.WARNING),
    "more records": ("policy-change", Severity.NOTE),
    "other records": ("policy-change", Severity.NOTE),
    "fields": ("policy-change", Severity.NOTE),
    "renamed": ("policy-change", Severity.NOTE),
    "environment": ("policy-change", Severity.NOTE),
    "setting": ("policy-change", Severity.NOTE),
    "target": ("policy-change", Severity.NOTE),
}
"""What a change does, with the code and the weight of its diagnostic."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two policies, with the targets it is rendered for."""

    policy: Policy
    pipeline: Pipeline
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is different. ``about`` is policy, source, sink, ray, rotation or target, ``name`` which of them;
    ``kind`` is a key of :data:`KINDS`; ``path`` is where the new policy has it."""

    about: str
    name: str
    kind: str
    text: str
    path: Path = ()

    def diagnostic(self, new: Side) -> Diagnostic:
        """The change as a finding in the new policy."""
        code_, severity = KINDS[self.kind]
        place = new.policy.place(*self.path)
        return Diagnostic(code_, severity, new.policy.path(*self.path), f"{self.kind}: {self.text}", "", place)


def changes(old: Side, new: Side) -> list[Change]:
    """Every change, in the order of the policy."""
    sources = _renamed(old.pipeline.sources, new.pipeline.sources, _overlap)
    sinks = _renamed(old.pipeline.sinks, new.pipeline.sinks, _same_place)
    found = [
        *_policy(old, new), *_sources(old, new, sources), *_offsets(old, new),
        *_sinks(old, new, sources, sinks), *_idle_rules(old, new, sinks), *_environment(old, new), *_growth(old, new),
        *_settings(old, new, sources, sinks), *_targets(old, new),
    ]
    if found:  # what a target says of a default that is written out is no change
        found += _new_findings(old, new)
    abouts = ("policy", "source", "sink", "ray", "rotation", "target")
    named = [*(s.name for s in new.pipeline.sources), *(s.name for s in new.pipeline.sinks)]

    def rank(change: Change) -> tuple[int, int]:
        return abouts.index(change.about), named.index(change.name) if change.name in named else len(named)

    return sorted(dict.fromkeys(found), key=rank)


Named = TypeVar("Named", Source, Sink)


def _renamed(old: Sequence[Named], new: Sequence[Named], alike: Callable[[Named, Named], int]) -> dict[str, str]:
    """New name -> old name, of what is in both. Something new that is most like something gone is that, renamed."""
    before, after = {o.name for o in old}, {n.name for n in new}
    names = {name: name for name in after & before}
    gone = [o for o in old if o.name not in after]
    for one in new:
        best = max(gone, key=lambda g: alike(g, one), default=None)
        if one.name not in names and best is not None and alike(best, one):
            gone.remove(best)
            names[one.name] = best.name
    return names


def _overlap(one: Source, other: Source) -> int:
    return len(set(_read(one)) & set(_read(other))) if one.base == other.base else 0


def _same_place(one: Sink, other: Sink) -> int:
    places = [[s.options.get(k) for k in ("endpoint", "endpoints", "bucket", "brokers", "path", "target")]
              for s in (one, other)]
    return int(one.type == other.type and places[0] == places[1])


def _policy(old: Side, new: Side) -> Iterator[Change]:
    before, after = old.pipeline.name, new.pipeline.name
    if before != after:
        yield Change("policy", "", "renamed", f"{code(before)} is {code(after)} now; offsets and buffers are kept "
                     "under this name, and what waits in a buffer on disk is not sent under the new one", ("name",))


# --- sources ---


def _sources(old: Side, new: Side, names: Mapping[str, str]) -> Iterator[Change]:
    before = {s.name: s for s in old.pipeline.sources}
    for source in new.pipeline.sources:
        path: Path = ("sources", source.name)
        if source.name not in names:
            yield Change("source", source.name, "more records", f"added: reads {_files(source)}", path)
            continue
        was = before[names[source.name]]
        if was.name != source.name:
            yield Change("source", source.name, "renamed", f"was {code(was.name)}; that is the field `source` of its "
                         "records, and where its offsets are kept", path)
        left, come = _without(was, source), _without(source, was)
        if left:
            yield Change("source", source.name, "fewer records", f"no longer reads {listing(left)}", path)
        if come:
            yield Change("source", source.name, "more records",
                         f"reads {listing(come)} as well, {_start(source)}", path)
        yield from _twins(was, source)
        groups = [set(common.regex_groups(s)) if s.regex else set() for s in (was, source)]
        yield from _fields("source", source.name, "", sorted(groups[1] - groups[0]), sorted(groups[0] - groups[1]),
                           (*path, "format"))
    for gone in (s for s in old.pipeline.sources if s.name not in names.values()):
        yield Change("source", gone.name, "fewer records", f"removed: it read {_files(gone)}", ("sources",))


def _files(source: Source) -> str:
    return listing(_read(source))


def _read(source: Source) -> list[str]:
    return [f.name for f in source.families] or [code(p) for p in source.paths]


def _without(source: Source, other: Source) -> list[str]:
    there = {(other.base, f) for f in _read(other)}
    return [f for f in _read(source) if (source.base, f) not in there]


def _start(source: Source) -> str:
    return "from their beginning" if source.start == "beginning" else "from their end on"


_TWINS = {
    "serve": "Serve's headers in a worker's .err, which serve/*.log has too,",
    "cpp": "headers of the C++ core in a worker's .err, which python-core-worker-*.log has too,",
    "driver": "workers' lines that a driver repeats",
}


def _twins(was: Source, source: Source) -> Iterator[Change]:
    for twin, words in _TWINS.items():
        before, after = getattr(was.twins, twin), getattr(source.twins, twin)
        if before != after:
            kind, fate = ("fewer records", "are dropped as repeats now") if after else (
                "more records", "are no longer dropped as repeats")
            yield Change("source", source.name, kind, f"{words} {fate}", ("sources", source.name))


# --- offsets ---


def _identities(target: str, pipeline: Pipeline) -> Mapping[tuple[str, str], dict[Path, Source]]:
    """For each file that is read (base and family, or a glob): under which identities its offsets are kept, and for
    which source.

    The contract is that these are a function of the policy's name, the source's name and the family alone. Promtail
    keeps one file by path; Fluent Bit one for all families that are grouped alike; Vector knows files that logrotate
    truncates by their first lines, and the others by inode.
    """
    found: dict[tuple[str, str], dict[Path, Source]] = defaultdict(dict)
    state = common.state_dir(pipeline, "")
    for source in pipeline.sources:
        for family in source.families:
            name = family.grouping.value if target == "fluentbit" else family.name
            known_by = family in rotation.by_logrotate(pipeline) and family.telling_lines if target == "vector" else 0
            own: Path = (source.name, name, known_by)
            found[source.base, family.name][(state, *(() if target == "promtail" else own))] = source
        for path in source.paths:
            found["", path][(state, *(() if target == "promtail" else (source.name,)))] = source
    return found


def _offsets(old: Side, new: Side) -> Iterator[Change]:
    """Files that were read before and whose offsets the new configuration does not find."""
    targets = [c.name for c in new.choices if c.name in {o.name for o in old.choices}] or [""]
    lost: dict[tuple[str, tuple[str, ...], str], list[str]] = defaultdict(list)
    starts = {s.name: s.start for s in new.pipeline.sources}
    read = {s.name: [f.name for f in s.families] or list(s.paths) for s in new.pipeline.sources}
    for target in targets:
        before, after = _identities(target, old.pipeline), _identities(target, new.pipeline)
        files: dict[tuple[str, str], list[str]] = defaultdict(list)
        for key, identities in after.items():
            for identity, source in identities.items():
                if key in before and identity not in before[key]:
                    files[source.name, _why(identity, list(before[key]))].append(key[1])
        for (name, why), unknown in files.items():
            lost[name, tuple(unknown), why].append(target)
    for (name, those, why), by in lost.items():
        who = f" by {listing(by)}" if by != [""] else ""
        what = "everything" if list(those) == read[name] else listing(those)
        if starts[name] == "beginning":
            yield Change("source", name, "read again", f"{what}{who}, from the beginning: {why}; what was delivered "
                         "already arrives a second time", ("sources", name))
        else:
            yield Change("source", name, "lines skipped", f"{what}{who}: {why}; they are followed from their end, and "
                         "what is written while the shipper restarts is not delivered", ("sources", name, "start"))


def _why(identity: Path, before: Sequence[Path]) -> str:
    if identity[0] not in {b[0] for b in before}:
        return f"offsets are kept in {code(identity[0])} now, before in {code(before[0][0])}"
    if identity[1] not in {b[1] for b in before}:
        return f"offsets are kept under the source's name, which was {listing(code(b[1]) for b in before)}"
    return "who rotates them decides how the shipper knows them again: by inode, or by their first lines"


# --- sinks ---


def _sinks(old: Side, new: Side, sources: Mapping[str, str], names: Mapping[str, str]) -> Iterator[Change]:
    before = {s.name: s for s in old.pipeline.sinks}
    for sink in new.pipeline.sinks:
        path: Path = ("sinks", sink.name)
        if sink.name not in names:
            yield Change("sink", sink.name, "more records", f"added: {sink.type}, which gets "
                         f"{wording.records(sink.when)} of {listing(sink.sources)}", path)
            continue
        was = before[names[sink.name]]
        if was.name != sink.name:
            yield Change("sink", sink.name, "renamed", f"was {code(was.name)}; what waits in its buffer on disk may "
                         "not be sent under the new name", path)
        if was.type != sink.type:
            yield Change("sink", sink.name, "setting", f"is {sink.type} now, was {was.type}", (*path, "type"))
        yield from _arrivals(old, new, was, sink, sources)
        yield from _rules(old.pipeline, new.pipeline, was, sink)
        if was.type == sink.type == "loki":
            yield from _labels(old.pipeline, new.pipeline, was, sink, sources)
        yield from _delivered(old.pipeline, new.pipeline, was, sink)
    for gone in (s for s in old.pipeline.sinks if s.name not in names.values()):
        yield Change("sink", gone.name, "fewer records", f"removed: {gone.type}, which got "
                     f"{wording.records(gone.when)} of {listing(gone.sources)}; what waits in its buffer on disk may "
                     "not be sent any more", ("sinks",))


def _arrivals(old: Side, new: Side, was: Sink, sink: Sink, sources: Mapping[str, str]) -> Iterator[Change]:
    """Parts of sources that begin or cease to arrive, and levels of them; parts that change alike in one sentence."""
    before = {(a.part.source.name, a.part.name): a for a in reach.arrivals(old.pipeline, was)}
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    seen = set()
    for one in reach.arrivals(new.pipeline, sink):
        source = one.part.source.name
        key = (sources.get(source, ""), one.part.name if one.part.component else sources.get(source, ""))
        seen.add(key)
        earlier = before.get(key)
        came = earlier is not None and not earlier.stopped_by
        if not came and not one.stopped_by:
            groups["more records", source, "arrives now"].append(one.part.name)
        elif came and one.stopped_by:
            stopped = f"nothing arrives any more: {one.stopped_by} keeps it out"
            groups["fewer records", source, stopped].append(one.part.name)
        elif came and earlier is not None:
            for kind, levels, words in (
                ("fewer records", _missing(earlier.levels, one.levels), "no longer arrive"),
                ("more records", _missing(one.levels, earlier.levels), "arrive now"),
            ):
                if levels:
                    groups[kind, source, f"records {levels} {words}"].append(one.part.name)
    back = {b: a for a, b in sources.items()}
    for (source, part), earlier in before.items():
        if (source, part) not in seen and not earlier.stopped_by:
            name = back.get(source, source)
            known = {s.name for s in new.pipeline.sources} - set(sink.sources)
            why = "no longer sent here" if name in known else "no longer read"
            groups["fewer records", name, f"nothing arrives any more: {why}"].append(part)
    for (kind, source, words), parts in groups.items():
        sides = ((old.pipeline, sources.get(source, source)), (new.pipeline, source))
        everything = dict.fromkeys(p.name for pipeline, name in sides for s in pipeline.sources if s.name == name
                                   for p in reach.parts(s))
        yield Change("sink", sink.name, kind, f"from {source}{_of(parts, list(everything))}: {words}",
                     ("sinks", sink.name))
    if was.when != sink.when:
        yield Change("sink", sink.name, "other records", f"gets {wording.records(sink.when)}; before, "
                     f"{wording.records(was.when)}", ("sinks", sink.name, "when"))


def _of(parts: Sequence[str], everything: Sequence[str]) -> str:
    """Which parts of a source, in as few words as will do."""
    others = [p for p in everything if p not in parts]
    if len(everything) == 1:
        return ""
    if not others:
        return ", all of it"
    return f", all but {listing(others)}" if len(others) < len(parts) else f", {listing(parts)}"


def _missing(levels: Sequence[str | None], others: Sequence[str | None]) -> str:
    gone = [level for level in levels if level not in others]
    named = [level for level in gone if level is not None]
    words = [f"of level {listing(named)}"] * bool(named) + ["without a level"] * (None in gone)
    return " and ".join(words)


_EFFECT = {"drop": "records", "sample": "records", "limit": "records", "add": "fields", "redact": "fields"}


def _rules(old: Pipeline, new: Pipeline, was: Sink, sink: Sink) -> Iterator[Change]:
    before = {r.name: r for r in old.rules_for(was) if reach.applies(r, old, was)}
    after = {r.name: r for r in new.rules_for(sink) if reach.applies(r, new, sink)}
    for name, rule in after.items():
        path: Path = ("parsing", "rules", rule.index) if rule.index >= 0 else ("sinks", sink.name)
        fewer = _EFFECT[rule.action] == "records"
        if name not in before:
            yield Change("sink", sink.name, "fewer records" if fewer else "fields",
                         f"rule {name} is new here: it {wording.rule(rule)}", path)
        elif not _alike(before[name], rule):
            yield Change("sink", sink.name, "other records" if fewer else "fields",
                         f"rule {name} {wording.rule(rule)}; before, it {wording.rule(before[name])}", path)
    for name, rule in before.items():
        if name not in after:
            yield Change("sink", sink.name, "more records" if _EFFECT[rule.action] == "records" else "fields",
                         f"rule {name} is gone: it {_past(wording.rule(rule))}", ("parsing", "rules"))
    both = [name for name in after if name in before], [name for name in before if name in after]
    if both[0] != both[1]:
        yield Change("sink", sink.name, "other records", f"rules come in another order: {listing(both[0])}; before, "
                     f"{listing(both[1])}", ("parsing", "rules"))


def _alike(one: Rule, other: Rule) -> bool:
    if one.index < 0 and other.index < 0:
        return True  # built in: the same for every policy, but for the names of the sources
    return (one.action, one.when, one.options) == (other.action, other.when, other.options)


def _past(words: str) -> str:
    """The sentence of :func:`wording.rule` in the past."""
    for now, then in (("throws", "threw"), ("keeps", "kept"), ("lets", "let"), ("adds", "added"),
                      ("replaces", "replaced")):
        if words.startswith(now + " "):
            return then + words[len(now):].replace(" and throws away", " and threw away").replace("notes", "noted")
    return words


def _labels(
    old: Pipeline, new: Pipeline, was: Sink, sink: Sink, sources: Mapping[str, str]
) -> Iterator[Change]:
    """What makes a stream another one: its labels, and values that every record of it has."""
    (static_old, fields_old), (static, fields) = (
        (s.options["labels"]["static"], s.options["labels"]["fields"]) for s in (was, sink))
    said = []
    before, after = {*static_old, *fields_old}, {*static, *fields}
    said += [f"label {code(n)} is new" for n in (*static, *fields) if n not in before]
    said += [f"label {code(n)} is gone" for n in (*static_old, *fields_old) if n not in after]
    said += [f"label {code(n)} is {text(v)}, was {text(static_old[n])}" for n, v in static.items()
             if n in static_old and static_old[n] != v]
    said += [f"label {code(n)} is a field now, was always {text(static_old[n])}" for n in fields if n in static_old]
    said += [f"label {code(n)} is always {text(v)} now, was a field" for n, v in static.items() if n in fields_old]
    if "cluster" in fields and "cluster" in fields_old and old.cluster != new.cluster:
        said.append(f"label `cluster` is {_or_none(new.cluster)}, was {_or_none(old.cluster)}")
    if "source" in fields and "source" in fields_old:
        said += [f"label `source` is {text(n)}, was {text(b)}" for n, b in sources.items()
                 if n != b and n in sink.sources]
    if "node" in fields and "node" in fields_old and old.collector.node != new.collector.node:
        said.append("label `node` has other values")
    if said:
        most = [reach.most_streams(reach.streams(p, s)) for p, s in ((old, was), (new, sink))]
        number = f"; at most {most[1]:,} from each node, before {most[0]:,}" if most[0] != most[1] else ""
        yield Change("sink", sink.name, "new streams", f"{', '.join(said)}: all records go to streams of new "
                     f"labels, and queries and alerts that name the old ones miss them{number}",
                     ("sinks", sink.name, "labels"))


def _or_none(value: str | None) -> str:
    return text(value) if value is not None else "absent"


def _delivered(old: Pipeline, new: Pipeline, was: Sink, sink: Sink) -> Iterator[Change]:
    before, after = _fields_of(old, was), _fields_of(new, sink)
    come, gone = [f for f in after if f not in before], [f for f in before if f not in after]
    yield from _fields("sink", sink.name, "delivers ", come, gone, ("sinks", sink.name))


def _fields_of(pipeline: Pipeline, sink: Sink) -> list[str]:
    """Fields that a sink can deliver beside its line and its labels."""
    everything = common.possible_fields(pipeline)
    if sink.type != "loki" or sink.options["line"] == "json":
        return everything
    return common.loki_metadata(sink.options)


def _fields(about: str, name: str, verb: str, come: Sequence[str], gone: Sequence[str], path: Path) -> Iterator[Change]:
    if come:
        yield Change(about, name, "fields", f"{verb}{listing(map(code, come))} as well", path)
    if gone:
        yield Change(about, name, "fields", f"{verb}{listing(map(code, gone))} no longer", path)


def _idle_rules(old: Side, new: Side, sinks: Mapping[str, str]) -> Iterator[Change]:
    """Rules that changed and meet no record of any sink that is in both, so that no sink's part tells of them."""

    def effective(side: Side, names: Iterable[str]) -> set[str]:
        wanted = set(names)
        return {r.name for s in side.pipeline.sinks if s.name in wanted for r in side.pipeline.rules_for(s)
                if reach.applies(r, side.pipeline, s)}

    told = effective(old, sinks.values()) | effective(new, sinks)
    before, after = ({r.name: r for r in side.pipeline.rules} for side in (old, new))
    for name in dict.fromkeys((*after, *before)):
        if name in told or (name in before and name in after and _alike(before[name], after[name])
                            and before[name].sinks == after[name].sinks):
            continue
        what = "changed" if name in before and name in after else "is new" if name in after else "is gone"
        yield Change("policy", "", "setting", f"rule {name} {what}; it meets no record on its way to a sink",
                     ("parsing", "rules"))


# --- Ray ---


def _environment(old: Side, new: Side) -> Iterator[Change]:
    for scope, path, whom in ((Scope.NODE, node.NODE_ENV, "`ray start` on every node"),
                              (Scope.DRIVER, node.DRIVER_ENV, "every driver")):
        before, after = ({v.name: value for v, value in node.variables(side.pipeline, scope)} for side in (old, new))
        for name in dict.fromkeys((*after, *before)):
            if before.get(name) == after.get(name):
                continue
            is_now = code(f"{name}={after[name]}") if name in after else f"{code(name)} is not set any more"
            earlier = f"was {code(before[name])}" if name in before else "was not set"
            yield Change("ray", "", "environment", f"{is_now} in {path} ({earlier}): for {whom}, from its next start "
                         "on", ("ray",))


def _growth(old: Side, new: Side) -> Iterator[Change]:
    before, after = ({f.name for f in rotation.unbounded(side.pipeline)} for side in (old, new))
    for names, words in ((after - before, "grow without bound now"), (before - after, "are rotated now")):
        if names:
            ordered = [f.name for f in FAMILIES if f.name in names]
            yield Change("rotation", "", "setting", f"files of {listing(ordered)} {words}", ("rotation",))
    rings = [rotation.ring(side.pipeline) for side in (old, new)]
    if rings[0] != rings[1] and all(rings):
        yield Change("rotation", "", "setting", f"a file with its backups takes up to {rotation.size(rings[1])}, "
                     f"before {rotation.size(rings[0])}", ("rotation",))


# --- the rest ---

_TOLD = ("name", "parsing.rules", "targets", "sources.*.components", "sources.*.exclude_components",
         "sources.*.paths", "sources.*.type", "sinks.*.type", "sinks.*.when", "sinks.*.from", "sinks.*.labels.static",
         "sinks.*.labels.fields", "sinks.*.metadata")
"""Leaves whose effect is told above; of the others it is told that they changed."""


def _settings(
    old: Side, new: Side, sources: Mapping[str, str], sinks: Mapping[str, str]
) -> Iterator[Change]:
    before: dict[tuple[str, ...], Any] = dict(_leaves(old.policy.data))
    after: dict[tuple[str, ...], Any] = dict(_leaves(new.policy.data))
    variables = {".".join(v.leaf) for scope in Scope for side in (old, new)
                 for v, _ in node.variables(side.pipeline, scope) if v.leaf[0] == "ray"}
    names = {"sources": sources, "sinks": sinks}
    back = {kind: {b: a for a, b in found.items()} for kind, found in names.items()}
    both: dict[tuple[str, ...], tuple[Any, Any]] = {}
    for path, value in after.items():
        if path[0] in names and path[1] not in names[path[0]]:
            continue
        earlier = (path[0], names[path[0]][path[1]], *path[2:]) if path[0] in names else path
        both[path] = before.get(earlier), value
    for path, value in before.items():
        if path[0] in names and path[1] not in back[path[0]]:
            continue
        later = (path[0], back[path[0]][path[1]], *path[2:]) if path[0] in names else path
        both.setdefault(later, (value, None))
    for path, (was, value) in both.items():
        leaf = ".".join((path[0], "*", *path[2:]) if path[0] in names else path)
        if was == value or leaf in variables or any(leaf == t or leaf.startswith(f"{t}.") for t in _TOLD):
            continue
        about = {"sources": "source", "sinks": "sink", "ray": "ray", "rotation": "rotation"}.get(path[0], "policy")
        name = path[1] if path[0] in names else ""
        yield Change(about, name, "setting", _setting(path, was, value, old, new), path)


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    else:
        yield path, value


def _setting(path: tuple[str, ...], was: Any, value: Any, old: Side, new: Side) -> str:
    shown = code(new.policy.path(*path))
    if secret_path(path):
        return f"{shown} is {'set now' if was is None else 'not set any more' if value is None else 'another one now'}"
    return f"{shown} is {_value(path, value, new)}, was {_value(path, was, old)}"


def _value(path: Path, value: Any, side: Side) -> str:
    """A value as a policy writes it."""
    if value is None or value == {}:
        return "not set"
    if isinstance(value, list):
        return listing(code(v) for v in value) if value else "empty"
    kinds = {s.kind for s in model.scalars(model.find(path, side.policy.data))}
    if isinstance(value, int) and not isinstance(value, bool):
        if "size" in kinds or "rate" in kinds:
            return rotation.size(value) + ("/s" if "rate" in kinds else "")
        if "duration" in kinds:
            return wording.duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    return code(value)


def _targets(old: Side, new: Side) -> Iterator[Change]:
    before, after = ({c.name: c.version for c in side.choices} for side in (old, new))
    for name, version in after.items():
        if name not in before:
            yield Change("target", name, "target", f"rendered now, for {version}", ("targets",))
        elif before[name] != version:
            yield Change("target", name, "target", f"rendered for {version}, before for {before[name]}",
                         ("targets", name, "version"))
    for name in before:
        if name not in after:
            yield Change("target", name, "target", "no longer rendered", ("targets",))


def _new_findings(old: Side, new: Side) -> Iterator[Change]:
    """Warnings and errors that a target had not for the old policy."""
    before = {c.name for c in old.choices}
    for choice in new.choices:
        earlier = {(d.code, d.path, d.text) for c in old.choices if c.name == choice.name for d in c.diagnostics}
        for d in choice.diagnostics:
            if d.severity is not Severity.NOTE and (d.code, d.path, d.text) not in earlier and choice.name in before:
                yield Change("target", choice.name, "target", f"new {d.severity}: {d.path}: {d.text}", ("targets",))

