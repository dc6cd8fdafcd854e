"""Each filter against its grammar: what it writes is read back as exactly what it was given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import re2
import yaml
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from making import HOSTILE, SECRET, VARIABLE, run

from shipgen.policy.regex import RegexError, check
from shipgen.rendering import quoting
from shipgen.rendering.environment import environment, templates_dir

FEW = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))

OTHER_LINE_ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
texts = st.lists(
    st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=("Cs",)), max_size=4), max_size=5
).map("".join)
any_texts = st.lists(texts | st.sampled_from(OTHER_LINE_ENDS), max_size=4).map("".join)
clean = texts.filter(lambda t: not quoting._UNPLAIN.search(t.replace("\ufeff", "")))
"""Text as a policy can hold it: without control characters."""


def not_interpolated(text: str) -> None:
    assert not VARIABLE.search(text), text
    assert not SECRET.search(text), text


class Core(yaml.SafeLoader):
    """YAML 1.2's core schema: `no` and `1_000` are text, `1e3` is a number."""


Core.yaml_implicit_resolvers = {}
for tag, regex, first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"null|Null|NULL|~|", "nN~"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
     "-+.0123456789"),
):
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{regex})$"), list(first))

LOADERS = [yaml.SafeLoader, Core, *([yaml.CSafeLoader] if hasattr(yaml, "CSafeLoader") else [])]


def read(text: str) -> list[Any]:
    return [yaml.load(f"key: {text}\nlist: [{text}, 1]\nmap: {{a: {text}}}\n", Loader=loader) for loader in LOADERS]


# --- YAML ---


@FEW
@given(any_texts)
@example("".join(chr(c) for c in [*range(0x100), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF, 0x1F600]))
@pytest.mark.parametrize("quote", [quoting.yaml, quoting.vector_yaml])
def test_yaml_gives_the_text_back(quote: Callable[[str], str], text: str) -> None:
    written = quote(text)
    assert len(written.splitlines()) == 1
    assert read(written) == [{"key": text, "list": [text, 1], "map": {"a": text}}] * len(LOADERS)


@FEW
@given(any_texts)
def test_vector_finds_nothing_in_its_yaml(text: str) -> None:
    not_interpolated(f"a: {quoting.vector_yaml(text)}")


@FEW
@given(st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False))
@example(1e-07)
@example(5e22)
@example(1e-300)
def test_yaml_numbers_are_read_alike(value: float | None) -> None:
    for parsed in read(quoting.vector_yaml(value)):
        assert parsed["key"] == value
        assert type(parsed["key"]) is type(value)


@pytest.mark.parametrize("value", ["\ud800", float("nan"), float("inf")])
def test_what_is_no_value_is_refused(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"half of a surrogate|no number"):
        quoting.yaml(value)


def test_vector_references_are_what_vector_reads() -> None:
    assert yaml.safe_load(quoting.vector_secret("files0.loki-token_2.txt")) == "SECRET[files0.loki-token_2.txt]"
    assert yaml.safe_load(quoting.vector_secret("files0.a", "ApiKey ")) == "ApiKey SECRET[files0.a]"
    assert yaml.safe_load(quoting.vector_env("A", "ApiKey ")) == "ApiKey ${A:?A is not set}"
    assert SECRET.fullmatch(yaml.safe_load(quoting.vector_secret("files0.a.b")))
    found = VARIABLE.search(quoting.vector_env("LOKI_TOKEN"))
    assert found
    assert (found[2], found[3]) == ("LOKI_TOKEN", ":?")
    with pytest.raises(ValueError, match="not a reference"):
        quoting.vector_secret("files0.a]b")


@FEW
@given(clean.filter(lambda t: "{{" not in t and "%" not in t))
def test_vector_template_of_plain_text_is_that_text(text: str) -> None:
    assert yaml.safe_load(quoting.vector_template(text)) == text
    assert yaml.safe_load(quoting.vector_template([("text", text)])) == text


def test_vector_template_of_pieces() -> None:
    pieces = [("text", "a="), ("field", "@key.a"), ("text", "/b-"), ("time", "%F"), ("text", "/")]
    assert yaml.safe_load(quoting.vector_template(pieces)) == "a={{ @key.a }}/b-%F/"


@pytest.mark.parametrize("pieces", [
    "/a/{{ x }}", "100%", "%F", "%%", [("text", "{"), ("field", "x")], [("text", "{{ x }}"), ("field", "x")],
    [("text", "{"), ("text", "{ x }}")], [("time", "%F"), ("text", "%")],
])
def test_vector_template_has_no_escapes(pieces: str | list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="no escape"):
        quoting.vector_template(pieces)


def test_vector_fields_and_compression() -> None:
    assert yaml.safe_load(quoting.vector_fields(["file", "pid"])) == "{{ file }}|{{ pid }}"
    assert yaml.safe_load(quoting.vector_compression(("gzip", None))) == "gzip"
    assert yaml.safe_load(quoting.vector_compression(("gzip", 5))) == {"algorithm": "gzip", "level": 5}


# --- VRL ---


