"""One quoting filter a grammar. Text reaches an output through one of these or not at all.

A filter returns :class:`Quoted`; the environment refuses to print anything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from math import isfinite

from markupsafe import Markup

Quoted = Markup
"""Text that a quoting filter has made safe for its grammar."""

_INTERPOLATED = re.compile(r"\$(?=[\w.{$])|SECRET(?=\[)")
"""What Vector takes for a variable (up to 0.56, or from 0.57 with its flag) or for a secret, anywhere in the file:
`src/config/vars.rs`, `src/config/loading/secret.rs`."""
_UNPLAIN = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""What does not print, or what some reader takes for a byte order mark or the end of a line."""


def yaml(value: str | int | float | bool | None) -> Quoted:
    """A YAML scalar that YAML 1.1 and 1.2 parsers read as exactly this value (strings are always double-quoted)."""
    if isinstance(value, float):
        return Quoted(_decimal(value))
    if value is None or isinstance(value, bool | int):
        return Quoted(json.dumps(value))
    return Quoted(_UNPLAIN.sub(lambda m: f"\\u{_code(m[0]):04x}", json.dumps(value, ensure_ascii=False)))


def _code(char: str) -> int:
    code = ord(char)
    if 0xD800 <= code < 0xE000:
        raise ValueError("half of a surrogate pair is no text")
    return code


def _decimal(value: float) -> str:
    """A float with a point and without an exponent: YAML 1.1 takes `1e-07` for a string, and VRL has no exponents."""
    if not isfinite(value):
        raise ValueError(f"{value} is no number that a policy can hold")
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def vector_yaml(value: str | int | float | bool | None) -> Quoted:
    """A YAML scalar in which Vector finds neither a variable nor a secret: it looks for those in the text of the file,
    before YAML reads the escapes."""
    return Quoted(str(yaml(value)).replace("$", "\\u0024").replace("SECRET[", "SECRET\\u005b"))


def vector_regex(pattern: str) -> Quoted:
    """A regex in an option of Vector."""
    return vector_yaml(_rust(pattern))


def program(source: Quoted) -> Quoted:
    """A VRL expression, already quoted as VRL, as a YAML scalar of one line."""
    if not isinstance(source, Quoted):
        raise TypeError("not a quoted program")
    return vector_yaml(" ".join(str(source).split("\n")).strip())


def indented(source: Quoted, width: int) -> Quoted:
    """A program, already quoted in its own grammar, as the lines of a YAML block scalar; blank lines go."""
    if not isinstance(source, Quoted):
        raise TypeError("not a quoted program")
    return Quoted(("\n" + " " * width).join(line for line in str(source).split("\n") if line.strip()))


def vector_template(parts: str | Sequence[tuple[str, str]]) -> Quoted:
    """An option of Vector that is a template: literal text, or pieces that are `text`, a `field` or a format of the
    record's `time`. Neither `%` nor two braces can be escaped there: text that has no format of a time in it stays as
    it is, doubled signs too (tried on 0.57)."""
    written, fields = "", []
    for kind, text in [("text", parts)] if isinstance(parts, str) else parts:
        if kind == "field":
            fields.append(text)
            text = f"{{{{ {text} }}}}"
        elif kind == "text" and "%" in text:
            raise ValueError("Vector's templates have no escape for a percent sign")
        written += text
    if re.findall(r"\{\{([^}]*)\}\}", written) != [f" {field} " for field in fields]:
        raise ValueError("Vector's templates have no escape for two braces")
    return vector_yaml(written)


def vector_fields(fields: list[str]) -> Quoted:
    """A template of Vector that joins record fields."""
    return vector_yaml("|".join("{{ " + str(vrl_path(f))[1:] + " }}" for f in fields))


def vector_compression(value: tuple[str, int | None]) -> Quoted:
    """A compression setting: an algorithm, with its level where one is given."""
    algorithm, level = value
    if level is None:
        return yaml(algorithm)
    return Quoted(f"{{algorithm: {yaml(algorithm)}, level: {int(level)}}}")


