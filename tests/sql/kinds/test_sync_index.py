"""mdm.sync_index, wants_index, fail_index, lock_index_builds: which DDL is due, and what is written (S2.7, S2.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from entities import make_type
from jobs import Connection, Row, call, claim_one, enqueue, fail, make_due, make_tenant, refused, rows, value

Connect = Callable[..., Connection]
KEYS = [
    "name",
    "a'b",
    'a"b',
    "a\\b",
    "mit Leerzeichen",
    "größe %s %%",
    "日本語" * 8,
    "k" * 60,
    "${x}; drop table mdm.ddm_entity; --",
]


@pytest.fixture
def own(connect: Connect, fresh_dsn: str) -> Connection:
    """A database of the test's own, for DDL."""
    return connect(dsn=fresh_dsn)


def claimed_sync(conn: Connection, type_id: UUID, key: str) -> Row:
    """Claim the job that the trigger enqueued, or one of our own."""
    if not rows(conn, "select from mdm.aa_job where status = 'pending' and payload ->> 'attribute_key' = %s", key):
        enqueue(conn, "index_sync", {"entity_type_id": str(type_id), "attribute_key": key})
    return claim_one(conn, "index_sync")


def steps(conn: Connection, claimed: Row) -> list[str]:
    return [row["statement"] for row in call(conn, "sync_index", job_id=claimed["id"], lease_no=claimed["lease_no"])]


def settle(conn: Connection, claimed: Row) -> list[str]:
    """Run what is due until nothing is; the first words of the statements."""
    ran: list[str] = []
    while due := steps(conn, claimed):
        for statement in due:
            conn.execute(statement.encode())
            ran.append(" ".join(statement.split()[:3]))
        assert len(ran) < 10, ran
    return ran


def attribute(conn: Connection, key: str) -> Row:
    [found] = rows(conn, "select * from mdm.ddm_entity_type_attribute where attribute_key = %s", key)
    return found


def indexes(conn: Connection) -> dict[str, bool]:
    """Our indexes: name -> valid."""
    return dict(
        conn.execute(
            """select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
               where i.indrelid = 'mdm.ddm_entity'::regclass and c.relname like 'ix\\_entity\\_attribute%'"""
        ).fetchall()
    )


def fill(conn: Connection, type_id: UUID, key: str) -> None:
    """Add entities, enough for the planner to want an index."""
    conn.execute(
        """insert into mdm.ddm_entity (tenant_id, entity_type_id, entity_key, attributes)
           select %s, %s, n, jsonb_build_object(%s::text, n::text) from generate_series(1, 2000) n""",
        (make_tenant(conn), type_id, key),
    )


def planned(conn: Connection, type_id: UUID, condition: LiteralString, *given: Any) -> str:
    """Return the plan of a query for entities of the type, names without the quoting of EXPLAIN."""
    query: LiteralString = "explain select from mdm.ddm_entity where entity_type_id = %s and " + condition
    plan = "\n".join(row[0] for row in psycopg.ClientCursor(conn).execute(query, (type_id, *given)))
    return plan.replace('""', '"')


BUILD = ["create index concurrently", "analyze mdm.ddm_entity"]


@pytest.mark.parametrize("key", KEYS)
def test_sync_index_builds_once_whatever_the_key(own: Connection, key: str) -> None:
    thing = make_type(own, "thing", searchable=[key])
    fill(own, thing, key)
    claimed = claimed_sync(own, thing, key)
    assert settle(own, claimed) == BUILD
    assert (attribute(own, key)["index_status"], list(indexes(own).values())) == ("active", [True])
    assert len(next(iter(indexes(own))).encode()) <= 63
    assert next(iter(indexes(own))) in planned(own, thing, "attributes ->> %s = '7'", key)
    # the drift check knows its own index again
    assert steps(own, claimed) == []


def test_index_names_keep_apart_what_looks_the_same(own: Connection) -> None:
    long = "k" * 60
    for type_key, key in [("a", long + "1"), ("a2", long + "1"), ("a3", long + "2")]:
        thing = make_type(own, type_key, searchable=[key])
        settle(own, claimed_sync(own, thing, key))
    assert len(indexes(own)) == 3


