"""What a policy makes of a record on its way to one Loki sink, worked out in plain Python.

The harness compares what a real shipper delivered with this. It reads the resolved pipeline, which says what was asked
for, and shares nothing with what the targets render. Where the contract leaves the exact outcome open, an expectation
says so instead of guessing: a record that chance or a limit may take is ``optional``, and a text of which a secret was
taken out, or that was cut, is compared by what has to be left of it (``loose``).
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shipgen.harness.loki import place_of
from shipgen.pipeline.conditions import All, Any_, Below, Condition, Exists, Is, Matches, Not
from shipgen.pipeline.model import Pipeline, Rule, Sink

Record = dict[str, Any]

LEVELS = ("trace", "debug", "info", "warn", "error", "fatal")
#: Structured metadata whatever the sink lists.
ALWAYS_METADATA = ("parse_error", "entry_time", "time_source", "truncated")
#: Structured metadata where the sink lists none: the strings and numbers of a record but its time and its texts. Fields
#: that a rule adds are not among them.
DEFAULT_METADATA = (
    *("source", "component", "level", "cluster", "node", "session", "file", "stream", "pid", "worker_id", "job_id"),
    *("actor_id", "actor_name", "task_id", "task_name", "node_id", "submission_id", "caller", "thread"),
    *("deployment", "replica", "request_id", "route", "application", "event"),
)
#: Fields that no pair gives.
_NEVER_PAIRS = frozenset(
    {"time", "time_source", "entry_time", "parse_error", "truncated", "message", "raw", "level", "source", "component"}
    | {"node", "session", "file", "stream", "cluster", "event", "extra", "timestamp", "sample_rate"}
)
#: Fields of a JSON line that depend on when it was sent.
VOLATILE = frozenset({"time", "time_source", "entry_time"})


@dataclass(slots=True)
class Expected:
    """One record as it should stand in Loki. ``time_ns`` is its own time; None means the time it was read."""

    labels: dict[str, str]
    metadata: dict[str, str]
    line: str
    time_ns: int | None
    json_line: bool = False
    optional: bool = False
    masks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    cut: bool = False
    most: int | None = None
    record: Record = field(default_factory=dict, repr=False)

    @property
    def place(self) -> tuple[str, str]:
        """Session and file, as far as labels or metadata tell."""
        return place_of(self.labels, self.metadata)

    @property
    def loose(self) -> bool:
        """Is the exact text open?"""
        return bool(self.masks) or self.cut or self.most is not None

    def agrees(self, line: str) -> bool:
        """Can ``line`` be this record's line?"""
        if self.most is not None:
            return self._shortened(line, self.most)
        if not self.loose:
            return line_key(line, self.json_line) == line_key(self.line, self.json_line)
        return self._text_agrees(self.line, line)

    def field_agrees(self, wanted: str, given: str) -> bool:
        """Can ``given`` be the value of a label or of metadata that should be ``wanted``?"""
        return wanted == given or (bool(self.masks) and masked(wanted, given, self.masks))

    def _shortened(self, line: str, most: int) -> bool:
        """Can ``line`` be a JSON line that was too long for the server? It is an object, in which texts lack their end,
        and no more of them than has to."""
        mine, theirs = _object(self.line), _object(line)
        if mine is None or theirs is None or not most // 8 < len(line.encode()) <= most:
            return False
        mine, theirs = ({k: v for k, v in entry.items() if k not in VOLATILE} for entry in (mine, theirs))
        if mine.keys() - {"extra"} != theirs.keys() - {"extra"}:
            return False
        short = {key for key, value in theirs.items() if not self._values_agree(mine.get(key), value)}
        return short <= {"raw", "message"} and all(
            self.masks or visible(mine[key]).startswith(visible(str(theirs[key]))) for key in short)

    def _text_agrees(self, wanted: str, given: str) -> bool:
        wanted, given = visible(wanted), visible(given)
        if self.cut and len(wanted) // 2 < len(given) < len(wanted):
            wanted = wanted[: len(given)]  # where exactly it is cut is the target's affair
        return wanted == given or masked(wanted, given, self.masks) or self._json_agrees(wanted, given)

    def _json_agrees(self, wanted: str, given: str) -> bool:
        """The same for a JSON object and what follows it: redaction works on its values and may write it anew."""
        wanted_first, _, wanted_rest = wanted.partition("\n")
        given_first, _, given_rest = given.partition("\n")
        mine, theirs = _object(wanted_first), _object(given_first)
        if mine is None or theirs is None or not self._text_agrees(wanted_rest, given_rest):
            return False
        if self.json_line:
            mine, theirs = ({k: v for k, v in entry.items() if k not in VOLATILE} for entry in (mine, theirs))
        return self._values_agree(mine, theirs)

    def _values_agree(self, mine: Any, theirs: Any) -> bool:
        if isinstance(mine, dict) and isinstance(theirs, dict):
            return mine.keys() == theirs.keys() and all(self._values_agree(mine[key], theirs[key]) for key in mine)
        if isinstance(mine, list) and isinstance(theirs, list):
            return len(mine) == len(theirs) and all(map(self._values_agree, mine, theirs))
        return self._text_agrees(_text(mine), _text(theirs))


