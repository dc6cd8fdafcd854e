"""Deployment files on request: units of systemd, a fragment for `ray up`, a sidecar for KubeRay.

What a shipper needs to be started where Ray runs: its command and its own check, the user it runs as, what it reads and
where it writes, its secrets by reference, and the time it gets to send what it holds. What is known of systemd is that
of 252; of `ray up` that of Ray 2.60 (`python/ray/autoscaler/_private/{updater,command_runner}.py`); of Kubernetes that
of 1.29, from where on a sidecar outlives what it serves.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from shipgen.catalog.environment import Scope
from shipgen.diagnostics import UsageError
from shipgen.pipeline.model import Pipeline, SecretRef
from shipgen.targets import base, common, node, observe
from shipgen.targets.base import File, Target, relay_of

KINDS = ("systemd", "ray-cluster-yaml", "kuberay")
"""Ways of deployment that can be asked for."""
ALL_KINDS = (*KINDS, *observe.KINDS)
"""What can be asked for beside the configuration."""

CONFIG_DIR = "/etc/shipgen"
"""Where a node has the bundle of each policy, below its name."""
USER = "shipgen"
"""User that the units run as."""
RAY_USER, RAY_GROUP = 1000, 100
"""Who Ray runs as in its own images (`docker/base-deps/Dockerfile`, 2.60)."""
RAY_GRACE = 30
"""Seconds that Kubernetes gives a pod by itself, left to Ray before the sidecar's own begin."""
CONFIG_MAP_LIMIT = 1_048_576
"""Bytes that a ConfigMap can hold."""
SYSTEM_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Certificates that an image has of its own."""


@dataclass(frozen=True, slots=True)
class Package:
    """How a shipper comes onto a node. ``program`` is where its package puts it, ``install`` makes the commands for a
    full version and the directory of the configuration, ``grace`` is the seconds it gets to stop: longer than it takes
    by itself."""

    program: str
    install: Callable[[str, str], Sequence[str]]
    grace: int


def _deb(url: str) -> Callable[[str, str], Sequence[str]]:
    """Commands that fetch and install a package of Debian; `VERSION` and `ARCH` in its address are put in."""

    def commands(version: str, _: str) -> Sequence[str]:
        address = url.replace("VERSION", version).replace("ARCH", "$(dpkg --print-architecture)")
        return (f'curl -fsSL -o /tmp/shipgen-shipper.deb "{address}"', "sudo dpkg -i /tmp/shipgen-shipper.deb")

    return commands


PACKAGES: Mapping[str, Package] = {
    # `--graceful-shutdown-limit-secs` is 60 by itself (`src/cli.rs`, 0.57)
    "vector": Package("/usr/bin/vector", _deb("https://apt.vector.dev/pool/v/ve/vector_VERSION-1_ARCH.deb"), 75),
    # `grace` in its configuration is 5
    "fluentbit": Package("/opt/fluent-bit/bin/fluent-bit", lambda version, _: (
        "curl -fsSL https://raw.githubusercontent.com/fluent/fluent-bit/master/install.sh | "
        f"FLUENT_BIT_RELEASE_VERSION={version} sh",), 30),
    # a request that runs is waited for, 60 s at most
    "fluentd": Package("/usr/local/bin/fluentd", lambda _, directory: (
        "sudo apt-get install -y ruby-full build-essential",
        f"sudo gem install --no-document --file {directory}/Gemfile"), 75),
    "filebeat": Package("/usr/share/filebeat/bin/filebeat", _deb(
        "https://artifacts.elastic.co/downloads/beats/filebeat/filebeat-VERSION-ARCH.deb"), 60),
    # its own unit has 60 (`tools/packaging/promtail.service`, 3.6)
    "promtail": Package("/usr/bin/promtail", _deb(
        "https://github.com/grafana/loki/releases/download/vVERSION/promtail_VERSION_ARCH.deb"), 60),
}
"""By target. The addresses are those of each project's own pages on installation."""


