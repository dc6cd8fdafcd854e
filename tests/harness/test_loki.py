"""The client against a small server that pages as Loki does, and the configuration."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from fake_loki import FakeLoki

from shipgen.harness import loki


@pytest.fixture
def server() -> Iterator[FakeLoki]:
    with FakeLoki() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def push(server: FakeLoki, *values: tuple[int, str], job: str = "a", metadata: dict[str, str] | None = None) -> None:
    rows = [[str(at), line, metadata or {}] for at, line in values]
    server.take([{"stream": {"job": job}, "values": rows}])


def test_reads_labels_and_metadata_apart(server: FakeLoki) -> None:
    push(server, (5, "x"), metadata={"file": "raylet.out"})
    (entry,) = loki.LokiClient(server.url).read_all()
    assert entry.labels == {"job": "a", "service_name": "unknown_service"}
    assert entry.metadata == {"file": "raylet.out", "detected_level": "unknown"}
    assert (entry.time_ns, entry.line, entry.place) == (5, "x", ("", "raylet.out"))


@pytest.mark.parametrize("page", [2, 3, 7, 100])
def test_pages_overlap_nothing_and_miss_nothing(server: FakeLoki, page: int) -> None:
    for number in range(50):
        push(server, (1000 + number // 5, f"line {number}"), job=f"job{number % 3}")
    entries = loki.LokiClient(server.url, page=page).read_all()
    assert sorted(e.line for e in entries) == sorted(f"line {n}" for n in range(50))
    assert [e.time_ns for e in entries] == sorted(e.time_ns for e in entries)


def test_more_entries_of_one_nanosecond_than_a_page_holds(server: FakeLoki) -> None:
    push(server, (1, "first"), *((7, f"line {n}") for n in range(40)), (8, "last"))
    entries = loki.LokiClient(server.url, page=3).read_all()
    assert len(entries) == 42
    assert entries[-1].line == "last"


def test_a_server_that_gives_less_than_asked_ends_the_reading(server: FakeLoki) -> None:
    push(server, (1, "x"))
    assert len(loki.LokiClient(server.url).read_all()) == 1
    assert server.queries == 1


def test_time_range(server: FakeLoki) -> None:
    push(server, (1, "a"), (2, "b"), (3, "c"))
    assert [e.line for e in loki.LokiClient(server.url).read_all(start_ns=2, end_ns=3)] == ["b"]


def test_counters(server: FakeLoki) -> None:
    client = loki.LokiClient(server.url)
    assert (client.received(), client.discarded()) == (0, {})
    push(server, (10**13, "x"), (1, "old"), (10**13, "x"))
    assert (client.received(), client.discarded()) == (3, {"too_far_behind": 1})
    assert loki.LokiClient(server.url, "other").received() == 0
    assert loki.LokiClient(server.url, "fake").received() == 3


def test_waiting(server: FakeLoki) -> None:
    loki.LokiClient(server.url).wait_ready(1)
    nobody = loki.LokiClient("http://127.0.0.1:9")
    assert not nobody.ready()
    with pytest.raises(loki.LokiError, match="not ready after"):
        nobody.wait_ready(0.2)
    with pytest.raises(loki.LokiError, match="ended before"):
        nobody.wait_ready(5, alive=lambda: False)


def test_errors_say_what_was_asked(server: FakeLoki) -> None:
    with pytest.raises(loki.LokiError, match="answered 404 to /nothing: no such page"):
        loki.LokiClient(server.url)._get("/nothing")
    with pytest.raises(loki.LokiError, match="can't be reached"):
        loki.LokiClient("http://127.0.0.1:9").read_all()


def test_configuration_stays_on_the_loopback_interface() -> None:
    text = loki.config("/tmp/x", 1, 2, limits=loki.Limits(max_line_size=1000, max_chunk_age_s=60))
    config = json.loads(text)
    assert config["server"]["http_listen_address"] == config["common"]["instance_addr"] == "127.0.0.1"
    assert not config["analytics"]["reporting_enabled"]
    assert config["limits_config"]["max_line_size"] == 1000
    assert config["ingester"]["max_chunk_age"] == "60s"
    assert config["ingester"]["query_store_max_look_back_period"] == -1
