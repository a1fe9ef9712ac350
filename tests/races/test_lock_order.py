"""Calls that lock many rows, in opposite order: nobody deadlocks (design 3, B41)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from jobs import (
    KIND,
    Row,
    age,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    finish,
    ids,
    job,
    recover,
    refused,
    release,
    rows,
    status,
    statuses,
)
from races.sessions import Connection, background, result, results, together, wait_until_blocked

Session = Callable[..., Connection]
ROUNDS = 80  # without the order of id more than every second round deadlocked
BATCH = 50


def claimed_batch(conn: Connection, jobs: int = BATCH) -> tuple[list[int], list[int]]:
    """Claim a batch of stale jobs and return its ids and leases."""
    for _ in range(jobs):
        enqueue(conn)
    batch = claim(conn, limit=jobs)
    age(conn, *ids(batch))
    return ids(batch), [row["lease_no"] for row in batch]


def plural(function: str, conn: Connection, job_ids: list[int], lease_nos: list[int]) -> list[Any]:
    """Call a plural function and undo it, so that the next round finds the same rows."""
    with conn.transaction(force_rollback=True):
        return call(conn, function, job_ids=job_ids, lease_nos=lease_nos)


def recover_undone(conn: Connection) -> dict[int, str]:
    with conn.transaction(force_rollback=True):
        return recover(conn)


@pytest.mark.parametrize("other", ["extend_jobs", "release_jobs", "finish_jobs"])
def test_b41_plural_calls_in_opposite_order_do_not_deadlock(conn: Connection, session: Session, other: str) -> None:
    job_ids, lease_nos = claimed_batch(conn)
    first, second, healer = session(), session(), session()
    for _ in range(ROUNDS):
        ended, answered, _ = results(
            [
                lambda: plural("finish_jobs", first, job_ids, lease_nos),
                lambda: plural(other, second, job_ids[::-1], lease_nos[::-1]),
                lambda: list(recover_undone(healer).items()),
            ]
        )
        # whoever recovery hid for a moment is neither lost nor an error
        assert len(answered) == BATCH if other == "extend_jobs" else len(answered) <= BATCH
        assert len(ended) <= BATCH
    assert statuses(conn) == {"running": BATCH}


@pytest.mark.parametrize("other", ["release_jobs", "finish_jobs"])
def test_b41_rows_are_locked_in_the_order_of_id_whatever_the_arguments(
    conn: Connection, session: Session, other: str
) -> None:
    """With the row in the middle held, both calls queue up behind it instead of each other."""
    job_ids, lease_nos = claimed_batch(conn, 3)
    holder, first, second = session(), session(), session()
    with holder.transaction():
        holder.execute("select from mdm.aa_job where id = %s for update", (job_ids[1],))
        down = background(plural, "finish_jobs", first, job_ids[::-1], lease_nos[::-1])
        wait_until_blocked(conn, first, down)
        up = background(plural, other, second, job_ids, lease_nos)
        wait_until_blocked(conn, second, up)
    assert len(result(down)) == len(result(up)) == 3


def test_b41_recovery_against_finishes_in_one_transaction(conn: Connection, session: Session) -> None:
    job_ids, lease_nos = claimed_batch(conn, 2)
    worker, healer = session(), session()

    def finish_backwards() -> str:
        with worker.transaction(force_rollback=True):
            for n in (1, 0):
                finish(worker, {"id": job_ids[n], "lease_no": lease_nos[n]})
        return "finished"

    for _ in range(ROUNDS):
        finished, recovered = together([finish_backwards, lambda: str(sorted(recover_undone(healer)))])
        assert finished.exception() is None
        assert recovered.exception() is None
    assert statuses(conn) == {"running": 2}


def test_b41_recovery_passes_over_the_half_that_is_being_finished(conn: Connection, session: Session) -> None:
    job_ids, lease_nos = claimed_batch(conn, 2)
    worker, healer = session(), session(patient=False)
    with worker.transaction():
        finish(worker, {"id": job_ids[1], "lease_no": lease_nos[1]})
        assert recover(healer) == {job_ids[0]: "pending"}
    assert [job(conn, job_id)["status"] for job_id in job_ids] == ["pending", "done"]


def keyed(*keys: str, on_conflict: str = "ignore") -> Jsonb:
    return Jsonb([{"job_kind": KIND, "idempotency_key": key, "on_conflict": on_conflict} for key in keys])


@pytest.mark.parametrize("on_conflict", ["ignore", "update"])
def test_enqueue_jobs_meets_equal_keys_in_one_order(conn: Connection, session: Session, on_conflict: str) -> None:
    """Both calls would hold one key and wait for the other's, were they to go by their arrays."""
    holder, first, second = session(), session(), session()
    with holder.transaction():
        enqueue(holder, idempotency_key="m")
        down = background(call, first, "enqueue_jobs", jobs=keyed("z", "m", "a", on_conflict=on_conflict))
        wait_until_blocked(conn, first, down)
        up = background(call, second, "enqueue_jobs", jobs=keyed("a", "m", "z", on_conflict=on_conflict))
        wait_until_blocked(conn, second, up)
    outcomes = {"ignore": "existing", "update": "updated"}[on_conflict]
    assert [row["outcome"] for row in result(down)] == ["inserted", outcomes, "inserted"]
    assert [row["outcome"] for row in result(up)] == [outcomes] * 3
    assert [row["ord"] for row in result(up)] == [1, 2, 3]


