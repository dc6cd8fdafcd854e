"""Conditions on a record: what `when` becomes, and what can be said of one before any record is seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Is:
    """The field has one of these values. False where the field is absent."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matches:
    """The regex is found in the field. False where the field is absent."""

    field: str
    regex: str


@dataclass(frozen=True, slots=True)
class Exists:
    """The field is there."""

    field: str


@dataclass(frozen=True, slots=True)
class Below:
    """The record has a level and it is below this one. So prints and tracebacks, which have none, never match."""

    level: str


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not hold."""

    of: Condition


@dataclass(frozen=True, slots=True)
class All:
    """Every condition holds; true where there is none."""

    of: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any_:  # noqa: N801 - beside All, and not typing.Any
    """At least one condition holds."""

    of: tuple[Condition, ...]


Condition = Is | Matches | Exists | Below | Not | All | Any_

ALWAYS = All(())
NEVER = Any_(())


def _field(name: str, test: object) -> Condition:
    if not isinstance(test, Mapping):
        return Is(name, tuple(str(v) for v in test) if isinstance(test, list) else (str(test),))
    parts: list[Condition] = []
    for key, value in test.items():
        if key == "matches":
            parts.append(Matches(name, value))
        elif key == "exists":
            parts.append(Exists(name) if value else Not(Exists(name)))
        elif key == "below":
            parts.append(Below(value))
        elif key == "at_least":
            parts.append(Not(Below(value)))
    return _all(parts)


def _all(parts: list[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def parse(when: Mapping[str, Any] | None) -> Condition:
    """Condition of a validated `when` mapping; :data:`ALWAYS` where there is none."""
    parts: list[Condition] = []
    for key, value in (when or {}).items():
        if key == "any":
            parts.append(Any_(tuple(parse(v) for v in value)))
        elif key == "all":
            parts.extend(parse(v) for v in value)
        elif key == "not":
            parts.append(Not(parse(value)))
        else:
            parts.append(_field(key, value))
    return _all(parts)


def fields(condition: Condition) -> Iterator[str]:
    """Record fields that a condition reads."""
    match condition:
        case Is(field, _) | Matches(field, _) | Exists(field):
            yield field
        case Below():
            yield "level"
        case Not(of):
            yield from fields(of)
        case All(of) | Any_(of):
            for part in of:
                yield from fields(part)


def regexes(condition: Condition) -> Iterator[str]:
    """Regexes of a condition."""
    match condition:
        case Matches(_, regex):
            yield regex
        case Not(of):
            yield from regexes(of)
        case All(of) | Any_(of):
            for part in of:
                yield from regexes(part)


def partial(condition: Condition, known: Mapping[str, str | None]) -> Condition:
    """What is left of a condition once some fields are known (None: known to be absent).

    :data:`ALWAYS` and :data:`NEVER` where nothing is left to decide. Regexes are left undecided: engines judge those.
    """
    match condition:
        case Is(field, values) if field in known:
            return ALWAYS if known[field] in values else NEVER
        case Exists(field) if field in known:
            return ALWAYS if known[field] is not None else NEVER
        case Matches(field, _) if field in known and known[field] is None:
            return NEVER
        case Not(of):
            inner = partial(of, known)
            if inner in (ALWAYS, NEVER):
                return NEVER if inner == ALWAYS else ALWAYS
            return Not(inner)
        case All(of) | Any_(of):
            unit, zero = (ALWAYS, NEVER) if isinstance(condition, All) else (NEVER, ALWAYS)
            parts = [p for p in (partial(c, known) for c in of) if p != unit]
            if zero in parts:
                return zero
            return parts[0] if len(parts) == 1 else type(condition)(tuple(parts))
    return condition
