"""The named kinds of secret that a redaction knows. RE2, Oniguruma and Rust read these regexes alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """What is replaced. Group 1 of the regex stays in front of the replacement where ``keeps``; ``before`` and
    ``after`` stand around it. ``on_json_text`` kinds look at keys, so they also run on the text of a JSON entry."""

    regex: str
    keeps: bool = False
    before: str = ""
    after: str = ""
    on_json_text: bool = False


_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HEX = "[0-9A-Fa-f]{1,4}"
_QUOTED = r"""(?:[^}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*"""

KINDS: dict[str, Kind] = {
    "email": Kind(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"),
    "ipv4": Kind(rf"(^|[^0-9A-Za-z_])(?:{_BYTE}\.){{3}}{_BYTE}", keeps=True),
    "ipv6": Kind(rf"(^|[^0-9A-Za-z_])(?:(?:{_HEX}:){{7}}{_HEX}|(?:{_HEX}:){{1,6}}(?::{_HEX}){{1,6}})\b",
                 keeps=True),
    "bearer": Kind(r"([Bb][Ee][Aa][Rr][Ee][Rr] +)[A-Za-z0-9._~+/-]+=*", keeps=True),
    "url_password": Kind(r"(://[^/\s:@]*:)[^/\s@]+@", keeps=True, after="@"),
    "aws_key": Kind(
        r"(?:AKIA|ASIA)[0-9A-Z]{16}"
        r"|(?:[Aa][Ww][Ss]_)?[Ss][Ee][Cc][Rr][Ee][Tt]_[Aa][Cc][Cc][Ee][Ss][Ss]_[Kk][Ee][Yy][\"']?\s*[:=]\s*[\"']?"
        r"[A-Za-z0-9/+]{40}"
    ),
    "private_key": Kind(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.|\n)*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)"),
    "ray_env_vars": Kind(rf"""(["']env_vars["']: ?\{{){_QUOTED}\}}""", keeps=True, before='"redacted": "',
                         after='"}', on_json_text=True),
}
"""No word boundary in front: engines differ on whether a letter of another script is part of a word, and a secret right
behind one must go. ``ipv6`` leaves out what C++ names look like (`std::a`, `::b`): two groups at least, one on each
side of `::`; it ends at a boundary."""
