"""Who rotates which of Ray's files, and what the policy's numbers amount to."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from shipgen.catalog import verl
from shipgen.catalog.ray import FAMILIES, Family, Rotates
from shipgen.pipeline.model import Pipeline


def selected(pipeline: Pipeline) -> tuple[Family, ...]:
    """Families that at least one source reads, in catalogue order."""
    names = {f.name for source in pipeline.sources for f in source.families}
    return tuple(f for f in FAMILIES if f.name in names)


def by(pipeline: Pipeline) -> str:
    """Who rotates as the policy has it: ``ray``, ``logrotate``, or empty for nobody."""
    return str(pipeline.rotation["by"]) if pipeline.rotation else ""


def by_logrotate(pipeline: Pipeline) -> tuple[Family, ...]:
    """Families that logrotate copies and truncates: those that a source reads, or of these what Ray never rotates."""
    if not by(pipeline):
        return ()
    everything = by(pipeline) == "logrotate"
    return tuple(f for f in selected(pipeline) if everything or f.rotates is Rotates.NEVER)


def by_ray(pipeline: Pipeline) -> tuple[Family, ...]:
    """Families that Ray itself rotates, by rename; whether a source reads them is all the same to Ray."""
    told = by(pipeline) == "ray"
    return tuple(f for f in FAMILIES if f.rotates is Rotates.ALWAYS or (told and f.rotates is Rotates.WHEN_SET))


def keeps_backups_apart(pipeline: Pipeline, family: Family) -> bool:
    """Whether the backups of a family are the old files under a new name, so that a shipper which knows files by their
    inode can read them too. A copy that logrotate made is another file with the same lines."""
    return family.rotates is not Rotates.NEVER and by(pipeline) != "logrotate"


def ages(pipeline: Pipeline) -> bool:
    """Whether Ray's directory lies where systemd deletes what nobody has touched for some days: 10 below /tmp, 30 below
    /var/tmp (`tmpfiles.d/tmp.conf` of systemd 252; Debian 12 only empties /tmp at boot)."""
    temp_dir = posixpath.normpath(str(pipeline.ray["temp_dir"]))
    return any(s.families for s in pipeline.sources) and f"{temp_dir}/".startswith(("/tmp/", "/var/tmp/"))


def bounded(pipeline: Pipeline) -> tuple[Family, ...]:
    """Families that are held to the policy's ``max_size`` and ``backups``."""
    names = {f.name for f in by_logrotate(pipeline)}
    if by(pipeline) == "ray":
        names |= {f.name for f in by_ray(pipeline)}
    return tuple(f for f in FAMILIES if f.name in names)


def unbounded(pipeline: Pipeline) -> tuple[Family, ...]:
    """Families that nothing rotates: they grow for as long as the cluster lives."""
    rotated = {f.name for f in (*by_ray(pipeline), *by_logrotate(pipeline))}
    return tuple(f for f in FAMILIES if f.name not in rotated)


def least_files(families: Iterable[Family]) -> int:
    """Files that one session on one node has at least: each name, and each pattern once (so: of one worker)."""
    return sum(len(f.globs) for f in families)


def ring(pipeline: Pipeline) -> int:
    """Bytes that one file may take with its backups; 0 where nothing is rotated."""
    return int(pipeline.rotation["max_size"] * (pipeline.rotation["backups"] + 1)) if pipeline.rotation else 0


def engine_rate(pipeline: Pipeline) -> int:
    """Bytes a second that one engine worker of VeRL writes at the policy's level, by the articles' table; 0 where no
    source reads its log, where no level is set, or where the table has no figure for it."""
    level = pipeline.verl.get("engine_worker", {}).get("level", "")
    known = level in verl.COSTS and any(s.pairs for s in pipeline.sources)
    return verl.COSTS[level].rate if known else 0


def size(number: float) -> str:
    """Bytes as people say them: ``512MiB``, ``1.5GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:.3f}".rstrip("0").rstrip(".") + unit
