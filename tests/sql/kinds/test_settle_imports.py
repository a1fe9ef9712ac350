"""mdm.settle_imports: an upload whose job died without a word is failed in the end (S2.2)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from entities import make_type
from jobs import Connection, age, call, claim_one, enqueue, fail, finish, make_due, make_tenant, recover, status, value
from uploads import chunk, outcomes, the_import, upload, upload_many

Connect = Callable[..., Connection]
SETTLE = "select mdm.settle_imports()"


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


@pytest.fixture
def thing(conn: Connection) -> UUID:
    return make_type(conn, "thing", searchable=["name"])


def state(conn: Connection, import_id: UUID) -> str:
    return str(the_import(conn, import_id)["status"])


def kill(conn: Connection, chunks: int) -> int:
    """Let five runners die with the job after some chunks, as many as it has attempts; return its id."""
    for _ in range(5):
        claimed = claim_one(conn, "bulk_import")
        for _ in range(chunks):
            chunk(conn, claimed, 2)
        age(conn, claimed["id"])
        recover(conn)
        make_due(conn, claimed["id"])
    assert status(conn, claimed["id"]) == "dlq"
    return int(claimed["id"])


def test_killed_five_times_is_failed_by_the_cleanup_and_a_replay_goes_on(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    import_id = upload_many(conn, tenant, thing, 20)
    job_id = kill(conn, 1)
    assert state(conn, import_id) == "running"
    conn.execute("call mdm.cleanup_jobs()")
    kept = the_import(conn, import_id)
    assert (kept["status"], kept["rows_total"], kept["rows_imported"]) == ("failed", 20, 8)
    assert "ended without a result" in kept["error"]
    call(conn, "replay_job", job_id=job_id)
    claimed = claim_one(conn, "bulk_import")
    assert chunk(conn, claimed, 100) == (12, 0, True)
    finish(conn, claimed)
    assert (state(conn, import_id), value(conn, SETTLE)) == ("done", 0)


def test_killed_before_the_first_commit_is_failed_and_a_replay_begins(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    import_id = upload(conn, tenant, thing, [("a", {"name": "1"}), ("a", {"name": "2"})])
    job_id = kill(conn, 0)
    assert (state(conn, import_id), value(conn, SETTLE)) == ("pending", 1)
    call(conn, "replay_job", job_id=job_id)
    claimed = claim_one(conn, "bulk_import")
    assert chunk(conn, claimed) == (0, 1, False), "the look at the whole upload"
    assert chunk(conn, claimed) == (1, 0, True)
    assert [one for one, _ in outcomes(conn, import_id)] == ["rejected", "imported"]


def test_fail_import_before_the_first_chunk_is_begun_by_a_replay(conn: Connection, tenant: UUID, thing: UUID) -> None:
    upload(conn, tenant, thing, [("a", {"name": "1"}), ("a", {"name": "2"})])
    claimed = claim_one(conn, "bulk_import")
    call(conn, "fail_import", job_id=claimed["id"], lease_no=claimed["lease_no"], error="no disk")
    fail(conn, claimed, retryable=False)
    call(conn, "replay_job", job_id=claimed["id"])
    assert chunk(conn, claim_one(conn, "bulk_import")) == (0, 1, False)


def test_import_that_waits_or_runs_is_left_alone(conn: Connection, connect: Connect, tenant: UUID, thing: UUID) -> None:
    import_id = upload_many(conn, tenant, thing, 20)
    worker = connect(role="mdm_worker")
    assert value(worker, SETTLE) == 0
    claimed = claim_one(conn, "bulk_import")
    chunk(conn, claimed)
    assert value(worker, SETTLE) == 0
    fail(conn, claimed)
    assert (value(worker, SETTLE), state(conn, import_id)) == (0, "running")


def test_new_pass_after_a_dead_job_is_left_alone(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = upload_many(conn, tenant, thing, 20)
    kill(conn, 1)
    conn.execute("update mdm.aa_import set status = 'pending'")
    assert (value(conn, SETTLE), state(conn, import_id)) == (0, "pending")


def test_upload_that_never_had_a_job_is_left_alone(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = upload_many(conn, tenant, thing, 1)
    conn.execute("delete from mdm.aa_job")
    assert (value(conn, SETTLE), state(conn, import_id)) == (0, "pending")


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize(("end", "left"), [("stop_job", 1), ("discard_job", 0)])
def test_import_whose_job_was_taken_away_is_failed(
    conn: Connection, tenant: UUID, thing: UUID, end: str, left: int, begun: bool
) -> None:
    """Where the job stays, by the upkeep; where it goes, at once."""
    import_id = upload_many(conn, tenant, thing, 20)
    other = upload_many(conn, tenant, thing, 20)
    claimed = claim_one(conn, "bulk_import")
    if begun:
        chunk(conn, claimed)
    fail(conn, claimed)
    call(conn, end, job_id=claimed["id"])
    assert value(conn, SETTLE) == left
    assert (state(conn, import_id), state(conn, other)) == ("failed", "pending")
    conn.execute("update mdm.aa_import set status = 'pending', completed_at = null where id = %s", (import_id,))
    query = "select count(*) from mdm.aa_job where status = 'pending' and payload ->> 'import_id' = %s"
    assert value(conn, query, str(import_id)) == 1, "a new pass"


def test_import_that_is_done_or_another_tenants_is_left_alone_by_a_discard(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    import_id = upload_many(conn, tenant, thing, 1)
    foreign = enqueue(conn, "bulk_import", {"import_id": str(import_id)}, tenant_id=make_tenant(conn, "two"))
    call(conn, "discard_job", job_id=foreign)
    assert state(conn, import_id) == "pending"
    while not chunk(conn, claimed := claim_one(conn, "bulk_import"))[2]:
        fail(conn, claimed)
        make_due(conn, claimed["id"])
    fail(conn, claimed)
    call(conn, "discard_job", job_id=claimed["id"])
    assert state(conn, import_id) == "done"


def test_upload_that_somebody_holds_is_passed_over(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    import_id = upload_many(conn, tenant, thing, 1)
    call(conn, "stop_job", job_id=claim_one(conn, "bulk_import")["id"])
    holder = connect(autocommit=False)
    holder.execute("select from mdm.aa_import for update")
    conn.execute("set lock_timeout = '1s'")
    assert value(conn, SETTLE) == 0
    holder.commit()
    assert (value(conn, SETTLE), state(conn, import_id)) == (1, "failed")


def test_bound_login_settles_its_own_tenants_only(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    """It does not see the jobs of others, which live."""
    own, others = upload_many(conn, tenant, thing, 20), upload_many(conn, make_tenant(conn, "two"), thing, 20)
    dead, alive = claim_one(conn, "bulk_import"), claim_one(conn, "bulk_import")
    for claimed in (dead, alive):
        chunk(conn, claimed)
    call(conn, "stop_job", job_id=dead["id"])
    bound = connect(role="mdm_worker")
    conn.execute(
        """with p as (insert into mdm.aa_principal (id, name, kind, role_name)
                      values (gen_random_uuid(), 'bound', 'service', 'test_mdm_worker') returning id)
           insert into mdm.aa_principal_tenant select p.id, %s from p""",
        (tenant,),
    )
    assert value(bound, SETTLE) == 1
    assert (state(conn, own), state(conn, others)) == ("failed", "running")
