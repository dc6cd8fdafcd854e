"""What the user wrote: policy files, loaded with positions, merged, and judged against the model of the language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from shipgen.diagnostics import Diagnostic, Place, PolicyError, UsageError, ordered
from shipgen.policy import loading, model
from shipgen.policy.checks import check_semantics
from shipgen.policy.loading import Item, dotted
from shipgen.policy.validation import check_schema
from shipgen.policy.values import check_values

__all__ = ["Policy", "dotted", "load"]

Step = str | int


@dataclass(slots=True)
class Policy:
    """A valid policy.

    ``data`` has the keys of the language with defaults filled in: sizes are bytes, durations milliseconds, rates bytes
    a second; secrets stay ``{"env": NAME}`` or ``{"file": PATH}``. What was not written and has no default is absent.
    """

    data: dict[str, Any]
    files: list[str]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _tree: Item = field(default_factory=lambda: Item({}, Place("")), repr=False)

    def given(self, *path: Step) -> bool:
        """Whether the user wrote the key at ``path``, as against a default."""
        return self._tree.at(path)[1] == len(path)

    def place(self, *path: Step) -> Place | None:
        """Where the value at ``path`` stands, or the nearest one above it that was written."""
        return self._tree.place_of(path) if self.files else None

    @staticmethod
    def path(*path: Step) -> str:
        """``path`` as people write it: ``parsing.rules[0].add.team``."""
        return dotted(path)


def load(files: Sequence[str], stdin: TextIO | None = None) -> Policy:
    """Read policy files (``-`` is ``stdin``), later ones merged over earlier ones, and judge the result.

    Raises :class:`PolicyError` with every error found (and the warnings beside them), :class:`UsageError` for a file
    that can't be read.
    """
    if not files:
        raise UsageError("no policy file given")
    names = [str(name) for name in files]
    if names.count("-") > 1:
        raise UsageError("standard input can be read only once")
    findings = loading.Findings()
    texts = [loading.read_text(name, stdin) for name in names]
    parsed = [loading.parse(text, name, findings) for name, text in zip(names, texts, strict=True)]
    trees = [tree for tree in parsed if tree is not None]
    if len(trees) < len(parsed):
        raise PolicyError(ordered(findings.errors))
    merged = loading.without_nulls(trees[0], findings)
    for tree in trees[1:]:
        merged = loading.merge(merged, tree, model.named_lists(), findings)
    plain = merged.plain()
    check_schema(plain, merged, findings)
    check_values(plain, merged, findings)
    data = model.fill(model.POLICY, plain)
    model.fill_computed(data)
    check_semantics(data, merged, findings)
    if findings.errors:
        raise PolicyError(ordered(findings.found))
    return Policy(data, names, ordered(findings.found), merged)
