"""Regexes: the common subset, and that the engines really agree on it."""

from __future__ import annotations

import random
import re

import onigurumacffi
import pytest
import re2
import vrl_python

from shipgen.policy.regex import RegexError, check, nests_repetitions

ACCEPTED = [
    "a",
    "heartbeat ok",
    r"^\d{4}-\d\d-\d\d ",
    r"^(?P<time>\S+ \S+) (?P<level>[A-Z]+) (?P<message>.*)$",
    "token=[^\\s\"',}]+",
    "(?:a|b)*?c+?d??e{2}f{2,}g{2,5}?",
    r"\bword\B\A\z",
    r"[-a-z_\]\[^.+\d\x41\t-]",
    r"[^-]",
    r"\.\*\+\?\(\)\[\]\{\}\^\$\|\\\/\-",
    r"\x00\x{1F600}é",
    "(?i)error|warn",
    "()",
    "a}b]",
    "x" * 4096,
    "(" * 100 + ")" * 100,
]

REFUSED = [
    ("", 0, "empty"),
    ("a(?=b)", 2, "lookahead"),
    ("a(?!b)", 2, "lookahead"),
    ("(?<=a)b", 1, "lookbehind"),
    ("(?<!a)b", 1, "lookbehind"),
    (r"(a)\1", 4, "backreference"),
    (r"(?P<a>b)\k<a>", 9, "backreference"),
    (r"\g<1>", 1, "subroutine"),
    ("(?P=a)", 1, "(?P"),
    ("(?>a)", 1, "atomic"),
    ("a++", 3, "possessive"),
    ("a*+", 3, "possessive"),
    ("a?+", 3, "possessive"),
    ("a{2}+", 5, "possessive"),
    ("a**", 3, "quantifier on a quantifier"),
    ("a{2}{3}", 5, "quantifier on a quantifier"),
    ("a+??", 4, "quantifier on a quantifier"),
    ("a{2}?", 2, "lazy fixed"),
    ("a{,2}", 2, "no repetition"),
    ("{", 1, "no repetition"),
    ("a{x}", 2, "no repetition"),
    ("a{1001}", 2, "up to 1000"),
    ("a{3,2}", 2, "below its start"),
    ("*a", 1, "nothing here"),
    ("a|*", 3, "nothing here"),
    ("(+)", 2, "nothing here"),
    ("^*", 2, "nothing here"),
    (r"\b+", 3, "nothing here"),
    (r"a\hb", 2, r"\h"),
    (r"\H", 1, r"\H"),
    (r"\R", 1, r"\R"),
    (r"a\Z", 2, r"\Z"),
    (r"\G", 1, r"\G"),
    (r"\K", 1, r"\K"),
    (r"\X", 1, r"\X"),
    (r"\Qa\E", 1, r"\Q"),
    (r"\p{L}", 1, "Unicode property"),
    (r"\PL", 1, "Unicode property"),
    (r"\u00e9", 1, r"\u"),
    (r"\012", 1, "octal"),
    (r"\e", 1, r"\e"),
    (r"\v", 1, r"\v"),
    (r"\<a\>", 1, r"\<"),
    (r"\_", 1, r"\_"),
    (r"\é", 1, r"\é"),
    (r"\xE9", 1, "above 7F"),
    (r"\x4", 1, "two hexadecimal"),
    (r"\x{110000}", 1, "no such character"),
    (r"\x{D800}", 1, "no such character"),
    ("a\\", 2, "single backslash"),
    ("a(?i)b", 2, "inline flags"),
    ("(?i:a)", 1, "inline flags"),
    ("(?s)a", 1, "inline flags"),
    ("(?i)", 1, "nothing follows"),
    ("(?<name>a)", 1, "(?P<name>"),
    ("(?'name'a)", 1, "(?P<name>"),
    ("(?P<Name>a)", 1, "group name"),
    ("(?P<1a>a)", 1, "group name"),
    ("(?P<a>b)(?P<a>c)", 9, "second group"),
    ("(?#x)a", 1, "comment"),
    ("(?|a)", 1, "branch reset"),
    ("(?(1)a)", 1, "conditional"),
    ("(?~a)", 1, "absence"),
    ("(*FAIL)", 1, "verb"),
    ("(a", 1, "not closed"),
    ("a)", 2, "closes nothing"),
    ("[a", 1, "not closed"),
    ("[]a]", 2, "stands first"),
    ("[^]a]", 3, "stands first"),
    ("[]", 2, "stands first"),
    ("[a[b]]", 3, "within a class"),
    ("[[:alpha:]]", 2, "named class"),
    ("[a&&b]", 3, "&&"),
    ("[a--b]", 3, "--"),
    ("[a~~b]", 3, "~~"),
    ("[z-a]", 3, "below its start"),
    (r"[a-\d]", 3, "single character"),
    (r"[\w-.]", 4, "middle of a class"),
    ("[a-c-e]", 5, "middle of a class"),
    (r"[\b]", 2, r"\b"),
    (r"[\A]", 2, r"\A"),
    ("x" * 4097, 0, "longer than"),
    ("(a{1000}){1000}", 0, "RE2 refuses"),
    ("(" * 101 + ")" * 101, 101, "nested"),
]


