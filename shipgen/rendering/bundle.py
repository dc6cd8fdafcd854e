"""The bundle: all files rendered for one policy, parsed back, and written as one."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from shipgen import __version__
from shipgen.diagnostics import UsageError
from shipgen.pipeline.model import Pipeline
from shipgen.rendering.environment import render as render_template
from shipgen.targets import node
from shipgen.targets.base import File

if TYPE_CHECKING:
    from shipgen.targets.plan import Choice

MANIFEST = "MANIFEST.json"


class ParseBackError(AssertionError):
    """A rendered file does not parse back to what the policy meant: a fault in shipgen, never in a policy."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files by path. ``mains`` is the main configuration file of each target."""

    files: Mapping[str, bytes]
    mains: Mapping[str, str]
    pipeline_hash: str
    versions: Mapping[str, str] = field(default_factory=dict)
    kinds: Sequence[str] = ()

    def manifest(self) -> bytes:
        """MANIFEST.json: each path with its hash, the targets and their versions, the hash of the resolved pipeline,
        and which deployment files were asked for."""
        content = {
            "shipgen": __version__,
            "pipeline": self.pipeline_hash,
            "targets": dict(sorted(self.versions.items())),
            **({"with": list(self.kinds)} if self.kinds else {}),
            "files": {path: digest(data) for path, data in sorted(self.files.items())},
        }
        return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def digest(data: bytes) -> str:
    """The hash of a file, as MANIFEST.json has it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def pipeline_hash(pipeline: Pipeline) -> str:
    """Hash of what a policy resolves to: comments, key order and file names change nothing."""
    from dataclasses import replace

    def canonical(value: Any) -> Any:
        if hasattr(value, "__dataclass_fields__"):
            return {"_": type(value).__name__, **{k: canonical(getattr(value, k)) for k in value.__dataclass_fields__}}
        if isinstance(value, Mapping):
            return {str(k): canonical(v) for k, v in sorted(value.items())}
        if isinstance(value, frozenset | set):
            return sorted(value)
        return [canonical(v) for v in value] if isinstance(value, list | tuple) else value

    return digest(json.dumps(canonical(replace(pipeline, files=())), sort_keys=True).encode())


def _parse_back(file: File, text: str) -> None:
    if file.grammar == "yaml":
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        parsed = yaml.load(text, Loader=loader)
        for path, meant in file.meant.items():
            value = parsed
            for step in path:
                value = value[step]
            if value != meant:
                raise ParseBackError(f"{file.path}: {'.'.join(map(str, path))} is {value!r}, meant was {meant!r}")
    elif file.grammar == "fluentd":
        from shipgen.rendering.fluentd_conf import sections

        found = sections(text)
        for (section, option), meant in file.meant.items():
            if found[str(section)].get(str(option)) != meant:
                raise ParseBackError(f"{file.path}: {option} of {section} is not what was meant")
    elif file.grammar == "systemd":
        from shipgen.rendering import systemd_unit

        settings = systemd_unit.settings(text)
        for (section, name), meant in file.meant.items():
            read = systemd_unit.command if str(name).startswith("Exec") else systemd_unit.words
            if [read(value) for value in settings.get((str(section), str(name)), [])] != meant:
                raise ParseBackError(f"{file.path}: {name} is not what was meant")
    elif file.grammar == "env":
        parsed_env = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
        if parsed_env != file.meant.get((), parsed_env):
            raise ParseBackError(f"{file.path}: reads back as {parsed_env!r}")


def of(pipeline: Pipeline, choices: Sequence[Choice], kinds: Sequence[str] = ()) -> Bundle:
    """The bundle of some targets, with Ray's environment, logrotate and the deployment files of some kinds: all
    rendered and parsed back, none written. Raises UsageError."""
    targets = {c.name: c.target for c in choices if c.target is not None}
    agents, further = pipeline, []
    if pipeline.hop is not None:
        from shipgen.targets import aggregator

        agents, further = aggregator.agents(pipeline), list(aggregator.files(pipeline))
    files = [f for c in choices if c.target is not None for f in c.target.files(agents, c.version)] + further
    rendered: dict[str, bytes] = {}

    def add(file: File) -> None:
        text = render_template(file.template, **file.context)
        _parse_back(file, text)
        rendered[file.path] = text.encode()

    for file in [*files, *node.files(pipeline)]:
        add(file)
    if kinds:
        from shipgen.targets import deploy

        run = [(c.target, c.version) for c in choices if c.target is not None]
        for file in deploy.files(pipeline, run, kinds, dict(rendered)):
            add(file)
    mains = {name: target.main_config for name, target in targets.items()}
    return Bundle(rendered, mains, pipeline_hash(pipeline), {c.name: c.version for c in choices}, tuple(kinds))


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """MANIFEST.json of a directory; None where there is none. Raises UsageError for one that can't be read."""
    path = directory / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files, targets = content["files"], content["targets"]
        if not isinstance(targets, dict) or not isinstance(files, dict) or not all(map(_safe, files)):
            raise ValueError("unexpected content")
        if kinds := content.get("with", []):
            from shipgen.targets import deploy

            if not isinstance(kinds, list) or not all(kind in deploy.ALL_KINDS for kind in kinds):
                raise ValueError("unexpected content")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: not a manifest that shipgen wrote ({error})") from error
    return dict(content)


