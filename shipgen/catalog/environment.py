"""Ray's logging variables: what each does, where it takes effect, and what Ray does without it.

Observed on Ray 2.60.0 or read in its installed package, as ``source`` says: paths are below ``site-packages/ray/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Scope(StrEnum):
    """Whose environment a variable belongs to."""

    NODE = "node"
    """`ray start` on every node. Workers and agents inherit it; a running node does not notice a change."""
    DRIVER = "driver"
    """The driver, before it imports ray: Ray reads these when it is imported, and from then on never again."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that a policy can set.

    ``leaf`` is the key of the policy that sets it, ``spelled`` how the values of that key are written; without it they
    are whole numbers and stay as they are. ``unset`` says what Ray does without the variable.
    """

    name: str
    scope: Scope
    leaf: tuple[str, ...]
    does: str
    unset: str
    source: str
    spelled: Mapping[Any, str] = field(default_factory=dict)

    def spell(self, value: Any) -> str:
        """The variable's value for a value of the policy."""
        return self.spelled[value] if self.spelled else str(int(value))


_ON = {True: "1", False: "0"}
_OFF = {True: "0", False: "1"}

VARIABLES: tuple[Variable, ...] = (
    Variable(
        "RAY_ROTATION_MAX_BYTES", Scope.NODE, ("rotation", "max_size"),
        "size in bytes at which Ray renames a file and begins a new one",
        "Ray's Python components rotate at 512 MiB; raylet, GCS and workers never",
        "observed; _private/node.py:176, _private/workers/default_worker.py:303",
    ),
    Variable(
        "RAY_ROTATION_BACKUP_COUNT", Scope.NODE, ("rotation", "backups"),
        "renamed files that are kept",
        "Ray's Python components keep 5 renamed files; raylet, GCS and workers 1",
        "observed; _private/node.py:178",
    ),
    Variable(
        "RAY_BACKEND_LOG_JSON", Scope.NODE, ("ray", "system_format"),
        "JSON (1) or text (0) from raylet, GCS, the C++ core of workers and the job supervisor; Ray's other Python "
        "components always write text",
        "text",
        "observed; dashboard/modules/job/job_supervisor.py:115; for C++ only 1 counts",
        {"json": "1", "text": "0"},
    ),
    Variable(
        "RAY_BACKEND_LOG_LEVEL", Scope.NODE, ("ray", "system_level"),
        "least level that raylet, GCS and the C++ core of workers write",
        "info",
        "observed with debug; the names are in the shipped binaries",
        {"trace": "trace", "debug": "debug", "info": "info", "warn": "warning", "error": "error", "fatal": "fatal"},
    ),
    Variable(
        "RAY_SERVE_LOG_TO_STDERR", Scope.NODE, ("ray", "serve_to_stderr"),
        "where Serve's lines go: to serve/*.log alone, with what replicas print (0), or to the worker's .err too (1)",
        "1, so Serve writes each line twice",
        "observed for 1; serve/_private/logging_utils.py:374 and 441",
        _ON,
    ),
    Variable(
        "RAY_LOGGING_CONFIG_ENCODING", Scope.DRIVER, ("ray", "application_format"),
        "format in which the driver and its workers log; what they print stays as it is. Either value takes the "
        "`(name pid=...)` in front of the lines that the driver repeats away",
        "drivers and workers log as text, each in its own way",
        "observed; _private/worker.py:1639 and 2201",
        {"json": "JSON", "text": "TEXT"},
    ),
    Variable(
        "RAY_LOG_TO_DRIVER", Scope.DRIVER, ("ray", "driver", "forward"),
        "whether the driver repeats its workers' lines (1) or not (0); a submitted job does so in job-driver-*.log",
        "1",
        "observed; _private/ray_constants.py:28",
        _ON,
    ),
    Variable(
        "RAY_DISABLE_WORKER_LOG_PREFIX", Scope.DRIVER, ("ray", "driver", "prefix"),
        "whether repeated lines lack `(name pid=...)` in front (1), so that nothing tells them from the driver's own",
        "0",
        "observed; _private/ray_constants.py:444",
        _OFF,
    ),
    Variable(
        "RAY_DEDUP_LOGS", Scope.DRIVER, ("ray", "driver", "dedup"),
        "whether equal lines of several workers become one that ends in `[repeated Nx across cluster]` (1) or stay (0)",
        "1",
        "observed; _private/ray_constants.py:439",
        _ON,
    ),
    Variable(
        "RAY_COLOR_PREFIX", Scope.DRIVER, ("ray", "driver", "color"),
        "colour of the prefix: none (0), or one for each process (1)",
        "cyan, in files too",
        "observed; _private/worker.py:2350 and 2390",
        _ON,
    ),
)
"""In the order in which they are rendered."""


@dataclass(frozen=True, slots=True)
class Other:
    """A setting that no policy sets, and why."""

    name: str
    why: str
    source: str


EMPTIES_FILES: tuple[Other, ...] = (
    Other(
        "RAY_LOG_TO_STDERR",
        "1 sends what components and workers write to the output of `ray start`: hardly a file is left to read",
        "observed; _private/node.py:1096",
    ),
    Other(
        "--no-redirect-output",
        "the same, as an option of `ray start`",
        "scripts/scripts.py:663",
    ),
)
"""What must not be set where a shipper reads files."""

WORTH_KNOWING: tuple[Other, ...] = (
    Other(
        "RAY_LOG_MONITOR_MAX_OPEN_FILES",
        "200 unless set on the node. When more worker files than that have news at once, Ray moves those of dead "
        "workers to logs/old/; a higher value keeps them in place for a shipper that knows files by their path",
        "observed with 4; _private/log_monitor.py:177",
    ),
    Other(
        "RAY_DATA_LOG_ENCODING",
        "JSON, set for the driver, makes ray-data/*.log JSON; no other variable does",
        "observed; data/_internal/logging.py:61",
    ),
    Other(
        "RAY_SERVE_LOG_ENCODING",
        "does nothing in Ray 2.60; Serve's format is the `encoding` of its logging_config",
        "observed; serve/_private/constants.py:391",
    ),
)
"""What a policy leaves alone and an operator may look for."""
