"""VeRL's own files, whichever shipper runs: settings of the engine worker, the environment of the open-source package,
and logrotate for what the engine worker writes, which nothing else rotates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shipgen.catalog import verl
from shipgen.catalog.verl import Setting
from shipgen.pipeline.model import Pipeline
from shipgen.targets.base import File

WORKER_PROPERTIES = "verl/worker.properties"
ENGINE_WORKER_CONF = "verl/engine_worker.conf"
JVM_OPTIONS = "verl/jvm.options"
ENVIRONMENT = "verl/verl.env"
LOGROTATE = "logrotate/verl"

_BACKUPS = ".[0-9]*"


def rotated(pipeline: Pipeline) -> list[str]:
    """Globs of the files that logrotate handles, on the node itself: those of engine workers, where the policy rotates
    anything. Not the metrics of the open-source package: it does not append, so a truncated file would begin with a
    hole as long as what was cut."""
    if pipeline.rotation is None:
        return []
    root = pipeline.collector.root.rstrip("/")
    engines = [s for s in pipeline.sources if s.pairs]
    return [path.removeprefix(root) for s in engines for path in s.paths if not path.endswith(_BACKUPS)]


def files(pipeline: Pipeline, header: Mapping[str, str]) -> Iterator[File]:
    """The files, each only where the policy gives it something to say."""
    engine, upstream = (pipeline.verl.get(key, {}) for key in ("engine_worker", "upstream"))
    for path, found, purpose in (
        (WORKER_PROPERTIES, _chosen(verl.WORKER_PROPERTIES, engine), "Lines of conf/worker.properties."),
        (ENGINE_WORKER_CONF, _chosen(verl.ENGINE_WORKER_CONF, engine),
         "Lines of conf/engine_worker.conf: those that logging depends on, and no others."),
    ):
        if found:
            context = {"header": header, "purpose": purpose, "settings": found}
            yield File(path, "verl/settings.j2", context, "env", {(): {n: _text(v) for n, v in found}})
    if metrics := engine.get("metrics"):
        options = [f"-D{name}={value}" for name, value in _chosen(verl.JVM_OPTIONS, metrics, unit="s")]
        purpose = "Arguments of the engine worker's JVM: java @/path/to/jvm.options ..."
        context = {"header": header, "purpose": purpose, "options": options}
        yield File(JVM_OPTIONS, "verl/jvm.options.j2", context, "java")
    if found := _chosen(verl.ENVIRONMENT, upstream):
        purpose = ("Environment of `ray start` on every node, or `env_vars` of the job's runtime environment: VeRL's "
                   "modules read it when they are imported.")
        context = {"header": header, "purpose": purpose, "variables": found}
        yield File(ENVIRONMENT, "ray/ray.env.j2", context, "env", {(): dict(found)})
    if (globs := rotated(pipeline)) and pipeline.rotation:
        note = "Run it every few minutes, from a timer of its own; its copies are what `rotated: exclude` leaves out."
        settings = {"globs": globs, "size": pipeline.rotation["max_size"], "backups": pipeline.rotation["backups"],
                    "su": (), "note": note}
        yield File(LOGROTATE, "logrotate/ray.j2", {"header": header, "r": settings}, "logrotate", {(): globs})


def _chosen(settings: Sequence[Setting], given: Mapping[str, Any], unit: str = "") -> list[tuple[str, Any]]:
    """Names and values of the settings that the policy gives; durations in whole seconds, at least one."""
    found = []
    for name, key in settings:
        value = given.get(key)
        if value is None:
            continue
        if key.endswith("interval"):
            value = f"{max(1, value // 1000)}{unit}"
        elif key == "level":
            value = verl.PYTHON_LEVELS[value] if settings is verl.ENVIRONMENT else value.upper()
        found.append((name, value))
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
