"""Rendering many policies in one process: 10, 100 and 1,000 of them for every target that can express them.

    python bench/many.py [COUNT...]

Each policy has its own name, labels, rules and sinks. Prints a markdown table: bundles, seconds, bundles a second, peak
memory. A rate that falls from one row to the next would mean that something is kept or searched that grows.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import plan

POLICY = """\
version: 1
name: ray-{n}
cluster: prod-{n}
sources:
  ray: {{type: ray, exclude_components: [monitor]}}
  app: {{type: file, paths: ["/data/team-{n}/*.log"]}}
parsing:
  timezone: Europe/Berlin
  rules:
    - {{name: team, add: {{team: "team {n}"}}}}
    - {{name: tokens, redact: {{pattern: 'token-{n}=[^ ]+'}}}}
    - {{name: quiet, when: {{component: raylet, message: {{matches: 'heartbeat {n}'}}}}, drop: true}}
sinks:
  loki: {{type: loki, endpoint: "http://loki-{n}:3100", labels: {{static: {{job: "ray {n}"}}}}}}
"""


def rendered(file: Path) -> int:
    """Load a policy and render it for every target that takes it; gives the number of bundles."""
    policy = load([str(file)])
    pipeline = resolve(policy)
    choices = [plan.choose(name, policy, pipeline) for name in plan.names(("all",), policy)]
    done = 0
    for choice in choices:
        if choice.renders:
            bundle.of(pipeline, [choice])
            done += 1
    return done


def main() -> None:
    """Measure and print."""
    counts = [int(argument) for argument in sys.argv[1:]] or [10, 100, 1000]
    print("| policies | bundles | s | bundles per s | peak memory, MB |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for count in counts:
            files = []
            for n in range(count):
                files.append(Path(directory) / f"{count}-{n}.yaml")
                files[-1].write_text(POLICY.format(n=n), encoding="utf-8")
            began = time.perf_counter()
            bundles = sum(map(rendered, files))
            seconds = time.perf_counter() - began
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
            print(f"| {count} | {bundles} | {seconds:.1f} | {bundles / seconds:.1f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
