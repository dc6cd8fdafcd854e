"""A very small Loki for tests: takes JSON pushes, stores equal entries once, discards what is too far behind.

As a program it reads the port from a configuration that the harness wrote, as the real one does.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


class FakeLoki(ThreadingHTTPServer):
    """Entries are (time, labels, line, metadata); ``largest`` is the most that one answer holds."""

    daemon_threads = True
    window_ns = 3600 * 10**9

    def __init__(self, port: int = 0, largest: int = 10**9) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.largest = largest
        self.entries: dict[tuple[int, str, str], dict[str, str]] = {}
        self.newest: dict[str, int] = {}
        self.received = 0
        self.discarded: Counter[str] = Counter()
        self.queries = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, streams: list[dict[str, Any]]) -> None:
        with self.lock:
            for stream in streams:
                labels = json.dumps(stream["stream"], sort_keys=True)
                for at, line, *metadata in stream["values"]:
                    self.received += 1
                    newest = self.newest[labels] = max(self.newest.get(labels, 0), int(at))
                    if int(at) < newest - self.window_ns:
                        self.discarded["too_far_behind"] += 1
                    else:
                        self.entries.setdefault((int(at), labels, line), metadata[0] if metadata else {})

    def found(self, start: int, end: int, limit: int) -> list[dict[str, Any]]:
        with self.lock:
            self.queries += 1
            inside = sorted(key for key in self.entries if start <= key[0] < end)[: min(limit, self.largest)]
            streams: dict[str, list[Any]] = {}
            for at, labels, line in inside:
                metadata = {**self.entries[at, labels, line], "detected_level": "unknown"}
                streams.setdefault(labels, []).append([str(at), line, {"structuredMetadata": metadata}])
        return [
            {"stream": {**json.loads(labels), "service_name": "unknown_service"}, "values": values}
            for labels, values in streams.items()
        ]

    def metrics(self) -> str:
        lines = [f'loki_distributor_lines_received_total{{tenant="fake"}} {self.received}']
        lines += [
            f'loki_discarded_samples_total{{reason="{reason}",tenant="fake"}} {count}'
            for reason, count in self.discarded.items()
        ]
        return "\n".join(lines) + "\n"


class _Handler(BaseHTTPRequestHandler):
    server: FakeLoki

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/ready":
            self.answer("ready\n")
        elif url.path == "/metrics":
            self.answer(self.server.metrics())
        elif url.path == "/loki/api/v1/query_range":
            asked = {name: values[0] for name, values in parse_qs(url.query).items()}
            result = self.server.found(int(asked["start"]), int(asked["end"]), int(asked["limit"]))
            flags = ["categorize-labels"] if self.headers["X-Loki-Response-Encoding-Flags"] else []
            self.answer(json.dumps({"data": {"resultType": "streams", "result": result, "encodingFlags": flags}}))
        else:
            self.answer("no such page\n", 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.take(json.loads(body)["streams"])
        self.answer("", 204)

    def answer(self, text: str, status: int = 200) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


if __name__ == "__main__":
    config = Path(sys.argv[1].removeprefix("-config.file="))
    FakeLoki(json.loads(config.read_text())["server"]["http_listen_port"]).serve_forever()
