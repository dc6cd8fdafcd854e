"""How what is rendered is started: the shipper, and beside it the relay where it has one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from shipgen.harness.runners import TargetRun
from shipgen.pipeline.model import Pipeline
from shipgen.targets import base


class Target(Protocol):
    """What is needed of a target. ``ready_line``, where it has one, is a regex for its log; ``image_program`` is where
    its image has the program, if not at its name."""

    name: str
    main_config: str

    def start_argv(self, config: str, pipeline: Pipeline, version: str) -> tuple[str, ...]:
        """Command that starts the shipper with a config file."""

    def image(self, version: str) -> str:
        """Official container image of a version."""


def target_run(
    target: Target, version: str, pipeline: Pipeline, bundle: Path, state: Path, logs: Path,
    env: Mapping[str, str], image: str = "",
) -> TargetRun:
    """The run of a target whose bundle is written to a directory. Makes the directories for its state."""

    def one(of: Target, at: str, config: str, image: str) -> TargetRun:
        argv, own = without_env(of.start_argv(str(bundle / config), pipeline, at))
        return TargetRun(
            name=of.name, argv=argv, image=image or of.image(at), bundle=bundle, state=state, logs=logs,
            env={**own, **env}, program=getattr(of, "image_program", ""), ready=getattr(of, "ready_line", ""),
        )

    run = one(target, version, target.main_config, image)
    (state / pipeline.name / target.name).mkdir(parents=True, exist_ok=True)
    if (relay := base.relay_of(target, pipeline)) is None:
        return run
    Path(relay.state).mkdir(parents=True, exist_ok=True)
    return run.behind(one(relay.target, relay.version, relay.config, ""))


def without_env(argv: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    """A command without a leading ``env NAME=VALUE``: not every image has that program."""
    if not argv or argv[0] != "env":
        return argv, {}
    rest = list(argv[1:])
    env: dict[str, str] = {}
    while rest and "=" in rest[0]:
        name, _, value = rest.pop(0).partition("=")
        env[name] = value
    return tuple(rest), env


def at_port(pipeline: Pipeline, port: int) -> Pipeline:
    """The pipeline with its relay, if it has one, at a port of the loopback interface."""
    from dataclasses import replace

    if pipeline.relay is None:
        return pipeline
    return replace(pipeline, relay={**pipeline.relay, "address": f"127.0.0.1:{port}"})
