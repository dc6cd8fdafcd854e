"""Sizes, durations and rates: the written form (``512MiB``, ``5s``, ``2MiB/s``) and the number it stands for."""

from __future__ import annotations

import re
from decimal import Decimal

SIZE_UNITS = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
DURATION_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,6})?"
SIZE_PATTERN = rf"^{_NUMBER}({'|'.join(SIZE_UNITS)})$"
DURATION_PATTERN = rf"^{_NUMBER}({'|'.join(DURATION_UNITS)})$"
RATE_PATTERN = rf"^{_NUMBER}({'|'.join(SIZE_UNITS)})/s$"

# What every shipper can hold: a signed 64-bit number.
LIMIT = 2**63 - 1

_QUANTITY = re.compile(rf"({_NUMBER})([A-Za-z]+)\Z")


def _quantity(text: str, units: dict[str, int], what: str) -> int:
    match = _QUANTITY.match(text)
    if not match or match[2] not in units:
        raise ValueError(f"not a {what}")
    exact = Decimal(match[1]) * units[match[2]]
    number = int(exact)
    if number != exact:
        raise ValueError(f"is not a whole number of {'bytes' if units is SIZE_UNITS else 'milliseconds'}")
    if not 0 < number <= LIMIT:
        raise ValueError("must be greater than zero" if number <= 0 else "is too large")
    return number


def size(text: str) -> int:
    """``512MiB`` in bytes. ``ValueError`` says what is wrong with another text."""
    return _quantity(text, SIZE_UNITS, "size")


def duration(text: str) -> int:
    """``5s`` in milliseconds."""
    return _quantity(text, DURATION_UNITS, "duration")


def rate(text: str) -> int:
    """``2MiB/s`` in bytes per second."""
    if not text.endswith("/s"):
        raise ValueError("not a rate")
    return _quantity(text[:-2], SIZE_UNITS, "rate")
