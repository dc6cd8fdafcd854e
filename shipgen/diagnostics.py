"""Diagnostics: what shipgen has to say about a policy, and the reporters that print it.

A diagnostic is data until a reporter prints it; nothing else in shipgen prints one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


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
    ``hint`` what would be right. ``target`` names the shipper where the finding is about one.
    """

    code: str
    severity: Severity
    path: str
    text: str
    hint: str = ""
    place: Place | None = None
    target: str = ""

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
