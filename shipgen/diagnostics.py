"""Diagnostics: what shipgen has to say about a policy, and the reporters that print it.

A diagnostic is data until a reporter prints it; nothing else in shipgen prints one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


class Severity(StrEnum):
    """How much a diagnostic weighs. Errors always fail a run, warnings only under ``--strict``, notes never."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a policy file. ``line`` and ``column`` count from 1; 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    ``code`` is a key of :data:`CODES`. ``path`` names the leaf of the policy, e.g. ``parsing.rules[0].add.team``; empty
    for the policy as a whole. ``text`` says what is wrong (and the value used instead, where one is approximated),
    ``hint`` what would be right. ``target`` names the shipper where the finding is about one. ``detail`` is what shows
    it in lines of its own, such as the difference of two files.
    """

    code: str
    severity: Severity
    path: str
    text: str
    hint: str = ""
    place: Place | None = None
    target: str = ""
    detail: str = ""

    @property
    def message(self) -> str:
        """The finding in one line: leaf path first, then what, then what would be right."""
        subject = f"{self.path}: " if self.path else ""
        target = f"{self.target}: " if self.target else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{subject}{target}{self.text}{hint}"


class ShipgenError(Exception):
    """Base of the errors that end a run; each class owns its exit code."""

    exit_code = 1

    def __init__(self, message: str = "", diagnostics: Iterable[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.diagnostics = list(diagnostics)


class PolicyError(ShipgenError):
    """The policy is wrong: one or more error diagnostics."""

    exit_code = 1

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        found = list(diagnostics)
        super().__init__("; ".join(d.message for d in found), found)


class UsageError(ShipgenError):
    """Bad usage, or a file that can't be read or written."""

    exit_code = 2


class OutsideError(ShipgenError):
    """Something outside shipgen is missing or failed: Docker, a binary, a shipper that does not start."""

    exit_code = 3


# --- what a set of findings amounts to ---

_RANK = {severity: rank for rank, severity in enumerate(Severity)}  # the worst first


def ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings by file, line, column, severity and code; those without a place last."""

    def key(d: Diagnostic) -> tuple[Any, ...]:
        place = d.place or Place("")
        position = (d.place is None, place.file, place.line, place.column)
        return (*position, _RANK[d.severity], d.code, d.target, d.path, d.text, d.hint)

    return sorted(diagnostics, key=key)


def counts(diagnostics: Iterable[Diagnostic]) -> dict[Severity, int]:
    """How many findings there are of each severity."""
    found = dict.fromkeys(Severity, 0)
    for d in diagnostics:
        found[d.severity] += 1
    return found


def worst(diagnostics: Iterable[Diagnostic]) -> Severity | None:
    """The gravest severity among the findings; None where there are none."""
    return min((d.severity for d in diagnostics), key=_RANK.__getitem__, default=None)


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """The findings in numbers, e.g. ``2 errors, 1 warning``."""
    parts = [f"{n} {severity}{'s' if n > 1 else ''}" for severity, n in counts(diagnostics).items() if n]
    return ", ".join(parts) or "no findings"


def fails(diagnostic: Diagnostic, strict: bool = False) -> bool:
    """Whether this finding fails the run."""
    return diagnostic.severity is Severity.ERROR or (strict and diagnostic.severity is Severity.WARNING)


def exit_code(diagnostics: Iterable[Diagnostic], strict: bool = False) -> int:
    """0, or 1 where a finding fails the run."""
    return int(any(fails(d, strict) for d in diagnostics))


# --- reporters ---


@dataclass(frozen=True, slots=True)
class _Options:
    color: bool
    summary: bool
    strict: bool
    base: str
    file: str
    closing: str


def report(
    diagnostics: Iterable[Diagnostic],
    format: str = "text",
    *,
    stream: TextIO,
    color: bool | None = None,
    summary: bool = True,
    strict: bool = False,
    base: str | None = None,
    file: str = "",
    closing: str = "",
) -> None:
    """Print the findings to ``stream`` in one of :data:`FORMATS`.

    ``color`` and ``summary`` (the closing line) are for ``text``; by default there are colours on a terminal, unless
    ``NO_COLOR`` is set. ``strict`` makes warnings failures in ``junit``. ``base`` is the directory that ``sarif`` and
    ``github`` name files from: by default the checkout of a GitHub workflow, else the working directory. ``file`` is
    where ``sarif`` puts findings without a place, since GitHub refuses a result that has none. ``closing`` sums the run
    up in a line, for ``text``, ``json`` and ``github``.
    """
    if format not in _REPORTERS:
        raise UsageError(f"unknown format {format!r}; one of {', '.join(FORMATS)}")
    options = _Options(
        color=wants_color(stream) if color is None else color,
        summary=summary,
        strict=strict,
        base=base or os.environ.get("GITHUB_WORKSPACE") or ".",
        file=file,
        closing=closing,
    )
    text = _REPORTERS[format](ordered(diagnostics), options)
    # A finding quotes what the user wrote; a terminal that can't show it must not end in a traceback.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def wants_color(stream: TextIO) -> bool:
    """Whether the stream is a terminal, and its user has not asked for plain text."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _visible(text: str, keep: str = "") -> str:
    """Escapes for all that does not print (control characters, lone surrogates, direction marks) but ``keep``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


def _file(name: str) -> str:
    return "<stdin>" if name == "-" else name


def _from_base(name: str, base: str) -> str:
    """The file named from ``base`` where it lies below, else by its absolute path."""
    from pathlib import Path

    if _file(name) == "<stdin>":
        return "<stdin>"
    root, path = (Path(os.path.normpath(Path.cwd() / part)) for part in (base, name))
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _where(d: Diagnostic) -> str:
    return str(Place(_file(d.place.file), d.place.line, d.place.column)) if d.place else ""


_ANNOTATED = 40
"""Lines of a finding that an annotation shows; GitHub cuts long ones."""
_COLORS = {Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.NOTE: "1;36"}
_DIFF_COLORS = {"-": "31", "+": "32", "@": "36"}


def _text(found: Sequence[Diagnostic], options: _Options) -> str:
    def paint(style: str, text: str) -> str:
        return f"\033[{style}m{text}\033[0m" if options.color else text

    lines = []
    for line in "".join(d.detail for d in found).splitlines():
        style = _DIFF_COLORS.get(line[:1], "") if line[:4] not in ("--- ", "+++ ") else "1"
        lines.append(paint(style, _visible(line, keep="\t")) if style else _visible(line, keep="\t"))
    for d in found:
        where = f"{paint('1', _visible(_where(d)))}: " if d.place else ""
        severity = paint(_COLORS[d.severity], f"{d.severity}:")
        lines.append(f"{where}{severity} {_visible(d.message)} {paint('2', f'[{d.code}]')}")
    if options.summary:
        lines.append(summary(found))
    if options.closing:
        lines.append(_visible(options.closing))
    return "".join(f"{line}\n" for line in lines)


def _dump(document: dict[str, Any]) -> str:
    import json

    return json.dumps(document, indent=2) + "\n"  # ASCII, so that no stream can spoil it


def _json(found: Sequence[Diagnostic], options: _Options) -> str:
    def valid(text: str) -> str:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")  # strict readers refuse lone surrogates

    def entry(d: Diagnostic) -> dict[str, Any]:
        place = d.place or Place("")
        names = ("code", "severity", "path", "message", "text", "hint", "target", "detail")
        where = {"file": valid(_file(place.file)) or None, "line": place.line or None, "column": place.column or None}
        return {name: valid(getattr(d, name)) for name in names} | where

    document = {"diagnostics": [entry(d) for d in found], "counts": counts(found)}
    return _dump(document | ({"summary": valid(options.closing)} if options.closing else {}))


def _sarif(found: Sequence[Diagnostic], options: _Options) -> str:
    from urllib.parse import quote

    from shipgen import __version__

    codes = sorted({d.code for d in found})

    def artifact(file: str) -> dict[str, Any]:
        name = _from_base(file, options.base)
        uri = quote(name.encode("utf-8", "backslashreplace"))
        return {"uri": f"file://{uri}"} if name.startswith("/") else {"uri": uri, "uriBaseId": "%SRCROOT%"}

    def location(d: Diagnostic) -> dict[str, Any]:
        place = d.place or Place(options.file)
        region = {"startLine": place.line, "startColumn": place.column}
        where: dict[str, Any] = {}
        if place.file:
            where["physicalLocation"] = {"artifactLocation": artifact(place.file)}
            if place.line:
                where["physicalLocation"]["region"] = {name: value for name, value in region.items() if value}
        if d.path:
            where["logicalLocations"] = [{"fullyQualifiedName": _visible(d.path)}]
        return where

    def result(d: Diagnostic) -> dict[str, Any]:
        where = location(d)
        return {
            "ruleId": d.code,
            "ruleIndex": codes.index(d.code),
            "level": d.severity,
            # Braces stay single: without arguments viewers take them as they are, and show doubled ones doubled.
            "message": {"text": _visible(d.message)},
            "locations": [where] if where else [],
            "properties": {"target": d.target, "hint": _visible(d.hint), "detail": _visible(d.detail, keep="\n\t")},
        }

    rules = [{"id": code, "shortDescription": {"text": CODES.get(code, code)}} for code in codes]
    driver = {"name": "shipgen", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": [result(d) for d in found]}
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    return _dump({"$schema": schema, "version": "2.1.0", "runs": [run]})


def _github(found: Sequence[Diagnostic], options: _Options) -> str:
    def data(text: str) -> str:
        return _visible(text, keep="\r\n").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def escaped(value: str) -> str:
        return data(value).replace(":", "%3A").replace(",", "%2C")

    def level(severity: Severity | None) -> str:
        return str(severity) if severity in (Severity.ERROR, Severity.WARNING) else "notice"

    def command(d: Diagnostic) -> str:
        values: dict[str, str | int] = {}
        if d.place and d.place.file:
            values = {"file": _from_base(d.place.file, options.base), "line": d.place.line, "col": d.place.column}
        values["title"] = d.code
        properties = ",".join(f"{name}={escaped(str(value))}" for name, value in values.items() if value)
        shown = [d.message, *d.detail.splitlines()[2:]]  # the annotation names the file, so the diff need not
        more = [f"... {len(shown) - _ANNOTATED} more lines"] if len(shown) > _ANNOTATED else []
        text = "\n".join([*shown[:_ANNOTATED], *more])
        return f"::{level(d.severity)} {properties}::{data(text)}\n"

    # GitHub shows ten annotations of a step, the first ones
    closing = f"::{level(worst(found))} title=summary::{data(options.closing)}\n"
    return (closing if options.closing else "") + "".join(map(command, found))


def _junit(found: Sequence[Diagnostic], options: _Options) -> str:
    from xml.etree import ElementTree as ET

    def add(parent: Element, tag: str, text: str = "", **attributes: str | int) -> Element:
        element = ET.SubElement(
            parent, tag, {name: _visible(str(value)) for name, value in attributes.items() if value}
        )
        element.text = _visible(text) or None
        return element

    failures = sum(fails(d, options.strict) for d in found)
    root = ET.Element("testsuites")
    suite = add(
        root, "testsuite", name="shipgen", tests=len(found) or 1, failures=str(failures), errors="0", skipped="0"
    )
    for d in found:
        place = d.place or Place("")
        case = add(
            suite,
            "testcase",
            classname=f"shipgen.{d.target or 'policy'}",
            name=f"{d.code} {d.path}".strip(),
            file=_file(place.file),
            line=place.line,
        )
        line = f"{_where(d)}: {d.severity}: {d.message}".removeprefix(": ")
        if fails(d, options.strict):
            add(case, "failure", f"{line}\n{d.detail}".rstrip("\n"), type=d.code, message=d.message)
        else:
            add(case, "system-out", line)
    if not found:  # a report without a test counts as a broken one
        add(suite, "testcase", classname="shipgen.policy", name="no findings")
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii") + "\n"


_REPORTERS: dict[str, Callable[[Sequence[Diagnostic], _Options], str]] = {
    "text": _text,
    "json": _json,
    "sarif": _sarif,
    "github": _github,
    "junit": _junit,
}
FORMATS = tuple(_REPORTERS)


# --- codes ---

CODES: dict[str, str] = {
    # the text of the policy
    "syntax": "The file is not YAML that a policy can be written in.",
    "control-character": "A value holds a control character.",
    "duplicate-key": "A key stands twice in one map.",
    "duplicate-name": "Two things of one list have the same name.",
    "null-deletes-nothing": "A null deletes a key of an earlier file, and there is none.",
    # its shape
    "unknown-key": "A key that the policy does not have.",
    "missing-key": "A key that must be there is not.",
    "wrong-type": "A value of another type than the key takes.",
    "bad-value": "A value that the key does not take.",
    "bad-name": "A name that is not written as names are.",
    "bad-unit": "A size, a duration or a rate that is not written as a number and a unit.",
    "bad-address": "An address that is none, or that of something else.",
    "bad-glob": "A path or a glob that the shippers do not all read alike.",
    "missing-unit": "A size, a duration or a rate without a unit.",
    "unquoted-text": "Text that YAML reads as a number or as true or false, since it is not in quotes.",
    "empty": "A list or a map that must hold something.",
    # its sense
    "unknown-name": "A name that nothing has.",
    "unknown-source": "A source that the policy does not have.",
    "unknown-sink": "A sink that the policy does not have.",
    "unknown-target": "A shipper that shipgen does not know.",
    "unknown-component": "A component that Ray does not have.",
    "unknown-field": "A field that no record has.",
    "unknown-time-zone": "A time zone that is none.",
    "reserved-field": "A field that shipgen itself sets.",
    "output-in-ray-tree": "A file or a directory of the shipper's below Ray's own.",
    "logs-moved-off-files": "A setting that would leave Ray's log files empty.",
    "conflict": "Two settings that exclude each other.",
    "literal-secret": "A secret stands in the policy instead of a reference to one.",
    "regex-syntax": "A pattern that is no regex.",
    "regex-matches-empty": "A redaction whose pattern matches the empty string, and so everywhere.",
    "regex-no-group": "A format whose pattern names nothing that it finds.",
    "regex-outside-subset": "A regex that the shippers' engines do not all read alike.",
    "inode-reuse": "A shipper may take a new file for an old one whose inode it got.",
    "label-twice": "A label that is static and a field.",
    "label-keyword": "A label that no query of Loki can select by.",
    "high-cardinality-label": "A label with so many values that Loki would suffer.",
    "too-many-labels": "More labels than Loki takes.",
    "no-certain-label": "A Loki sink has no label that every record carries.",
    "field-reaches-no-sink": "A rule makes a field that no sink delivers.",
    # what a change of policy does
    "rereads-files": "A change makes shippers read files again from their start.",
    "skips-lines": "A change makes shippers skip lines of files that they follow from their end.",
    "fewer-records": "A change keeps records away that arrived before.",
    "new-streams": "A change gives records other labels, so that Loki keeps them as other streams.",
    "policy-change": "A change of policy that loses nothing.",
    "other-target": "A target that the run is not about cannot express the policy.",
    "over-budget": "The files may grow beyond the disk budget.",
    "ring-too-small": "A file and its backups turn over sooner than a shipper may be down.",
    "temp-dir-ages": "Ray's files lie where systemd deletes what nobody touches.",
    "unbounded-growth": "Files that nothing rotates.",
    "logrotate-owner": "The user and the group that logrotate needs in directories that everyone may write to.",
    "ray-rotates-too": "Files that Ray rotates by itself although logrotate is told to.",
    "repeats": "Lines that arrive twice, since nothing tells a repeat from its original.",
    "unread-lines": "Lines that reach no sink, since no source or no sink takes them.",
    "other-ray-version": "A version of Ray that the catalogue does not describe.",
    "slow-regex": "A regex that takes very long on some texts in a shipper's engine.",
    "index-mapping": "A field that a search server should be told how to index, or it refuses records.",
    # the targets
    "unpinned-version": "A target without a version: the newest one known is meant.",
    "unknown-version": "A version of a target that shipgen does not know.",
    "end-of-life": "A shipper that its makers no longer maintain.",
    "unsupported": "A target cannot do what the policy asks.",
    "approximated": "A target does almost what the policy asks.",
    "not-yet": "Part of the policy that shipgen does not render yet for a target.",
    "needs-flag": "A shipper that must be started with a flag for what the policy asks.",
    "template-confinement": "A safeguard of a shipper that the rendered configuration has to switch off.",
    "left-out": "A target that cannot express the policy was left out.",
    # the commands
    "native-check": "What the shipper's own checker says about the rendered files.",
    "native-unchecked": "What the shipper's own checker did not look at.",
    "redacted-late": "A redaction that runs only behind Kafka.",
    "drift": "A rendered file is modified, missing or stale.",
    "stray-file": "A log file that no source reads.",
    "file-read-twice": "A log file that two sources read.",
}
