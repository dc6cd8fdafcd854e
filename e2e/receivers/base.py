"""What all receivers share: what they got, what was wrong with it, and TLS."""

from __future__ import annotations

import gzip
import json
import socket
import socketserver
import ssl
import threading
import zlib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

Record = dict[str, Any]


class RefusedError(Exception):
    """What a strict server says no to."""


def strict_object(line: bytes) -> Record:
    """One JSON object: UTF-8, no key twice, no NaN, nothing around it."""

    def unique(pairs: list[tuple[str, Any]]) -> Record:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise RefusedError(f"a key stands twice: {[k for k, _ in pairs]}")
        return found

    def no_constant(name: str) -> Any:
        raise RefusedError(f"{name} is no JSON")

    try:
        data = json.loads(line.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RefusedError(f"no JSON: {error}: {line[:200]!r}") from error
    if not isinstance(data, dict):
        raise RefusedError(f"no object: {line[:200]!r}")
    return data


def decompressed(body: bytes, encoding: str | None) -> bytes:
    """A body as it was before its Content-Encoding."""
    match encoding:
        case None | "":
            return body
        case "gzip":
            return gzip.decompress(body)
        case "deflate":
            return zlib.decompress(body)
    raise RefusedError(f"415 Content-Encoding {encoding}")


class Receiver:
    """A server that runs while its block does."""

    def __init__(self) -> None:
        self.tls: ssl.SSLContext | None = None
        self.records: list[Record] = []
        self.problems: list[str] = []
        self.lock = threading.Lock()
        self.port = 0

    def use(self, tls: ssl.SSLContext) -> None:
        """Speak TLS with those who connect from now on."""
        self.tls = tls

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def count(self) -> int:
        """Records that have arrived."""
        with self.lock:
            return len(self.records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Server(socketserver.ThreadingTCPServer):
    """A server for a receiver, which speaks TLS once the receiver has what that takes."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, receiver: Receiver, handler: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.receiver = receiver
        receiver.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def get_request(self) -> tuple[socket.socket, Any]:
        """A connection; hands are shaken when it is first read, by its own thread."""
        connection, address = super().get_request()
        if self.receiver.tls:
            connection = self.receiver.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, *_: object) -> None:
        """A client that goes away, or does not like the certificate, is no fault."""

    def end(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came in. Header names are in small letters."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


Answer = tuple[int, bytes]


@dataclass
class Faults:
    """Answers that stand in for the real one, as long as there are any: for tests of what a shipper does then."""

    answers: list[Answer] = field(default_factory=list)
    methods: set[str] = field(default_factory=lambda: {"GET", "HEAD", "POST", "PUT"})

    def next(self, method: str) -> Answer | None:
        """The next one, for a request of this method."""
        return self.answers.pop(0) if self.answers and method in self.methods else None


class HttpServer(Receiver):
    """A receiver that speaks HTTP/1.1."""

    def __init__(self) -> None:
        super().__init__()
        self.faults = Faults()
        self.requests: list[Request] = []

    def answer(self, request: Request) -> Answer:
        """What the server does. Raises RefusedError, which is a 400 and a problem."""
        raise NotImplementedError

    def url(self, path: str = "", host: str = "127.0.0.1") -> str:
        """Where the server is."""
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{path}"

    def __enter__(self) -> Self:
        self._server = Server(self, _handler(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._server.end()

    def handle(self, request: Request) -> Answer:
        """Keeps a request and answers it, or as a fault wants."""
        with self.lock:
            self.requests.append(request)
            if fault := self.faults.next(request.method):
                return fault
            try:
                return self.answer(request)
            except RefusedError as refused:
                self.problems.append(str(refused))
                return 400, str(refused).encode()


def _handler(server: HttpServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            path, _, query = self.path.partition("?")
            headers = {k.lower(): v for k, v in self.headers.items()}
            if headers.get("transfer-encoding", "").lower() == "chunked":
                body = self._chunks()
            else:
                body = self.rfile.read(int(headers.get("content-length", 0)))
            status, answer = server.handle(Request(self.command, path, query, headers, body))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        def _chunks(self) -> bytes:
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return body

        def log_message(self, *_: object) -> None: ...

    for method in ("GET", "HEAD", "PUT", "POST"):
        setattr(Handler, f"do_{method}", Handler._do)
    return Handler
