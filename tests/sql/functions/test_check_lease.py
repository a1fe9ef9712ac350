"""check_lease (D2, D24): the fence of handlers that commit in chunks. Lost leases are tested in test_states."""

from __future__ import annotations

from collections.abc import Callable

from jobs import Connection, age, call, changes, finish, job, make_job, recover, refused, snapshot, value


def check(conn: Connection, claimed: dict[str, int]) -> None:
    call(conn, "check_lease", job_id=claimed["id"], lease_no=claimed["lease_no"])


def test_check_lease_writes_nothing(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    before = snapshot(conn)
    check(conn, claimed)
    assert snapshot(conn) == before


def test_d24_chunk_of_a_zombie_aborts(conn: Connection, connect: Callable[..., Connection]) -> None:
    claimed = make_job(conn, "running")
    age(conn, claimed["id"])
    recover(conn)
    zombie = connect(autocommit=False)
    with refused("MJ001", detail="recovered"):
        check(zombie, claimed)
    zombie.rollback()


def test_d24_recovery_skips_the_row_and_heartbeats_and_finish_pass(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    claimed = make_job(conn, "running")
    age(conn, claimed["id"])
    handler = connect(autocommit=False)
    check(handler, claimed)
    before = job(conn, claimed["id"])
    assert recover(conn) == {}
    [beat] = call(conn, "extend_jobs", job_ids=[claimed["id"]], lease_nos=[claimed["lease_no"]])
    assert beat["alive"]
    assert set(changes(before, job(conn, claimed["id"]))) == {"heartbeat_at"}
    finish(handler, claimed)
    handler.commit()
    assert value(conn, "select status from mdm.aa_job") == "done"
