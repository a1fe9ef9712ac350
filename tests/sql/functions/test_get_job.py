"""get_job (B37): the state of a job without its payload."""

from __future__ import annotations

import pytest

from jobs import STATES, Connection, call, make_job, make_tenant

TIMES = ("available_at", "created_at", "completed_at")
COLUMNS = ("job_kind", "tenant_id", "status", "attempts", "max_attempts", *TIMES, "last_error")


@pytest.mark.parametrize("state", STATES)
def test_get_job_tells_the_state(conn: Connection, state: str) -> None:
    row = make_job(conn, state, payload={"secret": 1}, tenant_id=make_tenant(conn))
    [answer] = call(conn, "get_job", job_id=row["id"])
    assert answer == {"job_id": row["id"], **{name: row[name] for name in COLUMNS}}


@pytest.mark.parametrize("job_id", [None, 0, 2**62])
def test_get_job_of_no_job_is_no_row(conn: Connection, job_id: int | None) -> None:
    assert call(conn, "get_job", job_id=job_id) == []