def _safe(path: str) -> bool:
    """Whether a path of a manifest is one that shipgen writes, so that a forged one deletes nothing elsewhere."""
    pure = PurePosixPath(path)
    inside = bool(pure.name) and not pure.is_absolute() and ".." not in pure.parts
    return inside and path.isprintable() and path == str(pure)


def owned(directory: Path) -> set[str]:
    """Paths of the files that an earlier run wrote into a directory. Raises UsageError."""
    return set((read_manifest(directory) or {"files": {}})["files"])


def write(bundle: Bundle, directory: Path) -> list[str]:
    """Make ``directory`` exactly this bundle: files of an earlier run that are no longer produced go, all others stay.

    All is staged beside its place first, then moved; whatever fails, the directory is left as it was. Returns the paths
    written, without those that were there already with the same bytes. Raises UsageError.
    """
    before = owned(directory)
    content = {**bundle.files, MANIFEST: bundle.manifest()}
    change = _Change(directory)
    written: list[str] = []
    try:
        for path, data in content.items():
            place = directory / path
            if symlinked(directory, place):
                raise UsageError(f"{place}: is or lies behind a symbolic link; shipgen does not write through links")
            if place.exists() and not (place.is_file() or place.is_dir()):
                raise UsageError(f"{place}: no plain file; move it, or give another -o")
            there = place.read_bytes() if place.exists() else None
            if there == data:
                continue
            if there is not None and path not in (*before, MANIFEST):
                raise UsageError(f"{place}: not shipgen's, as {MANIFEST} does not list it; move it, or give another -o")
            change.stage(place, data)
            written.append(path)
        # the manifest comes last: a run that is killed half-way leaves no file that nobody owns
        change.move(last=directory / MANIFEST, gone=[directory / path for path in sorted(before - set(content))])
    except OSError as error:
        change.undo()
        raise UsageError(f"{error.filename or directory}: {error.strerror or error}") from error
    except BaseException:
        change.undo()
        raise
    return written


class _Change:
    """Changes to a directory that are made together or not at all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made: list[Path] = []
        self.staged: dict[Path, Path] = {}
        self.before: dict[Path, bytes | None] = {}

    def stage(self, place: Path, data: bytes) -> None:
        """Write what will be at a place beside it."""
        missing = [p for p in (place.parent, *place.parent.parents) if not p.exists()]
        for parent in reversed(missing):
            parent.mkdir()
            self.made.append(parent)
        temporary = place.with_name(f".{place.name}.shipgen-new")
        temporary.unlink(missing_ok=True)  # of a run that was killed
        with temporary.open("xb") as file:
            self.staged[place] = temporary
            file.write(data)

    def move(self, *, last: Path, gone: Sequence[Path]) -> None:
        """Put all that is staged in its place, remove what has to go, and leave one file for the end."""
        for place in sorted(self.staged, key=lambda p: (p == last, p)):
            if place == last:
                self.remove(gone)
            self.before[place] = place.read_bytes() if place.exists() else None
            self.staged[place].replace(place)

    def remove(self, places: Sequence[Path]) -> None:
        """Remove files, and directories that are empty afterwards."""
        for place in places:
            if symlinked(self.directory, place) or not place.is_file():
                continue
            self.before[place] = place.read_bytes()
            place.unlink()
            for parent in place.parents:
                if parent == self.directory or any(parent.iterdir()):
                    break
                parent.rmdir()

    def undo(self) -> None:
        """Bring back what was there."""
        for place, data in self.before.items():
            with contextlib.suppress(OSError):
                if data is None:
                    place.unlink()
                else:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(data)
        for temporary in self.staged.values():
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        for directory in reversed(self.made):
            with contextlib.suppress(OSError):
                directory.rmdir()


def symlinked(directory: Path, place: Path) -> bool:
    """Whether a place below a directory is a symbolic link or lies behind one; the directory itself may be one."""
    return any(p.is_symlink() for p in (place, *place.parents) if p != directory and directory in p.parents)
