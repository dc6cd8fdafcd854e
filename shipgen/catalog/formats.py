"""How Ray writes a line: the grammars of section "Line formats" as regexes that RE2, Oniguruma and Rust read alike.

Checked on every line of the recorded Ray 2.60 trees. Names F1 .. F9 are those of the tests and the docs.
"""

from __future__ import annotations

DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"
"""Local time without a zone; Ray's loggers add a comma and three digits."""

CPP = rf"^\[(?P<time>{DATE},[0-9]{{3}}) (?P<level>[A-Z]) (?P<pid>[0-9]+) (?P<thread>[0-9]+)\]" \
    r"(?: \([A-Za-z0-9_]+\))? (?P<caller>[^: \n]+:[0-9]+): ?"
"""F1, spdlog of the C++ components: ``[time L pid tid] (component) file.cc:NN: message``."""

PYTHON = rf"^(?P<time>{DATE},[0-9]{{3}})\t(?P<level>[A-Z]+) (?:\([A-Za-z0-9_]+\) )?(?P<caller>[^: \n]+:[0-9]+) -- ?"
"""F2, Python components: ``time<TAB>LEVEL file.py:NN -- message``. With RAY_LOG_TO_STDERR a ``(component)`` stands
between."""

SERVE = rf"^(?P<level>[A-Z]+) (?P<time>{DATE},[0-9]{{3}}) " \
    r"(?:(?P<deployment>[^ \n]+) (?P<replica>[^ \n]+)(?: (?P<request_id>[^ \n]*))?|[^\n]*?) -- ?"
"""F3, Serve: ``LEVEL time deployment replica [request] -- message``; ``controller <pid>`` and ``proxy <ip>`` stand in
the places of deployment and replica. A deployment name with blanks falls to the second form."""

ABSL = r"^(?P<level>[IWEF])[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6} +(?P<pid>[0-9]+)" \
    r" (?P<caller>[^: \n]+:[0-9]+)\] ?"
"""F9, gRPC's absl: level and pid, but no year and so no time."""

DATED = rf"^(?P<time>{DATE}(?:[.,][0-9]{{1,9}})?)[^ \t\n]*" \
    r"(?:[ \t]+(?P<level>TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)(?:[ \t\r\n]|$))?"
"""Any other line that begins with a date, such as a user's own Python logging. It is its own message; its level is the
next word, if that is one. No word boundary: engines differ on what a word is outside ASCII."""

LOGGING = rf"^(?P<level>[A-Z]+):(?P<time>{DATE},[0-9]{{3}}):"
"""F10, `LEVEL:time:message` as the modules of the open-source verl write it; only where users write."""

PAIRS = r" job_id=(?P<job_id>[0-9a-f]+) worker_id=(?P<worker_id>[0-9a-f]+) node_id=(?P<node_id>[0-9a-f]+)" \
    r"(?: actor_id=(?P<actor_id>[0-9a-f]+))?(?: task_id=(?P<task_id>[0-9a-f]+))?" \
    r"(?: task_name=(?P<task_name>[^\n]*?))?(?: task_func_name=[^\n]*?)?(?: actor_name=(?P<actor_name>[^\n]*?))?" \
    r" timestamp_ns=(?P<timestamp_ns>[0-9]{19})$"
"""F2b, the end of an entry written by LoggingConfig TEXT or the job supervisor."""

JSON_LINE = r"^\{\".*\}\r?$"
"""A JSON object that fills the line (F5, F6, F7, events)."""

HEADER = rf"^(?:\[{DATE},|{DATE}|[A-Z]+ {DATE},|[IWEF][0-9]{{4}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}\.[0-9]" \
    r"|\{\".*\}\r?$)"
"""A line that starts an entry in a component's file: a header, a date, or a JSON object that fills the line."""

