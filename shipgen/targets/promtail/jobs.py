"""The scrape jobs of a pipeline: which files go through which stages.

Lines are joined, the path and the text headers are read by regexes, one template puts together what an entry says of
itself, then come the rules and the labels. Every stage is one of `clients/pkg/logentry/stages` at 3.6.15. `match` is
not used: its entries run beside those that it passes over, so lines of one file would overtake each other.

Fields of a record have their own names among the extracted values; what stages hand to each other begins with `S_`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shipgen.catalog import formats, ray, record, verl
from shipgen.pipeline import conditions
from shipgen.pipeline.conditions import ALWAYS, NEVER, Condition
from shipgen.pipeline.model import Pipeline, Rule, SecretRef, Sink, Source
from shipgen.targets import common
from shipgen.targets.base import condition_context
from shipgen.targets.promtail import regexes

HOST_NAME = "HOSTNAME"
"""Variable that the node's name is read from where the policy gives none: Promtail's stages do not know the host."""
MARK = "\x02shipgen\x03"
"""Put in front of lines that continue an entry; Promtail can join only by what an entry begins with."""
UNMARKED = r"^(?:[^\x02]|\x02[^s]|\x02?$)"
NO_MORE_LINES = 1_000_000
"""Lines that are joined at most; entries are cut by size, not here."""
BLANK = r"[ \t\r\f\v]"
NOTHING = "\x02"
"""Stands for an empty text, since a template that prints nothing leaves no value."""
FAILED = "[redaction failed]"
BROKEN = r"\x{fffd}+$"
"""What is left of a character that was cut in two."""
LIMIT_LABEL = "__limit"
LIMIT_KEYS = 100_000
JSON_STRING = r'"(?:[^"\\]|\\.)*"'
ODD_NUMBERS = {
    "odd_number": r"[0-9]{16}|[0-9][.eE]", "number": r"-?[0-9]+(?:[.eE][0-9.eE+-]*|[0-9]{15})",
    "mark": r'"\u0002${0}\u0002"', "marked": r'"\\u0002([^"]*)\\u0002"', "unmark": "${1}",
}
"""Numbers that a double would change are made strings with a mark, and numbers again."""
NOT_REDACTED = ("time", "time_source", "entry_time", "parse_error", "truncated", "sample_rate", "raw", "extra")
"""Fields that hold no text of a log, and those whose text is redacted in its own way."""

CLOSED = ("level", "component", "source", "cluster", "node", "stream", "parse_error", "truncated", "time_source")
"""Fields whose values shipgen or the policy fixes."""

ALWAYS_THERE = ("raw", "message", "json")
"""What `line` can be."""
_ID_FIELDS = tuple(k for k in formats.JSON_IDS if k != "submission_id")
_SHARED = ("multiline", "regex", "replace", "template", "logfmt", "structured_metadata", "static_labels", "labels")

Stage = dict[str, Any]


def union(globs: list[str]) -> str:
    """Several globs as one: a target has room for one only. The directories they share come first, since a pattern that
    begins with a brace is no absolute path to Promtail."""
    if len(globs) == 1:
        return globs[0]
    parts = [g.split("/") for g in globs]
    same = list(itertools.takewhile(lambda column: len(set(column)) == 1, zip(*(p[:-1] for p in parts), strict=False)))
    at = sum(len(column[0]) + 1 for column in same)
    return globs[0][:at] + "{" + ",".join(g[at:] for g in globs) + "}"


def _present(values: Mapping[str, str | None]) -> dict[str, str]:
    return {k: v for k, v in values.items() if v is not None}


def _offset(zone: str) -> str:
    """The standard time of a zone as RFC 3339 writes it."""
    if zone in ("local", "UTC"):
        return "Z"
    text = common.zone_offset(zone).strip()
    return f"{text[:3]}:{text[3:5]}"


@dataclass
class Job:
    """Files that go through one pipeline: those of a Ray source that are read alike and meet the same rules, or those
    of another source. ``rules`` are what is left of each rule once source and component are known."""

    pipeline: Pipeline
    source: Source
    sink: Sink
    rules: tuple[tuple[Rule, Condition], ...]
    when: Condition
    name: str = ""
    families: list[ray.Family] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)

    @property
    def kinds(self) -> list[dict[str, Any]]:
        """How the entries of each family are read."""
        return [common.entry_kind(self.source, family) for family in self.families]

    def read(self) -> set[str]:
        """Fields that a rule, or the sink's condition, reads."""
        names = {f for when in (self.when, *(w for _, w in self.rules)) for f in conditions.fields(when)}
        for rule, _ in self.rules:
            by = rule.options.get("by", ()) if rule.action in ("sample", "limit") else ()
            names |= {by} if isinstance(by, str) else set(by)
        return names

    def wanted(self) -> set[str]:
        """Fields that somebody sees."""
        options = self.sink.options
        sent = {*options["labels"]["fields"], *common.loki_metadata(options), options["line"]}
        return sent | self.read() | set(common.possible_fields(self.pipeline) if options["line"] == "json" else ())

    def pairs(self) -> list[str]:
        """Fields that a pair of VeRL's may give, of those that somebody sees. Promtail makes no others."""
        if not self.source.pairs:
            return []
        taken = {*verl.RESERVED, *ALWAYS_THERE, *common.regex_groups(self.source)}
        return sorted(f for f in self.wanted() if f not in taken)

    def targets(self) -> Iterator[dict[str, Any]]:
        """What is read: a glob each, with what is known beforehand as labels, which stages make values of."""
        node = self.pipeline.collector.node
        known = {"source": self.source.name, "cluster": self.pipeline.cluster,
                 "component": self.source.component or None, "node": node if isinstance(node, str) else None}
        if not self.families:
            exclude = union(list(self.source.exclude)) if self.source.exclude else ""
            yield {"path": union(list(self.source.paths)), "labels": _present(known), "exclude": exclude}
        prefix = f"{self.source.base}/{ray.SESSION_GLOB}/logs/"
        for family, kind in zip(self.families, self.kinds, strict=True):
            names = [g.removeprefix(prefix) for g in common.globs(self.source, family, backups=False)]
            flags = {"component": family.component, "S_driver": "1" if kind["cut_driver"] else None,
                     "S_events": "1" if kind["events"] else None}
            err = [n for n in names if n.endswith(".err")] if kind["cut_serve"] or kind["cut_cpp"] else []
            for part, flag in ((err, "1"), ([n for n in names if n not in err], None)):
                if part:
                    yield {"path": prefix + union(part), "exclude": "",
                           "labels": _present({**known, **flags, "S_err": flag})}

    # -- stages

    def add(self, kind: str, **settings: Any) -> None:
        """One stage."""
        self.stages.append({"kind": kind, **settings})

    def template(self, name: str, source: str, **context: Any) -> None:
        """A template that gives a value; one that prints nothing takes it away."""
        self.add("template", source=source, template=f"promtail/{name}.go.j2", f=context)

    def replace(self, expression: str, text: str = "", source: str = "") -> None:
        """What the regex captures becomes this text, in a value or in the entry."""
        self.add("replace", expression=expression, text=text, source=source)

    def regex(self, expression: str, source: str = "") -> None:
        """Named groups become values, where the regex matches."""
        self.add("regex", expression=expression, source=source)

    def drop(self, reason: str, source: str = "", expression: str = "", longer_than: int = 0) -> None:
        """Entries go, counted under a reason."""
        self.add("drop", reason=reason, source=source, expression=expression, longer_than=longer_than)

    def output(self, source: str) -> None:
        """A value becomes the entry, where there is one."""
        self.add("output", source=source)

    def logfmt(self, source: str, names: Iterable[str]) -> None:
        """Values out of lines of `name=value`."""
        self.add("logfmt", source=source, mapping=list(names))


