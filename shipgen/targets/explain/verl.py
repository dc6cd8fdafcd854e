"""VeRL's side: what a level costs, how to change it for a while, and what its events say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shipgen.catalog import verl
from shipgen.pipeline import rotation
from shipgen.pipeline.model import Pipeline
from shipgen.targets import verl as files
from shipgen.targets.explain.cluster import bridged
from shipgen.targets.explain.wording import Page, code, listing, size, span

_DAY = 86_400


def tell(page: Page, pipeline: Pipeline) -> None:
    """What whoever runs VeRL has to know."""
    engine, upstream = (pipeline.verl.get(key, {}) for key in ("engine_worker", "upstream"))
    if any(s.pairs for s in pipeline.sources) or engine:
        _level(page, pipeline, engine.get("level", ""))
        _files(page, engine)
        page.point("Events")
        for event, meaning in verl.MEANING.items():
            page.point(f"{event}: {meaning}", 1)
    if upstream or any(s.component == verl.COMPONENTS["upstream"] for s in pipeline.sources):
        page.fact(
            "Open-source package",
            f"{code(files.ENVIRONMENT)} is its environment; it begins its file of metrics anew in every run, so give "
            f"each run a file of its own ({verl.ENVIRONMENT[2].name} does)",
        )


def _level(page: Page, pipeline: Pipeline, level: str) -> None:
    page.fact("Level", f"{level.upper()}" if level else "as VeRL has it: WARN and above")
    page.point("What a level costs one worker, by the articles' figures for 200 nodes; yours may differ")
    ring = rotation.ring(pipeline)
    for name, cost in verl.COSTS.items():
        if not cost.rate:
            page.point(f"{name.upper()}: nothing", 1)
            continue
        speed = f"{cost.rate / 10**6:g} MB/s, {cost.rate * _DAY / 10**9:.0f} GB a day"
        words = f"{name.upper()}: {speed}, {cost.throughput}% of throughput"
        if ring:
            words += f"; its ring of {size(ring)} turns over in {span(ring / cost.rate)}"
        page.point(words, 1)
    if rate := rotation.engine_rate(pipeline):
        for sink in pipeline.sinks:
            if "buffer" in sink.options:
                page.fact(f"Buffer of {sink.name}", f"{bridged(sink, rate)} for one worker at this level")
    lost = listing(f"{share}% by {how}" for how, share in verl.LOST_BY)
    page.fact("Where lines get lost, by the articles", f"{lost}; hence a buffer on disk, and a ring that outlasts it")
    page.fact(
        "To look closer for a while",
        f"{code('shipgen verl level DEBUG --expire 2h --controller http://CONTROLLER:8080')} shows the request, and "
        f"with {code('--yes')} sends it; the level returns by itself",
    )


def _files(page: Page, engine: Mapping[str, Any]) -> None:
    rendered = [files.WORKER_PROPERTIES] * any(s.key in engine for s in verl.WORKER_PROPERTIES)
    rendered += [files.ENGINE_WORKER_CONF] * any(s.key in engine for s in verl.ENGINE_WORKER_CONF)
    rendered += [files.JVM_OPTIONS] * ("metrics" in engine)
    if rendered:
        page.fact("Its settings", f"{listing(map(code, rendered))}; they count when a worker starts")
