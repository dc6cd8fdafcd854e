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
    rows: list[str] = []
    found: list[Diagnostic] = []
    prefix = pipeline.collector.root.rstrip("/")
    ray_sources = [s for s in pipeline.sources if s.families]
    for base in dict.fromkeys(s.base for s in ray_sources):
        for session in _sessions(root / base.removeprefix(prefix).lstrip("/")):
            for path in _walk(session / "logs"):
                below = str(path.relative_to(session / "logs"))
                of = [s for s in ray_sources if s.base == base]
                by = [name for s in of for name in _shipped_by(pipeline, s, below)]
                rows.append(f"{path}\t{', '.join(by) or _left_out(below) or 'nobody'}")
                place = Place(str(path))
                if len(by) > 1:
                    text = f"{path} is read by {' and '.join(by)}"
                    hint = "its lines arrive twice where both reach a sink"
                    found.append(Diagnostic("file-read-twice", Severity.WARNING, "", text, hint, place))
                elif not by and not _left_out(below):
                    text = f"{path}: nobody ships this file"
                    hint = "shipgen's catalogue does not know it: add a source of type file, or report it"
                    found.append(Diagnostic("stray-file", Severity.ERROR, "", text, hint, place))
    for source in (s for s in pipeline.sources if s.paths):
        for glob in source.paths:
            below_root = glob.removeprefix(prefix).lstrip("/")
            rows.extend(
                f"{path}\t{source.name}" for path in sorted(root.glob(below_root))
                if path.is_file() and matches(source, prefix + "/" + str(path.relative_to(root)))
            )
    return rows, found
