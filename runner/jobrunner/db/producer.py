"""The functions and views that the command line needs beside the worker's: enqueue and counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from jobrunner.db.call import Call


class Counts(NamedTuple):
    """How many jobs of a kind stand where, and whether the kind is open, paused or disabled."""

    job_kind: str
    due: int
    later: int
    running: int
    done: int
    failed: int
    dlq: int
    state: str


class Open(NamedTuple):
    """How many jobs of a kind have not ended."""

    job_kind: str
    due: int
    later: int
    running: int
    state: str


def enqueue_job(
    *,
    job_kind: str,
    payload: str,
    tenant_id: UUID | None = None,
    idempotency_key: str | None = None,
    on_conflict: str = "ignore",
    priority: int | None = None,
    available_at: datetime | None = None,
    max_attempts: int | None = None,
) -> Call[int]:
    """Enqueue a job and give its id (S10.1); `payload` is JSON text. MJ003 unknown kind, MJ005 bad argument."""
    return Call(
        """select mdm.enqueue_job(p_job_kind => %(job_kind)s, p_payload => %(payload)s::jsonb,
             p_tenant_id => %(tenant_id)s, p_idempotency_key => %(idempotency_key)s, p_on_conflict => %(on_conflict)s,
             p_priority => %(priority)s::int, p_available_at => %(available_at)s,
             p_max_attempts => %(max_attempts)s::int)""",
        lambda rows: int(rows[0][0]),
        {
            "job_kind": job_kind,
            "payload": payload,
            "tenant_id": tenant_id,
            "idempotency_key": idempotency_key,
            "on_conflict": on_conflict,
            "priority": priority,
            "available_at": available_at,
            "max_attempts": max_attempts,
        },
    )


def job_counts() -> Call[list[Counts]]:
    """Count the jobs of every registered kind (view v_job_counts)."""
    return Call(
        "select job_kind, due, later, running, done, failed, dlq, state from mdm.v_job_counts order by job_kind",
        lambda rows: [Counts._make(row) for row in rows],
    )


def open_jobs(*, kinds: Sequence[str]) -> Call[list[Open]]:
    """Count the jobs of these kinds that have not ended; does not look at those that have, which may be many."""
    return Call(
        """select job_kind, due, later, running, state
           from mdm.v_job_counts
           where job_kind = any (%(kinds)s::text[])""",
        lambda rows: [Open._make(row) for row in rows],
        {"kinds": list(kinds)},
    )