CONTINUATION = (
    r"^(?:\x1b\[[0-9;]*m)*(?:\[rank[0-9]+\]: )?(?:[ \t]|\r?$"
    r"|(?:Traceback|Current thread|Thread|Stack)[^:]*\(most recent call (?:first|last)\):"
    r"|During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:"
    r"|(?:(?:[A-Za-z_<][A-Za-z0-9_>]*\.)*(?:[A-Za-z_][A-Za-z0-9_]*Error|[A-Za-z0-9_]*Exception|[A-Za-z0-9_]+Warning"
    r"|KeyboardInterrupt|SystemExit|GeneratorExit|StopIteration|StopAsyncIteration)"
    r"|(?:[A-Za-z_<][A-Za-z0-9_>]*\.)+(?:[Ee]rror|timeout|gaierror|Empty|Full|TimeoutExpired)"
    r"|(?:[A-Za-z_<][A-Za-z0-9_>]*\.)*(?:exceptions?|errors?)\.[A-Z][A-Za-z0-9_]*)"
    r"(?:\([A-Za-z0-9_.]+\))?(?::?[ \t\r]*$|: )"
    r"|\*\*\* (?:SIG[A-Z0-9]+ |StackTrace )|PC: @|frame \x23[0-9]+: "
    r"|Exception raised from [^:]+:[0-9]+ \(most recent call first\):"
    r"|Fatal Python error: |Python runtime state: |Extension modules: "
    r"|[^ ]+\([^ ()]*\+0x[0-9a-f]+\) ?\[0x[0-9a-f]+\]|[\])}]+[,;]?[ \t\r]*$)"
)
"""A line that belongs to the line before it, in files where users write. Stateless; no lookaround, no quote, no ``#``.
Run on Fluent Bit and Fluentd; Python, RE2, Oniguruma and Rust judge all 8,516 user lines of the trees alike."""

ANSI = r"\x1b\[[0-?]*[ -/]*[@-~]"
"""A colour or cursor code (ECMA-48 CSI)."""

MARKER = r"^:(?:job_id|actor_name|task_name):"
"""F4, control lines that Ray writes into worker files, one per task."""

GLUED_MARKER = r"(?m):(?:job_id:[0-9a-f]+|(?:actor|task)_name:[^:\s][^:\n]*)$"
"""A marker at the end of a line that the program left unfinished."""

TQDM = "__ray_tqdm_magic_token__"
"""Marks the JSON lines that carry the state of a tqdm_ray progress bar."""

DRIVER_REPEAT = r"^(?:\x1b\[[0-9;]*m)*\((?:[^\n]* )?pid=[0-9]+(?:, ip=[^)\n]+)?\)(?:\x1b\[[0-9;]*m)* "
"""F8, a worker's line repeated by its driver: ``(name pid=.., ip=..) line``."""

LEVELS: dict[str, str] = {
    "I": "info", "INFO": "info",
    "W": "warn", "WARNING": "warn", "WARN": "warn",
    "E": "error", "ERROR": "error",
    "D": "debug", "DEBUG": "debug",
    "C": "fatal", "F": "fatal", "CRITICAL": "fatal", "FATAL": "fatal",
    "T": "trace", "TRACE": "trace",
}
"""Spellings of a level in Ray's files, commonest first, onto shipgen's six."""

LEVEL_WORD = "^(?:" + "|".join([*LEVELS, *(word.lower() for word in LEVELS if len(word) > 1)]) + ")$"
"""A JSON value that is a level: a letter, or a word in capitals or in small letters."""

LEVEL_ORDER = ("trace", "debug", "info", "warn", "error", "fatal")
"""From the least to the most severe."""

JSON_PID = ("process", "source_pid", "pid")
JSON_THREAD = ("thread", "threadName")
JSON_LEVEL = ("levelname", "severity", "level")
JSON_IDS = ("job_id", "worker_id", "actor_id", "actor_name", "task_id", "task_name", "node_id", "submission_id")
JSON_SERVE = ("deployment", "replica", "request_id", "route", "application")
"""Keys of a JSON entry (F5, F6, F7, events) and the fields they fill; of the first three the first one present wins."""
JSON_CONSUMED = ("asctime", "timestamp_ns", "message", "exc_text", "filename", "lineno")
"""Further keys that other fields are made of; every remaining key goes to ``extra``."""
