"""VeRL's controller: the request that changes the level of running engine workers for a while."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from shipgen.catalog import verl
from shipgen.diagnostics import OutsideError, UsageError
from shipgen.policy import units

_TIMEOUT_S = 10
_SHOWN = 500
"""Bytes of an answer that are shown."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a controller."""

    url: str
    body: str

    def __str__(self) -> str:
        return f"POST {self.url}\nContent-Type: application/json\n\n{self.body}\n"

    def send(self) -> str:
        """Send it; gives the answer's status and the beginning of its text. Raises OutsideError where the controller
        can't be reached, or answers with anything but 2xx: redirects are not followed."""
        import http.client
        import urllib.error
        import urllib.request

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_args: Any) -> None:
                return None

        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url, self.body.encode(), headers, method="POST")
        try:
            with urllib.request.build_opener(Stay).open(request, timeout=_TIMEOUT_S) as answer:
                return _told(answer.status, answer.reason, answer.read(_SHOWN))
        except urllib.error.HTTPError as error:
            told = _told(error.code, error.reason, error.read(_SHOWN))
            raise OutsideError(f"{self.url}: the controller answered {told}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", "") or error or type(error).__name__
            raise OutsideError(f"{self.url}: {reason}") from error


def _told(status: int, reason: str, text: bytes) -> str:
    words = f"{status} {reason} {text.decode('utf-8', 'replace')}"
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


def level_request(level: str, expire: str, controller: str, node: str | None) -> Request:
    """The request that sets ``level`` until ``expire`` (a duration such as `2h`) is over; on one node, or on all.
    Raises UsageError."""
    if level.lower() not in verl.LEVELS:
        raise UsageError(f"no level {level!r}; levels are {', '.join(verl.LEVELS).upper()}")
    try:
        lasts = units.duration(expire)
    except (ValueError, OverflowError):
        lasts = 0
    if lasts < 1000:
        raise UsageError(f"--expire: {expire!r} is no duration such as 2h")
    # not repeated: it may hold a password
    if not re.fullmatch(r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?/*", controller):
        raise UsageError("--controller: a URL such as http://controller:8080, with neither a path nor a user")
    if node == "":  # of a variable that is not set: it would be every worker
        raise UsageError("--node: empty; name a node, or leave it out for all")
    body = {"level": level.upper(), "expire": expire} | ({"node": node} if node else {})
    return Request(controller.rstrip("/") + verl.LOGGING_PATH, json.dumps(body))
