"""Ends of a claim against each other: finish, fail, release, heartbeat, recovery, stop (S5, S8, D2, D24)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from jobs import (
    Row,
    actions,
    age,
    audit,
    call,
    changes,
    claim,
    claim_one,
    enqueue,
    fail,
    finish,
    job,
    recover,
    refused,
    release,
    status,
    value,
    violations,
)
from races.sessions import Connection, background, result, sqlstate, wait_until_blocked

Session = Callable[..., Connection]
End = Callable[[Connection, Row], Any]


def extend(conn: Connection, claimed: Row) -> bool:
    """Send a heartbeat and return whether the lease is alive."""
    [row] = call(conn, "extend_jobs", job_ids=[claimed["id"]], lease_nos=[claimed["lease_no"]])
    return bool(row["alive"])


def finish_many(conn: Connection, claimed: Row) -> list[int]:
    """Finish through the plural function and return the ids accepted."""
    ended = call(conn, "finish_jobs", job_ids=[claimed["id"]], lease_nos=[claimed["lease_no"]])
    return [row["finish_jobs"] for row in ended]


def fail_for_good(conn: Connection, claimed: Row) -> None:
    fail(conn, claimed, retryable=False)


def release_many(conn: Connection, claimed: Row) -> list[int]:
    """Release through the plural function and return the ids accepted."""
    ended = call(conn, "release_jobs", job_ids=[claimed["id"]], lease_nos=[claimed["lease_no"]])
    return [row["release_jobs"] for row in ended]


def check_lease(conn: Connection, claimed: Row) -> None:
    call(conn, "check_lease", job_id=claimed["id"], lease_no=claimed["lease_no"])


def stop(conn: Connection, job_id: int) -> str:
    [row] = call(conn, "stop_job", job_id=job_id)
    return str(row["stop_job"])


def running(conn: Connection) -> Row:
    """Make a running job that has been silent for long."""
    enqueue(conn)
    claimed = claim_one(conn)
    age(conn, claimed["id"])
    return claimed


SINGULAR: list[End] = [finish, fail, release]
PLURAL: list[End] = [finish_many, release_many]


# -- recovery


@pytest.mark.parametrize("end", SINGULAR + PLURAL)
def test_recover_skips_a_job_whose_end_is_under_way(conn: Connection, session: Session, end: End) -> None:
    claimed = running(conn)
    worker, healer = session(), session(patient=False)
    with worker.transaction():
        end(worker, claimed)
        ended = status(worker, claimed["id"])
        assert recover(healer) == {}
    assert recover(healer) == {}
    assert status(conn, claimed["id"]) == ended
    assert job(conn, claimed["id"])["recoveries"] == 0


@pytest.mark.parametrize("end", SINGULAR)
def test_end_waits_for_a_recovery_under_way_and_is_lost(conn: Connection, session: Session, end: End) -> None:
    claimed = running(conn)
    healer, worker = session(), session()
    with healer.transaction():
        assert recover(healer) == {claimed["id"]: "pending"}
        late = background(end, worker, claimed)
        wait_until_blocked(conn, worker, late)
    with refused("MJ001", detail="recovered"):
        result(late)
    assert status(conn, claimed["id"]) == "pending"
    assert actions(conn, claimed["id"]) == ["job_enqueued"]


@pytest.mark.parametrize("end", [finish, finish_many, fail_for_good])
def test_an_end_that_waited_and_its_audit_row_tell_the_same_time(conn: Connection, session: Session, end: End) -> None:
    """Somebody held the row and let go of it: v_job_history looks for the audit row near the end."""
    claimed = running(conn)
    holder, worker = session(), session()
    with holder.transaction(force_rollback=True):
        holder.execute("select from mdm.aa_job where id = %s for update", (claimed["id"],))
        late = background(end, worker, claimed)
        wait_until_blocked(conn, worker, late)
        released = value(conn, "select clock_timestamp()")
    result(late)
    entry = audit(conn, claimed["id"])[-1]
    ended = job(conn, claimed["id"])["completed_at"]
    assert entry["occurred_at"] == ended or min(entry["occurred_at"], ended) >= released


@pytest.mark.parametrize("end", PLURAL)
def test_plural_end_is_refused_row_by_row_after_a_recovery(conn: Connection, session: Session, end: End) -> None:
    claimed = running(conn)
    healer, worker = session(), session()
    with healer.transaction():
        recover(healer)
        late = background(end, worker, claimed)
        wait_until_blocked(conn, worker, late)
    assert result(late) == []
    assert status(conn, claimed["id"]) == "pending"


@pytest.mark.parametrize("end", SINGULAR)
def test_end_goes_through_when_the_recovery_is_rolled_back(conn: Connection, session: Session, end: End) -> None:
    claimed = running(conn)
    healer, worker = session(), session()
    with healer.transaction(force_rollback=True):
        recover(healer)
        late = background(end, worker, claimed)
        wait_until_blocked(conn, worker, late)
    result(late)
    assert status(conn, claimed["id"]) == ("done" if end is finish else "pending")


def test_lost_finish_takes_the_writes_of_its_transaction_with_it(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    worker = session(autocommit=False)
    worker.execute("insert into mdm.aa_tenant (id, name) values (gen_random_uuid(), 'written by a zombie')")
    recover(conn)
    with refused("MJ001", detail="recovered"):
        finish(worker, claimed)
    worker.commit()  # of an aborted transaction: a rollback
    assert conn.execute("select count(*) from mdm.aa_tenant").fetchone() == (0,)


@pytest.mark.parametrize("end", SINGULAR)
def test_b01_b03_the_late_first_owner_changes_nothing_for_the_second(
    conn: Connection, session: Session, end: End
) -> None:
    first, second = session(), session()
    enqueue(conn)
    zombie = claim_one(first, worker_id="w1")
    age(conn, zombie["id"])
    assert recover(conn) == {zombie["id"]: "pending"}
    owned = claim_one(second, worker_id="w2")
    before = job(conn, owned["id"])

    with refused("MJ001", detail="claimed again"):
        end(first, zombie)
    assert not extend(first, zombie)
    assert finish_many(first, zombie) == release_many(first, zombie) == []
    with refused("MJ001", detail="claimed again"):
        check_lease(first, zombie)
    assert changes(before, job(conn, owned["id"])) == {}

    finish(second, owned)
    assert actions(conn, owned["id"]) == ["job_enqueued", "job_done"]
    assert violations(conn) == {}


def test_zombies_finish_under_repeatable_read_is_40001(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    worker = session()
    worker.isolation_level = IsolationLevel.REPEATABLE_READ
    worker.autocommit = False
    worker.execute("select count(*) from mdm.aa_job")  # the snapshot
    recover(conn)
    with pytest.raises(psycopg.errors.SerializationFailure):
        finish(worker, claimed)
    worker.rollback()
    with refused("MJ001", detail="recovered"):
        finish(worker, claimed)


# -- heartbeat


@pytest.mark.parametrize("end", SINGULAR + PLURAL)
def test_extend_passes_over_an_end_under_way_and_calls_it_alive(conn: Connection, session: Session, end: End) -> None:
    claimed = running(conn)
    worker, keeper = session(), session(patient=False)
    with worker.transaction():
        end(worker, claimed)
        assert extend(keeper, claimed)
    assert not extend(keeper, claimed)
    assert job(conn, claimed["id"])["heartbeat_at"] is None


def test_extend_beside_a_recovery_under_way_learns_of_it_after_its_commit(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    healer, keeper = session(), session(patient=False)
    with healer.transaction():
        recover(healer)
        assert extend(keeper, claimed)
    assert not extend(keeper, claimed)


def test_recover_passes_over_a_heartbeat_under_way(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    keeper, healer = session(), session(patient=False)
    with keeper.transaction():
        assert extend(keeper, claimed)
        assert recover(healer) == {}
    assert recover(healer) == {}
    assert status(conn, claimed["id"]) == "running"


def test_recover_leaves_a_job_whose_heartbeat_came_between_look_and_lock(conn: Connection, session: Session) -> None:
    """The age is tested again on the row as it is when it is locked: a snapshot that is older changes nothing."""
    claimed = running(conn)
    healer, keeper = session(), session()
    healer.autocommit = False
    healer.execute("select count(*) from mdm.aa_job")
    assert extend(keeper, claimed)
    assert recover(healer) == {}
    healer.commit()
    assert status(conn, claimed["id"]) == "running"


# -- chunks (D24)


def test_check_lease_held_open_stops_recovery_but_neither_heartbeat_nor_finish(
    conn: Connection, session: Session
) -> None:
    claimed = running(conn)
    chunk, keeper, healer = session(), session(patient=False), session(patient=False)
    with chunk.transaction():
        check_lease(chunk, claimed)
        assert recover(healer) == {}
        assert extend(keeper, claimed)
        finish(keeper, claimed)
    assert status(conn, claimed["id"]) == "done"


def test_check_lease_and_finish_share_a_transaction(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    chunk, healer = session(), session(patient=False)
    with chunk.transaction():
        check_lease(chunk, claimed)
        finish(chunk, claimed)
        assert recover(healer) == {}
    assert status(conn, claimed["id"]) == "done"


def test_check_lease_of_a_zombie_aborts_its_chunk(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    zombie = session()
    recover(conn)
    with refused("MJ001", detail="recovered"), zombie.transaction():
        check_lease(zombie, claimed)
        zombie.execute("insert into mdm.aa_tenant (id) values (gen_random_uuid())")
    claim(conn)
    with refused("MJ001", detail="claimed again"), zombie.transaction():
        check_lease(zombie, claimed)
    assert conn.execute("select count(*) from mdm.aa_tenant").fetchone() == (0,)


def test_check_lease_waits_for_a_recovery_under_way(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    healer, zombie = session(), session()
    with healer.transaction():
        recover(healer)
        late = background(check_lease, zombie, claimed)
        wait_until_blocked(conn, zombie, late)
    with refused("MJ001", detail="recovered"):
        result(late)


def test_b65_stop_waits_for_a_chunk_and_the_next_one_aborts(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    chunk, admin = session(), session()
    with chunk.transaction():
        check_lease(chunk, claimed)
        stopped = background(stop, admin, claimed["id"])
        wait_until_blocked(conn, admin, stopped)
    assert result(stopped) == "stopped"
    with refused("MJ001", detail="stopped"), chunk.transaction():
        check_lease(chunk, claimed)


# -- stop


@pytest.mark.parametrize("end", SINGULAR)
def test_stop_first_then_the_end_is_lost(conn: Connection, session: Session, end: End) -> None:
    claimed = running(conn)
    admin, worker = session(), session()
    with admin.transaction():
        assert stop(admin, claimed["id"]) == "stopped"
        late = background(end, worker, claimed)
        wait_until_blocked(conn, worker, late)
    with refused("MJ001", detail="stopped"):
        result(late)
    assert status(conn, claimed["id"]) == "failed"
    assert actions(conn, claimed["id"]) == ["job_enqueued", "job_stop"]


def test_stop_waits_for_a_finish_under_way_and_is_refused(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    worker, admin = session(), session()
    with worker.transaction():
        finish(worker, claimed)
        late = background(stop, admin, claimed["id"])
        wait_until_blocked(conn, admin, late)
    assert sqlstate(late) == "MJ004"
    assert status(conn, claimed["id"]) == "done"
    assert actions(conn, claimed["id"]) == ["job_enqueued", "job_done"]


def test_stop_waits_for_a_finish_that_is_rolled_back_and_stops(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    worker, admin = session(), session()
    with worker.transaction(force_rollback=True):
        finish(worker, claimed)
        late = background(stop, admin, claimed["id"])
        wait_until_blocked(conn, admin, late)
    assert result(late) == "stopped"
    assert actions(conn, claimed["id"]) == ["job_enqueued", "job_stop"]


@pytest.mark.parametrize("end", [fail, release])
def test_stop_after_a_job_went_back_takes_the_pending_one(conn: Connection, session: Session, end: End) -> None:
    claimed = running(conn)
    worker, admin = session(), session()
    with worker.transaction():
        end(worker, claimed)
        late = background(stop, admin, claimed["id"])
        wait_until_blocked(conn, admin, late)
    assert result(late) == "stopped"
    assert status(conn, claimed["id"]) == "failed"


def test_recover_skips_a_job_that_is_being_stopped(conn: Connection, session: Session) -> None:
    claimed = running(conn)
    admin, healer = session(), session(patient=False)
    with admin.transaction():
        stop(admin, claimed["id"])
        assert recover(healer) == {}
    assert recover(healer) == {}
    assert status(conn, claimed["id"]) == "failed"
