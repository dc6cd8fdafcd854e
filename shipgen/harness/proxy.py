"""A proxy between a shipper and Loki: it keeps every push with the time of its arrival, and does harm if told to."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

_NOT_PASSED = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "expect"})


@dataclass(frozen=True, slots=True)
class Harm:
    """What is done to pushes. ``status``: they are answered so, and Loki never sees them. ``reset``: the connection is
    cut, by turns in the middle of a request and after Loki has it, before the answer. ``delay_s``: Loki has it, and the
    answer comes that much later."""

    status: int = 0
    reset: bool = False
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Push:
    """A request that Loki took: when it answered (seconds since the epoch), for which tenant, and where its body is."""

    arrived: float
    tenant: str
    content_type: str
    encoding: str
    place: int
    length: int


class FaultProxy:
    """Passes requests on to ``upstream``. Bodies are kept in ``spool``, a file."""

    def __init__(self, upstream: str, spool: Path, host: str = "127.0.0.1") -> None:
        self.upstream = urlsplit(upstream).netloc
        self.host = host
        self.port = 0
        self.harm = Harm()
        self.pushes: list[Push] = []
        self.refused = 0
        self._spool_path = spool
        self._spool = spool.open("wb")
        self._lock = threading.Lock()
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()
        self._spool.close()

    def up(self) -> None:
        """Listen; after :meth:`down`, on the same port again."""
        if self._server is None:
            self._server = _Server((self.host, self.port), self)
            self.port = self._server.server_address[1]
            threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self) -> None:
        """Refuse connections, and cut those that there are."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.cut_all()
            self._server = None

    def bodies(self, since: int = 0) -> Iterator[tuple[Push, bytes]]:
        """Pushes with their bodies, in the order in which Loki took them, from one number on."""
        with self._lock:
            self._spool.flush()
        with self._spool_path.open("rb") as spool:
            for push in self.pushes[since:]:
                spool.seek(push.place)
                yield push, spool.read(push.length)

    def keep(self, headers: Message, body: bytes) -> None:
        """Note that Loki took a push."""
        with self._lock:
            place = self._spool.tell()
            self._spool.write(body)
            self.pushes.append(
                Push(
                    time.time(),
                    headers.get("X-Scope-OrgID", ""),
                    headers.get("Content-Type", ""),
                    headers.get("Content-Encoding", ""),
                    place,
                    len(body),
                )
            )

    def refuse(self) -> int:
        """Note that a push was not passed on; gives how many were before it."""
        with self._lock:
            self.refused += 1
            return self.refused - 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.stopped = threading.Event()
        self._connections: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close without a farewell first, so that one that lingers is reset."""
        self._connections.discard(request)
        self.close_request(request)

    def cut_all(self) -> None:
        """End every connection, then threads that wait before they answer on one: nobody hears them any more."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.stopped.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that a shipper cut say nothing about shipgen."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 600
    _upstream: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        self._pass_on(b"")

    def do_POST(self) -> None:
        proxy, harm = self.server.proxy, self.server.proxy.harm
        if harm.status or harm.reset:
            before = proxy.refuse()
            if harm.reset and before % 2 == 0:
                self.rfile.read1(max(1, int(self.headers.get("Content-Length", 0)) // 2))
                self._reset()
                return
            body = self._body()
            if harm.status:
                self._answer(harm.status, b"refused by shipgen's proxy\n", "text/plain")
                return
            self._pass_on(body, answer=False)
            self._reset()
            return
        self._pass_on(self._body(), delay_s=harm.delay_s)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _pass_on(self, body: bytes, *, answer: bool = True, delay_s: float = 0.0) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED}
        for attempt in (1, 2):
            if self._upstream is None:
                self._upstream = http.client.HTTPConnection(self.server.proxy.upstream, timeout=60)
            try:
                self._upstream.request(self.command, self.path, body, headers)
                got = self._upstream.getresponse()
                content = got.read()
                break
            except (OSError, http.client.HTTPException):
                self._upstream.close()  # Loki closed a connection that was idle; a new one tells whether it is there
                self._upstream = None
                if attempt == 2:
                    self._answer(502, b"Loki does not answer\n", "text/plain")
                    return
        if body and 200 <= got.status < 300:
            self.server.proxy.keep(self.headers, body)
        if delay_s:
            self.server.stopped.wait(delay_s)
        if answer:
            self._answer(got.status, content, got.getheader("Content-Type", ""))

    def _answer(self, status: int, content: bytes, content_type: str) -> None:
        self.send_response(status)
        if content_type:
            self.send_header("Content-Type", content_type)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status != 204:
            self.wfile.write(content)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def log_message(self, *_: object) -> None:
        """Be quiet."""
