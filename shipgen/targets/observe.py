"""Alerts, a dashboard and scrape jobs on request: rules for Loki's ruler and for Prometheus, a dashboard for Grafana.

What they ask for is what the policy's Loki sinks get, by the labels and the structured metadata that it gives them.
LogQL is that of Loki 3.6; names of metrics are those that Vector 0.57, Fluent Bit 5.1, Fluentd 1.19 with
fluent-plugin-prometheus 2.2 and Promtail 3.6 were seen to answer with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shipgen.catalog import verl
from shipgen.diagnostics import UsageError
from shipgen.pipeline import rotation
from shipgen.pipeline.model import Pipeline, Sink
from shipgen.rendering.quoting import logql_string
from shipgen.targets import common
from shipgen.targets.base import File, Target

KINDS = ("alerts", "dashboard", "prometheus")
"""What can be asked for."""

IN_A_ROW = 5
"""Anomalies that follow each other before an alert."""
ROW_WINDOW = "10m"
"""How far back anomalies are looked for."""
BURST, BURST_WINDOW = 50, "5m"
"""Errors of one component on one node that are a burst."""
SILENT_AFTER, SILENT_UNTIL = "10m", "1h"
"""A node that wrote within the second time and not within the first is silent."""
HOSTS = "/etc/prometheus/shipgen"
"""Where Prometheus finds the names of hosts."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """How a shipper is watched: the path of its metrics, and what counts records sent, records lost, failures to send,
    and what waits, in bytes or chunks (empty where it has no such count)."""

    path: str
    sent: str
    lost: str
    failed: str
    waiting: str


METRICS: Mapping[str, Metrics] = {
    "vector": Metrics(
        "/metrics", 'vector_component_sent_events_total{component_kind="sink",component_id=~"out::.*"}',
        'vector_component_discarded_events_total{intentional="false"}', "vector_component_errors_total",
        'vector_buffer_size_bytes{component_id=~"out::.*"}',
    ),
    "fluentbit": Metrics(
        "/api/v2/metrics/prometheus", "fluentbit_output_proc_records_total", "fluentbit_output_dropped_records_total",
        "fluentbit_output_errors_total", "fluentbit_storage_chunks",
    ),
    "fluentd": Metrics(
        "/metrics", 'fluentd_output_status_emit_records{plugin_id=~"out:.*"}', "",
        'fluentd_output_status_num_errors{plugin_id=~"out:.*"}',
        'fluentd_output_status_buffer_total_bytes{plugin_id=~"out:.*"}',
    ),
    "promtail": Metrics(
        "/metrics", "promtail_sent_entries_total", "promtail_dropped_entries_total",
        'promtail_request_duration_seconds_count{status_code!~"2.."}', "",
    ),
}
"""By target."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert: an expression, how long it has to hold, labels and annotations."""

    alert: str
    expr: str
    holds: str
    labels: Sequence[tuple[str, str]]
    annotations: Sequence[tuple[str, str]]


def files(pipeline: Pipeline, targets: Sequence[tuple[Target, str]], kinds: Sequence[str],
          header: Mapping[str, str]) -> Iterator[File]:
    """The files of some kinds. ``targets`` are the shippers that run, relays too. Raises UsageError."""
    names = list(dict.fromkeys(target.name for target, _ in targets if target.name in METRICS))
    for kind in kinds:
        yield from _MAKERS[kind](pipeline, names, header)


# -- what Loki has -----------------------------------------------------------------------------------------------------


class _Stored:
    """What a Loki sink stores, as LogQL asks for it."""

    def __init__(self, sink: Sink) -> None:
        options = sink.options
        self.labels: Sequence[str] = options["labels"]["fields"]
        self.fields = {*self.labels, *common.loki_metadata(options)}
        self.static: Mapping[str, str] = options["labels"]["static"]

    def lines(self, **fields: tuple[str, str]) -> str:
        """A selector, and filters of metadata behind it: a field, how it is compared, and with what."""
        fields = {name: test for name, test in fields.items() if name in self.fields}
        chosen = [f"{name}={logql_string(value)}" for name, value in self.static.items()]
        chosen += [f"{name}{how}{logql_string(value)}" for name, (how, value) in fields.items() if name in self.labels]
        if not chosen:
            chosen = [f'{self.labels[0]}=~".+"']
        rest = [f" | {name}{how}{logql_string(value)}" for name, (how, value) in fields.items()
                if name not in self.labels]
        return "{" + ", ".join(chosen) + "}" + "".join(rest)

    def by(self, *names: str) -> str:
        """Those of some fields that it has, for `by (..)`."""
        return ", ".join(name for name in names if name in self.fields)


