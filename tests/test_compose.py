"""The compose example: what it starts is what shipgen renders for, and its parts find each other."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shipgen.harness import loki
from shipgen.pipeline import resolve
from shipgen.policy import load
from shipgen.rendering import bundle
from shipgen.targets import base, plan

HERE = Path(__file__).parents[1] / "examples" / "compose"


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((HERE / "compose.yaml").read_text())


def test_images_are_pinned_and_known(compose: Any) -> None:
    images = {name: service["image"] for name, service in compose["services"].items()}
    assert images["loki"] == loki.IMAGE
    assert images["vector"] == base.get("vector").image("0.57")
    assert all(image.rpartition(":")[2][0].isdigit() for image in images.values())


def test_what_is_mounted_exists_or_is_rendered(compose: Any) -> None:
    policy = load([str(HERE / "policy.yaml")])
    pipeline = resolve(policy)
    choice = plan.choose("vector", policy, pipeline)
    assert choice.target is not None
    rendered = bundle.of(pipeline, [choice]).files
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("./rendered/"):
                assert any(path.startswith(source.removeprefix("./rendered/")) for path in rendered)
            elif source.startswith("./"):
                assert (HERE / source).exists()
            elif not source.startswith("$"):
                assert source in compose["volumes"]
    command = choice.target.start_argv("/etc/vector/vector.yaml", pipeline, "0.57")
    assert tuple(compose["services"]["vector"]["entrypoint"]) == command
    (sink,) = pipeline.sinks
    assert sink.options["endpoint"] == "http://loki:3100"
    assert any(pipeline.collector.state_dir in volume for volume in compose["services"]["vector"]["volumes"])


def test_grafana_finds_loki_and_the_dashboard(compose: Any) -> None:
    (source,) = yaml.safe_load((HERE / "grafana/provisioning/datasources/loki.yaml").read_text())["datasources"]
    port = yaml.safe_load((HERE / "loki.yaml").read_text())["server"]["http_listen_port"]
    assert source["url"] == f"http://loki:{port}"
    (provider,) = yaml.safe_load((HERE / "grafana/provisioning/dashboards/ray.yaml").read_text())["providers"]
    mounted = compose["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounted
    dashboard = json.loads((HERE / "grafana/dashboards/ray.json").read_text())
    assert len(dashboard["panels"]) == 5
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == source["uid"]
        assert all(target["datasource"]["uid"] == source["uid"] for target in panel["targets"])


def test_compose_takes_it() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no `docker compose`")
    argv = [docker, "compose", "-f", str(HERE / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
