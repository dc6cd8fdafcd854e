"""What many tests need: policies as data, what is rendered of them, and a stand-in for Vector that runs its VRL."""

from __future__ import annotations

import calendar
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import strptime
from typing import Any

import yaml
from vrl_python import VRLRuntime

from shipgen.catalog import ray
from shipgen.pipeline import Pipeline, grouping, resolve
from shipgen.policy import Policy, load
from shipgen.rendering import bundle
from shipgen.rendering.bundle import Bundle
from shipgen.targets import plan
from shipgen.targets.plan import Choice

Record = dict[str, Any]

TREES = Path(__file__).parent / "data" / "ray-logs"
TREE_NAMES = ("text", "json", "rotated", "text-worker-node", "process-exit")
LOKI = {"type": "loki", "endpoint": "http://loki:3100"}
FILE = {"type": "file", "paths": ["/var/log/app/*.log"]}

VARIABLE = re.compile(r"\$\$|\$([\w.]+)|\$\{([\w.]+)(?:(:?-|:?\?)([^}]*))?\}")
SECRET = re.compile(r"SECRET\[(\w+)\.([\w.\-/]+)\]")
"""What Vector looks for in the text of a file, before it reads the YAML: its own two regexes, in Python."""


def policy(**parts: Any) -> dict[str, Any]:
    """A policy for Vector 0.57 with one Ray source and one Loki sink, but for the parts given."""
    least = {"version": 1, "name": "t", "targets": {"vector": {"version": "0.57"}}, "sources": {"ray": {"type": "ray"}}}
    return {**least, "sinks": {"loki": dict(LOKI)}, **parts}


def relay(target: str) -> dict[str, Any]:
    """What a policy needs for a target that reaches no sink on its own."""
    return {"relay": {"target": "vector"}} if target == "filebeat" else {}


def loaded(data: Mapping[str, Any]) -> Policy:
    """The policy as shipgen loads it. JSON is YAML, and says exactly what is meant."""
    return load(["-"], io.StringIO(json.dumps(data, ensure_ascii=False)))


def resolved(data: Mapping[str, Any]) -> Pipeline:
    """The pipeline of a policy."""
    return resolve(loaded(data))


def judged(data: Mapping[str, Any], target: str = "vector") -> Choice:
    """What a target says about a policy."""
    one = loaded(data)
    return plan.choose(target, one, resolve(one))


def rendered(data: Mapping[str, Any]) -> Bundle:
    """The bundle for Vector."""
    one = loaded(data)
    pipeline = resolve(one)
    choice = plan.choose("vector", one, pipeline)
    assert choice.renders, [d.message for d in choice.diagnostics]
    return bundle.of(pipeline, [choice])


def config_text(data: Mapping[str, Any]) -> str:
    """`vector.yaml`."""
    return rendered(data).files["vector/vector.yaml"].decode()


