"""How a directory differs from the bundle that a policy renders, why, and the text of the difference."""

from __future__ import annotations

import difflib
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shipgen import __version__
from shipgen.diagnostics import Diagnostic, Place, Severity, UsageError
from shipgen.rendering.bundle import MANIFEST, Bundle, digest, read_manifest, symlinked

_LONGEST = 20_000
"""Lines of two files together beyond which no difference is worked out: it would take minutes."""

_KINDS: Mapping[str, tuple[str, str, str]] = {
    "edited": ("edited", "was edited after it was rendered",
               "take the edit into the policy, for rendering again undoes it"),
    "outdated": ("outdated", "is out of date: the policy has changed since it was rendered", ""),
    "other-release": ("outdated", f"is out of date: a release of shipgen other than {__version__} rendered it", ""),
    "line-ends": ("edited", "has other line ends than it was rendered with (CRLF)",
                  "keep Git off them with `{directory}/** -text` in .gitattributes"),
    "no-file": ("edited", "is no plain file, or lies behind a symbolic link", "remove what is there"),
    "missing": ("missing", "is missing", ""),
    "stale": ("stale", f"is listed in {MANIFEST} and no longer rendered", ""),
}
"""What can be the matter with a file: how it is counted, what is said of it, and what is worth knowing besides."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One file that differs. ``kind`` is a key of the table above; ``diff`` and ``line`` (the first that differs) are
    empty where they would not help."""

    kind: str
    path: str
    diff: str = ""
    line: int = 0

    def diagnostic(self, directory: Path, command: str) -> Diagnostic:
        """The drift as an error, at the file that differs. ``command`` renders again."""
        _, text, hint = _KINDS[self.kind]
        again = f"render again: {command}"
        hint = f"{hint.replace('{directory}', str(directory))}; {again}" if hint else again
        place = Place(str(directory / self.path), self.line, int(self.line > 0))
        return Diagnostic("drift", Severity.ERROR, "", f"{self.path} {text}", hint, place, detail=self.diff)


def compare(bundle: Bundle, directory: Path) -> Iterator[Drift]:
    """How a directory differs from what would be rendered now. Raises UsageError for files that can't be read."""
    content = {**bundle.files, MANIFEST: bundle.manifest()}
    manifest = read_manifest(directory) or {"files": {}}
    release = manifest.get("shipgen", __version__)
    for path, data in sorted(content.items()):
        place = directory / path
        try:
            # a link is not followed: a diff would show what no reviewer was meant to see
            if symlinked(directory, place) or not stat.S_ISREG(place.stat().st_mode):
                yield Drift("no-file", path)
                continue
            there = place.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            yield Drift("missing", path)
            continue
        except OSError as error:
            raise UsageError(f"{place}: {error.strerror or error}") from error
        if there == data:
            continue
        if there.replace(b"\r\n", b"\n") == data:
            yield Drift("line-ends", path)
            continue
        as_rendered = path == MANIFEST or manifest["files"].get(path) == digest(there)
        kind = "edited" if not as_rendered else "outdated" if release == __version__ else "other-release"
        diff, line = unified(path, there, data)
        # hashes tell nobody anything; what they are of is shown
        yield Drift(kind, path, "" if path == MANIFEST else diff, line)
    for path in sorted(set(manifest["files"]) - set(content)):
        if (directory / path).is_file():
            yield Drift("stale", path)


def summary(drifts: Sequence[Drift], bundle: Bundle, directory: Path) -> str:
    """All of it in one line: ``rendered: 2 of 6 files differ from the policy (1 edited, 1 missing)``."""
    number = Counter(_KINDS[d.kind][0] for d in drifts)
    total = len(bundle.files) + 1 + number["stale"]
    if not drifts:
        return f"{directory}: all {total} files are what the policy renders"
    kinds = ", ".join(f"{number[kind]} {kind}" for kind in dict.fromkeys(k for k, _, _ in _KINDS.values())
                      if number[kind])
    return f"{directory}: {len(drifts)} of {total} files differ{'s' * (len(drifts) == 1)} from the policy ({kinds})"


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that differs between two bundles. ``status`` is added, removed or modified."""

    path: str
    status: str
    diff: str


def between(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[FileChange]:
    """Files of two bundles that differ, by path."""
    found = []
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before != after:
            status = "added" if before is None else "removed" if after is None else "modified"
            found.append(FileChange(path, status, unified(path, before, after)[0]))
    return found


def unified(path: str, old: bytes | None, new: bytes | None) -> tuple[str, int]:
    """The unified diff of one file, and the first line of the old one that differs. None is a file that is not there.

    `git apply` and `patch -p1` take it.
    """
    before, after = _lines(old or b""), _lines(new or b"")
    if len(before) + len(after) > _LONGEST:
        return f"--- a/{path}\n+++ b/{path}\n(too long to compare)\n", 1
    line = next((i for i, (a, b) in enumerate(zip(before, after, strict=False), 1) if a != b), 0)
    names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
    return "".join(difflib.unified_diff(before, after, *names)), line or max(1, min(len(before), len(after)))


def _lines(data: bytes) -> list[str]:
    *whole, last = data.decode("utf-8", "replace").split("\n")
    return [*(f"{line}\n" for line in whole), *([f"{last}\n\\ No newline at end of file\n"] if last else [])]
