"""The VRL that is rendered for Vector, run by Vector's engine over every recorded line: the reference's records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from making import TREE_NAMES, TREES, FakeVector, Record, config_of, nanoseconds, policy

from shipgen.catalog import ray
from shipgen.harness import reference
from shipgen.pipeline import grouping

BASE = "/tmp/ray"
SESSION = "session_2026-12-01_00-00-00_000000_1"


@cache
def vector(components: str, zone: str, engine_zone: str = "UTC", **sources: Any) -> FakeVector:
    """Vector with a console sink, which gets every field of a record."""
    return FakeVector(config_of(policy(
        cluster="c", parsing={"timezone": zone}, sources={"ray": {"type": "ray", "components": [components], **sources}},
        sinks={"all": {"type": "console"}},
    )), engine_zone, rules=False)


def received(fake: FakeVector, below: str, data: bytes, session: str = SESSION) -> Iterator[Record]:
    """What comes out of a file, with times as the reference gives them."""
    (family,) = (f for f in ray.families_of(below) if f"ray:{f.name}" in fake.config["sources"])
    for group in grouping.ray_groups(data.decode("utf-8", "replace").split("\n")[:-1], family.grouping):
        got = fake.send(f"ray:{family.name}", {"message": group, "file": f"{BASE}/{session}/logs/{below}"})
        for record in got["out::all"]:
            time = nanoseconds(record.pop("time"))
            yield {**record, "time": None if record.get("time_source") == "read" else time}


def same(got: list[Record], expected: list[Record], where: str) -> None:
    """Equal, record by record; the first that is not is shown."""
    for ours, theirs in zip(got, expected, strict=False):
        without = {k: v for k, v in ours.items() if k != "timestamp"}
        assert without == theirs, f"{where}: {theirs['raw'][:300]!r}"
    assert len(got) == len(expected), where


def tree_agrees(tree: str, components: str, zone: str, every: int = 1, engine_zone: str = "UTC") -> int:
    """Compare every file of a tree (or one of so many); gives the number of records."""
    fake = vector(components, zone, engine_zone)
    options = reference.Options(
        cluster="c", timezone=engine_zone if zone == "local" else zone, everything=components == "all")
    count = 0
    for session, below, path in reference.files(TREES / tree, options)[::every]:
        data = path.read_bytes()
        expected = reference.read_file(below, data, options, session)
        same(list(received(fake, below, data, session)), expected, f"{tree}/{below}")
        count += len(expected)
    return count


@pytest.mark.parametrize("components", ["default", "all"])
@pytest.mark.parametrize("tree", TREE_NAMES)
def test_every_line_of_the_trees(tree: str, components: str) -> None:
    assert tree_agrees(tree, components, "UTC") > 30


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Shanghai", "Asia/Kolkata"])
def test_other_zones(zone: str) -> None:
    assert sum(tree_agrees(tree, "default", zone, 1 if tree != "rotated" else 8) for tree in TREE_NAMES) > 3000


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_zone_of_the_node(zone: str) -> None:
    """`local` is the zone of the process: it needs one of its own."""
    code = "import test_vector_records as t; print(t.tree_agrees('text', 'default', 'local', 1, t.os.environ['TZ']))"
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TZ": zone, "PYTHONPATH": f"{here}:{here.parent}"},
        capture_output=True, text=True, check=False,
    )
    assert done.stdout.strip() == "1451", done.stderr[-2000:]
