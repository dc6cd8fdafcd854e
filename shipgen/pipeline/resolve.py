"""Policy -> pipeline: presets expanded, conditions parsed, twins decided."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from shipgen.catalog import ray, verl
from shipgen.pipeline import conditions
from shipgen.pipeline.model import Collector, Hop, Multiline, Pipeline, Rule, SecretRef, Sink, Source, TimeField, Twins

if TYPE_CHECKING:
    from shipgen.policy import Policy

ACTIONS = ("drop", "sample", "redact", "limit", "add")

_HOLD_SECRETS = frozenset({"auth", "sasl", "credentials", "headers"})
"""Settings of a sink in which `{env: ..}` and `{file: ..}` are references to secrets."""

_SHARED_BY_TWINS = frozenset({"level", "message", "raw", "session", "node", "cluster", "source"})
"""Fields that have the same value in both copies of a line, so that a condition on them judges both alike."""


def _secret(value: Any) -> SecretRef | None:
    if isinstance(value, Mapping) and len(value) == 1:
        kind, name = next(iter(value.items()))
        if kind in ("env", "file") and isinstance(name, str):
            return SecretRef(kind, name)
    return None


def _secrets(value: Any) -> Any:
    """A settings tree with its secret references made into :class:`SecretRef`."""
    if (ref := _secret(value)) is not None:
        return ref
    if isinstance(value, Mapping):
        return {k: _secrets(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_secrets(v) for v in value]
    return value


def _under(root: str, path: str) -> str:
    return path if root == "/" else root.rstrip("/") + path


def _source(name: str, data: Mapping[str, Any], policy: Mapping[str, Any]) -> Source:
    root = policy["collector"]["root"]
    paths, exclude = ([_under(root, p) for p in data.get(key, ())] for key in ("paths", "exclude"))
    # what `auto` can't know is how files of somebody else are rotated: a copy would repeat the original
    if data["rotated"] == "include":
        paths += [f"{p}.[0-9]*" for p in paths]
    elif data["rotated"] == "exclude":
        exclude += [f"{p}.[0-9]*" for p in paths]
    common: dict[str, Any] = {
        "name": name, "type": data["type"], "start": data["start"], "rotated": data["rotated"],
        "ignore_older": data.get("ignore_older"), "max_entry": data["max_entry"], "max_line": data["max_line"],
        "on_long_line": data["on_long_line"],
    }
    if data["type"] == "ray":
        families = ray.select(data["components"], data.get("exclude_components", ()))
        base = posixpath.normpath(_under(root, policy["ray"]["temp_dir"])).strip("/")
        return Source(**common, families=families, base=f"/{base}" if base else "")
    multiline = data.get("multiline")
    form = data.get("format", "text")
    if data["type"] == "verl":
        dialect = data["dialect"]
        own = {"regex": verl.ENGINE_WORKER, "time": {"field": "time", "layout": "python"}}
        form = data.get("format", own if dialect == "engine_worker" else "json")
        common |= {"component": verl.COMPONENTS[dialect], "pairs": dialect == "engine_worker"}
        if dialect == "engine_worker" and not multiline:
            common["continuation"] = verl.CONTINUATION
    time = form.get("time") if isinstance(form, Mapping) else None
    return Source(
        **common,
        paths=tuple(paths),
        exclude=tuple(exclude),
        format="regex" if isinstance(form, Mapping) else form,
        regex=form["regex"] if isinstance(form, Mapping) else "",
        time=TimeField(time["field"], time["layout"]) if time else None,
        multiline=Multiline(multiline["start"], multiline["max_lines"], multiline["timeout"]) if multiline else None,
    )


def _rule(index: int, data: Mapping[str, Any]) -> Rule:
    action = next(a for a in ACTIONS if a in data)
    value = data[action]
    if action == "sample" and not isinstance(value, Mapping):
        value = {"rate": value}
    options = dict(value) if isinstance(value, Mapping) else {}
    sinks = frozenset(data["sinks"]) if "sinks" in data else None
    return Rule(data["name"], conditions.parse(data.get("when")), action, options, sinks, index)


def _built_in_rules(sources: Iterable[Source]) -> list[Rule]:
    """Redactions that are on by default: the runtime-env agent prints the values of `env_vars` (Ray 2.60, observed)."""
    names = tuple(s.name for s in sources if any(f.name == "runtime_env_agent" for f in s.families))
    if not names:
        return []
    when = conditions.All((conditions.Is("source", names), conditions.Is("component", ("runtime_env_agent",))))
    return [Rule("runtime-env-vars", when, "redact", {"kind": "ray_env_vars"})]


def _sink(name: str, data: Mapping[str, Any], sources: tuple[Source, ...]) -> Sink:
    chosen = data.get("from")
    own = {k: v for k, v in data.items() if k not in ("type", "from", "when")}
    options = {k: _secrets(v) if k in _HOLD_SECRETS else v for k, v in own.items()}
    return Sink(
        name, data["type"], tuple(s.name for s in sources if chosen is None or s.name in chosen),
        conditions.parse(data.get("when")), options,
    )


HOP = "kafka"
"""Name of the sink that agents have where the policy goes through Kafka."""


def _hop(data: Mapping[str, Any] | None, sources: tuple[Source, ...]) -> Hop | None:
    if data is None:
        return None
    own = {k: v for k, v in data.items() if k not in ("via", "group")}
    return Hop(_sink(HOP, {"type": "kafka", **own}, sources), data["group"])


def _may_be_cut(source: Source, repeat: str, original: str, sinks: Iterable[Sink], rules: Iterable[Rule]) -> bool:
    """Whether each sink that a line reaches under the component ``repeat`` gets it under ``original`` too, as far as
    that can be known beforehand."""

    def under(component: str, condition: conditions.Condition) -> conditions.Condition:
        return conditions.partial(condition, {"source": source.name, "component": component})

    for sink in sinks:
        ours = [r for r in rules if r.sinks is None or sink.name in r.sinks]
        gates = [r for r in ours if r.action in ("drop", "sample", "limit")]
        dropped = any(r.action == "drop" and under(repeat, r.when) == conditions.ALWAYS for r in gates)
        if source.name not in sink.sources or dropped or under(repeat, sink.when) == conditions.NEVER:
            continue
        for gate in (sink.when, *(r.when for r in gates)):
            left = under(repeat, gate)
            if left != under(original, gate) or not set(conditions.fields(left)) <= _SHARED_BY_TWINS:
                return False
    return True


def _with_twins(source: Source, components: Iterable[str], sinks: Iterable[Sink], rules: Iterable[Rule]) -> Twins:
    if "all" in components:
        return Twins()
    names = {f.name for f in source.families}
    sinks, rules = list(sinks), list(rules)
    drivers = [name for name in ("job_driver", "ray_client_server") if name in names]
    return Twins(
        serve="serve" in names and _may_be_cut(source, "worker", "serve", sinks, rules),
        cpp="core_worker" in names and _may_be_cut(source, "worker", "core_worker", sinks, rules),
        driver="worker" in names and all(_may_be_cut(source, driver, "worker", sinks, rules) for driver in drivers),
    )


def resolve(policy: Policy) -> Pipeline:
    """Resolve a loaded policy. Raises nothing of its own: what can be wrong was found when the policy was loaded."""
    data = policy.data
    collector = data["collector"]
    node = collector.get("node")
    sources = tuple(_source(name, value, data) for name, value in data["sources"].items())
    sinks = tuple(_sink(name, value, sources) for name, value in data["sinks"].items())
    rules = [_rule(i, r) for i, r in enumerate(data["parsing"].get("rules", ()))]
    sources = tuple(
        replace(s, twins=_with_twins(s, data["sources"][s.name]["components"], sinks, rules)) if s.families else s
        for s in sources
    )
    return Pipeline(
        name=data["name"],
        cluster=data.get("cluster"),
        # names alone: a bundle is the same whichever directory it is rendered from
        files=tuple(PurePath(name).name for name in policy.files),
        collector=Collector(
            node=_secret(node) or node, root=collector["root"], state_dir=collector["state_dir"],
            metrics_bind=collector["metrics"]["bind"], metrics_port=collector["metrics"]["port"],
            discover_every=collector["discover_every"],
        ),
        timezone=data["parsing"]["timezone"],
        sources=sources,
        rules=(*_built_in_rules(sources), *rules),
        sinks=sinks,
        ray=data["ray"],
        rotation=data.get("rotation"),
        versions={name: t["version"] for name, t in data.get("targets", {}).items() if "version" in t},
        relay=data.get("relay"),
        verl=data["verl"],
        hop=_hop(data.get("topology"), sources),
        fingerprint=data["parsing"].get("fingerprint", ""),
    )
