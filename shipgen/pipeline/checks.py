"""What is doubtful in a policy whichever target it is rendered for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from shipgen.catalog import verl
from shipgen.catalog.ray import RAY_VERSION, Rotates
from shipgen.diagnostics import Diagnostic, Severity
from shipgen.pipeline import conditions, rotation
from shipgen.pipeline.model import Pipeline, Rule, Sink, Source

if TYPE_CHECKING:
    from shipgen.policy import Policy

Path = tuple[str | int, ...]
Finding = tuple[str, Severity, Path, str, str]

_PYTHON_ROTATES_AT = 512 * 1024 * 1024
"""Size at which Ray's Python components rename their files when nothing tells them otherwise."""


def check(pipeline: Pipeline, policy: Policy) -> list[Diagnostic]:
    """Warnings and notes on a policy that is valid. What the policy's own checks found is not said again."""
    said = {(d.code, d.path) for d in policy.diagnostics}
    found = []
    for code, severity, path, text, hint in _findings(pipeline):
        if (code, policy.path(*path)) not in said:
            found.append(Diagnostic(code, severity, policy.path(*path), text, hint, policy.place(*path)))
    return found


def _finding(code: str, severity: Severity, path: Path, text: str, hint: str) -> Finding:
    return code, severity, path, text, hint


def _findings(pipeline: Pipeline) -> Iterator[Finding]:
    parts = (
        _version, _repeats, _serve, _ageing, _growth, _verl_growth, _budget, _ring, _logrotate, _rule_fields,
        _group_fields, _mapping,
    )
    for part in parts:
        yield from part(pipeline)


def _version(pipeline: Pipeline) -> Iterator[Finding]:
    version = pipeline.ray.get("version", RAY_VERSION)
    if version.split(".")[:2] != RAY_VERSION.split("."):
        yield _finding(
            "other-ray-version", Severity.NOTE, ("ray", "version"),
            f"shipgen's catalogue of files, formats and variables is that of Ray {RAY_VERSION}; {version} may differ",
            "`shipgen files` names the log files that no source reads",
        )


def _repeats(pipeline: Pipeline) -> Iterator[Finding]:
    driver = pipeline.ray.get("driver", {})
    readers = [s.name for s in pipeline.sources if {"job_driver", "worker"} <= {f.name for f in s.families}]
    if driver.get("forward", True) is False or not readers:
        return
    text = (
        f"{{}}: the lines of workers that drivers repeat can't be told from the drivers' own, and source {readers[0]} "
        "delivers them twice"
    )
    forward_off = "set `ray.driver.forward: false`"
    if driver.get("prefix", True) is False:
        hint = f"{forward_off}, keep the prefix, or leave job_driver out"
        yield _finding("repeats", Severity.WARNING, ("ray", "driver", "prefix"), text.format("without a prefix"), hint)
    elif "application_format" in pipeline.ray:
        text = text.format("with any application_format Ray leaves the prefix out")
        hint = f"{forward_off}, or leave job_driver out"
        yield _finding("repeats", Severity.WARNING, ("ray", "application_format"), text, hint)


def _serve(pipeline: Pipeline) -> Iterator[Finding]:
    names = {f.name for f in rotation.selected(pipeline)}
    if pipeline.ray.get("serve_to_stderr", True) is False and "worker" in names and "serve" not in names:
        yield _finding(
            "unread-lines", Severity.WARNING, ("ray", "serve_to_stderr"),
            "Serve's lines and what its replicas print go to serve/*.log alone, which no source reads",
            "add the component serve to a source",
        )


def _ageing(pipeline: Pipeline) -> Iterator[Finding]:
    if rotation.ages(pipeline) and pipeline.rotation:
        yield _finding(
            "temp-dir-ages", Severity.NOTE, ("ray", "temp_dir"),
            f"below {pipeline.ray['temp_dir'].rstrip('/')} a reboot takes all logs, and systemd-tmpfiles deletes those "
            "that nobody has touched for some days (10 in /tmp, 30 in /var/tmp where it is on), also under a Ray that "
            "runs", "install tmpfiles.d/ray.conf of the bundle on the nodes, or use a directory that is kept",
        )


