"""release_jobs (D4, D23): many at once, each with a delay of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobs import (
    Connection,
    age,
    call,
    claim,
    enqueue,
    ids,
    job,
    make_job,
    recover,
    refused,
    snapshot,
    status,
    value,
)


def release_jobs(conn: Connection, job_ids: Any, lease_nos: Any, **parameters: Any) -> list[int]:
    answer = call(conn, "release_jobs", job_ids=job_ids, lease_nos=lease_nos, **parameters)
    return sorted(row["release_jobs"] for row in answer)


def claim_many(conn: Connection, count: int) -> tuple[list[int], list[int]]:
    for _ in range(count):
        enqueue(conn)
    claimed = claim(conn, limit=count)
    return ids(claimed), [row["lease_no"] for row in claimed]


def test_release_jobs_gives_each_job_its_delay(conn: Connection) -> None:
    job_ids, leases = claim_many(conn, 5)
    places = [job(conn, job_id)["available_at"] for job_id in job_ids]
    before = value(conn, "select clock_timestamp()")
    delays = ["10 seconds", None, "20 seconds", "-5 hours", "100 years"]
    assert release_jobs(conn, job_ids[::-1], leases[::-1], retry_afters=delays[::-1]) == job_ids
    waits = [(job(conn, job_id)["available_at"] - before).total_seconds() for job_id in job_ids]
    assert 10 <= waits[0] < 15
    assert job(conn, job_ids[1])["available_at"] == places[1]
    assert 20 <= waits[2] < 25
    assert 0 <= waits[3] < 5
    assert timedelta(hours=6).total_seconds() <= waits[4] < timedelta(hours=6, seconds=5).total_seconds()
    assert [job(conn, job_id)["attempts"] for job_id in job_ids] == [0] * 5


def test_release_jobs_without_delays_keeps_the_order(conn: Connection) -> None:
    job_ids, leases = claim_many(conn, 5)
    assert release_jobs(conn, job_ids, leases) == job_ids
    assert ids(claim(conn, limit=5)) == job_ids


def test_release_jobs_passes_over_lost_leases(conn: Connection) -> None:
    job_ids, leases = claim_many(conn, 3)
    age(conn, job_ids[1])
    recover(conn)
    before = job(conn, job_ids[1])
    delays = ["1 hour", "2 hours", "3 hours"]
    assert release_jobs(conn, job_ids, leases, retry_afters=delays) == [job_ids[0], job_ids[2]]
    assert job(conn, job_ids[1]) == before
    waits = [job(conn, job_ids[place])["available_at"] - value(conn, "select clock_timestamp()") for place in (0, 2)]
    assert waits[0] < timedelta(hours=1) < timedelta(hours=2) < waits[1] < timedelta(hours=3)


def test_release_jobs_ends_superseded_ones(conn: Connection) -> None:
    keyed = make_job(conn, "running", idempotency_key="k")
    newer = enqueue(conn, idempotency_key="k", on_conflict="update", available_at="2090-01-01 00:00+00")
    plain = make_job(conn, "running")
    job_ids, leases = [keyed["id"], plain["id"]], [keyed["lease_no"], plain["lease_no"]]
    assert release_jobs(conn, job_ids, leases, retry_afters=["1 hour", "1 hour"]) == job_ids
    assert (status(conn, keyed["id"]), status(conn, plain["id"])) == ("done", "pending")
    assert job(conn, keyed["id"])["last_error"] == f"superseded by {newer}"


def test_release_jobs_takes_a_job_given_twice_once(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    ids_, leases = [claimed["id"]] * 2, [claimed["lease_no"]] * 2
    assert release_jobs(conn, ids_, leases, retry_afters=["1 hour", "2 hours"]) == [claimed["id"]]
    assert job(conn, claimed["id"])["releases"] == 1


@pytest.mark.parametrize(("job_ids", "lease_nos"), [([], []), (None, None), ([1], None)])
def test_release_jobs_of_nothing_is_nothing(conn: Connection, job_ids: Any, lease_nos: Any) -> None:
    make_job(conn, "running")
    before = snapshot(conn)
    assert release_jobs(conn, job_ids, lease_nos, retry_afters=None) == []
    assert snapshot(conn) == before


@pytest.mark.parametrize("delays", [[], ["1 hour", "2 hours"]])
def test_release_jobs_refuses_delays_of_another_number(conn: Connection, delays: list[str]) -> None:
    claimed = make_job(conn, "running")
    with refused("MJ005", match=f"1 job ids but {len(delays)} delays"):
        release_jobs(conn, [claimed["id"]], [claimed["lease_no"]], retry_afters=delays)
    assert status(conn, claimed["id"]) == "running"


def test_d23_throttled_backlog_is_spread_in_one_call(conn: Connection) -> None:
    """The k-th refused job waits k / rps."""
    job_ids, leases = claim_many(conn, 100)
    delays = [timedelta(seconds=number / 2) for number in range(1, 101)]
    assert release_jobs(conn, job_ids, leases, retry_afters=delays) == job_ids
    due = [job(conn, job_id)["available_at"] for job_id in job_ids]
    assert due == sorted(due)
    assert due[-1] - due[0] == timedelta(seconds=49.5)
