"""One model: the JSON Schema, the defaults, the leaves and the reference page say the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from shipgen.policy import load, model, units
from shipgen.policy.model import MISSING, Key, List, Map, Node, Ref, Union, Variants
from shipgen.policy.schema import json_schema, reference_page

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
SMALLEST = {
    "version": 1,
    "name": "ray",
    "sources": {"ray": {"type": "ray"}},
    "sinks": {"loki": {"type": "loki", "endpoint": "http://loki:3100"}},
}


def nodes(node: Node, seen: set[str] | None = None) -> Iterator[Node]:
    seen = set() if seen is None else seen
    yield node
    match node:
        case Map():
            for key in node.keys.values():
                yield from nodes(key.node, seen)
            if node.rest is not None:
                yield from nodes(node.rest, seen)
        case List():
            yield from nodes(node.item, seen)
        case Union():
            for option in node.options:
                yield from nodes(option, seen)
        case Variants():
            for variant in node.options.values():
                yield from nodes(variant, seen)
        case Ref(name=name) if name not in seen:
            yield from nodes(model.DEFINITIONS[name], seen | {name})


def keys() -> Iterator[tuple[str, Key]]:
    for node in nodes(model.POLICY):
        if isinstance(node, Map):
            yield from node.keys.items()


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from subschemas(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from subschemas(value)


def standalone(node: Node) -> Draft7Validator:
    """A validator for one node of the model, by way of a policy that consists of nothing else."""
    from shipgen.policy.schema import _node

    return Draft7Validator({**_node(node), "definitions": json_schema()["definitions"]})


def load_data(tmp_path: Path, data: dict[str, Any]) -> Any:
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(data), "utf-8")  # JSON is YAML
    return load([str(path)])


# --- the schema ---


def test_the_schema_is_a_schema() -> None:
    Draft7Validator.check_schema(json_schema())
    assert json_schema()["$schema"] == "http://json-schema.org/draft-07/schema#"
    json_schema()["properties"].clear()
    assert json_schema()["properties"], "a copy is handed out"


DRAFT_07 = {
    "$schema", "title", "description", "default", "examples", "type", "enum", "const", "pattern", "maxLength",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "properties", "required", "additionalProperties",
    "propertyNames", "minProperties", "items", "minItems", "uniqueItems", "allOf", "oneOf", "not", "if", "then",
    "definitions", "$ref",
}


def test_the_schema_is_in_the_dialect_of_editors() -> None:
    """yaml-language-server reads draft-07, in which nothing counts beside a `$ref` (1.25.0 was run on it: completion,
    hover and findings)."""

    def check(schema: Any) -> None:
        assert set(schema) <= DRAFT_07, set(schema) - DRAFT_07
        assert set(schema) == {"$ref"} or "$ref" not in schema
        for name in ("properties", "definitions"):
            for one in schema.get(name, {}).values():
                check(one)
        for name in ("allOf", "oneOf"):
            for one in schema.get(name, []):
                check(one)
        for name in ("items", "not", "if", "then", "propertyNames", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                check(schema[name])

    check(json_schema())


def test_every_key_has_a_description() -> None:
    for name, key in keys():
        assert key.description.endswith("."), name
    for schema in subschemas(json_schema()):
        for name, value in schema.get("properties", {}).items():
            if isinstance(value, dict) and set(value) != {"const"}:
                assert value.get("description"), name


def test_no_map_takes_unknown_keys() -> None:
    for schema in subschemas(json_schema()):
        if schema.get("type") == "object" and "allOf" not in schema and schema != {"type": "object"}:
            assert "additionalProperties" in schema


def test_patterns_are_read_alike_by_validators_in_other_languages() -> None:
    for schema in subschemas(json_schema()):
        if isinstance(schema.get("pattern"), str):
            re2.compile(schema["pattern"])


def test_options_of_a_union_differ_in_type() -> None:
    for node in nodes(model.POLICY):
        if isinstance(node, Union):
            types = model.json_types(node)
            assert len(types) == len(set(types))


@pytest.mark.parametrize(
    "path", sorted([*EXAMPLES.glob("*.yaml"), *(HERE / "positive").glob("*.yaml")]), ids=lambda p: p.stem
)
def test_the_schema_accepts_what_load_accepts(path: Path) -> None:
    from shipgen.policy.loading import Findings, parse, without_nulls

    findings = Findings()
    item = parse(path.read_text("utf-8-sig"), str(path), findings)
    assert item is not None
    Draft7Validator(json_schema()).validate(without_nulls(item, findings).plain())


# --- defaults and examples ---


def test_defaults_and_examples_fit_their_keys() -> None:
    for name, key in keys():
        for value in (key.default, key.example):
            if value is not MISSING:
                errors = [error.message for error in standalone(key.node).iter_errors(value)]
                assert errors == [], name


def test_a_key_is_either_required_or_has_a_default_or_is_absent() -> None:
    for name, key in keys():
        assert not (key.required and key.default is not MISSING), name


def test_defaults_are_those_of_the_schema(tmp_path: Path) -> None:
    """Writing every default out changes nothing."""
    short = load_data(tmp_path, SMALLEST)

    def written(node: Node, value: Any) -> Any:
        node = model.narrow(node, value) or node
        if not isinstance(node, Map) or not isinstance(value, dict):
            return value
        defaults = {
            name: written(key.node, key.default) for name, key in node.keys.items() if key.default is not MISSING
        }
        given = {name: written(key, one) for name, one in value.items() if (key := model.child(node, value, name))}
        return {**defaults, **given}

    long = load_data(tmp_path, written(model.POLICY, SMALLEST))
    assert long.data == short.data
    assert long.given("collector", "metrics", "port")
    assert not short.given("collector", "metrics", "port")


def test_the_smallest_policy() -> None:
    policy = load([str(EXAMPLES / "minimal.yaml")])
    assert len((EXAMPLES / "minimal.yaml").read_text("utf-8").splitlines()) == 4
    loki = policy.data["sinks"]["loki"]
    assert policy.data["collector"] == {
        "root": "/",
        "state_dir": "/var/lib/shipgen",
        "metrics": {"bind": "127.0.0.1", "port": 9598},
        "discover_every": 5000,
    }
    assert policy.data["ray"] == {"temp_dir": "/tmp/ray"}
    assert policy.data["parsing"] == {"timezone": "local", "rules": []}
    assert policy.data["sources"]["ray"] == {
        "type": "ray",
        "components": ["default"],
        "exclude_components": [],
        "start": "beginning",
        "rotated": "auto",
        "max_entry": 240 * 1024,
        "max_line": 256 * 1024,
        "on_long_line": "truncate",
    }
    assert loki["labels"] == {
        "static": {"job": "ray"},
        "fields": ["component", "level", "node"],
        "allow_high_cardinality": False,
    }
    assert loki["buffer"] == {"max_size": 1024**3, "when_full": "block"}
    assert loki["batch"] == {"max_bytes": 1024**2, "max_wait": 1000}
    assert loki["server"] == {"max_chunk_age": 7_200_000, "max_line_size": 256 * 1024}
    assert (loki["line"], loki["late"], loki["compression"], loki["from"]) == ("raw", "restamp", "auto", ["ray"])
    for absent in ("rotation", "relay", "cluster"):
        assert absent not in policy.data
    for absent in ("tenant", "auth", "tls", "when", "delivery"):
        assert absent not in loki


def test_metadata_is_by_default_every_text_and_number_but_labels() -> None:
    loki = load([str(EXAMPLES / "ray-loki.yaml")]).data["sinks"]["loki"]
    assert loki["labels"]["fields"] == ["cluster", "component", "level", "node"]
    fields = {name for name, kind in model.RECORD_FIELDS.items() if kind in ("string", "number")}
    left_out = {"message", "raw", *loki["labels"]["fields"], *model.ALWAYS_METADATA}
    assert set(loki["metadata"]) == fields - left_out


def test_batches_fit_the_type() -> None:
    sinks = load([str(EXAMPLES / "full.yaml")]).data["sinks"]
    assert sinks["archive"]["batch"] == {"max_bytes": 64 * 1024**2, "max_wait": 300_000}
    assert sinks["search"]["data_stream"] == {"dataset": "ray", "namespace": "prod"}
    assert sinks["stream"]["from"] == ["engine", "ray", "trainer"]


def test_the_order_of_keys_means_nothing(tmp_path: Path) -> None:
    def reversed_keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: reversed_keys(value[name]) for name in reversed(value)}
        return value

    sources = {"b": {"type": "ray"}, "a": {"type": "file", "paths": ["/a"]}}
    data = {**SMALLEST, "sources": sources}
    one, other = load_data(tmp_path, data).data, load_data(tmp_path, reversed_keys(data)).data
    assert json.dumps(one) == json.dumps(other)


# --- leaves and the reference page ---


def test_leaves() -> None:
    leaves = model.leaves()
    assert len(leaves) == len(set(leaves))
    for leaf in [
        ("targets", "*", "version"),
        ("collector", "node", "env"),
        ("sources", "<ray>", "components"),
        ("sources", "<file>", "format", "time", "layout"),
        ("parsing", "rules", "[]", "when", "*", "matches"),
        ("parsing", "rules", "[]", "sample"),
        ("parsing", "rules", "[]", "sample", "rate"),
        ("parsing", "rules", "[]", "add", "*"),
        ("sinks", "<loki>", "batch", "max_bytes"),
        ("sinks", "<loki>", "labels", "static", "*"),
        ("sinks", "<http>", "headers", "*"),
        ("relay", "address"),
    ]:
        assert leaf in leaves


def test_leaves_are_those_of_the_schema() -> None:
    """Walk the schema on its own and find the same paths."""
    schema = json_schema()

    def walk(one: dict[str, Any], path: tuple[str, ...], inside: bool) -> Iterator[tuple[str, ...]]:
        if "$ref" in (one.get("allOf") or [{}])[0]:
            one = one["allOf"][0]
        if "$ref" in one:
            if inside:
                yield path
                return
            one, inside = schema["definitions"][one["$ref"].rpartition("/")[2]], True
        variants = [case for case in one.get("allOf", []) if "properties" in case["if"]]
        if variants:
            for case in variants:
                name = case["if"]["properties"]["type"]["const"]
                yield from walk(case["then"], (*path[:-1], f"<{name}>"), inside)
            return
        types = one["type"] if isinstance(one["type"], list) else [one["type"]]
        branches = [case["then"] for case in one.get("allOf", [])]
        if set(types) - {"object", "array"}:
            yield path
        for branch in branches or [one]:
            if branch.get("type") == "object":
                for name, value in branch.get("properties", {}).items():
                    yield from walk(value, (*path, name), inside)
                if isinstance(branch["additionalProperties"], dict):
                    yield from walk(branch["additionalProperties"], (*path, "*"), inside)
            elif branch.get("type") == "array":
                scalar = not {"object", "array"} & set(
                    json.dumps(branch["items"].get("type", "object")).strip('["]').split('", "')
                )
                yield from [path] if scalar else walk(branch["items"], (*path, "[]"), inside)

    assert set(walk(schema, (), False)) == set(model.leaves())


def test_the_reference_page_has_every_key() -> None:
    page = reference_page()
    for name, key in keys():
        if name not in ("type", "env", "file"):
            assert f"{name}`" in page, name
            assert key.description.replace("|", "\\|") in page, name
    for name, key in model.POLICY.keys.items():
        assert f"## `{name}`" in page
        assert key.description in page
    assert page.isascii() or page.isprintable()
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {5}


# --- units ---


@pytest.mark.parametrize(
    ("read", "text", "number"),
    [
        (units.size, "512MiB", 512 * 1024**2),
        (units.size, "1.5GiB", 3 * 1024**3 // 2),
        (units.size, "1kB", 1000),
        (units.size, "7B", 7),
        (units.duration, "500ms", 500),
        (units.duration, "2h", 7_200_000),
        (units.duration, "7d", 604_800_000),
        (units.duration, "0.5s", 500),
        (units.rate, "2MiB/s", 2 * 1024**2),
    ],
)
def test_units(read: Any, text: str, number: int) -> None:
    assert read(text) == number


@pytest.mark.parametrize("text", ["0B", "1.5B", "5", "5 B", "5b", "5KB", "-1B", "1e3B", "999999999TiB", "1..2B", "٣B"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|whole|large|zero"):
        units.size(text)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**9), st.sampled_from(sorted(units.DURATION_UNITS)))
def test_whole_durations_are_exact(number: int, unit: str) -> None:
    assert units.duration(f"{number}{unit}") == number * units.DURATION_UNITS[unit]


# --- start-up ---


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from shipgen.policy import load; load(sys.argv[1:]);"
        "print(sorted({'re2', 'onigurumacffi', 'zoneinfo', 'difflib', 'vrl_python', 'docker'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLES / "minimal.yaml")], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
