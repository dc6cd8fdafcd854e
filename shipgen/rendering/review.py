"""`shipgen diff`: a change of policy as its reviewer reads it, in words first and then as text of the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby

from shipgen.diagnostics import Diagnostic, ordered
from shipgen.rendering import bundle
from shipgen.rendering.drift import FileChange, between
from shipgen.targets.changes import KINDS, Change, Side, changes
from shipgen.targets.explain.wording import Page, count

_HEADINGS: Mapping[str, str] = {
    "policy": "Policy", "source": "Source", "sink": "Sink", "ray": "Ray", "rotation": "Rotation", "target": "Target",
}


@dataclass(frozen=True, slots=True)
class Review:
    """What changes, in the policy's terms and in the files of the bundles."""

    new: Side
    changes: tuple[Change, ...]
    files: tuple[FileChange, ...]
    rendered: int
    """How many targets the files are of."""

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        return bool(self.changes or self.files)

    @property
    def summary(self) -> str:
        """The review in one line."""
        if not self.differs:
            return "the two policies mean the same" + ", and so do their files" * bool(self.rendered)
        grave = [kind for kind in KINDS if KINDS[kind][1] == "warning" and kind in {c.kind for c in self.changes}]
        named = f" ({', '.join(grave)})" if grave else ""
        none = "no target that can express both, so no files" if self.new.choices else "no target, so no files"
        files = f"{count(len(self.files), 'file')} of the bundle" if self.rendered else none
        return f"{count(len(self.changes), 'change')}{named}; {files}"

    def diagnostics(self) -> list[Diagnostic]:
        """The changes as findings in the new policy."""
        return ordered(c.diagnostic(self.new) for c in self.changes)


def review(old: Side, new: Side) -> Review:
    """Compare two policies, and what they render for the targets that can express them."""
    renders = [tuple(c for c in side.choices if c.renders) for side in (old, new)]
    # headers name the policy files, which differ even where nothing else does
    pipelines = (replace(old.pipeline, files=new.pipeline.files), new.pipeline)
    before, after = (bundle.of(p, c).files if c else {} for p, c in zip(pipelines, renders, strict=True))
    files = between(before, after) if all(renders) else []
    return Review(new, tuple(changes(old, new)), tuple(files), len(renders[1]) if all(renders) else 0)


def as_text(found: Review, *, diff: bool = True) -> str:
    """The page: what changes by source and sink, the files, and their unified diff."""
    page = Page()
    page.say(found.summary)
    for (about, name), group in groupby(found.changes, key=lambda c: (c.about, c.name)):
        page.heading(f"{_HEADINGS[about]} {name}".rstrip())
        for change in group:
            page.fact(change.kind, change.text)
    if found.files:
        page.heading("Files")
        for file in found.files:
            page.point(f"{file.path}: {file.status}{_lines(file.diff)}")
    return str(page) + ("\n" + "".join(f.diff for f in found.files) if diff and found.files else "")


def _lines(diff: str) -> str:
    body = diff.split("\n")[2:]
    come, gone = (sum(line.startswith(sign) for line in body) for sign in "+-")
    return f", +{come} -{gone} lines"


def as_json(found: Review, findings: Sequence[Diagnostic]) -> str:
    """The same as one JSON document."""
    document = {
        "summary": found.summary,
        "changes": [{"about": c.about, "name": c.name, "kind": c.kind, "severity": KINDS[c.kind][1],
                     "path": found.new.policy.path(*c.path), "text": c.text} for c in found.changes],
        "files": [asdict(f) for f in found.files],
        "findings": [{"code": d.code, "severity": d.severity, "target": d.target, "path": d.path, "text": d.text}
                     for d in findings],
    }
    return json.dumps(document, indent=2) + "\n"
