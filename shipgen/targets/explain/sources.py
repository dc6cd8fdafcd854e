"""What is read: files, where an entry starts, repeats that are cut, backups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shipgen.catalog import ray, verl
from shipgen.catalog.ray import Family, Grouping
from shipgen.pipeline import rotation
from shipgen.pipeline.model import Pipeline, Source
from shipgen.policy import Policy
from shipgen.targets.explain.wording import Page, code, count, duration, listing, size
from shipgen.targets.plan import Choice

_KINDS = {"ray": "the logs of Ray's sessions", "verl": "logs of VeRL", "file": "other files"}

_STARTS = {
    Grouping.HEADER: "at a line that begins with a header of Ray's or a date, or that is a JSON object; all lines up "
    "to the next such line belong to it",
    Grouping.USER: "at each line that does not look like the continuation of the one before it (indented or blank, "
    "part of a traceback or crash report)",
    Grouping.LINE: "at each line",
}


def tell(page: Page, source: Source, policy: Policy, pipeline: Pipeline, choices: Sequence[Choice]) -> None:
    """One source."""
    page.heading(f"{source.name}: {_KINDS[source.type]}")
    if source.families:
        _where(page, source)
        _families(page, source, pipeline)
        _starts(page, source)
        _repeats(page, source, policy.data["sources"][source.name]["components"], pipeline)
        _moved(page, source)
        _backups(page, source, pipeline, choices)
    else:
        _files(page, source)
    _limits(page, source)


def _where(page: Page, source: Source) -> None:
    page.fact("Sessions", f"all of {code(f'{source.base}/{ray.SESSION_GLOB}/logs/')}, old ones too")
    page.point(
        f"{code('session_latest')} is never read: it is a link to one of them, removed and made anew at every worker "
        "start, and would bring each line twice",
        1,
    )


def _families(page: Page, source: Source, pipeline: Pipeline) -> None:
    number = count(len(source.families), "family of files", "families of files")
    page.point(f"Read: {number} out of {len(ray.FAMILIES)} known of Ray {ray.RAY_VERSION}")
    for family in source.families:
        only = ", on head nodes" if family.head_only else ""
        page.point(f"{_named(family)}{only}; {_rotated_by(family, pipeline)}", 1)
    left_out = [f for f in ray.FAMILIES if f not in source.families]
    if left_out:
        page.point("Left out")
        for family in left_out:
            why = "not selected" if family.default else f"not in the default: {family.why_not_default}"
            page.point(f"{_named(family)}; {why}", 1)
    page.fact("No logs, never read", "; ".join(f"{pattern}: {why}" for pattern, why in ray.NOT_LOGS))


def _named(family: Family) -> str:
    component = "" if family.name == family.component else f" (component {family.component})"
    return f"{family.name}{component}: {' '.join(family.globs)}"


def _rotated_by(family: Family, pipeline: Pipeline) -> str:
    """Who rotates a family, as the end of a sentence."""
    who = ["Ray"] * (family in rotation.by_ray(pipeline)) + ["logrotate"] * (family in rotation.by_logrotate(pipeline))
    return f"rotated by {listing(who)}" if who else "grows without bound"


def _starts(page: Page, source: Source) -> None:
    page.point("An entry starts")
    for grouping, words in _STARTS.items():
        named = [f.name for f in source.families if f.grouping is grouping]
        if named:
            page.point(f"{words}: {listing(named)}", 1)
    if any(f.grouping is Grouping.USER for f in source.families):
        page.fact(
            "No records",
            "Ray's control lines in files where users write: the markers `:job_id:`, `:actor_name:`, `:task_name:`, "
            "and the state of tqdm_ray's progress bars",
        )


_CUTS = (
    ("serve", "worker", "serve", "headers of Serve in a worker's .err", "serve/*.log has them"),
    ("cpp", "worker", "core_worker", "headers of the C++ core in a worker's .err", "python-core-worker-*.log has them"),
    ("driver", "job_driver", "worker", "workers' lines in job-driver-*.log", "the worker's own file has them"),
)
"""Twins: which cut, in which family, of which family's lines, in words, and why it loses nothing."""


def _repeats(page: Page, source: Source, components: Sequence[str], pipeline: Pipeline) -> None:
    """Which lines are dropped since the same source delivers them from another file."""
    if "all" in components:
        words = (
            f"none is cut: {code('components: [all]')} delivers lines of Serve, of the C++ core and of drivers twice"
        )
        page.fact("Repeats", words)
        return
    found = list(_fates(source, pipeline))
    page.point("Repeats" if found else "Repeats: none")
    for words in found:
        page.point(words, 1)


