"""release_job (S7.4, D4, D8, B22, B83): the attempt is given back, the place is kept or moved."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs import (
    CLAMPED_DELAYS,
    Connection,
    actions,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    ids,
    job,
    make_due,
    make_job,
    refused,
    release,
    snapshot,
    status,
    value,
    violations,
)


def test_release_job_keeps_the_place(conn: Connection) -> None:
    first, second = enqueue(conn), enqueue(conn)
    claimed = claim_one(conn)
    before = claimed["available_at"]
    release(conn, claimed)
    assert job(conn, first)["available_at"] == before
    assert ids(claim(conn, limit=5)) == [first, second]


@pytest.mark.parametrize(("given", "expected"), CLAMPED_DELAYS)
def test_b22_release_job_clamps_the_delay(conn: Connection, given: str, expected: timedelta) -> None:
    claimed = make_job(conn, "running")
    before = value(conn, "select clock_timestamp()")
    release(conn, claimed, retry_after=given)
    wait = job(conn, claimed["id"])["available_at"] - before
    assert expected <= wait <= expected + timedelta(seconds=5)
    assert status(conn, claimed["id"]) == "pending"


def test_b83_releases_use_up_no_attempt(conn: Connection) -> None:
    job_id = enqueue(conn, max_attempts=1)
    for count in range(1, 13):
        release(conn, claim_one(conn))
        row = job(conn, job_id)
        assert (row["status"], row["attempts"], row["releases"]) == ("pending", 0, count)
    assert violations(conn) == {}
    assert actions(conn, job_id) == ["job_enqueued"]


def test_b83_first_real_failure_of_a_throttled_job_is_retried(conn: Connection) -> None:
    enqueue(conn, max_attempts=2)
    for _ in range(10):
        release(conn, claim_one(conn))
    assert fail(conn, claim_one(conn))["status"] == "pending"


def test_release_between_failures_keeps_their_count(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    fail(conn, claimed, "first")
    make_due(conn, claimed["id"])
    release(conn, claim_one(conn))
    row = job(conn, claimed["id"])
    assert (row["attempts"], row["last_error"]) == (1, "first")


@pytest.mark.parametrize(("reason", "stored"), [(None, None), ("no token", "released: no token"), ("", "released: ")])
def test_release_job_notes_its_reason(conn: Connection, reason: str | None, stored: str | None) -> None:
    claimed = make_job(conn, "running")
    release(conn, claimed, reason=reason)
    assert job(conn, claimed["id"])["last_error"] == stored


def test_d9_long_reason_is_cut(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    release(conn, claimed, reason="é" * 9000)
    assert len(job(conn, claimed["id"])["last_error"].encode()) in (8191, 8192)


def test_releases_stop_counting_at_the_greatest_int(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    conn.execute("update mdm.aa_job set releases = 2147483647, attempts = 0")
    release(conn, claimed)
    assert (job(conn, claimed["id"])["releases"], job(conn, claimed["id"])["attempts"]) == (2147483647, 0)


def test_release_job_forgets_the_heartbeat(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    call(conn, "extend_jobs", job_ids=[claimed["id"]], lease_nos=[claimed["lease_no"]])
    release(conn, claimed)
    assert job(conn, claimed["id"])["heartbeat_at"] is None


def test_second_release_is_refused(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    release(conn, claimed)
    before = snapshot(conn)
    with refused("MJ001", detail="already ended by this lease"):
        release(conn, claimed)
    assert snapshot(conn) == before