class _Reading:
    """What the jobs of one source have in common, so that they share the program that reads an entry."""

    def __init__(self, jobs: list[Job]) -> None:
        job = jobs[0]
        kinds = [kind for one in jobs for kind in one.kinds]
        self.wanted: set[str] = set().union(*(one.wanted() for one in jobs))
        self.json = bool(job.families) or job.source.format == "json"
        self.cut = {key: any(k[key] for k in kinds) for key in ("cut_driver", "cut_serve", "cut_cpp")}
        self.events = any(k["events"] for k in kinds)
        redactions = {r.name: r for one in jobs for r, _ in one.rules if r.action == "redact"}
        self.redacted = [f"S_json_{_identifier(name)}" for name in redactions] if self.json else []
        self.ok = bool(self.redacted) or "message" in self.wanted or job.sink.options["line"] == "json"
        self.extra = any("extra" in one.read() for one in jobs)
        self.patterns = list(dict.fromkeys(f.pattern for one in jobs for f in one.families if f.pattern))

    @staticmethod
    def path(pattern: str) -> tuple[str, list[str]]:
        """The regex of a family's names, and the groups of it that may be empty or say nothing. Those get names of
        their own, and the program decides about them."""
        groups = [g for g in re.compile(pattern).groupindex if g == "job_id" or "(?:" in pattern]
        for group in groups:
            pattern = pattern.replace(f"(?P<{group}>", f"(?P<S_path_{group}>")
        return pattern, groups

    def program(self, job: Job) -> dict[str, Any]:
        """The context of the template that reads an entry."""
        pipeline, source, server = job.pipeline, job.source, job.sink.options["server"]
        spellings: dict[str, list[str]] = {}
        for word, name in formats.LEVELS.items():
            spellings.setdefault(name, []).extend([word, word.lower()] if len(word) > 1 else [word])
        words = [w for several in spellings.values() for w in several]
        layout = source.time.layout if source.time else ""
        node = pipeline.collector.node
        path_fields = [g for pattern in self.patterns for g in self.path(pattern)[1]]
        return {
            "json": self.json, "regex": source.format == "regex", "headers": bool(job.families), **self.cut,
            "cut_headers": self.cut["cut_serve"] or self.cut["cut_cpp"], "twins": any(self.cut.values()),
            "zone": pipeline.timezone, "offset": _offset(pipeline.timezone), "layout": layout,
            "digits": common.EPOCH_DIGITS.get(layout), "events": self.events,
            "path_fields": list(dict.fromkeys(path_fields)), "unknown_job": ray.UNKNOWN_JOB,
            "node_env": "" if isinstance(node, str) else node.name if isinstance(node, SecretRef) else HOST_NAME,
            "json_fields": [(f, k) for f, k in common.json_fields() if f != "pid" and f in self.wanted],
            "json_pid": formats.JSON_PID, "json_level": formats.JSON_LEVEL, "levels": list(spellings.items()),
            "level_words": f"|{'|'.join(words)}|", "caller": "caller" in self.wanted,
            "header_fields": [f for f in ("thread", "caller") if f in self.wanted], "pair_fields": _ID_FIELDS,
            "redacted": self.redacted, "failed": FAILED, "ok": self.ok, "extra": self.extra,
            "consumed": common.json_consumed(events=self.events), "late": job.sink.options["late"],
            "max_behind": common.max_behind(server), "max_ahead": common.MAX_AHEAD,
        }


