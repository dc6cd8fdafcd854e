"""Files in: what YAML scalars mean, positions, merging, and what happens to files that are no policies."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from shipgen.diagnostics import PolicyError, UsageError
from shipgen.policy import Policy, dotted, load, loading
from shipgen.policy.loading import Findings, parse

Write = Callable[..., list[str]]

BASE = """\
version: 1
name: ray
cluster: a
sources:
  ray: {type: ray, components: [raylet, worker]}
parsing:
  rules:
    - {name: one, drop: true}
    - {name: two, when: {component: raylet}, add: {team: x}}
    - {name: three, drop: true}
sinks:
  loki: {type: loki, endpoint: http://loki:3100, tenant: ml, line: json}
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*texts: str | bytes) -> list[str]:
        names = []
        for index, text in enumerate(texts):
            path = tmp_path / f"{index}.yaml"
            path.write_bytes(text.encode() if isinstance(text, str) else text)
            names.append(str(path))
        return names

    return write


def value(text: str) -> Any:
    findings = Findings()
    item = parse(f"key: {text}\n", "p.yaml", findings)
    assert item is not None
    assert findings.found == []
    return item.plain()["key"]


def errors(caught: pytest.ExceptionInfo[PolicyError]) -> list[tuple[str, str]]:
    return [(one.code, one.path) for one in caught.value.diagnostics if one.severity == "error"]


# --- scalars ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("off", "off"),
        ("n", "n"),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("0x1F", 31),
        ("0o17", 15),
        ("01000000", "01000000"),
        ("007", "007"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("190:20", "190:20"),
        ("9.10", 9.1),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("00.5", "00.5"),
        ("1.2.3", "1.2.3"),
        ("2026-03-04", "2026-03-04"),
        ("2026-03-04 09:15:22", "2026-03-04 09:15:22"),
        ('"true"', "true"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says(text: str, expected: object) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


def test_the_python_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    files = write(BASE)
    expected = load(files)
    monkeypatch.setattr(loading, "_LOADER", yaml.SafeLoader)
    assert load(files) == expected


# --- positions ---


def test_positions_of_keys_and_values(write: Write) -> None:
    (file,) = write(BASE)
    policy = load([file])
    for path, place in {
        ("name",): "2:7",
        ("sources", "ray"): "5:8",
        ("sources", "ray", "components", 1): "5:41",
        ("parsing", "rules", 1, "add", "team"): "9:58",
        ("sinks", "loki", "line"): "12:68",
    }.items():
        assert policy.given(*path)
        assert str(policy.place(*path)) == f"{file}:{place}"
    # What was not written has the place of what it belongs to.
    assert not policy.given("sinks", "loki", "batch", "max_bytes")
    assert str(policy.place("sinks", "loki", "batch", "max_bytes")) == f"{file}:12:3"
    assert not policy.given("rotation")
    assert policy.place("rotation") is not None


def test_columns_count_characters(write: Write) -> None:
    (file,) = write(
        "version: 1\nname: ray\nsources: {ray: {type: ray}}\nsinks: {'é🚀': {}, console: {type: console}}\n"
    )
    with pytest.raises(PolicyError) as caught:
        load([file])
    assert [str(one.place) for one in caught.value.diagnostics] == [f"{file}:4:9", f"{file}:4:9"]


def test_paths_are_written_as_people_do() -> None:
    assert dotted(("parsing", "rules", 0, "add", "team")) == "parsing.rules[0].add.team"
    assert dotted(()) == ""
    assert dotted(("add", "a.b\n")) == 'add["a.b\\n"]'
    assert dotted(("sinks", "h", "headers", "X-1", "env")) == "sinks.h.headers.X-1.env"
    assert dotted(("sinks", "h", "auth", "basic", "hunter2")) == "sinks.h.auth.basic.*"
    assert Policy.path("a", 1) == "a[1]"


# --- merging ---


def test_later_files_win_key_by_key(write: Write) -> None:
    files = write(
        BASE,
        """\
cluster: b
sources: {ray: {components: [raylet]}}
sinks: {loki: {tenant: null}, archive: {type: s3, bucket: logs}}
parsing:
  rules:
    - {name: two, add: {team: y}}
    - {name: four, sample: 0.5}
""",
    )
    policy = load(files)
    data = policy.data
    assert data["cluster"] == "b"
    assert data["sources"]["ray"]["components"] == ["raylet"], "a list of scalars is replaced"
    assert "tenant" not in data["sinks"]["loki"], "null deletes"
    assert data["sinks"]["loki"]["endpoint"] == "http://loki:3100", "maps merge"
    assert [rule["name"] for rule in data["parsing"]["rules"]] == ["one", "two", "three", "four"]
    assert data["parsing"]["rules"][1] == {"name": "two", "when": {"component": "raylet"}, "add": {"team": "y"}}
    assert data["sinks"]["archive"]["from"] == ["ray"]
    assert not policy.given("sinks", "loki", "tenant")
    places = {
        path: str(policy.place(*path)) for path in [("cluster",), ("name",), ("parsing", "rules", 1, "add", "team")]
    }
    assert places == {
        ("cluster",): f"{files[1]}:1:10",
        ("name",): f"{files[0]}:2:7",
        ("parsing", "rules", 1, "add", "team"): f"{files[1]}:6:31",
    }
    assert policy.diagnostics == []


def test_an_error_in_a_merged_policy_names_the_file_of_the_value(write: Write) -> None:
    files = write(BASE, "sinks: {loki: {batch: {max_bytes: 5}}}\n", "name: null\n")
    with pytest.raises(PolicyError) as caught:
        load(files)
    assert [(str(one.place), one.path) for one in caught.value.diagnostics] == [
        (f"{files[1]}:1:35", "sinks.loki.batch.max_bytes"),
        (f"{files[2]}:1:7", "name"),
    ]


def test_a_deleted_key_can_come_back(write: Write) -> None:
    assert load(write(BASE, "cluster: null\n", "cluster: c\n")).data["cluster"] == "c"


def test_a_section_can_be_deleted(write: Write) -> None:
    policy = load(write(BASE, "parsing: {rules: null}\ncluster: null\n"))
    assert policy.data["parsing"]["rules"] == []
    assert "cluster" not in policy.data
    assert policy.data["sinks"]["loki"]["labels"]["fields"] == ["component", "level", "node"]


def test_a_null_that_deletes_nothing_is_remarked(write: Write) -> None:
    assert [(one.code, one.path) for one in load(write(BASE, "rotation: ~\n")).diagnostics] == [
        ("null-deletes-nothing", "rotation")
    ]


def test_a_rule_with_another_action_than_below_says_so(write: Write) -> None:
    with pytest.raises(PolicyError) as caught:
        load(write(BASE, "parsing: {rules: [{name: one, sample: 0.1}]}\n"))
    assert errors(caught) == [("conflict", "parsing.rules[0]")]
    assert "null" in caught.value.diagnostics[0].hint
    load(write(BASE, "parsing: {rules: [{name: one, drop: null, sample: 0.1}]}\n"))


def test_a_name_twice_in_one_file_is_no_override(write: Write) -> None:
    with pytest.raises(PolicyError) as caught:
        load(write(BASE, "parsing: {rules: [{name: new, drop: true}, {name: new, drop: true}]}\n"))
    assert errors(caught) == [("duplicate-name", "parsing.rules[4].name")]


def test_every_file_is_read_before_errors_are_told(write: Write) -> None:
    files = write("a: [\n", "b: ]\n")
    with pytest.raises(PolicyError) as caught:
        load(files)
    assert [one.place.file for one in caught.value.diagnostics if one.place] == files


# --- standard input, and what is no policy ---


def test_standard_input(write: Write) -> None:
    policy = load(["-"], stdin=io.StringIO(BASE))
    assert policy.files == ["-"]
    assert str(policy.place("name")) == "-:2:7"
    assert load([*write("cluster: b\n"), "-"], stdin=io.StringIO(BASE)).data["cluster"] == "a"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version: 1\nname: \xff\n", "not UTF-8 text (line 2)"),
        (b"version: 1\0", "NUL"),
        ("name: é".encode("latin-1"), "not UTF-8 text (line 1)"),
        (b"#" * 1_100_000, "larger than 1 MiB"),
    ],
)
def test_what_is_no_text_is_bad_usage(write: Write, content: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(").replace(")", r"\)")) as caught:
        load(write(content))
    assert caught.value.exit_code == 2


