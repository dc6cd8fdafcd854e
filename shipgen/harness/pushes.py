"""What a shipper sent to Loki, read from the bodies of its requests: JSON, or protobuf in snappy.

Field numbers are those of `pkg/push/push.proto` of grafana/loki, and the block format that of google/snappy's
`format_description.txt`. Read here by hand because a run needs it once, after the shipper has stopped.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from shipgen.harness.loki import place_of


@dataclass(frozen=True, slots=True)
class Pushed:
    """One entry of a request: when it is from, its line, and the session and file that its labels or metadata name."""

    time_ns: int
    line: str
    place: tuple[str, str]


def entries(content_type: str, encoding: str, body: bytes) -> Iterator[Pushed]:
    """The entries of one request. Raises ValueError where the body is none that Loki would take."""
    try:
        found = _json(_unpacked(encoding, body)) if "json" in content_type else _protobuf(unsnap(body))
        yield from found
    except (IndexError, KeyError, TypeError, OSError, zlib.error) as error:
        raise ValueError(f"no push: {error}") from error


def _unpacked(encoding: str, body: bytes) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    return zlib.decompress(body) if encoding == "deflate" else body


def _json(body: bytes) -> Iterator[Pushed]:
    for stream in json.loads(body)["streams"]:
        for at, line, *metadata in stream["values"]:
            yield Pushed(int(at), line, place_of(stream["stream"], metadata[0] if metadata else {}))


def _protobuf(body: bytes) -> Iterator[Pushed]:
    for stream in _fields(body, 1):
        labels: dict[str, str] = {}
        for text in _fields(stream, 1):
            labels = dict(_pair(name, value) for name, value in re.findall(_LABEL, _text(text)))
        for entry in _fields(stream, 2):
            at = next(iter(_fields(entry, 1)), b"")
            line = next(iter(_fields(entry, 2)), b"")
            metadata = {
                _text(next(iter(_fields(pair, 1)), b"")): _text(next(iter(_fields(pair, 2)), b""))
                for pair in _fields(entry, 3)
            }
            seconds, nanos = (next(iter(_numbers(at, number)), 0) for number in (1, 2))
            yield Pushed(seconds * 10**9 + nanos, _text(line), place_of(labels, metadata))


_LABEL = r'(\w+)="((?:[^"\\]|\\.)*)"'


def _pair(name: str, value: str) -> tuple[str, str]:
    return name, value.replace('\\"', '"').replace("\\\\", "\\")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _fields(message: bytes, wanted: int) -> list[bytes]:
    """The values of a field that has a length (text, bytes, a message)."""
    return [value for number, value in _walk(message) if number == wanted and isinstance(value, bytes)]


def _numbers(message: bytes, wanted: int) -> list[int]:
    return [value for number, value in _walk(message) if number == wanted and isinstance(value, int)]


def _walk(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    place, end = 0, len(message)
    while place < end:
        key, place = _varint(message, place)
        match key & 7:
            case 0:
                value, place = _varint(message, place)
                yield key >> 3, value
            case 2:
                length, place = _varint(message, place)
                yield key >> 3, message[place : place + length]
                place += length
            case 1 | 5 as kind:
                place += 8 if kind == 1 else 4
            case kind:
                raise ValueError(f"no protobuf: wire type {kind}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(data):
            raise ValueError("cut short")
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def unsnap(data: bytes) -> bytes:
    """A snappy block, unpacked."""
    length, place = _varint(data, 0)
    out = bytearray()
    while place < len(data):
        tag = data[place]
        place += 1
        if not tag & 3:
            size = tag >> 2
            if size >= 60:
                width = size - 59
                size = int.from_bytes(data[place : place + width], "little")
                place += width
            out += data[place : place + size + 1]
            place += size + 1
            continue
        if tag & 3 == 1:
            size, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[place]
            place += 1
        else:
            width = 2 if tag & 3 == 2 else 4
            size, offset = (tag >> 2) + 1, int.from_bytes(data[place : place + width], "little")
            place += width
        start = len(out) - offset
        if offset >= size:
            out += out[start : start + size]
        elif offset > 0:
            piece = bytes(out[start:])
            out += (piece * (size // offset + 1))[:size]
        else:
            raise ValueError("no snappy: an offset of nothing")
    if len(out) != length:
        raise ValueError(f"no snappy: {len(out)} bytes instead of {length}")
    return bytes(out)