def _growth(pipeline: Pipeline) -> Iterator[Finding]:
    reader = next((s.name for s in pipeline.sources if s.families), None)
    growing = rotation.unbounded(pipeline)
    if reader is None:
        return
    if not rotation.by(pipeline):
        yield _finding(
            "unbounded-growth", Severity.NOTE, ("sources", reader),
            f"without `rotation` nothing bounds the files of {_joined(f.name for f in growing)}",
            "add `rotation: {by: ray}`",
        )
    elif unheld := [f.name for f in growing if f.rotates is Rotates.WHEN_SET]:
        yield _finding(
            "unbounded-growth", Severity.NOTE, ("rotation", "by"),
            f"logrotate is told of the files that a source reads; nothing bounds those of {_joined(unheld)}",
            "use `by: ray`, or read them too",
        )


def _budget(pipeline: Pipeline) -> Iterator[Finding]:
    settings = pipeline.rotation
    if settings is None or "disk_budget" not in settings:
        return
    files = rotation.least_files(rotation.bounded(pipeline))
    ring, size = rotation.ring(pipeline), rotation.size
    if files * ring > settings["disk_budget"]:
        yield _finding(
            "over-budget", Severity.WARNING, ("rotation", "disk_budget"),
            f"max_size x (backups + 1) x files = {size(settings['max_size'])} x {settings['backups'] + 1} x {files} = "
            f"{size(files * ring)}, over {size(settings['disk_budget'])}; counted are the names and patterns of one "
            f"session on one node, each once; every worker beyond the first adds three files, {size(3 * ring)}",
            "lower max_size or backups",
        )


def _verl_growth(pipeline: Pipeline) -> Iterator[Finding]:
    engine = next((s.name for s in pipeline.sources if s.pairs), None)
    if engine is not None and not rotation.by(pipeline):
        yield _finding(
            "unbounded-growth", Severity.NOTE, ("sources", engine),
            f"without `rotation` nothing bounds VeRL's logs: one worker wrote over {verl.UNROTATED_A_DAY // 10**9} GB "
            "in a day",
            "add `rotation: {by: ray}`: VeRL's files are logrotate's in any case",
        )


def _ring(pipeline: Pipeline) -> Iterator[Finding]:
    """Rings that turn over while a shipper is down."""
    settings = pipeline.rotation
    if settings is None:
        return
    ring, downtime = rotation.ring(pipeline), settings["downtime"]
    rates = [
        (("rotation", "expected_rate"), settings.get("expected_rate", 0), "the busiest file"),
        (("verl", "engine_worker", "level"), rotation.engine_rate(pipeline), "an engine worker's file at this level"),
    ]
    for path, rate, what in rates:
        if rate and ring * 1000 < downtime * rate:
            wanted = rotation.size(math.ceil(downtime * rate / 1000 / (settings["backups"] + 1) / 2**20) * 2**20)
            yield _finding(
                "ring-too-small", Severity.WARNING, path,
                f"at {rotation.size(rate)}/s {what} and its backups ({rotation.size(ring)}) turn over in "
                f"{ring // rate} s, sooner than the {downtime // 1000} s that a shipper may be down "
                "(rotation.downtime): what is overwritten unread is lost",
                f"max_size of {wanted} with {settings['backups']} backups would do; or log less",
            )


def _logrotate(pipeline: Pipeline) -> Iterator[Finding]:
    settings = pipeline.rotation
    families = rotation.by_logrotate(pipeline)
    if settings is None or not families:
        return
    alone = settings["by"] == "logrotate"
    if "owner" not in settings:
        yield _finding(
            "logrotate-owner", Severity.WARNING if alone else Severity.NOTE, ("rotation",),
            "run as root, logrotate refuses Ray's directories, which everyone may write to; it is needed for "
            + _joined(f.name for f in families),
            "name the user and group that Ray runs as: owner: ray:ray",
        )
    elif ":" not in settings["owner"]:
        yield _finding(
            "logrotate-owner", Severity.NOTE, ("rotation", "owner"),
            f"logrotate takes no user without a group; the group {settings['owner']} is used",
            "write owner: USER:GROUP",
        )
    if alone and settings["max_size"] >= _PYTHON_ROTATES_AT and any(f.rotates is Rotates.ALWAYS for f in families):
        yield _finding(
            "ray-rotates-too", Severity.NOTE, ("rotation", "max_size"),
            "Ray's Python components rename their own files at 512MiB, before logrotate comes to it",
            "a smaller max_size, such as 256MiB, leaves all files to logrotate",
        )


