"""What a rendered configuration says about the files it reads, in one shape for every shipper, read by the parser of
its own format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import PurePosixPath
from typing import Any

import onigurumacffi
import re2
import yaml

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a shipper.

    ``id`` and ``store`` are what offsets are kept under and where. ``starts`` says of a line whether it starts an
    entry; None where every line does. ``flush_s`` is the pause after which an entry is complete, None where lines are
    not joined.
    """

    id: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    from_beginning: bool
    by_inode: bool
    store: str
    rescan_s: float
    starts: Callable[[str], bool] | None = None
    flush_s: float | None = None
    stars_cross: bool = False
    left_out: tuple[str, ...] = field(default=())

    def reads(self, path: str) -> bool:
        """Is a file of this path read? Judged by a matcher of the shipper's own kind of glob."""
        excluded = any(matches(glob, path, stars_cross=self.stars_cross) for glob in self.exclude)
        excluded = excluded or any(re2.search(regex, path) is not None for regex in self.left_out)
        return not excluded and any(matches(glob, path) for glob in self.include)


def matches(glob: str, path: str, *, stars_cross: bool = False) -> bool:
    """A glob with `*`, `?` and `[..]`; braces where a shipper has them. In some excludes `*` crosses a slash."""
    star = ".*" if stars_cross else "[^/]*"
    for one in expanded(glob):
        parts = re.findall(r"\[[!^]?[^\]]+\]|.", one)
        regex = "".join(
            star if p == "*" else "[^/]" if p == "?" else p.replace("[!", "[^") if len(p) > 1 else re.escape(p)
            for p in parts
        )
        if re.fullmatch(regex, path):
            return True
    return False


def expanded(glob: str) -> Iterator[str]:
    """A glob without its braces, as doublestar reads them."""
    pieces = re.split(r"\{([^{}]*)\}", glob)
    choices = [[piece] if i % 2 == 0 else piece.split(",") for i, piece in enumerate(pieces)]
    return ("".join(chosen) for chosen in product(*choices))


def found(regex: str, line: str) -> bool:
    """Is the regex found in the line, as RE2 reads it?"""
    return re2.search(regex, line) is not None


def vector(files: Files) -> list[Input]:
    """`vector.yaml`."""
    config = yaml.safe_load(files["vector/vector.yaml"])
    return [_vector_input(config, id_, s) for id_, s in config["sources"].items() if s["type"] == "file"]


def _vector_input(config: Mapping[str, Any], id_: str, source: Mapping[str, Any]) -> Input:
    joins = source.get("multiline")
    readers = [t for t in config["transforms"].values() if id_ in t["inputs"]]
    abort = re.compile(r"if match\(\(string\(\.file\) \?\? \"\"\), r'(.*)'\) \{ abort")
    aborts = [regex for t in readers for regex in abort.findall(t["source"])]
    starts: Callable[[str], bool] | None = None
    if joins and joins["mode"] == "halt_before":
        starts = lambda line: found(joins["condition_pattern"], line)  # noqa: E731
    elif joins:
        assert joins["mode"] == "continue_through"
        starts = lambda line: not found(joins["condition_pattern"], line)  # noqa: E731
    return Input(
        id=id_, include=tuple(source["include"]), exclude=tuple(source["exclude"]),
        from_beginning=source["read_from"] == "beginning" and source["ignore_checkpoints"] is False,
        by_inode=source["fingerprint"]["strategy"] == "device_and_inode", store=f"{config['data_dir']}/{id_}",
        rescan_s=source["glob_minimum_cooldown_ms"] / 1000, starts=starts,
        flush_s=joins["timeout_ms"] / 1000 if joins else None, stars_cross=True, left_out=tuple(aborts),
    )  # fmt: skip


def promtail(files: Files) -> list[Input]:
    """`promtail.yaml`. Each target of a job is an input; positions are kept by path."""
    config = yaml.safe_load(files["promtail/promtail.yaml"])
    return [
        _promtail_input(config, job, target["labels"])
        for job in config["scrape_configs"]
        for target in job["static_configs"]
    ]


