"""A verification as one HTML page with plots, nothing of which is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from shipgen.harness import report as reports

if TYPE_CHECKING:
    from shipgen.harness.verify import Report

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.ok { color: #17692a } .failed { color: #b00020 }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto }
svg { width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: #555 }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 220, 60, 28
_POINTS = 400
_COLOURS = ("#0b62a4", "#c7640b", "#4a8522", "#7a3e9d")


def page(report: Report) -> str:
    """The page; all text in it is written through a serialiser."""
    html = ET.Element("html", {"lang": "en"})
    head = ET.SubElement(html, "head")
    ET.SubElement(head, "meta", {"charset": "utf-8"})
    title = f"{report.target} {report.version}: {report.scenario}"
    ET.SubElement(head, "title").text = _clean(title)
    ET.SubElement(head, "style").text = _STYLE
    body = ET.SubElement(html, "body")
    ET.SubElement(body, "h1").text = _clean(title)
    verdict = ET.SubElement(body, "p", {"class": "ok" if report.ok else "failed"})
    verdict.text = f"{'ok' if report.ok else 'FAILED'} in {report.seconds:g} s, {report.runner} runner"
    _counts(body, report)
    for name, flow in report.flows.items():
        began = min([*report.written[:1], *flow.arrived[:1]], default=0.0)
        curves = {"written": sorted(report.written), "arrived": flow.arrived}
        if report.written and flow.arrived:
            ET.SubElement(body, "h2").text = _clean(f"{name}: lines written and records arrived")
            shades = [(label, start - began, end - began) for label, start, end in report.faults]
            body.append(_plot({label: _cumulative(times, began) for label, times in curves.items()}, shades, "s", ""))
        if flow.latencies:
            ET.SubElement(body, "h2").text = _clean(f"{name}: share of records that arrived within a time")
            share = [(at, 100 * (i + 1) / len(flow.latencies)) for i, at in enumerate(flow.latencies)]
            body.append(_plot({"": _thinned(share)}, [], "s from write to arrival", "%"))
    ET.SubElement(body, "h2").text = "Report"
    ET.SubElement(body, "pre").text = _clean(reports.written(report, "text"))
    return "<!DOCTYPE html>\n" + ET.tostring(html, encoding="unicode", method="html") + "\n"


def _clean(text: str) -> str:
    """Without the characters that a page can't hold."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def _counts(body: ET.Element, report: Report) -> None:
    table = ET.SubElement(body, "table")
    row = ET.SubElement(table, "tr")
    for name in ("sink", *reports.COLUMNS):
        ET.SubElement(row, "th").text = name
    for sink, found in report.sinks.items():
        row = ET.SubElement(table, "tr")
        for cell in (sink, *(getattr(found, name) for name in reports.COLUMNS)):
            ET.SubElement(row, "td").text = _clean(str(cell))


_Points = list[tuple[float, float]]


def _cumulative(times: Sequence[float], began: float) -> _Points:
    return _thinned([(at - began, float(count + 1)) for count, at in enumerate(times)])


def _thinned(points: _Points) -> _Points:
    step = max(1, len(points) // _POINTS)
    return points[::step] + points[-1:]


def _plot(curves: dict[str, _Points], shades: list[tuple[str, float, float]], below: str, unit: str) -> ET.Element:
    """Lines over one pair of axes that begin at 0; ``shades`` are stretches of the x axis with a name."""
    right = max((x for points in curves.values() for x, _ in points), default=1.0) or 1.0
    top = max((y for points in curves.values() for _, y in points), default=1.0) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - 16
        return round(_LEFT + max(0.0, x) / right * across, 1), round(_HEIGHT - _BOTTOM - y / top * up, 1)

    svg = ET.Element("svg", {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img"})
    for name, start, end in shades:
        (left, base), (till, roof) = place(start, 0), place(min(end, right), top)
        attributes = {"x": left, "y": roof, "width": max(0.5, till - left), "height": base - roof, "fill": "#f3d6d6"}
        ET.SubElement(svg, "rect", {key: str(value) for key, value in attributes.items()})
        _write(svg, left + 3, roof + 11, name)
    for part in range(5):
        x, y = right * part / 4, top * part / 4
        (left, height), (till, _) = place(0, y), place(right, y)
        ET.SubElement(svg, "path", {"d": f"M{left} {height}H{till}", "stroke": "#ddd", "fill": "none"})
        _write(svg, left - 6, height + 4, f"{y:,.0f}{unit}", "end")
        _write(svg, place(x, 0)[0], _HEIGHT - _BOTTOM + 14, f"{x:.3g}", "middle")
    _write(svg, _WIDTH - 10, _HEIGHT - 2, below, "end")
    for number, (name, points) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = "M" + "L".join(f"{x} {y}" for x, y in (place(*point) for point in points))
        ET.SubElement(svg, "path", {"d": path, "stroke": colour, "fill": "none", "stroke-width": "1.5"})
        if name:
            _write(svg, _LEFT + 6, 26 + 14 * number, name, colour=colour)
    return svg


def _write(svg: ET.Element, x: float, y: float, text: str, anchor: str = "start", colour: str = "") -> None:
    attributes = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    if colour:
        attributes["style"] = f"fill: {colour}"
    ET.SubElement(svg, "text", attributes).text = _clean(text)