@dataclass(frozen=True, slots=True)
class Process:
    """One shipper to run: ``config`` is its main file in the bundle, ``argv`` and ``check`` its command and its own
    check with the program first, ``env`` what they need in their environment. A relay reads no files, and who has one
    sends to no sink."""

    name: str
    target: Target
    version: str
    config: str
    argv: tuple[str, ...]
    check: tuple[str, ...]
    env: Mapping[str, str]
    reads: bool = True
    sends: bool = True

    @property
    def directory(self) -> str:
        """Directory of the bundle that holds all of its files."""
        return PurePosixPath(self.config).parts[0]


def processes(pipeline: Pipeline, target: Target, version: str) -> Iterator[Process]:
    """How a target is run on a node: its relay first, where it has one."""
    relay = relay_of(target, pipeline)
    if relay:
        yield _process(pipeline, "relay", relay.target, relay.version, relay.config, reads=False)
    yield _process(pipeline, target.name, target, version, target.main_config, sends=relay is None)


def _process(
    pipeline: Pipeline, name: str, target: Target, version: str, main: str, *, reads: bool = True, sends: bool = True
) -> Process:
    config = f"{home(pipeline)}/{main}"
    argv = target.start_argv(config, pipeline, version)
    env: dict[str, str] = {}
    if argv[0] == "env":
        settings = [a for a in argv[1:] if "=" in a and a.partition("=")[0].isidentifier()]
        env, argv = dict(s.split("=", 1) for s in settings), argv[1 + len(settings) :]
    return Process(name, target, version, main, argv, target.validate_argv(config), env, reads, sends)


def _aggregator(pipeline: Pipeline) -> Process:
    """How the Vector behind a hop is run, on a node of its own."""
    from shipgen.targets import aggregator

    version = aggregator.version(pipeline)
    return _process(pipeline, aggregator.NAME, base.get("vector"), version, aggregator.CONFIG, reads=False)


def home(pipeline: Pipeline) -> str:
    """Where a node has the bundle."""
    return f"{CONFIG_DIR}/{pipeline.name}"


def unit_name(pipeline: Pipeline, name: str) -> str:
    """Name of a process's unit."""
    return f"shipgen-{pipeline.name}-{name}"


def kinds(given: Sequence[str]) -> tuple[str, ...]:
    """Kinds as they are given on the command line, also several in one, in the order of :data:`ALL_KINDS`. Raises
    UsageError."""
    found = {kind for one in given for kind in one.split(",")}
    if unknown := sorted(found - set(ALL_KINDS)):
        raise UsageError(f"--with: there is no {unknown[0]!r}; there are: {', '.join(ALL_KINDS)}")
    return tuple(kind for kind in ALL_KINDS if kind in found)


def files(pipeline: Pipeline, targets: Sequence[tuple[Target, str]], kinds: Sequence[str],
          rendered: Mapping[str, bytes]) -> Iterator[File]:
    """The deployment files of some kinds. ``targets`` are those of the bundle with their versions, ``rendered`` is what
    it holds already."""
    from shipgen.targets import aggregator

    command = f"shipgen render {shlex.join(pipeline.files)} --target TARGET --with {','.join(kinds)} -o DIR"
    header = {"policies": " ".join(pipeline.files), "command": command}
    agents = aggregator.agents(pipeline)
    for process in (p for target, version in targets for p in processes(agents, target, version)):
        # what a process has no use for it is not given
        here = replace(agents, sinks=agents.sinks if process.sends else (),
                       sources=agents.sources if process.reads else ())
        for kind in kinds:
            if kind in _MAKERS:
                yield from _MAKERS[kind](here, process, header, rendered)
    run = [(p.target, p.version) for target, version in targets for p in processes(agents, target, version)]
    if pipeline.hop is not None:
        if "systemd" in kinds:
            yield from _systemd(replace(pipeline, sources=()), _aggregator(pipeline), header, rendered)
        run.append((base.get("vector"), aggregator.version(pipeline)))
    yield from observe.files(pipeline, run, [kind for kind in kinds if kind in observe.KINDS], header)


# -- what every kind needs to know -------------------------------------------------------------------------------------


def env_secrets(pipeline: Pipeline) -> list[str]:
    """Environment variables that hold secrets."""
    return sorted({ref.name for _, ref in common.secrets(pipeline) if ref.kind == "env"})


