"""A session that sits an outage out: for calls that lose nothing when they are made again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import psycopg

from jobrunner.db.call import Call, LeaseLost
from jobrunner.db.session import Session
from jobrunner.outage import Patience, passes
from jobrunner.tray import Hold

T = TypeVar("T")

ALREADY_ENDED = "already ended by this lease"  # the detail of MJ001 after an answer that got lost (D2)


class GivenUp(Exception):
    """The process ends before the database came back."""


class Steady:
    """The session of one thread, with that thread's patience."""

    def __init__(self, session: Session, patience: Patience, over: threading.Event) -> None:
        self.raw = session
        self._patience = patience
        self._over = over

    def insist(self, call: Call[T], holds: Sequence[Hold]) -> T | None:
        """Make the call that ends these jobs until the database has answered; None when it had ended them before.

        An attempt whose answer got lost may have been committed: from then on "already ended by this lease" is
        the answer to that attempt. Raises LeaseLost, GivenUp, and psycopg.Error for what does not pass by itself.
        """
        while True:
            try:
                result = self.raw.run(call)
                self._patience.succeeded()
                return result
            except LeaseLost as lost:
                if lost.detail == ALREADY_ENDED and all(hold.unsure for hold in holds):
                    return None
                raise
            except psycopg.Error as error:
                for hold in holds:
                    hold.unsure = True
                self._sit_out(error)

    def begin(self, hold: Hold, idle_seconds: float, *calls: Call[Any]) -> psycopg.Connection[Any]:
        """Open a transaction for a job: nothing has been done in it, so an outage before it is only a wait."""
        while True:
            try:
                conn = self.raw.begin(idle_seconds, *calls)
                self._patience.succeeded()
                return conn
            except psycopg.Error as error:
                if hold.cancelled:
                    raise
                self._sit_out(error)

    def _sit_out(self, error: psycopg.Error) -> None:
        """Pause before the next attempt; raises when there should be none."""
        if not passes(error):
            raise error
        if self._over.is_set():
            raise GivenUp from error
        self._patience.failed(error, self._over)
