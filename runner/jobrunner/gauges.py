"""The gauges of S12.1 for an exporter: read at most every few seconds, however often they are scraped.

A scrape starts a reading when the last one is old, waits a moment for it, and takes what there is: so a scrape is
quick even when the reading is not (B97). Every runner exports the same values: aggregate with max, not with sum (D18).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Final

import psycopg
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jobrunner.db.metrics import Gauge
from jobrunner.logs import event
from jobrunner.metrics import OTHER
from jobrunner.outage import first_line

FRESH_SECONDS: Final = 5.0  # no reading before the last one is so old
WORK_SHARE: Final = 10  # and before so many times its duration have passed
PATIENCE_SECONDS: Final = 0.1  # a scrape waits so long for a reading
GONE_SECONDS: Final = 60.0  # values that are older are not shown any more
TENANTS_MAX: Final = 1000  # later ones fold into "other"
KINDS_MAX: Final = 100
PLATFORM: Final = ""  # the tenant label of the platform's own jobs
PER_TENANT: Final = ("mdm_jobs_pending", "mdm_jobs_running", "mdm_jobs_dlq")
WITHOUT_KIND: Final = ("_age_seconds", "_violations")

HELP: Final = {
    "mdm_jobs_pending": "Pending jobs, due or not (S12.1).",
    "mdm_jobs_running": "Running jobs (S12.1).",
    "mdm_jobs_dlq": "Dead jobs (S12.1).",
    "mdm_jobs_oldest_due_seconds": "How long the oldest due job has been due, 0 = nothing is due.",
    "mdm_jobs_live_runners": "Live runner processes that serve the kind.",
    "mdm_jobs_recover_age_seconds": "Time since recovery last ran to its end (D17).",
    "mdm_jobs_purge_age_seconds": "Time since retention last ran to its end (D22).",
    "mdm_jobs_compact_age_seconds": "Time since the outbox was last compacted (S2.5).",
    "mdm_jobs_invariants_age_seconds": "Time since the invariants were last looked at (D17).",
    "mdm_jobs_violations": "Jobs that the cleanup found to break an invariant within the last 24 hours.",
}

Read = Callable[[], Sequence[Gauge]]
Key = tuple[str, ...]


class Gauges(Collector):
    """The collector; `close` ends its thread."""

    def __init__(self, read: Read, *, tenant_label: bool, clock: Callable[[], float] = monotonic) -> None:
        self._read = read
        self._tenant_label = tenant_label
        self._clock = clock
        self._tenants: set[str] = set()
        self._kinds: set[str] = set()
        self._values: dict[str, dict[Key, float]] = {name: {} for name in HELP}
        self._up: bool | None = None  # not known before the first reading
        self._read_at: float | None = None
        self._next_at = 0.0
        self._wanted = threading.Event()
        self._done = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="gauges", daemon=True)
        self._thread.start()

    def describe(self) -> list[GaugeMetricFamily]:
        """Name the metrics without reading them; called at registration."""
        return [self._family(name) for name in HELP]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give the values as they were read last."""
        with self._done:
            if self._clock() >= self._next_at:
                self._wanted.set()
                self._done.wait_for(lambda: not self._wanted.is_set(), PATIENCE_SECONDS)
            age = self._clock() - self._read_at if self._read_at is not None else None
            values = {name: dict(found) for name, found in self._values.items()}
        if self._up is None:
            return
        up = GaugeMetricFamily("mdm_jobs_database_up", "Whether the last reading of the gauges succeeded.")
        up.add_metric((), float(self._up))
        yield up
        if age is None or age > GONE_SECONDS:
            return
        old = GaugeMetricFamily("mdm_jobs_gauges_age_seconds", "How old the gauges are that come from the database.")
        old.add_metric((), age)
        yield old
        for name, found in values.items():
            family = self._family(name)
            for key, value in found.items():
                family.add_metric(key, value)
            yield family

    def refresh(self) -> None:
        """Read now; a failure is remembered, and the values of the last reading stay for a while."""
        started = self._clock()
        try:
            found = self._read()
        except psycopg.Error as error:
            found = None
            if self._up is not False and not self._over:
                event(logging.WARNING, "gauges_lost", error=first_line(error), sqlstate=error.sqlstate)
        with self._done:
            now = self._clock()
            self._up = found is not None
            self._next_at = now + max(FRESH_SECONDS, WORK_SHARE * (now - started))
            if found is not None:
                self._read_at = now
                self._take(found)
            self._wanted.clear()
            self._done.notify_all()

    def close(self, sever: Callable[[], object]) -> None:
        """End the thread, and the reading that may be under way."""
        self._over = True
        self._wanted.set()
        sever()
        self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._over:
                return
            self.refresh()

    def _take(self, found: Sequence[Gauge]) -> None:
        """Fold the values into series; a series that was there before and has no row now is 0 (B97)."""
        for name, values in self._values.items():
            self._values[name] = dict.fromkeys(values, 0.0) if name in PER_TENANT else {}
        for each in found:
            if each.metric in self._values:
                values, key = self._values[each.metric], self._key(each)
                values[key] = values.get(key, 0.0) + each.value

    def _key(self, each: Gauge) -> Key:
        """The labels of a value, folded where there are too many."""
        if each.job_kind is None:
            return ()
        kind = _bounded(each.job_kind, self._kinds, KINDS_MAX)
        if each.metric not in PER_TENANT or not self._tenant_label:
            return (kind,)
        return (_bounded(each.tenant_id or PLATFORM, self._tenants, TENANTS_MAX), kind)

    def _family(self, name: str) -> GaugeMetricFamily:
        labels: Sequence[str] = () if name.endswith(WITHOUT_KIND) else ("kind",)
        if name in PER_TENANT and self._tenant_label:
            labels = ("tenant", "kind")
        return GaugeMetricFamily(name, HELP[name], labels=labels)


def _bounded(name: str, known: set[str], limit: int) -> str:
    """The name itself while there is room, else `other`; a name keeps what it got."""
    if name not in known and len(known) < limit:
        known.add(name)
    return name if name in known else OTHER
