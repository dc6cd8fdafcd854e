"""A Kafka broker of one node that keeps what producers send: ApiVersions, Metadata, Produce, SASL PLAIN.

It offers the versions of the protocol that have no tagged fields, reads record batches of format 2, and checks what a
broker checks: lengths, checksums, offsets, known topics, the size of a batch.
"""

from __future__ import annotations

import gzip
import socketserver
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from .base import Receiver, RefusedError, Server, strict_object

_API_VERSIONS, _METADATA, _PRODUCE, _FETCH, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 3, 0, 1, 17, 36
# Fetch is not served: that it is offered tells librdkafka that batches of format 2 are known.
_OFFERED = {_PRODUCE: (3, 7), _FETCH: (4, 4), _METADATA: (0, 4), _API_VERSIONS: (0, 2), _SASL_HANDSHAKE: (0, 1),
            _SASL_AUTHENTICATE: (0, 0)}
UNSUPPORTED_VERSION, UNKNOWN_TOPIC, TOO_LARGE, CORRUPT, SASL_FAILED = 35, 3, 10, 2, 58
_CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_BATCH_LIMIT = 1_048_588


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _crc32c_table()


def crc32c(data: bytes) -> int:
    """The checksum of a record batch."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise RefusedError(f"a length of {count} where {len(self.data) - self.at} bytes are left")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> int:
        value: int = struct.unpack(f">{form}", self.take(struct.calcsize(form)))[0]
        return value

    def text(self) -> str | None:
        size = self.number("h")
        return None if size < 0 else self.take(size).decode()

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def bytes_of_varint(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its topic, key, value, time in ms, and the codec of its batch."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    codec: str


def _messages(topic: str, data: bytes) -> Iterator[Message]:
    reader = _Reader(data)
    while reader.at < len(data):
        reader.number("q")
        batch = _Reader(reader.take(reader.number("i")))
        batch.number("i")
        if (magic := batch.number("b")) != 2:
            raise RefusedError(f"record batch of format {magic}")
        if batch.number("I") != crc32c(batch.data[batch.at :]):
            raise RefusedError("the checksum of a record batch is wrong")
        attributes, last = batch.number("h"), batch.number("i")
        first_time = batch.number("q")
        batch.take(8 + 8 + 2 + 4)
        count = batch.number("i")
        if last != count - 1:
            raise RefusedError(f"{count} records, the last of which has offset {last}")
        codec = _CODECS[attributes & 7]
        body = batch.data[batch.at :]
        if codec not in ("none", "gzip"):
            raise RefusedError(f"{codec} is not read here")
        records = _Reader(gzip.decompress(body) if codec == "gzip" else body)
        for offset in range(count):
            record = _Reader(records.take(records.varint()))
            record.take(1)
            timestamp = first_time + record.varint()
            if record.varint() != offset:
                raise RefusedError("offsets of records have gaps")
            key, value = record.bytes_of_varint(), record.bytes_of_varint()
            for _ in range(record.varint()):
                record.bytes_of_varint()
                record.bytes_of_varint()
            if record.at != len(record.data):
                raise RefusedError("a record is longer than it says")
            yield Message(topic, key, value, timestamp, codec)
        if records.at != len(records.data):
            raise RefusedError("a record batch is longer than it says")


def _text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value.encode())) + value.encode()


class BrokerServer(Receiver):
    """The broker. ``plain`` is the user and password that SASL PLAIN has to bring, if any. Topics that are not in
    ``topics`` are unknown. ``errors`` are codes that Produce answers with, as long as there are any."""

    def __init__(self, topics: set[str], plain: tuple[str, str] | None = None) -> None:
        super().__init__()
        self.topics, self.plain = topics, plain
        self.messages: list[Message] = []
        self.acks: set[int] = set()
        self.errors: list[int] = []
        self.host = "127.0.0.1"

    def __enter__(self) -> Self:
        serve = self._serve

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                serve(self.rfile, self.request)

        self._server = Server(self, Handler)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.end()

    def _serve(self, stream: Any, connection: Any) -> None:
        trusted, bare = self.plain is None, False
        while head := stream.read(4):
            request = _Reader(stream.read(struct.unpack(">i", head)[0]))
            if bare:  # after a handshake of version 0 the token comes without a request around it
                trusted, bare = self._trusted(request.data), False
                if not trusted:
                    return
                connection.sendall(struct.pack(">i", 0))
                continue
            api, version, correlation = request.number("h"), request.number("h"), request.number("i")
            request.text()
            low, high = _OFFERED.get(api, (0, -1))
            if api == _API_VERSIONS:
                answer = self._api_versions(version if low <= version <= high else None)
            elif not low <= version <= high:
                self.problems.append(f"api {api} in version {version} is not offered")
                return
            elif api == _SASL_HANDSHAKE:
                known = request.text() == "PLAIN"
                bare = known and version == 0
                answer = struct.pack(">hi", 0 if known else 33, 1) + _text("PLAIN")
            elif api == _SASL_AUTHENTICATE:
                trusted = self._trusted(request.take(request.number("i")))
                answer = struct.pack(">h", 0 if trusted else SASL_FAILED) + _text(None) + struct.pack(">i", 0)
            elif not trusted:
                self.problems.append(f"api {api} without SASL")
                return
            elif api == _METADATA:
                answer = self._metadata(request, version)
            else:
                with self.lock:
                    answer = self._produce(request, version)
            if answer:
                connection.sendall(struct.pack(">ii", len(answer) + 4, correlation) + answer)

    def _trusted(self, token: bytes) -> bool:
        _, user, password = token.decode().split("\0")
        return (user, password) == self.plain

    def _api_versions(self, version: int | None) -> bytes:
        offered = b"".join(struct.pack(">hhh", api, *span) for api, span in _OFFERED.items())
        answer = struct.pack(">hi", 0 if version is not None else UNSUPPORTED_VERSION, len(_OFFERED)) + offered
        return answer + (struct.pack(">i", 0) if version else b"")

    def _metadata(self, request: _Reader, version: int) -> bytes:
        count = request.number("i")
        wanted = [request.text() or "" for _ in range(count)] if count > 0 else sorted(self.topics)
        answer = struct.pack(">i", 0) if version >= 3 else b""
        answer += struct.pack(">ii", 1, 1) + _text(self.host) + struct.pack(">i", self.port)
        if version >= 1:
            answer += _text(None)
        if version >= 2:
            answer += _text("cluster")
        if version >= 1:
            answer += struct.pack(">i", 1)
        answer += struct.pack(">i", len(wanted))
        for topic in wanted:
            known = topic in self.topics
            answer += struct.pack(">h", 0 if known else UNKNOWN_TOPIC) + _text(topic)
            if version >= 1:
                answer += b"\0"
            answer += struct.pack(">i", 1 if known else 0)
            if known:
                answer += struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
        return answer

    def _produce(self, request: _Reader, version: int) -> bytes:
        request.text()
        acks, _ = request.number("h"), request.number("i")
        self.acks.add(acks)
        topics = b""
        count = request.number("i")
        for _ in range(count):
            topic = request.text() or ""
            partitions = request.number("i")
            topics += _text(topic) + struct.pack(">i", partitions)
            for _ in range(partitions):
                index = request.number("i")
                error = self._append(topic, request.take(request.number("i")))
                topics += struct.pack(">ihqq", index, error, len(self.messages), -1)
                topics += struct.pack(">q", 0) if version >= 5 else b""
        return struct.pack(">i", count) + topics + struct.pack(">i", 0) if acks else b""

    def _append(self, topic: str, data: bytes) -> int:
        if self.errors:
            return self.errors.pop(0)
        if topic not in self.topics:
            return UNKNOWN_TOPIC
        if len(data) > _BATCH_LIMIT:
            self.problems.append(f"a batch of {len(data)} bytes")
            return TOO_LARGE
        try:
            messages = list(_messages(topic, data))
            records = [strict_object(message.value or b"") for message in messages]
        except (RefusedError, EOFError, OSError) as refused:
            self.problems.append(str(refused))
            return CORRUPT
        self.messages += messages
        self.records += records
        return 0
