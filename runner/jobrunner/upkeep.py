"""Recovery each minute and the cleanup each five (D17), on a connection that is open only meanwhile.

A thread of its own: a cleanup may take its whole budget of 60 s, and no heartbeat may wait for it.
"""

from __future__ import annotations

import logging
import threading

import psycopg

from jobrunner.db.session import Session
from jobrunner.db.upkeep import cleanup_jobs, recover_stale_jobs
from jobrunner.logs import event
from jobrunner.outage import Patience
from jobrunner.shared import Shared

RECOVER_SECONDS = 60.0
RECOVER_LIMIT = 500
CLEANUP_EVERY = 5  # every so many recoveries


class Upkeep(threading.Thread):
    """Drives the upkeep; several processes at once do no harm."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(name="upkeep", daemon=True)
        self.session = Session(shared.plan.target, self.name)
        self._shared = shared
        self._patience = Patience(shared.outage, shared.dice)

    def run(self) -> None:
        """Do the upkeep until the stop; the first recovery was the pool's."""
        stop, rounds = self._shared.stop, 0
        while not stop.wait(RECOVER_SECONDS * (0.9 + 0.2 * self._shared.dice())):
            rounds += 1
            try:
                self.recover()
                if rounds % CLEANUP_EVERY == 0:
                    self.session.run_alone(cleanup_jobs())
                self._patience.succeeded()
            except psycopg.Error as error:
                self._patience.failed(error, stop)
            self.session.close()

    def recover(self) -> None:
        """Take the jobs of silent runners back, until none is left (S8)."""
        found = RECOVER_LIMIT
        while found >= RECOVER_LIMIT and not self._shared.stop.is_set():
            outcomes = [outcome for _, outcome in self.session.run(recover_stale_jobs(limit=RECOVER_LIMIT))]
            found = len(outcomes)
            if outcomes:
                counts = {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}
                self._shared.tally.meter.recovered(counts)
                event(logging.WARNING, "jobs_recovered", count=found, **counts)
                self._shared.bell.ring()
