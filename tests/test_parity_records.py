"""The committed records of the parity cases, without any shipper: all targets agree with the contract and with each
other.

Where one does not, its case says so in `exceptions.yaml`, and the capability table has a row for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from parity_cases import (
    ROOT,
    Case,
    Row,
    Want,
    cases,
    differences,
    excepted,
    expected,
    expected_text,
    paired,
    pipeline_of,
    read_records,
    said,
)

from shipgen.catalog import ray, record
from shipgen.catalog.redactions import KINDS
from shipgen.pipeline.resolve import ACTIONS
from shipgen.policy import load
from shipgen.targets import base, capabilities, plan
from shipgen.targets.capabilities import Status
from shipgen.targets.common import EPOCHS

TARGETS = base.implemented()
NOT_SAME = {Status.APPROXIMATED, Status.UNSUPPORTED, Status.NOT_YET}
ORIGIN = {"target", "version", "shipper", "sha256", "command", "shipgen", "loki", "case", "rows"}
RELAY = {"relay", "relay_sha256", "relay_command"}

each_case = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
each_target = pytest.mark.parametrize("target", TARGETS)


def records(case: Case, target: str) -> list[Row]:
    """Committed records; skips where no shipper of the target has been run on any machine that writes them."""
    if not any(other.records(target).exists() for other in cases()):
        pytest.skip(f"no records of {target} yet")
    return read_records(case, target)[1]


def test_there_are_cases() -> None:
    assert len(cases()) >= 45
    assert {case.name for case in cases()} == {path.name for path in ROOT.iterdir() if path.is_dir()}
    told = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(told) == [case.name for case in cases()]


def test_cases_cover_every_family_field_and_rule() -> None:
    wants = [want for case in cases() for want in expected(case)]
    families = {f.name for want in wants if want.one.place[0] for f in ray.families_of(want.one.place[1])}
    assert families == set(ray.BY_NAME)
    fields = {name for want in wants for name, value in want.one.record.items() if value is not None}
    assert fields >= set(record.FIELDS) - {"entry_time"}  # `late` stands for it
    assert any(want.late for want in wants)
    pipelines = [pipeline_of(case) for case in cases()]
    assert {rule.action for one in pipelines for rule in one.rules} == set(ACTIONS)
    assert {rule.options["kind"] for one in pipelines for rule in one.rules if "kind" in rule.options} == set(KINDS)
    assert {one.timezone for one in pipelines} >= {"UTC", "local", "Europe/Berlin", "America/New_York"}
    layouts = {source.time.layout for one in pipelines for source in one.sources if source.time}
    assert layouts == {"python", "rfc3339", *EPOCHS}  # not glog: without a year in it, each year gives another time


@each_case
def test_expectation_is_written_down(case: Case) -> None:
    assert (case.directory / "expected.jsonl").read_text("utf-8") == expected_text(case)


@each_case
@each_target
def test_records_are_of_this_input_and_as_they_were_written(case: Case, target: str) -> None:
    if case.exceptions(target).refused:
        assert not case.records(target).exists()
        return
    records(case, target)
    origin, _, digest = read_records(case, target)
    assert origin.keys() == ORIGIN | (RELAY if target == "filebeat" else set())
    assert (origin["target"], origin["case"], origin["rows"]) == (target, case.digest(), digest)
    assert origin["version"] in base.get(target).versions
    assert re.fullmatch("[0-9a-f]{64}", origin["sha256"])
    assert base.get(target).binary in origin["command"]
    assert origin["shipper"]
    assert origin["loki"].startswith("loki, version ")


@each_case
@each_target
def test_records_are_as_expected(case: Case, target: str) -> None:
    exceptions = case.exceptions(target)
    if exceptions.refused:
        return
    found = excepted(differences(case, target, records(case, target)), exceptions)
    assert not found, "\n".join(str(one) for one in found[:20])


@each_case
def test_targets_agree_where_the_expectation_leaves_something_open(case: Case) -> None:
    """A redacted line, say: the reference knows what has to be gone, and all targets leave the same."""
    by_target = {target: lines(case, target) for target in TARGETS if case.records(target).exists()}
    if len(by_target) < 2:
        pytest.skip("one target only")
    first, *others = by_target
    for other in others:
        differ = [key for key in by_target[first] if by_target[first][key] != by_target[other].get(key)]
        told = [(by_target[first][key], by_target[other].get(key)) for key in differ[:3]]
        assert not differ, f"{first} and {other}: {told}"


def lines(case: Case, target: str) -> dict[int, object]:
    """What the lines say whose text is open, by the number of their record."""
    rows: Mapping[int, tuple[Want, Row]] = {id(w): (w, r) for w, r in paired(expected(case), records(case, target))[0]}
    pairs = [(n, *rows[id(want)]) for n, want in enumerate(expected(case)) if id(want) in rows]
    return {n: said(r.line) for n, w, r in pairs if w.one.masks and not w.one.cut and not w.one.optional}


@each_target
def test_of_a_session_all_or_none(target: str) -> None:
    (case,) = (one for one in cases() if one.name == "verl-sample")
    sampled = [row.metadata["session_id"] for row in records(case, target) if "sample_rate" in row.metadata]
    assert {sampled.count(session) for session in sampled} == {3}


@each_case
@each_target
def test_exceptions_are_in_the_capability_table(case: Case, target: str) -> None:
    exceptions = case.exceptions(target)
    refused = [leaf_of(case, exceptions.refused)] if exceptions.refused else []
    for leaf in dict.fromkeys([*refused, *(leaf for leaf, _, _ in exceptions.differs)]):
        rows = capabilities.rows(target, tuple(leaf.replace(".[]", "[]").replace("[]", ".[]").split(".")))
        assert any(row.status in NOT_SAME for row in rows), f"{target}: no row about {leaf}"
    if exceptions.refused:
        policy = load([str(case.policy)])
        choice = plan.choose(target, policy, pipeline_of(case))
        assert not choice.renders
        assert exceptions.refused in [d.path for d in choice.diagnostics]


def leaf_of(case: Case, path: str) -> str:
    """The leaf of the capability table (`sinks.<loki>.when`) that a path in the policy (`sinks.all.when`) is of."""
    policy = load([str(case.policy)])
    leaves = {policy.path(*there): ".".join(leaf) for leaf, there, _ in plan.given_leaves(policy)}
    return next((leaf for there, leaf in leaves.items() if there == path or there.startswith(f"{path}.")), path)
