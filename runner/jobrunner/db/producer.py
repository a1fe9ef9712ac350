"""The functions and views that the command line needs beside the worker's: enqueue and counts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from jobrunner.db.call import Call


class Count(NamedTuple):
    """Jobs of a tenant, kind and status."""

    tenant_id: str | None
    job_kind: str
    status: str
    jobs: int


def enqueue_job(
    *,
    job_kind: str,
    payload: dict[str, Any],
    tenant_id: UUID | None = None,
    idempotency_key: str | None = None,
    on_conflict: str = "ignore",
    priority: int | None = None,
    available_at: datetime | None = None,
    max_attempts: int | None = None,
) -> Call[int]:
    """Enqueue a job and give its id (S10.1); MJ003 unknown kind, MJ005 bad argument."""
    return Call(
        """select mdm.enqueue_job(p_job_kind => %(job_kind)s, p_payload => %(payload)s, p_tenant_id => %(tenant_id)s,
             p_idempotency_key => %(idempotency_key)s, p_on_conflict => %(on_conflict)s,
             p_priority => %(priority)s::int, p_available_at => %(available_at)s,
             p_max_attempts => %(max_attempts)s::int)""",
        lambda rows: int(rows[0][0]),
        {
            "job_kind": job_kind,
            "payload": Jsonb(payload),
            "tenant_id": tenant_id,
            "idempotency_key": idempotency_key,
            "on_conflict": on_conflict,
            "priority": priority,
            "available_at": available_at,
            "max_attempts": max_attempts,
        },
    )