def vrl_key(name: str) -> Quoted:
    """A key of a VRL object literal."""
    return Quoted('"' + str(vrl_name(name)) + '"')


def vector_secret(backend_and_key: str, before: str = "") -> Quoted:
    """A reference to a secret of one of the file's own backends, behind a word of shipgen's own; the line of a YAML
    block scalar. Vector puts the secret into the text of the file before it reads the YAML, and in such a line no
    character but the end of a line means anything."""
    if not re.fullmatch(r"[A-Za-z0-9_]+\.[A-Za-z0-9_.-]+", backend_and_key):
        raise ValueError(f"not a reference that Vector reads: {backend_and_key!r}")
    return Quoted(f"{before}SECRET[{backend_and_key}]")


def vector_env(name: str, before: str = "") -> Quoted:
    """A reference to an environment variable that must be set, for versions of Vector that expand them; the line of a
    YAML block scalar, for the same reason."""
    return Quoted(f"{before}${{{name}:?{name} is not set}}")


_VRL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\0": r"\0"})


def vrl_string(value: str) -> Quoted:
    """A VRL string expression. A dollar that Vector could take for a variable ends one literal and begins another."""

    def literal(text: str) -> str:
        escaped = text.translate(_VRL_ESCAPES)
        if found := _UNPLAIN.search(escaped.replace("\ufeff", "")):
            raise ValueError(f"VRL has no escape for {found[0]!r}")
        return '"' + escaped.replace("{{", r"\{{").replace("}}", r"\}}") + '"'

    cuts = [0, *(m.end() for m in _INTERPOLATED.finditer(value)), len(value)]
    literals = [literal(value[start:end]) for start, end in pairwise(cuts)]
    return Quoted(literals[0] if len(literals) == 1 else f"({' + '.join(literals)})")


_ASCII = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
"""What RE2 has in these classes. Rust has all of Unicode's digits, letters and blanks there."""
_CLASS_START = re.compile(r"\[\^?\]?")


def _tokens(pattern: str) -> Iterator[tuple[str, bool, int]]:
    """Escapes, starts of classes and single characters; whether they stand in a class; where they end."""
    in_class, at = False, 0
    while at < len(pattern):
        if pattern[at] == "\\":
            token = pattern[at : at + 2]
        elif pattern[at] == "[" and not in_class:
            # a `]` right after `[` or `[^` is a literal member of the class
            start = _CLASS_START.match(pattern, at)
            token = start[0] if start else "["
        else:
            token = pattern[at]
        at += len(token)
        in_class = (in_class or token[0] == "[") and token != "]"
        yield token, in_class, at


@lru_cache(maxsize=512)
def _rust(pattern: str) -> str:
    """A regex of the policy as Rust's engine reads it: its classes and boundaries are of ASCII only, as RE2's are.
    It has no quote, and no dollar or bracket that Vector could take for a variable or a secret."""
    out: list[str] = []
    for token, in_class, end in _tokens(pattern):
        char = token[-1]
        members = _ASCII.get(char.lower(), "") if len(token) == 2 and token[0] == "\\" else ""
        if members and char.islower():
            out.append(members if in_class else f"[{members}]")
        elif members:
            out.append(f"[^{members}]")
        elif token in (r"\b", r"\B"):
            out.append(f"(?-u:{token})")
        elif token in ("'", r"\'"):
            out.append(r"\x27")
        elif token == r"\$" or (token == "$" and in_class):
            out.append(r"\x24")
        elif token == "$" and _INTERPOLATED.match(pattern, end - 1):
            out.append(r"\z")
        elif _UNPLAIN.fullmatch(char):
            out.append(f"\\x{{{_code(char):x}}}")
        else:
            out.append(token)
    return "".join(out).replace("SECRET[", "SECRE[T][")


def vrl_regex(pattern: str) -> Quoted:
    """A VRL regex literal."""
    return Quoted(f"r'{_rust(pattern)}'")


