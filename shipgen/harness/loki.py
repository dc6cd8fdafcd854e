"""A Loki for tests: its configuration, and a client that reads everything back.

The configuration is a stock server's where a limit decides what is stored (line size, the window for late entries,
labels and metadata), and generous where a limit would only slow a run down (rates, sizes of queries).
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shipgen.diagnostics import OutsideError

VERSION = "3.6.15"
IMAGE = f"grafana/loki:{VERSION}"

#: Every stream: Loki gives each one a ``service_name`` of its own making.
ALL = '{service_name=~".+"}'
#: What Loki adds by itself, to labels and to structured metadata.
OWN_LABELS = frozenset({"service_name", "__stream_shard__"})
OWN_METADATA = frozenset({"detected_level"})

#: From here to far enough: a record that fell back to 1970 must be found too.
FIRST_NS = 0
_DAY_NS = 86_400 * 10**9
_PAGE = 5000
_LARGEST_PAGE = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What the policy says its server is set to (``sinks.*.server``)."""

    max_line_size: int = 256 * 1024
    max_chunk_age_s: int = 7200


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored entry: labels and structured metadata apart, the line as it was sent."""

    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    time_ns: int
    line: str

    @property
    def place(self) -> tuple[str, str]:
        """Session and file, as far as labels or metadata tell."""
        return place_of(self.labels, self.metadata)


def place_of(labels: Mapping[str, str], metadata: Mapping[str, str]) -> tuple[str, str]:
    """Session and file that labels and metadata name; empty where they name none."""
    session, file = (labels.get(name) or metadata.get(name, "") for name in ("session", "file"))
    return session, file


def config(
    directory: str,
    http_port: int,
    grpc_port: int,
    *,
    listen: str = "127.0.0.1",
    tenants: bool = False,
    limits: Limits | None = None,
) -> str:
    """The configuration of a single test Loki that keeps everything below ``directory`` (YAML; in its JSON form)."""
    limits = limits or Limits()
    message_size = 512 * 1024 * 1024
    client = {"max_recv_msg_size": message_size, "max_send_msg_size": message_size}
    tree = {
        "auth_enabled": tenants,
        "analytics": {"reporting_enabled": False},
        "server": {
            "http_listen_address": listen,
            "http_listen_port": http_port,
            "grpc_listen_address": "127.0.0.1",
            "grpc_listen_port": grpc_port,
            "grpc_server_max_recv_msg_size": message_size,
            "grpc_server_max_send_msg_size": message_size,
            "http_server_read_timeout": "5m",
            "http_server_write_timeout": "5m",
            "log_level": "warn",
        },
        "common": {
            "instance_addr": "127.0.0.1",
            "path_prefix": directory,
            "replication_factor": 1,
            "ring": {"instance_addr": "127.0.0.1", "kvstore": {"store": "inmemory"}},
            "storage": {
                "filesystem": {"chunks_directory": f"{directory}/chunks", "rules_directory": f"{directory}/rules"}
            },
        },
        "schema_config": {
            "configs": [
                {
                    "from": "1970-01-01",
                    "store": "tsdb",
                    "object_store": "filesystem",
                    "schema": "v13",
                    "index": {"prefix": "index_", "period": "24h"},
                }
            ]
        },
        "ingester": {
            # Ready at once instead of after 15 s; nobody hands anything over to or from this ingester.
            "lifecycler": {"min_ready_duration": "0s", "final_sleep": "0s"},
            "max_chunk_age": f"{limits.max_chunk_age_s}s",
            # Reading back old entries right after they were pushed: look into memory whatever their time.
            "query_store_max_look_back_period": -1,
        },
        "ingester_client": {"grpc_client_config": client},
        # The parts of a single Loki find each other by polling; at the stock 10 s they are ready after 10 s.
        "frontend": {"scheduler_dns_lookup_period": "1s", "grpc_client_config": client},
        "frontend_worker": {
            "dns_lookup_duration": "1s",
            "query_frontend_grpc_client": client,
            "query_scheduler_grpc_client": client,
        },
        "query_scheduler": {"grpc_client_config": client},
        "querier": {"query_ingesters_within": "0s"},
        "query_range": {
            "cache_results": False,
            "cache_index_stats_results": False,
            "cache_volume_results": False,
            "cache_series_results": False,
            "cache_label_results": False,
            "parallelise_shardable_queries": False,
        },
        "limits_config": {
            # These decide what is stored.
            "reject_old_samples": False,
            "max_line_size": limits.max_line_size,
            "allow_structured_metadata": True,
            "shard_streams": {"enabled": False},
            # These would only make a run slow or cut an answer short.
            "ingestion_rate_mb": 1024,
            "ingestion_burst_size_mb": 1024,
            "per_stream_rate_limit": "1GB",
            "per_stream_rate_limit_burst": "1GB",
            "max_entries_limit_per_query": _LARGEST_PAGE,
            "max_query_length": "0s",
            "max_query_series": 100_000,
            "max_chunks_per_query": 10_000_000,
            "query_timeout": "5m",
            "split_queries_by_interval": "0s",
            "volume_enabled": False,
        },
    }
    return json.dumps(tree, indent=1, sort_keys=True) + "\n"


class LokiError(OutsideError):
    """Loki could not be asked, or did not answer as it should."""


@dataclass(slots=True)
class LokiClient:
    """Reads one Loki, for one tenant where there are several."""

    url: str
    tenant: str | None = None
    timeout_s: float = 300.0
    page: int = _PAGE

    def ready(self) -> bool:
        """Does it take entries now?"""
        try:
            return self._get("/ready", timeout_s=5).startswith("ready")
        except LokiError:
            return False

    def wait_ready(self, limit_s: float = 60.0, alive: Callable[[], bool] = lambda: True) -> None:
        """Wait until it takes entries; give up when ``alive`` says that it has ended, or after ``limit_s``."""
        deadline = time.monotonic() + limit_s
        while not self.ready():
            if not alive():
                raise LokiError("Loki ended before it was ready")
            if time.monotonic() > deadline:
                raise LokiError(f"Loki was not ready after {limit_s:g} s")
            time.sleep(0.1)

    def metric(self, name: str) -> list[tuple[dict[str, str], float]]:
        """The samples of one metric of Loki's own, with their labels."""
        found = []
        for line in self._get("/metrics").splitlines():
            sample = re.fullmatch(rf"{re.escape(name)}(?:\{{(.*)\}})? (\S+)", line)
            if sample:
                labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[1] or ""))
                found.append((labels, float(sample[2])))
        return found

    def discarded(self) -> dict[str, int]:
        """Entries that Loki threw away so far, by its reason. A shipper was answered 204 for some of them."""
        return self._counts("loki_discarded_samples_total", "reason")

    def received(self) -> int:
        """Entries that reached Loki so far: stored, merged with an equal one, or discarded."""
        return sum(self._counts("loki_distributor_lines_received_total", "tenant").values())

    def read_all(self, selector: str = ALL, start_ns: int = FIRST_NS, end_ns: int | None = None) -> list[Entry]:
        """Every entry of the streams ``selector`` names, oldest first.

        The API gives pages by time and has no cursor. A full page's last nanosecond may be cut short, so it is asked
        for again from there; a page that holds one nanosecond only is asked for again, larger.
        """
        end_ns = time.time_ns() + _DAY_NS if end_ns is None else end_ns  # Loki takes nothing from the far future
        entries: list[Entry] = []
        limit = self.page
        while True:
            page = self._page_of(selector, start_ns, end_ns, limit)
            if len(page) < limit:
                return entries + page
            last = page[-1].time_ns
            if page[0].time_ns == last:
                if limit >= _LARGEST_PAGE:
                    raise LokiError(f"more than {limit} entries have the time {last} ns")
                limit = min(limit * 4, _LARGEST_PAGE)
                continue
            entries += (entry for entry in page if entry.time_ns < last)
            start_ns, limit = last, self.page

    def _page_of(self, selector: str, start_ns: int, end_ns: int, limit: int) -> list[Entry]:
        query = urllib.parse.urlencode(
            {"query": selector, "start": start_ns, "end": end_ns, "limit": limit, "direction": "forward"}
        )
        text = self._get(f"/loki/api/v1/query_range?{query}", {"X-Loki-Response-Encoding-Flags": "categorize-labels"})
        try:
            data = json.loads(text)["data"]
            if "categorize-labels" not in data.get("encodingFlags", []):
                raise LokiError("this Loki does not tell labels and structured metadata apart (3.0 and newer do)")
            entries = [
                Entry(stream["stream"], extra.get("structuredMetadata", {}), int(at), line)
                for stream in data["result"]
                for at, line, extra in stream["values"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise LokiError(f"Loki's answer to a query could not be read: {error}") from error
        entries.sort(key=lambda entry: entry.time_ns)
        return entries

    def _counts(self, metric: str, by: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for labels, value in self.metric(metric):
            if self.tenant is None or labels.get("tenant") == self.tenant:
                counts[labels.get(by, "")] = counts.get(labels.get(by, ""), 0) + int(value)
        return counts

    def _get(self, path: str, headers: Mapping[str, str] | None = None, timeout_s: float | None = None) -> str:
        request = urllib.request.Request(self.url.rstrip("/") + path, headers=dict(headers or {}))
        if self.tenant is not None:
            request.add_header("X-Scope-OrgID", self.tenant)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s or self.timeout_s) as answer:
                body: bytes = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(500).decode("utf-8", "replace").strip()
            raise LokiError(f"Loki answered {error.code} to {path.split('?')[0]}: {said}") from error
        except (OSError, urllib.error.URLError) as error:
            raise LokiError(f"Loki at {self.url} can't be reached: {error}") from error
        return body.decode("utf-8")