def secret_files(pipeline: Pipeline) -> list[str]:
    """Files that the shipper reads besides its configuration and logs: secrets, certificates and keys."""
    found = [ref.name for _, ref in common.secrets(pipeline) if ref.kind == "file"]
    for sink in (*pipeline.sinks, *([pipeline.hop.sink] if pipeline.hop else [])):
        tls = sink.options.get("tls", {})
        found += [tls[key] for key in ("ca_file", "cert_file", "key_file") if key in tls]
    return sorted(set(found) - set(SYSTEM_CERTIFICATES))


def node_variable(pipeline: Pipeline) -> str:
    """Environment variable that holds the node's name; empty where none does."""
    name = pipeline.collector.node
    return name.name if isinstance(name, SecretRef) else ""


def written(pipeline: Pipeline) -> list[str]:
    """Directories that sinks write to."""
    return sorted({str(PurePosixPath(s.options["path"]).parent) for s in pipeline.sinks if s.type == "file"})


def _full(version: str) -> str:
    return version if version.count(".") == 2 else f"{version}.0"


# -- systemd -----------------------------------------------------------------------------------------------------------


def _systemd(pipeline: Pipeline, one: Process, header: Mapping[str, str], _: Mapping[str, bytes]) -> Iterator[File]:
    package = PACKAGES[one.target.name]
    name, state = unit_name(pipeline, one.name), common.state_dir(pipeline, one.name)
    below = state.removeprefix("/var/lib/")
    # systemd makes directories below /var/lib by itself, and reads a colon there as the name of a link
    own = below if below != state and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", below) and ".." not in below else ""
    writes = [*([] if own else [state]), *written(pipeline)]
    start, check = ([package.program, *argv[1:]] for argv in (one.argv, one.check))
    context = {
        "header": header,
        "u": {
            "name": name, "policy": pipeline.name, "target": one.target.name, "directory": one.directory,
            "home": home(pipeline), "user": USER, "start": start, "check": check,
            "env": [f"{k}={v}" for k, v in one.env.items()], "node": node_variable(pipeline),
            "env_file": f"{home(pipeline)}/secrets.env",
            "make_state": [] if own else ["/usr/bin/install", "-d", "-m", "0750", "-o", USER, "-g", USER, state],
            "secrets": env_secrets(pipeline), "secret_files": secret_files(pipeline),
            "own": own, "writes": writes, "sinks": written(pipeline), "grace": package.grace,
        },
    }
    meant: dict[tuple[str | int, ...], Any] = {
        ("Service", "ExecStart"): [start], ("Service", "ReadWritePaths"): [writes] if writes else [],
    }
    yield File(f"systemd/{name}.service", "deploy/unit.service.j2", context, "systemd", meant)
    yield File("sysusers.d/shipgen.conf", "deploy/sysusers.conf.j2", {"header": header, "user": USER}, "sysusers")


# -- ray up ------------------------------------------------------------------------------------------------------------


def _ray_cluster(
    pipeline: Pipeline, one: Process, header: Mapping[str, str], rendered: Mapping[str, bytes]
) -> Iterator[File]:
    yield from _systemd(pipeline, one, header, rendered)
    name, mounted = unit_name(pipeline, one.name), f"shipgen/{pipeline.name}"
    parts = (one.directory, "systemd", "sysusers.d")
    mounts = {f"~/{mounted}/{part}": part for part in parts}
    there = home(pipeline)
    commands = [
        f"sudo mkdir -p {there}",
        # with a `docker:` section Ray puts the files somewhere else on the host, under the same name
        f'for d in ~/{mounted} /tmp/ray_tmp_mount/*/~/{mounted}; do if [ -d "$d" ]; then sudo cp -rT "$d" {there}; fi; '
        "done",
        *PACKAGES[one.target.name].install(_full(one.version), f"{there}/{one.directory}"),
        f"sudo install -D -m 0644 {there}/sysusers.d/shipgen.conf /etc/sysusers.d/shipgen.conf",
        "sudo systemd-sysusers",
        f"sudo install -m 0644 {there}/systemd/{name}.service /etc/systemd/system/{name}.service",
        "sudo systemctl daemon-reload",
        f"sudo systemctl enable {name}.service",
        f"sudo systemctl restart {name}.service",
    ]
    settings = {"mounts": list(mounts.items()), "commands": commands, "home": there,
                "temp_dir": pipeline.ray["temp_dir"], "secrets": env_secrets(pipeline)}
    yield File(f"ray-cluster/{one.name}.yaml", "deploy/ray-cluster.yaml.j2", {"header": header, "r": settings}, "yaml",
               {("file_mounts",): mounts, ("initialization_commands",): commands})


