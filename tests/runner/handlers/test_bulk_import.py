"""The kind bulk_import as a handler (S2.2, D24; faults B118, B119)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from entities import make_type, stale
from jobrunner.errors import PermanentError
from jobrunner.handlers.bulk_import import CHUNK_SECONDS, MAX_ROWS, bulk_import, next_rows
from jobs import Connection, Row, actions, age, claim_one, enqueue, job, make_due, make_tenant, recover
from lent import LeaseLost, run
from uploads import add_attribute, entities, outcomes, the_import, upload, upload_many

Connect = Callable[..., Connection]


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


@pytest.fixture
def thing(conn: Connection) -> UUID:
    return make_type(conn, "thing", searchable=["name"])


def claimed_import(conn: Connection) -> Row:
    return claim_one(conn, "bulk_import")


def crash_at(number: int, conn: Connection, claimed: Row) -> None:
    """Run the handler and die before the commit of its chunk `number`."""

    def die(chunk: int) -> None:
        if chunk == number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(bulk_import, conn, claimed, before_commit=die)


def test_bulk_import_imports_everything(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = upload_many(conn, tenant, thing, 2000)
    claimed = claimed_import(conn)
    assert run(bulk_import, conn, claimed).chunks >= 3
    assert len(entities(conn, tenant)) == 2000
    assert the_import(conn, import_id)["report"] == {"rows": 2000, "imported": 2000, "rejected": 0, "errors": []}
    assert job(conn, claimed["id"])["status"] == "done"
    assert actions(conn, claimed["id"]) == ["job_enqueued", "job_done"]
    assert stale(conn) == 0


@pytest.mark.parametrize("number", [1, 2, 3])
def test_bulk_import_resumes_after_a_crash(conn: Connection, tenant: UUID, thing: UUID, number: int) -> None:
    import_id = upload_many(conn, tenant, thing, 1200)
    claimed = claimed_import(conn)
    crash_at(number, conn, claimed)
    before = len(entities(conn, tenant))
    assert before < 1200
    age(conn, claimed["id"])
    recover(conn)
    make_due(conn, claimed["id"])
    again = claimed_import(conn)
    with pytest.raises(LeaseLost):
        run(bulk_import, conn, claimed)
    assert len(entities(conn, tenant)) == before
    run(bulk_import, conn, again)
    kept = the_import(conn, import_id)
    assert (kept["rows_imported"], len(entities(conn, tenant))) == (1200, 1200)
    assert kept["status"] == "done"


def test_bulk_import_rejects_only_the_rows_that_the_database_refuses(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    """What no validation foresees: here a rule of the platform's own."""
    conn.execute("""
        create function pg_temp.check_name(p jsonb) returns boolean language plpgsql as $$
        begin
          return p ->> 'name' <> 'forbidden' and 1 / (case p ->> 'name' when 'zero' then 0 else 1 end) = 1;
        end $$
    """)
    conn.execute("alter table mdm.ddm_entity add constraint rule_check check (pg_temp.check_name(attributes))")
    try:
        names = {7: "forbidden", 600: "zero", 601: "forbidden"}
        given: list[tuple[Any, Any]] = [(str(n), {"name": names.get(n, f"n{n}")}) for n in range(1, 701)]
        import_id = upload(conn, tenant, thing, given)
        run(bulk_import, conn, claimed_import(conn))
    finally:
        conn.execute("alter table mdm.ddm_entity drop constraint rule_check")
    assert len(entities(conn, tenant)) == 697
    rejected = [(n, error) for n, (status, error) in enumerate(outcomes(conn, import_id), 1) if status == "rejected"]
    assert [n for n, _ in rejected] == [7, 600, 601]
    assert "rule_check" in (rejected[0][1] or "")
    assert rejected[1][1] == "division by zero"


def test_b118_bulk_import_of_bad_rows_alone_is_done_with_a_report(conn: Connection, tenant: UUID, thing: UUID) -> None:
    add_attribute(conn, thing, "height", "number", required=True)
    import_id = upload_many(conn, tenant, thing, 30)
    claimed = claimed_import(conn)
    run(bulk_import, conn, claimed)
    assert the_import(conn, import_id)["report"]["errors"] == [
        {"error": "height is required", "rows": 30, "first_row": 1}
    ]
    assert job(conn, claimed["id"])["attempts"] == 1
    assert entities(conn, tenant) == {}


def test_bulk_import_with_a_bad_payload_is_permanent(conn: Connection, tenant: UUID) -> None:
    enqueue(conn, "bulk_import", {"import_id": "none"}, tenant_id=tenant)
    with pytest.raises(PermanentError, match="names no upload"):
        run(bulk_import, conn, claimed_import(conn))


@pytest.mark.parametrize(("attempts", "status"), [(1, "running"), (5, "failed")])
def test_bulk_import_says_at_the_upload_that_it_gives_up(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID, attempts: int, status: str
) -> None:
    import_id = upload_many(conn, tenant, thing, 3)
    run_once = claimed_import(conn)
    run_once["attempts"] = attempts
    holder = connect()
    with holder.transaction():
        holder.execute(
            "insert into mdm.ddm_entity (tenant_id, entity_type_id, entity_key) values (%s, %s, '2')", (tenant, thing)
        )
        conn.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            run(bulk_import, conn, run_once)
        conn.execute("reset lock_timeout")
    kept = the_import(conn, import_id)
    assert kept["status"] == status
    assert ("lock timeout" in (kept["error"] or "")) == (status == "failed")


def test_next_rows_follows_the_time_that_chunks_take() -> None:
    assert next_rows(1000, CHUNK_SECONDS * 2) == 500
    assert next_rows(1000, 0.0) == 2000
    assert next_rows(4000, CHUNK_SECONDS / 8) == MAX_ROWS
    assert next_rows(1, 100.0) == 1
