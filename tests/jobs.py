"""Small steps that tests of jobs take: enqueue, claim, age, look. Each calls the public function of the same name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[Any]
Row = dict[str, Any]

STATES = ("pending", "running", "done", "failed", "dlq")
KIND = "reindex"
# What p_retry_after becomes for a kind with max_delay 6 h, as reindex has (D8)
CLAMPED_DELAYS = [
    ("0", timedelta(0)),
    ("-1 hour", timedelta(0)),
    ("-100 years", timedelta(0)),
    ("90 seconds", timedelta(seconds=90)),
    ("6 hours", timedelta(hours=6)),
    ("6 hours 1 second", timedelta(hours=6)),
    ("1 day", timedelta(hours=6)),
    ("1000 years", timedelta(hours=6)),
    ("178000000 years", timedelta(hours=6)),
]


def rows(conn: Connection, query: LiteralString, *parameters: Any) -> list[Row]:
    """Run a query and return its rows as dicts."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters).fetchall()


def value(conn: Connection, query: LiteralString, *parameters: Any) -> Any:
    """Run a query and return the first column of its only row."""
    [row] = conn.execute(query, parameters).fetchall()
    return row[0]


def call(conn: Connection, function: str, **parameters: Any) -> list[Row]:
    """Call mdm.<function> with named parameters (without p_) and return its rows; dicts are sent as jsonb."""
    arguments = sql.SQL(", ").join(sql.SQL(f"p_{name} => {{}}").format(sql.Placeholder(name)) for name in parameters)
    query = sql.SQL("select * from mdm.{}({})").format(sql.Identifier(function), arguments)
    values = {name: Jsonb(given) if isinstance(given, dict) else given for name, given in parameters.items()}
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, values).fetchall()


def enqueue(conn: Connection, job_kind: str = KIND, payload: Any = None, **parameters: Any) -> int:
    """Enqueue a job; parameters as in mdm.enqueue_job, without p_."""
    [row] = call(conn, "enqueue_job", job_kind=job_kind, payload=Jsonb(payload or {}), **parameters)
    return int(row["enqueue_job"])


def claim(conn: Connection, *kinds: str, worker_id: str = "w1", limit: int = 1, **parameters: Any) -> list[Row]:
    """Claim up to `limit` jobs of `kinds` (default: reindex); whole rows."""
    return call(conn, "claim_job", worker_id=worker_id, kinds=list(kinds or (KIND,)), limit=limit, **parameters)


def claim_one(conn: Connection, *kinds: str, **parameters: Any) -> Row:
    """Claim exactly one job."""
    [row] = claim(conn, *kinds, **parameters)
    return row


def finish(conn: Connection, claimed: Row) -> None:
    """Finish a claimed row."""
    call(conn, "finish_job", job_id=claimed["id"], lease_no=claimed["lease_no"])


def fail(conn: Connection, claimed: Row, error: str | None = "broken", **parameters: Any) -> Row:
    """Fail a claimed row; returns its new status and available_at."""
    [row] = call(conn, "fail_job", job_id=claimed["id"], lease_no=claimed["lease_no"], error=error, **parameters)
    return row


def release(conn: Connection, claimed: Row, **parameters: Any) -> None:
    """Release a claimed row."""
    call(conn, "release_job", job_id=claimed["id"], lease_no=claimed["lease_no"], **parameters)


def recover(conn: Connection, **parameters: Any) -> dict[int, str]:
    """Recover stale jobs: id -> outcome."""
    return {row["job_id"]: row["outcome"] for row in call(conn, "recover_stale_jobs", **parameters)}


def age(conn: Connection, *job_ids: int, by: timedelta = timedelta(hours=100)) -> None:
    """Set claimed_at and heartbeat_at back, as if the worker had been silent for `by` (more than any stale_ttl)."""
    conn.execute(
        "update mdm.aa_job set claimed_at = claimed_at - %(by)s, heartbeat_at = heartbeat_at - %(by)s"
        " where id = any(%(ids)s)",
        {"by": by, "ids": list(job_ids)},
    )


def make_due(conn: Connection, *job_ids: int) -> None:
    """Let retries be due now."""
    conn.execute("update mdm.aa_job set available_at = clock_timestamp() where id = any(%s)", (list(job_ids),))