def test_what_is_no_file_is_bad_usage(tmp_path: Path) -> None:
    for files, said in (
        ([], "no policy file"),
        ([str(tmp_path)], "is a directory"),
        ([str(tmp_path / "nope.yaml")], "no such file"),
        ([str(tmp_path / "no\x1bpe.yaml")], r"no\?pe.yaml: no such file"),
        (["a\0b"], "not a file name"),
        (["x" * 5000], "name too long"),
        (["-", "-"], "only once"),
        (["-"], "no standard input"),
    ):
        with pytest.raises(UsageError, match=said):
            load(files)
    with pytest.raises(UsageError, match="not UTF-8"):
        load(["-"], stdin=io.StringIO("name: \udcff"))


# --- bombs ---


def bomb(width: int, depth: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb(10, 30),
        "\n".join(["a0: &a0 {k: 1}", *(f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: *a{n - 1}}}" for n in range(1, 25))]),
        "\n".join(["a0: &a0 [[[[[[[[x]]]]]]]]", *(f"a{n}: &a{n} [[[[[[*a{n - 1}]]]]]]" for n in range(1, 50))]),
        "a: " + "[" * 100_000,
        "a: " + "{a: " * 100_000,
        "\n".join("  " * n + "a:" for n in range(600)),
        "a:\n" + "- " * 100_000,
        "? " * 100_000,
        "version: 1\nx: [" + "1, " * 100_000 + "]",
    ],
    ids=["aliases", "merge-keys", "alias-depth", "brackets", "braces", "maps", "lists", "keys", "width"],
)
@pytest.mark.parametrize("parser", ["libyaml", "python"])
def test_bombs_fizzle(write: Write, monkeypatch: pytest.MonkeyPatch, text: str, parser: str) -> None:
    if parser == "python":
        monkeypatch.setattr(loading, "_LOADER", yaml.SafeLoader)
    began = time.monotonic()
    with pytest.raises(PolicyError) as caught:
        load(write(text))
    assert {one.code for one in caught.value.diagnostics} <= {"syntax", "unknown-key"}
    assert time.monotonic() - began < 5


def test_deep_conditions_are_fine_to_the_limit(write: Write) -> None:
    def nested(depth: int) -> str:
        return (
            BASE + "rotation: {}\n"
            if not depth
            else BASE.replace("{component: raylet}", "{not: " * depth + "{pid: 1}" + "}" * depth)
        )

    load(write(nested(26)))
    with pytest.raises(PolicyError) as caught:
        load(write(nested(40)))
    assert "levels deep" in caught.value.diagnostics[0].text
