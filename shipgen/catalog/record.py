"""The fields of a record, and their kinds. The contract of every target."""

from __future__ import annotations

from typing import Final

FIELDS: Final[dict[str, str]] = {
    "time": "time",
    "time_source": "string",
    "entry_time": "string",
    "parse_error": "boolean",
    "truncated": "boolean",
    "message": "string",
    "raw": "string",
    "level": "string",
    "source": "string",
    "component": "string",
    "node": "string",
    "session": "string",
    "file": "string",
    "stream": "string",
    "pid": "number",
    "worker_id": "string",
    "job_id": "string",
    "actor_id": "string",
    "actor_name": "string",
    "task_id": "string",
    "task_name": "string",
    "node_id": "string",
    "submission_id": "string",
    "caller": "string",
    "thread": "string",
    "deployment": "string",
    "replica": "string",
    "request_id": "string",
    "route": "string",
    "application": "string",
    "cluster": "string",
    "event": "string",
    "extra": "object",
}
"""Name to kind: string, number, boolean, time or object. `pid` is a number by nature, and text on the wire as all ids
are."""