def _loki_sinks(pipeline: Pipeline, kind: str) -> list[Sink]:
    found = [sink for sink in pipeline.sinks if sink.type == "loki"]
    if not found:
        raise UsageError(f"--with {kind}: the policy has no sink of type loki to ask")
    return found


# -- alerts ------------------------------------------------------------------------------------------------------------


def _alerts(pipeline: Pipeline, names: Sequence[str], header: Mapping[str, str]) -> Iterator[File]:
    for sink in _loki_sinks(pipeline, "alerts"):
        rules = list(_loki_rules(pipeline, sink))
        tenant = sink.options.get("tenant", "fake")
        purpose = f"For Loki's ruler, in its directory of rules below {tenant}/, the tenant."
        yield _rules_file(f"alerts/{sink.name}.yaml", f"shipgen-{pipeline.name}-{sink.name}", purpose, rules, header)
    rules = list(_prometheus_rules(pipeline, names))
    purpose = "For `rule_files` of Prometheus, beside the jobs of prometheus/scrape.yaml (--with prometheus)."
    yield _rules_file("alerts/prometheus.yaml", f"shipgen-{pipeline.name}", purpose, rules, header)


def _rules_file(path: str, name: str, purpose: str, rules: Sequence[Rule], header: Mapping[str, str]) -> File:
    context = {"purpose": purpose, "name": name, "interval": "30s", "rules": rules}
    meant: dict[tuple[str | int, ...], Any] = {("groups", 0, "name"): name}
    meant |= {("groups", 0, "rules", i, "expr"): rule.expr for i, rule in enumerate(rules)}
    return File(path, "observe/rules.yaml.j2", {"header": header, "r": context}, "yaml", meant)


def _loki_rules(pipeline: Pipeline, sink: Sink) -> Iterator[Rule]:
    stored = _Stored(sink)
    if any(s.pairs and s.name in sink.sources for s in pipeline.sources):
        yield from _rows(stored)
    where = stored.by("cluster", "node")
    if "level" in stored.fields:
        by = stored.by("cluster", "node", "component")
        lines = stored.lines(level=("=~", "error|fatal"))
        yield _rule(
            "ErrorBurst", f"sum by ({by}) (count_over_time({lines} [{BURST_WINDOW}])) > {BURST}",
            f"more than {BURST} errors of one component in {BURST_WINDOW}", component="component" in stored.fields,
        )
    if "node" in stored.fields:
        count = f"sum by ({where}) (count_over_time({stored.lines()}"
        yield _rule(
            "NodeSilent", f"{count} [{SILENT_UNTIL}])) unless on ({where}) {count} [{SILENT_AFTER}]))",
            f"no line for {SILENT_AFTER}: nothing runs there any more, or its shipper does not", severity="critical",
        )
    if pipeline.rotation and "file" in stored.fields:
        ring, downtime = rotation.ring(pipeline), pipeline.rotation["downtime"] // 1000
        by = stored.by("cluster", "node", "session", "file")
        busiest = f"max by ({where}) (sum by ({by}) (bytes_rate({stored.lines()} [10m])))"
        yield _rule(
            "RingTooSmall", f"{busiest} > {ring / downtime:.0f}",
            f"a file is written so fast that it and its backups, {rotation.size(ring)}, turn over in less than the "
            f"{downtime} s that a shipper may be down", holds="10m",
        )


