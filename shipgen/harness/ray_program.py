"""A small Ray program whose logs are shipped while it runs: tasks, actors, a failure, a worker that dies.

Run as a program of its own: temp directory, seconds.
"""

from __future__ import annotations

import logging
import sys
import time
from importlib import import_module
from typing import Any


def main(temp_dir: str, seconds: float) -> None:
    """Start Ray, keep it busy, end it."""
    ray: Any = import_module("ray")
    ray.init(_temp_dir=temp_dir, num_cpus=2, include_dashboard=False)

    class Trainer:
        def step(self, number: int) -> int:
            print(f"step {number} loss={1 / (number + 1):.4f}")
            logging.getLogger("trainer").warning("step %d took longer than the last one", number)
            if number % 7 == 3:
                raise ValueError(f"batch {number} is not a number")
            return number

        def die(self) -> None:
            print("leaving", flush=True)
            sys.exit(3)

    def evaluate(number: int) -> str:
        print(f"evaluating {number}\n  with a second line", file=sys.stderr)
        return "x" * number

    trainers = [ray.remote(Trainer).remote() for _ in range(2)]
    evaluation = ray.remote(evaluate)
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for work in (*(trainer.step.remote(number) for trainer in trainers), evaluation.remote(number)):
            try:
                ray.get(work)
            except ray.exceptions.RayError as error:
                print("failed:", type(error).__name__)
        number += 1
        time.sleep(0.2)
    try:
        ray.get(trainers[0].die.remote())
    except ray.exceptions.RayError as error:
        print("failed:", type(error).__name__)
    time.sleep(1)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
