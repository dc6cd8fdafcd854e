"""Policy files in: YAML with a position for every key and value, and several files merged into one.

YAML is read as events, not composed: the depth and the number of nodes are bounded before anything recursive sees
them. Plain scalars mean what YAML 1.2 (core schema) says, except that a number with leading zeros is text: ids like
``01000000`` are no numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

import yaml

from shipgen.diagnostics import Diagnostic, Place, Severity, UsageError

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 20_000

Step = str | int

# What libyaml reads is the same as what the Python parser reads, ten times faster.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z|0x[0-9a-fA-F]+\Z|0o[0-7]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_WORDS: Final[Mapping[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip

# Control characters as they may stand in a file (YAML itself refuses most of them, without saying where), and as they
# may stand in a value. The former are swapped for private-use characters before parsing, so that the error can name
# the field.
_RAW_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff]")
_SWAP: Final = 0x10_0000

# Below these keys nothing that the user wrote is repeated in a message, but for words of the language itself.
SECRET_KEYS: Final = frozenset({"auth", "sasl", "credentials", "headers"})
_SECRET_WORDS: Final = frozenset(
    ("bearer", "basic", "api_key", "user", "password", "env", "file", "mechanism", "access_key_id", "secret_access_key")
)
_PLAIN_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_HEADER_STEP = re.compile(r"[A-Za-z0-9-]{1,64}\Z")


def dotted(path: Iterable[Step]) -> str:
    """A path in the policy as people write it: ``parsing.rules[0].add.team``."""
    text = ""
    secret = False
    above = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif above == "headers" and _HEADER_STEP.match(step):
            text += f".{step}"
        elif secret and step not in _SECRET_WORDS:
            text += ".*"
        elif _PLAIN_STEP.match(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step if len(step) <= 60 else step[:60] + '…')}]"
        secret = secret or step in SECRET_KEYS
        above = str(step)
    return text


def printable(text: str, longest: int = 40) -> str:
    """``text`` as a message may hold it: cut, and what does not print written as an escape."""
    cut = text if len(text) <= longest else text[:longest] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def secret_path(path: Iterable[Step]) -> bool:
    """Whether a value at ``path`` may be a secret, so that no message repeats it."""
    return any(step in SECRET_KEYS for step in path)


@dataclass(slots=True)
class Item:
    """A value of a policy file: where it stands and, for a plain scalar, how it was written."""

    value: Any  # None, bool, int, float, str, list[Item] or dict[str, Item]
    place: Place
    text: str = ""
    keys: dict[str, Place] = field(default_factory=dict)  # of a map: where each key stands
    gone: dict[str, Place] = field(default_factory=dict)  # of a map: where a null deleted a key
    size: int = 1
    height: int = 0

    def plain(self) -> Any:
        """The value without positions; keys that are null are left out."""
        if isinstance(self.value, dict):
            return {name: item.plain() for name, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value

    def at(self, path: Sequence[Step]) -> tuple[Item, int]:
        """The item at ``path``, or the nearest one above it, and how many steps were found."""
        item = self
        for depth, step in enumerate(path):
            try:
                item = item.value[step]
            except (KeyError, IndexError, TypeError):
                return item, depth
            if not isinstance(item, Item):  # an index into text
                return self.at(path[:depth])
        return item, len(path)

    def place_of(self, path: Sequence[Step], *, key: bool = False) -> Place:
        """Position of the value at ``path`` (of its key, if ``key``), or of the nearest one above it."""
        if path and isinstance(path[-1], str):
            above, depth = self.at(path[:-1])
            if depth == len(path) - 1 and isinstance(above.value, dict):
                if path[-1] in above.gone:
                    return above.gone[path[-1]]
                if key and path[-1] in above.keys:
                    return above.keys[path[-1]]
        item, depth = self.at(path)
        if depth < len(path) and depth and isinstance(path[depth - 1], str):
            # The map that lacks the key: its name says more than its first key.
            return self.at(path[: depth - 1])[0].keys.get(str(path[depth - 1]), item.place)
        return item.place


class Findings:
    """Collects diagnostics; of several errors about one path only the first counts."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self._wrong: set[tuple[Step, ...]] = set()

    def error(self, code: str, path: Sequence[Step], text: str, hint: str = "", place: Place | None = None) -> None:
        """Add an error about ``path``."""
        if path and tuple(path) in self._wrong:
            return
        self._wrong.add(tuple(path))
        self.found.append(Diagnostic(code, Severity.ERROR, dotted(path), text, hint, place))

    def warning(
        self,
        code: str,
        path: Sequence[Step],
        text: str,
        hint: str = "",
        place: Place | None = None,
        severity: Severity = Severity.WARNING,
    ) -> None:
        """Add a finding that is no error."""
        self.found.append(Diagnostic(code, severity, dotted(path), text, hint, place))

    def wrong(self, path: Sequence[Step]) -> bool:
        """Whether an error about ``path`` was found."""
        return tuple(path) in self._wrong

    @property
    def errors(self) -> list[Diagnostic]:
        """The errors among what was found."""
        return [one for one in self.found if one.severity is Severity.ERROR]