# -- KubeRay -----------------------------------------------------------------------------------------------------------


def _key(path: str, taken: Sequence[str] = ()) -> str:
    """A key of a ConfigMap or Secret for a file."""
    key = re.sub(r"[^A-Za-z0-9._-]", "_", path.strip("/").replace("/", "."))[:200]
    return key if key not in taken else f"{key}.{len(taken)}"


def _kuberay(
    pipeline: Pipeline, one: Process, header: Mapping[str, str], rendered: Mapping[str, bytes]
) -> Iterator[File]:
    package = PACKAGES[one.target.name]
    name = unit_name(pipeline, one.name)
    config = {path: data for path, data in rendered.items() if path.startswith(f"{one.directory}/")}
    size = sum(len(data) for data in config.values())
    if size > CONFIG_MAP_LIMIT:
        raise UsageError(f"--with kuberay: the configuration of {one.name} is {size} bytes, and a ConfigMap holds "
                         f"{CONFIG_MAP_LIMIT}; use fewer rules, or put the files into an image")
    inner = {path: path.removeprefix(f"{one.directory}/") for path in config}
    keys = {path: _key(inner[path]) for path in config}
    texts = {keys[path]: data.decode() for path, data in config.items()}
    yield File(f"kuberay/{one.name}-config.yaml", "deploy/config-map.yaml.j2",
               {"header": header, "c": {"name": name, "files": list(texts.items())}}, "yaml",
               {("metadata", "name"): name, ("data",): texts})

    secret_keys: dict[str, str] = {}
    for path in secret_files(pipeline):
        secret_keys[path] = _key(path, list(secret_keys.values()))
    program = getattr(one.target, "image_program", "") or one.argv[0]
    state = common.state_dir(pipeline, one.name)
    temp = pipeline.ray["temp_dir"]
    reads_ray = any(s.families for s in pipeline.sources)
    pod = {
        "name": name, "image": one.target.image(one.version), "command": [program, *one.argv[1:]],
        "env": [*one.env.items(), ("TMPDIR", state)], "node": node_variable(pipeline),
        "secrets": env_secrets(pipeline), "secret": f"shipgen-{pipeline.name}",
        "secret_files": list(secret_keys.items()),
        "items": [(keys[path], inner[path]) for path in config], "config_dir": f"{home(pipeline)}/{one.directory}",
        "state": state, "logs": under(pipeline, temp) if reads_ray else "", "temp_dir": temp,
        "container": f"shipgen-{one.name}", "ray_grace": RAY_GRACE, "grace": RAY_GRACE + package.grace,
        "uid": RAY_USER, "gid": RAY_GROUP, "writes": written(pipeline),
        "volumes": "shipgen-relay" if one.name == "relay" else "shipgen",
        "others": [s.name for s in pipeline.sources if not s.families],
        "ray_env": [(variable.name, str(value)) for variable, value in node.variables(pipeline, Scope.NODE)],
    }
    meant: dict[tuple[str | int, ...], Any] = {
        ("initContainers", 0, "command"): pod["command"], ("volumes", 0, "configMap", "name"): name,
        ("initContainers", 0, "volumeMounts", 1, "mountPath"): state,
    }
    if reads_ray:
        meant["containers", 0, "volumeMounts", 0, "mountPath"] = temp
    yield File(f"kuberay/{one.name}-pod.yaml", "deploy/pod.yaml.j2", {"header": header, "p": pod}, "yaml", meant)


def under(pipeline: Pipeline, path: str) -> str:
    """A path of the node as the shipper sees it."""
    return pipeline.collector.root.rstrip("/") + path


_MAKERS: Mapping[str, Callable[[Pipeline, Process, Mapping[str, str], Mapping[str, bytes]], Iterator[File]]] = {
    "systemd": _systemd, "ray-cluster-yaml": _ray_cluster, "kuberay": _kuberay,
}
