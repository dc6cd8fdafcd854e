"""Log files for a run: a recorded tree as it stands, or a writer that does to files what Ray does while it runs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from shipgen.diagnostics import UsageError

#: For a `logs` directory that was taken out of its session.
UNNAMED_SESSION = "session_2026-01-01_00-00-00_000000_1"
LINK = "session_latest"


def sessions_in(logs: Path) -> dict[str, Path]:
    """Session name -> its ``logs`` directory. ``logs`` holds sessions, is one session, or is its ``logs`` directory."""
    if not logs.is_dir():
        raise UsageError(f"{logs}: no such directory; give Ray's temp directory, a session, or its logs directory")
    found = {p.parent.name: p for p in sorted(logs.glob("session_2*/logs")) if p.is_dir() and not p.parent.is_symlink()}
    if found:
        return found
    inside = logs / "logs" if (logs / "logs").is_dir() else logs
    if inside is logs and not any(logs.glob("*.out")) and not any(logs.glob("*.log")):
        raise UsageError(f"{logs}: holds no session_2* directory and no Ray logs")
    name = inside.resolve().parent.name
    return {name if name.startswith("session_2") else UNNAMED_SESSION: inside}


def copy_tree(logs: Path, temp_dir: Path) -> list[str]:
    """Copy a recorded tree so that it stands in ``temp_dir`` as Ray would have left it; gives the session names.

    Only what is below ``logs/`` is copied (a session also holds sockets and whole virtual environments), times of
    modification are kept, and ``session_latest`` points at the newest session by its absolute path, as Ray's does.
    """
    sessions = sessions_in(logs)
    temp_dir.mkdir(parents=True, exist_ok=True)
    for name, source in sessions.items():
        for folder, _, files in os.walk(source):
            directory = Path(folder)
            target = temp_dir / name / "logs" / directory.relative_to(source)
            target.mkdir(parents=True, exist_ok=True)
            for file in files:
                if (directory / file).is_file():
                    shutil.copy2(directory / file, target / file)
    link_latest(temp_dir, max(sessions))
    return list(sessions)


def copy_files(tree: Path, globs: Iterable[str], root: Path) -> None:
    """Copy the files that globs name below ``tree`` to the same places below ``root``."""
    for file in sorted({file for glob in globs for file in tree.glob(glob) if file.is_file()}):
        place = root / file.relative_to(tree)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place)


def link_latest(temp_dir: Path, session: str) -> None:
    """Point ``session_latest`` at a session as Ray does at every worker start: remove it, then create it."""
    link = temp_dir / LINK
    link.unlink(missing_ok=True)
    link.symlink_to((temp_dir / session).absolute(), target_is_directory=True)


class LiveWriter:
    """Writes Ray log files while a shipper reads them, with Ray's own ways of rotating, moving and changing sessions.

    Everything written also goes to ``ledger``, a tree in which nothing is ever rotated, moved or overwritten: what
    stands there is what has to arrive. Names are paths below ``logs/``.

    ``moments`` has the time (seconds since the epoch) of each finished line; ``written`` the time of a line by session,
    name and text, of lines that were finished while ``timing``.
    """

    def __init__(self, temp_dir: Path, ledger: Path) -> None:
        self.temp_dir = temp_dir
        self.ledger = ledger
        self.session = ""
        self.timing = False
        self.moments: list[float] = []
        self.written: dict[tuple[str, str, str], float] = {}
        self.size = 0
        self._unfinished: dict[tuple[str, str], str] = {}
        self._open: dict[tuple[str, str], int] = {}
        self._sessions = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def logs(self, session: str = "") -> Path:
        """The ``logs`` directory of a session, the current one by default."""
        return self.temp_dir / (session or self.session) / "logs"

    def new_session(self, name: str = "") -> str:
        """Start a session. The files of the one before stay open: its last lines come after the link has moved."""
        self._sessions += 1
        self.session = name or f"session_2026-12-01_{self._sessions:02}-00-00_000000_{1000 + self._sessions}"
        (self.logs() / "old").mkdir(parents=True)
        self.worker_starts()
        return self.session

    def worker_starts(self) -> None:
        """Every start of a worker removes ``session_latest`` and creates it again."""
        link_latest(self.temp_dir, self.session)

    def write(self, name: str, *lines: str, session: str = "") -> None:
        """Append whole lines, each with a write of its own."""
        for line in lines:
            self.partial(name, line + "\n", session=session)

    def partial(self, name: str, text: str, session: str = "") -> None:
        """Append text as it is: a line that is not finished yet, or what finishes it."""
        session = session or self.session
        data = text.encode("utf-8", "surrogateescape")
        os.write(self._descriptor(session, name), data)
        kept = self.ledger / session / "logs" / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        with kept.open("ab") as file:
            file.write(data)
        self._note(session, name, text)
        self.size += len(data)

    def rotate(self, name: str, backups: int = 5, session: str = "") -> None:
        """Ray's ring: X.(n-1) becomes X.n and so on, X becomes X.1, a new X is begun. The oldest is overwritten."""
        session = session or self.session
        self._close(session, name)
        live = self.logs(session) / name
        for index in range(backups - 1, 0, -1):
            newer = live.with_name(f"{live.name}.{index}")
            if newer.exists():
                newer.rename(live.with_name(f"{live.name}.{index + 1}"))
        live.rename(live.with_name(f"{live.name}.1"))
        self._descriptor(session, name)

    def move_to_old(self, name: str, session: str = "") -> None:
        """What log_monitor does with the file of a dead worker."""
        session = session or self.session
        self._close(session, name)
        (self.logs(session) / name).rename(self.logs(session) / "old" / Path(name).name)

    def names(self) -> list[str]:
        """Files of the current session that are being written, those with an unfinished line left out."""
        return [n for session, n in self._open if session == self.session and not self._unfinished.get((session, n))]

    def _note(self, session: str, name: str, text: str) -> None:
        now = time.time()
        *lines, self._unfinished[session, name] = (self._unfinished.get((session, name), "") + text).split("\n")
        for line in lines:
            self.moments.append(now)
            if self.timing:
                self.written.setdefault((session, name, line), now)

    def _descriptor(self, session: str, name: str) -> int:
        if (session, name) not in self._open:
            path = self.logs(session) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open[session, name] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        return self._open[session, name]

    def _close(self, session: str, name: str) -> None:
        descriptor = self._open.pop((session, name), None)
        if descriptor is not None:
            os.close(descriptor)
