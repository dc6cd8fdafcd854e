"""One quoting filter a grammar. Text reaches an output through one of these or not at all.

A filter returns :class:`Quoted`; the environment refuses to print anything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from markupsafe import Markup

Quoted = Markup
"""Text that a quoting filter has made safe for its grammar."""

_INTERPOLATED = re.compile(r"\$(?=[\w.{$])|SECRET(?=\[)")
"""What Vector takes for a variable (up to 0.56, or from 0.57 with its flag) or for a secret, anywhere in the file:
`src/config/vars.rs`, `src/config/loading/secret.rs`."""


def yaml(value: str | int | float | bool | None) -> Quoted:
    """A YAML scalar that YAML 1.1 and 1.2 parsers read as exactly this value (strings are always double-quoted)."""
    if value is None or isinstance(value, bool | int | float):
        return Quoted(json.dumps(value))
    return Quoted(json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f"))


def vector_yaml(value: str | int | float | bool | None) -> Quoted:
    """A YAML scalar in which Vector finds neither a variable nor a secret: it looks for those in the text of the file,
    before YAML reads the escapes."""
    return Quoted(str(yaml(value)).replace("$", "\\u0024").replace("SECRET[", "SECRET\\u005b"))


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


def vector_template(text: str) -> Quoted:
    """Literal text in an option of Vector that is a template: `%` is strftime there."""
    if "{{" in text:
        raise ValueError("Vector's templates have no escape for two braces")
    return vector_yaml(text.replace("%", "%%"))


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


def vector_secret(backend_and_key: str) -> Quoted:
    """A reference to a secret of one of the file's own backends."""
    if not re.fullmatch(r"[A-Za-z0-9_]+\.[A-Za-z0-9_.-]+", backend_and_key):
        raise ValueError(f"not a reference that Vector reads: {backend_and_key!r}")
    return Quoted(f'"SECRET[{backend_and_key}]"')


def vector_env(name: str) -> Quoted:
    """A reference to an environment variable that must be set, for versions of Vector that expand them."""
    return Quoted(f'"${{{name}:?{name} is not set}}"')


def vrl_string(value: str) -> Quoted:
    """A VRL string expression. A dollar that Vector could take for a variable ends one literal and begins another."""

    def literal(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return '"' + escaped.replace("\r", "\\r").replace("{{", "\\{{").replace("}}", "\\}}") + '"'

    parts = _INTERPOLATED.sub(lambda m: m[0] + "\0", value).split("\0")
    return Quoted(" + ".join(literal(p) for p in parts) if len(parts) == 1 else
                  "(" + " + ".join(literal(p) for p in parts) + ")")


def vrl_regex(pattern: str) -> Quoted:
    """A VRL regex literal. Quotes are escaped, and no dollar stays that Vector could take for a variable."""
    out: list[str] = []
    in_class = False
    i = 0
    while i < len(pattern):
        c = pattern[i]
        if c == "\\" and i + 1 < len(pattern):
            out.append(r"\x24" if pattern[i + 1] == "$" else pattern[i : i + 2] if pattern[i + 1] != "'" else r"\x27")
            i += 2
            continue
        if c == "[" and not in_class:
            in_class = True
            out.append(c)
            # a `]` right after `[` or `[^` is a literal member of the class
            if pattern[i + 1 : i + 2] == "^":
                out.append("^")
                i += 1
            if pattern[i + 1 : i + 2] == "]":
                out.append("]")
                i += 1
        elif c == "]" and in_class:
            in_class = False
            out.append(c)
        elif c == "'":
            out.append(r"\x27")
        elif c == "$" and in_class:
            out.append(r"\x24")
        elif c == "$" and _INTERPOLATED.match(pattern, i):
            out.append(r"\z")
        else:
            out.append(c)
        i += 1
    return Quoted("r'" + "".join(out).replace("SECRET[", "SECRE[T][") + "'")


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


def vrl_float(value: float) -> Quoted:
    """A VRL float (always with a point)."""
    return Quoted(repr(float(value)))


def env_value(value: str | int) -> Quoted:
    """A value in a file of `NAME=value` lines, read alike by docker, systemd and a shell: no quoting, so no need for any."""
    text = str(value)
    if not re.fullmatch(r"[A-Za-z0-9_./:+-]*", text):
        raise ValueError(f"{text!r} needs quotes, and readers of env files do not agree on those")
    return Quoted(text)


def _one_line(text: str) -> str:
    """Text without anything that some reader takes for the end of a line, or that does not print."""
    return re.sub(r"[^\x20-\x7e\u00a0-\u2027\u202a-\ud7ff\ue000-\U0010ffff]", "?", text)


def comment(text: str) -> Quoted:
    """Text in a comment line."""
    return Quoted(_one_line(text).replace("$", "(dollar)"))


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


FILTERS: dict[str, Callable[..., Quoted]] = {
    f.__name__: f for f in (yaml, vector_yaml, program, indented, vector_template, vector_fields, vector_compression, vrl_key, vector_secret, vector_env, vrl_string, vrl_regex, vrl_path, vrl_name, vrl_int, vrl_bool, vrl_float,
                            env_value, env_name, comment, path_literal, logrotate_word, code_span, prose)
}