@FEW
@given(clean)
@example("\0\t\r\n")
def test_vrl_string_gives_the_text_back(text: str) -> None:
    written = quoting.vrl_string(text)
    not_interpolated(written)
    assert run(f".x = {written}\n.same = .x == {written}", {}) == {"x": text, "same": True}


@FEW
@given(clean)
def test_vrl_survives_a_yaml_block(text: str) -> None:
    source = quoting.Quoted(f".x = {quoting.vrl_string(text)}\n\n.y = 1")
    written = f"a:\n  source: |\n    {quoting.indented(source, 4)}\nb: 1\n"
    for loader in LOADERS:
        parsed = yaml.load(written, Loader=loader)
        assert parsed["b"] == 1
        assert run(parsed["a"]["source"], {}) == {"x": text, "y": 1}
    condition = quoting.Quoted(f"\n.x ==\n{quoting.vrl_string(text)}\n")
    assert run(f".found = ({yaml.safe_load(quoting.program(condition))})", {"x": text}) == {"x": text, "found": True}


@pytest.mark.parametrize("text", ["\x01", "\x85", "\u2028", "\ud800", "\x7f"])
def test_vrl_string_refuses_what_vrl_cannot_say(text: str) -> None:
    with pytest.raises(ValueError, match="no escape"):
        quoting.vrl_string(text)


RESERVED = [
    "abort", "as", "break", "continue", "else", "false", "for", "if", "impl", "in", "let", "loop", "null", "return",
    "self", "std", "then", "this", "true", "type", "until", "use", "while", "del", "now", "string", "timestamp",
]


@pytest.mark.parametrize("name", [*RESERVED, "a", "_x", "A1", "camelCase"])
def test_vrl_names_may_be_words_of_the_language(name: str) -> None:
    path, bare, key = quoting.vrl_path(name), quoting.vrl_name(name), quoting.vrl_key(name)
    program = f"{path} = 1\n.o = {{{key}: {path}}}\n.p = .o.{bare}\n.@h = {{{key}: 2}}\n.q = .@h.{bare}\ndel(.@h)"
    assert run(program, {}) == {name: 1, "o": {name: 1}, "p": 1, "q": 2}


@FEW
@given(clean.filter(bool))
def test_vrl_path_takes_any_name(name: str) -> None:
    assume("{{" not in name)
    assert run(f"{quoting.vrl_path(name)} = 1", {}) == {name: 1}


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a.b", "é", "a\n"])
def test_bare_names_are_checked(name: str) -> None:
    for quote in (quoting.vrl_name, quoting.vrl_key, quoting.env_name):
        with pytest.raises(ValueError, match="not"):
            quote(name)


def test_vrl_numbers() -> None:
    assert run(f".x = {quoting.vrl_int(2**63 - 1)}\n.y = {quoting.vrl_bool(True)}", {}) == {"x": 2**63 - 1, "y": True}


# --- regexes ---

PIECES = [
    "a", "k", "s", "K", "_", "é", "日", "0", " ", "-", "'", '"', "/", "}", "]", "\\$", "\\'", "\\\\", "\\.", "\\[",
    "\\]", "\\-", "\\/", "\\x41", "\\x{1F600}", "\\x{212A}", ".", "^", "$", "$a", "$\\{", "\\A", "\\z", "\\b", "\\B",
    "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\t", "\\n", "|", "(?:", "(", "(?P<g>", ")", "*", "+", "?", "+?", "{2}",
    "{0,2}", "SECRET", "[a.b]", "[$]", "[$_]", "[\\d]", "[^\\d]", "[\\D]", "[^\\D]", "[\\w.-]", "[^\\w$]", "[\\W_]",
    "[^\\W\\d]", "[\\s]", "[^\\s]", "[\\S\\n]", "[a-z\\d]", "['\"]", "[^']", "[\\]\\[]", "[{}]", "[é-ü\\w]",
]
SAMPLES = [
    "", "a", "k", "K", "s", "S", "ſ", "\u212a", "é", "É", "日", "日a", "a日", "aé", "éa", "é a", "0", "7", "٣", "7٣",
    "１", " ", "\u00a0", "\u2003", "\x0b", "\x0c", "\t", "\n", "a\n", "a b", "a\u00a0b", "_", "-", "'", '"', "$", "$a",
    "\\", "]", "}", "/", "A", "😀", "SECRETa", "SECRET[a.b]", "ab12_", "a1 b2", "\x85", "\u2028", "x٣y", "٣a",
    "Ünicode", "²",
]


@cache
def google(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def agree(pattern: str, literal: str) -> None:
    """RE2 and Rust find the same in every sample: whether, and which text."""
    program = (
        "map_values(array!(.texts)) -> |text| {\n"
        f"  found, err = parse_regex(string!(text), {literal}, numeric_groups: true)\n"
        '  if err == null { get(found, ["0"]) ?? null } else { null }\n}'
    )
    after = run(f".found = {program}", {"texts": SAMPLES})
    assert after is not None
    for text, found in zip(SAMPLES, after["found"], strict=True):
        match = google(pattern).search(text)
        if match and not match[0] and r"\B" in pattern:
            continue  # RE2 finds it between the bytes of a character, where Rust does not look
        assert (match[0] if match else None) == found, f"{pattern!r} in {text!r}: {literal}"


patterns = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)