class _BrokenError(Exception):
    """The file can't be read any further."""


def read_text(name: str, stdin: TextIO | None) -> str:
    """The text of a policy file, ``-`` for standard input; ``UsageError`` where there is none."""
    shown = "<stdin>" if name == "-" else shown_name(name)
    if name == "-":
        if stdin is None:
            raise UsageError("no standard input to read a policy from")
        try:
            text = stdin.read(MAX_BYTES + 1)
            raw = text.encode("utf-8") if isinstance(text, str) else bytes(text)
        except (UnicodeError, OSError, ValueError):
            raise UsageError(f"{shown}: not UTF-8 text") from None
    else:
        try:
            path = Path(name)
            if path.is_dir():
                raise UsageError(f"{shown}: is a directory, not a policy file")
            with path.open("rb") as handle:
                raw = handle.read(MAX_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{shown}: {(error.strerror or 'cannot be read').lower()}") from None
        except ValueError:
            raise UsageError(f"{shown}: not a file name") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{shown}: larger than 1 MiB, so not a policy")
    if b"\0" in raw:
        raise UsageError(f"{shown}: contains NUL bytes, so not a text file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(f"{shown}: not UTF-8 text (line {line})") from None


def shown_name(name: str) -> str:
    """A file name that is safe to print."""
    return _CONTROL.sub("?", name)


def parse(text: str, file: str, findings: Findings) -> Item | None:
    """The policy in ``text``; None after an error that makes the rest unreadable."""
    reader = _Reader(text, shown_name(file), findings)
    try:
        return reader.document()
    except _BrokenError:
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark and "quoted scalar" in (error.context or ""):
            mark = error.context_mark  # where the quote begins says more than where the file ends
        place = Place(reader.file, mark.line + 1, mark.column + 1) if mark else Place(reader.file)
        within = ""
        if error.context and error.context_mark and mark and error.context_mark.line != mark.line:
            within = f", {error.context} that begins in line {error.context_mark.line + 1}"
        problem = error.problem or error.context
        if "quoted scalar" in (error.context or "") and "end of stream" in (error.problem or ""):
            problem = "the quote that begins here is not closed"
        findings.error("syntax", (), f"not YAML: {problem}{within}", _yaml_hint(text, mark), place)
    except yaml.reader.ReaderError as error:
        findings.error("syntax", (), f"not YAML: {error.reason}", "", Place(reader.file))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        findings.error("syntax", (), "not YAML", "", Place(reader.file))
    return None


def _yaml_hint(text: str, mark: Any) -> str:
    if mark is None:
        return ""
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())] or line[mark.column : mark.column + 1] == "\t":
        return "indent with spaces; YAML allows no tabs"
    if line[mark.column : mark.column + 1] in ("@", "`", "%"):
        return "quote a value that begins with this character"
    return "check indentation, quotes and brackets here and just above"


