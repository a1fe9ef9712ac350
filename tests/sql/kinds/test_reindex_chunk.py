"""mdm.reindex_chunk: rows of one tenant and type, chunk by chunk, beside writers (S2.3, D24)."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from time import monotonic
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from entities import add_entities, chunk, make_stale, make_type, progress, set_searchable, stale, words
from jobs import (
    Connection,
    Row,
    age,
    audit,
    call,
    claim_one,
    enqueue,
    fail,
    finish,
    make_due,
    make_tenant,
    recover,
    refused,
    release,
    rows,
    value,
)

Connect = Callable[..., Connection]


@pytest.fixture
def thing(conn: Connection) -> UUID:
    return make_type(conn, "thing", searchable=["name"], other=["note"])


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


@pytest.fixture
def worker(connect: Connect) -> Connection:
    """A session with the rights of a runner and no more."""
    return connect(role="mdm_worker")


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"name": f"name{number}", "note": f"note{number}"} for number in range(count)]


def claimed_reindex(conn: Connection, tenant_id: UUID | None, payload: Any = None) -> Row:
    """Enqueue a reindex and claim it."""
    enqueue(conn, payload=payload, tenant_id=tenant_id)
    return claim_one(conn)


def run(conn: Connection, claimed: Row, limit: int | None = None) -> list[Row]:
    """Run chunks to the end, the last with finish_job in it."""
    chunks: list[Row] = []
    while not chunks or not chunks[-1]["is_last"]:
        with conn.transaction():
            chunks.append(chunk(conn, claimed, limit))
            if chunks[-1]["is_last"]:
                finish(conn, claimed)
        assert len(chunks) < 100
    return chunks


# -- what is rebuilt


def test_reindex_chunk_rebuilds_every_row_once(conn: Connection, worker: Connection, tenant: UUID, thing: UUID) -> None:
    add_entities(conn, tenant, thing, numbered(25))
    make_stale(conn)
    claimed = claimed_reindex(conn, tenant, {"entity_type": "thing"})
    chunks = run(worker, claimed, limit=10)
    assert [(done["rows_rebuilt"], done["rows_changed"], done["is_last"]) for done in chunks] == [
        (10, 10, False), (10, 10, False), (5, 5, True),
    ]  # fmt: skip
    assert stale(conn) == 0
    kept = progress(conn, claimed["id"])
    assert kept is not None
    assert (kept["rows_rebuilt"], kept["rows_changed"], kept["chunks"]) == (25, 25, 3)


def test_reindex_chunk_of_exactly_full_chunks_ends_with_an_empty_one(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    add_entities(conn, tenant, thing, numbered(20))
    chunks = run(conn, claimed_reindex(conn, tenant, {"entity_type": "thing"}), limit=10)
    assert [done["rows_rebuilt"] for done in chunks] == [10, 10, 0]


def test_reindex_chunk_leaves_right_vectors_and_updated_at_alone(conn: Connection, tenant: UUID, thing: UUID) -> None:
    entities = add_entities(conn, tenant, thing, numbered(3))
    conn.execute("update mdm.ddm_entity set search_vector = null where id = %s", (entities[0],))
    before = rows(conn, "select id, xmin::text, updated_at from mdm.ddm_entity order by id")
    [done] = run(conn, claimed_reindex(conn, tenant))
    after = rows(conn, "select id, xmin::text, updated_at from mdm.ddm_entity order by id")
    assert (done["rows_rebuilt"], done["rows_changed"]) == (3, 1)
    assert before[1:] == after[1:]
    assert before[0]["updated_at"] == after[0]["updated_at"]


def test_reindex_chunk_of_a_type_without_rows_is_the_last(conn: Connection, tenant: UUID, thing: UUID) -> None:
    [done] = run(conn, claimed_reindex(conn, tenant, {"entity_type": "thing"}))
    assert (done["rows_rebuilt"], done["is_last"], done["blocked_by"]) == (0, True, None)


@pytest.mark.parametrize("whole_tenant", [False, True])
@pytest.mark.parametrize("all_tenants", [False, True])
def test_reindex_chunk_keeps_to_tenant_and_type(conn: Connection, all_tenants: bool, whole_tenant: bool) -> None:
    tenants = [make_tenant(conn) for _ in range(3)]
    types = {key: make_type(conn, key, searchable=["name"]) for key in ("a", "b", "c")}
    for tenant_id in tenants:
        for type_id in types.values():
            add_entities(conn, tenant_id, type_id, numbered(3))
    make_stale(conn)
    claimed = claimed_reindex(conn, None if all_tenants else tenants[1], {} if whole_tenant else {"entity_type": "b"})
    chunks = run(conn, claimed, limit=2)
    expected = 3 * (3 if all_tenants else 1) * (3 if whole_tenant else 1)
    assert sum(done["rows_rebuilt"] for done in chunks) == expected
    assert stale(conn) == 27 - expected
    left = rows(conn, "select distinct tenant_id, entity_type_id from mdm.ddm_entity where search_vector = 'stale'")
    rebuilt = {(t, k) for t in tenants for k in types.values()} - {(r["tenant_id"], r["entity_type_id"]) for r in left}
    wanted_tenants = tenants if all_tenants else [tenants[1]]
    wanted_types = types.values() if whole_tenant else [types["b"]]
    assert rebuilt == {(t, k) for t in wanted_tenants for k in wanted_types}


def test_reindex_chunk_takes_the_extreme_ids(conn: Connection, tenant: UUID, thing: UUID) -> None:
    for entity in (UUID(int=0), UUID(int=2**128 - 1)):
        conn.execute(
            "insert into mdm.ddm_entity (id, tenant_id, entity_type_id, entity_key) values (%s, %s, %s, %s)",
            (entity, tenant, thing, str(entity)),
        )
    make_stale(conn)
    chunks = run(conn, claimed_reindex(conn, None), limit=1)
    assert [done["rows_rebuilt"] for done in chunks] == [1, 1, 0]
    assert stale(conn) == 0


def test_reindex_chunk_takes_null_nested_and_monstrous_attributes(conn: Connection, tenant: UUID, thing: UUID) -> None:
    add_entities(conn, tenant, thing, [
        {"name": None}, {}, {"name": ["a", {"b": None}]}, {"name": 7}, {"name": "x" * 3_000_000},
        {"name": " ".join(f"w{number}" for number in range(300_000))},
    ])  # fmt: skip
    make_stale(conn)
    [done] = run(conn, claimed_reindex(conn, tenant))
    assert (done["rows_rebuilt"], stale(conn)) == (6, 0)


def test_reindex_chunk_empties_the_vectors_of_a_type_without_searchable_attributes(
    conn: Connection, tenant: UUID
) -> None:
    bare = make_type(conn, "bare")
    [entity] = add_entities(conn, tenant, bare, [{"name": "x"}])
    make_stale(conn)
    run(conn, claimed_reindex(conn, tenant))
    assert words(conn, entity) == set()


# -- bad input


@pytest.mark.parametrize(
    "payload",
    [
        {"entity_type": "nothing"},
        {"entity_type": ""},
        {"entity_type": 7},
        {"entity_type": None},
        {"entity_type": ["thing"]},
        {"type": "thing"},
        {"entity_type": "thing", "x": 1},
    ],
)
def test_reindex_chunk_refuses_a_bad_payload(conn: Connection, tenant: UUID, thing: UUID, payload: Any) -> None:
    claimed = claimed_reindex(conn, tenant, payload)
    with refused("MJ005"):
        chunk(conn, claimed)
    assert progress(conn, claimed["id"]) is None


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_reindex_chunk_refuses_a_limit_out_of_range(conn: Connection, tenant: UUID, limit: int) -> None:
    claimed = claimed_reindex(conn, tenant)
    with refused("MJ005", match="p_limit"):
        chunk(conn, claimed, limit)


def test_reindex_chunk_refuses_a_job_of_another_kind(conn: Connection) -> None:
    enqueue(conn, "cleanup_jobs")
    claimed = claim_one(conn, "cleanup_jobs")
    with refused("MJ005", match="no reindex"):
        chunk(conn, claimed)


def test_reindex_chunk_is_for_workers_only(connect: Connect) -> None:
    for role in ("mdm_producer", "mdm_monitor"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connect(role=role).execute("select mdm.reindex_chunk(1, 1)")


# -- lease, crash, retry


def test_reindex_chunk_of_a_zombie_writes_nothing(conn: Connection, tenant: UUID, thing: UUID) -> None:
    add_entities(conn, tenant, thing, numbered(5))
    make_stale(conn)
    zombie = claimed_reindex(conn, tenant)
    age(conn, zombie["id"])
    assert recover(conn) == {zombie["id"]: "pending"}
    owner = claim_one(conn)
    with refused("MJ001", detail="claimed again"):
        chunk(conn, zombie)
    assert stale(conn) == 5
    assert progress(conn, zombie["id"]) is None
    run(conn, owner)
    with refused("MJ001"):
        chunk(conn, zombie)


def test_reindex_chunk_holds_recovery_off_until_it_commits(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    add_entities(conn, tenant, thing, numbered(5))
    claimed = claimed_reindex(conn, tenant)
    age(conn, claimed["id"])
    session = connect()
    with session.transaction():
        chunk(session, claimed, 2)
        assert recover(conn) == {}
    assert recover(conn) == {claimed["id"]: "pending"}


def test_reindex_chunk_resumes_behind_the_last_commit(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    add_entities(conn, tenant, thing, numbered(10))
    make_stale(conn)
    first = claimed_reindex(conn, tenant)
    chunk(conn, first, 4)
    crashed = connect()
    crashed.autocommit = False
    chunk(crashed, first, 4)
    assert value(conn, "select pg_terminate_backend(%s, 10000)", crashed.info.backend_pid)
    assert stale(conn) == 6
    age(conn, first["id"])
    recover(conn)
    chunks = run(conn, claim_one(conn), limit=4)
    assert [done["rows_rebuilt"] for done in chunks] == [4, 2]
    kept = progress(conn, first["id"])
    assert kept is not None
    assert (kept["rows_rebuilt"], kept["chunks"], stale(conn)) == (10, 3, 0)


@pytest.mark.parametrize("end", ["fail", "release"])
def test_reindex_chunk_resumes_after_a_retry(conn: Connection, tenant: UUID, thing: UUID, end: str) -> None:
    add_entities(conn, tenant, thing, numbered(5))
    claimed = claimed_reindex(conn, tenant)
    chunk(conn, claimed, 3)
    fail(conn, claimed) if end == "fail" else release(conn, claimed)
    make_due(conn, claimed["id"])
    [done] = run(conn, claim_one(conn))
    assert done["rows_rebuilt"] == 2


def test_reindex_chunk_starts_anew_when_a_steward_changes_the_attributes(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    add_entities(conn, tenant, thing, numbered(6))
    claimed = claimed_reindex(conn, tenant, {"entity_type": "thing"})
    chunk(conn, claimed, 4)
    set_searchable(conn, thing, "note")
    chunks = run(conn, claimed, limit=4)
    assert [done["rows_rebuilt"] for done in chunks] == [4, 2]
    assert stale(conn) == 0


def test_reindex_chunk_starts_anew_when_an_update_changes_what_is_asked(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    other = make_type(conn, "other", searchable=["name"])
    add_entities(conn, tenant, thing, numbered(4))
    add_entities(conn, tenant, other, numbered(4))
    make_stale(conn)
    job_id = enqueue(conn, payload={"entity_type": "thing"}, tenant_id=tenant, idempotency_key="k")
    claimed = claim_one(conn)
    chunk(conn, claimed, 2)
    release(conn, claimed)
    again = enqueue(conn, payload={}, tenant_id=tenant, idempotency_key="k", on_conflict="update")
    assert again == job_id
    run(conn, claim_one(conn), limit=3)
    assert stale(conn) == 0


def test_reindex_chunk_ignores_another_types_attributes(conn: Connection, tenant: UUID, thing: UUID) -> None:
    other = make_type(conn, "other", other=["name"])
    add_entities(conn, tenant, thing, numbered(4))
    claimed = claimed_reindex(conn, tenant, {"entity_type": "thing"})
    chunk(conn, claimed, 2)
    set_searchable(conn, other, "name")
    assert chunk(conn, claimed, 3)["rows_rebuilt"] == 2


@pytest.mark.parametrize("end", ["discard", "replay", "purge"])
def test_reindex_progress_goes_with_the_job(conn: Connection, tenant: UUID, thing: UUID, end: str) -> None:
    add_entities(conn, tenant, thing, numbered(4))
    claimed = claimed_reindex(conn, tenant)
    chunk(conn, claimed, 2)
    if end == "purge":
        run(conn, claimed)
        conn.execute("update mdm.aa_job set completed_at = completed_at - interval '10000 hours'")
        assert value(conn, "select mdm.purge_jobs()") == 1
    else:
        fail(conn, claimed, retryable=False)
        call(conn, f"{end}_job", job_id=claimed["id"])
    assert progress(conn, claimed["id"]) is None


# -- beside writers and readers


def test_reindex_chunk_is_right_about_rows_that_change_before_and_behind_it(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    entities = add_entities(conn, tenant, thing, numbered(6))
    set_searchable(conn, thing, "note")
    claimed = claimed_reindex(conn, tenant)
    session = connect()
    with session.transaction():
        assert chunk(session, claimed, 3)["rows_rebuilt"] == 3
        conn.execute(RENAME, (Jsonb({"name": "ahead"}), entities[4]))
        conn.execute("delete from mdm.ddm_entity where id = %s", (entities[5],))
    conn.execute(RENAME, (Jsonb({"note": "behind"}), entities[0]))
    add_entities(conn, tenant, thing, [{"name": "new", "note": "row"}])
    run(conn, claimed, limit=1)
    assert stale(conn) == 0
    assert words(conn, entities[0]) == {"behind"}
    assert words(conn, entities[4]) == {"ahead"}


def test_reindex_chunk_stops_before_a_row_that_somebody_holds(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    entities = add_entities(conn, tenant, thing, numbered(6))
    make_stale(conn)
    claimed = claimed_reindex(conn, tenant)
    assert chunk(conn, claimed, 1)["rows_rebuilt"] == 1
    holder = connect()
    with holder.transaction():
        holder.execute(RENAME, (Jsonb({"name": "late"}), entities[3]))
        done = chunk(conn, claimed, 10)
        assert (done["rows_rebuilt"], done["is_last"]) == (2, False)
        assert str(entities[3]) in done["blocked_by"]
        again = chunk(conn, claimed, 10)
        assert (again["rows_rebuilt"], again["is_last"]) == (0, False)
    [last] = run(conn, claimed)
    assert (last["rows_rebuilt"], last["blocked_by"]) == (3, None)
    assert stale(conn) == 0
    assert words(conn, entities[3]) == {"late"}


def test_reindex_chunk_leaves_out_a_row_that_is_being_deleted(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    entities = add_entities(conn, tenant, thing, numbered(3))
    claimed = claimed_reindex(conn, tenant)
    chunk(conn, claimed, 1)
    deleter = connect()
    with deleter.transaction():
        deleter.execute("delete from mdm.ddm_entity where id = %s", (entities[2],))
        done = chunk(conn, claimed)
        assert (done["rows_rebuilt"], done["is_last"]) == (1, False)
    [last] = run(conn, claimed)
    assert (last["rows_rebuilt"], last["is_last"]) == (0, True)


def test_reindex_chunk_waits_for_inserts_made_with_older_attributes(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    writer = connect()
    with writer.transaction():
        add_entities(writer, tenant, thing, [{"name": "a", "note": "unseen"}])
        set_searchable(conn, thing, "note")
        claimed = claimed_reindex(conn, tenant)
        done = chunk(conn, claimed)
        assert (done["rows_rebuilt"], done["is_last"]) == (0, False)
        assert "ddm_entity" in done["blocked_by"]
        assert not chunk(conn, claimed)["is_last"]
    run(conn, claimed)
    assert stale(conn) == 0


def test_reindex_chunk_does_not_wait_for_the_chunks_of_other_reindexes(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    other = make_tenant(conn)
    for one in (tenant, other):
        add_entities(conn, one, thing, numbered(3))
    make_stale(conn)
    first, second = claimed_reindex(conn, tenant), claimed_reindex(conn, other)
    session = connect()
    with session.transaction():
        assert chunk(session, first)["rows_changed"] == 3
        assert chunk(conn, second)["is_last"]


def test_reindex_chunk_does_not_wait_for_writers_that_came_later(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    add_entities(conn, tenant, thing, numbered(4))
    claimed = claimed_reindex(conn, tenant)
    chunk(conn, claimed, 2)
    writer = connect()
    with writer.transaction():
        add_entities(writer, make_tenant(conn), thing, numbered(1))
        assert chunk(conn, claimed)["is_last"]


def test_reindex_chunk_stops_neither_readers_nor_writers_of_other_rows(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    entities = add_entities(conn, tenant, thing, numbered(6))
    make_stale(conn)
    claimed = claimed_reindex(conn, tenant)
    session, other = connect(), connect()
    other.execute("set lock_timeout = '100ms'")
    with session.transaction():
        chunk(session, claimed, 3)
        assert value(other, "select count(*) from mdm.ddm_entity") == 6
        other.execute("update mdm.ddm_entity set attributes = '{}' where id = %s", (entities[4],))
        add_entities(other, tenant, thing, numbered(1))
        # a foreign key asks for a key share lock, which passes
        other.execute(
            "insert into mdm.ddm_attachment (tenant_id, entity_id, storage_key) values (%s, %s, 'x')",
            (tenant, entities[0]),
        )
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("update mdm.ddm_entity set attributes = '{}' where id = %s", (entities[0],))


def test_reindex_chunk_never_waits_and_so_is_in_no_deadlock(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    _, second, third = add_entities(conn, tenant, thing, numbered(3))
    make_stale(conn)
    claimed = claimed_reindex(conn, tenant)
    chunk(conn, claimed, 1)
    session, writer = connect(), connect()
    with writer.transaction():
        # the writer takes its rows against the order of the reindex
        writer.execute(RENAME, (Jsonb({"name": "w"}), third))
        with session.transaction():
            assert chunk(session, claimed)["rows_rebuilt"] == 1
            thread = Thread(target=writer.execute, args=(RENAME, (Jsonb({"name": "w"}), second)))
            thread.start()
            wait_until_blocked(conn, writer)
            assert chunk(session, claimed)["rows_rebuilt"] == 0
        thread.join(60)
        assert not thread.is_alive()
    run(conn, claimed)
    assert stale(conn) == 0
    assert words(conn, second) == words(conn, third) == {"w"}


RENAME: LiteralString = "update mdm.ddm_entity set attributes = %s where id = %s"


def wait_until_blocked(conn: Connection, session: Connection) -> None:
    """Return when the session waits for a lock."""
    deadline = monotonic() + 60
    while not value(conn, "select cardinality(pg_blocking_pids(%s)) > 0", session.info.backend_pid):
        assert monotonic() < deadline, "it does not wait"


def test_reindex_chunk_of_two_jobs_on_the_same_rows_rebuilds_them_all(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    add_entities(conn, tenant, thing, numbered(6))
    make_stale(conn)
    one, two = claimed_reindex(conn, tenant), claimed_reindex(conn, tenant)
    chunk(conn, one, 1)
    session = connect()
    with session.transaction():
        chunk(session, one, 3)
        assert not chunk(conn, two)["is_last"]
    run(conn, two)
    run(conn, one)
    assert stale(conn) == 0


def test_reindex_chunk_and_finish_are_one_transaction(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    add_entities(conn, tenant, thing, numbered(3))
    make_stale(conn)
    claimed = claimed_reindex(conn, tenant)
    session = connect()
    with pytest.raises(ZeroDivisionError), session.transaction():
        chunk(session, claimed)
        finish(session, claimed)
        raise ZeroDivisionError
    assert stale(conn) == 3
    assert progress(conn, claimed["id"]) is None
    run(conn, claimed)
    assert [row["action"] for row in audit(conn, claimed["id"])] == ["job_enqueued", "job_done"]


# -- plans


@pytest.mark.slow
def test_reindex_chunk_reads_little_more_than_its_rows(fresh_dsn: str, connect: Connect) -> None:
    """60,000 rows, statistics of an empty table: a chunk of 100 rows reads a part of its 6,000 buffers."""
    conn = connect(dsn=fresh_dsn)
    conn.execute("alter table mdm.ddm_entity set (autovacuum_enabled = off)")
    conn.execute("alter table mdm.ddm_entity disable trigger ddm_entity_search_vector")
    tenants = [make_tenant(conn) for _ in range(3)]
    types = [make_type(conn, key, searchable=["name"]) for key in ("a", "b")]
    conn.execute("analyze mdm.ddm_entity")
    for tenant_id in tenants:
        for type_id in types:
            conn.execute(
                """insert into mdm.ddm_entity (tenant_id, entity_type_id, entity_key, attributes)
                   select %s, %s, i::text, jsonb_build_object('name', 'n' || i, 'note', repeat(md5(i::text), 20))
                   from generate_series(1, 10000) i""",
                (tenant_id, type_id),
            )
    for tenant_id, payload in [(tenants[1], {"entity_type": "a"}), (tenants[1], {}), (None, {})]:
        claimed = claimed_reindex(conn, tenant_id, payload)
        chunk(conn, claimed, 100)
        before = heap_reads(conn)
        assert chunk(conn, claimed, 100)["rows_rebuilt"] == 100
        assert 0 < heap_reads(conn) - before < 2500


def heap_reads(conn: Connection) -> int:
    """Return the buffers of ddm_entity that this session has asked for so far, with everybody else's."""
    conn.execute("select pg_stat_force_next_flush()")
    query: LiteralString = (
        "select heap_blks_hit + heap_blks_read from pg_statio_all_tables where relid = 'mdm.ddm_entity'::regclass"
    )
    return int(value(conn, query))