def _identifier(name: str) -> str:
    """A name as part of an identifier; different ones stay different."""
    return name.replace("-", "X").replace("/", "Y")


class _Build:
    """Adds the stages of a job, in order."""

    def __init__(self, job: Job, reading: _Reading) -> None:
        self.job = job
        self.reading = reading
        self.wanted = job.wanted()
        self.matchers = 0
        self.counters: list[tuple[str, str]] = []
        self.join()
        self.cut()
        self.path()
        self.text()
        self.entry()
        for rule, when in job.rules:
            self.rule(rule, when)
        if job.when != ALWAYS:
            self.drop_where(conditions.Not(job.when), f"when-{job.sink.name}")
        self.finish()

    # -- lines into entries

    def join(self) -> None:
        """Lines become entries. The file's name has to be a label for as long as lines are joined by file."""
        job, source = self.job, self.job.source
        grouping = job.families[0].grouping if job.families else None
        if source.on_long_line == "skip":
            job.drop("long-line", longer_than=source.max_line)
        start, wait = "", common.FLUSH_MS
        continuation = formats.CONTINUATION if grouping is ray.Grouping.USER else source.continuation
        if continuation:
            job.regex("^(?P<S_more>)" + continuation[1:])
            job.template("mark", "S_marked", mark=MARK)
            job.output("S_marked")
            start = UNMARKED
        elif grouping is ray.Grouping.HEADER:
            start = formats.HEADER
        elif source.multiline:
            start, wait = source.multiline.start, source.multiline.timeout
        if start:
            job.add("multiline", firstline=start, max_lines=NO_MORE_LINES, max_wait_ms=wait)
        job.add("labeldrop", labels=list(dict.fromkeys(["filename", *(n for t in job.targets() for n in t["labels"])])))
        control = rf"^(?:{formats.MARKER[1:]}|\{{[^\n]*{formats.TQDM})[^\n]*"
        if grouping is ray.Grouping.USER:
            job.drop("control", expression=f"{control}$")
            if any(k["markers"] for k in job.kinds):
                job.replace(f"(?m)({regexes.without_groups(formats.GLUED_MARKER.removeprefix('(?m)'))})")
        job.template(
            "shape", "S_shaped", mark=MARK if continuation else "", lines=bool(start),
            tqdm=formats.TQDM, control=rf"{control}(?:\n|$)", trailing=rf"(?:\n{BLANK}*)+$",
            leading=rf"^(?:{BLANK}*\n)+", white=" \t\r\n\f\v", nothing=NOTHING,
        )
        job.output("S_shaped")
        job.drop("blank", expression=rf"^[{regexes.literal(NOTHING)} \t\r\n\f\v]*$")

    def cut(self) -> None:
        """What is too long is cut."""
        job, source, options = self.job, self.job.source, self.job.sink.options
        longest = source.max_entry
        if options["line"] != "json":
            longest = min(longest, options["server"]["max_line_size"])
        lines = source.multiline.max_lines if source.multiline else None
        job.template("cut", "S_cut", max_entry=longest, max_line=source.max_line, max_lines=lines,
                     beyond=f"_{lines}", broken=BROKEN)
        job.output("S_cut")

    # -- what is found in the path and in the text

    def path(self) -> None:
        job, root = self.job, self.job.pipeline.collector.root
        if not job.families:
            job.regex(rf"^{regexes.literal(root) if root != '/' else ''}(?P<file>/.*)$", "filename")
            return
        base = regexes.literal(job.source.base)
        job.regex(rf"^{base}/(?P<session>[^/]+)/logs/(?:old/)?(?P<file>.*)$", "filename")
        for pattern in dict.fromkeys(f.pattern for f in job.families if f.pattern):
            job.regex(self.reading.path(pattern)[0], "file")

    def text(self) -> None:
        """What regexes find: groups of the policy's own, or text headers; and the JSON object of a first line."""
        job = self.job
        if job.source.format == "regex":
            self.groups()
        if job.families:
            self.headers()
        if self.reading.json:
            job.regex(r'^(?P<S_json>\{".*)')
            job.replace(f"({formats.ANSI})", source="S_json")
            job.regex(r'"timestamp_ns": *(?P<S_ns>[1-9][0-9]{0,18})[,}]', "S_json")

    def groups(self) -> None:
        job, source = self.job, self.job.source
        names = {"level": "S_level", "message": "S_message"} | ({source.time.field: "S_time"} if source.time else {})
        pattern = source.regex
        for group, name in names.items():
            pattern = pattern.replace(f"(?P<{group}>", f"(?P<{name}>")
        job.template("first", "S_first")
        job.regex(f"(?P<S_hit>)(?:{pattern})", "S_first")
        for group in common.regex_groups(source):
            job.template("group", group, field=group)
        self.pairs()

    def pairs(self) -> None:
        """Fields that pairs or words of the message's first line give; those of the policy's groups stay."""
        job, names = self.job, self.job.pairs()
        if not names:
            return
        text = "S_message" if "(?P<message>" in job.source.regex else "S_first"
        self.copy("S_pairs", text)
        words = [prose for prose in verl.PROSE if prose.field in names]
        for prose in words:
            job.regex(prose.regex.replace("(?P<", "(?P<S_word_"), "S_pairs")
        job.template("pairs", "S_found", names=names, pair=regexes.without_groups(verl.PAIR),
                     words=[(prose.field, prose.event, f"S_word_{prose.field}") for prose in words])
        job.logfmt("S_found", names)

    def headers(self) -> None:
        """Text headers. The date alone comes first, since a header that begins with a date says more."""
        job, kinds = self.job, self.job.kinds
        if any(k["cut_driver"] for k in kinds):
            job.regex(f"^(?P<S_repeat>{formats.DRIVER_REPEAT[1:]})")
        cpp, serve = ("S_twin" if any(k[key] for k in kinds) else "S_header" for key in ("cut_cpp", "cut_serve"))
        job.regex(regexes.named(formats.DATED))
        for pattern, group in (
            (formats.PYTHON, "S_python"), (formats.CPP, cpp), (formats.SERVE, serve), (formats.ABSL, "S_header"),
            *([(formats.LOGGING, "S_header")] if any(f.grouping is ray.Grouping.USER for f in job.families) else []),
        ):
            seen = "message" in self.wanted or group != "S_header"
            expression = regexes.header(pattern, group) if seen else regexes.named(pattern)
            if "S_twin" not in (cpp, serve):  # nothing is taken back, so these can be values at once
                for name in ("pid", "thread", "caller"):
                    expression = expression.replace(f"(?P<S_{name}>", f"(?P<{name}>" if name in self.wanted else "(?:")
            job.regex(expression)
        job.regex(r" timestamp_ns=(?P<S_ns>[1-9][0-9]{18})$")
        job.regex(regexes.named(formats.PAIRS, "S_pair_"))

    # -- the record

    def entry(self) -> None:
        """One template says all that an entry says of itself; logfmt makes values of that."""
        job, reading = self.job, self.reading
        f = reading.program(job)
        redacts = any(rule.action == "redact" for rule, _ in job.rules)
        if redacts:  # stays there if the program fails
            job.template("constant", "S_entry", text=f'\nS_failed="{FAILED}"\ntime_source="read"')
        job.template("entry", "S_entry", **f)
        groups = common.regex_groups(job.source) if job.source.regex else ()
        own = ("time", "raw", "message", "extra", *job.pairs(), *groups)
        job.logfmt("S_entry", [*(n for n in record.FIELDS if n not in own), "S_ok", "S_rest", "S_t", "S_late",
                               "S_extra", *reading.redacted, *(["S_failed"] if redacts else [])])
        if redacts:
            job.output("S_failed")
            self.counters.append((f"redaction_failed_{_identifier(job.name)}_total", "S_failed"))
        job.add("timestamp", source="S_t", format="UnixNs")
        if f["late"] == "drop":
            job.drop("late", source="S_late")
        if any(k[key] for k in job.kinds for key in ("cut_driver", "cut_serve", "cut_cpp")):
            job.template("rest", "S_text", nothing=NOTHING)
            job.drop("repeat", source="S_text", expression=f"^{regexes.literal(NOTHING)}$")
            job.output("S_text")
        if "message" in self.wanted:
            job.template("message", "message", json=f["json"], regex=f["regex"], headers=f["headers"],
                         group="(?P<message>" in job.source.regex, header_groups=["S_header", "S_twin", "S_python"],
                         redacts=redacts)

    # -- rules

    def when(self, condition: Condition) -> dict[str, Any]:
        """A condition for templates. Its regexes are stages in front: templates would compile them for each record."""
        context = condition_context(condition)
        self.matching(context)
        return context

    def matching(self, c: dict[str, Any]) -> None:
        if c["kind"] == "matches":
            self.matchers += 1
            c["found"] = f"S_m{self.matchers}"
            self.job.regex(regexes.found(c["regex"], c["found"]), "" if c["field"] == "raw" else c["field"])
        elif c["kind"] == "exists" and c["field"] == "extra":
            c["field"] = "S_extra"
        for part in c["of"] if isinstance(c.get("of"), list) else [c["of"]] if "of" in c else []:
            self.matching(part)

    def drop_where(self, condition: Condition, reason: str, **sample: Any) -> None:
        context = self.when(condition)
        if context["kind"] == "matches" and not sample:
            self.job.drop(reason, source=context["found"])
            return
        self.job.template("flag", "S_drop", when=context, **{"rate": None, "by": "", **sample})
        self.job.drop(reason, source="S_drop")

    def rule(self, rule: Rule, when: Condition) -> None:
        job, options, reason = self.job, rule.options, f"rule-{rule.name}"
        match rule.action:
            case "drop":
                self.drop_where(when, reason)
            case "sample":
                rate = options["rate"]
                self.drop_where(when, reason, rate=rate, by=options.get("by", ""), parts=round(rate * 1_000_000),
                                hash=f"{round(rate * 0xFFFFFFFF):08x}")
                if "sample_rate" in self.wanted:
                    job.template("set", "sample_rate", when=self.when(when), field="sample_rate", value=repr(rate))
            case "limit":
                job.template("limit", LIMIT_LABEL, when=self.when(when), by=list(options.get("by", ())))
                job.add("labels", labels=[(LIMIT_LABEL, LIMIT_LABEL)])
                job.add("limit", label=LIMIT_LABEL, rate=options["records"] * 1000 / options["per"],
                        burst=options["records"], keys=LIMIT_KEYS)
                job.add("labeldrop", labels=[LIMIT_LABEL])
            case "add":
                for name, value in options.items():
                    if name in self.wanted:
                        job.template("set", name, when=self.when(when), field=name, value=value)
            case "redact":
                self.redact(_identifier(rule.name), when, regexes.redaction(options))

    def redact(self, name: str, when: Condition, how: dict[str, Any]) -> None:
        """The text by a `replace` stage, a JSON entry by a template, each field by a stage of its own. `replace` cannot
        fail. Where a template does, what is delivered is what stood in its place before: that redaction failed."""
        job, is_json, flag = self.job, self.reading.json, ""
        named = f"{_identifier(job.name)}Z{name}"
        if when != ALWAYS:
            flag = f"S_when_{name}"
            context = self.when(when)
            job.template("constant", flag, text=FAILED)
            job.template("flag", flag, when=context, rate=None, by="")
            self.counters.append((f"redaction_undecided_{named}_total", flag))
        if is_json:
            hint = "" if regexes.anchored(how["regex"]) else f"S_hint_{name}"
            if hint:
                job.regex(regexes.found(how["regex"], hint), "S_json")
            job.template("redact_json", f"S_json_{name}", flag=flag, hint=hint, strings=JSON_STRING,
                         ansi=formats.ANSI, **how)
            self.counters.append((f"redaction_failed_{named}_total", f"S_json_{name}"))
        if flag:
            self.copy("S_copy", "Entry", flag, unless="S_ok" if is_json else "")
        job.replace(how["expression"], how["text"], "S_copy" if flag else "")
        if flag:
            job.output("S_copy")
        if is_json:
            job.output(f"S_json_{name}")
        fields = [f for f in common.possible_fields(job.pipeline) if f in self.wanted and f not in NOT_REDACTED]
        fields += [f for f in job.pairs() if f not in fields]
        if flag:
            self.redact_copies(f"S_{name}_", flag, fields, how)
        else:
            for one in fields:
                job.replace(how["expression"], how["text"], one)
        for one in job.pairs():
            job.template("pair_gone", one, field=one, **{"with": how["text"]})

    def copy(self, name: str, field: str, flag: str = "", unless: str = "") -> None:
        """A value under another name, so that the stages behind work on it only where a flag is."""
        self.job.template("copy", name, field=field, flag=flag, unless=unless, failed=FAILED)

    def redact_copies(self, prefix: str, flag: str, fields: list[str], how: dict[str, Any]) -> None:
        """Fields only where a flag is: copied under other names there, redacted, and copied back."""
        job = self.job
        short = [f for f in fields if f != "message"]
        job.template("move", "S_move", flag=flag, names=[(f, prefix + f) for f in short], failed=FAILED)
        job.logfmt("S_move", [prefix + f for f in short])
        if "message" in fields:
            self.copy(f"{prefix}message", "message", flag)
        for one in fields:
            job.replace(how["expression"], how["text"], prefix + one)
        job.template("move", "S_move", flag="", names=[(prefix + f, f) for f in short])
        job.logfmt("S_move", short)
        if "message" in fields:
            job.template("back", "message", copied=f"{prefix}message", field="message")

    # -- what is sent

    def finish(self) -> None:
        job, options = self.job, self.job.sink.options
        labels, metadata = options["labels"], common.loki_metadata(options)
        if self.counters:
            job.add("metrics", counters=self.counters, value=FAILED)
        if "raw" in (*labels["fields"], *metadata):
            self.copy("raw", "Entry")
        if options["line"] == "json":
            self.line_json()
        for name in labels["fields"]:
            if name not in CLOSED:
                job.template("label", name, field=name)
        job.add("structured_metadata", labels=[(f, f) for f in metadata])
        if labels["static"]:
            job.add("static_labels", labels=list(labels["static"].items()))
        if labels["fields"]:
            job.add("labels", labels=[(f, f) for f in labels["fields"]])
        if options["line"] == "message":
            job.template("text", "S_line", mark=MARK)
        if options["line"] != "raw":
            job.output("S_line")
            job.replace(f"^({regexes.literal(MARK)})")

    def line_json(self) -> None:
        job, options = self.job, self.job.sink.options
        bare = ("truncated", "parse_error", "sample_rate")
        left_out = ("raw", "message", "time", "extra", *options["labels"]["fields"])
        possible = dict.fromkeys([*common.possible_fields(job.pipeline), *job.pairs()])
        fields = [f for f in possible if f not in left_out]
        job.template("line", "S_line", fields=[f for f in fields if f not in bare],
                     bare=[f for f in fields if f in bare], json=self.reading.json, ansi=formats.ANSI,
                     consumed=common.json_consumed(events=self.reading.events), strings=JSON_STRING, **ODD_NUMBERS,
                     pair=regexes.without_groups(verl.PAIR) if job.source.pairs else "",
                     known=[*fields, *verl.RESERVED, *options["labels"]["fields"]],
                     max=options["server"]["max_line_size"], broken=BROKEN, cut=MARK)
        job.template("long", "truncated", mark=MARK)


