"""What Vector's programs cost a record: the rendered VRL of a policy over recorded Ray trees, run in-process.

    python bench/vrl.py [--rounds N] [TREE...]

Prints a markdown table: for each tree the groups of lines, and microseconds of VRL a group, from the path to the shape
that the Loki sink gets. The engine is `vrl-python`'s, which is neither Vector's newest nor built like a release of it:
compare rows, and runs before and after a change, not these numbers with a production Vector's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from vrl_python import VRLRuntime

from shipgen.catalog import ray
from shipgen.pipeline import grouping, resolve
from shipgen.policy import load
from shipgen.rendering.environment import render
from shipgen.targets import vector

TREES = Path(__file__).resolve().parent.parent / "tests" / "data" / "ray-logs"
STAMP = '.timestamp = get!({"at": now()}, ["at"])\n'
"""A read time of which the compiler does not know that it is one, as in Vector."""
POLICY = """
version: 1
name: bench
cluster: bench
sources: {ray: {type: ray}}
parsing: {timezone: Europe/Berlin}
sinks: {loki: {type: loki, endpoint: "http://127.0.0.1:3100"}}
"""


def programs() -> dict[str, list[str]]:
    """For each file source of the policy, the programs that its groups pass, one transform after the other."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(POLICY)
        file.flush()
        pipeline = resolve(load([file.name]))
    steps = vector._Config(pipeline, vector.Vector.versions[-1]).transforms
    chains: dict[str, list[str]] = {}
    for family in pipeline.sources[0].families:
        current, chain = f"ray:{family.name}", []
        while step := next((s for s in steps if current in s["inputs"] and s["kind"] == "remap"), None):
            if step["role"] != "failed":
                chain.append(render(step["template"], f=step["f"]))
            current = step["id"]
        chains[family.name] = chain
    return chains


def measure(tree: Path, chains: dict[str, list[str]], rounds: int) -> tuple[int, float]:
    """Groups of a tree, and the median over the rounds of the mean microseconds a group."""
    engines: defaultdict[str, Any] = defaultdict(VRLRuntime)
    groups: list[tuple[list[str], dict[str, Any]]] = []
    for path in sorted(tree.glob(f"{ray.SESSION_GLOB}/logs/**/*")):
        below = str(path.relative_to(tree)).split("/logs/", 1)[-1]
        for family in ray.families_of(below) if path.is_file() else ():
            if family.name not in chains:
                continue
            lines = path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]
            file = f"/tmp/ray/{path.relative_to(tree)}"
            groups += [(chains[family.name], {"message": text, "file": file, "host": "node", "source_type": "file"})
                       for text in grouping.ray_groups(lines, family.grouping)]
    means = []
    for _ in range(rounds + 1):
        spent = 0.0
        for chain, event in groups:
            for program in chain:
                try:
                    result = engines[program].execute(STAMP + program, event)
                except RuntimeError:
                    break  # the record ends here: a control line or a repeat
                spent += result.elapsed_ms
                event = result.processed_event
        means.append(spent * 1000 / max(1, len(groups)))
    return len(groups), statistics.median(means[1:])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("trees", nargs="*", default=["text", "json", "rotated", "text-worker-node"])
    arguments = parser.parse_args()
    chains = programs()
    print("| tree | groups of lines | µs a group |\n|---|--:|--:|")
    for name in arguments.trees:
        groups, cost = measure(TREES / name, chains, arguments.rounds)
        print(f"| {name} | {groups} | {cost:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
