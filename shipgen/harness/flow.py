"""How records came in: how long each took from its file to Loki, and in which order."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shipgen.harness import pushes
from shipgen.harness.compare import Comparison
from shipgen.harness.expect import Expected
from shipgen.harness.proxy import FaultProxy

Arrivals = Mapping[tuple[int, str, tuple[str, str]], tuple[int, float]]
"""By time, line and place of an entry: the number of the push that brought it first, and when (seconds since the
epoch) Loki had answered."""


@dataclass(slots=True)
class Flow:
    """``latencies`` are seconds from the write of an entry's first line to Loki's answer, sorted; of entries that were
    written while the shipper ran. ``out_of_order`` counts entries that came in a later request than one that was
    written after them to the same file."""

    latencies: list[float] = field(default_factory=list)
    out_of_order: int = 0
    arrived: list[float] = field(default_factory=list)

    def latency(self, share: float) -> float | None:
        """The latency that a share of all entries did not exceed: 0.5, 0.99."""
        if not self.latencies:
            return None
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


def arrivals(proxy: FaultProxy, tenant: str = "") -> Arrivals:
    """When each entry that passed the proxy came in first."""
    found: dict[tuple[int, str, tuple[str, str]], tuple[int, float]] = {}
    for number, (push, body) in enumerate(proxy.bodies()):
        if push.tenant != tenant and tenant:
            continue
        with contextlib.suppress(ValueError):  # a form of push that is not known here counts nothing
            for entry in pushes.entries(push.content_type, push.encoding, body):
                found.setdefault((entry.time_ns, entry.line, entry.place), (number, push.arrived))
    return found


def flow_of(
    expected: Sequence[Expected],
    comparison: Comparison,
    came: Arrivals,
    written: Mapping[tuple[str, str, str], float],
    *,
    own_times: bool = False,
) -> Flow:
    """The flow of the records that a comparison found. ``written``: when a line was, by session, file and text; with
    ``own_times`` a record's own time says it."""
    flow = Flow()
    place_in = {id(one): number for number, one in enumerate(expected)}
    by_file: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for one, entry in comparison.pairs:
        arrival = came.get((entry.time_ns, entry.line, entry.place))
        if arrival is None:
            continue
        number, at = arrival
        flow.arrived.append(at)
        session, file = (str(one.record.get(name, "")) for name in ("session", "file"))
        by_file[session, file].append((place_in[id(one)], number))
        when = written.get((session, file, one.record["raw"].partition("\n")[0]))
        if own_times and one.time_ns is not None:
            when = one.time_ns / 1e9
        if when is not None:
            flow.latencies.append(at - when)
    for several in by_file.values():
        newest = -1
        for _, number in sorted(several):
            flow.out_of_order += number < newest
            newest = max(newest, number)
    flow.latencies.sort()
    flow.arrived.sort()
    return flow
