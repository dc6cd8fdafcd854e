"""The files of a real tree, and who ships each of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shipgen.catalog import ray
from shipgen.diagnostics import Diagnostic, Place, Severity
from shipgen.pipeline import rotation
from shipgen.pipeline.model import Pipeline, Source


def glob_regex(glob: str) -> str:
    """A glob of the policy as a regex: `*` and `?` stay in one directory; `[a-z]` and `[!a-z]`."""
    out, i = "", 0
    while i < len(glob):
        c = glob[i]
        end = glob.find("]", i + 2) if c == "[" else -1
        if c == "*":
            out += "[^/]*"
        elif c == "?":
            out += "[^/]"
        elif end > 0:
            body = glob[i + 1 : end]
            out += "[" + ("^/" + body[1:] if body.startswith("!") else body).replace("\\", "\\\\") + "]"
            i = end
        else:
            out += re.escape(c)
        i += 1
    return rf"\A{out}\z"


@cache
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(glob_regex(glob).removesuffix(r"\z") + r"\Z")


def matches(source: Source, path: str) -> bool:
    """Whether a file source reads an absolute path (under the collector's root, as its globs are)."""
    included, excluded = (any(_compiled(g).match(path) for g in globs) for globs in (source.paths, source.exclude))
    return included and not excluded


def _sessions(temp_dir: Path) -> list[Path]:
    """Real session directories; a link such as `session_latest` is none."""
    try:
        return sorted(p for p in temp_dir.glob(ray.SESSION_GLOB) if p.is_dir() and not p.is_symlink())
    except OSError:
        return []


def _walk(directory: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory):
        directories.sort()
        yield from (Path(parent) / name for name in sorted(names))


def _shipped_by(pipeline: Pipeline, source: Source, below: str) -> Iterator[str]:
    is_backup = ray.live_name(below) != below.removeprefix("old/")
    for family in ray.families_of(below):
        if family not in source.families:
            continue
        if is_backup and (source.rotated == "exclude" or not rotation.keeps_backups_apart(pipeline, family)):
            continue
        yield f"{source.name}: {family.name}"


def _left_out(below: str) -> str:
    """Why a file of a known kind is not shipped; empty for a file that shipgen knows nothing of."""
    if why := ray.is_not_a_log(below):
        return f"no log: {why}"
    families = ray.families_of(below)
    if not families:
        return ""
    family = families[0]
    if ray.live_name(below) != below.removeprefix("old/"):
        return f"a backup of {ray.live_name(below)}"
    return f"{family.name} is not selected" + (f" ({family.why_not_default})" if family.why_not_default else "")


def inventory(pipeline: Pipeline, root: Path) -> tuple[list[str], list[Diagnostic]]:
    """One line a file, and diagnostics for the files that nobody or more than one source ships.

    ``root`` is where the node's file system is; paths of the policy are looked up below it.
    """
    prefix = pipeline.collector.root.rstrip("/")
    readers: dict[Path, list[str]] = {}
    names: dict[Path, str] = {}
    for source in (s for s in pipeline.sources if s.families):
        for session in _sessions(root / source.base.removeprefix(prefix).lstrip("/")):
            for path in _walk(session / "logs"):
                names[path] = str(path.relative_to(session / "logs"))
                readers.setdefault(path, []).extend(_shipped_by(pipeline, source, names[path]))
    for source in (s for s in pipeline.sources if s.paths):
        for path in dict.fromkeys(p for glob in source.paths for p in _below(root, glob.removeprefix(prefix))):
            if path.is_file() and matches(source, f"{prefix}/{path.relative_to(root)}"):
                readers.setdefault(path, []).append(source.name)
    rows: list[str] = []
    found: list[Diagnostic] = []
    for path, by in readers.items():
        left_out = "" if by else _left_out(names[path])
        rows.append(f"{path}\t{', '.join(by) or left_out or 'nobody'}")
        place = Place(str(path))
        if len(by) > 1:
            text = f"{path} is read by {' and '.join(by)}"
            hint = "its lines arrive twice where both reach a sink"
            found.append(Diagnostic("file-read-twice", Severity.WARNING, "", text, hint, place))
        elif not by and not left_out:
            text = f"{path}: nobody ships this file"
            hint = "shipgen's catalogue does not know it: add a source of type file, or report it"
            found.append(Diagnostic("stray-file", Severity.ERROR, "", text, hint, place))
    return rows, found


def _below(root: Path, glob: str) -> list[Path]:
    relative = glob.strip("/")
    return sorted(root.glob(relative)) if relative else []