def visible(text: str) -> str:
    """The text without what each target shows in its own way, if at all: invalid UTF-8 and NUL. Fluent Bit has
    characters of its own for the bytes, from U+E080 on."""
    return re.sub("[\0\ue080-\ue0ff\N{REPLACEMENT CHARACTER}]+", "", text)


def line_key(line: str, json_line: bool = False) -> str:
    """Equal for two lines that say the same."""
    if json_line and (data := _object(line)) is not None:
        return json.dumps({k: _text(v) for k, v in data.items() if k not in VOLATILE}, sort_keys=True)
    return visible(line)


def masked(original: str, given: str, masks: Iterable[str]) -> bool:
    """Is ``given`` the original with some stretches replaced by one of ``masks``, and nothing else changed?"""
    spoken = [mask for mask in masks if mask]
    pieces = re.split("|".join(re.escape(mask) for mask in sorted(spoken, key=len, reverse=True)) or r"(?!)", given)
    if len(pieces) == 1:
        return original == given
    if len(pieces[0]) + len(pieces[-1]) > len(original):
        return False
    if not (original.startswith(pieces[0]) and original.endswith(pieces[-1])):
        return False
    at, end = len(pieces[0]), len(original) - len(pieces[-1])
    for piece in pieces[1:-1]:
        found = original.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def holds(condition: Condition, record: Mapping[str, Any]) -> bool:
    """Does the record meet the condition? A test on an absent field is false."""
    match condition:
        case All(of):
            return all(holds(part, record) for part in of)
        case Any_(of):
            return any(holds(part, record) for part in of)
        case Not(of):
            return not holds(of, record)
        case Exists(name):
            return record.get(name) is not None
        case Below(level):
            own = record.get("level")
            return own in LEVELS and LEVELS.index(own) < LEVELS.index(level)
        case Is(name, values):
            return record.get(name) is not None and _text(record[name]) in values
        case Matches(name, pattern):
            return record.get(name) is not None and _found(pattern, _text(record[name]))


def expectations(pipeline: Pipeline, sink: Sink, records: Iterable[Record]) -> Iterator[Expected]:
    """What should stand in the Loki of ``sink``, in the order of ``records``."""
    rules = pipeline.rules_for(sink)
    pairs = {source.name for source in pipeline.sources if source.pairs}
    for record in records:
        if record["source"] not in sink.sources:
            continue
        kept = _through(rules, record, pairs=record["source"] in pairs)
        if kept is not None and holds(sink.when, kept.record):
            if pipeline.fingerprint:
                kept.record["fingerprint"] = _fingerprint(kept.record)
            yield _in_loki(sink, kept)


@dataclass(slots=True)
class _Kept:
    """A record on its way through the rules, and what is open about it."""

    record: Record
    optional: bool = False
    masks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


def _through(rules: Iterable[Rule], record: Record, *, pairs: bool = False) -> _Kept | None:
    kept = _Kept(dict(record))
    for rule in rules:
        if not holds(rule.when, kept.record):
            continue
        match rule.action:
            case "drop":
                return None
            case "sample":
                kept.optional = True
                kept.record["sample_rate"] = rule.options["rate"]
            case "limit":
                kept.optional = True
            case "add":
                kept.record.update(rule.options)
            case "redact":
                before = dict(kept.record)
                _redact(kept, rule.options)
                if pairs and "pattern" in rule.options:
                    _redact_pairs(kept.record, before, rule.options["with"])
    return kept


def _redact(kept: _Kept, options: Mapping[str, Any]) -> None:
    mask = options.get("with", "[redacted]")
    if "kind" in options:
        # What exactly counts as one is the product's to say: look at what is left instead. The values of `env_vars` are
        # replaced as a whole, by an object that says so.
        kept.masks += (f'"redacted": "{mask}"', mask) if options["kind"] == "ray_env_vars" else (mask,)
        kept.kinds += (options["kind"],)
        return
    for name, value in kept.record.items():
        if isinstance(value, str) and name != "time":
            replaced = _replaced(options["pattern"], mask, value)
            if replaced != value and name == "raw" and _object(value.partition("\n")[0]) is not None:
                # Patterns work on the decoded values of a JSON entry; how it is written afterwards is open.
                kept.masks += (mask,)
                continue
            kept.record[name] = replaced