@pytest.mark.parametrize("type_key", [*KEYS, "x" * 38, "x" * 39])
def test_gin_index_whatever_the_type_key(own: Connection, type_key: str) -> None:
    thing = make_type(own, type_key)
    fill(own, thing, type_key)
    own.execute("update mdm.ddm_entity_type set is_external_source_target = true")
    claimed = claim_one(own, "gin_backfill")
    assert settle(own, claimed) == BUILD
    [name] = indexes(own)
    assert value(own, "select gin_index_status from mdm.ddm_entity_type") == "active"
    assert len(name.encode()) <= 63
    assert (name == "ix_entity_attributes_gin_" + type_key) == (len(type_key.encode()) <= 38)
    [definition] = rows(own, "select pg_get_indexdef(format('mdm.%%I', %s::text)::regclass) as d", name)
    assert "USING gin (attributes jsonb_path_ops) WHERE (entity_type_id = '" in definition["d"]
    assert name in planned(own, thing, "attributes @> %s", Jsonb({type_key: "7"}))
    own.execute("update mdm.ddm_entity_type set is_external_source_target = false")
    assert settle(own, claim_one(own, "gin_backfill")) == ["drop index concurrently"]
    assert (indexes(own), value(own, "select gin_index_status from mdm.ddm_entity_type")) == ({}, "none")


def test_sync_index_marks_building_before_and_active_after(own: Connection) -> None:
    thing = make_type(own, "thing", searchable=["name"])
    claimed = claimed_sync(own, thing, "name")
    assert attribute(own, "name")["index_status"] == "none"
    assert steps(own, claimed)
    assert attribute(own, "name")["index_status"] == "building"
    settle(own, claimed)
    assert attribute(own, "name")["index_status"] == "active"


def test_b99_invalid_leftover_is_dropped_and_never_taken_for_the_index(own: Connection) -> None:
    thing = make_type(own, "thing", searchable=["name"])
    claimed = claimed_sync(own, thing, "name")
    settle(own, claimed)
    own.execute(
        "update pg_index set indisvalid = false where indrelid = 'mdm.ddm_entity'::regclass and indexrelid ="
        " (select oid from pg_class where relname like 'ix\\_entity\\_attribute%')"
    )
    assert settle(own, claimed) == ["drop index concurrently", *BUILD]
    assert list(indexes(own).values()) == [True]


def test_drift_other_definition_under_the_name_is_replaced(own: Connection) -> None:
    thing = make_type(own, "thing", searchable=["size"])
    settle(own, claimed_sync(own, thing, "size"))
    own.execute("update mdm.ddm_entity_type_attribute set data_type = 'number', sortable = true")
    assert settle(own, claimed_sync(own, thing, "size")) == ["drop index concurrently", *BUILD]
    assert "::numeric" in value(
        own, "select pg_get_indexdef(oid) from pg_class where relname ~ '^ix_entity_attribute_'"
    )


def test_sync_index_drops_what_is_not_wanted_also_of_a_type_that_is_gone(own: Connection) -> None:
    thing = make_type(own, "thing", searchable=["name", "note"])
    for key in ("name", "note"):
        settle(own, claimed_sync(own, thing, key))
    own.execute("update mdm.ddm_entity_type_attribute set searchable = false where attribute_key = 'name'")
    assert settle(own, claimed_sync(own, thing, "name")) == ["drop index concurrently"]
    assert attribute(own, "name")["index_status"] == "none"
    own.execute("delete from mdm.ddm_entity_type")
    assert settle(own, claimed_sync(own, thing, "note")) == ["drop index concurrently"]
    assert indexes(own) == {}


def test_index_of_another_table_with_the_name_is_left_alone(own: Connection) -> None:
    thing = make_type(own, "thing", searchable=["name"])
    name = value(own, "select mdm._attribute_index_name(%s, 'name')", thing)
    own.execute(f"create index {name} on mdm.aa_tenant (name)".encode())
    assert [statement.split()[0] for statement in steps(own, claimed_sync(own, thing, "name"))] == ["create", "analyze"]


def test_wants_index_follows_the_toggle(conn: Connection) -> None:
    thing = make_type(conn, "thing", searchable=["name"])
    claimed = claimed_sync(conn, thing, "name")
    [build, _] = steps(conn, claimed)

    def wanted() -> bool:
        [row] = call(conn, "wants_index", job_id=claimed["id"], lease_no=claimed["lease_no"], statement=build)
        return bool(row["wants_index"])

    assert wanted()
    conn.execute("update mdm.ddm_entity_type_attribute set searchable = false, data_type = 'number'")
    assert not wanted()
    conn.execute("update mdm.ddm_entity_type_attribute set sortable = true")
    assert not wanted(), "another index is wanted"