def vrl_path(field: str) -> Quoted:
    """The path of a record field in VRL. Field names are `[a-z_][a-z0-9_]*` by the schema; anything else is quoted."""
    if re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", field):
        return Quoted("." + field)
    return Quoted('."' + field.replace("\\", "\\\\").replace('"', '\\"') + '"')


def vrl_name(name: str) -> Quoted:
    """A key or variable as VRL spells it bare; only names that shipgen or the schema fixes."""
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name):
        raise ValueError(f"not a bare name: {name!r}")
    return Quoted(name)


def vrl_int(value: int) -> Quoted:
    """A VRL integer."""
    return Quoted(str(int(value)))


def vrl_bool(value: bool) -> Quoted:
    """A VRL boolean."""
    return Quoted("true" if value else "false")


def env_value(value: str | int) -> Quoted:
    """A value in a file of `NAME=value` lines, read alike by docker, systemd and a shell: one that needs no quotes."""
    text = str(value)
    if not re.fullmatch(r"[A-Za-z0-9_./:+-]*", text):
        raise ValueError(f"{text!r} needs quotes, and readers of env files do not agree on those")
    return Quoted(text)


def java_property(value: str | int | bool) -> Quoted:
    """A key or a value in a file of Java properties: one that needs no escape (`java.util.Properties.load`)."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", text):
        raise ValueError(f"not a property that stands for itself: {text!r}")
    return Quoted(text)


def java_argument(text: str) -> Quoted:
    """An argument in a file that `java @FILE` reads: one that needs no quotes."""
    if not re.fullmatch(r"-[A-Za-z0-9._=/:-]+", text):
        raise ValueError(f"not an argument that stands for itself: {text!r}")
    return Quoted(text)


def _one_line(text: str) -> str:
    """Text without anything that some reader takes for the end of a line, or that does not print."""
    return re.sub(r"[^\x20-\x7e\u00a0-\u2027\u202a-\ud7ff\ue000-\U0010ffff]", "?", text)


def comment(text: str) -> Quoted:
    """Text in a comment line."""
    return Quoted(_one_line(text).replace("$", "(dollar)").replace("SECRET[", "SECRET ["))


def path_literal(path: str) -> Quoted:
    """A path in logrotate's grammar, double-quoted (globs work inside the quotes)."""
    return Quoted('"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"')


def env_name(name: str) -> Quoted:
    """The name of an environment variable."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"not the name of a variable: {name!r}")
    return Quoted(name)


def logrotate_word(value: str | int) -> Quoted:
    """A number, a user or a group in logrotate's grammar, which has no quotes for those."""
    text = str(value)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise ValueError(f"not a word that logrotate reads as one: {text!r}")
    return Quoted(text)


def code_span(text: str) -> Quoted:
    """Any text as a code span of Markdown: between more back-ticks than it has in a row."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, pad = "`" * (longest + 1), " " if longest else ""
    return Quoted(f"{fence}{pad}{_one_line(text)}{pad}{fence}")


def prose(text: str) -> Quoted:
    """A sentence of shipgen's own in Markdown: code spans stay, all other marks are taken literally."""
    parts = re.split("(`[^`]*`)", _one_line(text))
    return Quoted("".join(p if i % 2 else re.sub(r"[\\`*\[\]<>|]", r"\\\g<0>", p) for i, p in enumerate(parts)))


# -- Promtail: Go templates, and YAML that its optional expansion of variables (drone/envsubst, `-config.expand-env`)
# leaves as it is. That expansion changes `${`, `$$`, two backslashes and a backslash before a slash, and nothing else.

_EXPANDED = re.compile(r"\$[{$]|\\[\\/]")