def _redact_pairs(record: Record, before: Record, mask: str) -> None:
    """A pair that a pattern took out of a message goes from the fields, too: `token=abc` gave `token`."""
    for name, value in before.items():
        for pair in (f"{name}={value}", f'{name}="{value}"') if name not in _NEVER_PAIRS else ():
            if pair in before["message"] and pair not in record["message"]:
                record[name] = mask


def _fingerprint(record: Record) -> str | None:
    """None where it holds the time of reading, which nobody knows beforehand."""
    if record["time"] is None:
        return None
    parts = [record.get("node"), record.get("session"), record.get("file"), record["time"], record["raw"]]
    return hashlib.sha3_256("\n".join("" if part is None else str(part) for part in parts).encode()).hexdigest()


def _in_loki(sink: Sink, kept: _Kept) -> Expected:
    record, options = kept.record, sink.options
    labels = dict(options["labels"].get("static", {}))
    label_fields = options["labels"].get("fields", [])
    labels |= {name: _text(record[name]) for name in label_fields if record.get(name) not in (None, "")}
    listed = options.get("metadata")
    if listed is None:
        listed = [name for name in DEFAULT_METADATA if name not in label_fields]
    # Loki knows one value of a name: a label's.
    names = [name for name in dict.fromkeys((*listed, *ALWAYS_METADATA)) if name not in label_fields]
    metadata = {name: _text(record[name]) for name in names if record.get(name) not in (None, "")}
    style = options.get("line", "raw")
    most = None
    if style == "json":
        fields = {name: value for name, value in record.items() if value is not None and name not in label_fields}
        limit = options["server"]["max_line_size"]
        if len(json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()) > limit:
            most, metadata["truncated"], fields["truncated"] = limit, "true", True
        line = json.dumps(fields, ensure_ascii=False)
    else:
        line = record[style]
    return Expected(
        labels=labels,
        metadata=metadata,
        line=line,
        time_ns=record["time"],
        json_line=style == "json",
        optional=kept.optional,
        masks=tuple(dict.fromkeys(kept.masks)),
        kinds=kept.kinds,
        cut=record.get("truncated") is True,
        most=most,
        record=record,
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    return str(value)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; Ray's C++ code writes colours into strings without escaping them."""
    if not text.startswith("{"):
        return None
    for attempt in (text, re.sub(r"\x1b\[[0-9;]*m", "", text)):
        with contextlib.suppress(ValueError):
            data = json.loads(attempt, parse_float=_number)
            return data if isinstance(data, dict) else None
    return None


def _number(text: str) -> float | int:
    """1.0 and 1 are one number, whichever of them a shipper writes."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _found(pattern: str, text: str) -> bool:
    import re2  # judged by the engine that defines the subset; heavy enough to load late

    return re2.search(pattern, text) is not None


def _replaced(pattern: str, mask: str, text: str) -> str:
    import re2

    replaced: str = re2.compile(pattern).sub(lambda _: mask, text)
    return replaced


# ---------------------------------------------------------------------------------------------------------------------
# Secrets that must not be left over. Each finds only what nobody would dispute.


def _addresses(text: str, version: int) -> Iterator[str]:
    # Not what C++ names look like: `d::` in `std::vector`.
    for token in re.findall(r"(?<![\w:.])[0-9A-Fa-f][0-9A-Fa-f:.]{2,43}[0-9A-Fa-f](?![\w:.])", text):
        try:
            if ipaddress.ip_address(token).version == version:
                yield token
        except ValueError:
            continue


def _values_of_env_vars(text: str) -> Iterator[str]:
    for found in re.finditer(r"""env_vars['"]: \{""", text):
        try:
            data, _ = json.JSONDecoder().raw_decode(text, found.end() - 1)
        except ValueError:
            continue
        yield from (value for value in data.values() if isinstance(value, str) and value)


_LEFTOVERS: Mapping[str, Callable[[str], Iterable[str]]] = {
    "email": lambda text: re.findall(r"\b[A-Za-z0-9]+@[A-Za-z0-9]+\.(?:com|org|net)\b", text),
    "ipv4": lambda text: _addresses(text, 4),
    "ipv6": lambda text: _addresses(text, 6),
    "bearer": lambda text: re.findall(r"\bBearer [A-Za-z0-9._-]{16,}", text),
    "url_password": lambda text: re.findall(r"://[A-Za-z0-9]+:[A-Za-z0-9]+@", text),
    "aws_key": lambda text: re.findall(r"\bAKIA[0-9A-Z]{16}\b", text),
    "private_key": lambda text: re.findall(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{20,}", text),
    "ray_env_vars": _values_of_env_vars,
}


def leftovers(expected: Expected, text: str) -> list[str]:
    """Secrets of the kinds that should have been taken out and are still in ``text``."""
    found: list[str] = []
    for kind in expected.kinds:
        found += (secret for secret in _LEFTOVERS[kind](text) if secret not in expected.masks)
    return found