def build(pipeline: Pipeline, sink: Sink) -> list[Job]:
    """The scrape jobs of a pipeline, each with its stages."""
    jobs: list[Job] = []
    for source in pipeline.sources:
        if source.name not in sink.sources:
            continue
        alike: dict[Any, Job] = {}
        for family in source.families or (None,):
            component = family.component if family else source.component or None
            known = {"source": source.name, "component": component, "cluster": pipeline.cluster}
            when = conditions.partial(sink.when, known)
            if when == NEVER:
                continue
            left = ((r, conditions.partial(r.when, known)) for r in pipeline.rules_for(sink))
            rules = tuple((r, w) for r, w in left if w != NEVER)
            kind = common.entry_kind(source, family) if family else {}
            key = (kind.get("grouping"), kind.get("markers"), tuple((r.name, w) for r, w in rules), when)
            job = alike.setdefault(key, Job(pipeline, source, sink, rules, when))
            if family:
                job.families.append(family)
        _name(list(alike.values()))
        if alike:
            reading = _Reading(list(alike.values()))
            for job in alike.values():
                _Build(job, reading)
        jobs += alike.values()
    _share(jobs)
    return jobs


def _name(jobs: list[Job]) -> None:
    """A job's name is a function of its source and of the families it reads. No name of a source has a slash."""
    taken: set[str] = set()
    for job in jobs:
        first = job.families[0].name if job.families else ""
        kind = job.families[0].grouping.value if len(job.families) > 1 else first
        names = (f"{job.source.name}/{kind}" if kind else job.source.name, f"{job.source.name}/{first}")
        job.name = next(name for name in names if name not in taken)
        taken.add(job.name)


def _share(jobs: list[Job]) -> None:
    """A stage that several jobs have is written once, with an anchor; the others refer to it."""
    first: dict[str, Stage] = {}
    for job in jobs:
        for at, stage in enumerate(job.stages):
            known = first.setdefault(json.dumps(stage, sort_keys=True), stage)
            if known is not stage and stage["kind"] in _SHARED:
                known.setdefault("anchor", f"s{sum('anchor' in s for s in first.values()) + 1}")
                job.stages[at] = {"kind": "alias", "anchor": known["anchor"]}
