"""The request to VeRL's controller: what it says, when it is sent, and which exit code tells what came of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from shipgen.cli import main


class Controller(HTTPServer):
    """Keeps what it gets; answers with ``status``."""

    status = 200
    got: list[tuple[str, str, Any]]


class Handler(BaseHTTPRequestHandler):
    server: Controller

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, self.headers["Content-Type"], body))
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(b"workers: 8\x1b[31m\n")

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller(("127.0.0.1", 0), Handler) as server:
        server.got = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(server: Controller | str, *arguments: str) -> Result:
    url = server if isinstance(server, str) else f"http://127.0.0.1:{server.server_port}/"
    return CliRunner().invoke(main, ["verl", "level", "--controller", url, *arguments])


def test_it_is_shown_and_not_sent(controller: Controller) -> None:
    result = run(controller, "debug")
    assert (result.exit_code, controller.got) == (0, [])
    head, _, body = result.stdout.partition("\n\n")
    assert head.split()[:2] == ["POST", f"http://127.0.0.1:{controller.server_port}/api/v1/workers/logging"]
    assert json.loads(body) == {"level": "DEBUG", "expire": "2h"}
    assert "--yes" in result.stderr


def test_it_is_sent(controller: Controller) -> None:
    result = run(controller, "ERROR", "--expire", "30m", "--node", "n-1", "--yes")
    body = {"level": "ERROR", "expire": "30m", "node": "n-1"}
    assert controller.got == [("/api/v1/workers/logging", "application/json", body)]
    assert result.exit_code == 0
    assert "200 OK workers: 8 [31m" in result.stderr


@pytest.mark.parametrize("status", [302, 400, 500])
def test_it_is_refused(controller: Controller, status: int) -> None:
    controller.status = status
    result = run(controller, "debug", "--yes")
    assert (result.exit_code, len(controller.got)) == (3, 1)
    assert f"answered {status}" in result.stderr


def test_nobody_is_there() -> None:
    assert run("http://127.0.0.1:1", "debug", "--yes").exit_code == 3


@pytest.mark.parametrize("arguments", [
    ("http://c", "loud"), ("http://c", "debug", "--expire", "soon"), ("http://c", "debug", "--expire", "0s"),
    ("http://c", "debug", "--node", ""),
    ("http://u:secret@c", "debug"), ("ftp://c", "debug"), ("http://c/path", "debug"), ("c:8080", "debug"),
])
def test_bad_usage(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "secret" not in result.output
