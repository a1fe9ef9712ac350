"""The kinds index_sync and gin_backfill on a real server: builds, leftovers, locks, toggles (S2.7, S2.8; B99-B104)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from entities import add_entities, make_type
from jobrunner.errors import Cancelled, PermanentError, RetryLater, Snooze, UsageError
from jobrunner.handlers.index_builds import MAX_ROUNDS, build_index, snooze_seconds, sync
from jobs import (
    Connection,
    Row,
    actions,
    age,
    claim_one,
    enqueue,
    fail,
    make_due,
    make_tenant,
    recover,
    rows,
    status,
    value,
)
from lent import LentContext, as_job, run
from runnerkit import drain, eventually

Connect = Callable[..., Connection]
ENTITIES = 2000  # enough for the planner to want an index
FEW = 100
BOTH = {"index_sync": build_index, "gin_backfill": build_index}


@pytest.fixture
def own(connect: Connect, fresh_dsn: str) -> Connection:
    """A database of the test's own, for DDL."""
    return connect(dsn=fresh_dsn)


@pytest.fixture
def worker(connect: Connect, fresh_dsn: str) -> Connection:
    """The connection of a slot: the rights of mdm_worker and no more."""
    return connect(dsn=fresh_dsn, role="mdm_worker")


@pytest.fixture(autouse=True)
def ddl_dsn(fresh_dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A runner with a DDL login that has mdm_indexer and no more."""
    dsn = make_conninfo(fresh_dsn, user="test_mdm_indexer")
    monkeypatch.setenv("JOBRUNNER_DDL_DSN", dsn)
    monkeypatch.setenv("JOBRUNNER_DDL_WATCH_SECONDS", "0.05")
    return dsn


@pytest.fixture
def thing(own: Connection) -> UUID:
    """A type with entities and one attribute that wants an index."""
    thing = make_type(own, "thing", searchable=["name"], other=["size"])
    fill(own, thing, FEW)
    return thing


def fill(conn: Connection, thing: UUID, count: int) -> None:
    """Add entities."""
    tenant = make_tenant(conn)
    add_entities(conn, tenant, thing, ({"name": f"name{n}", "size": n, "tag": [n % 7]} for n in range(count)))


def claimed_sync(conn: Connection) -> Row:
    return claim_one(conn, "index_sync")


def again(conn: Connection, claimed: Row) -> Row:
    """Fail the run and claim the job anew."""
    fail(conn, claimed)
    make_due(conn, claimed["id"])
    return claimed_sync(conn)


def attribute(conn: Connection, key: str = "name") -> tuple[str, str | None]:
    [found] = rows(conn, "select * from mdm.ddm_entity_type_attribute where attribute_key = %s", key)
    return found["index_status"], found["index_error"]


def indexes(conn: Connection) -> list[bool]:
    """Of our indexes, whether they are valid."""
    found = conn.execute(
        """select i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
           where i.indrelid = 'mdm.ddm_entity'::regclass and c.relname ~ '^ix_entity_attribute'"""
    )
    return [row[0] for row in found]


def plan(conn: Connection, query: str) -> str:
    return "\n".join(row[0] for row in conn.execute(f"explain {query}".encode()))


def toggle(conn: Connection, on: bool, key: str = "name") -> None:
    conn.execute("update mdm.ddm_entity_type_attribute set searchable = %s where attribute_key = %s", (on, key))


def building(conn: Connection) -> bool:
    """Whether a build is under way."""
    return bool(
        value(
            conn,
            "select count(*) from pg_stat_activity where state = 'active' and query ~ '^create index concurrently'",
        )
    )


@contextmanager
def writer(connect: Connect, dsn: str, thing: UUID) -> Iterator[Connection]:
    """A transaction that has written to the table and stays open: builds wait for it."""
    with connect(dsn=dsn, autocommit=False) as conn:
        conn.execute("update mdm.ddm_entity set attributes = attributes || '{}' where entity_type_id = %s", (thing,))
        yield conn


class Background:
    """A handler that runs in a thread; `error` is what came out."""

    def __init__(self, conn: Connection, claimed: Row) -> None:
        self.context = LentContext(conn, claimed)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(claimed,))
        self._thread.start()

    def _run(self, claimed: Row) -> None:
        try:
            build_index(as_job(claimed), self.context)
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive(), "the handler does not end"


# -- what is built is used


def test_index_sync_builds_what_the_planner_uses(own: Connection, worker: Connection, thing: UUID) -> None:
    fill(own, thing, ENTITIES)
    claimed = claimed_sync(own)
    run(build_index, worker, claimed)
    assert (indexes(own), attribute(own), status(own, claimed["id"])) == ([True], ("active", None), "done")
    assert actions(own, claimed["id"]) == ["job_enqueued", "job_done"]
    equal = plan(
        own, f"select * from mdm.ddm_entity where entity_type_id = '{thing}' and attributes ->> 'name' = 'name7'"
    )
    assert "ix_entity_attribute_name_" in equal
    first = plan(
        own, f"select * from mdm.ddm_entity where entity_type_id = '{thing}' order by attributes ->> 'name' limit 5"
    )
    assert "ix_entity_attribute_name_" in first
    assert "Sort" not in first


def test_index_sync_sorts_numbers_as_numbers(own: Connection, worker: Connection, thing: UUID) -> None:
    fill(own, thing, ENTITIES)
    run(build_index, worker, claimed_sync(own))
    own.execute(
        "update mdm.ddm_entity_type_attribute set sortable = true, data_type = 'number' where attribute_key = 'size'"
    )
    run(build_index, worker, claimed_sync(own))
    query = f"""select (attributes ->> 'size')::numeric from mdm.ddm_entity
                where entity_type_id = '{thing}' order by (attributes ->> 'size')::numeric desc limit 2"""
    assert "ix_entity_attribute_size_" in plan(own, query)
    assert [row[0] for row in own.execute(query.encode())] == [ENTITIES - 1, ENTITIES - 2]


def test_gin_backfill_builds_what_the_planner_uses(own: Connection, worker: Connection, thing: UUID) -> None:
    fill(own, thing, ENTITIES)
    own.execute("update mdm.ddm_entity_type set is_external_source_target = true")
    claimed = claim_one(own, "gin_backfill")
    run(build_index, worker, claimed)
    assert value(own, "select gin_index_status from mdm.ddm_entity_type") == "active"
    query = f"""select * from mdm.ddm_entity where entity_type_id = '{thing}' and attributes @> '{{"name": "name7"}}'"""
    assert "ix_entity_attributes_gin_thing" in plan(own, query)


def test_toggle_off_drops_the_index(own: Connection, worker: Connection, thing: UUID) -> None:
    run(build_index, worker, claimed_sync(own))
    toggle(own, False)
    run(build_index, worker, claimed_sync(own))
    assert (indexes(own), attribute(own)) == ([], ("none", None))


def test_second_job_of_the_same_attribute_finds_nothing_to_do(own: Connection, worker: Connection, thing: UUID) -> None:
    run(build_index, worker, claimed_sync(own))
    before = value(own, "select oid from pg_class where relname ~ '^ix_entity_attribute'")
    enqueue(own, "index_sync", {"entity_type_id": str(thing), "attribute_key": "name"})
    run(build_index, worker, claimed_sync(own))
    assert value(own, "select oid from pg_class where relname ~ '^ix_entity_attribute'") == before


# -- failures


def test_b99_cancelled_build_leaves_no_invalid_index_and_the_third_failure_is_final(
    own: Connection, worker: Connection, connect: Connect, fresh_dsn: str, thing: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBRUNNER_DDL_STATEMENT_TIMEOUT_SECONDS", "0.5")
    claimed = claimed_sync(own)
    with writer(connect, fresh_dsn, thing):
        for attempt in (1, 2, 3):
            with pytest.raises(psycopg.errors.QueryCanceled):
                run(build_index, worker, claimed)
            said, error = attribute(own)
            assert said == ("failed" if attempt == 3 else "building")
            assert error is not None
            assert "statement timeout" in error
            claimed = again(own, claimed) if attempt < 3 else claimed
    fail(own, claimed)
    assert status(own, claimed["id"]) == "dlq"
    # its own drop had to wait for the writer as well; the writer is gone, and a toggle brings all of it in order
    toggle(own, False)
    run(build_index, worker, claimed_sync(own))
    assert (indexes(own), attribute(own)) == ([], ("none", None))


def test_b99_after_the_third_failure_no_invalid_index_is_left(own: Connection, worker: Connection, thing: UUID) -> None:
    own.execute("delete from mdm.aa_job")  # that of the attribute as it was
    own.execute(
        "update mdm.ddm_entity_type_attribute set sortable = true, data_type = 'number' where attribute_key = 'name'"
    )
    claimed = claimed_sync(own)
    for attempt in (1, 2, 3):
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            run(build_index, worker, claimed)
        assert indexes(own) == []
        assert attribute(own)[0] == ("failed" if attempt == 3 else "building")
        claimed = again(own, claimed) if attempt < 3 else claimed
    error = attribute(own)[1]
    assert error is not None
    assert "invalid input syntax for type numeric" in error
    # a steward who corrects it gets a new job, and the index
    own.execute("update mdm.ddm_entity_type_attribute set data_type = 'text' where attribute_key = 'name'")
    fail(own, claimed)
    run(build_index, worker, claimed_sync(own))
    assert (indexes(own), attribute(own)) == ([True], ("active", None))


def test_b99_leftover_of_a_killed_build_is_replaced(own: Connection, worker: Connection, thing: UUID) -> None:
    """The server was killed in the middle: the index is there, invalid, and nobody tidied up."""
    claimed = claimed_sync(own)
    run(build_index, worker, claimed)
    own.execute(
        "update pg_index set indisvalid = false"
        " where indexrelid = (select oid from pg_class where relname ~ '^ix_entity_attribute')"
    )
    enqueue(own, "index_sync", {"entity_type_id": str(thing), "attribute_key": "name"})
    run(build_index, worker, claimed_sync(own))
    assert (indexes(own), attribute(own)) == ([True], ("active", None))


def test_b101_crash_between_build_and_finish_only_finishes(own: Connection, worker: Connection, thing: UUID) -> None:
    claimed = claimed_sync(own)

    def crash(number: int) -> None:
        if number == 2:
            raise SystemExit

    with pytest.raises(SystemExit):
        build_index(as_job(claimed), LentContext(worker, claimed, before_commit=crash))
    assert (indexes(own), attribute(own)) == ([True], ("building", None))
    before = value(own, "select oid from pg_class where relname ~ '^ix_entity_attribute'")
    age(own, claimed["id"])
    assert recover(own) == {claimed["id"]: "pending"}
    context = run(build_index, worker, claimed_sync(own))
    assert context.chunks == 1
    assert value(own, "select oid from pg_class where relname ~ '^ix_entity_attribute'") == before
    assert (attribute(own), status(own, claimed["id"])) == (("active", None), "done")


def test_b104_own_limits_outlive_a_short_lock_timeout_of_the_role(
    own: Connection, worker: Connection, connect: Connect, fresh_dsn: str, thing: UUID
) -> None:
    own.execute(f"alter role test_mdm_indexer in database {own.info.dbname} set lock_timeout = '100ms'".encode())
    with writer(connect, fresh_dsn, thing) as busy:
        work = Background(worker, claimed_sync(own))
        eventually(lambda: building(own))
        seen = value(own, "select now() from pg_stat_activity where query ~ '^create index concurrently'")
        eventually(lambda: value(own, "select clock_timestamp() - %s > interval '0.5 s'", seen))
        assert building(own), "the role's limit has ended the build"
        busy.rollback()
    work.join()
    assert work.error is None
    assert (indexes(own), attribute(own)) == ([True], ("active", None))


def test_b104_lock_timeout_of_our_own_fails_as_transient(
    own: Connection, worker: Connection, connect: Connect, fresh_dsn: str, thing: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBRUNNER_DDL_LOCK_TIMEOUT_SECONDS", "0.3")
    claimed = claimed_sync(own)
    with writer(connect, fresh_dsn, thing), pytest.raises(psycopg.errors.LockNotAvailable):
        run(build_index, worker, claimed)
    run(build_index, worker, again(own, claimed))
    assert (indexes(own), attribute(own)) == ([True], ("active", None))


def test_b104_toggle_off_ends_a_build_under_way(
    own: Connection, worker: Connection, connect: Connect, fresh_dsn: str, thing: UUID
) -> None:
    claimed = claimed_sync(own)
    with writer(connect, fresh_dsn, thing) as busy:
        work = Background(worker, claimed)
        eventually(lambda: building(own))
        toggle(own, False)
        eventually(lambda: not building(own))
        busy.rollback()
    work.join()
    assert work.error is None
    assert (indexes(own), attribute(own)) == ([], ("none", None))
    assert status(own, claimed["id"]) == "done"
    run(build_index, worker, claimed_sync(own))
    assert (indexes(own), attribute(own)) == ([], ("none", None))


def test_cancelled_handler_ends_its_build(
    own: Connection, worker: Connection, connect: Connect, fresh_dsn: str, thing: UUID
) -> None:
    claimed = claimed_sync(own)
    with writer(connect, fresh_dsn, thing):
        work = Background(worker, claimed)
        eventually(lambda: building(own))
        work.context.cancelled = True
        work.join()
        assert isinstance(work.error, Cancelled)
        eventually(lambda: not building(own))
    run(build_index, worker, again(own, claimed))
    assert (indexes(own), attribute(own)) == ([True], ("active", None))


def test_lost_lease_ends_the_build(
    own: Connection, worker: Connection, connect: Connect, fresh_dsn: str, thing: UUID
) -> None:
    claimed = claimed_sync(own)
    with writer(connect, fresh_dsn, thing):
        work = Background(worker, claimed)
        eventually(lambda: building(own))
        age(own, claimed["id"])
        eventually(lambda: recover(own))
        work.join()
        assert "lease" in str(work.error)
        eventually(lambda: not building(own))


# -- several at once


def test_b100_second_build_on_the_table_gives_its_job_back(
    own: Connection, worker: Connection, connect: Connect, ddl_dsn: str, thing: UUID
) -> None:
    assert value(connect(dsn=ddl_dsn), "select mdm.lock_index_builds()") is True
    with pytest.raises(Snooze, match="another index"):
        run(build_index, worker, claimed_sync(own))
    assert (indexes(own), attribute(own)) == ([], ("none", None))


def test_b100_four_at_once_are_all_valid_and_cost_no_attempt(own: Connection, fresh_dsn: str, thing: UUID) -> None:
    own.execute("update mdm.ddm_entity_type_attribute set searchable = true")
    own.execute("update mdm.ddm_entity_type set is_external_source_target = true")
    make_type(own, "other", searchable=["a"])
    tally = drain(make_conninfo(fresh_dsn, user="test_mdm_worker"), BOTH, concurrency=4)
    while value(own, "select count(*) from mdm.aa_job where status = 'pending'"):
        own.execute("update mdm.aa_job set available_at = clock_timestamp() where status = 'pending'")
        tally = drain(make_conninfo(fresh_dsn, user="test_mdm_worker"), BOTH, concurrency=4)
    assert tally.dead == 0
    assert indexes(own) == [True] * 4
    assert rows(own, "select distinct status::text, attempts from mdm.aa_job") == [{"status": "done", "attempts": 1}]


def test_snooze_grows_to_a_limit() -> None:
    assert [snooze_seconds(releases) for releases in (0, 1, 2, 3)] == [2, 4, 8, 15]
    assert snooze_seconds(2**31 - 1) == 15


# -- a DDL session that fails as told


class Failing:
    """A DDL session (Ddl) that runs what it is given on a connection, and then raises what it is told."""

    def __init__(self, conn: Connection, *errors: Exception | None, between: Callable[[], None] = lambda: None) -> None:
        self.conn = conn
        self.errors = list(errors)
        self.between = between
        self.ran: list[str] = []

    def lock(self) -> bool:
        return True

    def run(self, statement: str, watch: Callable[[], None]) -> None:
        self.ran.append(statement.split()[0])
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.conn.execute(statement.encode())
        self.between()


def test_b100_deadlock_with_others_costs_no_attempt(own: Connection, worker: Connection, thing: UUID) -> None:
    claimed = claimed_sync(own)
    ddl = Failing(own, psycopg.errors.DeadlockDetected("deadlock detected"))
    with pytest.raises(Snooze, match="deadlock"):
        sync(as_job(claimed), LentContext(worker, claimed), ddl)
    assert (ddl.ran, attribute(own)) == (["create"], ("building", None))


def test_failed_analyze_of_a_valid_index_is_no_failure(own: Connection, worker: Connection, thing: UUID) -> None:
    claimed = claimed_sync(own)
    ddl = Failing(own, None, psycopg.errors.QueryCanceled("canceling statement"))
    sync(as_job(claimed), LentContext(worker, claimed), ddl)
    assert (ddl.ran, attribute(own), status(own, claimed["id"])) == (["create", "analyze"], ("active", None), "done")


def test_leftover_that_cannot_be_dropped_does_not_hide_why_the_build_failed(
    own: Connection, worker: Connection, thing: UUID
) -> None:
    claimed = claimed_sync(own)
    invalid = "update pg_index set indisvalid = false where indexrelid::regclass::text ~ 'ix_entity_attribute'"
    ddl = Failing(own, None, psycopg.errors.DiskFull("no space"), psycopg.errors.LockNotAvailable("lock timeout"))
    ddl.between = lambda: own.execute(invalid) and None
    with pytest.raises(psycopg.errors.DiskFull):
        sync(as_job(claimed), LentContext(worker, claimed), ddl)
    assert (ddl.ran, attribute(own)) == (["create", "analyze", "drop"], ("building", "no space"))
    run(build_index, worker, again(own, claimed))
    assert (indexes(own), attribute(own)) == ([True], ("active", None))


def test_toggled_all_the_time_is_tried_again_later(own: Connection, worker: Connection, thing: UUID) -> None:
    claimed = claimed_sync(own)
    ddl = Failing(own)

    def toggle_again() -> None:
        if ddl.ran[-1] != "analyze":
            own.execute("update mdm.ddm_entity_type_attribute set searchable = not searchable")

    ddl.between = toggle_again
    with pytest.raises(RetryLater, match="toggled"):
        sync(as_job(claimed), LentContext(worker, claimed), ddl)
    assert len(ddl.ran) >= MAX_ROUNDS


# -- settings


def test_runner_without_settings_gives_the_job_back(
    own: Connection, worker: Connection, thing: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBRUNNER_DDL_DSN")
    with pytest.raises(Snooze, match="grant mdm_indexer"):
        run(build_index, worker, claimed_sync(own))


def test_login_without_the_grant_is_named(
    own: Connection, worker: Connection, thing: UUID, fresh_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBRUNNER_DDL_DSN", make_conninfo(fresh_dsn, user="test_mdm_worker"))
    with pytest.raises(UsageError, match="grant mdm_indexer"):
        run(build_index, worker, claimed_sync(own))


@pytest.mark.parametrize("kind", list(BOTH))
def test_bad_payload_is_permanent(own: Connection, worker: Connection, kind: str) -> None:
    enqueue(own, kind, {"entity_type_id": "x"})
    with pytest.raises(PermanentError, match="names no"):
        run(build_index, worker, claim_one(own, kind))


def test_steward_who_holds_the_row_costs_no_attempt(
    own: Connection, worker: Connection, connect: Connect, fresh_dsn: str, thing: UUID
) -> None:
    claimed = claimed_sync(own)
    steward: Any = connect(dsn=fresh_dsn, autocommit=False)
    steward.execute("select from mdm.ddm_entity_type_attribute for update")
    with pytest.raises(Snooze, match="holds the row"):
        run(build_index, worker, claimed)
