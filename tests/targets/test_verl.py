"""VeRL's own files: each setting by its name, only what the policy says, and JVM arguments as a JVM reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from making import policy, resolved

from shipgen.rendering.environment import render
from shipgen.targets import node

ENGINE = {"engine": {"type": "verl", "paths": ["/var/log/verl/*.log"]}}
METRICS = {"metrics": {"type": "verl", "dialect": "upstream", "paths": ["/var/log/verl/*.jsonl"]}}
ALL = {
    "level": "off", "heartbeat": False, "execution_trace": True, "compression_level": 5,
    "checkpoint_interval": "1500ms", "metrics": {},
}


def files(**parts: Any) -> dict[str, list[str]]:
    """Lines that are no comments, by file."""
    found = {f.path: render(f.template, **f.context) for f in node.files(resolved(policy(**parts)))}
    return {path: [line for line in text.splitlines() if line[:1] not in ("", "#")] for path, text in found.items()
            if "verl" in path}


def test_nothing_where_the_policy_says_nothing() -> None:
    assert files(sources=ENGINE) == {}
    assert files(sources=ENGINE, verl={"engine_worker": {}, "upstream": {}}) == {}


def test_everything() -> None:
    found = files(verl={"engine_worker": ALL, "upstream": {"level": "warn", "metrics_root": "/data/verl"}})
    assert found == {
        "verl/worker.properties": ["log.level=OFF", "log.heartbeat=false", "log.execution.trace=true"],
        "verl/engine_worker.conf": ["log.compression.level=5", "checkpoint.interval=1"],
        "verl/jvm.options": ["-Dmetrics.port=9091", "-Dmetrics.path=/metrics", "-Dmetrics.interval=10s"],
        "verl/verl.env": ["VERL_LOGGING_LEVEL=WARNING", "VERL_FILE_LOGGER_ROOT=/data/verl"],
    }


def test_logrotate_has_what_appends_and_nothing_else() -> None:
    sources = {**ENGINE, **METRICS}
    found = files(sources=sources, rotation={"max_size": "1MiB"}, collector={"root": "/host"})
    assert found["logrotate/verl"][0] == '"/var/log/verl/*.log"'
    assert not any("jsonl" in line for line in found["logrotate/verl"])
    assert "logrotate/verl" not in files(sources=sources)
    assert "logrotate/verl" not in files(sources=METRICS, rotation={})


def test_a_jvm_takes_the_arguments(tmp_path: Path) -> None:
    if (java := shutil.which("java")) is None:
        pytest.skip("there is no `java` on PATH")
    options = tmp_path / "jvm.options"
    metrics = {"path": "/a-b/c_d", "interval": "90s"}
    options.write_text("\n".join(files(verl={"engine_worker": {"metrics": metrics}})["verl/jvm.options"]))
    argv = [java, f"@{options}", "-XshowSettings:properties", "-version"]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stderr
    for setting in ("metrics.port = 9091", "metrics.path = /a-b/c_d", "metrics.interval = 90s"):
        assert setting in told