def _rows(stored: _Stored) -> Iterator[Rule]:
    """Five anomalies in a row, by event: those since the last line of that event that is none, however many.

    Loki's ruler writes an expression anew before it runs it, and leaves the `()` of a `group_left ()` out (3.6), hence
    labels in it."""
    where = stored.by("cluster", "node")
    if not where:
        return
    stamp = '| label_format ts="{{ __timestamp__ | unixEpochNanos }}"'
    for event, (anomaly, normal, words, field) in verl.ANOMALIES.items():
        if not {"event", field} - {""} <= stored.fields:
            continue
        lines = stored.lines(component=("=", "engine_worker"), event=("=", event))
        bad, good = (f"{lines} {test} {stamp}" for test in (anomaly, normal))
        each = f"{where}, ts"
        last = (f"(max_over_time({good} | unwrap ts [{ROW_WINDOW}]) by ({where}) or "
                f"max_over_time({bad} | unwrap ts [{ROW_WINDOW}]) by ({where}) * 0)")
        anomalies = f"max_over_time({bad} | unwrap ts [{ROW_WINDOW}]) by ({each})"
        since = f"{anomalies} > on ({where}) group_left ({where}) {last}"
        counted = f"sum by ({each}) (count_over_time({bad} [{ROW_WINDOW}]))"
        command = "shipgen verl level DEBUG --expire 2h --controller http://CONTROLLER:8080"
        yield _rule(
            f"Verl{event.title()}Anomalies",
            f"sum by ({where}) ({counted} and on ({each}) ({since})) >= {IN_A_ROW}",
            f"{IN_A_ROW} or more in a row: {words}", about=[("event", event)],
            more=[("look_closer", f"{command}{' --node {{ $labels.node }}' if 'node' in stored.fields else ''} --yes")],
        )


def _rule(
    alert: str, expr: str, summary: str, *, severity: str = "warning", holds: str = "0s",
    about: Sequence[tuple[str, str]] = (), component: bool = False, more: Sequence[tuple[str, str]] = (),
) -> Rule:
    where = " ({{ $labels.component }})" if component else ""
    annotations = [("summary", f"{{{{ $labels.node }}}}{where}: {summary}"), *more]
    return Rule(alert, expr, holds, [("severity", severity), *about], annotations)


def _prometheus_rules(pipeline: Pipeline, names: Sequence[str]) -> Iterator[Rule]:
    if _verl_port(pipeline):
        yield _rule("VerlWorkerDown", 'up{job="verl_worker"} == 0', "the engine worker gives no metrics", holds="5m",
                    severity="critical")
    for name in names:
        metrics, about = METRICS[name], [("shipper", name)]
        yield _rule("ShipperDown", f"up{{job={logql_string(_job(pipeline, name))}}} == 0", f"{name} gives no metrics",
                    holds="5m", severity="critical", about=about)
        if metrics.lost:
            yield _rule("ShipperLoses", f"sum by (node) (increase({metrics.lost}[5m])) > 0",
                        f"{name} lost {{{{ $value }}}} records in 5m", about=about)
        yield _rule("ShipperFails", f"sum by (node) (increase({metrics.failed}[10m])) > 0",
                    f"{name} has not got through to a sink for 10m", holds="10m", about=about)


# -- Prometheus --------------------------------------------------------------------------------------------------------


def _job(pipeline: Pipeline, name: str) -> str:
    return f"shipgen-{pipeline.name}-{name}"


def _verl_port(pipeline: Pipeline) -> Mapping[str, Any]:
    metrics: Mapping[str, Any] = pipeline.verl.get("engine_worker", {}).get("metrics", {})
    return metrics


