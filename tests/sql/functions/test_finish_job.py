"""finish_job (S5.1, S11, D2, D11, D15). The lease is tested in test_states."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from jobs import (
    Connection,
    actions,
    audit,
    call,
    claim_one,
    fail,
    finish,
    job,
    make_due,
    make_job,
    make_kind,
    make_tenant,
    refused,
    snapshot,
    status,
    value,
    violations,
)


def test_finish_job_forgets_the_error_of_earlier_attempts(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    fail(conn, claimed)
    make_due(conn, claimed["id"])
    finish(conn, claim_one(conn))
    row = job(conn, claimed["id"])
    assert (row["status"], row["last_error"], row["attempts"]) == ("done", None, 2)


def test_finish_job_keeps_who_ran_it(conn: Connection) -> None:
    row = make_job(conn, "done")
    assert (row["claimed_by"], row["lease_no"] is None) == ("w1", False)
    assert row["claimed_at"] <= row["completed_at"] <= value(conn, "select clock_timestamp()")


def test_finish_job_is_audited_with_its_actor(conn: Connection) -> None:
    tenant_id, actor = make_tenant(conn), uuid4()
    claimed = make_job(conn, "running", tenant_id=tenant_id)
    call(conn, "finish_job", job_id=claimed["id"], lease_no=claimed["lease_no"], actor_principal_id=actor)
    row = audit(conn, claimed["id"])[-1]
    assert (row["action"], row["actor_principal_id"], row["tenant_id"]) == ("job_done", actor, tenant_id)
    assert (row["payload"], row["object_type"]) == ({"job_kind": "reindex"}, "job")
    assert row["occurred_at"] == job(conn, claimed["id"])["completed_at"]


def test_d15_finish_of_an_exceptions_kind_is_not_audited(conn: Connection) -> None:
    assert actions(conn, make_job(conn, "done", "cleanup_jobs")["id"]) == []
    assert violations(conn) == {}


def test_d15_audit_level_is_read_at_the_finish(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    make_kind(conn, "reindex", audit_level="exceptions")
    finish(conn, claimed)
    assert actions(conn, claimed["id"]) == ["job_enqueued"]


def test_finish_job_commits_with_the_handlers_writes(conn: Connection, connect: Callable[..., Connection]) -> None:
    claimed = make_job(conn, "running")
    worker = connect(autocommit=False)
    tenant_id = make_tenant(worker)
    finish(worker, claimed)
    assert status(conn, claimed["id"]) == "running"
    worker.commit()
    assert status(conn, claimed["id"]) == "done"
    assert value(conn, "select count(*) from mdm.aa_tenant where id = %s", tenant_id) == 1


def test_d2_lost_lease_aborts_the_handlers_writes(conn: Connection, connect: Callable[..., Connection]) -> None:
    claimed = make_job(conn, "running")
    call(conn, "stop_job", job_id=claimed["id"])
    before = snapshot(conn)
    worker = connect(autocommit=False)
    make_tenant(worker)
    with refused("MJ001", detail="stopped"):
        finish(worker, claimed)
    worker.commit()  # of an aborted transaction: rolls back
    assert snapshot(conn) == before
    assert value(conn, "select count(*) from mdm.aa_tenant") == 0


def test_second_finish_in_one_transaction_is_refused(conn: Connection, connect: Callable[..., Connection]) -> None:
    claimed = make_job(conn, "running")
    worker = connect(autocommit=False)
    finish(worker, claimed)
    with refused("MJ001", detail="already ended by this lease"):
        finish(worker, claimed)


def test_b121_finishes_need_no_subtransaction(conn: Connection, connect: Callable[..., Connection]) -> None:
    """A row that a subtransaction wrote would carry its number."""
    claimed = [make_job(conn, "running") for _ in range(100)]
    worker = connect(autocommit=False)
    for row in claimed:
        finish(worker, row)
    worker.commit()
    query = """
        select count(*), count(distinct w.xmin::text)
        from (select xmin from mdm.aa_job union all select xmin from mdm.aa_audit_log where action = 'job_done') w
    """
    assert conn.execute(query).fetchall() == [(200, 1)]
