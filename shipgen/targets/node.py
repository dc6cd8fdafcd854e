"""What a node needs whichever shipper runs there: Ray's environment, logrotate's file, a page on where each goes; and
VeRL's."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from shipgen.catalog import environment, ray
from shipgen.catalog.environment import Scope, Variable
from shipgen.pipeline import rotation
from shipgen.pipeline.model import Pipeline
from shipgen.targets import retention, verl
from shipgen.targets.base import File

NODE_ENV = "ray/ray.env"
DRIVER_ENV = "ray/driver.env"
README = "ray/README.md"
LOGROTATE = "logrotate/ray"
TMPFILES = "tmpfiles.d/ray.conf"
_TIMER = (
    "Run it every few minutes, from a timer of its own: ray/README.md says how, and why /etc/logrotate.d is not enough."
)


def variables(pipeline: Pipeline, scope: Scope) -> list[tuple[Variable, str]]:
    """Variables of a scope that the policy sets, with their values. Those of Ray's rotation only where Ray rotates."""
    policy: Mapping[str, Any] = {
        "ray": pipeline.ray, "rotation": pipeline.rotation if rotation.by(pipeline) == "ray" else None,
    }
    found: list[tuple[Variable, str]] = []
    for variable in environment.VARIABLES:
        value: Any = policy
        for key in variable.leaf:
            value = value.get(key) if value is not None else None
        if variable.scope is scope and value is not None:
            found.append((variable, variable.spell(value)))
    return found


def globs(pipeline: Pipeline) -> list[str]:
    """Live names of the files that logrotate handles, on the node itself: without the collector's root."""
    base = str(pipeline.ray["temp_dir"]).rstrip("/")
    return [f"{base}/{ray.SESSION_GLOB}/logs/{g}" for family in rotation.by_logrotate(pipeline) for g in family.globs]


def user_and_group(owner: str) -> tuple[str, str]:
    """What `su` takes. It wants a group (logrotate 3.21 refuses the line without one): that of the user's own name."""
    user, _, group = owner.partition(":")
    return user, group or user


def files(pipeline: Pipeline) -> Iterator[File]:
    """The files of the node, each only where the policy gives it something to say."""
    header = {
        "policies": " ".join(pipeline.files),
        "command": f"shipgen render {shlex.join(pipeline.files)} --target TARGET -o DIR",
    }
    node, driver = (variables(pipeline, scope) for scope in (Scope.NODE, Scope.DRIVER))
    for path, found, purpose in (
        (NODE_ENV, node, "Environment of `ray start`, on every node. README.md says how to set it."),
        (DRIVER_ENV, driver, "Environment of every driver, before it imports ray. README.md says how to set it."),
    ):
        if found:
            values = {variable.name: value for variable, value in found}
            context = {"header": header, "purpose": purpose, "variables": list(values.items())}
            yield File(path, "ray/ray.env.j2", context, "env", {(): values})
    rotated = globs(pipeline)
    if rotated and pipeline.rotation:
        owner = pipeline.rotation.get("owner")
        settings = {"globs": rotated, "size": pipeline.rotation["max_size"], "backups": pipeline.rotation["backups"],
                    "su": user_and_group(owner) if owner else (), "note": _TIMER}
        yield File(LOGROTATE, "logrotate/ray.j2", {"header": header, "r": settings}, "logrotate", {(): rotated})
    if rotation.ages(pipeline) and pipeline.rotation:  # who says how long files live, says it for all of them
        temp_dir = posixpath.normpath(pipeline.ray["temp_dir"])
        yield File(TMPFILES, "ray/tmpfiles.conf.j2", {"header": header, "temp_dir": temp_dir}, "tmpfiles")
    if node or driver or rotated:
        yield File(README, "ray/README.md.j2", {"header": header, "r": _readme(pipeline, node, driver)}, "markdown")
    yield from verl.files(pipeline, header)
    yield from retention.files(pipeline, header)


Found = list[tuple[Variable, str]]


def _readme(pipeline: Pipeline, node: Found, driver: Found) -> dict[str, Any]:
    def told(found: Found) -> list[tuple[str, str]]:
        return [(f"{variable.name}={value}", variable.does) for variable, value in found]

    given = {variable.name for variable, _ in (*node, *driver)}
    return {
        "policy": pipeline.name, "version": ray.RAY_VERSION,
        "node": told(node), "driver": told(driver),
        "unset": [(v.name, v.unset) for v in environment.VARIABLES if v.name not in given],
        "never": [(o.name, o.why) for o in environment.EMPTIES_FILES],
        "others": [(o.name, o.why) for o in environment.WORTH_KNOWING],
        "rotates": rotation.by(pipeline), "logrotate": [f.name for f in rotation.by_logrotate(pipeline)],
        "owner": bool(pipeline.rotation and pipeline.rotation.get("owner")),
        "under_tmp": f"{pipeline.ray['temp_dir']}/".startswith(("/tmp/", "/var/tmp/")),
        "ages": rotation.ages(pipeline), "grows": [f.name for f in rotation.unbounded(pipeline)],
    }