def _prometheus(pipeline: Pipeline, names: Sequence[str], header: Mapping[str, str]) -> Iterator[File]:
    jobs: list[dict[str, Any]] = []
    if worker := _verl_port(pipeline):
        jobs.append(_scrape("verl_worker", worker["path"], worker["port"], max(1, worker["interval"] // 1000)))
    port = pipeline.collector.metrics_port
    jobs += [_scrape(_job(pipeline, name), METRICS[name].path, port, 15) for name in names]
    meant: dict[tuple[str | int, ...], Any] = {
        ("scrape_configs", i, "job_name"): job["name"] for i, job in enumerate(jobs)
    }
    settings = {"jobs": jobs, "bind": pipeline.collector.metrics_bind}
    yield File("prometheus/scrape.yaml", "observe/scrape.yaml.j2", {"header": header, "s": settings}, "yaml", meant)


def _scrape(name: str, path: str, port: int, seconds: int) -> dict[str, Any]:
    return {"name": name, "path": path, "interval": f"{seconds}s", "address": f"$1:{port}",
            "hosts": f"{HOSTS}/{name}.yaml"}


# -- Grafana -----------------------------------------------------------------------------------------------------------

_LOKI = {"type": "loki", "uid": "${loki}"}
_PROMETHEUS = {"type": "prometheus", "uid": "${prometheus}"}
_WIDTH, _HEIGHT = 12, 8


def _dashboard(pipeline: Pipeline, names: Sequence[str], _: Mapping[str, str]) -> Iterator[File]:
    for sink in _loki_sinks(pipeline, "dashboard"):
        board = dashboard(pipeline, sink, names)
        yield File(f"dashboard/{sink.name}.json", "observe/dashboard.json.j2", {"dashboard": board}, "yaml",
                   {(key,): value for key, value in board.items()})


def dashboard(pipeline: Pipeline, sink: Sink, names: Sequence[str]) -> dict[str, Any]:
    """A dashboard of Grafana 10 and later over one Loki sink, and the shippers' own metrics."""
    stored = _Stored(sink)
    panels: list[dict[str, Any]] = []
    window = "[$__auto]"

    def add(title: str, source: Mapping[str, str], queries: Sequence[tuple[str, str]], kind: str = "timeseries",
            unit: str = "short") -> None:
        at = {"x": len(panels) % 2 * _WIDTH, "y": len(panels) // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
        targets = [{"refId": chr(65 + i), "datasource": source, "expr": expr, "legendFormat": legend}
                   for i, (expr, legend) in enumerate(queries)]
        panels.append({
            "id": len(panels) + 1, "title": title, "type": kind, "datasource": source, "gridPos": at,
            "targets": targets, "fieldConfig": {"defaults": {"unit": unit}, "overrides": []}, "options": {},
        })

    for field in ("component", "level", "node"):
        if field in stored.fields:
            lines = f"sum by ({field}) (rate({stored.lines()} {window}))"
            add(f"Lines by {field}", _LOKI, [(lines, f"{{{{{field}}}}}")])
    if "component" in stored.fields:
        add("Bytes by component", _LOKI,
            [(f"sum by (component) (bytes_rate({stored.lines()} {window}))", "{{component}}")], unit="Bps")
    if any(s.pairs and s.name in sink.sources for s in pipeline.sources) and "event" in stored.fields:
        lines = stored.lines(component=("=", "engine_worker"))
        add("VeRL events", _LOKI, [(f'sum by (event) (rate({lines} | event!="" {window}))', "{{event}}")])
        if "task_id" in stored.fields:
            add("Top tasks", _LOKI,
                [(f'topk(10, sum by (task_id) (count_over_time({lines} | task_id!="" {window})))', "{{task_id}}")])
        if "status" in stored.fields:
            tasks = stored.lines(component=("=", "engine_worker"), event=("=", "DISPATCH"))
            add("Tasks by status", _LOKI, [(f'sum by (status) (rate({tasks} | status!="" {window}))', "{{status}}")])
        if "heap_pct" in stored.fields:
            heap = stored.lines(component=("=", "engine_worker"), event=("=", "MEM"))
            by = stored.by("node") or "event"
            add("Heap", _LOKI, [(f"max_over_time({heap} | unwrap heap_pct {window}) by ({by})", f"{{{{{by}}}}}")],
                unit="percent")
    if "level" in stored.fields:
        add("Errors", _LOKI, [(stored.lines(level=("=~", "error|fatal")), "")], kind="logs")
    for name in names:
        metrics = METRICS[name]
        flow = [(f"sum by (node) (rate({metrics.sent}[$__rate_interval]))", "sent {{node}}")]
        flow += [(f"sum by (node) (rate({metrics.lost}[$__rate_interval]))", "lost {{node}}")] if metrics.lost else []
        flow += [(f"sum by (node) (rate({metrics.failed}[$__rate_interval]))", "failed {{node}}")]
        add(f"{name}: records", _PROMETHEUS, flow)
        if metrics.waiting:
            add(f"{name}: waiting", _PROMETHEUS, [(f"sum by (node) ({metrics.waiting})", "{{node}}")],
                unit="bytes" if "bytes" in metrics.waiting else "short")
    add("Loki: thrown away", _PROMETHEUS,
        [("sum by (reason) (rate(loki_discarded_samples_total[$__rate_interval]))", "{{reason}}")])
    variables = [{"name": kind, "type": "datasource", "query": kind, "label": kind.title()}
                 for kind in ("loki", "prometheus")]
    return {
        "title": f"Logs of {pipeline.name}", "uid": f"shipgen-{pipeline.name}"[:40], "tags": ["shipgen"],
        "schemaVersion": 39, "editable": True, "refresh": "30s", "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables}, "panels": panels,
    }


_MAKERS: Mapping[str, Callable[[Pipeline, Sequence[str], Mapping[str, str]], Iterator[File]]] = {
    "alerts": _alerts, "dashboard": _dashboard, "prometheus": _prometheus,
}
