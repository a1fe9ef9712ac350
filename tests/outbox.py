"""Small steps that tests of the outbox take: register endpoints, write events, look at deliveries."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from jobrunner.demo.hooks import SECRET
from jobs import Connection, Row, call, rows, value


def make_endpoint(conn: Connection, tenant_id: UUID, url: str = "http://127.0.0.1/", *event_types: str) -> UUID:
    """Register a consumer."""
    made: UUID = value(
        conn,
        """insert into mdm.aa_webhook_endpoint (tenant_id, url, secret, event_types)
           values (%s, %s, %s, %s) returning id""",
        tenant_id, url, SECRET, list(event_types),
    )  # fmt: skip
    return made


def make_event(
    conn: Connection, tenant_id: UUID | None, event_type: str = "entity.updated", payload: Any = None
) -> int:
    """Write an event."""
    return int(
        value(
            conn,
            """insert into mdm.aa_outbox_event (tenant_id, event_type, object_type, object_id, payload)
               values (%s, %s, 'entity', '7', %s) returning id""",
            tenant_id,
            event_type,
            Jsonb(payload or {}),
        )
    )


def make_events(conn: Connection, tenant_id: UUID, count: int) -> None:
    """Write many events in one statement."""
    conn.execute(
        "insert into mdm.aa_outbox_event (tenant_id, event_type) select %s, 'e' from generate_series(1, %s)",
        (tenant_id, count),
    )


def take(conn: Connection, claimed: Row, limit: int | None = None, per_endpoint: int | None = None) -> list[Row]:
    """Take deliveries for a claimed job."""
    return call(
        conn, "claim_deliveries", job_id=claimed["id"], lease_no=claimed["lease_no"], limit=limit,
        per_endpoint=per_endpoint,
    )  # fmt: skip


def store(conn: Connection, claimed: Row, taken: list[Row], status: int | None = 204, error: str | None = None) -> int:
    """Record the same outcome for all of them."""
    results = [
        {"event_id": one["event_id"], "endpoint_id": str(one["endpoint_id"]), "status": status, "error": error}
        for one in taken
    ]
    [row] = call(
        conn, "record_deliveries", job_id=claimed["id"], lease_no=claimed["lease_no"], results=Jsonb(results)
    )  # fmt: skip
    return int(row["record_deliveries"])


def deliveries(conn: Connection) -> list[Row]:
    """All deliveries, in order."""
    return rows(conn, "select * from mdm.aa_webhook_delivery order by event_id, endpoint_id")


def states(conn: Connection) -> list[str]:
    """The states of all deliveries, in order."""
    return [row["status"] for row in deliveries(conn)]


def endpoint(conn: Connection, endpoint_id: UUID) -> Row:
    """The row of an endpoint."""
    [row] = rows(conn, "select * from mdm.aa_webhook_endpoint where id = %s", endpoint_id)
    return row


def undispatched(conn: Connection) -> int:
    """How many events have not come to their end."""
    return int(value(conn, "select count(*) from mdm.aa_outbox_event where dispatched_at is null"))


def all_due(conn: Connection) -> None:
    """Let every pause and backoff be over."""
    conn.execute("update mdm.aa_webhook_endpoint set paused_until = null")
    conn.execute("update mdm.aa_webhook_delivery set available_at = clock_timestamp() where completed_at is null")


def due_jobs(conn: Connection) -> int:
    """How many outbox_dispatch are pending."""
    query = "select count(*) from mdm.aa_job where job_kind = 'outbox_dispatch' and status = 'pending'"
    return int(value(conn, query))
