"""The database half of the kind outbox_dispatch (S2.4): take deliveries, record what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from jobrunner.db.call import Call, nothing


class Delivery(NamedTuple):
    """One event on its way to one endpoint; `body` is what is signed and posted."""

    event_id: int
    endpoint_id: UUID
    url: str
    secret: str
    webhook_id: str
    body: str


class Posted(NamedTuple):
    """What became of a delivery: the HTTP status (None = no answer) and the error (None = delivered)."""

    event_id: int
    endpoint_id: UUID
    status: int | None
    error: str | None


def claim_deliveries(*, job_id: int, lease_no: int, limit: int, per_endpoint: int) -> Call[list[Delivery]]:
    """Take up to `limit` due deliveries, at most `per_endpoint` under way to one; MJ001 when the lease is lost."""
    return Call(
        """select c.event_id, c.endpoint_id, c.url, c.secret, c.webhook_id, c.body
           from mdm.claim_deliveries(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s, p_limit => %(limit)s::int,
             p_per_endpoint => %(per_endpoint)s::int) c""",
        lambda rows: [Delivery._make(row) for row in rows],
        {"job_id": job_id, "lease_no": lease_no, "limit": limit, "per_endpoint": per_endpoint},
    )


def record_deliveries(*, job_id: int, lease_no: int, results: Sequence[Posted]) -> Call[int]:
    """Record posts, so that no crash repeats them; gives how many. MJ001 when the lease is lost."""
    return Call(
        """select mdm.record_deliveries(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s,
             p_results => %(results)s)""",
        lambda rows: int(rows[0][0]),
        {
            "job_id": job_id,
            "lease_no": lease_no,
            "results": Jsonb([{**one._asdict(), "endpoint_id": str(one.endpoint_id)} for one in results]),
        },
    )


def enqueue_next_dispatch(*, job_id: int, lease_no: int) -> Call[None]:
    """Enqueue the run that takes what is due next; MJ001 when the lease is lost."""
    return Call(
        "select mdm.enqueue_next_dispatch(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s)",
        nothing,
        {"job_id": job_id, "lease_no": lease_no},
    )
