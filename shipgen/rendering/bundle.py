"""The bundle: all files rendered for one policy, parsed back, written as one, and compared with what lies on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from shipgen import __version__
from shipgen.diagnostics import Diagnostic, Place, Severity, UsageError
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

    def manifest(self) -> bytes:
        """MANIFEST.json: every path with its hash, the targets with their versions, the hash of the resolved pipeline."""
        content = {
            "shipgen": __version__,
            "pipeline": self.pipeline_hash,
            "targets": dict(sorted(self.versions.items())),
            "files": {path: f"sha256:{_sha256(data)}" for path, data in sorted(self.files.items())},
        }
        return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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

    return "sha256:" + _sha256(json.dumps(canonical(replace(pipeline, files=())), sort_keys=True).encode())


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
    elif file.grammar == "env":
        parsed_env = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
        if parsed_env != file.meant.get((), parsed_env):
            raise ParseBackError(f"{file.path}: reads back as {parsed_env!r}")


def of(pipeline: Pipeline, choices: Sequence[Choice]) -> Bundle:
    """The bundle of some targets, with Ray's environment and logrotate: every file rendered and parsed back, none written."""
    targets = {c.name: c.target for c in choices if c.target is not None}
    files = [f for c in choices if c.target is not None for f in c.target.files(pipeline, c.version)]
    rendered: dict[str, bytes] = {}
    for file in [*files, *node.files(pipeline)]:
        text = render_template(file.template, **file.context)
        _parse_back(file, text)
        rendered[file.path] = text.encode()
    mains = {name: target.main_config for name, target in targets.items()}
    return Bundle(rendered, mains, pipeline_hash(pipeline), {c.name: c.version for c in choices})


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """MANIFEST.json of a directory; None where there is none. Raises UsageError for one that can't be read."""
    path = directory / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files, targets = content["files"], content["targets"]
        if not isinstance(targets, dict) or not all(isinstance(f, str) and _safe(f) for f in files):
            raise ValueError("unexpected content")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not a manifest that shipgen wrote ({error})") from error
    return dict(content)


def _safe(path: str) -> bool:
    """Whether a path of a manifest stays inside its directory, so that a forged one deletes nothing elsewhere."""
    pure = PurePosixPath(path)
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts


def write(bundle: Bundle, directory: Path) -> list[str]:
    """Make ``directory`` exactly this bundle: owned files that are no longer produced go, files that no manifest lists stay.

    Everything is staged beside its place first, then moved; a failure while staging leaves the directory as it was. Returns
    the paths written, without those that were there already with the same bytes. Raises UsageError.
    """
    owned = set((read_manifest(directory) or {"files": {}})["files"])
    content = {**bundle.files, MANIFEST: bundle.manifest()}
    staged: list[tuple[Path, Path]] = []
    written: list[str] = []
    try:
        for path, data in content.items():
            place = directory / path
            if _symlinked(directory, place):
                raise UsageError(f"{place}: is or lies behind a symbolic link; shipgen does not write through links")
            if place.is_file() and place.read_bytes() == data:
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = place.with_name(f".{place.name}.shipgen-new")
            temporary.write_bytes(data)
            staged.append((temporary, place))
            written.append(path)
        for temporary, place in staged:
            temporary.replace(place)
        for path in sorted(owned - set(content)):
            _remove(directory, directory / path)
    except OSError as error:
        raise UsageError(f"{error.filename or directory}: {error.strerror or error}") from error
    finally:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)
    return written


def _symlinked(directory: Path, place: Path) -> bool:
    return any(p.is_symlink() for p in (place, *place.parents) if p != directory and directory in p.parents)


def _remove(directory: Path, place: Path) -> None:
    if not _symlinked(directory, place):
        place.unlink(missing_ok=True)
        for parent in place.parents:
            if parent == directory or any(parent.iterdir()):
                break
            parent.rmdir()


@dataclass(frozen=True, slots=True)
class Drift:
    """One file that differs: ``kind`` is modified, missing or stale; ``diff`` the unified diff, empty where none helps."""

    kind: str
    path: str
    diff: str = ""

    def diagnostic(self, directory: Path) -> Diagnostic:
        """The drift as an error, at the file that differs."""
        text = {"modified": "differs from what the policy renders", "missing": "is missing",
                "stale": "is listed in MANIFEST.json and no longer rendered"}[self.kind]
        return Diagnostic("drift", Severity.ERROR, "", f"{self.path} {text}", "render again with -o, and commit the result",
                          Place(str(directory / self.path)))


def compare(bundle: Bundle, directory: Path) -> Iterator[Drift]:
    """How a directory differs from what would be rendered now. Raises UsageError for files that can't be read."""
    import difflib

    content = {**bundle.files, MANIFEST: bundle.manifest()}
    for path, data in sorted(content.items()):
        place = directory / path
        try:
            there = place.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            yield Drift("missing", path)
            continue
        except OSError as error:
            raise UsageError(f"{place}: {error.strerror or error}") from error
        if there != data:
            old, new = (d.decode("utf-8", "replace").splitlines(keepends=True) for d in (there, data))
            yield Drift("modified", path, "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")))
    for path in sorted(set((read_manifest(directory) or {"files": {}})["files"]) - set(content)):
        if (directory / path).exists():
            yield Drift("stale", path)
