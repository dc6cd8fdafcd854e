"""Filebeat, 8.17 to 9.4, with a relay.

Filebeat has one output, and none for Loki, S3 or HTTP. So it reads files, groups lines and sends each group with its
path to a Vector beside it, which makes the record and brings it to the sinks: the programs are those of the target
`vector`. What Filebeat has read counts as delivered when Vector says so. Options and their defaults are those of
elastic/beats at 9.0, where they were run; those whose default differs in 8.17 or 9.1 are written out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from shipgen.catalog import formats, ray
from shipgen.diagnostics import Severity
from shipgen.pipeline import inventory, rotation
from shipgen.pipeline.model import Pipeline, SecretRef, Source
from shipgen.targets import base, common, vector
from shipgen.targets.base import File, Finding, Relay, release

READ_LIMIT = 8 * 1024 * 1024
"""Longest group of lines, bytes. A line over four times that is left out (`filebeat/input/filestream/input.go`, 9.0).
"""
KEEPS_OPEN = 3_600_000
"""Milliseconds without a byte read after which a file is closed, though there may be something left to read. On the
other hand a file that was deleted takes its room on the disk for as long."""
RELAY_CONFIG = "relay/vector.yaml"


def cheap(pattern: str) -> str:
    """A regex of ours in another spelling. Filebeat compiles the pattern for every file that it opens, and Go then
    looks for the other case of each letter of a class, up to one that is not in it: with `[^:]` 125,000 times."""
    return re.sub(r"\[\^([^]a-z]+)\]([*+])", r"(?:[^\1a]+|a+)\2", pattern)


class _Inputs:
    """The inputs of `filebeat.yml.j2`, put together for one pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.inputs: list[dict[str, Any]] = []
        for source in pipeline.sources:
            if source.families:
                self.ray_source(source)
                continue
            grouping: dict[str, Any] = {}
            if source.continuation:
                grouping = {"pattern": cheap(source.continuation), "negate": False, "timeout_ms": common.QUICK_FLUSH_MS}
            elif source.multiline:
                grouping = {"pattern": source.multiline.start, "negate": True, "timeout_ms": source.multiline.timeout}
            exclude = [inventory.glob_regex(glob) for glob in source.exclude]
            self.read(source, source.name, list(source.paths), exclude=exclude, **grouping)

    def read(self, source: Source, id_: str, paths: list[str], **more: Any) -> None:
        self.inputs.append({
            "id": id_, "paths": [path.replace("[!", "[^") for path in paths], "exclude": [], "pattern": "",
            "discover_ms": self.pipeline.collector.discover_every, "ignore_older_ms": source.ignore_older,
            "from_end": source.start == "end", "inactive_ms": KEEPS_OPEN, "max_bytes": READ_LIMIT, **more,
        })

    def ray_source(self, source: Source) -> None:
        for family in source.families:
            grouping: dict[str, Any] = {}
            if family.grouping is ray.Grouping.HEADER:
                grouping = {"pattern": formats.HEADER, "negate": True, "timeout_ms": common.QUICK_FLUSH_MS}
            elif family.grouping is ray.Grouping.USER:
                pattern = cheap(formats.CONTINUATION)
                grouping = {"pattern": pattern, "negate": False, "timeout_ms": common.QUICK_FLUSH_MS}
            paths = common.globs(source, family, backups=common.reads_backups(self.pipeline, source, family))
            self.read(source, f"{source.name}:{family.name}", paths, **grouping)