def _promtail_input(config: Mapping[str, Any], job: Mapping[str, Any], labels: Mapping[str, str]) -> Input:
    at = next((i for i, stage in enumerate(job["pipeline_stages"]) if "multiline" in stage), None)
    starts: Callable[[str], bool] | None = None
    joins: Mapping[str, Any] = {}
    if at is not None:
        joins = job["pipeline_stages"][at]["multiline"]
        before = job["pipeline_stages"][:at]

        def starts(line: str) -> bool:
            named: set[str] = set()
            for stage in before:
                if (regex := stage.get("regex")) and re2.search(regex["expression"], line) is not None:
                    named |= set(re.findall(r"\(\?P<(\w+)>", regex["expression"]))
                text = stage.get("template", {}).get("template", "")
                marks = re.search(r'hasKey \. "(\w+)" -}}\{\{- print "(.*?)" \.Entry', text)
                if marks and marks[1] in named:
                    line = json.loads(f'"{marks[2]}"'.replace("\\x", "\\u00")) + line
            return found(joins["firstline"], line)

    exclude = labels.get("__path_exclude__")
    return Input(
        id=labels["__path__"], include=(labels["__path__"],), exclude=(exclude,) if exclude else (),
        from_beginning=True, by_inode=False, store=f"{config['positions']['filename']}#{labels['__path__']}",
        rescan_s=_seconds(config["target_config"]["sync_period"]), starts=starts,
        flush_s=_seconds(joins["max_wait_time"]) if joins else None,
    )  # fmt: skip


def _seconds(text: str) -> float:
    number, unit = re.fullmatch(r"([0-9.]+)(ms|s|m)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"ms": 0.001, "s": 1, "m": 60}[unit]


@dataclass(slots=True)
class Section:
    """A directive of Fluentd's configuration: `<name argument>`, its settings, and the sections in it."""

    name: str
    settings: dict[str, str] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)


