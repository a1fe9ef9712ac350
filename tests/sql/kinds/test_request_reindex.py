"""mdm.request_reindex: a steward's reindex, one a tenant and type while it waits (S2.3, D6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from entities import add_entities, chunk, make_type, progress
from jobs import Connection, actions, audit, call, claim, claim_one, fail, finish, job, make_due, make_tenant, refused

Connect = Callable[..., Connection]


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


@pytest.fixture
def thing(conn: Connection) -> UUID:
    return make_type(conn, "thing", searchable=["name"])


def request(conn: Connection, tenant_id: UUID | None, *entity_type: str | None, **parameters: Any) -> int:
    """Ask for a reindex and return the job's id."""
    scope = {"entity_type": entity_type[0]} if entity_type else {}
    return int(call(conn, "request_reindex", tenant_id=tenant_id, **scope, **parameters)[0]["request_reindex"])


def test_request_reindex_is_one_job_while_it_waits_and_one_more_while_it_runs(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    first = request(conn, tenant, "thing")
    assert request(conn, tenant, "thing") == first
    assert (job(conn, first)["payload"], job(conn, first)["tenant_id"]) == ({"entity_type": "thing"}, tenant)
    running = claim_one(conn)
    second = request(conn, tenant, "thing")
    assert (second == first, request(conn, tenant, "thing") == second) == (False, True)
    finish(conn, running)
    finish(conn, claim_one(conn))
    assert request(conn, tenant, "thing") > second, "after the end it is a new one"


def test_request_reindex_keeps_tenants_and_types_apart(conn: Connection, tenant: UUID, thing: UUID) -> None:
    make_type(conn, "other")
    scopes = [(tenant, "thing"), (tenant, "other"), (tenant, None), (None, "thing"), (None, None)]
    made = [request(conn, *scope) for scope in scopes]
    assert len(set(made)) == len(scopes)
    assert [request(conn, *scope) for scope in scopes] == made
    assert (request(conn, tenant), job(conn, made[2])["payload"]) == (made[2], {})


def test_request_reindex_belongs_to_the_callers_transaction(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    steward = connect(role="mdm_producer", autocommit=False)
    request(steward, tenant, "thing")
    steward.rollback()
    assert claim(conn) == []
    waiting = request(conn, tenant, "thing")
    assert request(steward, tenant, "thing") == waiting
    assert claim(conn) == [], "a worker would not see what the steward has written"
    steward.commit()
    assert claim_one(conn)["id"] == waiting


def test_request_reindex_makes_one_that_waits_for_its_retry_begin_again(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    add_entities(conn, tenant, thing, [{"name": "a"}, {"name": "b"}])
    waiting = request(conn, tenant, "thing")
    claimed = claim_one(conn)
    chunk(conn, claimed, 1)
    fail(conn, claimed)
    before = job(conn, waiting)["available_at"]
    assert request(conn, tenant, "thing") == waiting
    assert (progress(conn, waiting), job(conn, waiting)["available_at"]) == (None, before)
    make_due(conn, waiting)
    assert chunk(conn, claim_one(conn), 100)["rows_rebuilt"] == 2


def test_request_reindex_names_the_actor(conn: Connection, tenant: UUID, thing: UUID) -> None:
    steward = uuid4()
    job_id = request(conn, tenant, "thing", actor_principal_id=steward)
    assert [row["actor_principal_id"] for row in audit(conn, job_id)] == [steward]
    assert actions(conn, job_id) == ["job_enqueued"]


def test_request_reindex_refuses_what_it_does_not_know(conn: Connection, tenant: UUID, thing: UUID) -> None:
    with refused("MJ005", match="entity type nothing does not exist"):
        request(conn, tenant, "nothing")
    with refused("MJ005"):
        request(conn, uuid4(), "thing")
    assert claim(conn) == []


def test_request_reindex_is_for_producers(connect: Connect, tenant: UUID, thing: UUID) -> None:
    with refused("42501"):
        request(connect(role="mdm_worker"), tenant, "thing")
