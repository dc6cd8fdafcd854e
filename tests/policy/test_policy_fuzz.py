"""Hostile input: ``load`` gives a policy or one of shipgen's own errors, whatever it is given."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shipgen.diagnostics import PolicyError, Severity, ShipgenError
from shipgen.policy import Policy, load, model
from shipgen.policy.loading import Findings, parse

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
SEEDS = [
    item.plain()
    for path in [*sorted(EXAMPLES.glob("*.yaml")), *sorted((HERE / "positive").glob("*.yaml"))]
    if (item := parse(path.read_text("utf-8-sig"), "seed", Findings()))
]
TEXT = (EXAMPLES / "full.yaml").read_text("utf-8")
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def attempt(*contents: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for index, content in enumerate(contents):
            path = Path(folder) / f"{index}.yaml"
            path.write_bytes(content)
            names.append(str(path))
        outcome: Policy | ShipgenError
        try:
            outcome = load(names)
        except ShipgenError as error:
            outcome = error
    if isinstance(outcome, Policy):
        json.dumps(outcome.data, allow_nan=False)
        assert all(one.severity is not Severity.ERROR for one in outcome.diagnostics)
        return
    assert str(outcome).isprintable()
    if isinstance(outcome, PolicyError):
        assert any(one.severity is Severity.ERROR for one in outcome.diagnostics)
        assert all(one.place is not None and one.place.file in names for one in outcome.diagnostics)


def walk(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deep for step, one in steps for deep in walk(one, (*path, step)))]


words = st.sampled_from(
    sorted(
        {step.strip("<>") for leaf in model.leaves() for step in leaf}
        | {"null", "5", "5s", "1MiB", "raylet", "a{b", "(?=", "[", "$"}
    )
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | words
    | st.sampled_from(["x" * 5000, "\0", "\x85"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | words, inner, max_size=3),
    max_leaves=8,
)


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    attempt(content)


@FUZZ
@given(st.text(max_size=200) | st.text("[]{}&*:-?!|>'\"%@`#, \n\tab<~1.", max_size=60))
def test_any_text(text: str) -> None:
    attempt(text.encode("utf-8", "surrogatepass"))


@FUZZ
@given(st.data())
def test_a_policy_with_damaged_text(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(TEXT)))
    cut = data.draw(st.integers(0, 30))
    put = data.draw(st.text(max_size=5) | st.text("[]{}&*:-?!|>'\"%@`#, \n\t<~", max_size=3))
    attempt((TEXT[:at] + put + TEXT[at + cut :]).encode("utf-8", "surrogatepass"))


def mutate(data: st.DataObject, tree: Any) -> Any:
    tree = copy.deepcopy(tree)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in walk(tree) if path] or [()]))
        if not path:
            return data.draw(values)
        parent = tree
        for step in path[:-1]:
            parent = parent[step]
        match data.draw(st.integers(0, 3)):
            case 0:
                parent[path[-1]] = data.draw(values)
            case 1:
                del parent[path[-1]]
            case 2 if isinstance(parent, dict):
                parent[data.draw(st.text(max_size=5) | words)] = parent.pop(path[-1])
            case _ if isinstance(parent, dict):
                parent[data.draw(words)] = data.draw(values)
            case _:
                parent.append(data.draw(values))
    return tree


@settings(FUZZ, max_examples=300)
@given(st.data())
def test_a_policy_with_other_values(data: st.DataObject) -> None:
    tree = mutate(data, data.draw(st.sampled_from(SEEDS)))
    attempt(json.dumps(tree).replace("NaN", ".nan").replace("Infinity", ".inf").encode())


@FUZZ
@given(st.data())
def test_a_policy_under_others(data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(SEEDS))
    attempt(
        *(
            json.dumps(mutate(data, one)).replace("NaN", ".nan").replace("Infinity", ".inf").encode()
            for one in (seed, seed)
        )
    )