@pytest.mark.parametrize("pattern", ACCEPTED, ids=lambda p: p[:30])
def test_accepted(pattern: str) -> None:
    check(pattern)


@pytest.mark.parametrize(("pattern", "position", "said"), REFUSED, ids=[p[:30] for p, _, _ in REFUSED])
def test_refused_at_its_position(pattern: str, position: int, said: str) -> None:
    with pytest.raises(RegexError) as caught:
        check(pattern)
    assert caught.value.position == position
    assert said in str(caught.value)
    assert (f"character {position} of the pattern" in str(caught.value)) == bool(position)


def test_names_of_groups() -> None:
    assert check("(?P<a>x)(?:y)(z)(?P<b_1>w)") == ("a", "b_1")


@pytest.mark.parametrize("pattern", ["x*", "^", "$", r"\b", "a|", "(?:)", "a?b?", "x{0,3}", r"\B", "(?i)a*"])
def test_a_redaction_must_not_match_nothing(pattern: str) -> None:
    check(pattern)
    with pytest.raises(RegexError, match="empty string"):
        check(pattern, may_be_empty=False)


# --- what is accepted means the same to the three engines ---

PIECES = re.split(
    "  +",
    r"""a  b  z  A  Z  0  9  _  -  .  =  /  :  ,  ;  '  "  &  ~  <  >  !  %  @  ^  $  |  (  (?:  (?P<a>  (?P<b1>  )  [
  [^  ]  *  +  ?  *?  +?  ??  {2}  {1,2}  {,2}  {2,}  {1,3}?  {  }  &&  --  a-z  0-9  [:alpha:]  (?i)  \d  \w  \s  \D
  \W  \S  \b  \B  \A  \z  \.  \-  \]  \[  \n  \t  \x41  \{  \/  \"  \'  \#  \&  \~  \%  \@  \,  \;  \:  \=  \!  \<  \`
  `  \^  \$  \\""".replace("\n", ""),
)
TEXTS = [
    "",
    "a",
    "ab",
    "abz",
    "AZ09",
    "a b-c",
    "a.b",
    "zz",
    "a]b[",
    "--",
    "09",
    "a&&b",
    "{a}",
    "\t",
    " ",
    "aAbB",
    "\\",
    "`'\"",
]


def test_engines_agree_on_what_is_accepted() -> None:
    # A fixed seed: the same patterns on every run. Lines are left out, `^` and `$` are rendered for each engine.
    source = random.Random(7)
    accepted: dict[str, None] = {}
    refusals: dict[str, str] = {}
    while len(accepted) < 300:
        pattern = "".join(source.choice(PIECES) for _ in range(source.randint(2, 10)))
        try:
            check(pattern)
        except RegexError as error:
            refusals[pattern] = str(error)
        else:
            accepted[pattern] = None
    assert [pattern for pattern, said in refusals.items() if "refuses" in said] == [], "only an engine refuses these"
    calls = ", ".join(f"match(string!(.t[{index}]), pattern)" for index in range(len(TEXTS)))
    for pattern in accepted:
        literal = pattern.replace("\\'", "'").replace("'", r"\x27")
        rust = vrl_python.VRLRuntime.run(f"pattern = r'{literal}'\n[{calls}]", {"t": TEXTS}, "UTC").runtime_result
        google = re2.compile(pattern)
        ruby = onigurumacffi.compile(re.sub(r"\(\?P<", "(?<", pattern))
        for text, found in zip(TEXTS, rust, strict=True):
            assert (google.search(text) is not None) == (ruby.search(text) is not None) == found, (pattern, text)


@pytest.mark.parametrize(("pattern", "expected"), [
    ("(a+)+b", True), ("(?:a*)*", True), ("((a|b+)c){2,}", True), ("(?P<x>[^)]+,)*", True), (r"(\x{41}+)*", True),
    ("((a+))+", True), ("a+b*c{3,}", False), ("(a+)?", False), ("(a+){2,5}", False), (r"(a[+*)]b)+", False),
    (r"(a\+b)+", False), (r"([\]+*]x)+", False), ("(a?b)+", False), ("(?i)(a|b)+c+", False),
])
def test_repetitions_in_repetitions(pattern: str, expected: bool) -> None:
    check(pattern)
    assert nests_repetitions(pattern) == expected
