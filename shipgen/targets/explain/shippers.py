"""What each target does not do exactly: of this policy first, then of the rest of the language."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shipgen.diagnostics import Diagnostic, Severity, ordered
from shipgen.policy import Policy
from shipgen.targets import base, capabilities
from shipgen.targets.capabilities import Status
from shipgen.targets.explain.wording import Page, code, count, listing
from shipgen.targets.plan import Choice, given_leaves

_NOT_EXACT = ("approximated", "unsupported", "not-yet")
"""Codes of the diagnostics that are about leaves a target does not do exactly."""


def tell(page: Page, policy: Policy, choices: Sequence[Choice]) -> None:
    """The targets of a run."""
    if not choices:
        page.say(
            f"No target: the policy names none under {code('targets')}, and {code('--target')} was not given. "
            f"Known: {listing(base.implemented())}."
        )
    for one in choices:
        page.heading(f"{one.name} {one.version}".rstrip())
        if one.target is not None:
            writes = code(one.target.main_config) if one.renders else "nothing, since it cannot express this policy"
            page.fact("Writes", writes)
        said = ordered(one.diagnostics)
        inexact = [d for d in said if d.code in _NOT_EXACT]
        page.point("Not exact in this policy" + ("" if inexact else ": nothing"))
        for found in inexact:
            page.point(_finding(found), 1)
        others = [d for d in said if d.code not in _NOT_EXACT]
        if others:
            page.point("To know")
        for found in others:
            page.point(_finding(found), 1)
        if one.target is not None:
            _exact(page, policy, one)
            _rest(page, one, {_reason(d) for d in inexact})


def _reason(found: Diagnostic) -> str:
    return found.text.removeprefix("approximated: ")


def _finding(found: Diagnostic) -> str:
    if found.code in _NOT_EXACT:
        kind = f"{found.code.replace('-', ' ')}: "
    else:
        kind = "" if found.severity is Severity.NOTE else f"{found.severity}: "
    hint = f". Way out: {found.hint}" if found.hint else ""
    return f"{code(found.path)}: {kind}{_reason(found)}{hint}"


def _exact(page: Page, policy: Policy, choice: Choice) -> None:
    """How many of the policy's leaves are exact, and which of them something else reads."""
    exact, elsewhere = 0, dict[str, list[str]]()
    for leaf, path, value in given_leaves(policy):
        row = choice.row(leaf, value)
        exact += row.status is Status.EXACT
        if row.status is Status.ELSEWHERE:
            elsewhere.setdefault(row.text, []).append(policy.path(*path))
    page.fact("Exact", count(exact, "other key that the policy writes", "other keys that the policy writes"))
    if elsewhere:
        page.point("Not for this target")
    for who, paths in elsewhere.items():
        page.point(f"{listing(code(p) for p in paths)}: {who}", 1)


def _rest(page: Page, choice: Choice, said: Collection[str]) -> None:
    """What else of the language the target does not do exactly."""
    by_reason: dict[tuple[Status, str], list[str]] = {}
    for row in choice.deviations():
        if row.text not in said:
            by_reason.setdefault((row.status, row.text), []).append(code(capabilities.in_words(row)))
    if by_reason:
        page.point("Not exact elsewhere in the language")
    for (status, why), words in by_reason.items():
        page.point(f"{listing(words)}: {status.value.replace('-', ' ')}: {why}", 1)
