"""Regular expressions that every shipper reads alike.

Shippers bring RE2 (Go), Oniguruma (Fluent Bit, Fluentd) or Rust's regex (Vector). A scanner refuses, at its position,
all that one of them lacks or reads differently; what is left is judged by RE2 and Oniguruma themselves.
"""

from __future__ import annotations

import re
from typing import Final

_GROUP_NAME = re.compile(r"\(\?P<([a-z_][a-z0-9_]*)>")
_REPEAT = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_HEX = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")

_TOKEN = re.compile(r"\\x\{[0-9A-Fa-f]*\}|\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_UNLIMITED = re.compile(r"[*+]|\{[0-9]+,\}")

# The most that RE2 repeats.
_MAX_REPEAT: Final = 1000
_MAX_LENGTH: Final = 4096
# Rust's regex gives up at 250.
_MAX_NESTING: Final = 100

_CLASSES: Final = "dDwWsS"
_CONTROLS: Final = "tnrf"
_ANCHORS: Final = "bBAz"
_WHY_ESCAPE: Final = {
    "Z": "the anchor `\\Z`; write `$`",
    "G": "the anchor `\\G`",
    "h": "`\\h` (engines read it differently); write `[ \\t]` or `[0-9a-fA-F]`",
    "H": "`\\H` (engines read it differently)",
    "R": "`\\R`; write `\\r?\\n`",
    "K": "`\\K`",
    "X": "`\\X`",
    "Q": "quoting with `\\Q`; escape the characters one by one",
    "E": "quoting with `\\E`; escape the characters one by one",
    "p": "a Unicode property `\\p`; write the characters or ranges meant",
    "P": "a Unicode property `\\P`; write the characters or ranges meant",
    "k": "a backreference",
    "g": "a backreference or subroutine call",
    "u": "`\\u`; write `\\x{...}`",
    "U": "`\\U`; write `\\x{...}`",
    "v": "`\\v` (engines read it differently); write `\\x0B`",
    "a": "`\\a`; write `\\x07`",
    "e": "`\\e`; write `\\x1B`",
    "<": "`\\<`; write `<`",
    ">": "`\\>`; write `>`",
}


class RegexError(ValueError):
    """The pattern is refused; ``position`` counts characters from 1, 0 means the pattern as a whole.

    ``code`` tells what is no pattern at all from what only some shippers read.
    """

    def __init__(self, text: str, position: int = 0, *, code: str = "regex-syntax") -> None:
        super().__init__(f"character {position} of the pattern: {text}" if position else text)
        self.position = position
        self.code = code


def check(pattern: str, *, may_be_empty: bool = True) -> tuple[str, ...]:
    """The names of the groups of ``pattern``; :class:`RegexError` where it is outside the common subset.

    >>> check(r"^(?P<level>[A-Z]+) ")
    ('level',)
    """
    if not pattern:
        raise RegexError("the pattern is empty")
    if len(pattern) > _MAX_LENGTH:
        raise RegexError(f"the pattern is longer than {_MAX_LENGTH} characters")
    names = _Scanner(pattern).scan()
    _judge(pattern, names, may_be_empty)
    return names


def nests_repetitions(pattern: str) -> bool:
    """Whether a repetition without a limit stands in another: on some texts an engine that backtracks then takes twice
    as long for each character more, whereas RE2 and Rust's regex do not.

    >>> nests_repetitions(r"(?:[a-z]+,?)*;"), nests_repetitions(r"[a-z]+(,[0-9]{2})*;")
    (True, False)
    """
    groups, at = [False], 0
    while token := _TOKEN.match(pattern, at):
        at = token.end()
        repeated = _UNLIMITED.match(pattern, at) is not None
        if token[0].startswith("("):
            groups.append(False)
        elif token[0] == ")" and len(groups) > 1:
            inside = groups.pop()
            if inside and repeated:
                return True
            groups[-1] |= inside or repeated
        else:
            groups[-1] |= repeated
    return False


def _judge(pattern: str, names: tuple[str, ...], may_be_empty: bool) -> None:
    # Both engines are compiled code: loaded only for policies that have patterns.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "invalid"
        raise RegexError(
            f"RE2 refuses the pattern: {reason.decode() if isinstance(reason, bytes) else reason}"
        ) from None
    if not may_be_empty:
        # Without lookaround a match of nothing shows at one of these: no text, a text's edge, between words.
        for probe in ("", "a", " a "):
            if any(match.start() == match.end() for match in compiled.finditer(probe)):
                text = "the pattern matches the empty string, so it would match everywhere; `+` wants at least one"
                raise RegexError(text, code="regex-matches-empty")
    try:
        import onigurumacffi
    except ImportError:  # there is no build for every machine; the scanner alone then keeps to the subset
        return
    try:
        onigurumacffi.compile(_GROUP_NAME.sub(lambda match: f"(?<{match[1]}>", pattern) if names else pattern)
    except onigurumacffi.OnigError as error:
        raise RegexError(f"Oniguruma refuses the pattern: {error}") from None


class _Scanner:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.names: list[str] = []

    def refuse(self, text: str, at: int | None = None, *, code: str = "regex-syntax") -> RegexError:
        return RegexError(text, (self.at if at is None else at) + 1, code=code)

    def outside(self, what: str, at: int | None = None) -> RegexError:
        return self.refuse(f"not every shipper reads {what}", at, code="regex-outside-subset")

    def scan(self) -> tuple[str, ...]:
        """Walk over the pattern once; nesting is a list, so that depth costs no recursion."""
        pattern = self.pattern
        open_groups: list[int] = []
        quantifiable = False  # may a quantifier follow here?
        if pattern.startswith("(?i)"):
            self.at = 4
            if self.at == len(pattern):
                raise self.refuse("nothing follows the flag", 0)
        while self.at < len(pattern):
            char = pattern[self.at]
            if char == "\\":
                quantifiable = self.escape()
            elif char == "[":
                self.character_class()
                quantifiable = True
            elif char == "(":
                open_groups.append(self.at)
                if len(open_groups) > _MAX_NESTING:
                    raise self.outside(f"groups nested more than {_MAX_NESTING} deep")
                self.group()
                quantifiable = False
            elif char == ")":
                if not open_groups:
                    raise self.refuse("this `)` closes nothing; write `\\)` for the character")
                open_groups.pop()
                self.at += 1
                quantifiable = True
            elif char in "*+?{":
                self.quantifier(quantifiable)
                quantifiable = False
            elif char in "^$|":
                self.at += 1
                quantifiable = False
            else:
                self.at += 1
                quantifiable = True
        if open_groups:
            raise self.refuse("this `(` is not closed; write `\\(` for the character", open_groups[-1])
        return tuple(self.names)

    def quantifier(self, quantifiable: bool) -> None:
        start = self.at
        char = self.pattern[start]
        fixed = False
        if char == "{":
            match = _REPEAT.match(self.pattern, start)
            if match is None:
                raise self.outside("a `{` that is no repetition such as `{2,5}`; write `\\{` for the character")
            low, high = int(match[1][:6]), int(match[3][:6]) if match[3] else None
            if low > _MAX_REPEAT or (high is not None and high > _MAX_REPEAT):
                raise self.refuse(f"a repetition may go up to {_MAX_REPEAT}")
            if high is not None and high < low:
                raise self.refuse("the repetition ends below its start")
            fixed = match[2] is None
            self.at = match.end()
        else:
            self.at += 1
        if not quantifiable:
            previous = self.pattern[start - 1] if start else ""
            if previous and (previous in "*+?" or previous == "}"):
                if char == "+":
                    raise self.outside("a possessive quantifier", start)
                raise self.outside("a quantifier on a quantifier; use a group", start)
            way_out = "; any text is `.*`, and a pattern need not begin at the start" if char == "*" else ""
            raise self.refuse(f"there is nothing here that `{char}` could repeat{way_out}", start)
        if self.pattern[self.at : self.at + 1] == "?":
            if fixed:
                raise self.outside("a lazy fixed repetition `{n}?`; leave the `?` out", start)
            self.at += 1

    def escape(self) -> bool:
        char = self.pattern[self.at + 1 : self.at + 2]
        if char == "x":
            self.hexadecimal()
            return True
        if char in _ANCHORS and char:
            self.at += 2
            return False
        self.simple_escape(char, _CLASSES + _CONTROLS)
        return True

    def simple_escape(self, char: str, letters: str) -> None:
        if not char:
            raise self.refuse("the pattern ends with a single backslash")
        if char in _WHY_ESCAPE:
            raise self.outside(_WHY_ESCAPE[char])
        if char == "0":
            raise self.outside("an octal escape; write `\\x00`")
        if char.isdigit():
            raise self.outside("a backreference; write the text out")
        if (char.isalpha() or char == "_" or not char.isascii()) and char not in letters:
            raise self.outside(f"the escape `\\{char}`")
        self.at += 2

    def hexadecimal(self) -> str:
        match = _HEX.match(self.pattern, self.at)
        if match is None:
            raise self.refuse("`\\x` takes two hexadecimal digits, or up to six in braces")
        value = int(match[1] or match[2], 16)
        if match[1] and value > 0x7F:
            raise self.outside("`\\x` above 7F as one character; write `\\x{...}`")
        if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            raise self.refuse("there is no such character")
        self.at = match.end()
        return chr(value)

    def group(self) -> None:
        start = self.at
        rest = self.pattern[start:]
        if rest.startswith("(*"):
            raise self.outside("a verb `(*`")
        if not rest.startswith("(?"):
            self.at += 1
            return
        if rest.startswith("(?:"):
            self.at += 3
            return
        if rest.startswith("(?P<"):
            match = _GROUP_NAME.match(self.pattern, start)
            if match is None:
                raise self.refuse("a group name is a-z, 0-9 and `_`, no digit first, then `>`")
            if match[1] in self.names:
                raise self.refuse(f"a second group is called {match[1]}")
            self.names.append(match[1])
            self.at = match.end()
            return
        for opening, what in (
            ("(?=", "a lookahead `(?=`; in `when`, a second condition can say it"),
            ("(?!", "a lookahead `(?!`; in `when`, a second condition under `not` can say it"),
            ("(?<=", "a lookbehind `(?<=`; in `when`, a second condition can say it"),
            ("(?<!", "a lookbehind `(?<!`; in `when`, a second condition under `not` can say it"),
            ("(?<", "a group named `(?<name>`; write `(?P<name>`"),
            ("(?'", "a group named `(?'name'`; write `(?P<name>`"),
            ("(?P", "`(?P` without `<name>`"),
            ("(?>", "an atomic group `(?>`"),
            ("(?~", "an absence group `(?~`"),
            ("(?|", "a branch reset `(?|`"),
            ("(?(", "a conditional `(?(`"),
            ("(?#", "a comment `(?#`"),
        ):
            if rest.startswith(opening):
                raise self.outside(what)
        raise self.outside("inline flags, but for `(?i)` at the very start")

    def character_class(self) -> None:
        start = self.at
        pattern = self.pattern
        self.at += 2 if pattern.startswith("[^", start) else 1
        first = self.at
        previous = ""  # the single character before, that a range could begin with
        while True:
            if self.at >= len(pattern):
                raise self.refuse("this `[` is not closed", start)
            char = pattern[self.at]
            if char == "]":
                if self.at == first:
                    raise self.outside("a `]` that stands first in a class; write `\\]`")
                self.at += 1
                return
            if char == "-" and self.at > first and pattern[self.at + 1 : self.at + 2] != "]":
                if not previous:
                    raise self.outside("a `-` in the middle of a class that makes no range; write `\\-`")
                previous = self.range_end(previous)
            else:
                previous = self.class_atom()

    def range_end(self, low: str) -> str:
        at = self.at
        self.at += 1
        if self.pattern[self.at : self.at + 1] == "-":
            raise self.outside("`--` in a class; write `\\-`", at)
        if self.at >= len(self.pattern):
            raise self.refuse("the range has no end", at)
        high = self.class_atom()
        if not high:
            raise self.refuse("a range needs a single character at each end", at)
        if high < low:
            raise self.refuse("the range ends below its start", at)
        return ""

    def class_atom(self) -> str:
        """Step over one element of a class; the character that it stands for, empty for a set such as ``\\d``."""
        char = self.pattern[self.at]
        if char == "[":
            what = "a named class `[:...:]`; write its ranges" if self.pattern.startswith("[:", self.at) else None
            raise self.outside(what or "a `[` within a class; write `\\[`")
        for operator in ("&&", "~~", "--"):
            if self.pattern.startswith(operator, self.at):
                raise self.outside(f"`{operator}` in a class; write the character once, or with a backslash")
        if char != "\\":
            self.at += 1
            return char
        escaped = self.pattern[self.at + 1 : self.at + 2]
        if escaped == "x":
            return self.hexadecimal()
        self.simple_escape(escaped, _CLASSES + _CONTROLS)
        if escaped in _CLASSES:
            return ""
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escaped, escaped)