def fluentd_sections(text: str) -> list[Section]:
    """Fluentd's own grammar, as far as values of one line go."""
    stack = [Section("")]
    for line in (line.strip() for line in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if line.startswith("</"):
            stack.pop()
        elif line.startswith("<"):
            stack.append(Section(line[1:-1].partition(" ")[0]))
            stack[-2].sections.append(stack[-1])
        else:
            name, _, value = line.partition(" ")
            stack[-1].settings[name] = _fluentd_value(value.strip())
    assert len(stack) == 1
    return stack[0].sections


def _fluentd_value(value: str) -> str:
    """Single quotes: a backslash escapes itself and the quote. Nothing in them is evaluated."""
    if value.startswith("'"):
        assert re.fullmatch(r"'(?:[^'\\]|\\.)*'", value), value
        return re.sub(r"\\(['\\])", r"\1", value[1:-1])
    return value


def fluentd(files: Files) -> list[Input]:
    """`fluent.conf`."""
    sections = fluentd_sections(files["fluentd/fluent.conf"].decode())
    return [_fluentd_input(s) for s in sections if s.name == "source" and "path" in s.settings]


def _fluentd_input(source: Section) -> Input:
    own = source.settings
    parse = next((s.settings for s in source.sections if s.name == "parse" and "regex" in s.settings), None)
    starts: Callable[[str], bool] | None = None
    if parse is not None:
        hit = parse["begins"] == "found"
        starts = lambda line: found(parse["regex"], line) is hit  # noqa: E731
    flush = own.get("multiline_flush_interval")
    return Input(
        id=own["@id"], include=tuple(own["path"].split(own["path_delimiter"])),
        exclude=tuple(json.loads(own.get("exclude_path", "[]"))), from_beginning=own["read_from_head"] == "true",
        by_inode=own["follow_inodes"] == "true", store=own["pos_file"], rescan_s=float(own["refresh_interval"]),
        starts=starts, flush_s=float(flush) if flush and starts else None,
    )  # fmt: skip


def fluentbit(files: Files) -> list[Input]:
    """`fluent-bit.yaml`, and of `shipgen.lua` the files that its program leaves out."""
    config = yaml.safe_load(files["fluentbit/fluent-bit.yaml"])
    parsers = {parser["name"]: parser for parser in config.get("multiline_parsers", ())}
    lua = files["fluentbit/shipgen.lua"].decode()
    tails = [one for one in config["pipeline"]["inputs"] if one["name"] == "tail"]
    return [_fluentbit_input(parsers, one, _left_out_by_lua(lua, one["alias"])) for one in tails]


def _left_out_by_lua(lua: str, alias: str) -> tuple[str, ...]:
    source = re.escape(alias.removesuffix(".file"))
    table = re.search(rf'name = "{source}".*?exclude = \{{(.*?)\}},?\n', lua, re.DOTALL)
    regexes = re.findall(r'compile\("((?:[^"\\]|\\.)*)"\)', table[1]) if table and alias.endswith(".file") else []
    return tuple(re.sub(r"\\(.)", r"\1", regex) for regex in regexes)


def _fluentbit_input(parsers: Mapping[str, Any], own: Mapping[str, Any], left_out: tuple[str, ...]) -> Input:
    parser = parsers.get(own.get("multiline.parser"))
    starts: Callable[[str], bool] | None = None
    if parser is not None:
        # the rules of a state are tried before the start rule
        continues = [onigurumacffi.compile(r["regex"][1:-1]) for r in parser["rules"] if r["state"] != "start_state"]
        starts = lambda line: not any(regex.search(line) for regex in continues)  # noqa: E731
    return Input(
        id=own["alias"], include=tuple(own["path"].split(",")),
        exclude=tuple(filter(None, own.get("exclude_path", "").split(","))),
        from_beginning=own["read_from_head"] and own["read_newly_discovered_files_from_head"], by_inode="db" in own,
        store=own["db"], rescan_s=float(own["refresh_interval"]), starts=starts,
        flush_s=parser["flush_timeout"] / 1000 if parser else None, stars_cross=True, left_out=left_out,
    )  # fmt: skip


def filebeat(files: Files) -> list[Input]:
    """`filebeat.yml`. Offsets are kept in one registry, by the id of the input."""
    config = yaml.safe_load(re.sub(rb"[$]([$}])", rb"\1", files["filebeat/filebeat.yml"]))
    return [_filebeat_input(one, f"{config['path.data']}/registry#{one['id']}") for one in config["filebeat.inputs"]]


def _filebeat_input(own: Mapping[str, Any], store: str) -> Input:
    joins = own["parsers"][0]["multiline"] if "parsers" in own else None
    starts: Callable[[str], bool] | None = None
    if joins:
        starts = lambda line: found(joins["pattern"], line) is joins["negate"]  # noqa: E731
    scanner = own["prospector.scanner"]
    by_inode = "file_identity.native" in own and scanner["fingerprint.enabled"] is False
    return Input(
        id=own["id"], include=tuple(own["paths"]), exclude=(), from_beginning="ignore_inactive" not in own,
        by_inode=by_inode and own["clean_removed"] is False, store=store, rescan_s=_seconds(scanner["check_interval"]),
        starts=starts, flush_s=_seconds(joins["timeout"]) if joins else None,
        left_out=tuple(scanner.get("exclude_files", ())),
    )  # fmt: skip


READERS: Mapping[str, Callable[[Files], list[Input]]] = {
    "vector": vector, "fluentbit": fluentbit, "fluentd": fluentd, "promtail": promtail,
    "filebeat": filebeat,
}  # fmt: skip


def inside(path: str, directory: str) -> bool:
    """Does a path lie in a directory?"""
    return PurePosixPath(directory) in PurePosixPath(path).parents
