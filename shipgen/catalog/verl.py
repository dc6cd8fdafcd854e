"""How VeRL writes: the engine worker's log of the articles, and the lines and metrics of the open-source package.

The articles show events and their prefixes but no whole line, so a line is taken as: optional time, optional level,
then the event in brackets, then text with `key=value` pairs; a policy's `format` says it otherwise. The open-source
package (`verl` 0.9, `verl/utils/tracking.py`) writes its metrics as JSON, an object a line, and its modules' lines as
`LEVEL:time:message`. The regexes are of the subset that RE2, Onigmo and Rust read alike.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from shipgen.catalog import formats, record

DIALECTS: Final = ("engine_worker", "upstream")
MEANING: Final = {
    "DISPATCH": "tasks assigned and queued", "MEM": "heap and garbage collection: leaks",
    "NET": "sessions and their timeouts", "CHECKPOINT": "checkpoints and who holds their locks",
}
EVENTS: Final = tuple(MEANING)

LEVELS: Final = ("off", "error", "warn", "info", "debug")
"""Levels of the engine worker, from the least lines to the most; it writes WARN and above when nothing tells it."""



class Cost(NamedTuple):
    """What a level costs one worker: bytes of log a second, and percent of its throughput."""

    rate: int
    throughput: float


COSTS: Final = {
    "off": Cost(0, 0.0), "error": Cost(500_000, 1.2), "info": Cost(2_100_000, 3.8), "debug": Cost(18_400_000, 15.7)
}
"""The articles' table (200 nodes); it has no figures for WARN, which lies between ERROR and INFO."""
LOST_BY: Final = (
    ("transport buffers that overflow while the network is away", 90), ("an overloaded analyser", 7), ("disks", 3)
)
"""Where logs get lost, in percent (the articles)."""
UNROTATED_A_DAY: Final = 50_000_000_000
"""Bytes that one worker wrote in 24 hours without rotation, and more (the articles, 200 nodes)."""

COMPONENTS: Final = {"engine_worker": "engine_worker", "upstream": "verl"}
"""Field `component` by dialect."""

ENGINE_WORKER: Final = (
    rf"^(?:\[?(?P<time>{formats.DATE}(?:[.,][0-9]{{1,9}})?)\]?[ \t]+)?"
    r"(?:\[?(?P<level>TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)[\]:]?[ \t]+)?"
    rf"(?:\[(?P<event>{'|'.join(EVENTS)})\][ \t]*)?(?P<message>.*)$"
)
"""An engine worker's line. It matches any line: what is not there gives no field."""

CONTINUATION: Final = f"{formats.CONTINUATION[:-1]}|Caused by: )"
"""A line that belongs to the line before it: as where Ray's users write, and the cause in a trace of Java."""

PAIR: Final = (
    r"(?:^|[ \t,;(\[{])(?P<key>[A-Za-z_][A-Za-z0-9_]{0,63})="
    r"(?:\"(?P<quoted>[^\"\n]*)\"|(?P<value>[^ \t\r\n,;()\[\]{}\"]+))"
)
"""A `key=value` pair in the first line of a message. The first pair of a key counts; an empty value gives no field."""

RESERVED: Final = (
    "time", "time_source", "entry_time", "parse_error", "truncated", "message", "raw", "level", "source", "component",
    "node", "session", "file", "stream", "cluster", "event", "extra", "timestamp", "sample_rate",
)
"""Keys of pairs that stay text: shipgen sets these fields itself (`timestamp` is Vector's)."""


class Prose(NamedTuple):
    """A field that is read from words where no pair gives it; in lines of one event, or (empty) in all. ``regex`` has
    one group, which is called like the field; ``word`` (if any) stands in every text that it matches."""

    field: str
    event: str
    word: str
    regex: str


_NUMBER = r"[0-9]+(?:\.[0-9]+)?"

