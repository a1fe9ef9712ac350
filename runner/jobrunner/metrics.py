"""What the runner counts of its own work (S12.2 to S12.4, S7.5), in the words of Prometheus.

A run is counted when the database has accepted its end (B96). Labels are bounded: kinds without a handler here fold
into `other`, there is no label of a tenant, an error or a worker (B95).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry

from jobrunner.histograms import Histograms
from jobrunner.job import ClaimedRow

OTHER: Final = "other"
# Seconds. Waiting goes from an idle queue to a backlog of days, running from a few milliseconds to the longest kinds.
WAIT_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
RUN_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600)
OUTCOMES: Final = ("done", "failed", "dlq", "superseded", "released", "lost")


class Meter:
    """Counts nothing: what a runner has that exports no metrics."""

    def claimed(self, rows: Sequence[ClaimedRow]) -> None:
        """Jobs were claimed."""

    def ran(self, job_kind: str, seconds: float) -> None:
        """A handler has returned or raised."""

    def ended(self, kinds: Iterable[str], outcome: str) -> None:
        """Runs of these kinds ended, and the database has accepted it; outcome is one of OUTCOMES."""

    def lost(self, job_kind: str) -> None:
        """A lease was lost (D2)."""

    def throttled(self, rows: Sequence[ClaimedRow]) -> None:
        """Jobs got no token (S7.5)."""

    def recovered(self, outcomes: Mapping[str, int]) -> None:
        """Jobs of silent workers were taken back (S8)."""


class PrometheusMeter(Meter):
    """Counts for an exporter."""

    def __init__(self, registry: CollectorRegistry, kinds: Iterable[str]) -> None:
        def counter(name: str, text: str, *labels: str) -> prometheus_client.Counter:
            return prometheus_client.Counter(name, text, labels, registry=registry)

        def histograms(name: str, text: str, bounds: Sequence[float]) -> Histograms:
            made = Histograms(name, text, bounds, (*self._kinds, OTHER))
            registry.register(made)
            return made

        self._kinds = frozenset(kinds)
        self._latency = histograms(
            "mdm_jobs_claim_latency_seconds", "Age of a job at its claim: now - created_at (S12.2).", WAIT_BUCKETS
        )
        self._waited = histograms(
            "mdm_jobs_wait_seconds", "Time from when a job was due until its claim: now - available_at.", WAIT_BUCKETS
        )
        self._processing = histograms("mdm_jobs_processing_seconds", "Time that a handler ran (S12.3).", RUN_BUCKETS)
        self._attempts = counter(
            "mdm_jobs_attempts_total", "Runs by how they ended, once the database knows (S12.4).", "kind", "outcome"
        )
        self._lost = counter("mdm_jobs_lost_leases_total", "Leases that were lost to recovery or to a stop.", "kind")
        self._throttled = counter("mdm_jobs_rate_limited_total", "Claims that got no token (S7.5).", "kind")
        self._recovered = counter("mdm_jobs_recovered_total", "Jobs taken back from silent workers (S8).", "outcome")
        self._start_at_zero()

    def claimed(self, rows: Sequence[ClaimedRow]) -> None:
        """Observe how old the jobs are, and how long they were due; by the server's clock alone."""
        by_kind: defaultdict[str, list[ClaimedRow]] = defaultdict(list)
        for row in rows:
            by_kind[row.job_kind].append(row)
        for job_kind, claimed in by_kind.items():
            kind = self._folded(job_kind)
            self._latency.observe(kind, [max(0.0, row.claimed_epoch - row.created_epoch) for row in claimed])
            self._waited.observe(
                kind, [max(0.0, row.claimed_epoch - max(row.available_epoch, row.created_epoch)) for row in claimed]
            )

    def ran(self, job_kind: str, seconds: float) -> None:
        """Observe how long a handler ran."""
        self._processing.observe(self._folded(job_kind), (seconds,))

    def ended(self, kinds: Iterable[str], outcome: str) -> None:
        """Count runs that ended."""
        for kind, count in Counter(map(self._folded, kinds)).items():
            self._attempts.labels(kind, outcome).inc(count)

    def lost(self, job_kind: str) -> None:
        """Count a lost lease."""
        self._lost.labels(self._folded(job_kind)).inc()

    def throttled(self, rows: Sequence[ClaimedRow]) -> None:
        """Count jobs without a token."""
        for kind, count in Counter(self._folded(row.job_kind) for row in rows).items():
            self._throttled.labels(kind).inc(count)

    def recovered(self, outcomes: Mapping[str, int]) -> None:
        """Count recovered jobs."""
        for outcome, count in outcomes.items():
            self._recovered.labels(outcome).inc(count)

    def _folded(self, job_kind: str) -> str:
        return job_kind if job_kind in self._kinds else OTHER

    def _start_at_zero(self) -> None:
        """Make the series of our kinds, so that the first increase of each is seen as one."""
        for kind in self._kinds:
            self._lost.labels(kind)
            self._throttled.labels(kind)
            for outcome in OUTCOMES:
                self._attempts.labels(kind, outcome)
