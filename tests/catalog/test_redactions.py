"""The kinds of secret: what goes, what stays, and that the engines agree."""

from __future__ import annotations

import re

import onigurumacffi
import pytest
import re2
import vrl_python

from shipgen.catalog.redactions import KINDS
from shipgen.policy import model
from shipgen.rendering.quoting import vrl_regex

KEY = "AKIA" + "A1B2" * 4
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----"
X = "[redacted]"

CASES = [
    ("email", "mail a.b+c@x-y.example.org, z@q.io.", f"mail {X}, {X}."),
    ("email", "邮箱a@b.cn", f"邮箱{X}"),
    ("email", "a@localhost @b.cn", "a@localhost @b.cn"),
    ("ipv4", "10.0.0.1,10.0.0.2 255.255.255.255:6379", f"{X},{X} {X}:6379"),
    ("ipv4", "地址10.0.0.1端口", f"地址{X}端口"),
    ("ipv4", "1.2.3 v1.2.3.4 256.1.1", "1.2.3 v1.2.3.4 256.1.1"),
    ("ipv6", "at fe80::1:2 and 2001:db8:0:0:0:0:0:1.", f"at {X} and {X}."),
    ("ipv6", "std::bad ::b a::bool 05:30:45 file.cc::x", "std::bad ::b a::bool 05:30:45 file.cc::x"),
    ("ipv6", "地址fe80::1 x", f"地址{X} x"),
    ("bearer", "Authorization: bearer  abc.DEF-1== x", f"Authorization: bearer  {X} x"),
    ("bearer", "令牌Bearer abc", f"令牌Bearer {X}"),
    ("url_password", "redis://u:p%40w@h:1 http://h:80/a@b", f"redis://u:{X}@h:1 http://h:80/a@b"),
    ("url_password", "redis://:pw@h", f"redis://:{X}@h"),
    ("aws_key", f"密钥{KEY}。aws_secret_access_key = \"{SECRET}\"", f"密钥{X}。{X}\""),
    ("aws_key", "AKIA1234", "AKIA1234"),
    ("private_key", f"a\n{PEM}\nb", f"a\n{X}\nb"),
    ("private_key", "-----BEGIN PRIVATE KEY-----\nMIIE and no end", X),
    ("ray_env_vars", "{'env_vars': {'A': '}b', \"C\": \"d\\\"}\"}, 'x': {}}",
     f"{{'env_vars': {{\"redacted\": \"{X}\"}}, 'x': {{}}}}"),
    ("ray_env_vars", '{"env_vars":{"A":"1"}}', f'{{"env_vars":{{"redacted": "{X}"}}}}'),
    ("ray_env_vars", "env_vars of the task", "env_vars of the task"),
]


@pytest.mark.parametrize(("kind", "text", "expected"), CASES)
def test_kinds(kind: str, text: str, expected: str) -> None:
    rule = KINDS[kind]
    around = (rule.before, rule.after)

    def ruby(text: str) -> str:
        pattern = onigurumacffi.compile(rule.regex)
        done, at = "", 0
        while (match := pattern.search(text, at)) and match.end() > match.start():
            done += text[at : match.start()] + (match.group(1) if rule.keeps else "") + X.join(around)
            at = match.end()
        return done + text[at:]

    kept = "${1}" if rule.keeps else ""
    program = f"replace(string!(.t), {vrl_regex(rule.regex)}, .with)"
    given = {"t": text, "with": f"{kept}{X.join(around)}"}
    assert vrl_python.VRLRuntime.run(f".with = string!(.with)\n{program}", given, "UTC").runtime_result == expected
    assert re2.sub(rule.regex, lambda m: (m[1] if rule.keeps else "") + X.join(around), text) == expected
    assert ruby(text) == expected


def test_the_policy_knows_the_same_kinds() -> None:
    assert set(KINDS) == set(model.REDACT_KINDS)
    assert {kind for kind, _, _ in CASES} == set(KINDS)
    assert all(re.match(r".*\([^?]", rule.regex, re.DOTALL) for rule in KINDS.values() if rule.keeps), "a group to keep"
