"""What a target is: the interface that each shipper's module implements, and the registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from shipgen.diagnostics import Severity
from shipgen.pipeline import conditions
from shipgen.pipeline.conditions import Condition
from shipgen.pipeline.model import Pipeline


@dataclass(frozen=True, slots=True)
class Finding:
    """What a target has to say about one leaf of a pipeline. ``path`` is a path of keys and indexes in the policy."""

    code: str
    severity: Severity
    path: tuple[str | int, ...]
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a bundle: where it goes, which template makes it, with which context, and what it must parse back to.

    ``meant`` maps paths in the parsed file to the values that the policy meant to be there.
    """

    path: str
    template: str
    context: Mapping[str, Any]
    grammar: str
    meant: Mapping[tuple[str | int, ...], Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Relay:
    """A second shipper that gets what a target's own reads, makes the record of it and brings it to the sinks. It is
    started first and stopped last. ``config`` is the path of its configuration in the bundle, ``state`` its directory
    for offsets and buffers."""

    target: Target
    version: str
    config: str
    state: str


class Target(Protocol):
    """A shipper that shipgen can write for."""

    name: str
    versions: tuple[str, ...]
    """Known versions, oldest first; the last is what an unpinned policy gets."""
    main_config: str
    """Path of the main configuration file in the bundle."""
    binary: str
    reads_rotated: bool
    """Whether files are followed by inode with kept offsets, so that backups can be in a glob."""

    def check(self, pipeline: Pipeline, version: str) -> Iterable[Finding]:
        """What the capability table cannot say in one row: findings that depend on values."""
        ...

    def files(self, pipeline: Pipeline, version: str) -> Iterable[File]:
        """The files of the bundle. Only called when nothing that :meth:`check` or the table found is an error."""
        ...

    def start_argv(self, config: str, pipeline: Pipeline, version: str) -> tuple[str, ...]:
        """Command that starts the shipper with a config file."""
        ...

    def validate_argv(self, config: str) -> tuple[str, ...]:
        """Command of the shipper's own checker."""
        ...

    def not_validated(self) -> str:
        """What the shipper's own checker does not look at."""
        ...

    def image(self, version: str) -> str:
        """Official container image of a version."""
        ...


NAMES = ("vector", "fluentbit", "fluentd", "filebeat", "promtail")
"""Targets of the policy language. A name without a module of its own is not rendered yet."""

_MODULES = {
    "vector": "shipgen.targets.vector",
    "fluentbit": "shipgen.targets.fluentbit",
    "fluentd": "shipgen.targets.fluentd",
    "filebeat": "shipgen.targets.filebeat",
    "promtail": "shipgen.targets.promtail",
}


def implemented() -> tuple[str, ...]:
    """Names of the targets that shipgen renders, in the order of :data:`NAMES`."""
    return tuple(name for name in NAMES if name in _MODULES)


def get(name: str) -> Target:
    """The target of a name. Raises KeyError for one that is not rendered yet."""
    target: Target = import_module(_MODULES[name]).TARGET
    return target


def relay_of(target: object, pipeline: Pipeline) -> Relay | None:
    """The relay of a target, where it has a use for one and the policy names one that it can write for."""
    find = getattr(target, "relay", None)
    relay: Relay | None = find(pipeline) if find else None
    return relay


def release(version: str) -> tuple[int, int]:
    """Major and minor of a version, for comparison."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def condition_context(condition: Condition) -> dict[str, Any]:
    """A condition as plain data for templates. `below` becomes a list of levels, so only six kinds are left."""
    from shipgen.catalog.formats import LEVEL_ORDER

    match condition:
        case conditions.Is(field, values):
            boolean = field in ("parse_error", "truncated")
            return {"kind": "is", "field": field, "values": list(values), "boolean": boolean}
        case conditions.Matches(field, regex):
            return {"kind": "matches", "field": field, "regex": regex}
        case conditions.Exists(field):
            return {"kind": "exists", "field": field}
        case conditions.Below(level):
            if lower := list(LEVEL_ORDER[: LEVEL_ORDER.index(level)]):
                return {"kind": "is", "field": "level", "values": lower, "boolean": False}
            return {"kind": "any", "of": []}
        case conditions.Not(of):
            return {"kind": "not", "of": condition_context(of)}
        case conditions.All(of):
            return {"kind": "all", "of": [condition_context(c) for c in of]}
        case conditions.Any_(of):
            return {"kind": "any", "of": [condition_context(c) for c in of]}
