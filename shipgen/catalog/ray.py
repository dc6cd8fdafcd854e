"""Ray's log files: which there are, where they live, how they are written, how they rotate.

Every row was observed on Ray 2.60.0 running on Linux (head node, worker node, text and JSON mode, rotation on and off,
``ray start --block``) unless its ``source`` says otherwise. Globs are relative to a session's ``logs/`` directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

RAY_VERSION = "2.60"
"""The Ray release that this catalogue describes."""

SESSION_GLOB = "session_2*"
"""Real session directories only. ``session_latest`` is a link that Ray removes and re-creates at every worker start
(Ray 2.60 ``_private/node.py``); a glob that matches it too would read each file twice."""


class Grouping(StrEnum):
    """How lines become entries."""

    HEADER = "header"
    """An entry starts at a header or at a JSON object that fills the line; what follows belongs to it."""
    USER = "user"
    """Files where users write: a line that looks like a continuation belongs to the line before it."""
    LINE = "line"
    """Every line is an entry."""


class Rotates(StrEnum):
    """What makes a file rotate. In all cases by rename, so the inode moves with the old content."""

    ALWAYS = "always"
    """Python's RotatingFileHandler: 512 MiB x 5 unless ``RAY_ROTATION_*`` says otherwise."""
    WHEN_SET = "when-set"
    """Only with ``RAY_ROTATION_MAX_BYTES``; else the file grows without bound."""
    NEVER = "never"
    """Ray never rotates it; only logrotate with copytruncate does (writers append)."""


@dataclass(frozen=True, slots=True)
class Family:
    """Log files of one kind.

    ``pattern`` is matched against the live name (below ``logs/``, without ``old/`` and without a backup's index); its
    named groups are record fields. ``head_only`` files exist on the head node alone. ``telling_lines`` first lines tell
    two files of the family apart, since they carry a time or an id; 0 where that is not sure, as where users write.
    """

    name: str
    component: str
    globs: tuple[str, ...]
    grouping: Grouping
    rotates: Rotates
    pattern: str = ""
    default: bool = True
    head_only: bool = False
    moves: bool = False
    telling_lines: int = 1
    why_not_default: str = ""
    source: str = "observed on Ray 2.60.0"

    @property
    def fields(self) -> tuple[str, ...]:
        """Record fields that the file name gives."""
        return tuple(re.compile(self.pattern).groupindex)


_WID = "[0-9a-f]{56}"
_WORKER = rf"^worker-(?P<worker_id>{_WID})-(?P<job_id>[0-9a-f]{{8}})-(?P<pid>[0-9]+)\.(?P<stream>out|err)$"
_IO_WORKER = rf"^io_worker-(?P<worker_id>{_WID})-(?P<pid>[0-9]+)\.(?P<stream>out|err)$"
_CORE = rf"^python-core-[a-z_]+-(?P<worker_id>{_WID})_(?P<pid>[0-9]+)\.log$"
_CORE_DRIVER = r"^python-core-driver-(?P<worker_id>(?P<job_id>[0-9a-f]{8})[0-9a-f]{48})_(?P<pid>[0-9]+)\.log$"
_SERVE = (
    r"^serve/(?:controller_(?P<pid>[0-9]+)|replica_(?P<deployment>.+)_(?P<replica>[a-z0-9]{8})|[^/]+)\.log$"
)
_TWINS = "the same lines are in another family"

