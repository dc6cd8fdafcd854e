"""What was counted on real systems and cannot be read off any configuration: losses that a reader has to know of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Count:
    """So many of so many records, in which experiment."""

    number: int
    of: int
    where: str

    def __str__(self) -> str:
        return f"{self.number:,} of {self.of:,}"


CRASH_UNDER_ROTATION = Count(
    29, 500, "an actor that printed 500 lines and called os._exit, Ray 2.60.0 with RAY_ROTATION_MAX_BYTES set"
)
"""Output then passes through a pipe and a thread of the worker itself; without rotation nothing was lost."""

LOKI_MERGED = Count(7, 1493, "one Ray session in text mode, Loki 3.6.15")
"""Entries with equal labels, time and line as another: Loki stores them once, whatever their metadata says."""

LOKI_TOO_FAR_BEHIND = Count(67, 2224, "two sessions a day apart, read from the beginning, Loki 3.6.15")
"""Entries that Loki threw away while it answered 204."""