class Filebeat:
    """The target `filebeat`."""

    name = "filebeat"
    versions = ("8.17", "8.18", "8.19", "9.0", "9.1", "9.2", "9.3", "9.4")
    main_config = "filebeat/filebeat.yml"
    binary = "filebeat"
    reads_rotated = True
    ready_line = "Loading and starting Inputs completed"
    smallest_buffer = vector.TARGET.smallest_buffer

    def relay(self, pipeline: Pipeline) -> Relay | None:
        """Vector, where the policy names it, in the version that the policy gives for the target `vector`."""
        if pipeline.relay is None or pipeline.relay["target"] != vector.TARGET.name:
            return None
        version = pipeline.versions.get(vector.TARGET.name, vector.TARGET.versions[-1])
        return Relay(base.get("vector"), version, RELAY_CONFIG, common.state_dir(pipeline, "relay"))

    def check(self, pipeline: Pipeline, version: str) -> Iterator[Finding]:
        """What the relay has to say, and about it."""
        relay = self.relay(pipeline)
        if relay is None:
            return
        if relay.target.name not in pipeline.versions:
            yield Finding("unpinned-version", Severity.WARNING, ("relay", "target"),
                          f"no version of {relay.target.name} given; {relay.version} is used",
                          f'pin it: targets: {{{relay.target.name}: {{version: "{relay.version}"}}}}')
        if release(relay.version) < release(relay.target.versions[0]):
            yield Finding("unknown-version", Severity.ERROR, ("targets", relay.target.name, "version"),
                          f"{relay.version} is older than {relay.target.versions[0]}, the oldest that shipgen writes "
                          "for", "update the relay")
        assert pipeline.relay is not None
        host = pipeline.relay["address"].rpartition(":")[0].strip("[]")
        if not vector.is_ip_address(host):
            yield Finding("unsupported", Severity.ERROR, ("relay", "address"),
                          f"Vector listens on an IP address, not on a name such as {host}", "write its IP address")
        elif not _is_loopback(host):
            yield Finding("relay-in-the-clear", Severity.NOTE, ("relay", "address"),
                          "lines go to the relay as they are, without TLS", "let the relay run on the node itself")
        yield Finding("restart-after-outage", Severity.NOTE, ("relay", "target"),
                      "when a sink takes nothing and its buffer is full for more than an hour, Filebeat closes the "
                      "files that wait; those that do not grow any more it reads on when it is started again (4,478 of "
                      "80,000 lines until then, all of them afterwards)",
                      "buffers that hold the longest outage; start Filebeat again after a longer one")
        if any(s.families for s in pipeline.sources) and rotation.by(pipeline) == "ray":
            yield Finding("inode-reuse", Severity.NOTE, ("rotation", "backups"),
                          "where the file system gives the inode of a deleted backup to a new file while Filebeat is "
                          "stopped, Filebeat takes the one for the other and skips the head of the new file",
                          "rings that hold hours make that rare: a large max_size, several backups")
        yield from vector.TARGET.check_sinks(pipeline, relay.version)

    def files(self, pipeline: Pipeline, version: str) -> Iterable[File]:
        """`filebeat/filebeat.yml` and the relay's configuration."""
        relay = self.relay(pipeline)
        assert relay is not None
        assert pipeline.relay is not None
        address = pipeline.relay["address"]
        inputs = _Inputs(pipeline).inputs
        state = common.state_dir(pipeline, self.name)
        node = pipeline.collector.node
        start = " ".join(self.start_argv("filebeat.yml", pipeline, version))
        notes = (f"Start first: {' '.join(relay.target.start_argv(RELAY_CONFIG, pipeline, relay.version))}",)
        context = {
            "header": common.header(pipeline, self.name, version, start, notes),
            "v": {"node": {"env": node.name} if isinstance(node, SecretRef) else node or "", "state": state,
                  "logs": f"{state}/logs", "relay": address, "inputs": inputs},
        }
        meant: dict[tuple[str | int, ...], Any] = {
            ("filebeat.inputs", at, "paths"): [path.replace("$", "$$") for path in one["paths"]]
            for at, one in enumerate(inputs)
        }
        yield File(self.main_config, "filebeat/filebeat.yml.j2", context, "yaml", meant)
        yield vector.TARGET.file(pipeline, relay.version, RELAY_CONFIG, self.name, address)

    def start_argv(self, config: str, pipeline: Pipeline, version: str) -> tuple[str, ...]:
        """Start command. Filebeat refuses a configuration that others may write to, or that is somebody else's, as in
        images and mounted volumes; what is in it is no secret."""
        return (self.binary, "--strict.perms=false", "-e", "-c", config)

    def validate_argv(self, config: str) -> tuple[str, ...]:
        """`filebeat test config`. It makes the directory for its state where that is missing."""
        return (self.binary, "test", "config", "--strict.perms=false", "-c", config)

    def not_validated(self) -> str:
        """What `filebeat test config` does not look at (`libbeat/cmd/test/config.go`, 9.0)."""
        return "settings that it does not know, globs, the inputs' own settings and the relay's address"

    def image(self, version: str) -> str:
        """Image of a version: `docker.elastic.co/beats/filebeat:<version>`."""
        return f"docker.elastic.co/beats/filebeat:{version if version.count('.') == 2 else version + '.0'}"


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    return ip_address(host).is_loopback


TARGET = Filebeat()

__all__ = ["TARGET", "Filebeat"]