class _Unique(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which no key stands twice, as Vector wants it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"a key stands twice: {keys}"
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def config_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """`vector.yaml`, read back."""
    parsed: dict[str, Any] = yaml.load(config_text(data), Loader=_Unique)
    return parsed


HOSTILE = [
    "", " ", "a b ", "'", '"', "\\", "\\\\", "\\'", "$", "$$", "$X", "${X}", "${X:-y}", "$.", "{{ x }}", "{{{x}}}",
    "}}", "\\{{", "#{x}", "# c", "%", "%Y", "%%", "01000000", "1e3", "0x1f", "1_000", "1:30", "no", "Yes", "~", "null",
    "NaN", ".inf", "2026-12-01", "- a", "a: b", "[x]", "{a}", "&a", "*a", "!t", "|", ">", "@", "`", "SECRET[a.b]",
    "SECRET[$X.b]", "$SECRET[a.b]", "\U0001f600", "é\u0301", "\u200f\u202e", "\ufeff", "\u00a0", "\u3000", "日志",
]
"""Text that some grammar on the way takes for something else."""


# --- VRL ---


_ENGINES: dict[tuple[str, str], VRLRuntime] = {}
"""One engine a program: each keeps only the last one compiled."""


def run(program: str, event: Mapping[str, Any], zone: str = "UTC") -> Record | None:
    """The event behind a program; None where that aborts."""
    engine = _ENGINES.get((program, zone)) or _ENGINES.setdefault((program, zone), VRLRuntime(zone))
    try:
        return dict(engine.execute(program, dict(event)).processed_event)
    except RuntimeError as error:
        if "aborted" in str(error):
            return None
        raise AssertionError(f"{error}\n{program}") from error


def nanoseconds(stamp: str) -> int:
    """Nanoseconds since 1970 of a time as it leaves VRL: `2026-12-01 05:29:04.5 UTC`."""
    found = re.fullmatch(r"(-?\d+-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?: UTC|Z)", stamp)
    assert found, stamp
    seconds = calendar.timegm(strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H:%M:%S"))
    return seconds * 10**9 + int((found[3] or "").ljust(9, "0"))


class FakeVector:
    """Vector's graph of transforms, run by the real VRL on events that come out of a source.

    It reads what was rendered, as Vector would. What samples or throttles lets everything pass. Without ``rules`` these
    do, too: a Ray source always has one.
    """

    def __init__(self, config: Mapping[str, Any], zone: str = "UTC", *, rules: bool = True) -> None:
        self.config = config
        self.zone = zone
        self.rules = rules
        self.readers: dict[str, list[str]] = defaultdict(list)
        for kind in ("transforms", "sinks"):
            for id_, component in config[kind].items():
                for source in component["inputs"]:
                    self.readers[source].append(id_)

    def send(self, source: str, event: Mapping[str, Any]) -> dict[str, list[Record]]:
        """What each sink gets of an event."""
        got: dict[str, list[Record]] = {id_: [] for id_ in self.config["sinks"]}
        self._from(source, {"host": "node", "source_type": "file", **event}, "2026-12-01 12:00:00 UTC", got)
        return got

    def _from(self, id_: str, event: Record, stamp: str, got: dict[str, list[Record]]) -> None:
        for reader in self.readers[id_]:
            if reader in got:
                got[reader].append({**event, "timestamp": stamp} if "timestamp" not in event else event)
                continue
            transform = self.config["transforms"][reader]
            if not self.rules and reader.startswith("rule::"):
                self._from(reader, event, stamp, got)
            elif transform["type"] == "remap":
                after = self._remap(transform, event, stamp)
                if after is not None:
                    self._from(reader, *after, got)
            elif transform["type"] != "filter" or self._holds(transform["condition"]["source"], event, stamp):
                self._from(reader, event, stamp, got)

    def _remap(self, transform: Mapping[str, Any], event: Record, stamp: str) -> tuple[Record, str] | None:
        # a time leaves the engine as text: it is kept apart, and given back as a time
        after = run(_GIVE_TIME + transform["source"], {**event, "@time": stamp}, self.zone)
        if after is None:
            return None
        own = after.pop("timestamp", None)
        return after, stamp if own is None else str(own)

    def _holds(self, condition: str, event: Record, stamp: str) -> bool:
        after = run(f"{_GIVE_TIME}.holds = ({condition})", {**event, "@time": stamp}, self.zone)
        assert after is not None
        return bool(after["holds"])


# the compiler must not know that it is a time, as in Vector
_GIVE_TIME = """stamp = replace(string!(."@time"), " UTC", "")
.timestamp = get!({"at": parse_timestamp!(stamp, "%Y-%m-%d %H:%M:%S%.f", timezone: "UTC")}, ["at"])
del(."@time")
"""


def groups(path: Path, below: str, families: Sequence[ray.Family]) -> Iterator[tuple[ray.Family, str]]:
    """The finished lines of a Ray file, grouped as Vector does it."""
    (family,) = (f for f in ray.families_of(below) if f in families)
    lines = path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]
    for group in grouping.ray_groups(lines, family.grouping):
        yield family, group