PROSE: Final = (
    Prose("heap_pct", "MEM", "eap usage", rf"[Hh]eap usage:? (?P<heap_pct>{_NUMBER}) ?%"),
    Prose("threshold_pct", "MEM", "threshold", rf"threshold:? (?P<threshold_pct>{_NUMBER}) ?%"),
    Prose("held_by", "", "held by ", r"held by (?P<held_by>[^ \t\r\n,;()]+)"),
    Prose("session_id", "NET", "ession", r"[Ss]ession:? (?P<session_id>[A-Za-z0-9_.-]*[0-9][A-Za-z0-9_-]*)"),
    Prose(
        "status",
        "DISPATCH",
        "",
        r"(?:^|[ \t(])(?P<status>queued|assigned|started|running|retrying|succeeded|completed|failed|rejected|timeout"
        r"|cancelled)(?:[ \t\r,;:.)]|$)",
    ),
)
"""`heap usage 89% (threshold 90%)`, `(held by worker-45)`: as in the articles; a session and a status as words."""

HEAP_HIGH: Final = 85
"""Percent of heap from which on a line about it is an anomaly: the articles' line has 89, under a threshold of 90."""
_BAD_STATUS: Final = "failed|rejected|timeout"


class Anomaly(NamedTuple):
    """What of an event is an anomaly and what is not, in LogQL; the same in words, and the field that it looks at, if
    any."""

    anomaly: str
    normal: str
    words: str
    field: str


ANOMALIES: Final = {
    "DISPATCH": Anomaly(f'| status=~"{_BAD_STATUS}"', f'| status!~"{_BAD_STATUS}"', "tasks that fail", "status"),
    "MEM": Anomaly(f"| heap_pct>={HEAP_HIGH}", f"| heap_pct<{HEAP_HIGH}", "the heap is nearly full", "heap_pct"),
    "NET": Anomaly('|~ "time(d )?out"', '!~ "time(d )?out"', "sessions that time out", ""),
    "CHECKPOINT": Anomaly('|= "waiting for lock"', '!= "waiting for lock"', "a checkpoint that waits for a lock", ""),
}
"""By event."""

FIELDS: Final = tuple(dict.fromkeys(["task_id", "session_id", "status", *(prose.field for prose in PROSE)]))
"""Fields that the articles name; any other key of a pair is a field too."""

OWN_FIELDS: Final = tuple(name for name in FIELDS if name not in record.FIELDS)
"""Those of them that no other source has."""


class Setting(NamedTuple):
    """A setting of VeRL: its name there, and the key of the policy that gives it, below `verl.engine_worker`."""

    name: str
    key: str


WORKER_PROPERTIES: Final = (
    Setting("log.level", "level"),
    Setting("log.heartbeat", "heartbeat"),
    Setting("log.execution.trace", "execution_trace"),
)
"""`conf/worker.properties`."""
ENGINE_WORKER_CONF: Final = (
    Setting("log.compression.level", "compression_level"),
    Setting("checkpoint.interval", "checkpoint_interval"),
)
"""`conf/engine_worker.conf`; the interval in seconds."""
JVM_OPTIONS: Final = (
    Setting("metrics.port", "port"), Setting("metrics.path", "path"), Setting("metrics.interval", "interval")
)
"""System properties of the JVM, from `verl.engine_worker.metrics`; the interval as `10s`."""

ENVIRONMENT: Final = (
    Setting("VERL_LOGGING_LEVEL", "level"),
    Setting("VERL_FILE_LOGGER_PATH", "metrics_file"),
    Setting("VERL_FILE_LOGGER_ROOT", "metrics_root"),
)
"""Variables of the open-source package, from `verl.upstream`: each module reads its level with `os.getenv` when it is
imported, `Tracking` the file when training starts (`verl/utils/tracking.py`, 0.9.1; it opens the file anew for writing,
so a second run with the same file empties it)."""
PYTHON_LEVELS: Final = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR", "fatal": "CRITICAL"}

LOGGING_PATH: Final = "/api/v1/workers/logging"
"""Path of the controller (port 8080) that takes `{"level": "DEBUG", "expire": "2h"}`; the level returns by itself
afterwards. The articles show no way to name one node: `node` beside it is shipgen's reading."""
