"""Which targets a run writes for, in which version, and what each has to say about the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shipgen.diagnostics import Diagnostic, Severity, UsageError
from shipgen.pipeline.model import Pipeline
from shipgen.policy import Policy
from shipgen.policy.model import leaves
from shipgen.targets import base, capabilities
from shipgen.targets.capabilities import Status

_SEVERITY = {Status.APPROXIMATED: Severity.WARNING, Status.UNSUPPORTED: Severity.ERROR, Status.NOT_YET: Severity.ERROR,
             Status.RELAYED: Severity.ERROR}
_CODES = {Status.RELAYED: Status.UNSUPPORTED.value}


@dataclass(frozen=True, slots=True)
class Choice:
    """A target that a run is about. ``target`` is None where shipgen does not render it yet."""

    name: str
    version: str
    target: base.Target | None
    diagnostics: tuple[Diagnostic, ...]
    relay: base.Relay | None = None
    aggregator: str = ""
    """Version of the Vector that takes the records to the sinks, where the policy has a hop."""

    @property
    def renders(self) -> bool:
        """Whether the target can express the policy."""
        return self.target is not None and not any(d.severity is Severity.ERROR for d in self.diagnostics)

    def row(self, leaf: tuple[str, ...], value: Any = None) -> capabilities.Row:
        """The row of the capability table that counts for a leaf: of the relay, where that is what does it. With a hop
        the sinks are the aggregator's, and what is said of the hop is what the target does with a Kafka sink. A version
        newer than all that are known counts as the newest."""
        if self.aggregator and leaf[0] == "sinks":
            return capabilities.look_up("vector", known(base.get("vector"), self.aggregator), leaf, value)
        row = self._own(leaf, value)
        if leaf[0] == "topology" and leaf[1] not in ("via", "group") and row.status is Status.EXACT:
            return self._own(("sinks", "<kafka>", *leaf[1:]), value)
        return row

    def _own(self, leaf: tuple[str, ...], value: Any) -> capabilities.Row:
        assert self.target is not None
        if self.relay is not None and self.relayed(leaf):
            relay = self.relay.target
            return capabilities.look_up(relay.name, known(relay, self.relay.version), leaf, value)
        return capabilities.look_up(self.name, known(self.target, self.version), leaf, value)

    def relayed(self, leaf: tuple[str, ...]) -> bool:
        """Whether the relay is what does a leaf."""
        assert self.target is not None
        row = capabilities.look_up(self.name, known(self.target, self.version), leaf)
        return self.relay is not None and (row.status is Status.RELAYED or leaf[0] in ("sinks", "parsing"))

    def deviations(self) -> list[capabilities.Row]:
        """Rows that say that some leaf, with some value, is not done exactly: the target's, and those of its relay
        about what that does."""
        assert self.target is not None
        left = [leaf for leaf in leaves() if self.relayed(leaf)]
        own = [leaf for leaf in leaves() if leaf not in left]
        found = capabilities.deviations(self.name, known(self.target, self.version), own)
        if self.relay is None:
            return found
        relay = self.relay.target
        return found + capabilities.deviations(relay.name, known(relay, self.relay.version), left)


def known(target: base.Target, version: str) -> tuple[int, int]:
    """The version that the capability table is asked about."""
    return min(base.release(version), base.release(target.versions[-1]))


def names(wanted: Sequence[str], policy: Policy) -> tuple[str, ...]:
    """Target names of a run: those asked for (`all` is every one that shipgen renders), else those of the policy."""
    asked = [name for w in wanted for name in (base.implemented() if w == "all" else (w,))]
    return tuple(dict.fromkeys(asked)) or tuple(policy.data.get("targets", {}))


def not_rendered() -> tuple[str, ...]:
    """Targets of the policy language that this release does not render."""
    return tuple(n for n in base.NAMES if n not in base.implemented())


def choose(name: str, policy: Policy, pipeline: Pipeline) -> Choice:
    """Judge one target. Raises UsageError for a name that is no target."""
    if name not in base.NAMES:
        raise UsageError(f"no target is called {name!r}; there are: {', '.join(base.NAMES)}")
    found: list[Diagnostic] = []

    def say(code: str, severity: Severity, path: tuple[str | int, ...], text: str, hint: str = "") -> None:
        found.append(Diagnostic(code, severity, policy.path(*path), text, hint, policy.place(*path), name))

    if name not in base.implemented():
        say("not-yet", Severity.ERROR, ("targets", name), "not rendered yet by this release",
            f"targets that are: {', '.join(base.implemented())}")
        return Choice(name, "", None, tuple(found))
    target = base.get(name)
    version = pipeline.versions.get(name, "")
    if not version:
        version = target.versions[-1]
        say("unpinned-version", Severity.WARNING, ("targets", name), f"no version given; {version} is used",
            f'pin it: targets: {{{name}: {{version: "{version}"}}}}')
    asked, oldest, newest = (base.release(v) for v in (version, target.versions[0], target.versions[-1]))
    if asked < oldest:
        say("unknown-version", Severity.ERROR, ("targets", name, "version"),
            f"{version} is older than {target.versions[0]}, the oldest that shipgen writes for", "update the shipper")
        return Choice(name, version, None, tuple(found))
    if asked > newest:
        say("unknown-version", Severity.WARNING, ("targets", name, "version"),
            f"{version} is newer than {target.versions[-1]}, the newest that shipgen knows; written as for that")
    judged = Choice(name, version, target, (), base.relay_of(target, pipeline), _aggregator(pipeline))
    for leaf, path, value in given_leaves(policy):
        row = judged.row(leaf, value)
        if row.status is Status.RELAYED and leaf[0] not in ("sinks", "topology"):
            continue  # without a relay nothing is rendered: each sink says so, or the hop in their place
        if row.status in _SEVERITY:
            code = _CODES.get(row.status, row.status.value)
            whole = row.leaf == "topology.**" or (leaf[0] == "topology" and row.status is Status.RELAYED)
            at = path[:1] if whole else path[:2] if row.leaf.endswith(">.**") else path
            text = f"approximated: {row.text}" if row.status is Status.APPROXIMATED else row.text
            say(code, _SEVERITY[row.status], at, text, row.way_out)
        if pipeline.hop is not None and leaf[0] == "sinks" and leaf[-1] == "delivery" and value == "at_least_once":
            row = judged.row(("topology", "delivery"), value)
            if row.status is Status.UNSUPPORTED:
                say(row.status.value, Severity.ERROR, path, f"not through Kafka: {row.text}", row.way_out)
    if not any(d.severity is Severity.ERROR for d in found):
        for finding in _findings(target, pipeline, version):
            say(finding.code, finding.severity, finding.path, finding.text, finding.hint)
    return replace(judged, diagnostics=tuple(dict.fromkeys(found)))


def _aggregator(pipeline: Pipeline) -> str:
    if pipeline.hop is None:
        return ""
    from shipgen.targets import aggregator

    return aggregator.version(pipeline)


def _findings(target: base.Target, pipeline: Pipeline, version: str) -> Iterator[base.Finding]:
    if pipeline.hop is None:
        yield from target.check(pipeline, version)
        return
    from shipgen.targets import aggregator

    for finding in target.check(aggregator.agents(pipeline), version):
        of_hop = finding.path[:2] == ("sinks", pipeline.hop.sink.name)
        yield replace(finding, path=("topology", *finding.path[2:])) if of_hop else finding
    yield from aggregator.check(pipeline)


def of_others(judged: Sequence[str], policy: Policy, pipeline: Pipeline) -> Iterator[Diagnostic]:
    """For each target that a run is not about and that can't express the policy: a note that says so, with the
    reason."""
    for name in base.implemented():
        if name in judged:
            continue
        errors = [d for d in choose(name, policy, pipeline).diagnostics if d.severity is Severity.ERROR]
        if errors:
            more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
            yield Diagnostic("other-target", Severity.NOTE, errors[0].path,
                             f"can't express this policy, should you want it: {errors[0].text}{more}", errors[0].hint,
                             errors[0].place, name)


def given_leaves(policy: Policy) -> Iterator[tuple[tuple[str, ...], tuple[str | int, ...], Any]]:
    """What the user wrote, leaf by leaf: canonical path (`sinks.<loki>.line`), path in the policy, value."""
    yield from _walk(policy, policy.data, (), ())


def _walk(
    policy: Policy, value: Any, leaf: tuple[str, ...], path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str | int, ...], Any]]:
    if path and not policy.given(*path):
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            named = leaf in (("sources",), ("sinks",)) and isinstance(inner, Mapping)
            step = f"<{inner.get('type', '')}>" if named else str(key)
            yield from _walk(policy, inner, (*leaf, step), (*path, key))
    elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        for index, inner in enumerate(value):
            yield from _walk(policy, inner, (*leaf, "[]"), (*path, index))
    else:
        yield leaf, path, value