FAMILIES: tuple[Family, ...] = (
    Family("raylet", "raylet", ("raylet.out", "raylet.err"), Grouping.HEADER, Rotates.WHEN_SET),
    Family("gcs_server", "gcs_server", ("gcs_server.out", "gcs_server.err"), Grouping.HEADER, Rotates.WHEN_SET,
           head_only=True),
    Family("worker", "worker", ("worker-*.out", "worker-*.err"), Grouping.USER, Rotates.WHEN_SET, _WORKER, moves=True,
           telling_lines=0),
    Family("io_worker", "io_worker", ("io_worker-*.out", "io_worker-*.err"), Grouping.USER, Rotates.WHEN_SET,
           _IO_WORKER, moves=True, telling_lines=0),
    Family("core_worker", "core_worker", ("python-core-worker-*.log",), Grouping.HEADER, Rotates.WHEN_SET, _CORE),
    Family("core_driver", "core_driver", ("python-core-driver-*.log",), Grouping.HEADER, Rotates.WHEN_SET,
           _CORE_DRIVER),
    Family("io_core", "io_worker", ("python-core-spill_worker-*.log", "python-core-restore_worker-*.log"),
           Grouping.HEADER, Rotates.WHEN_SET, _CORE),
    Family("job_driver", "job_driver", ("job-driver-*.log",), Grouping.USER, Rotates.NEVER,
           r"^job-driver-(?P<submission_id>.+)\.log$", telling_lines=2),
    Family("job_supervisor", "job_supervisor", ("jobs/supervisor-*.log",), Grouping.HEADER, Rotates.NEVER,
           r"^jobs/supervisor-(?P<submission_id>.+)\.log$", default=False,
           why_not_default=f"{_TWINS}: the supervisor actor's worker .err (6 of 6 lines)"),
    Family("dashboard", "dashboard",
           ("dashboard.log", "dashboard.out", "dashboard.err",
            "dashboard_*Head.log", "dashboard_*Head.out", "dashboard_*Head.err"),
           Grouping.HEADER, Rotates.ALWAYS, head_only=True),
    Family("dashboard_agent", "dashboard_agent", ("dashboard_agent.log", "dashboard_agent.out", "dashboard_agent.err"),
           Grouping.HEADER, Rotates.ALWAYS),
    Family("runtime_env_agent", "runtime_env_agent",
           ("runtime_env_agent.log", "runtime_env_agent.out", "runtime_env_agent.err"), Grouping.HEADER,
           Rotates.ALWAYS),
    Family("runtime_env_setup", "runtime_env_setup", ("runtime_env_setup-*.log",), Grouping.HEADER, Rotates.ALWAYS,
           r"^runtime_env_setup-(?P<job_id>[0-9a-f]{8})\.log$"),
    Family("log_monitor", "log_monitor", ("log_monitor.log", "log_monitor.out", "log_monitor.err"), Grouping.HEADER,
           Rotates.ALWAYS),
    Family("monitor", "monitor", ("monitor.log", "monitor.out", "monitor.err"), Grouping.HEADER, Rotates.ALWAYS,
           head_only=True),
    Family("ray_client_server", "ray_client_server",
           ("ray_client_server.out", "ray_client_server.err", "ray_client_server_*.out", "ray_client_server_*.err"),
           Grouping.HEADER, Rotates.NEVER, head_only=True, telling_lines=0),
    Family("serve", "serve", ("serve/*.log",), Grouping.HEADER, Rotates.ALWAYS, _SERVE),
    Family("train", "train", ("train/ray-train-*.log",), Grouping.LINE, Rotates.NEVER,
           rf"^train/ray-train-[a-z]+-[a-z]+-(?P<worker_id>{_WID})\.log$"),
    Family("ray_data", "ray_data", ("ray-data/ray-data.log",), Grouping.HEADER, Rotates.NEVER),
    Family("ray_data_dataset", "ray_data", ("ray-data/ray-data-*.log",), Grouping.HEADER, Rotates.NEVER, default=False,
           why_not_default=f"{_TWINS}: ray-data.log (116 of 140 lines)"),
    Family("events", "events", ("events/event_*.log",), Grouping.LINE, Rotates.NEVER,
           r"^events/event_(?:[A-Z_]+_(?P<pid>[0-9]+)|[A-Z_]+)\.log$", default=False,
           why_not_default="structured events, not log lines", source="observed; rotation not tried"),
    Family("export_events", "export_events", ("export_events/event_*.log",), Grouping.LINE, Rotates.NEVER,
           r"^export_events/event_(?:[A-Z_]+_(?P<pid>[0-9]+)|[A-Z_]+)\.log$", default=False,
           why_not_default="structured events, empty unless RAY_enable_export_api_write is set",
           source="observed; rotation not tried"),
    Family("process_exit", "process_exit", ("ray_process_exit.log",), Grouping.HEADER, Rotates.NEVER,
           source="observed with `ray start --block`; rotation read in the source"),
)

BY_NAME = {family.name: family for family in FAMILIES}

NOT_LOGS: tuple[tuple[str, str], ...] = (
    ("debug_state.txt", "a state dump, rewritten in place every few seconds"),
    ("debug_state_gcs.txt", "a state dump, rewritten in place every few seconds"),
    ("nsight/*", "profiler output"),
    ("profiles/*", "profiler output"),
    ("rocprof_sys/*", "profiler output"),
)
"""What lies in ``logs/`` and is no log, with the reason."""

UNKNOWN_JOB = "ffffffff"
"""Workers started ahead of the first job carry this instead of a job id in their file name, for ever (observed)."""


@cache
def selectors() -> frozenset[str]:
    """Names that ``components`` and ``exclude_components`` take: families, components, ``default`` and ``all``."""
    return frozenset({"default", "all"} | {f.name for f in FAMILIES} | {f.component for f in FAMILIES})


def _chosen(selector: str) -> set[str]:
    if selector == "all":
        return {f.name for f in FAMILIES}
    if selector == "default":
        return {f.name for f in FAMILIES if f.default}
    return {f.name for f in FAMILIES if f.name == selector or (f.component == selector and f.default)}


def select(components: Iterable[str], exclude: Iterable[str] = ()) -> tuple[Family, ...]:
    """Families that a list of selectors picks, in catalogue order.

    A selector is a family's name, a component's name (all its families of the default set), ``default`` or ``all``.
    """
    names: set[str] = set().union(*(_chosen(s) for s in components), set())
    names -= set().union(*(_chosen(s) | {f.name for f in FAMILIES if f.component == s} for s in exclude), set())
    return tuple(f for f in FAMILIES if f.name in names)


_BACKUP = re.compile(r"\.[0-9]+$")


def live_name(below_logs: str) -> str:
    """Name of the live file: without ``old/`` (dead workers' files are moved there) and without a backup's index."""
    name = below_logs.removeprefix("old/")
    return _BACKUP.sub("", name) if re.search(r"\.(?:log|out|err)\.[0-9]+$", name) else name


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile("".join("[^/]*" if c == "*" else re.escape(c) for c in pattern) + r"\Z")


def families_of(below_logs: str) -> tuple[Family, ...]:
    """Families whose globs match a path below ``logs/`` (backups and ``old/`` count as their live file)."""
    name = live_name(below_logs)
    if below_logs.startswith("old/"):
        return tuple(f for f in FAMILIES if f.moves and any(_glob(g).match(name) for g in f.globs))
    return tuple(f for f in FAMILIES if any(_glob(g).match(name) for g in f.globs))


def is_not_a_log(below_logs: str) -> str:
    """Why a path below ``logs/`` is no log; empty if it may be one."""
    return next((why for pattern, why in NOT_LOGS if _glob(pattern).match(below_logs)), "")