@settings(FEW, max_examples=400)
@given(st.sampled_from(["", "", "(?i)"]), patterns)
@example("", r"\bk\b")
@example("(?i)", r"[\w]+")
@example("(?i)", r"[^\w]+")
@example("", r"\$$")
@example("", r"a$b|$")
def test_re2_and_rust_agree(flags: str, body: str) -> None:
    pattern = flags + body
    try:
        check(pattern)
    except RegexError:
        assume(False)
    literal = quoting.vrl_regex(pattern)
    not_interpolated(literal)
    agree(pattern, literal)
    in_yaml = quoting.vector_regex(pattern)
    not_interpolated(in_yaml)
    assert [parsed["key"] for parsed in read(in_yaml)] == [literal[2:-1]] * len(LOADERS)


@pytest.mark.parametrize("pattern", [
    r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B", r"[\d]", r"[^\d]", r"[\D]", r"[^\D]", r"[\w]", r"[^\w]",
    r"[\W]", r"[^\W]", r"[\s]", r"[^\s]", r"[\S]", r"[^\S]", r"[\d\s]", r"[^\d\s]", r"[\W\d]", r"[^\W\d_]", r"^\w+$",
    r"^\S+$", r"\bé", r"é\b", r"\d{2}", r"[-\w]", r"[\w-]", r"[^\w\W]", r"a\B", r"\Ba",
])
@pytest.mark.parametrize("flags", ["", "(?i)"])
def test_classes_are_ascii_on_both(pattern: str, flags: str) -> None:
    check(flags + pattern)
    agree(flags + pattern, quoting.vrl_regex(flags + pattern))


@FEW
@given(clean)
def test_a_regex_of_any_text_escaped(text: str) -> None:
    pattern = "".join(f"\\x{{{ord(c):x}}}" if not c.isalnum() or not c.isascii() else c for c in text)
    for written in (pattern, re.escape(text) if text.isascii() and "\n" not in text else pattern):
        literal = quoting.vrl_regex(f"^(?:{written})$")
        not_interpolated(literal)
        assert run(f".found = match(string!(.t), {literal})", {"t": text}) == {"t": text, "found": True}


def test_control_characters_do_not_end_a_regex() -> None:
    literal = quoting.vrl_regex("\n\u2028$")
    after = run(f".found = match(string!(.t), {literal})", {"t": "a\n\u2028"})
    assert after == {"t": "a\n\u2028", "found": True}
    assert len(quoting.vrl_regex("a\nb\u2028c\x00").splitlines()) == 1


# --- the other grammars ---


@FEW
@given(any_texts)
def test_a_comment_stays_one(text: str) -> None:
    written = quoting.comment(text)
    not_interpolated(written)
    assert len(f"# {written}".splitlines()) == 1
    assert [yaml.load(f"# {written}\nkey: 1\n", Loader=loader) for loader in LOADERS] == [{"key": 1}] * len(LOADERS)


@FEW
@given(clean.filter(bool))
def test_a_path_for_logrotate(text: str) -> None:
    written = quoting.path_literal(f"/{text}")
    assert shlex.split(written) == [f"/{text}"]  # the same two escapes; test_node runs the real one


@pytest.mark.parametrize("value", ["a b", "$X", "'a'", "a#b", "é", "a\nb", "\\"])
def test_env_values_that_need_quotes_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="needs quotes"):
        quoting.env_value(value)
    with pytest.raises(ValueError, match="not a word"):
        quoting.logrotate_word(value)


def test_env_values_and_words() -> None:
    assert str(quoting.env_value(67108864)) == "67108864"
    assert str(quoting.env_value("json")) == "json"
    assert str(quoting.logrotate_word("a.b-c")) == "a.b-c"


@FEW
@given(any_texts)
def test_a_code_span_ends_where_it_should(text: str) -> None:
    written = str(quoting.code_span(text))
    assert len(written.splitlines()) <= 1
    fence = re.match("`+", written)
    assert fence
    inside = written[len(fence[0]) : -len(fence[0])]
    assert written.endswith(fence[0])
    assert not re.search(f"(?<!`){fence[0]}(?!`)", inside)


# --- all of them ---


def test_programs_must_be_quoted_before() -> None:
    for quote in (quoting.program, lambda text: quoting.indented(text, 2)):
        with pytest.raises(TypeError, match="not a quoted program"):
            quote("a")


def test_every_filter_is_registered_and_used() -> None:
    used = {
        found
        for path in templates_dir().rglob("*.j2")
        for found in re.findall(r"\|\s*([a-z_]+)", "".join(re.findall(r"\{\{.*?\}\}", path.read_text(), re.DOTALL)))
    }
    assert set(quoting.FILTERS) <= set(environment().filters)
    assert set(quoting.FILTERS) <= used | {"yaml"}