@pytest.mark.parametrize("on_conflict", ["ignore", "update"])
def test_enqueue_jobs_of_equal_keys_in_opposite_order_do_not_deadlock(
    conn: Connection, session: Session, on_conflict: str
) -> None:
    first, second = session(), session()
    for n in range(50):
        keys = [f"{n}-{i:02}" for i in range(20)]
        up, down = results(
            [
                lambda keys=keys: call(first, "enqueue_jobs", jobs=keyed(*keys, on_conflict=on_conflict)),
                lambda keys=keys: call(second, "enqueue_jobs", jobs=keyed(*keys[::-1], on_conflict=on_conflict)),
            ]
        )
        assert {row["job_id"] for row in up} == {row["job_id"] for row in down}
    assert statuses(conn) == {"pending": 1000}


@pytest.mark.parametrize("function", ["finish_jobs", "release_jobs"])
def test_plural_end_of_a_zombie_does_not_wait_for_a_producer(conn: Connection, session: Session, function: str) -> None:
    """Its jobs are pending again and an `update` that stays open holds one: nothing of the zombie's is locked, so
    the producer, who goes by key and not by id, cannot deadlock with it either."""
    first, second = enqueue(conn, idempotency_key="b"), enqueue(conn, idempotency_key="a")
    batch = claim(conn, limit=2)
    age(conn, first, second)
    assert recover(conn) == {first: "pending", second: "pending"}
    producer, zombie = session(), session(patient=False)
    with producer.transaction():
        call(producer, "enqueue_jobs", jobs=keyed("a", on_conflict="update"))
        assert call(zombie, function, job_ids=ids(batch), lease_nos=[row["lease_no"] for row in batch]) == []
        call(producer, "enqueue_jobs", jobs=keyed("b", on_conflict="update"))
    assert ids(rows(conn, "select id from mdm.aa_job where status = 'pending' order by id")) == [first, second]


@pytest.mark.parametrize("end", [finish, fail, release])
def test_end_of_a_zombie_does_not_wait_for_a_producer(
    conn: Connection, session: Session, end: Callable[[Connection, Row], Any]
) -> None:
    job_id = enqueue(conn, idempotency_key="k")
    claimed = claim_one(conn)
    age(conn, job_id)
    recover(conn)
    producer, zombie = session(), session(patient=False)
    with producer.transaction():
        call(producer, "enqueue_jobs", jobs=keyed("k", on_conflict="update"))
        with refused("MJ001", detail="recovered"):
            end(zombie, claimed)
    assert status(conn, job_id) == "pending"
