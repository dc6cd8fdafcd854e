"""The proxy between shipper and Loki: what it passes on and keeps, and the harm that it does."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_loki import FakeLoki

from shipgen.harness import pushes
from shipgen.harness.proxy import FaultProxy, Harm

BODY = json.dumps({"streams": [{"stream": {"file": "a"}, "values": [["1", "one", {"session": "s"}], ["2", "two"]]}]})


@pytest.fixture
def loki() -> Iterator[FakeLoki]:
    server = FakeLoki()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(loki: FakeLoki, tmp_path: Path) -> Iterator[FaultProxy]:
    with FaultProxy(loki.url, tmp_path / "spool") as proxy:
        yield proxy


def push(proxy: FaultProxy, times: int = 1) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    try:
        for _ in range(times):
            connection.request("POST", "/loki/api/v1/push", BODY, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        return answer.status
    finally:
        connection.close()


def test_pushes_are_passed_on_and_kept(proxy: FaultProxy, loki: FakeLoki) -> None:
    assert push(proxy, 2) == 204
    assert loki.received == 4
    (first, body), _ = proxy.bodies()
    assert list(pushes.entries(first.content_type, first.encoding, body)) == [
        pushes.Pushed(1, "one", ("s", "a")), pushes.Pushed(2, "two", ("", "a")),
    ]


def test_down_and_up_again_on_the_same_port(proxy: FaultProxy) -> None:
    idle = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    idle.request("GET", "/ready")
    assert idle.getresponse().read() == b"ready\n"
    port = proxy.port
    proxy.down()
    with pytest.raises(ConnectionRefusedError):
        push(proxy)
    idle.sock.settimeout(10)
    assert idle.sock.recv(1) == b""
    idle.close()
    proxy.up()
    assert proxy.port == port
    assert push(proxy) == 204


def test_a_storm_of_answers_never_reaches_loki(proxy: FaultProxy, loki: FakeLoki) -> None:
    proxy.harm = Harm(status=429)
    assert push(proxy, 2) == 429
    assert (loki.received, proxy.refused, proxy.pushes) == (0, 2, [])


def test_resets_come_before_loki_has_it_and_after(proxy: FaultProxy, loki: FakeLoki) -> None:
    proxy.harm = Harm(reset=True)
    for received in (0, 2, 2):
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            push(proxy)
        assert loki.received == received


def test_late_answers(proxy: FaultProxy, loki: FakeLoki) -> None:
    proxy.harm = Harm(delay_s=600)
    answers: list[int] = []

    def client() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answers.append(push(proxy))

    waiting = threading.Thread(target=client)
    waiting.start()
    while loki.received < 2:
        threading.Event().wait(0.01)
    assert waiting.is_alive()
    proxy.down()
    waiting.join(10)
    assert not waiting.is_alive()
    assert answers == []


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def test_protobuf_in_snappy() -> None:
    at = field(1, 7) + field(2, 300)
    metadata = field(1, b"session") + field(2, "sé".encode())
    entry = field(1, at) + field(2, b"x" * 100) + field(3, metadata) + field(9, 1)
    stream = field(1, b'{file="a\\"b", job="j"}') + field(2, entry) + field(2, field(2, b"y"))
    plain = field(1, stream)
    packed = varint(len(plain)) + bytes([60 << 2, len(plain) - 1]) + plain
    assert list(pushes.entries("application/x-protobuf", "", packed)) == [
        pushes.Pushed(7 * 10**9 + 300, "x" * 100, ("sé", 'a"b')), pushes.Pushed(0, "y", ("", 'a"b')),
    ]


@pytest.mark.parametrize(
    ("packed", "plain"),
    [
        (b"\x07\x08abc\x01\x03", b"abcabca"),
        (b"\x07\x00a\x16\x01\x00", b"aaaaaaa"),
        (b"\x07\x00a\x17\x01\x00\x00\x00", b"aaaaaaa"),
    ],
)
def test_copies_of_snappy(packed: bytes, plain: bytes) -> None:
    assert pushes.unsnap(packed) == plain


def test_gzip() -> None:
    assert len(list(pushes.entries("application/json", "gzip", gzip.compress(BODY.encode())))) == 2


@pytest.mark.parametrize("body", [b"", b"\xff", b"\x05\x00a"])
def test_what_is_no_push(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut short|instead of"):
        list(pushes.entries("application/x-protobuf", "", body))