def _fates(source: Source, pipeline: Pipeline) -> Iterator[str]:
    names = {f.name for f in source.families}
    forward = pipeline.ray.get("driver", {}).get("forward")
    for cut, family, twin, what, why in _CUTS:
        if family not in names or (cut == "driver" and forward is False):
            continue
        if twin not in names:
            yield f"kept: {what}, since {twin} is not read and nothing else has them"
        elif not getattr(source.twins, cut):
            yield f"kept: {what}, since rules or sinks do not treat {twin} and {family} alike, so a line could be lost"
        elif cut == "driver" and (setting := _no_prefix(pipeline)):
            yield f"arrive twice: {what}; {setting} takes away the `(name pid=...)` that they are known by"
        else:
            known = " that begin with `(name pid=...)`" if cut == "driver" else ""
            yield f"dropped: {what}{known}, since {why}; the lines that follow one stay, as an entry without a level"
    if pipeline.ray.get("serve_to_stderr") is False and "serve" in names:
        yield (
            f"{code('ray.serve_to_stderr: false')} stops Serve's repeats at their origin; it also moves what replicas "
            "print from the worker's files into serve/*.log"
        )
    alike = [n for n in ("runtime_env_agent", "runtime_env_setup", "train") if n in names]
    if alike:
        yield f"arrive twice: lines that stand in two files and cannot be told apart, in {listing(alike)}"


def _no_prefix(pipeline: Pipeline) -> str:
    """The setting that takes the prefix off what drivers repeat; empty where there is a prefix."""
    if pipeline.ray.get("driver", {}).get("prefix") is False:
        return code("ray.driver.prefix: false")
    return code("ray.application_format") if "application_format" in pipeline.ray else ""


def _moved(page: Page, source: Source) -> None:
    moved = [f.name for f in source.families if f.moves]
    if moved:
        page.fact(
            f"{code('logs/old/')}",
            f"read too, for {listing(moved)}: Ray moves the files of dead workers there when very many files have "
            "news at once",
        )


def _backups(page: Page, source: Source, pipeline: Pipeline, choices: Sequence[Choice]) -> None:
    if source.rotated == "exclude":
        page.fact(
            "Backups",
            f"not read ({code('rotated: exclude')}): what a rotation finds unread while the shipper is down is lost",
        )
        return
    copied = [f.name for f in source.families if f in rotation.by_logrotate(pipeline)]
    renamed = [f.name for f in source.families if f in rotation.by_ray(pipeline) and f.name not in copied]
    able = [c.name for c in choices if c.target is not None and c.target.reads_rotated]
    if renamed:
        page.fact(
            "Backups",
            "read where Ray renames and the target follows files by "
            f"inode{f' ({listing(able)} does)' if able else ''}: a rotation loses nothing and repeats nothing, even "
            f"while the shipper is down; this holds for {listing(renamed)}",
        )
    if copied:
        page.fact(
            "Copies by logrotate",
            "never read, for they would repeat every line; what is written between copy and truncation is lost: "
            f"{listing(copied)}",
        )


def _files(page: Page, source: Source) -> None:
    page.fact("Files", " ".join(code(p) for p in source.paths))
    if source.exclude:
        page.fact("But not", " ".join(code(p) for p in source.exclude))
    start = "at each line"
    if source.continuation:
        start = f"{_STARTS[Grouping.USER].removesuffix(')')}, or the cause in a trace of Java)"
    if source.multiline:
        start = (
            f"at a line that matches {code(source.multiline.start)}; it holds at most "
            f"{count(source.multiline.max_lines, 'line')} and ends after {duration(source.multiline.timeout)} without "
            "another"
        )
    page.fact("An entry starts", start)
    forms = {
        "text": "its text is the message; it has no level",
        "json": "as a JSON object",
        "regex": f"by {code(source.regex)}",
    }
    if source.regex == verl.ENGINE_WORKER:
        forms["regex"] = f"an optional time, an optional level, an event ({listing(verl.EVENTS)}) in brackets, text"
    page.fact("It is read", forms[source.format])
    if source.pairs:
        page.fact(
            "Fields",
            "every `key=value` pair in the first line of a message; where no pair has them, "
            f"{listing([code(prose.field) for prose in verl.PROSE])} by their words, as in "
            f"{code('heap usage 89% (threshold 90%)')} and {code('held by worker-45')}",
        )
    if source.time:
        page.fact("Its time", f"the group {code(source.time.field)}, written as {source.time.layout}")
    elif source.format == "json":
        page.fact("Its time", "what the object says, else when it was read")
    else:
        page.fact("Its time", "when it was read")


def _limits(page: Page, source: Source) -> None:
    page.fact(
        "First start",
        "files that are there already are read from their beginning"
        if source.start == "beginning"
        else "files that are there already are followed from their end; what stands in them is not delivered",
    )
    if source.ignore_older is not None:
        page.fact(
            "Old files",
            f"left out when not written for {duration(source.ignore_older)}; an outage that long loses their tails",
        )
    long_line = "cut" if source.on_long_line == "truncate" else "left out"
    page.fact(
        "Size",
        f"a line over {size(source.max_line)} is {long_line}, an entry over {size(source.max_entry)} is cut; what was "
        f"cut carries {code('truncated')}",
    )
    page.fact("Unfinished last line", "not delivered before its newline is written; no shipper tried does otherwise")
