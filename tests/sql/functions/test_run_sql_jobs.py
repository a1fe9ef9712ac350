"""run_sql_jobs: kinds whose work is SQL, without a runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from entities import add_entities, make_stale, make_type, stale
from jobs import actions, age, claim_one, enqueue, job, make_job, make_tenant, refused, status, value, violations

Connection = psycopg.Connection[Any]


def run(conn: Connection, *parameters: Any) -> None:
    """Call the procedure."""
    conn.execute(f"call mdm.run_sql_jobs({', '.join(['%s'] * len(parameters))})", parameters)


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    """A tenant with 2,500 things: three chunks."""
    tenant_id = make_tenant(conn)
    type_id = make_type(conn, searchable=["name"])
    add_entities(conn, tenant_id, type_id, ({"name": f"thing {number}"} for number in range(2500)))
    make_stale(conn)
    return tenant_id


def test_run_sql_jobs_reindexes_in_chunks(conn: Connection, tenant: UUID) -> None:
    job_id = enqueue(conn, payload={"entity_type": "thing"}, tenant_id=tenant)
    run(conn)
    assert status(conn, job_id) == "done"
    assert stale(conn) == 0
    assert actions(conn, job_id) == ["job_enqueued", "job_done"]
    assert conn.execute("select chunks from mdm.aa_reindex_progress where job_id = %s", (job_id,)).fetchone() == (3,)
    began = value(conn, "select started_at from mdm.aa_reindex_progress where job_id = %s", job_id)
    assert job(conn, job_id)["heartbeat_at"] > began, "every chunk begins with a heartbeat"
    assert violations(conn) == {}


def test_d13_run_sql_jobs_takes_null_as_default(conn: Connection) -> None:
    job_id = enqueue(conn, "cleanup_jobs")
    run(conn, None, None)
    assert status(conn, job_id) == "done"


def test_run_sql_jobs_cleans_up(conn: Connection) -> None:
    stuck = make_job(conn, "running", "index_sync")["id"]
    age(conn, stuck)
    old = make_job(conn, "done")["id"]
    conn.execute("update mdm.aa_job set completed_at = '2020-01-01Z' where id = %s", (old,))
    cleanup = enqueue(conn, "cleanup_jobs")

    run(conn)

    assert (status(conn, cleanup), status(conn, stuck), status(conn, old)) == ("done", "pending", "gone")


def test_run_sql_jobs_fails_a_job_the_usual_way_and_goes_on(conn: Connection) -> None:
    bad = enqueue(conn, payload={"entity_type": "no such type"})
    good = enqueue(conn, "cleanup_jobs")
    run(conn)
    assert status(conn, good) == "done"
    assert status(conn, bad) == "dlq"
    assert "MJ005" in job(conn, bad)["last_error"]


def test_run_sql_jobs_retries_what_may_work_later(conn: Connection, tenant: UUID) -> None:
    conn.execute("alter table mdm.ddm_entity add constraint broken check (search_vector = 'stale') not valid")
    try:
        job_id = enqueue(conn, payload={"entity_type": "thing"}, tenant_id=tenant)
        run(conn)
    finally:
        conn.execute("alter table mdm.ddm_entity drop constraint broken")
    row = job(conn, job_id)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert "broken" in row["last_error"]


def test_run_sql_jobs_gives_back_what_others_block(
    conn: Connection, connect: Callable[..., Connection], tenant: UUID
) -> None:
    writer = connect(autocommit=False)
    writer.execute("update mdm.ddm_entity set entity_key = entity_key where tenant_id = %s", (tenant,))
    job_id = enqueue(conn, payload={"entity_type": "thing"}, tenant_id=tenant)
    run(conn)
    row = job(conn, job_id)
    assert (row["status"], row["attempts"], row["releases"]) == ("pending", 0, 1)
    assert row["last_error"].startswith("released: reindex waits for")


def test_run_sql_jobs_keeps_to_its_kinds_and_limit(conn: Connection) -> None:
    mine = [enqueue(conn, "cleanup_jobs") for _ in range(3)]
    other = enqueue(conn, "index_sync")
    run(conn, ["cleanup_jobs", "index_sync"], 2)
    assert [status(conn, each) for each in mine] == ["done", "done", "pending"]
    assert status(conn, other) == "pending"


def test_run_sql_job_step_refuses_other_kinds_and_lost_leases(conn: Connection) -> None:
    claimed = make_job(conn, "running", "index_sync")
    with refused("MJ005", match="index_sync"):
        conn.execute("select mdm.run_sql_job_step(%s, %s)", (claimed["id"], claimed["lease_no"]))
    enqueue(conn, "cleanup_jobs")
    lost = claim_one(conn, "cleanup_jobs")
    with refused("MJ001"):
        conn.execute("select mdm.run_sql_job_step(%s, %s)", (lost["id"], lost["lease_no"] + 1))


@pytest.mark.parametrize("role", ["mdm_worker", "mdm_admin"])
def test_run_sql_jobs_works_for_workers_and_administrators(
    conn: Connection, connect: Callable[..., Connection], role: str
) -> None:
    job_id = enqueue(conn, "cleanup_jobs")
    run(connect(role=role))
    assert status(conn, job_id) == "done"
