"""What is left for --drain-all, counted on a thread of its own: a count may wait for a lock, or for a dead server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import psycopg

from jobrunner.db.metrics import job_metrics
from jobrunner.db.process import job_kind_settings
from jobrunner.db.producer import open_jobs
from jobrunner.db.session import Session
from jobrunner.shared import Shared

COUNT_EVERY_SECONDS: Final = 0.5
OPEN: Final = ("mdm_jobs_pending", "mdm_jobs_running")


class Remainder(threading.Thread):
    """Counts the open jobs of the plan's kinds and tenants while every slot sleeps."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(name="remainder", daemon=True)
        self._nothing_at: int | None = None  # how many runs had ended when a count found nothing
        self._session = Session(shared.plan.target, self.name)
        self._shared = shared

    @property
    def nothing(self) -> bool:
        """Whether nothing was left at the last count, and no run has ended since: its job may have to come again."""
        return self._nothing_at == self._ended

    @property
    def _ended(self) -> int:
        return self._shared.tally.ran + self._shared.tally.released

    def run(self) -> None:
        """Count until the stop."""
        while not self._shared.stop.wait(COUNT_EVERY_SECONDS):
            ended = self._ended
            self._nothing_at = ended if self._shared.bell.all_idle and self._is_nothing() else None
        self._session.close()

    def _is_nothing(self) -> bool:
        try:
            found = not any(self._counts())
        except psycopg.Error as error:
            self._shared.outage.lost(error)
            return False
        self._shared.outage.back()
        return found

    def _counts(self) -> Iterator[float]:
        """How many jobs are open; those of paused kinds would keep us for ever, those of other tenants too."""
        plan = self._shared.plan
        settings = self._session.run(job_kind_settings(kinds=plan.kinds))
        kinds = [each.job_kind for each in settings if not each.paused]
        if plan.tenant_ids is None:
            yield from (each.due + each.later + each.running for each in self._session.run(open_jobs(kinds=kinds)))
            return
        tenants = {str(tenant_id) for tenant_id in plan.tenant_ids}
        for each in self._session.run(job_metrics()):
            if each.metric in OPEN and each.job_kind in kinds and each.tenant_id in tenants:
                yield each.value
