"""The cluster's side: what grows, who rotates it, what the numbers amount to, and Ray's environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shipgen.catalog import measured
from shipgen.catalog.environment import VARIABLES, Scope
from shipgen.catalog.ray import Family, Rotates
from shipgen.pipeline import rotation
from shipgen.pipeline.model import Pipeline, Sink
from shipgen.targets import node, verl
from shipgen.targets.explain.wording import Page, code, count, duration, listing, size, span

_DAY = 86_400
_PER_WORKER = ("worker", "core_worker")
"""Families that each worker process adds a file of each pattern to."""


def tell_rotation(page: Page, pipeline: Pipeline) -> None:
    """Who rotates, and the arithmetic."""
    if any(s.families for s in pipeline.sources):
        _who(page, pipeline)
    for source in pipeline.sources:
        if source.pairs and pipeline.rotation:
            page.fact(f"Files of {source.name}", f"logrotate copies and truncates them ({code(verl.LOGROTATE)})")
        elif source.paths:
            page.fact(
                f"Files of {source.name}",
                "whoever writes them rotates them, or nobody; shipgen renders nothing for them",
            )
    settings = pipeline.rotation
    if rotation.ages(pipeline):
        cure = "keeps them" if settings else f"of a policy with {code('rotation')} keeps them"
        page.fact("Ray's directory", f"{code(pipeline.ray['temp_dir'])} is emptied by a reboot, and systemd may delete "
                  "files there that nobody touches for days, under a Ray that runs; the file "
                  f"{code('tmpfiles.d/ray.conf')} {cure}")
    if settings is None:
        page.fact("Disk and ring time", f"without {code('rotation')} there is nothing to reckon with")
        return
    if settings["by"] == "ray":
        crash = measured.CRASH_UNDER_ROTATION
        page.fact(
            "Price of Ray's rotation",
            f"a worker that crashes may lose its last lines ({crash}: {crash.where}); {code('by: logrotate')} has no "
            "such price",
        )
    _disk(page, pipeline, settings)
    if "expected_rate" in settings:
        _rate(page, pipeline, settings)


def _names(families: Iterable[Family]) -> str:
    return listing(f.name for f in families)


def _who(page: Page, pipeline: Pipeline) -> None:
    grows, renamed, copied = rotation.unbounded(pipeline), rotation.by_ray(pipeline), rotation.by_logrotate(pipeline)
    page.fact("Grows without bound", _names(grows))
    if pipeline.rotation is None:
        page.point(
            f"{code('rotation')} would have Ray rotate {_names(f for f in grows if f.rotates is Rotates.WHEN_SET)}, "
            "and logrotate what Ray never rotates",
            1,
        )
    page.fact("Ray rotates, by renaming", _names(renamed))
    if copied:
        page.fact(f"logrotate copies and truncates ({code(node.LOGROTATE)})", _names(copied))
        page.point(
            "what is written between copy and truncation is lost; until logrotate runs a file may exceed its size", 1
        )
    page.fact("Old sessions", "Ray never deletes their directories")


def _disk(page: Page, pipeline: Pipeline, settings: Mapping[str, Any]) -> None:
    ring, bounded = rotation.ring(pipeline), rotation.bounded(pipeline)
    page.fact("Ring of one file", f"{size(ring)} = {size(settings['max_size'])} x ({settings['backups']} backups + 1)")
    if not bounded:
        return
    files = rotation.least_files(bounded)
    per_worker = rotation.least_files(f for f in bounded if f.name in _PER_WORKER)
    page.fact(
        "Worst-case disk",
        f"{size(files * ring)} = {files} files x {size(ring)}, for one session on a head node with one file of each "
        "pattern",
    )
    if per_worker:
        page.point(f"each further worker process: {size(per_worker * ring)} = {per_worker} files x {size(ring)}", 1)
    if "disk_budget" in settings:
        page.fact(
            "Disk budget", _budget(settings["disk_budget"] - files * ring, settings["disk_budget"], per_worker * ring)
        )


def _budget(left: int, budget: int, worker: int) -> str:
    if left < 0:
        return f"{size(budget)} is {size(-left)} too little"
    more = (
        f", enough for {count(left // worker, 'further worker process', 'further worker processes')}" if worker else ""
    )
    return f"{size(budget)} leaves {size(left)}{more}"


def _rate(page: Page, pipeline: Pipeline, settings: Mapping[str, Any]) -> None:
    rate = settings["expected_rate"]
    ring, speed = rotation.ring(pipeline), f"{size(rate)}/s"
    page.fact(
        "Ring time",
        f"{span(ring / rate)} = {size(ring)} / {speed}: so long the busiest file, if it takes the whole expected "
        "rate, holds what a shipper that is down has not read; after that lines are lost",
    )
    downtime = settings["downtime"]
    held = "holds" if ring * 1000 >= downtime * rate else "does not hold"
    page.fact("Downtime of a shipper to be bridged", f"{duration(downtime)}, which the ring {held}")
    remote = [s for s in pipeline.sinks if "retry" in s.options]
    page.fact(
        "Bandwidth",
        f"{speed} or {size(rate * _DAY)} a day from a node to each sink, before compression and without metadata; "
        f"with {count(len(remote), 'sink')} over the network {size(rate * len(remote))}/s",
    )
    for sink in remote:
        page.fact(f"Buffer of {sink.name}", _bridged(sink, rate, ring))


def bridged(sink: Sink, rate: int) -> str:
    """How long a sink's buffer lasts at a rate, and how that comes: ``0.14 hours = 1GiB / 2MiB/s``."""
    held = sink.options["buffer"]["max_size"]
    return f"{held / rate / 3600:.2f} hours = {size(held)} / {size(rate)}/s"


def _bridged(sink: Sink, rate: int, ring: int) -> str:
    buffer = sink.options["buffer"]
    words = f"{bridged(sink, rate)} of an outage are bridged"
    return f"{words}, then {span(ring / rate)} more by the ring" if buffer["when_full"] == "block" else words


def tell_environment(page: Page, pipeline: Pipeline) -> None:
    """The variables that are rendered, and what Ray does without the others."""
    shown = set()
    for path, scope, where in (
        (node.NODE_ENV, Scope.NODE, "environment of `ray start`, on every node"),
        (node.DRIVER_ENV, Scope.DRIVER, "environment of every driver, before it imports ray"),
    ):
        found = node.variables(pipeline, scope)
        if found:
            page.fact(code(path), where)
        for variable, value in found:
            shown.add(variable.name)
            page.point(f"{variable.name}={value}: {variable.does}", 1)
    if not shown:
        page.say("No variable is rendered: the policy leaves Ray as it is.")
    unset = [v for v in VARIABLES if v.name not in shown]
    if unset:
        page.point("Not set")
    for variable in unset:
        page.point(f"{variable.name}: {variable.unset}", 1)