def promtail_yaml(value: str | int | float | bool) -> Quoted:
    """A YAML scalar that means the same whether Promtail expands variables in the file or not."""
    if isinstance(value, bool | int | float):
        return Quoted(json.dumps(value))
    if value.isprintable() and value.isascii() and not _EXPANDED.search(value):
        return Quoted("'" + value.replace("'", "''") + "'")
    return Quoted('"' + "".join(c if c.isprintable() and c not in '"\\$' else _escape(c) for c in value) + '"')


def _escape(char: str) -> str:
    """A character by its number, as YAML and Go read it alike."""
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def promtail_env(name: str) -> Quoted:
    """A reference to an environment variable, for a Promtail that expands them: in a block scalar alone, as what it
    stands for is put there before the YAML is read."""
    return Quoted(f"${{{env_name(name)}}}")


def go_ms(milliseconds: int) -> Quoted:
    """A duration as Go reads it."""
    return Quoted(f"'{int(milliseconds)}ms'")


def go_string(value: str) -> Quoted:
    """A string literal of Go's templates: in back-ticks where that is the same text, else with all but the plainest
    characters escaped."""
    as_it_is = re.fullmatch(r"[ !#-;=?-_a-z{|}~]*", value) and not _EXPANDED.search(value) and "{{" not in value
    if "\\" in value and as_it_is:
        return Quoted(f"`{value}`")
    plain = " _.,:;=+*/()?!@#%&|~^-[]"
    return Quoted('"' + "".join(c if c.isascii() and (c.isalnum() or c in plain) else _escape(c) for c in value) + '"')


def go_number(value: int | float) -> Quoted:
    """A number in Go's templates."""
    return Quoted(repr(value))


def go_seconds(seconds: int) -> Quoted:
    """A number of seconds as Go counts durations."""
    return Quoted(str(int(seconds) * 1_000_000_000))


def go_field(name: str) -> Quoted:
    """A value that an earlier stage found, in Go's templates."""
    return Quoted("." + str(vrl_name(name)))


def go_key(name: str) -> Quoted:
    """What stands in front of a value in logfmt, a line for each, as a string of Go's templates."""
    return go_string(f"\n{vrl_name(name)}=")


def go_program(source: Quoted, width: int) -> Quoted:
    """A Go template whose actions stand between `<<` and `>>`, as the lines of a YAML block scalar. What is between the
    actions is white space and is trimmed, so only actions print."""
    if not isinstance(source, Quoted):
        raise TypeError("not a quoted program")
    lines = [line.strip() for line in str(source).replace("<<", "{{-").replace(">>", "-}}").split("\n")]
    text = ("\n" + " " * width).join(line for line in lines if line)
    if re.sub(r"\{\{-.*?-\}\}|\s", "", text) or _EXPANDED.search(text):
        raise ValueError("not a program of actions alone, or one that the expansion of variables would change")
    return Quoted(text)


def go_literal(text: str) -> Quoted:
    """A Go template that prints exactly this text, as a YAML scalar."""
    return promtail_yaml("{{ " + str(go_string(text)) + " }}" if text else "")


# -- Fluentd: its own grammar, in which nothing within single quotes is evaluated but an escaped quote and an escaped
# backslash (`lib/fluent/config/literal_parser.rb`, 1.19), and Ruby, whose single-quoted strings are the same.


def fluentd(value: str | int | bool) -> Quoted:
    """A value of a Fluentd option."""
    if isinstance(value, bool | int):
        return Quoted(json.dumps(value))
    return ruby_string(value)


def ruby_string(value: str) -> Quoted:
    """A Ruby string without interpolation, of one line."""
    if found := re.search(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]", value):
        raise ValueError(f"no place for {found[0]!r} in a single-quoted string")
    return Quoted("'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'")


def fluentd_json(value: object) -> Quoted:
    """Parameters of a plugin: JSON in ASCII, single-quoted."""
    return ruby_string(json.dumps(value, ensure_ascii=True, sort_keys=True, allow_nan=False))


def fluentd_ms(milliseconds: int) -> Quoted:
    """A duration as Fluentd reads it: seconds."""
    return Quoted(_decimal(milliseconds / 1000))