def stored(conn: Connection, job_id: int) -> Row | None:
    """Return the whole row of a job, None when it is gone."""
    found = rows(conn, "select * from mdm.aa_job where id = %s", job_id)
    return found[0] if found else None


def job(conn: Connection, job_id: int) -> Row:
    """Return the whole row of a job that must be there."""
    row = stored(conn, job_id)
    assert row is not None, f"job {job_id} is gone"
    return row


def status(conn: Connection, job_id: int) -> str:
    """Return the status of a job, `gone` when there is none."""
    row = stored(conn, job_id)
    return "gone" if row is None else str(row["status"])


def statuses(conn: Connection) -> dict[str, int]:
    """Count all jobs by status."""
    return dict(conn.execute("select status::text, count(*) from mdm.aa_job group by status").fetchall())


def audit(conn: Connection, job_id: int | str) -> list[Row]:
    """Return the audit rows of a job (or kind), in the order of writing."""
    return rows(conn, "select * from mdm.aa_audit_log where object_id = %s order by id", str(job_id))


def actions(conn: Connection, job_id: int | str) -> list[str]:
    """Return the audited actions of a job (or kind), in the order of writing."""
    return [row["action"] for row in audit(conn, job_id)]


def violations(conn: Connection) -> dict[str, int]:
    """Return the invariants that do not hold, with the number of violations."""
    return dict(conn.execute("select name, violations from mdm.check_job_invariants() where violations > 0").fetchall())


def make_tenant(conn: Connection, name: str = "", metadata: Any = None) -> UUID:
    """Make a tenant and return its id."""
    tenant_id, stored_metadata = uuid4(), Jsonb({} if metadata is None else metadata)
    conn.execute("insert into mdm.aa_tenant values (%s, %s, %s)", (tenant_id, name, stored_metadata))
    return tenant_id


def make_kind(conn: Connection, name: str, **settings: Any) -> str:
    """Register or change a kind."""
    call(conn, "set_job_kind", job_kind=name, settings=Jsonb(settings))
    return name


def make_job(conn: Connection, state: str, job_kind: str = KIND, **parameters: Any) -> Row:
    """Make a job that came to `state` the way a job comes there, and return its row.

    No other job of the kind may be due. Ended jobs have kept the lease they ended with.
    """
    job_id = enqueue(conn, job_kind, **parameters)
    if state == "pending":
        return job(conn, job_id)
    claimed = claim_one(conn, job_kind)
    assert claimed["id"] == job_id
    if state == "done":
        finish(conn, claimed)
    elif state == "dlq":
        fail(conn, claimed, retryable=False)
    elif state == "failed":
        call(conn, "stop_job", job_id=job_id)
    return job(conn, job_id)


@contextmanager
def refused(
    sqlstate: str, *, detail: str | None = None, match: str = ""
) -> Iterator[pytest.ExceptionInfo[psycopg.Error]]:
    """Expect an error with this SQLSTATE, this detail (if given) and this part of a message; ours name a remedy."""
    with pytest.raises(psycopg.Error) as raised:
        yield raised
    error = raised.value
    assert error.sqlstate == sqlstate, f"{error.sqlstate}: {error}"
    assert detail is None or error.diag.message_detail == detail, error.diag.message_detail
    assert match in (error.diag.message_primary or ""), error
    assert not sqlstate.startswith("MJ") or error.diag.message_hint, "no hint names the remedy"


def ids(jobs: Sequence[Row]) -> list[int]:
    """Return the ids of rows, in their order."""
    return [row["id"] for row in jobs]


def snapshot(conn: Connection) -> list[Row]:
    """Return all that is stored of jobs and audit, to compare before and after."""
    jobs = rows(conn, "select * from mdm.aa_job order by id")
    return jobs + rows(conn, "select * from mdm.aa_audit_log order by id")


def changes(before: Row, after: Row) -> Row:
    """Return the columns that differ, with their new values."""
    return {name: after[name] for name in before if after[name] != before[name]}


def heard(conn: Connection, listener: Connection) -> list[str]:
    """Return the kinds that `listener` (which listens on mdm_jobs) was notified of; a last notification ends them."""
    conn.execute("notify mdm_jobs, 'end'")
    kinds: list[str] = []
    for notification in listener.notifies(timeout=10):
        if notification.payload == "end":
            return kinds
        kinds.append(notification.payload)
    raise AssertionError("the last notification has not come")
