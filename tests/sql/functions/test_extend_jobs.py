"""extend_jobs (D5): the heartbeat. Lost leases are tested in test_states."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobs import Connection, age, call, fail, finish, job, make_job, recover, release, snapshot, status, value


def extend(conn: Connection, *claimed: dict[str, Any]) -> list[bool]:
    answer = call(
        conn,
        "extend_jobs",
        job_ids=[row["id"] for row in claimed],
        lease_nos=[row["lease_no"] for row in claimed],
    )
    assert [row["job_id"] for row in answer] == [row["id"] for row in claimed]
    return [row["alive"] for row in answer]


def test_extend_jobs_answers_in_the_order_asked(conn: Connection) -> None:
    running, done, other = (make_job(conn, state) for state in ("running", "done", "running"))
    assert extend(conn, other, done, running) == [True, False, True]


def test_extend_jobs_writes_the_time(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    before = value(conn, "select clock_timestamp()")
    assert extend(conn, claimed) == [True]
    assert before <= job(conn, claimed["id"])["heartbeat_at"] <= value(conn, "select clock_timestamp()")


def test_d5_heartbeat_keeps_a_job_from_recovery(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    age(conn, claimed["id"])
    extend(conn, claimed)
    assert recover(conn) == {}
    age(conn, claimed["id"])
    assert recover(conn) == {claimed["id"]: "pending"}


@pytest.mark.parametrize("end", [fail, release])
def test_d5_heartbeat_of_a_run_is_forgotten_when_the_job_waits_again(
    conn: Connection, end: Callable[[Connection, dict[str, Any]], Any]
) -> None:
    claimed = make_job(conn, "running")
    extend(conn, claimed)
    end(conn, claimed)
    assert (status(conn, claimed["id"]), job(conn, claimed["id"])["heartbeat_at"]) == ("pending", None)


def test_d5_fresh_claim_needs_no_heartbeat(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    age(conn, claimed["id"], by=timedelta(minutes=29))
    assert recover(conn) == {}
    age(conn, claimed["id"], by=timedelta(minutes=2))
    assert status(conn, claimed["id"]) == "running"
    assert recover(conn) == {claimed["id"]: "pending"}


def test_extend_jobs_counts_a_row_in_its_own_finish_as_alive(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    claimed = make_job(conn, "running")
    finishing = connect(autocommit=False)
    finish(finishing, claimed)
    assert extend(conn, claimed) == [True]
    assert job(conn, claimed["id"])["heartbeat_at"] is None
    finishing.commit()
    assert extend(conn, claimed) == [False]


@pytest.mark.parametrize(("job_ids", "lease_nos"), [([], []), (None, None)])
def test_extend_jobs_of_nothing_is_nothing(conn: Connection, job_ids: Any, lease_nos: Any) -> None:
    before = snapshot(conn)
    assert call(conn, "extend_jobs", job_ids=job_ids, lease_nos=lease_nos) == []
    assert snapshot(conn) == before


def test_extend_jobs_of_a_job_given_with_two_leases(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    assert extend(conn, {**claimed, "lease_no": 1}, claimed) == [False, True]
    assert job(conn, claimed["id"])["heartbeat_at"] is not None


def test_extend_jobs_of_nulls_is_false(conn: Connection) -> None:
    assert call(conn, "extend_jobs", job_ids=[None], lease_nos=[None]) == [{"job_id": None, "alive": False}]


def test_extend_jobs_waits_for_nothing_but_the_table_and_not_for_ever(conn: Connection) -> None:
    """It runs without a transaction of the runner's, whose lock_timeout would bound it."""
    settings = value(conn, "select proconfig from pg_proc where oid = 'mdm.extend_jobs'::regproc")
    assert "lock_timeout=5s" in settings
