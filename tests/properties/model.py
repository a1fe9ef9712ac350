"""A small model of the life of jobs (S4-S10, D2-D6): what the database must come to, in plain Python, without a clock.

Times are the database's; the model says within which window a new available_at must lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

Key = tuple[str | None, str, str | None]
Lease = tuple[int, int]
Window = tuple[datetime, datetime]

# What the clocks of two statements may differ by.
SLACK = timedelta(milliseconds=1)
ENDED = ("done", "dlq", "failed")
SPARED = 5  # so many crashes in company are not charged to a job that is to run alone


@dataclass
class Job:
    """A row of mdm.aa_job, as far as the model foresees it."""

    id: int
    tenant_id: str | None
    job_kind: str
    priority: int
    available_at: datetime
    n: int
    max_attempts: int
    key: str | None = None
    key_no: int = 0
    status: str = "pending"
    attempts: int = 0
    lease_no: int | None = None
    claimed_together: int | None = None
    run_alone: bool = False
    releases: int = 0
    recoveries: int = 0

    @property
    def scope(self) -> Key:
        return self.tenant_id, self.job_kind, self.key

    @property
    def place(self) -> tuple[int, datetime, int]:
        return self.priority, self.available_at, self.id


@dataclass(frozen=True)
class Request:
    """The arguments of an enqueue."""

    job_kind: str
    n: int
    tenant_id: str | None = None
    key: str | None = None
    update: bool = False
    priority: int | None = None
    available_at: datetime | None = None
    max_attempts: int | None = None


@dataclass(frozen=True)
class Kind:
    """The settings of a kind that matter here; retentions say whether ended jobs are ever purged."""

    audited: bool
    priority: int
    max_attempts: int
    base: timedelta
    cap: timedelta
    jitter: float
    purges: frozenset[str]


@dataclass
class Model:
    """All jobs and the audit rows about them."""

    kinds: dict[str, Kind]
    jobs: dict[int, Job] = field(default_factory=dict)
    audit: Counter[tuple[int, str]] = field(default_factory=Counter)
    paused: set[str] = field(default_factory=set)
    workers: dict[int, str] = field(default_factory=dict)  # who claimed a job last
    # new available_at of jobs, to be checked against the database and then taken from it
    windows: dict[int, Window] = field(default_factory=dict)

    # -- looks

    def newest(self, scope: Key) -> Job | None:
        generations = [job for job in self.jobs.values() if job.scope == scope and job.key is not None]
        return max(generations, key=lambda job: job.key_no, default=None)

    def superseded(self, job: Job) -> bool:
        newest = self.newest(job.scope)
        return newest is not None and newest.key_no > job.key_no

    def owns(self, lease: Lease) -> bool:
        job = self.jobs.get(lease[0])
        return job is not None and job.status == "running" and job.lease_no == lease[1]

    def lost(self, lease: Lease) -> str:
        """What became of a lease, in the words of MJ001 (D2)."""
        job = self.jobs.get(lease[0])
        if job is None:
            return "gone"
        if job.lease_no is None:
            return "recovered"
        if job.lease_no != lease[1]:
            return "claimed again"
        return "stopped" if job.status == "failed" else "already ended by this lease"

    def due(
        self, kinds: Sequence[str], tenants: Sequence[str] | None, floor: dict[str, dict[int, datetime]], now: datetime
    ) -> list[Job]:
        """The jobs that a claim looks at, in order (S4.1)."""

        def looked_at(job: Job) -> bool:
            lanes = floor.get(job.job_kind)
            return (
                job.status == "pending"
                and job.job_kind in kinds
                and job.job_kind not in self.paused
                and (tenants is None or job.tenant_id in tenants)
                and job.available_at <= now
                and (lanes is None or (job.priority in lanes and job.available_at >= lanes[job.priority]))
            )

        return sorted(filter(looked_at, self.jobs.values()), key=lambda job: job.place)

    def batch(self, due: list[Job], limit: int) -> list[Job]:
        """The jobs that a claim takes: up to the first that runs alone, or that one by itself (D3)."""
        batch = [job for job in due if not self.superseded(job)][:limit]
        alone = next((n for n, job in enumerate(batch) if job.run_alone), limit)
        return batch[: max(alone, 1)]

    # -- transitions

    def enqueue(self, request: Request, job_id: int, window: Window) -> str:
        """Enqueue; `job_id` is what the database gave. Returns the outcome (S10.1, D6)."""
        kind = self.kinds[request.job_kind]
        newest = self.newest((request.tenant_id, request.job_kind, request.key))
        if newest is not None and not request.update:
            assert job_id == newest.id
            return "existing"
        if kind.audited:
            self.audit[job_id, "job_enqueued"] += 1
        if newest is not None and newest.status == "pending":
            assert job_id == newest.id
            self.change(newest, request)
            return "updated"
        self.insert(request, job_id, 0 if newest is None else newest.key_no + 1, window)
        return "inserted"

    def insert(self, request: Request, job_id: int, key_no: int, window: Window) -> None:
        kind = self.kinds[request.job_kind]
        assert job_id not in self.jobs
        self.jobs[job_id] = Job(
            id=job_id,
            tenant_id=request.tenant_id,
            job_kind=request.job_kind,
            priority=kind.priority if request.priority is None else request.priority,
            available_at=request.available_at or window[0],
            n=request.n,
            max_attempts=request.max_attempts or kind.max_attempts,
            key=request.key,
            key_no=key_no,
        )
        if request.available_at is None:
            self.windows[job_id] = window

    def change(self, job: Job, request: Request) -> None:
        """An update of a pending job keeps what is not given, and an attempt before it."""
        job.n = request.n
        job.priority = job.priority if request.priority is None else request.priority
        job.max_attempts = max(request.max_attempts or job.max_attempts, job.attempts + 1)
        if request.available_at is not None and job.attempts == 0:
            job.available_at = request.available_at
            self.windows.pop(job.id, None)

    def claim(self, job_id: int, lease_no: int, together: int, worker: str) -> None:
        job = self.jobs[job_id]
        self.workers[job_id] = worker
        job.status, job.lease_no, job.claimed_together = "running", lease_no, together
        job.attempts += 1

    def retire(self, job: Job) -> None:
        """A newer job of the key does the work (D6); audited whatever the kind's level."""
        job.status = "done"
        self.audit[job.id, "job_done"] += 1

    def finish(self, job: Job) -> None:
        job.status = "done"
        if self.kinds[job.job_kind].audited:
            self.audit[job.id, "job_done"] += 1

    def die(self, job: Job) -> None:
        job.status = "dlq"
        self.audit[job.id, "job_dlq"] += 1

    def fail(self, job: Job, retryable: bool, retry_after: timedelta | None, window: Window) -> None:
        kind = self.kinds[job.job_kind]
        if self.superseded(job):
            self.retire(job)
        elif not retryable or job.attempts >= job.max_attempts:
            self.die(job)
        else:
            job.status = "pending"
            least = most = clamp(retry_after, kind.cap)
            if retry_after is None:
                least = min(kind.base * 2 ** min(job.attempts - 1, 40), kind.cap)
                most = least * (1 + kind.jitter)
            self.windows[job.id] = window[0] + least, window[1] + most

    def release(self, job: Job, retry_after: timedelta | None, window: Window) -> None:
        if self.superseded(job):
            self.retire(job)
            return
        job.status = "pending"
        job.attempts = max(job.attempts - 1, 0)
        job.releases += 1
        if retry_after is not None:
            delay = clamp(retry_after, self.kinds[job.job_kind].cap)
            self.windows[job.id] = window[0] + delay, window[1] + delay

    def recover(self, jobs: Sequence[Job]) -> dict[int, str]:
        """Take jobs from workers that went silent together; returns the outcomes (S8, D3)."""
        for job in jobs:
            if job.claimed_together == 1 and any(self.in_company(job, other) for other in jobs):
                job.claimed_together = 2
        return {job.id: self.recover_one(job) for job in jobs}

    def in_company(self, job: Job, other: Job) -> bool:
        """Whether two jobs were in different slots of one process."""
        mine, theirs = self.workers[job.id], self.workers[other.id]
        return "/" in mine and mine != theirs and mine.rpartition("/")[0] == theirs.rpartition("/")[0]

    def recover_one(self, job: Job) -> str:
        spared = job.claimed_together != 1 and not (job.run_alone and job.recoveries >= SPARED)
        job.recoveries += 1
        job.lease_no = None
        if self.superseded(job):
            self.retire(job)
        elif not spared and job.attempts >= job.max_attempts:
            self.die(job)
        else:
            job.status = "pending"
            if spared:
                job.attempts = max(job.attempts - 1, 0)
                job.run_alone = True
        return job.status

    def refusal(self, job_id: int, act: str) -> str | None:
        """The SQLSTATE that an administrator's act is refused with, None when it is not."""
        job = self.jobs.get(job_id)
        if job is None:
            return "MJ002"
        allowed = {
            "replay_job": ("dlq", "failed"),
            "discard_job": ("pending", "dlq", "failed"),
            "stop_job": ("pending", "running", "dlq"),
        }[act]
        if job.status not in allowed or (act == "replay_job" and self.superseded(job)):
            return "MJ004"
        return None

    def administrate(self, job_id: int, act: str, window: Window) -> None:
        job = self.jobs[job_id]
        self.audit[job_id, {"replay_job": "job_replay", "discard_job": "job_discard", "stop_job": "job_stop"}[act]] += 1
        if act == "discard_job":
            del self.jobs[job_id]
        elif act == "stop_job":
            job.status = "failed"
        else:
            job.status, job.attempts, job.lease_no = "pending", 0, None
            self.windows[job_id] = window

    def purge(self, old: Iterable[int]) -> int:
        """Delete ended jobs whose retention has passed; what was not done leaves a trace (D22)."""
        gone = [job for job in map(self.jobs.__getitem__, old) if job.status in self.kinds[job.job_kind].purges]
        for job in gone:
            if job.status != "done":
                self.audit[job.id, "job_discard"] += 1
            del self.jobs[job.id]
        return len(gone)

    # -- comparison

    def settle(self, stored: dict[int, Job]) -> None:
        """Take over the times that lie within their windows."""
        for job_id, (earliest, latest) in self.windows.items():
            if job_id in self.jobs:
                found = stored[job_id].available_at
                assert earliest - SLACK <= found <= latest + SLACK, (job_id, earliest, found, latest)
                self.jobs[job_id].available_at = found
        self.windows.clear()


def clamp(delay: timedelta | None, cap: timedelta) -> timedelta:
    return min(max(delay or timedelta(0), timedelta(0)), cap)
