"""v_reindex_progress (S2.3): an operator sees how far a reindex has come."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from entities import add_entities, make_type
from jobs import Connection, Row, call, claim_one, enqueue, fail, finish, make_tenant, rows

Connect = Callable[..., Connection]


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    """A tenant with 8 things and 4 others; another tenant has 2 things."""
    tenant, thing, other = make_tenant(conn, "one"), make_type(conn, "thing", ["name"]), make_type(conn, "other")
    add_entities(conn, tenant, thing, [{"name": str(n)} for n in range(8)])
    add_entities(conn, tenant, other, [{} for _ in range(4)])
    add_entities(conn, make_tenant(conn, "two"), thing, [{}, {}])
    return tenant


def step(conn: Connection, claimed: Row, limit: int) -> bool:
    [done] = call(conn, "reindex_chunk", job_id=claimed["id"], lease_no=claimed["lease_no"], limit=limit)
    return bool(done["is_last"])


def progress(conn: Connection) -> list[Row]:
    return rows(conn, "select * from mdm.v_reindex_progress")


def test_progress_grows_chunk_by_chunk_and_goes_when_done(conn: Connection, connect: Connect, tenant: UUID) -> None:
    enqueue(conn, payload={"entity_type": "thing"}, tenant_id=tenant)
    monitor = connect(role="mdm_monitor")
    assert progress(monitor) == [], "it has not begun"
    claimed = claim_one(conn)
    step(conn, claimed, 3)
    [row] = progress(monitor)
    assert (row["id"], row["status"], row["tenant_id"], row["type_key"]) == (claimed["id"], "running", tenant, "thing")
    assert (row["rows_rebuilt"], row["rows_registered"], float(row["percent"])) == (3, 8, 37.5)
    assert row["started_at"] <= row["last_chunk_at"]
    assert step(conn, claimed, 100)
    assert float(progress(monitor)[0]["percent"]) == 100
    finish(conn, claimed)
    assert progress(monitor) == []


@pytest.mark.parametrize(
    ("payload", "of_all_tenants", "registered"),
    [({}, False, 12), ({"entity_type": "other"}, False, 4), ({"entity_type": "thing"}, True, 10), ({}, True, 14)],
)
def test_rows_registered_are_those_of_the_scope(
    conn: Connection, tenant: UUID, payload: dict[str, str], of_all_tenants: bool, registered: int
) -> None:
    enqueue(conn, payload=payload, tenant_id=None if of_all_tenants else tenant)
    claimed = claim_one(conn)
    assert step(conn, claimed, 100)
    [row] = progress(conn)
    assert (row["rows_rebuilt"], row["rows_registered"]) == (registered, registered)


def test_reindex_that_waits_or_is_dead_stays_visible(conn: Connection, tenant: UUID) -> None:
    enqueue(conn, payload={"entity_type": "thing"}, tenant_id=tenant)
    claimed = claim_one(conn)
    step(conn, claimed, 2)
    fail(conn, claimed, retryable=False)
    [row] = progress(conn)
    assert (row["status"], float(row["percent"])) == ("dlq", 25)


def test_scope_without_rows_is_complete(conn: Connection, tenant: UUID) -> None:
    make_type(conn, "empty")
    enqueue(conn, payload={"entity_type": "empty"}, tenant_id=tenant)
    assert step(conn, claim_one(conn), 10)
    assert float(progress(conn)[0]["percent"]) == 100
