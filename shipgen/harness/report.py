"""Writes what a verification found: a table for people, JSON for programs, JUnit for continuous integration."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shipgen.diagnostics import UsageError
from shipgen.harness.flow import Flow

if TYPE_CHECKING:
    from shipgen.harness.compare import Comparison, Example
    from shipgen.harness.verify import Report

FORMATS = ("text", "json", "junit")
_BY_SUFFIX = {".txt": "text", ".json": "json", ".xml": "junit", ".html": "html"}
COLUMNS = ("expected", "delivered", "lost", "duplicated", "wrong", "extra", "merged")
_FAULTS = {
    "lost": "expected, and never stored",
    "duplicated": "reached Loki more than once",
    "wrong": "stored with a wrong field",
    "extra": "stored, and nothing that was expected",
}
_SHOWN = 160


def written(report: Report, style: str) -> str:
    """The report in one of :data:`FORMATS`, or as an HTML page."""
    if style == "html":
        from shipgen.harness.page import page

        return page(report)
    return {"text": _text, "json": _json, "junit": _junit}[style](report)


def style_of(name: str) -> tuple[str, Path | None]:
    """What `--report` names: a format, for stdout, or a file whose suffix says the format."""
    if name in FORMATS:
        return name, None
    path = Path(name)
    if path.suffix not in _BY_SUFFIX:
        raise UsageError(f"--report {name}: give {', '.join(FORMATS)}, or a file that ends in {', '.join(_BY_SUFFIX)}")
    # found out before the run, which may take an hour
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--report {name}: can't be written; name a file in a directory that is there")
    return _BY_SUFFIX[path.suffix], path


def _counts(comparison: Comparison) -> dict[str, int]:
    return {name: getattr(comparison, name) for name in COLUMNS}


def _text(report: Report) -> str:
    head = f"{report.target} {report.version}, {report.runner} runner, {_printable(report.scenario)}"
    rows: list[tuple[str, ...]] = [("sink", *COLUMNS)]
    rows += [(name, *(str(n) for n in _counts(found).values())) for name, found in report.sinks.items()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [head, ""]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    lines.append("")
    lines += _remarks(report)
    for name, found in report.sinks.items():
        if found.wrong_by_field:
            fields = ", ".join(f"{field} {n}" for field, n in found.wrong_by_field.most_common())
            lines.append(f"{name}: wrong by field: {fields}")
        lines += [f"{name}: {line}" for example in found.examples for line in _example(example)]
    lines.append(f"{'ok' if report.ok else 'FAILED'} in {report.seconds:g} s")
    return "\n".join(lines) + "\n"


def _remarks(report: Report) -> Iterator[str]:
    before, after = (sum(counts.values()) for counts in (report.discarded_before, report.discarded_after))
    why = "".join(f", {n} {reason}" for reason, n in report.discarded.items())
    yield f"discarded by Loki: {before} before, {after} after{why}"
    for name, began, ended in report.faults:
        yield f"fault {name} for {ended - began:.0f} s; repeats are no failure of this run"
    if report.refused:
        yield f"requests that Loki never answered with success during a fault: {report.refused}"
    if report.restarts:
        yield f"{report.target} ended by itself and was started again, times: {report.restarts}"
    yield _cost(report)
    for name, flow in report.flows.items():
        if flow.latencies:
            p50, p99 = (flow.latency(share) for share in (0.5, 0.99))
            yield (f"{name}: from write to arrival p50 {p50:.2f} s, p99 {p99:.2f} s, of {len(flow.latencies)} records "
                   "that were written while the shipper ran")
        yield f"{name}: out of order within their file: {flow.out_of_order}"
    if report.unfinished:
        yield f"left out: {report.unfinished} last lines without a newline, which no shipper delivers"
    for what in report.left_out:
        yield f"left out: {what}"
    for name, found in report.sinks.items():
        if found.late:
            yield f"{name}: {found.late} late entries got the time they were read, and keep their own as entry_time"
        if found.merged:
            yield f"{name}: Loki stored {found.merged} once with an entry of equal labels, time and line"
        if found.hidden:
            yield f"{name}: {found.hidden} of the duplicated reached Loki twice and are stored once"
        if found.optional:
            yield f"{name}: {found.optional} more may or may not come, by a sample or limit rule"


def _cost(report: Report) -> str:
    """What the shipper took for what it read."""
    text = f"read {report.size / 1e6:.2f} MB of text in {report.usage.cpu_s:.2f} s of CPU"
    if report.usage.cpu_s:
        text += f" ({report.size / 1e6 / report.usage.cpu_s:.1f} MB/s)"
    peak = f", with at most {report.usage.peak_bytes / 1e6:.0f} MB of memory"
    return text + peak * bool(report.usage.peak_bytes)


def _example(example: Example) -> Iterator[str]:
    yield f"{example.what}: {_printable(example.where)}"
    if example.wanted:
        yield f"  expected {_short(example.wanted)}"
    if example.given:
        yield f"  got      {_short(example.given)}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _short(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=True)
    return quoted if len(quoted) <= _SHOWN else f"{quoted[:_SHOWN]}... ({len(text)} characters)"


def _json(report: Report) -> str:
    content: dict[str, Any] = {
        "target": report.target,
        "version": report.version,
        "runner": report.runner,
        "scenario": report.scenario,
        "ok": report.ok,
        "seconds": report.seconds,
        "discarded": {"before": report.discarded_before, "after": report.discarded_after},
        "unfinished": report.unfinished,
        "left_out": report.left_out,
        "kept": report.kept,
        "faults": [{"name": name, "seconds": round(ended - began, 1)} for name, began, ended in report.faults],
        "refused": report.refused,
        "restarts": report.restarts,
        "text_bytes": report.size,
        "cpu_s": report.usage.cpu_s,
        "peak_bytes": report.usage.peak_bytes,
        "sinks": {
            name: {
                **_counts(found),
                "hidden": found.hidden,
                "optional": found.optional,
                "late": found.late,
                **_flow(report, name),
                "wrong_by_field": dict(found.wrong_by_field),
                "examples": [
                    {"what": e.what, "where": e.where, "expected": e.wanted, "got": e.given} for e in found.examples
                ],
            }
            for name, found in report.sinks.items()
        },
    }
    return json.dumps(content, indent=2) + "\n"


def _flow(report: Report, sink: str) -> dict[str, Any]:
    flow = report.flows.get(sink, Flow())
    return {
        "out_of_order": flow.out_of_order,
        "latency_s": {"n": len(flow.latencies), "p50": flow.latency(0.5), "p99": flow.latency(0.99)},
    }


def _junit(report: Report) -> str:
    """One test for each sink and kind of fault, and one for what Loki threw away."""
    from xml.etree import ElementTree as ET

    root = ET.Element("testsuites")
    suite = ET.SubElement(root, "testsuite", {"name": f"shipgen verify {report.target}", "errors": "0", "skipped": "0"})
    tests = failures = 0

    def case(name: str, fault: str, details: str = "") -> None:
        nonlocal tests, failures
        tests += 1
        attributes = {"classname": f"shipgen.verify.{report.target}", "name": name}
        element = ET.SubElement(suite, "testcase", attributes)
        if fault:
            failures += 1
            ET.SubElement(element, "failure", {"message": fault}).text = details or None

    for sink, found in report.sinks.items():
        for name, meaning in _FAULTS.items():
            count = 0 if name == "duplicated" and report.faults else getattr(found, name)
            shown = [e for e in found.examples if e.what == name or (name == "wrong" and e.what not in _FAULTS)]
            details = "\n".join(line for example in shown for line in _example(example))
            case(f"{sink}: none {name}", f"{count} {meaning}" if count else "", details)
    counted = {reason: n for reason, n in report.discarded.items() if reason not in report.tolerated}
    thrown = ", ".join(f"{n} {reason}" for reason, n in counted.items())
    case("Loki discards nothing", f"discarded: {thrown}" if thrown else "")
    suite.set("tests", str(tests))
    suite.set("failures", str(failures))
    suite.set("time", str(report.seconds))
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii") + "\n"