def fluentd_paths(paths: list[str]) -> Quoted:
    """Paths of a `tail` source, parted by `|`; `%` is strftime there."""
    if found := [path for path in paths if "|" in path]:
        raise ValueError(f"`|` parts paths: {found[0]!r}")
    return ruby_string("|".join(paths).replace("%", "%%"))


def fluentd_tag(tag: str) -> Quoted:
    """A tag, or a pattern of tags, in the head of a section."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+\.(?:[a-z0-9_]+|\*)", tag):
        raise ValueError(f"not a tag: {tag!r}")
    return Quoted(tag)


def fluentd_label(name: str) -> Quoted:
    """The label of a sink."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError(f"not the name of a label: {name!r}")
    return Quoted(f"@sink-{name}")


def ruby_source(pattern: str) -> str:
    """A regex of the policy as Onigmo in Ruby reads it: there `^` and `$` are the ends of lines, classes have other
    blanks than RE2's, words other letters, and groups and code points another spelling. A pattern that begins with
    `(?m)` means the ends of lines."""
    lines = pattern.startswith("(?m)")
    out: list[str] = []
    at = 0
    pattern = pattern.removeprefix("(?m)")
    for token, in_class, end in _tokens(pattern):
        char = token[-1]
        members = _ASCII.get(char.lower(), "") if len(token) == 2 and token[0] == "\\" else ""
        if at > end - len(token):  # the rest of a spelling that was translated already
            continue
        if members and char.islower():
            out.append(members if in_class else f"[{members}]")
        elif members:
            out.append(f"[^{members}]")
        elif token in (r"\b", r"\B"):
            out.append(f"(?a:{token})")
        elif token in ("^", "$") and not in_class and not lines:
            out.append({"^": r"\A", "$": r"\z"}[token])
        elif token == r"\x" and (found := _CODE_POINT.match(pattern, end)):
            out.append(rf"\u{{{found[1]}}}")
            at = found.end()
        elif token == "(" and pattern.startswith("?P<", end):
            out.append("(?<")
            at = end + 3
        elif _UNPLAIN.fullmatch(char) and char.isascii():
            out.append(f"\\x{ord(char):02x}")
        else:
            out.append(token)
    return "".join(out)


_CODE_POINT = re.compile(r"\{([0-9A-Fa-f]+)\}")


def ruby_regex(pattern: str) -> Quoted:
    """The source of a regex as a Ruby string."""
    return ruby_string(ruby_source(pattern))


def ruby_name(name: str) -> Quoted:
    """A constant of Ruby."""
    if not re.fullmatch(r"[A-Z][A-Z_]*", name):
        raise ValueError(f"not a constant: {name!r}")
    return Quoted(name)


# -- Fluent Bit: YAML in which `${` begins a variable and has no escape (`src/flb_env.c`, 5.1), lists parted by commas,
# Lua, and regexes for Onigmo itself.

_LUA_KEYWORDS = re.compile(
    "and|break|do|else|elseif|end|false|for|function|goto|if|in|local|nil|not|or|repeat|return|then|true|until|while"
)
_YAML_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def fluentbit(value: str | int | float | bool) -> Quoted:
    """A value of a Fluent Bit option."""
    if isinstance(value, str) and "${" in value:
        raise ValueError("Fluent Bit has no escape for `${`")
    return yaml(value)


def yaml_key(name: str) -> Quoted:
    """A key of a YAML mapping that needs no quotes."""
    if not re.fullmatch(r"[a-z][a-z0-9_.]*", name) or name in _YAML_WORDS:
        raise ValueError(f"not a plain key: {name!r}")
    return Quoted(name)


def fluentbit_grep(name: str, key: str) -> Quoted:
    """What `grep` looks for: records that the script gave a name under a key."""
    if not re.fullmatch(r"[a-z0-9_.+-]+", name):
        raise ValueError(f"not a name: {name!r}")
    return fluentbit(f"{vrl_name(key)} ^{re.escape(name)}$")


