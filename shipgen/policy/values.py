"""Values that have rules beyond what a schema can say: regexes, globs, units, time zones, URLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from shipgen.policy import model
from shipgen.policy.loading import Findings, Item, Step, printable, secret_path
from shipgen.policy.model import Node, Scalar, child, narrow
from shipgen.policy.wording import nearest

Path = tuple[Step, ...]

_URL_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]*@")
_SECRET_HEADER = re.compile(r"auth|cookie|token|secret|password|api-?key", re.IGNORECASE)


def check_values(data: Any, tree: Item, findings: Findings) -> None:
    """Judge each value that has rules beyond its pattern: regexes, globs, units, zones, URLs."""
    for path, scalar, value in scalars(model.POLICY, data):
        if not findings.wrong(path):
            _check_value(path, scalar, value, data, tree, findings)


def scalars(node: Node | None, value: Any, path: Path = ()) -> Iterator[tuple[Path, Scalar | None, Any]]:
    """Every scalar of a policy with its path and, where the model has one, its node."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from scalars(child(node, value, name), one, (*path, name))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from scalars(child(node, value, index), one, (*path, index))
    else:
        narrowed = narrow(node, value)
        yield path, narrowed if isinstance(narrowed, Scalar) else None, value


def _check_value(path: Path, scalar: Scalar | None, value: Any, data: Any, tree: Item, findings: Findings) -> None:
    kind = scalar.kind if scalar is not None else ""

    def wrong(code: str, text: str, hint: str = "") -> None:
        findings.error(code, path, text, hint, tree.place_of(path))

    if not isinstance(value, str):
        return
    if kind in ("regex", "redaction"):
        from shipgen.policy.regex import RegexError, check

        try:
            check(value, may_be_empty=kind == "regex")
        except RegexError as error:
            text, _, way_out = str(error).partition("; ")
            wrong(error.code, text, way_out)
        return
    if path[-1] != "with" and _URL_PASSWORD.search(value):
        wrong("literal-secret", "carries a user and a password", "a secret is given by reference only, under `auth`")
        return
    if kind in ("size", "duration", "rate") and scalar is not None and scalar.convert is not None:
        try:
            scalar.convert(value)
        except ValueError as error:
            reason = str(error)
            wrong("bad-unit", f"`{printable(value)}` {'is ' if reason.startswith('not') else ''}{reason}")
    elif kind == "glob":
        problem = _glob_problem(value)
        if problem:
            wrong("bad-glob", *problem)
    elif kind == "timezone":
        _check_timezone(value, wrong)
    elif kind in ("url", "address"):
        port = re.search(r":([0-9]+)(?:/|$)", value.partition("://")[2] or value)
        if port and not 0 < int(port[1]) <= 65535:
            wrong("bad-address", f"{port[1]} is not a port", "a port is a number from 1 to 65535")
        elif path[-1] == "endpoint" and _sink_type(path, data) == "loki" and "/loki/api/" in value:
            wrong(
                "bad-address",
                "is the address of one of Loki's calls",
                "write the base URL, without `/loki/api/v1/push`",
            )
    elif secret_path(path) and path[-2] == "headers" and _SECRET_HEADER.search(str(path[-1])):
        wrong("literal-secret", "a secret is never written in a policy", "write {env: NAME} or {file: /path}")


def _sink_type(path: Path, data: Any) -> Any:
    return data["sinks"][path[1]].get("type") if path[:1] == ("sinks",) and len(path) == 3 else None


def _glob_problem(glob: str) -> tuple[str, str] | None:
    """Why ``glob`` is outside the dialect that every shipper reads, and what would be right."""
    dialect = "what every shipper reads: `*`, `?`, `[a-z]`, `[!a-z]`; give several globs as several list items"
    if not glob.startswith("/"):
        return "the path is not absolute", "begin with `/`"
    if "**" in glob:
        return "`**` is not read alike by all shippers", "write one `*` for each directory"
    for char in "{},`\\":
        if char in glob:
            return f"`{char}` is not read alike by all shippers", dialect
    at = 0
    while (at := glob.find("[", at)) >= 0:
        match = re.compile(r"\[!?(?:[A-Za-z0-9_.](?:-[A-Za-z0-9])?)+\]").match(glob, at)
        if match is None:
            return f"the class at character {at + 1} is not read alike by all shippers", dialect
        at = match.end()
    if any(part in (".", "..") for part in glob.split("/")):
        return "`.` and `..` have no place in a path here", "write the path that is meant"
    return None


def _check_timezone(name: str, wrong: Callable[..., None]) -> None:
    if name == "local":
        return
    import zoneinfo

    try:
        if name.startswith(("posix/", "right/", "/")) or name in ("localtime", "posixrules", "Factory"):
            raise zoneinfo.ZoneInfoNotFoundError(name)
        zoneinfo.ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        known = {*zoneinfo.available_timezones(), "local"}
        close = nearest(name, known, 0.85) or nearest(name, {zone.rpartition("/")[2] for zone in known}, 0.75)
        full = (
            next((zone for zone in sorted(known) if zone == close or zone.endswith("/" + close)), "") if close else ""
        )
        hint = f"did you mean `{full}`?" if full else "`local`, or an IANA name such as Europe/Berlin"
        if offset := re.fullmatch(r"(?:UTC|GMT)?([+-])(\d\d?)(?::?00)?", name):
            sign = "-" if offset[1] == "+" else "+"  # POSIX counts the other way round
            hint = f"name the place, such as Europe/Berlin; the offset alone is Etc/GMT{sign}{int(offset[2])}"
        wrong("unknown-time-zone", f"`{printable(name)}` is not a time zone", hint)
