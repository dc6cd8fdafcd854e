"""Lines are grouped in Python for `preview` as the real Vector groups them, on every recorded tree."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from policies import TREES

from shipgen.catalog import ray
from shipgen.harness.replay import copy_tree
from shipgen.pipeline import Pipeline, grouping, resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import plan

QUIET_S = 4.0
"""Longer than the pause after which an open group is complete."""
LIMIT_S = 90.0
POLICY = """
version: 1
name: groups
targets: {{vector: {{version: "{version}"}}}}
ray: {{temp_dir: "{temp_dir}"}}
sources:
  ray: {{type: ray, components: [all]}}
  other: {{type: file, paths: ["{other}/*.log"], multiline: {{start: '^\\d+ \\S'}}}}
sinks: {{c: {{type: console}}}}
"""
OTHER = "before any start\nagain\n1 a\n  b\n\n2 c\n٣ d\n3 \u00a0e\n4\n5 f\r\ng\r\n"

Groups = dict[str, list[str]]


def rendered(tmp_path: Path, version: str) -> tuple[Pipeline, Path]:
    """The pipeline, and a configuration with its sources alone, whose events go to the console as they are."""
    policy_file = tmp_path / "policy.yaml"
    places = {"temp_dir": tmp_path / "ray", "other": tmp_path / "other"}
    policy_file.write_text(POLICY.format(version=version, **places), "utf-8")
    policy = load([str(policy_file)])
    pipeline = resolve(policy)
    text = bundle.of(pipeline, [plan.choose("vector", policy, pipeline)]).files["vector/vector.yaml"]
    sources = {k: v for k, v in yaml.safe_load(text)["sources"].items() if v["type"] == "file"}
    config = {
        "data_dir": str(tmp_path / "state"), "sources": sources,
        "sinks": {"c": {"type": "console", "inputs": list(sources), "target": "stdout", "encoding": {"codec": "json"}}},
    }
    (tmp_path / "state").mkdir()
    (tmp_path / "vector.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), "utf-8")
    return pipeline, tmp_path / "vector.yaml"


def by_vector(binary: str, config: Path) -> Groups:
    """Groups by file, in order, as Vector prints them."""
    printed = config.with_name("printed")
    with printed.open("wb") as out, config.with_name("log").open("wb") as log:
        process = subprocess.Popen([binary, "--config", str(config)], stdout=out, stderr=log, stdin=subprocess.DEVNULL)
        try:
            began = changed = time.monotonic()
            size = 0
            while time.monotonic() - changed < QUIET_S or not size:
                assert process.poll() is None, config.with_name("log").read_text()[-3000:]
                assert time.monotonic() - began < LIMIT_S, "nothing came out of Vector"
                time.sleep(0.2)
                if (now := printed.stat().st_size) != size:
                    size, changed = now, time.monotonic()
        finally:
            process.terminate()
            process.wait(30)
    groups: Groups = defaultdict(list)
    for line in printed.read_text("utf-8").splitlines():
        event = json.loads(line)
        groups[event["file"]].append(event["message"])
    return groups


def in_python(pipeline: Pipeline) -> Groups:
    """The same by the code that `preview` uses."""
    groups: Groups = {}
    other, source = sorted(pipeline.sources, key=lambda s: s.name)
    for path in sorted(Path(source.base).glob(f"{ray.SESSION_GLOB}/logs/**/*")):
        below = str(path).split("/logs/", 1)[1]
        is_backup = ray.live_name(below) != below.removeprefix("old/")
        for family in ray.families_of(below):
            if path.is_file() and not (is_backup and family.rotates is ray.Rotates.NEVER):
                groups[str(path)] = list(grouping.ray_groups(lines_of(path), family.grouping))
    for path in Path(other.paths[0]).parent.iterdir():
        groups[str(path)] = list(grouping.file_groups(lines_of(path), other))
    return {path: found for path, found in groups.items() if found}


def lines_of(path: Path) -> list[str]:
    """The finished lines of a file; invalid bytes as Vector shows them."""
    return path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]


@pytest.mark.parametrize("binary", ["vector", "vector-0.56"])
@pytest.mark.parametrize("trees", [("text", "json", "rotated", "process-exit"), ("text-worker-node",)], ids=" ".join)
def test_groups(trees: tuple[str, ...], binary: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if shutil.which(binary) is None:
        required = binary == "vector" and request.config.getoption("--require-shippers")
        (pytest.fail if required else pytest.skip)(f"there is no `{binary}` on PATH")
    for tree in trees:
        copy_tree(TREES / tree, tmp_path / "ray")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.log").write_text(OTHER, "utf-8")
    pipeline, config = rendered(tmp_path, "0.57" if binary == "vector" else "0.56")
    expected, got = in_python(pipeline), by_vector(binary, config)
    assert set(got) == set(expected)
    for path, groups in expected.items():
        assert got[path] == groups, path