def fluentbit_paths(paths: list[str]) -> Quoted:
    """Paths of a `tail` input, parted by commas, around which blanks go."""
    if found := [path for path in paths if "," in path]:
        raise ValueError(f"`,` parts paths: {found[0]!r}")
    return fluentbit(",".join(re.sub("^ | $", "[ ]", path) for path in paths))


def fluentbit_parts(parts: list[str | dict[str, str]]) -> Quoted:
    """A value put together of text and environment variables of Fluent Bit."""
    out = [f"${{{env_name(part['env'])}}}" if isinstance(part, dict) else str(fluentbit(part))[1:-1] for part in parts]
    if any("}" in part or "$" in part[-1:] for part in parts[:-1] if isinstance(part, str)):
        raise ValueError("behind a `}` or a `$` Fluent Bit finds no variable")
    return Quoted('"' + "".join(out) + '"')


def fluentbit_tags(sources: list[str]) -> Quoted:
    """A regex for the tags of some sources."""
    if found := [name for name in sources if not re.fullmatch(r"[a-z][a-z0-9_-]*", name)]:
        raise ValueError(f"not the name of a source: {found[0]!r}")
    return fluentbit(f"^(?:{'|'.join(sources)})[.]")


def onigmo_source(pattern: str) -> str:
    """A regex of the policy as Onigmo itself reads it; without a slash, since Fluent Bit puts it between two."""
    changed = {r"\u": r"\x", "/": r"\x2f", r"\/": r"\x2f"}
    return "".join(changed.get(token, token) for token, _, _ in _tokens(ruby_source(pattern)))


def onigmo_regex(pattern: str) -> Quoted:
    """A regex in a multiline parser."""
    return fluentbit(f"/{onigmo_source(pattern)}/")


def onigmo_unless(pattern: str, anchored: bool) -> Quoted:
    """A regex in a multiline parser for lines in which a pattern is not found."""
    return fluentbit(f"/\\A(?!{'' if anchored else '.*'}(?:{onigmo_source(pattern)}))/")


def lua_string(value: str | bytes) -> Quoted:
    """A Lua string, in ASCII."""
    data = value.encode() if isinstance(value, str) else value
    plain = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03d}" for b in data)
    return Quoted('"' + plain.replace(r"\092", r"\\") + '"')


def lua_regex(pattern: str) -> Quoted:
    """The source of a regex as a Lua string."""
    return lua_string(onigmo_source(pattern))


def lua_field(name: str) -> Quoted:
    """What follows a table to reach its field."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and not _LUA_KEYWORDS.fullmatch(name):
        return Quoted(f".{name}")
    return Quoted(f"[{lua_string(name)}]")


def lua_key(name: str) -> Quoted:
    """A key of a Lua table's constructor."""
    return Quoted(f"[{lua_string(name)}]")


def lua(value: str | int | float | bool | None) -> Quoted:
    """A Lua constant."""
    if isinstance(value, str):
        return lua_string(value)
    return Quoted("nil" if value is None else json.dumps(value) if isinstance(value, bool) else repr(value))


def lua_list(values: list[str | int]) -> Quoted:
    """A Lua table of constants."""
    return Quoted("{" + ", ".join(lua(value) for value in values) + "}")


# -- Deployment: systemd's units, in which `%` begins a specifier everywhere and `$` a variable in commands, and YAML
# that holds whole files.


def _systemd_word(text: str) -> str:
    if found := re.search(r"[^ -~\u00a0-\u2027\u202a-\ud7ff\ue000-\U0010ffff]", text):
        raise ValueError(f"no place for {found[0]!r} in a unit of systemd")
    doubled = text.replace("%", "%%")
    if re.fullmatch(r"[A-Za-z0-9_/][A-Za-z0-9_/.:=,@%+-]*|-[A-Za-z0-9.=-]*[A-Za-z0-9][A-Za-z0-9_/.:=,@%+-]*", doubled):
        return doubled
    return '"' + doubled.replace("\\", "\\\\").replace('"', '\\"') + '"'


