"""A stand-in for Fluent Bit: its grouping of lines in Python, its script run by LuaJIT, with RE2 for Onigmo."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import re2
import yaml
from lupa.luajit21 import LuaRuntime
from making import loaded

from shipgen.pipeline import resolve
from shipgen.rendering import bundle
from shipgen.targets import plan

NOW = 1_796_104_000
"""Seconds since 1970 at which every line is read: a quarter of an hour behind most of the recorded ones."""


class Sent(NamedTuple):
    """What an output gets: its time in ns, and the record."""

    time: int
    record: dict[str, Any]


def rendered(data: Mapping[str, Any], version: str = "", *, rules: bool = True) -> dict[str, bytes]:
    """The bundle for Fluent Bit. Without ``rules`` there are none: a Ray source always has one."""
    one = loaded({**data, "targets": {"fluentbit": {"version": version or "5.1"}}})
    pipeline = resolve(one) if rules else replace(resolve(one), rules=())
    choice = plan.choose("fluentbit", one, pipeline)
    assert choice.renders, [d.message for d in choice.diagnostics]
    return dict(bundle.of(pipeline, [choice]).files)


def parsed(text: bytes) -> dict[str, Any]:
    """`fluent-bit.yaml`, read back."""
    config: dict[str, Any] = yaml.load(text.decode(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return config


def config_of(data: Mapping[str, Any], version: str = "") -> dict[str, Any]:
    """What `fluent-bit.yaml` says."""
    return parsed(rendered(data, version)["fluentbit/fluent-bit.yaml"])


def _re2(source: bytes) -> Any:
    """A regex for Onigmo as RE2 reads it: `$` is the end of a line there."""
    options = re2.Options()
    options.log_errors = False
    options.never_nl = False
    text = source.decode().replace("(?<", "(?P<").replace("(?a:", "(?:")
    flags = "(?mi)" if text.startswith("(?i)") else "(?m)"
    return re2.compile((flags + text.removeprefix("(?i)")).encode(), options)


class FakeFluentBit:
    """What was rendered, from tailed lines to outputs."""

    def __init__(self, data: Mapping[str, Any], version: str = "", *, rules: bool = True) -> None:
        files = rendered(data, version, rules=rules)
        self.config = parsed(files["fluentbit/fluent-bit.yaml"])
        self.lua = LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self.counted: list[str] = []
        self.fault = ""
        """A regex that has this in it fails as if the engine had given up."""
        self._last: Any = None
        chunk = self.lua.compile(files["fluentbit/shipgen.lua"])
        chunk(self._compile, self._group)
        self.parsers = {p["name"]: p["rules"] for p in self.config.get("multiline_parsers", ())}

    def _compile(self, source: bytes) -> Any:
        regex = _re2(source)

        def search(text: bytes, start: int) -> Any:
            if self.fault and self.fault.encode() in source:
                raise RuntimeError("the engine gave up")
            found = regex.search(text, start - 1)
            if found is None:
                return None
            self._last = found
            return found.start() + 1, found.end()

        return search

    def _group(self, index: int) -> Any:
        # where some groups have names, Onigmo counts no others
        named = sorted(self._last.re.groupindex.values())
        return self._last.group(named[index - 1] if named else index)

    def groups(self, tag: str, data: bytes) -> Iterator[bytes]:
        """Lines of a file as the input of a tag gives them: joined, with LF behind each."""
        (tail,) = (i for i in self.config["pipeline"]["inputs"] if i["tag"] == tag)
        lines = [line[:-1] if len(line) > 1 and line.endswith(b"\r") else line for line in data.split(b"\n")[:-1]]
        if "multiline.parser" not in tail:
            yield from lines
            return
        start, cont = (_python(rule["regex"]) for rule in self.parsers[tail["multiline.parser"]])
        group: list[bytes] | None = None
        for line in lines:
            text = line.decode("utf-8", "surrogateescape")
            if group is not None and cont.search(text):
                group.append(line)
                continue
            if group is not None:
                yield b"".join(one + b"\n" for one in group)
            group = [line] if start.search(text) else None
            if group is None:
                yield line + b"\n"
        if group is not None:
            yield b"".join(one + b"\n" for one in group)

    def send(self, tag: str, path: str, text: bytes, now: float = NOW) -> dict[str, list[Sent]]:
        """What each output gets of an entry."""
        at = self.lua.table_from({b"sec": int(now), b"nsec": round((now % 1) * 1e9)})
        event = self.lua.table_from({b"log": text, b"path": path.encode("utf-8", "surrogateescape")})
        got: dict[str, list[Sent]] = {o["alias"]: [] for o in self.config["pipeline"]["outputs"]}
        code, time, result = self.lua.globals()[b"record"](tag.encode(), at, event)
        if code == -1:
            return got
        records = [result[i] for i in range(1, len(result) + 1)] if result[1] is not None else [result]
        for record in records:
            if record[b"drop"] is not None:
                self.counted.append(record[b"drop"].decode())
                continue
            self._deliver(tag, time if code == 1 else at, record, got)
        return got

    def send_unfiltered(self, tag: str, path: str, text: bytes, now: float = NOW) -> dict[str, list[Sent]]:
        """What each output gets of an entry that has passed no filter: one that was open when Fluent Bit stopped."""
        at = self.lua.table_from({b"sec": int(now), b"nsec": round((now % 1) * 1e9)})
        event = self.lua.table_from({b"log": text, b"path": path.encode("utf-8", "surrogateescape")})
        got: dict[str, list[Sent]] = {o["alias"]: [] for o in self.config["pipeline"]["outputs"]}
        self._deliver(tag, at, event, got)
        return got

    def _deliver(self, tag: str, at: Any, event: Any, got: dict[str, list[Sent]]) -> None:
        for output in self.config["pipeline"]["outputs"]:
            if not re.search(output["match_regex"], tag):
                continue
            time, record = at, event
            for unit in output["processors"]["logs"]:
                if unit["name"] == "lua":
                    code, after, record = self.lua.globals()[unit["call"].encode()](tag.encode(), time, record)
                    time = after if code == 1 else time
                    if code == -1:
                        break
                elif unit["name"] == "grep":
                    (rule,) = (k for k in ("regex", "exclude") if k in unit)
                    field, _, pattern = unit[rule].partition(" ")
                    found = re.search(pattern, (record[field.encode()] or b"").decode())
                    if (found is None) == (rule == "regex"):
                        break
            else:
                got[output["alias"]].append(Sent(time[b"sec"] * 10**9 + time[b"nsec"], _plain(record)))


def _python(regex: str) -> re.Pattern[str]:
    return re.compile(regex[1:-1].replace(r"\z", r"\Z").replace("(?a:", "(?:").replace("(?<", "(?P<")
                      .replace("(?P<!", "(?<!").replace("(?P<=", "(?<="))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if hasattr(value, "items"):
        return {_plain(k): _plain(v) for k, v in value.items()}
    return value
