"""Cold start of each shipgen command beside the imports that any such tool pays for.

Every round runs each command once, in an order that moves on by one, so that whatever else the machine does falls on
all of them alike. Prints a markdown table of medians; exits 1 if a command fails, or `render` takes more than `--limit`
times as long as the bare imports.

    python bench/startup.py --runs 20
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from statistics import median

IMPORTS = "import yaml, jinja2, click, jsonschema"
POLICY = """\
version: 1
name: ray
targets: {vector: {version: "0.57"}}
sources: {ray: {type: ray}}
sinks: {loki: {type: loki, endpoint: "http://loki:3100"}}
"""
LOG = "tmp/ray/session_2026-12-01_05-29-04_009312_11006/logs/raylet.out"
LINE = "[2026-12-01 05:29:05,123 I 11100 11100] (raylet) main.cc:226: Setting cluster ID\n"


def commands(program: str, directory: Path) -> dict[str, list[str]]:
    """The command lines to measure, by name; all are to be run in ``directory``, where their inputs are laid."""
    (directory / "policy.yaml").write_text(POLICY, encoding="utf-8")
    (directory / LOG).parent.mkdir(parents=True)
    (directory / LOG).write_text(LINE, encoding="utf-8")
    arguments = {
        "validate": ["policy.yaml"],
        "render": ["policy.yaml", "--target", "vector"],
        "check": ["policy.yaml", "-o", "bundle"],
        "files": ["policy.yaml", "--root", "."],
        "explain": ["policy.yaml"],
        "preview": ["policy.yaml", LOG],
        "init": [],
        "schema": [],
        "targets": [],
    }
    return {name: [program, name, *rest] for name, rest in arguments.items()}


def run(command: list[str], directory: Path) -> tuple[float, float, int, str]:
    """Milliseconds by the clock, milliseconds of CPU, the exit code, and what went to stderr."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1e3, cpu * 1e3, done.returncode, done.stderr


def positive(text: str) -> int:
    """An argument that counts something."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def main() -> int:
    """Measure, print the table, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=positive, default=15, help="measured rounds, after one that warms caches (15)")
    parser.add_argument(
        "--limit", type=float, default=1.5, help="the most that `render` may take, in bare imports (1.5)"
    )
    parser.add_argument("--only", action="append", metavar="COMMAND", help="measure this command; may be repeated")
    options = parser.parse_args()
    program = Path(sysconfig.get_path("scripts")) / "shipgen"
    if not program.exists():
        parser.error(f"{program.name} is not installed beside this Python")

    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        lines = commands(str(program), directory)
        if unknown := set(options.only or ()) - lines.keys():
            parser.error(f"no command {', '.join(sorted(unknown))}; there are {', '.join(lines)}")
        if options.only is None or "check" in options.only:
            run([*lines["render"], "-o", "bundle"], directory)
        bare = f'python -c "{IMPORTS}"'
        measured = {bare: [sys.executable, "-c", IMPORTS]}
        measured |= {
            f"shipgen {name}": line for name, line in lines.items() if not options.only or name in options.only
        }

        failed: dict[str, str] = {}
        for name, line in measured.items():
            _, _, code, stderr = run(line, directory)
            if code:
                failed[name] = f"exit {code}: {(stderr.strip().splitlines() or ['no message'])[-1]}"
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in measured if name not in failed}
        names = list(times)
        for turn in range(options.runs):
            shift = turn % len(names) if names else 0
            for name in names[shift:] + names[:shift]:
                times[name].append(run(measured[name], directory)[:2])

    if bare in failed:
        parser.error(failed[bare])
    wall, cpu = ({name: median(pair[i] for pair in pairs) for name, pairs in times.items()} for i in (0, 1))
    print(f"Medians of {options.runs} runs, Python {sys.version.split()[0]}, {os.cpu_count()} CPUs.\n")
    print("| command | ms | × imports | CPU ms | × imports |\n|---|--:|--:|--:|--:|")
    for name in measured:
        if name in failed:
            print(f"| `{name}` | {failed[name].replace('|', '/')} | | | |")
        else:
            ratios = wall[name] / wall[bare], cpu[name] / cpu[bare]
            print(f"| `{name}` | {wall[name]:.0f} | {ratios[0]:.2f} | {cpu[name]:.0f} | {ratios[1]:.2f} |")
    slow = "shipgen render" in wall and wall["shipgen render"] > options.limit * wall[bare]
    if slow:
        print(f"shipgen render takes more than {options.limit} times the bare imports", file=sys.stderr)
    return int(slow or bool(failed))


if __name__ == "__main__":
    sys.exit(main())
