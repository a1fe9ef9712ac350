"""What the threads do while the database is away: say so once, pause, try again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

import psycopg

from jobrunner.logs import event

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
TRUSTED_SECONDS: Final = 30.0  # the first claims after a return: those of what crashed the server, if a job did
# Classes and codes that pass by themselves: connection, resources, shutdown, conflict, read-only after a failover,
# lock and statement timeouts. No code at all: the connection broke.
PASSING: Final = ("08", "40", "53", "57", "58", "25006", "25P03", "55P03")


def passes(error: psycopg.Error) -> bool:
    """Say whether the same call can succeed later without anybody changing anything."""
    return error.sqlstate is None or error.sqlstate.startswith(PASSING)


class Outage:
    """What the process knows of the database's absence; a flapping database is reported once per change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._back_at = monotonic()

    @property
    def away(self) -> bool:
        """Whether the last call that was told of has failed."""
        return self._since is not None

    @property
    def trusted(self) -> bool:
        """Whether the database has been there for a while, so that no job of now will crash it as one has before."""
        return self._since is None and monotonic() - self._back_at > TRUSTED_SECONDS

    def lost(self, error: psycopg.Error) -> None:
        """Note that a call failed."""
        with self._lock:
            first = self._since is None
            self._since = self._since or monotonic()
        if first:
            level = logging.WARNING if passes(error) else logging.ERROR
            event(level, "database_lost", error=first_line(error), sqlstate=error.sqlstate)

    def back(self) -> None:
        """Note that a call succeeded again."""
        with self._lock:
            since, self._since = self._since, None
            if since is not None:
                self._back_at = monotonic()
        if since is not None:
            event(logging.INFO, "database_back", seconds=round(monotonic() - since, 1))


class Patience:
    """The pauses of one thread: 0.1 s, doubled up to 5 s, each cut by up to half so that threads do not keep step."""

    def __init__(self, outage: Outage, dice: Callable[[], float]) -> None:
        self._outage = outage
        self._dice = dice
        self._failures = 0

    def failed(self, error: psycopg.Error, until: threading.Event) -> None:
        """Note a failure and pause; the event ends the pause."""
        until.wait(self.note(error))

    def note(self, error: psycopg.Error) -> float:
        """Note a failure and give the seconds to pause."""
        self._failures += 1
        self._outage.lost(error)
        return self.pause_seconds()

    def pause_seconds(self) -> float:
        """How long to pause after so many failures in a row."""
        doubled: float = FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 10)
        return min(doubled, LONGEST_PAUSE_SECONDS) * (1 - self._dice() / 2)

    def succeeded(self) -> None:
        """Note a success."""
        if self._failures:
            self._failures = 0
            self._outage.back()


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
