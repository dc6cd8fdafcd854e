"""What arrives: records, rules, labels and streams, what Loki does to them, delivery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shipgen.catalog import measured
from shipgen.pipeline import reach
from shipgen.pipeline.conditions import ALWAYS, Condition
from shipgen.pipeline.model import Pipeline, Sink
from shipgen.pipeline.reach import Arrival, Streams
from shipgen.policy.model import ALWAYS_METADATA, RECORD_FIELDS
from shipgen.targets.capabilities import Status
from shipgen.targets.common import MAX_AHEAD, max_behind
from shipgen.targets.explain.wording import (
    Page,
    code,
    condition,
    count,
    duration,
    listing,
    records,
    rule,
    size,
    span,
    text,
)
from shipgen.targets.plan import Choice

_PLACE = ("endpoint", "endpoints", "bucket", "brokers", "path", "target")
"""The setting that says where a sink is, whichever it has."""

_LINES = {
    "raw": "the entry as it stood in the file",
    "message": "the message, without its header",
    "json": "a JSON object of all fields that are not labels",
}
_LATE = {
    "restamp": "get the read time; their own time goes to `entry_time`, and `time_source` is `late`",
    "keep": "are sent as they are, and some of them are lost",
    "drop": "are dropped by the shipper, and counted in its metrics",
}
_FULL = {
    "block": "then reading stops until there is room, and the files themselves are the buffer",
    "drop_newest": "then new records are thrown away",
    "drop_oldest": "then the oldest records are thrown away",
}
_DELIVERY = {
    "at_least_once": "at least once: a record counts as read when the sink has it, so it may come twice but is not "
    "lost",
    "best_effort": "best effort: a failure may lose records",
}


def tell(page: Page, sink: Sink, pipeline: Pipeline, choices: Sequence[Choice]) -> None:
    """One sink."""
    place = next(sink.options[k] for k in _PLACE if k in sink.options)
    page.heading(f"{sink.name}: {sink.type}, {place if isinstance(place, str) else ' '.join(place)}")
    arriving = reach.arrivals(pipeline, sink)
    _arrives(page, sink, arriving)
    _rules(page, sink, pipeline)
    if sink.type == "loki":
        _loki(page, sink, pipeline)
    else:
        page.fact("Fields", "all that the record has, as one JSON object a record, with `time` in RFC 3339")
    _delivery(page, sink, pipeline, choices)


def _arrives(page: Page, sink: Sink, arriving: Sequence[Arrival]) -> None:
    page.fact("Gets", records(sink.when))
    for name in sink.sources:
        of_source = [a for a in arriving if a.part.source.name == name]
        by_condition: dict[Condition, list[str]] = {}
        for one in of_source:
            if not one.stopped_by:
                by_condition.setdefault(one.when, []).append(one.part.name)
        for left, parts in by_condition.items():
            # A condition that knowing the part did not shorten was said above.
            only = "" if left in (sink.when, ALWAYS) else f", only where {condition(left)}"
            page.point(f"from {name}{'' if parts == [name] else f': {listing(parts)}'}{only}", 1)
        for one in of_source:
            if one.stopped_by:
                what = "" if one.part.name == name else f" of {one.part.name}"
                page.point(f"from {name} nothing{what}: {one.stopped_by} keeps it out", 1)


def _rules(page: Page, sink: Sink, pipeline: Pipeline) -> None:
    rules = pipeline.rules_for(sink)
    if rules:
        page.point("Rules, in this order")
    for number, one in enumerate(rules, 1):
        built_in = " (built in)" if one.index < 0 else ""
        idle = "" if reach.applies(one, pipeline, sink) else "; nothing that comes here is of that kind"
        page.point(f"{number}. {one.name}{built_in}: {rule(one)}{idle}", 1)


# --- Loki ---


def _loki(page: Page, sink: Sink, pipeline: Pipeline) -> None:
    options = sink.options
    page.fact("Line", _LINES[options["line"]])
    found = reach.streams(pipeline, sink)
    _labels(page, options["labels"], found)
    _streams(page, options["labels"]["fields"], found)
    _metadata(page, options)
    _late(page, options)
    merged = measured.LOKI_MERGED
    page.fact(
        "Loki stores once",
        f"entries with equal labels, time and line, even if their metadata differ ({merged} in {merged.where})",
    )
    sources = [s for s in pipeline.sources if s.name in sink.sources]
    _server(page, options, max(s.max_entry for s in sources))


def _labels(page: Page, labels: Mapping[str, Any], found: Sequence[Streams]) -> None:
    page.fact("Labels", f"{len(labels['static']) + len(labels['fields'])}; an absent field gives no label")
    for name, value in labels["static"].items():
        page.point(f"{code(name)}: always {text(value)}", 1)
    for field in labels["fields"]:
        page.point(f"{code(field)}: {_values(field, found)}", 1)


def _values(field: str, found: Sequence[Streams]) -> str:
    if any(s.values[field] is None for s in found):
        return "nobody knows how many values, and each makes streams of its own"
    if field == "component":
        seen = dict.fromkeys(p.component for s in found for p in s.parts)
    else:
        seen = dict.fromkeys(v for s in found for v in s.values[field] or ())
    where = {"node": " on each node", "session": " in each session"}.get(field, "")
    return f"{count(len([v for v in seen if v is not None]), 'value')}{where}{', or none' if None in seen else ''}"


def _streams(page: Page, fields: Sequence[str], found: Sequence[Streams]) -> None:
    head, worker = reach.most_streams(found), reach.most_streams(found, head=False)
    if "node" not in fields:
        most = f"{head:,} in all, for nodes share streams where `node` is no label"
    elif head == worker:
        most = f"{head:,} from each node"
    else:
        most = f"{head:,} from a head node, {worker:,} from a worker node"
    per_session = ", in each session" if "session" in fields else ""
    open_ = dict.fromkeys(code(f) for s in found for f in s.unbounded)
    times = f", times the values of {listing(open_)}" if open_ else ""
    page.fact("Streams to expect", f"at most {most}{times}{per_session}")
    for one in found:
        factors = _factors(one)
        page.point(f"{one.source}: {one.count:,}{' = ' * bool(factors)}{' x '.join(factors)}", 1)


def _factors(one: Streams) -> list[str]:
    """What is multiplied: components, then every label with more than one value."""
    factors = [count(len(one.parts), "component")] if "component" in one.values and one.parts[0].component else []
    for field, values in one.values.items():
        if values is None:
            factors.append(f"1 for each {code(field)}")
        elif len(values) > 1 and field != "component":
            named = listing("none" if v is None else v for v in values)
            factors.append(f"{len(values)} of {code(field)} ({named})")
    return factors


def _metadata(page: Page, options: Mapping[str, Any]) -> None:
    labels = options["labels"]["fields"]
    metadata = dict.fromkeys(f for f in (*options["metadata"], *ALWAYS_METADATA) if f not in labels)
    page.fact("Structured metadata", f"{listing(metadata)}, where the record has them")
    if options["line"] != "json":
        lost = [f for f in RECORD_FIELDS if f not in {*metadata, *labels, "time", "raw", options["line"]}]
        if lost:
            page.fact("Not delivered", f"the fields {listing(lost)}; {code('line: json')} would deliver all")


def _late(page: Page, options: Mapping[str, Any]) -> None:
    age, behind = options["server"]["max_chunk_age"], max_behind(options["server"])
    lost = measured.LOKI_TOO_FAR_BEHIND
    page.fact(
        "Loki throws away",
        f"what is more than {span(age / 2000)} behind the newest entry of its stream, and answers 204 all the same "
        "unless the last stream of the request failed. No shipper and none of its counters can tell; "
        f"{code('loki_discarded_samples_total')} on Loki can. It happens when old logs are read or an outage is made "
        f"up for ({lost} with {lost.where})",
    )
    page.point(
        f"so entries more than {span(behind)} behind or {span(MAX_AHEAD)} ahead of the read time "
        f"{_LATE[options['late']]} ({code('late: ' + options['late'])})",
        1,
    )


def _server(page: Page, options: Mapping[str, Any], longest: int) -> None:
    server = options["server"]
    fits = options["line"] != "json" and longest <= server["max_line_size"]
    what = "texts of longer lines" if options["line"] == "json" else "longer lines"
    cut = "no line reaches it" if fits else f"{what} are cut to it and marked `truncated`"
    page.fact(
        "Assumed of the server",
        f"{code('max_chunk_age')} is {duration(server['max_chunk_age'])}; {code('max_line_size')} is "
        f"{size(server['max_line_size'])}, and {cut}. If it is set otherwise, say so under {code('server')}",
    )


# --- delivery ---


def _delivery(page: Page, sink: Sink, pipeline: Pipeline, choices: Sequence[Choice]) -> None:
    options = sink.options
    if "delivery" in options:
        page.fact("Delivery", _DELIVERY[options["delivery"]])
    elif "retry" in options:
        page.fact("Delivery", f"the strongest that each target has{_strongest(sink, pipeline, choices)}")
    if "retention" in options:
        words = duration(options["retention"]["keep"])
        if "cold_after" in options["retention"]:
            words += f", from {duration(options['retention']['cold_after'])} on as cold data"
        page.fact("The server keeps it", f"{words}, once it is told so ({code('retention/')})")
    if "buffer" in options:
        buffer = options["buffer"]
        page.fact("Buffer", f"{size(buffer['max_size'])}, on disk where the target can; {_FULL[buffer['when_full']]}")
    if "batch" in options:
        batch = options["batch"]
        page.fact("Batches", f"sent at {size(batch['max_bytes'])}, or when {duration(batch['max_wait'])} old")
    if "retry" in options:
        retry = options["retry"]
        never = retry["give_up_after"] == "never"
        end = "for ever" if never else f"for {duration(retry['give_up_after'])}, and then lost"
        page.fact(
            "When the sink fails",
            f"batches are sent again {end}, with pauses of up to {duration(retry['max_backoff'])}; what the sink "
            "refuses as wrong is not sent again",
        )


def _strongest(sink: Sink, pipeline: Pipeline, choices: Sequence[Choice]) -> str:
    """The delivery that each target gives a sink that asks for none, by the capability table."""
    words = []
    # with a hop: what the agent does with Kafka, and the aggregator with the sink
    ways = [("sinks", f"<{sink.type}>", "delivery"), *([("topology", "delivery")] if pipeline.hop else [])]
    for one in choices:
        if one.target is not None:
            statuses = {one.row(way, "at_least_once").status for way in ways}
            if not statuses & {Status.NOT_YET, Status.RELAYED}:
                words.append(f"{one.name}: {'best effort' if Status.UNSUPPORTED in statuses else 'at least once'}")
    return f" ({', '.join(words)})" if words else ""