def test_fail_index_is_failed_with_the_last_attempt_only(conn: Connection) -> None:
    thing = make_type(conn, "thing", searchable=["name"])
    claimed = claimed_sync(conn, thing, "name")
    for attempt in (1, 2, 3):
        steps(conn, claimed)
        [last] = call(conn, "fail_index", job_id=claimed["id"], lease_no=claimed["lease_no"], error="ä" * 1000)
        assert last["fail_index"] == (attempt == 3)
        found = attribute(conn, "name")
        assert found["index_status"] == ("failed" if attempt == 3 else "building")
        assert found["index_error"] == "ä" * 500
        fail(conn, claimed)
        if attempt < 3:
            make_due(conn, claimed["id"])
            claimed = claim_one(conn, "index_sync")


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"entity_type_id": "x", "attribute_key": "a"},
        {"entity_type_id": 1, "attribute_key": "a"},
        {"entity_type_id": "00000000-0000-0000-0000-000000000000"},
        {"entity_type_id": "00000000-0000-0000-0000-000000000000", "attribute_key": ""},
    ],
)
def test_bad_payload_is_mj005(conn: Connection, payload: dict[str, Any]) -> None:
    enqueue(conn, "index_sync", payload)
    claimed = claim_one(conn, "index_sync")
    with refused("MJ005"):
        steps(conn, claimed)


def test_job_of_another_kind_and_lost_lease_are_refused(conn: Connection) -> None:
    enqueue(conn, "reindex")
    claimed = claim_one(conn, "reindex")
    with refused("MJ005", match="builds no index"):
        steps(conn, claimed)
    for function, more in (("sync_index", {}), ("wants_index", {"statement": "x"}), ("fail_index", {"error": "x"})):
        with refused("MJ001"):
            call(conn, function, job_id=claimed["id"], lease_no=claimed["lease_no"] ^ 1, **more)


def test_worker_has_the_right_and_a_stranger_has_not(conn: Connection, connect: Connect) -> None:
    thing = make_type(conn, "thing", searchable=["name"])
    claimed = claimed_sync(conn, thing, "name")
    assert steps(connect(role="mdm_worker"), claimed)
    with refused("42501"):
        steps(connect(role="mdm_producer"), claimed)


def test_steward_who_holds_the_row_is_not_waited_for(conn: Connection, connect: Connect) -> None:
    thing = make_type(conn, "thing", searchable=["name"])
    claimed = claimed_sync(conn, thing, "name")
    steward = connect(autocommit=False)
    steward.execute("select from mdm.ddm_entity_type_attribute for update")
    with refused("55P03"):
        steps(conn, claimed)


def test_b100_lock_index_builds_is_for_one_session(connect: Connect) -> None:
    first, second = connect(role="mdm_indexer"), connect(role="mdm_indexer")
    assert value(first, "select mdm.lock_index_builds()") is True
    assert value(second, "select mdm.lock_index_builds()") is False


def test_lock_index_builds_names_the_grant(conn: Connection, connect: Connect) -> None:
    with refused("42501"):
        connect(role="mdm_worker").execute("select mdm.lock_index_builds()")
    conn.execute("grant execute on function mdm.lock_index_builds() to mdm_monitor")
    try:
        with refused("MJ007", match="test_mdm_monitor may not build indexes"):
            connect(role="mdm_monitor").execute("select mdm.lock_index_builds()")
    finally:
        conn.execute("revoke execute on function mdm.lock_index_builds() from mdm_monitor")


def test_payload_as_jsonb_reaches_the_function(conn: Connection) -> None:
    """A key that jsonb keeps and a text would not: the payload is taken as it is."""
    thing = make_type(conn, "thing", searchable=["tab\there"])
    call(
        conn,
        "enqueue_job",
        job_kind="index_sync",
        payload=Jsonb({"entity_type_id": str(thing), "attribute_key": "tab\there"}),
    )
    assert "tab\there" in steps(conn, claim_one(conn, "index_sync"))[0]


def test_gin_job_of_a_key_can_only_do_what_the_type_wants(own: Connection) -> None:
    """Whatever else a producer writes into the payload."""
    make_type(own, "thing")
    own.execute("update mdm.ddm_entity_type set is_external_source_target = true")
    settle(own, claim_one(own, "gin_backfill"))
    enqueue(own, "gin_backfill", {"type_key": "thing", "entity_type_id": "00000000-0000-0000-0000-000000000000"})
    assert settle(own, claim_one(own, "gin_backfill")) == []


def test_gin_index_follows_the_type_to_its_new_key(own: Connection) -> None:
    make_type(own, "thing")
    own.execute("update mdm.ddm_entity_type set is_external_source_target = true")
    settle(own, claim_one(own, "gin_backfill"))
    own.execute("update mdm.ddm_entity_type set type_key = 'new'")
    assert settle(own, claim_one(own, "gin_backfill")) == ["drop index concurrently"]
    assert settle(own, claim_one(own, "gin_backfill")) == BUILD
    assert indexes(own) == {"ix_entity_attributes_gin_new": True}
    assert value(own, "select gin_index_status from mdm.ddm_entity_type") == "active"
