"""finish_jobs (S5.1, D2): many at once, row by row, never an error for a lost lease."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from jobs import (
    Connection,
    actions,
    audit,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    job,
    make_due,
    make_job,
    refused,
    snapshot,
    statuses,
    violations,
)


def finish_jobs(conn: Connection, job_ids: Any, lease_nos: Any, **parameters: Any) -> list[int]:
    answer = call(conn, "finish_jobs", job_ids=job_ids, lease_nos=lease_nos, **parameters)
    return sorted(row["finish_jobs"] for row in answer)


def test_finish_jobs_accepts_what_holds_and_passes_over_the_rest(conn: Connection) -> None:
    good = [make_job(conn, "running") for _ in range(3)]
    lost = [make_job(conn, state) for state in ("done", "dlq", "failed")]
    pending = make_job(conn, "pending")
    everything = [lost[0], good[2], pending, good[0], lost[1], good[1], lost[2]]
    before = {row["id"]: job(conn, row["id"]) for row in (*lost, pending)}
    accepted = finish_jobs(conn, [row["id"] for row in everything], [row["lease_no"] or 1 for row in everything])
    assert accepted == [row["id"] for row in good]
    assert {job_id: job(conn, job_id) for job_id in before} == before
    assert [actions(conn, row["id"])[-1] for row in good] == ["job_done"] * 3
    assert violations(conn) == {}


def test_finish_jobs_of_a_batch(conn: Connection) -> None:
    for _ in range(100):
        enqueue(conn)
    claimed = claim(conn, limit=100)
    actor = uuid4()
    ids = [row["id"] for row in claimed]
    assert finish_jobs(conn, ids[::-1], [row["lease_no"] for row in claimed][::-1], actor_principal_id=actor) == ids
    assert statuses(conn) == {"done": 100}
    assert audit(conn, ids[0])[-1]["actor_principal_id"] == actor
    assert {job(conn, job_id)["completed_at"] for job_id in ids} == {job(conn, ids[0])["completed_at"]}


def test_finish_jobs_forgets_earlier_errors(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    fail(conn, claimed)
    make_due(conn, claimed["id"])
    again = claim_one(conn)
    finish_jobs(conn, [again["id"]], [again["lease_no"]])
    assert job(conn, again["id"])["last_error"] is None


def test_finish_jobs_takes_a_job_given_twice_once(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    ids, leases = [claimed["id"]] * 3, [1, claimed["lease_no"], claimed["lease_no"]]
    assert finish_jobs(conn, ids, leases) == [claimed["id"]]
    assert actions(conn, claimed["id"]) == ["job_enqueued", "job_done"]


def test_finish_jobs_takes_a_lease_for_its_own_job_only(conn: Connection) -> None:
    first, second = (make_job(conn, "running") for _ in range(2))
    crossed = [second["lease_no"], first["lease_no"]]
    assert finish_jobs(conn, [first["id"], second["id"]], crossed) == []
    assert statuses(conn) == {"running": 2}
    leases = [first["lease_no"], 1, 2**53 - 1]
    assert finish_jobs(conn, [first["id"]] * 3, leases) == [first["id"]], "one of three leases for the job is its own"


def test_d15_finish_jobs_of_an_exceptions_kind_is_not_audited(conn: Connection) -> None:
    claimed = make_job(conn, "running", "cleanup_jobs")
    assert finish_jobs(conn, [claimed["id"]], [claimed["lease_no"]]) == [claimed["id"]]
    assert actions(conn, claimed["id"]) == []


@pytest.mark.parametrize(("job_ids", "lease_nos"), [([], []), (None, None), ([1], None), ([None], [None]), ([-1], [1])])
def test_finish_jobs_of_nothing_is_nothing(conn: Connection, job_ids: Any, lease_nos: Any) -> None:
    make_job(conn, "running")
    before = snapshot(conn)
    assert finish_jobs(conn, job_ids, lease_nos) == []
    assert snapshot(conn) == before


@pytest.mark.parametrize("function", ["finish_jobs", "release_jobs", "extend_jobs"])
@pytest.mark.parametrize("lease_nos", [[], [1, 2]])
def test_arrays_of_different_length_are_refused(conn: Connection, function: str, lease_nos: list[int]) -> None:
    claimed = make_job(conn, "running")
    with refused("MJ005", match=f"1 job ids but {len(lease_nos)} lease numbers"):
        call(conn, function, job_ids=[claimed["id"]], lease_nos=lease_nos)
