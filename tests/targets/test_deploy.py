"""Deployment files: units, the fragment for `ray up`, the sidecar; what they say, and that hostile text stays text."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from making import HOSTILE, LOKI, judged, policy, relay, resolved

from shipgen.cli import main
from shipgen.diagnostics import UsageError
from shipgen.rendering import bundle as bundles
from shipgen.rendering import quoting, systemd_unit
from shipgen.targets import base, deploy

RAY = {"ray": {"type": "ray", "components": ["raylet"]}}
PATHS = [f"/a{text}" for text in HOSTILE if text and not set(text) & set("*?[]{},`\\")]
SECRET = {"auth": {"bearer": {"env": "LOKI_TOKEN"}}}


def files_of(data: dict[str, Any], target: str = "vector", kinds: tuple[str, ...] = deploy.KINDS) -> dict[str, str]:
    choice = judged(data, target)
    assert choice.renders, choice.diagnostics
    return {path: text.decode() for path, text in bundles.of(resolved(data), [choice], kinds).files.items()}


def unit_of(data: dict[str, Any], target: str = "vector") -> dict[tuple[str, str], list[str]]:
    files = files_of(data, "filebeat" if target == "relay" else target)
    return systemd_unit.settings(files[f"systemd/shipgen-t-{target}.service"])


def pod_of(data: dict[str, Any], target: str = "vector") -> dict[str, Any]:
    pod: dict[str, Any] = yaml.safe_load(files_of(data, target)[f"kuberay/{target}-pod.yaml"])
    return pod


def small(target: str, **parts: Any) -> dict[str, Any]:
    return policy(sources=RAY, targets={target: {"version": base.get(target).versions[-1]}}, sinks={"loki": LOKI},
                  **relay(target), **parts)


# --- systemd ---


@pytest.mark.parametrize("target", base.implemented())
def test_unit(target: str) -> None:
    unit = unit_of(small(target), target)
    (start,), (check,) = (list(map(systemd_unit.command, unit["Service", k])) for k in ("ExecStart", "ExecStartPre"))
    config = f"/etc/shipgen/t/{base.get(target).main_config}"
    assert start[0] == check[0] == deploy.PACKAGES[target].program
    assert any(config in word for word in start)
    assert any(config in word for word in check)
    # the state that the configuration names is the one that systemd makes, for the user that the unit runs as
    (state,) = unit["Service", "StateDirectory"]
    assert f"/var/lib/{state}" in files_of(small(target), target)[base.get(target).main_config]
    assert unit["Service", "User"] == ["shipgen"]
    assert int(unit["Service", "TimeoutStopSec"][0]) >= 30
    assert unit["Service", "Restart"] == ["always"]
    # Ray's files lie below /tmp by default: seen, readable, and not to be written
    assert unit["Service", "PrivateTmp"] == ["no"]
    assert unit["Service", "ProtectSystem"] == ["strict"]
    assert ("Service", "ReadWritePaths") not in unit
    assert ("Service", "EnvironmentFile") not in unit


def test_a_relay_is_a_process_of_its_own() -> None:
    """The relay has the secrets and no logs, who reads the logs has no secrets."""
    data = small("filebeat")
    data["sinks"] = {"loki": {**LOKI, **SECRET}}
    assert unit_of(data, "relay")["Service", "EnvironmentFile"] == ["/etc/shipgen/t/secrets.env"]
    assert unit_of(data, "relay")["Service", "StateDirectory"] == ["shipgen/t/relay"]
    assert ("Service", "EnvironmentFile") not in unit_of(data, "filebeat")
    files = files_of(data, "filebeat")
    pods = [yaml.safe_load(files[f"kuberay/{name}-pod.yaml"]) for name in ("filebeat", "relay")]
    (reads, sends) = ({m["name"] for m in pod["initContainers"][0]["volumeMounts"]} for pod in pods)
    assert reads & sends == set()
    assert "ray-temp" in reads
    assert sends == {"shipgen-relay-config", "shipgen-relay-state"}
    assert [[e["name"] for e in pod["initContainers"][0]["env"] if "valueFrom" in e] for pod in pods] == [
        [], ["LOKI_TOKEN"]]


def test_unit_names_what_must_be_given() -> None:
    data = small("vector", collector={"node": {"env": "NODE_NAME"}, "state_dir": "/data/st ate"})
    unit = unit_of(data)
    assert unit["Service", "EnvironmentFile"] == ["-/etc/shipgen/t/secrets.env"]
    assert "NODE_NAME=%H" in unit["Service", "Environment"]
    assert ("Service", "StateDirectory") not in unit
    made = next(v for v in unit["Service", "ExecStartPre"] if v.startswith("+"))
    assert systemd_unit.command(made[1:])[-1] == "/data/st ate/t/vector"
    assert systemd_unit.words(unit["Service", "ReadWritePaths"][0]) == ["/data/st ate/t/vector"]
    # a secret that is not there is told at the start; Vector gets its flag from the unit
    unit = unit_of(policy(sources=RAY, sinks={"loki": {**LOKI, **SECRET}}))
    assert unit["Service", "EnvironmentFile"] == ["/etc/shipgen/t/secrets.env"]
    assert "VECTOR_DANGEROUSLY_ALLOW_ENV_VAR_INTERPOLATION=true" in unit["Service", "Environment"]


@pytest.mark.parametrize("path", PATHS)
def test_text_of_paths_in_a_unit(path: str) -> None:
    sink = {"type": "file", "path": f"{path}/out.jsonl"}
    data = policy(sources=RAY, collector={"state_dir": path}, sinks={"out": sink})
    if not judged(data).renders:
        sink["path"] = "/out.jsonl"
    unit = unit_of(data)
    state = f"{path.rstrip('/')}/t/vector"
    assert set(systemd_unit.words(unit["Service", "ReadWritePaths"][0])) == {state, str(Path(sink["path"]).parent)}


@pytest.mark.parametrize("text", [*HOSTILE, "%h", "%", "$X", "${X}", "a b", ";", "'", '"', "\\", "-", "+x", "@x", "{"])
def test_words_are_read_back(text: str) -> None:
    try:
        line = str(quoting.systemd_command(["/bin/x", text]))
    except ValueError:
        assert not text.isprintable()
        return
    assert systemd_unit.command(line) == ["/bin/x", text]
    assert systemd_unit.words(str(quoting.systemd_words([text, text]))) == [text, text]


ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("state", ["/var/lib/shipgen", "/da$ta/%h \"x\" 'y';z/ü"])
def test_systemd_takes_the_unit(state: str, tmp_path: Path) -> None:
    data = policy(sources=RAY, collector={"state_dir": state}, sinks={"loki": {**LOKI, **SECRET}})
    unit = tmp_path / "shipgen-t-vector.service"
    (text,) = (t for path, t in files_of(data).items() if path.startswith("systemd/"))
    unit.write_text(text.replace(deploy.PACKAGES["vector"].program, "/bin/true"))
    done = subprocess.run([str(ANALYZE), "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# --- ray up ---

RAY_UP_KEYS = {"file_mounts", "initialization_commands"}
"""Of `python/ray/autoscaler/ray-schema.json`, 2.60: a map of paths, and a list of shell commands."""


@pytest.mark.parametrize("target", base.implemented())
@pytest.mark.parametrize("docker", [False, True])
def test_ray_up_installs_and_starts(target: str, docker: bool, tmp_path: Path) -> None:
    """The commands run, in a home with the files where Ray puts them; what needs root is written down by stand-ins."""
    files = files_of(small(target), target, ("ray-cluster-yaml",))
    fragment = yaml.safe_load(files[f"ray-cluster/{target}.yaml"])
    assert set(fragment) == RAY_UP_KEYS
    for remote, local in fragment["file_mounts"].items():
        assert any(path.startswith(f"{local}/") for path in files)
        assert remote == f"~/shipgen/t/{local}"
    mounted = tmp_path / "ray_tmp_mount/c/~" if docker else tmp_path
    (mounted / "shipgen/t").mkdir(parents=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sudo", "curl", "dpkg", "sh"):
        (tools / name).write_text(f'#!/bin/bash\necho "{name} $*" >> "{tmp_path}/calls"\n')
        (tools / name).chmod(0o755)
    for command in fragment["initialization_commands"]:
        command = command.replace("/tmp/ray_tmp_mount", f"{tmp_path}/ray_tmp_mount")
        subprocess.run(["/bin/bash", "-c", f"set -o pipefail; {command}"], check=True, timeout=60,
                       env={"HOME": str(tmp_path), "PATH": f"{tools}:{os.environ['PATH']}"})
    calls = (tmp_path / "calls").read_text().splitlines()
    assert f"sudo cp -rT {mounted}/shipgen/t /etc/shipgen/t" in calls
    assert calls[-1] == f"sudo systemctl restart shipgen-t-{target}.service"
    unit = f"systemd/shipgen-t-{target}.service"
    assert unit in files
    assert any(f"/etc/shipgen/t/{unit} " in call for call in calls)


# --- KubeRay ---


@pytest.mark.parametrize("target", base.implemented())
def test_sidecar(target: str) -> None:
    files = files_of(small(target), target)
    pod = yaml.safe_load(files[f"kuberay/{target}-pod.yaml"])
    (sidecar,), (ray,) = pod["initContainers"], pod["containers"]
    mounts = {m["name"]: m for m in sidecar["volumeMounts"]}
    assert mounts["ray-temp"] == {"name": "ray-temp", "mountPath": "/tmp/ray", "readOnly": True}
    assert ray["volumeMounts"] == [{"name": "ray-temp", "mountPath": "/tmp/ray"}]
    assert mounts["shipgen-state"]["mountPath"] == f"/var/lib/shipgen/t/{target}"
    assert {v["name"] for v in pod["volumes"]} == set(mounts)
    # the configuration is the bundle's, byte for byte, where the command looks for it
    config_map = yaml.safe_load(files[f"kuberay/{target}-config.yaml"])
    items = pod["volumes"][0]["configMap"]["items"]
    inside = {f"{target}/{item['path']}": config_map["data"][item["key"]] for item in items}
    assert inside == {path: text for path, text in files.items() if path.startswith(f"{target}/")}
    assert any(f"{mounts['shipgen-config']['mountPath']}/" in word for word in sidecar["command"])
    assert pod["terminationGracePeriodSeconds"] == 30 + deploy.PACKAGES[target].grace


def test_sidecar_with_all_that_it_may_need() -> None:
    loki = {**LOKI, "auth": {"basic": {"user": {"env": "U"}, "password": {"file": "/run/secrets/p"}}},
            "tls": {"ca_file": "/etc/ssl/certs/ca-certificates.crt", "cert_file": "/a/b", "key_file": "/a.b"}}
    data = policy(sources=RAY, collector={"root": "/host", "node": {"env": "NODE"}}, rotation={"max_size": "64MiB"},
                  ray={"temp_dir": "/data/ray"}, sinks={"loki": loki})
    pod = pod_of(data)
    sidecar = pod["initContainers"][0]
    env = {e["name"]: e.get("value", e.get("valueFrom")) for e in sidecar["env"]}
    assert env["U"] == {"secretKeyRef": {"name": "shipgen-t", "key": "U"}}
    assert env["NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert env["VECTOR_DANGEROUSLY_ALLOW_ENV_VAR_INTERPOLATION"] == "true"
    secrets = {m["mountPath"]: m["subPath"] for m in sidecar["volumeMounts"] if m["name"] == "shipgen-secrets"}
    assert set(secrets) == {"/run/secrets/p", "/a/b", "/a.b"}
    assert len(set(secrets.values())) == 3
    assert "/host/data/ray" in [m["mountPath"] for m in sidecar["volumeMounts"]]
    assert {"name": "RAY_ROTATION_MAX_BYTES", "value": "67108864"} in pod["containers"][0]["env"]


@pytest.mark.parametrize("path", PATHS)
def test_text_of_paths_in_a_pod(path: str) -> None:
    loki = {**LOKI, "tls": {"ca_file": f"{path}/ca"}}
    data = policy(sources=RAY, collector={"state_dir": path, "root": path}, ray={"temp_dir": f"{path}/ray"},
                  cluster=path, sinks={"loki": loki})
    mounts = [m["mountPath"] for m in pod_of(data)["initContainers"][0]["volumeMounts"]]
    below = path.rstrip("/")
    assert mounts[1:] == [f"{below}/t/vector", f"{below}{path}/ray", f"{path}/ca"]


@pytest.mark.parametrize("target", base.implemented())
def test_kubernetes_takes_it(target: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    files = files_of(small(target, collector={"node": {"env": "N"}}, rotation={}), target)
    spec = yaml.safe_load(files[f"kuberay/{target}-pod.yaml"])
    for container in spec["containers"]:
        container["image"] = "rayproject/ray"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    config_map = yaml.safe_load(files[f"kuberay/{target}-config.yaml"])
    for thing in (pod, config_map):
        validate(thing, "1.29", strict=True)
    wrong = copy.deepcopy(pod)
    wrong["spec"]["initContainers"][0]["restartPolicies"] = "Always"
    with pytest.raises(Exception, match="restartPolicies"):
        validate(wrong, "1.29", strict=True)


def test_what_no_config_map_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy, "CONFIG_MAP_LIMIT", 100)
    with pytest.raises(UsageError, match="a ConfigMap holds 100"):
        files_of(small("vector"))


@pytest.mark.parametrize("text", [
    "a\n", "\n\na\n", "  a\n b\n", "a", "a\n\n", "# a\n\n\tb: |\n\n c\n", "\x85\n", "a\r\n", "é\n",
])
def test_texts_in_yaml(text: str) -> None:
    assert yaml.safe_load(f"data:\n  k: {quoting.yaml_text(text, 4)}\n  l: 1\n") == {"data": {"k": text, "l": 1}}


# --- the command ---


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "policy.yaml").write_text(json.dumps(policy(sources=RAY, sinks={"loki": LOKI})))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def test_asked_for_kept_and_taken_back(place: Path) -> None:
    render = ("render", "policy.yaml", "-t", "vector", "-o", "out")
    assert cli(*render, "--with", "kuberay,systemd").exit_code == 0
    unit = place / "out/systemd/shipgen-t-vector.service"
    assert json.loads((place / "out/MANIFEST.json").read_text())["with"] == ["systemd", "kuberay"]
    # the directory remembers what was asked for
    assert cli("check", "policy.yaml", "-o", "out").exit_code == 0
    unit.write_text(unit.read_text().replace("PrivateTmp=no", "PrivateTmp=yes"))
    done = cli("check", "policy.yaml", "-o", "out")
    assert done.exit_code == 1
    assert "+PrivateTmp=no" in done.output
    # a run makes the directory exactly what it asks for
    assert cli(*render).exit_code == 0
    assert not unit.exists()
    assert not (place / "out/kuberay").exists()
    assert cli("check", "policy.yaml", "-o", "out").exit_code == 0


def test_kinds_are_known_ones(place: Path) -> None:
    done = cli("render", "policy.yaml", "-t", "vector", "--with", "helm")
    assert done.exit_code == 2
    assert "systemd, ray-cluster-yaml, kuberay" in done.output
    assert deploy.kinds(("kuberay", "systemd,kuberay")) == ("systemd", "kuberay")
    cli("render", "policy.yaml", "-t", "vector", "-o", "out", "--with", "systemd")
    manifest = place / "out/MANIFEST.json"
    manifest.write_text(manifest.read_text().replace('"systemd"\n', '"helm"\n'))
    assert cli("check", "policy.yaml", "-o", "out").exit_code == 2


@pytest.mark.usefixtures("place")
def test_on_stdout_they_are_companions() -> None:
    done = cli("render", "policy.yaml", "-t", "vector", "--with", "systemd")
    assert "systemd/shipgen-t-vector.service" in done.output