class _Reader:
    """Builds the :class:`Item` tree of one file from YAML events."""

    def __init__(self, text: str, file: str, findings: Findings) -> None:
        self.file = file
        self.findings = findings
        self.anchors: dict[str, Item] = {}
        self.nodes = 0
        self.controls = [match.start() for match in _RAW_CONTROL.finditer(text)]
        self.text = text
        self.named = False  # did an error name the field that a control character stands in?
        if self.controls:
            text = _RAW_CONTROL.sub(lambda match: chr(_SWAP + ord(match[0])), text)
        self.events: Iterator[Any] = iter(yaml.parse(text, Loader=_LOADER))

    def place(self, event: Any) -> Place:
        return Place(self.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def document(self) -> Item | None:
        item: Item | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if item is not None:
                    self.findings.error(
                        "syntax",
                        (),
                        "a second YAML document begins here",
                        "give several policies as several files; later ones are merged over earlier ones",
                        self.place(event),
                    )
                    raise _BrokenError
                item = self.node(next(self.events), (), 0)
        if self.controls and not self.named:
            at = self.controls[0]
            line, column = self.text.count("\n", 0, at), at - self.text.rfind("\n", 0, at)
            self.findings.error(
                "control-character",
                (),
                f"contains the control character U+{ord(self.text[at]):04X}",
                "remove it",
                Place(self.file, line + 1, column),
            )
            raise _BrokenError
        if item is None or item.value is None:
            self.findings.error(
                "syntax",
                (),
                "the file is empty",
                "the smallest policy has `version`, `name`, `sources` and `sinks`; `shipgen init` writes one",
                Place(self.file),
            )
            return None
        if not isinstance(item.value, dict):
            self.findings.error("wrong-type", (), "a policy is a map of keys", "begin with `version: 1`", item.place)
            return None
        return item

    def broken(self, code: str, path: Sequence[Step], text: str, hint: str, place: Place) -> _BrokenError:
        self.findings.error(code, path, text, hint, place)
        return _BrokenError()

    def count(self, item: Item, path: Sequence[Step], depth: int, place: Place) -> None:
        self.nodes += item.size
        if self.nodes > MAX_NODES:
            raise self.broken("syntax", path, f"more than {MAX_NODES} values, aliases counted", "", place)
        if depth + item.height > MAX_DEPTH:
            raise self.broken("syntax", path, f"nested more than {MAX_DEPTH} levels deep", "", place)

    def node(self, event: Any, path: tuple[Step, ...], depth: int) -> Item:
        place = self.place(event)
        if isinstance(event, yaml.AliasEvent):
            item = self.anchors.get(str(event.anchor))
            if item is None:
                raise self.broken("syntax", path, "this alias has no anchor before it", "define `&name` first", place)
            self.count(item, path, depth, place)
            return item
        item = Item(None, place)
        self.count(item, path, depth, place)
        if event.tag is not None and event.tag not in ("!", "tag:yaml.org,2002:str"):
            self.findings.error("syntax", path, "YAML tags have no place in a policy", "remove the tag", place)
        if isinstance(event, yaml.ScalarEvent):
            self.scalar(event, item, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            item.value = []
            for one in self.events:
                if isinstance(one, yaml.SequenceEndEvent):
                    break
                self.adopt(item, self.node(one, (*path, len(item.value)), depth + 1))
        else:
            self.mapping(item, path, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = item
        return item

    @staticmethod
    def adopt(parent: Item, one: Item, name: str = "") -> None:
        if isinstance(parent.value, list):
            parent.value.append(one)
        else:
            parent.value[name] = one
        parent.size += one.size
        parent.height = max(parent.height, one.height + 1)

    def mapping(self, item: Item, path: tuple[Step, ...], depth: int) -> None:
        item.value = {}
        merged: list[Item] = []
        for event in self.events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            place = self.place(event)
            if not isinstance(event, yaml.ScalarEvent):
                key = self.node(event, path, depth + 1)
                if not isinstance(key.value, str):
                    raise self.broken("wrong-type", path, "a map or a list can't be a key", "a key is text", place)
                name, merge = key.value, False
            else:
                key = Item(None, place)
                self.nodes += 1
                name, merge = self.clean(event.value, path, place), event.value == "<<" and not event.style
            value = self.node(next(self.events), path if merge else (*path, name), depth + 1)
            if merge:
                for one in value.value if isinstance(value.value, list) else [value]:
                    if not isinstance(one.value, dict):
                        self.findings.error(
                            "wrong-type", (*path, "<<"), "`<<` takes a map or a list of maps", "", place
                        )
                        continue
                    merged.append(one)
            elif name in item.keys:
                self.findings.error(
                    "duplicate-key",
                    (*path, name),
                    f"the key stands here a second time; the first is in line {item.keys[name].line}",
                    "remove one of them",
                    place,
                )
            else:
                item.keys[name] = place
                self.adopt(item, value, name)
        for one in merged:
            for name, value in one.value.items():
                if name not in item.keys:
                    item.keys[name] = one.keys[name]
                    self.adopt(item, value, name)

    def clean(self, text: str, path: Sequence[Step], place: Place) -> str:
        """``text`` without control characters, each field that has one being an error."""
        if self.controls:
            text = "".join(
                chr(ord(c) - _SWAP) if ord(c) >= _SWAP and _RAW_CONTROL.match(chr(ord(c) - _SWAP)) else c for c in text
            )
        match = _CONTROL.search(text)
        if match is None:
            return text
        self.named = True
        what, hint = f"the control character U+{ord(match[0]):04X}", "remove it"
        if match[0] == "\n":
            what, hint = "a line break", "write the value on one line (a block scalar `|` or `>` ends with a newline)"
        elif match[0] == "\t":
            what, hint = "a tab", "write a space, or `\\t` in a regular expression"
        self.findings.error("control-character", path, f"contains {what}", hint, place)
        return _CONTROL.sub("\ufffd", text)

    def scalar(self, event: Any, item: Item, path: Sequence[Step]) -> None:
        text = self.clean(event.value, path, item.place)
        item.value = text
        if event.style or event.tag is not None:  # libyaml says "" for plain, the Python parser None
            return
        item.text = text
        if text in _WORDS:
            item.value = _WORDS[text]
        elif _INT.match(text):
            item.value = int(text, 0 if text[1:2] in ("x", "o") else 10) if len(text) <= 20 else text
            if item.value is text or abs(item.value) > 2**63 - 1:
                self.findings.error("bad-value", path, "the number is too large", "quote it if it is text", item.place)
                item.value = text
        elif _FLOAT.match(text):
            item.value = float(text)
            if not math.isfinite(item.value):
                self.findings.error("bad-value", path, "the number is too large", "quote it if it is text", item.place)
                item.value = text
        elif _NOT_FINITE.match(text):
            self.findings.error(
                "bad-value", path, f"`{text}` is not a finite number", "quote it if it is text", item.place
            )


def without_nulls(item: Item, findings: Findings, path: tuple[Step, ...] = ()) -> Item:
    """``item`` with the keys that are null taken out, with a remark: there was nothing that they could delete."""
    if isinstance(item.value, list):
        return _copy(item, [without_nulls(one, findings, (*path, i)) for i, one in enumerate(item.value)])
    if not isinstance(item.value, dict):
        return item
    kept = {}
    gone = dict(item.gone)
    for name, one in item.value.items():
        if one.value is None:
            gone[name] = one.place
            findings.warning(
                "null-deletes-nothing",
                (*path, name),
                "null deletes a key of an earlier file, and there is none",
                "write `{}` for a map that is all defaults, or remove the key",
                one.place,
                Severity.NOTE,
            )
        else:
            kept[name] = without_nulls(one, findings, (*path, name))
    copy = _copy(item, kept)
    copy.gone = gone
    return copy


def _copy(item: Item, value: Any) -> Item:
    return Item(value, item.place, item.text, dict(item.keys), dict(item.gone), item.size, item.height)


def merge(
    base: Item, over: Item, named: Mapping[tuple[str, ...], str], findings: Findings, path: tuple[Step, ...] = ()
) -> Item:
    """``over`` merged over ``base``: maps key by key, lists at the paths in ``named`` by name, else ``over`` wins."""
    if isinstance(base.value, dict) and isinstance(over.value, dict):
        result = _copy(over, dict(base.value))
        result.place = base.place
        result.keys = {**base.keys, **over.keys}
        result.gone = dict(base.gone)
        for name, one in over.value.items():
            if one.value is None:
                result.gone[name] = one.place
                if result.value.pop(name, None) is None:
                    without_nulls(_copy(over, {name: one}), findings, path)  # for the remark
                continue
            result.gone.pop(name, None)
            if name in base.value:
                result.value[name] = merge(base.value[name], one, named, findings, (*path, name))
                if isinstance(one.value, dict):
                    result.keys[name] = base.keys[name]  # the map began there
            else:
                result.value[name] = without_nulls(one, findings, (*path, name))
        return result
    if isinstance(base.value, list) and isinstance(over.value, list) and path in named:
        return _merge_named(base, over, named, findings, path)
    return without_nulls(over, findings, path)


def _merge_named(
    base: Item, over: Item, named: Mapping[tuple[str, ...], str], findings: Findings, path: tuple[Step, ...]
) -> Item:
    key = named[path]  # type: ignore[index]

    def name_of(item: Item) -> str | None:
        name = item.value.get(key) if isinstance(item.value, dict) else None
        return name.value if name is not None and isinstance(name.value, str) else None

    items = list(base.value)
    where = {name_of(item): index for index, item in reversed(list(enumerate(items)))}
    taken: set[str] = set()  # a name that a file gives twice is an error of that file, not an override
    for one in over.value:
        name = name_of(one)
        if name is not None and name in where and name not in taken:
            taken.add(name)
            index = where[name]
            items[index] = merge(items[index], one, named, findings, (*path, index))
        else:
            items.append(without_nulls(one, findings, (*path, len(items))))
    return _copy(over, items)
