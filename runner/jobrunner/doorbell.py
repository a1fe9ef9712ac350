"""The doorbell: one thread that listens and polls for all slots (design 5, rules 5 and 6)."""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import Any, Final

import psycopg

from jobrunner.db.call import send
from jobrunner.db.process import listen, notify
from jobrunner.db.session import Session
from jobrunner.logs import event
from jobrunner.outage import Patience
from jobrunner.shared import Shared
from jobrunner.wake import Wake

FIRST_POLL_SECONDS: Final = 0.05  # after a slot became idle; doubled up to the longest
LONGEST_POLL_SECONDS: Final = 1.0
THROTTLED_POLL_SECONDS: Final = 0.1  # while jobs wait for tokens: nobody notifies when one is there
PROOF_SECONDS: Final = 3.0  # so long a notification of our own may take to come back
DEAF_SECONDS: Final = 300.0  # before a connection that hears nothing is tried again


class Doorbell(threading.Thread):
    """Rings the bell on a NOTIFY, and for a poll while somebody is idle."""

    def __init__(self, shared: Shared, idle: Wake) -> None:
        super().__init__(name="doorbell", daemon=True)
        plan = shared.plan
        self.session = Session(plan.listen, self.name) if plan.listen is not None else None
        self._shared = shared
        self._idle = idle  # woken by a slot that became idle, and by the stop
        self._patience = Patience(shared.outage, shared.dice)
        self._pause = FIRST_POLL_SECONDS
        self._poll_at = monotonic()
        self._listen_at = 0.0  # not tried again before
        self._proof_by: float | None = None  # when the notification of our own has to be back
        self._warned = False

    def run(self) -> None:
        """Ring until the stop."""
        while not self._shared.stop.is_set():
            if self._notified(self._listening()):
                self._shared.bell.ring_softly()
            elif monotonic() >= self._poll_at:
                self._poll()
            if self._shared.bell.seconds_to_insist() <= 0:
                self._shared.bell.insist()
        if self.session is not None:
            self.session.close()

    def _poll(self) -> None:
        """Let one idle slot look; each time doubles the pause."""
        if self._shared.bell.idle:
            self._shared.bell.ring()
        throttled = self._shared.buckets.waited_for
        self._pause = min(self._pause * 2, THROTTLED_POLL_SECONDS if throttled else LONGEST_POLL_SECONDS)
        self._poll_at = monotonic() + self._pause

    def _listening(self) -> psycopg.Connection[Any] | None:
        """The connection that listens; None while there is none to be had: polling goes on (B59)."""
        if self.session is None or monotonic() < self._listen_at:
            return None
        try:
            before = self.session.current
            conn = self.session.connection()
            if conn is not before:
                send(conn, listen())
                self._call_oneself()
                self._patience.succeeded()
            elif self._proof_by is not None and monotonic() > self._proof_by:
                self._deaf()
                return None
        except psycopg.Error as error:
            self._lost(error)
            return None
        return conn

    def _call_oneself(self) -> None:
        """Send a notification from where the jobs are: LISTEN through a pooler, or elsewhere, succeeds and is deaf."""
        other = Session(self._shared.plan.target, "doorbell test")
        try:
            other.run(notify(payload=self._shared.plan.runner_id))
        finally:
            other.close()
        self._proof_by = monotonic() + PROOF_SECONDS

    def _deaf(self) -> None:
        """Poll instead of listening, and say so once."""
        self._shared.bell.sure = False
        if not self._warned:
            event(logging.WARNING, "listen_deaf", remedy="--listen-dsn with a direct connection to the same database")
        self._warned, self._proof_by = True, None
        if self.session is not None:
            self.session.close()
        self._listen_at = monotonic() + DEAF_SECONDS

    def _notified(self, conn: psycopg.Connection[Any] | None) -> bool:
        """Sleep until the next poll, a NOTIFY or a slot that became idle; True for a NOTIFY of a kind of ours."""
        sleep_seconds = min(self._poll_at - monotonic(), self._shared.bell.seconds_to_insist())
        try:
            ready = self._idle.wait(sleep_seconds, *([conn.fileno()] if conn is not None else []))
            kinds = {notify.payload for notify in conn.notifies(timeout=0)} if conn is not None and ready else set()
        except psycopg.Error as error:
            self._lost(error)
            return False
        if self._shared.plan.runner_id in kinds:
            self._proof_by = None
            self._shared.bell.sure = True
        if self._idle.take():
            self._hurry()
        return any(kind in self._shared.plan.handlers for kind in kinds)

    def _hurry(self) -> None:
        """Poll quickly for a while: a producer may commit just now, and its NOTIFY was waived."""
        self._pause = FIRST_POLL_SECONDS
        self._poll_at = min(self._poll_at, monotonic() + self._pause)

    def _lost(self, error: psycopg.Error) -> None:
        """Note that the listening connection is lost, and when to try again."""
        self._shared.bell.sure = False
        self._proof_by = None
        if self.session is not None:
            self.session.close()
        self._listen_at = monotonic() + self._patience.note(error)