def systemd_words(words: Sequence[str]) -> Quoted:
    """Words of a setting of systemd, such as paths or assignments (systemd.syntax(7), Quoting)."""
    return Quoted(" ".join(_systemd_word(word) for word in words))


def systemd_command(argv: Sequence[str]) -> Quoted:
    """A command line of a unit (systemd.service(5), Command lines). The program is an absolute path."""
    if not argv[0].startswith("/"):
        raise ValueError(f"not an absolute path: {argv[0]!r}")
    return Quoted(" ".join(_systemd_word(word).replace("$", "$$") for word in argv))


def systemd_name(name: str) -> Quoted:
    """A name that needs no quotes: of a unit, a user, or a directory below one of systemd's own."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", name) or ".." in name:
        raise ValueError(f"not a plain name: {name!r}")
    return Quoted(name)


def tmpfiles_path(path: str) -> Quoted:
    """A path in a file of systemd-tmpfiles, in which `x` takes globs."""
    quoted = "".join(f"[{c}]" if c in "*?[" else c for c in path)
    return Quoted(_systemd_word(quoted))


def seconds(value: int) -> Quoted:
    """A number of seconds."""
    return Quoted(str(int(value)))


def yaml_text(text: str, width: int) -> Quoted:
    """A text of lines as a YAML block scalar, indented by ``width``; quoted where it has a character that a block can't
    hold."""
    if _UNPLAIN.search(text.replace("\n", "")) or not text.endswith("\n") or text.endswith("\n\n"):
        return yaml(text)
    lines = text.split("\n")[:-1]
    return Quoted("|2\n" + "\n".join(" " * width + line if line else "" for line in lines))


# -- Filebeat: YAML in which `${` begins a variable and `$` escapes `$` and `}` (`variables.go` of elastic/go-ucfg 0.8).


def filebeat(value: str | int | float | bool) -> Quoted:
    """A value of a Filebeat setting."""
    return yaml(value.replace("$", "$$") if isinstance(value, str) else value)


def filebeat_name(node: str | dict[str, str]) -> Quoted:
    """The name of the node: text, or a reference to an environment variable that may be missing. Empty text is the
    name of the host."""
    return Quoted(f'"${{{env_name(node["env"])}:}}"') if isinstance(node, dict) else filebeat(node)


def logql_string(text: str) -> str:
    """A string of LogQL or PromQL, which are Go's: part of an expression that is quoted once more as what holds it."""
    return json.dumps(text, ensure_ascii=False)


def json_document(value: object) -> Quoted:
    """A whole document of JSON."""
    return Quoted(json.dumps(value, indent=2, ensure_ascii=False))


FILTERS: dict[str, Callable[..., Quoted]] = {
    f.__name__: f
    for f in (
        *(yaml_key, fluentbit, fluentbit_grep, fluentbit_paths, fluentbit_parts, fluentbit_tags),
        *(filebeat, filebeat_name),
        *(onigmo_regex, onigmo_unless, lua, lua_regex, lua_field, lua_key, lua_list),
        *(yaml, vector_yaml, vector_regex, program, indented, vector_template, vector_fields, vector_compression),
        *(vector_secret, vector_env, vrl_string, vrl_regex, vrl_path, vrl_key, vrl_name, vrl_int, vrl_bool),
        *(java_property, java_argument, env_name, env_value, path_literal, logrotate_word, comment, code_span, prose),
        *(promtail_yaml, promtail_env, go_string, go_number, go_field, go_key, go_ms, go_seconds),
        *(go_program, go_literal),
        *(fluentd, fluentd_json, fluentd_ms, fluentd_paths, fluentd_tag, fluentd_label),
        *(ruby_string, ruby_regex, ruby_name),
        *(json_document, systemd_words, systemd_command, systemd_name, tmpfiles_path, seconds, yaml_text),
    )
}
