"""Claims of several sessions at once, and claims in transactions that began long ago (S4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb

from jobs import (
    KIND,
    age,
    audit,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    finish,
    ids,
    job,
    make_tenant,
    recover,
    release,
    rows,
    status,
    statuses,
    violations,
)
from races.sessions import DEADLINE_SECONDS, Connection, results

Session = Callable[..., Connection]
CLAIMERS = 4
LANES: LiteralString = """
    insert into mdm.aa_job (job_kind, priority, max_attempts, available_at)
    select (%(kinds)s::text[])[g %% cardinality(%(kinds)s::text[]) + 1], g %% %(priorities)s, 3,
      clock_timestamp() - interval '1 hour' + g * interval '1 second'
    from generate_series(1, %(jobs)s) g
"""
ORDER: LiteralString = "select id from mdm.aa_job order by priority, available_at, id"


def fill(conn: Connection, kinds: list[str], jobs: int, priorities: int = 1) -> None:
    """Make due jobs whose times are mixed over kinds and priorities."""
    conn.execute(LANES, {"kinds": kinds, "jobs": jobs, "priorities": priorities})


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_claim_claim_takes_none_twice(conn: Connection, session: Session, limit: int) -> None:
    fill(conn, [KIND], 500)

    def drain(worker: Connection) -> list[int]:
        taken: list[int] = []
        while batch := claim(worker, limit=limit, worker_id=str(worker.info.backend_pid)):
            assert len(batch) <= limit
            taken += ids(batch)
        return taken

    workers = [session(patient=False) for _ in range(CLAIMERS)]
    taken = results([lambda worker=worker: drain(worker) for worker in workers])  # type: ignore[misc]

    assert Counter(id for batch in taken for id in batch) == Counter(ids(rows(conn, ORDER)))
    owners = {str(worker.info.backend_pid): len(batch) for worker, batch in zip(workers, taken, strict=True)}
    found = rows(conn, "select claimed_by, count(*) from mdm.aa_job where status = 'running' group by claimed_by")
    assert {row["claimed_by"]: row["count"] for row in found} == {owner: n for owner, n in owners.items() if n}


@pytest.mark.parametrize("kinds", [[KIND], [KIND, "outbox_dispatch", "cleanup_jobs"]], ids=["one-lane", "lanes"])
@pytest.mark.parametrize("limit", [1, 5])
def test_claim_claim_keeps_the_order(conn: Connection, session: Session, kinds: list[str], limit: int) -> None:
    """In rounds of one claim each: no claim reaches further ahead than claimers x n x 2 places (D16)."""
    fill(conn, kinds, 300, priorities=1 if len(kinds) == 1 else 2)
    place = {id: n for n, id in enumerate(ids(rows(conn, ORDER)), start=1)}
    rounds = 300 // (CLAIMERS * limit)
    barrier = Barrier(CLAIMERS)

    def claim_in_rounds(worker: Connection) -> list[list[int]]:
        taken = []
        for _ in range(rounds):
            barrier.wait(DEADLINE_SECONDS)
            taken.append(ids(claim(worker, *kinds, limit=limit)))
        return taken

    workers = [session(patient=False) for _ in range(CLAIMERS)]
    taken = results([lambda worker=worker: claim_in_rounds(worker) for worker in workers])  # type: ignore[misc]

    for n, batches in enumerate(zip(*taken, strict=True), start=1):
        assert all(batch == sorted(batch, key=place.__getitem__) for batch in batches)
        furthest = max((place[id] for batch in batches for id in batch), default=0)
        assert furthest <= n * CLAIMERS * limit + CLAIMERS * limit * 2, f"round {n} took the job at place {furthest}"


def test_claim_passes_over_what_another_claim_holds(conn: Connection, session: Session) -> None:
    fill(conn, [KIND], 5)
    first, second = session(), session(patient=False)
    with first.transaction():
        held = claim(first, limit=2)
        taken = claim(second, limit=10)
    assert ids(held) + ids(taken) == ids(rows(conn, ORDER))


def test_claim_of_several_lanes_passes_over_a_lane_that_is_held(conn: Connection, session: Session) -> None:
    """The look without locks counts jobs that another claim holds; the lanes are looked at again without them."""
    kinds = [KIND, "outbox_dispatch"]
    fill(conn, kinds, 8)
    first, second = session(), session(patient=False)
    with first.transaction():
        held = claim(first, KIND, limit=4)
        taken = claim(second, *kinds, limit=4)
    assert [row["job_kind"] for row in held + taken] == [KIND] * 4 + ["outbox_dispatch"] * 4


ALONE: LiteralString = "update mdm.aa_job set run_alone = true where priority = %s"
FREE: LiteralString = "select id from mdm.aa_job order by priority, available_at, id for update skip locked"


@pytest.mark.parametrize("floored", [False, True], ids=["exact", "floor"])
@pytest.mark.parametrize("bound", [False, True], ids=["all", "tenant"])
@pytest.mark.parametrize("kinds", [[KIND], [KIND, "outbox_dispatch", "cleanup_jobs"]], ids=["one-lane", "lanes"])
def test_d3_claim_of_a_head_that_runs_alone_locks_no_other_job(
    conn: Connection, session: Session, kinds: list[str], bound: bool, floored: bool
) -> None:
    """Recovered jobs stand at the head by the thousand and go one by one: each claim locks what it takes, no batch."""
    tenant_id = make_tenant(conn)
    fill(conn, kinds, 12, priorities=2)
    conn.execute("update mdm.aa_job set tenant_id = %s", (tenant_id,))
    conn.execute(ALONE, (0,))
    floor = Jsonb({kind: {"0": "2000-01-01Z", "1": "2000-01-01Z"} for kind in kinds}) if floored else None
    first, second = session(), session(patient=False)
    with first.transaction():
        held = claim(first, *kinds, limit=5, floor=floor, tenant_ids=[tenant_id] if bound else None)
        assert ids(held) + ids(rows(second, FREE)) == ids(rows(conn, ORDER))
    assert len(held) == 1


@pytest.mark.parametrize("kinds", [[KIND], [KIND, "outbox_dispatch", "cleanup_jobs"]], ids=["one-lane", "lanes"])
def test_d3_claim_ends_before_a_priority_whose_head_runs_alone_without_locking_it(
    conn: Connection, session: Session, kinds: list[str]
) -> None:
    fill(conn, kinds, 12, priorities=2)
    conn.execute(ALONE, (1,))
    first, second = session(), session(patient=False)
    with first.transaction():
        held = claim(first, *kinds, limit=10)
        assert ids(held) + ids(rows(second, FREE)) == ids(rows(conn, ORDER))
    assert len(held) == 6


@pytest.mark.parametrize("floored", [False, True], ids=["exact", "floor"])
def test_d3_claim_beside_a_held_job_that_runs_alone_does_not_reach_the_next_priority(
    conn: Connection, session: Session, floored: bool
) -> None:
    """The look finds a head that runs alone, the lock passes over it: what stands behind it still goes first."""
    fill(conn, [KIND], 6, priorities=2)
    in_order = ids(rows(conn, ORDER))
    conn.execute("update mdm.aa_job set run_alone = true where id = %s", (in_order[0],))
    floor = Jsonb({KIND: {"0": "2000-01-01Z", "1": "2000-01-01Z"}}) if floored else None
    first, second = session(), session(patient=False)
    with first.transaction():
        held = claim(first, limit=5, floor=floor)
        behind = claim(second, limit=5, floor=floor)
    assert ids(held) + ids(behind) == in_order[:2]
    assert ids(claim(second, limit=5, floor=floor)) == in_order[2:]


def test_claim_reaches_the_next_priority_past_one_that_is_held(conn: Connection, session: Session) -> None:
    """Also when all that is held runs alone: only no row means that there is nothing to take (D3)."""
    fill(conn, [KIND], 2, priorities=2)
    conn.execute(ALONE, (0,))
    first, second = session(), session(patient=False)
    with first.transaction():
        taken = claim(first, limit=5) + claim(second, limit=5)
    assert ids(taken) == ids(rows(conn, ORDER))


def test_b43_claim_takes_one_whatever_the_planner_may_not_use(conn: Connection, session: Session) -> None:
    fill(conn, [KIND], 20)
    worker = session()
    for setting in ("hashjoin", "mergejoin", "sort", "material", "hashagg", "memoize", "indexonlyscan"):
        worker.execute(f"set enable_{setting} = off".encode())
    assert len(claim(worker)) == 1
    assert statuses(conn) == {"pending": 19, "running": 1}


def test_b26_claim_sees_what_became_due_after_its_transaction_began(conn: Connection, session: Session) -> None:
    worker = session()
    with worker.transaction():
        worker.execute("select now()")
        job_id = enqueue(conn)
        assert ids(claim(worker)) == [job_id]
    claimed = job(conn, job_id)
    assert claimed["claimed_at"] >= claimed["created_at"]


def test_b26_times_are_of_the_clock_not_of_the_transaction(conn: Connection, session: Session) -> None:
    worker = session()
    worker.autocommit = False
    [began] = rows(worker, "select now(), clock_timestamp()")
    job_id = enqueue(conn)
    available_at = fail(worker, claim_one(worker), retry_after=timedelta(seconds=100))["available_at"]
    worker.commit()
    stored = job(conn, job_id)
    assert stored["available_at"] == available_at >= stored["created_at"] + timedelta(seconds=100)
    assert stored["created_at"] >= began["clock_timestamp"]


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel)[2:], ids=lambda level: level.name.lower())
def test_b39_claim_under_contention_is_40001_and_nothing_half_done(
    conn: Connection, session: Session, level: psycopg.IsolationLevel
) -> None:
    fill(conn, [KIND], 2)
    worker = session()
    worker.isolation_level = level
    worker.autocommit = False
    worker.execute("select count(*) from mdm.aa_job")  # the snapshot
    taken = claim_one(conn)
    with pytest.raises(psycopg.errors.SerializationFailure):
        claim(worker, limit=2)
    worker.rollback()
    assert statuses(conn) == {"running": 1, "pending": 1}
    finish(conn, taken)
    assert len(claim(worker, limit=2)) == 1
    worker.commit()
    assert statuses(conn) == {"done": 1, "running": 1}


def test_b02_equal_worker_names_own_nothing_of_each_other(conn: Connection, session: Session) -> None:
    fill(conn, [KIND], 50)
    first, second = session(), session()
    mine, yours = claim(first, limit=25, worker_id="pod/1/x"), claim(second, limit=25, worker_id="pod/1/x")
    assert not set(ids(mine)) & set(ids(yours))
    crossed = {"job_ids": ids(mine), "lease_nos": [row["lease_no"] for row in yours]}
    assert call(second, "finish_jobs", **crossed) == []
    assert call(second, "release_jobs", **crossed) == []
    assert not any(row["alive"] for row in call(second, "extend_jobs", **crossed))
    with pytest.raises(psycopg.Error) as raised:
        call(second, "finish_job", job_id=mine[0]["id"], lease_no=yours[0]["lease_no"])
    assert (raised.value.sqlstate, raised.value.diag.message_detail) == ("MJ001", "claimed again")
    assert statuses(conn) == {"running": 50}


def test_claim_skips_an_update_under_way_and_then_takes_the_new_payload(conn: Connection, session: Session) -> None:
    job_id = enqueue(conn, payload={"n": 1}, idempotency_key="k")
    producer, worker = session(), session(patient=False)
    with producer.transaction():
        enqueue(producer, payload={"n": 2}, idempotency_key="k", on_conflict="update")
        assert claim(worker) == []
    assert [(row["id"], row["payload"]) for row in claim(worker)] == [(job_id, {"n": 2})]


def make_superseded(conn: Connection, session: Session, end: Callable[[Connection, dict[str, Any]], Any]) -> list[int]:
    """Make a pending job with a newer pending one of its key: the older went back while the newer was uncommitted."""
    older = enqueue(conn, payload={"n": 1}, idempotency_key="k")
    claimed = claim_one(conn)
    producer, worker = session(), session(patient=False)
    with producer.transaction():
        newer = enqueue(producer, payload={"n": 2}, idempotency_key="k", on_conflict="update")
        end(worker, claimed)
        assert status(conn, older) == "pending"
    assert newer != older
    conn.execute("update mdm.aa_job set available_at = '2000-01-01' where id = %s", (older,))
    return [older, newer]


def end_by_failure(worker: Connection, claimed: dict[str, Any]) -> None:
    fail(worker, claimed)


def end_by_release(worker: Connection, claimed: dict[str, Any]) -> None:
    release(worker, claimed)


def end_by_recovery(worker: Connection, claimed: dict[str, Any]) -> None:
    age(worker, claimed["id"])
    assert recover(worker) == {claimed["id"]: "pending"}


def end_by_replay(worker: Connection, claimed: dict[str, Any]) -> None:
    fail(worker, claimed, retryable=False)
    call(worker, "replay_job", job_id=claimed["id"])


@pytest.mark.parametrize("end", [end_by_failure, end_by_release, end_by_recovery, end_by_replay])
def test_claim_retires_an_older_generation_that_went_back_beside_an_uncommitted_newer_one(
    conn: Connection, session: Session, end: Callable[[Connection, dict[str, Any]], Any]
) -> None:
    older, newer = make_superseded(conn, session, end)
    assert statuses(conn) == {"pending": 2}
    assert ids(claim(conn, limit=1)) == [newer]
    retired = job(conn, older)
    assert (retired["status"], retired["last_error"]) == ("done", f"superseded by {newer}")
    assert audit(conn, older)[-1]["payload"] == {"job_kind": KIND, "superseded_by": newer}
    assert violations(conn) == {}


@pytest.mark.parametrize("limit", [1, 5])
def test_claim_that_retires_a_job_that_runs_alone_does_not_come_back_empty(
    conn: Connection, session: Session, limit: int
) -> None:
    """Only no row means an empty queue (D3): the retired head must not end the claim."""
    older, newer = make_superseded(conn, session, end_by_recovery)
    conn.execute("update mdm.aa_job set run_alone = true where id = %s", (older,))
    assert ids(claim(conn, limit=limit)) == [newer]
    assert status(conn, older) == "done"


def test_claim_retires_a_job_that_runs_alone_in_the_middle_of_a_batch(conn: Connection, session: Session) -> None:
    older, newer = make_superseded(conn, session, end_by_recovery)
    first = enqueue(conn, available_at=datetime(1990, 1, 1, tzinfo=UTC))
    conn.execute("update mdm.aa_job set run_alone = true where id = %s", (older,))
    assert ids(claim(conn, limit=5)) == [first, newer]
    assert status(conn, older) == "done"


def test_claim_rolled_back_leaves_no_trace(conn: Connection, session: Session) -> None:
    job_id = enqueue(conn, payload={"n": 1})
    before = job(conn, job_id)
    worker = session()
    with worker.transaction(force_rollback=True):
        claimed = claim_one(worker)
    assert job(conn, job_id) == before
    with pytest.raises(psycopg.Error) as raised:
        finish(worker, claimed)
    assert (raised.value.sqlstate, raised.value.diag.message_detail) == ("MJ001", "recovered")


def test_claim_pauses_between_two_claims_of_one_session(conn: Connection, session: Session) -> None:
    """Settings of a kind take effect with the next claim, also inside a transaction that is open already."""
    fill(conn, [KIND], 2)
    worker = session()
    with worker.transaction():
        assert len(claim(worker)) == 1
        call(conn, "pause_kind", job_kind=KIND)
        assert claim(worker) == []
        call(conn, "resume_kind", job_kind=KIND)
        assert len(claim(worker)) == 1


def test_enqueue_jobs_is_claimed_whole_or_not_at_all(conn: Connection, session: Session) -> None:
    producer, worker = session(), session(patient=False)
    with producer.transaction():
        made = call(producer, "enqueue_jobs", jobs=Jsonb([{"job_kind": KIND}] * 3))
        assert claim(worker, limit=5) == []
    assert ids(claim(worker, limit=5)) == [row["job_id"] for row in made]
