"""What `shipgen diff` says of offsets is what real shippers do: files that it calls read again are, and no others."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shipgen.harness.runners import LocalRunner, ShipperHandle
from shipgen.harness.start import target_run
from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan
from shipgen.targets.changes import Side, changes

TARGETS = ("vector", "fluentbit", "fluentd")
"""Those that write to a file of their own, so that no server is needed."""
LINES = 20
SESSION = "session_2026-12-01_05-36-20_156597_11006"

CHANGES: dict[str, dict[str, Any]] = {
    "nothing that counts": {"cluster": "b", "parsing": {"rules": [{"name": "a", "add": {"b": "c"}}]}},
    "policy renamed": {"name": "other"},
    "source renamed": {"sources": {"cluster": {"type": "ray"}}},
    "family left out": {"sources": {"ray": {"type": "ray", "exclude_components": ["monitor"]}}},
    "rotated by logrotate": {"rotation": {"by": "logrotate", "max_size": "100MiB", "owner": "a:b"}},
}


def side(directory: Path, target: str, **parts: Any) -> Side:
    data = {
        "version": 1, "name": "one", "targets": {target: {"version": base.get(target).versions[-1]}},
        "collector": {"root": str(directory / "node"), "state_dir": str(directory / "state"), "discover_every": "1s"},
        "rotation": {"by": "ray", "max_size": "100MiB", "owner": "a:b"}, "sources": {"ray": {"type": "ray"}},
        "sinks": {"out": {"type": "file", "path": str(directory / "records")}}, **parts,
    }
    (directory / "p.yaml").write_text(json.dumps(data))
    policy = load([str(directory / "p.yaml")])
    pipeline = resolve(policy)
    return Side(policy, pipeline, (plan.choose(target, policy, pipeline),))


def started(runner: LocalRunner, of: Side, directory: Path, name: str) -> ShipperHandle:
    (choice,) = of.choices
    assert choice.renders, choice.diagnostics
    assert choice.target is not None
    place = directory / name
    bundle.write(bundle.of(of.pipeline, [choice]), place)
    return runner.start_shipper(target_run(
        choice.target, choice.version, of.pipeline, place, directory / "state", directory / "node", {"TZ": "UTC"}))


def arrived(directory: Path) -> Counter[str]:
    """How often each file's records arrived."""
    found: Counter[str] = Counter()
    for path in directory.glob("records*"):
        for place in [path] if path.is_file() else path.rglob("*"):
            if place.is_file():
                lines = (line for line in place.read_text().splitlines() if line.startswith("{"))
                found.update(json.loads(line)["file"] for line in lines)
    return found


def settled(directory: Path, at_least: int) -> Counter[str]:
    """What arrived, once nothing has for a while."""
    seen, since, deadline = Counter[str](), time.monotonic(), time.monotonic() + 90
    while time.monotonic() < deadline:
        now = arrived(directory)
        if now != seen:
            seen, since = now, time.monotonic()
        if seen.total() >= at_least and time.monotonic() - since > 8:
            return seen
        time.sleep(0.2)
    return seen


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("target", TARGETS)
def test_files_said_to_be_read_again_are(
    target: str, change: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    binary = base.get(target).binary
    if shutil.which(binary) is None:
        reason = f"there is no `{binary}` on PATH"
        pytest.fail(reason) if request.config.getoption("--require-shippers") else pytest.skip(reason)
    logs = tmp_path / "node" / "tmp" / "ray" / SESSION / "logs"
    logs.mkdir(parents=True)
    files = {"raylet.out": "raylet", "monitor.log": "monitor", "gcs_server.out": "gcs_server"}
    for number, name in enumerate(files):
        (logs / name).write_text("".join(
            f"[2026-12-01 05:36:{number:02},{line:03} I 11309 11309] (x) a.cc:{line}: {name} {line}\n"
            for line in range(LINES)))
    old = side(tmp_path, target)
    new = side(tmp_path, target, **CHANGES[change])
    with LocalRunner() as runner:
        first = started(runner, old, tmp_path, "old")
        before = settled(tmp_path, LINES * len(files))
        first.stop()
        assert before == dict.fromkeys(files, LINES), first.log()[-2000:]
        for name in files:  # something new, so that it is known when the second one has read
            with (logs / name).open("a") as file:
                file.write("[2026-12-01 05:37:00,000 I 11309 11309] (x) a.cc:1: news\n")
        read = {name for name, family in files.items() if not (change == "family left out" and family == "monitor")}
        second = started(runner, new, tmp_path, "new")
        after = settled(tmp_path, before.total() + len(read))
        second.stop()
    again = {name for name in files if after[name] - before[name] > 1}
    said = [c.text.partition(" by ")[0] for c in changes(old, new) if c.kind == "read again"]
    named = {family for text in said for family in text.replace(" and", ",").split(", ")}
    told = {name for name, family in files.items() if "everything" in named or family in named}
    assert again == told, (after, said)