def _rule_fields(pipeline: Pipeline) -> Iterator[Finding]:
    for rule in pipeline.rules:
        sinks = [s for s in pipeline.sinks if rule.sinks is None or s.name in rule.sinks]
        path: Path = ("parsing", "rules", rule.index)
        if rule.action == "sample" and not any(_delivers(s, "sample_rate") for s in sinks):
            yield _finding(
                "field-reaches-no-sink", Severity.NOTE, (*path, "sample"),
                f"rule {rule.name} keeps its rate in `sample_rate`, which reaches no sink ({_names(sinks)})",
                "list it in the sink's `metadata`, or use `line: json`",
            )
        for name in rule.options if rule.action == "add" else ():
            if not any(_delivers(s, name) and _meets(rule, s) for s in sinks):
                yield _finding(
                    "field-reaches-no-sink", Severity.WARNING, (*path, "add", name),
                    f"rule {rule.name} adds `{name}`, which reaches no sink ({_names(sinks)})",
                    "list it in the `metadata` of a sink that gets these records, or use `line: json`",
                )


def _group_fields(pipeline: Pipeline) -> Iterator[Finding]:
    used = set(_fields_read(pipeline))
    for source in pipeline.sources:
        sinks = [s for s in pipeline.sinks if source.name in s.sources]
        if not sinks:
            yield _finding(
                "unread-lines", Severity.WARNING, ("sources", source.name), "no sink gets the records of this source",
                "name it in the `from` of a sink, or remove it",
            )
            continue
        for name in _groups(source) if source.regex != verl.ENGINE_WORKER else ():
            if name not in used and not any(_delivers(s, name) for s in sinks):
                yield _finding(
                    "field-reaches-no-sink", Severity.WARNING, ("sources", source.name, "format", "regex"),
                    f"the group `{name}` reaches no sink ({_names(sinks)}), and no rule reads it",
                    "list it in the sink's `metadata`, use `line: json`, or drop its name",
                )


def _mapping(pipeline: Pipeline) -> Iterator[Finding]:
    for sink in pipeline.sinks:
        if sink.type in ("elasticsearch", "opensearch"):
            if "index" in sink.options:
                where = f"{sink.options['index']['name']}*"
            else:
                where = "logs-{dataset}-{namespace}".format(**sink.options["data_stream"])
            yield _finding(
                "index-mapping", Severity.NOTE, ("sinks", sink.name),
                "`extra` holds whatever else a JSON entry has; left to itself the server gives each of its keys the "
                "type of the first value it sees, and refuses records with another",
                f"map `extra` as `flattened` (OpenSearch: `flat_object`) in the index template of {where}",
            )


def _groups(source: Source) -> list[str]:
    own = {"level", "message", "time", source.time.field if source.time else ""}
    return [name for name in re.findall(r"\(\?P<([A-Za-z_][A-Za-z0-9_]*)>", source.regex) if name not in own]


def _fields_read(pipeline: Pipeline) -> Iterator[str]:
    for sink in pipeline.sinks:
        yield from conditions.fields(sink.when)
    for rule in pipeline.rules:
        yield from conditions.fields(rule.when)
        by: Any = rule.options.get("by", ()) if rule.action in ("sample", "limit") else ()
        yield from (by,) if isinstance(by, str) else by


def _delivers(sink: Sink, field: str) -> bool:
    options = sink.options
    if sink.type != "loki" or options["line"] == "json":
        return True
    return field in options["metadata"] or field in options["labels"]["fields"]


def _meets(rule: Rule, sink: Sink) -> bool:
    """Whether a record that the rule works on can be one that the sink gets."""
    return any(conditions.partial(rule.when, {"source": name}) != conditions.NEVER for name in sink.sources)


def _names(sinks: Iterable[Sink]) -> str:
    return _joined(s.name for s in sinks)


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)
