"""A producer in another driver: pg8000, native interface, server-side parameter types (B17, B24, B86)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pg8000.native
import pytest

from cluster import PgServer
from jobs import Connection, actions, claim, claim_one, job, make_tenant, snapshot

ENQUEUE = """
    select mdm.enqueue_job(
      p_job_kind => :job_kind, p_payload => :payload, p_tenant_id => :tenant_id, p_idempotency_key => :idempotency_key,
      p_on_conflict => :on_conflict, p_priority => :priority, p_available_at => :available_at,
      p_max_attempts => :max_attempts, p_context => :context, p_actor_principal_id => :actor_principal_id)
"""
NAMES = (
    "job_kind",
    "payload",
    "tenant_id",
    "idempotency_key",
    "on_conflict",
    "priority",
    "available_at",
    "max_attempts",
    "context",
    "actor_principal_id",
)


@pytest.fixture
def producers(pg_server: PgServer, conn: Connection) -> Iterator[Callable[..., pg8000.native.Connection]]:
    """Open pg8000 connections as the login test_mdm_producer."""
    opened = []
    path = pg_server.server.socket_dir / f".s.PGSQL.{pg_server.port}"

    def open_one(role: str = "mdm_producer") -> pg8000.native.Connection:
        connection = pg8000.native.Connection(f"test_{role}", database=conn.info.dbname, unix_sock=str(path))
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def producer(producers: Callable[..., pg8000.native.Connection]) -> pg8000.native.Connection:
    return producers()


def enqueue(producer: pg8000.native.Connection, **parameters: Any) -> int:
    """Call enqueue_job with every parameter named; those not given are None, which means their default (D13)."""
    given = {**dict.fromkeys(NAMES), "job_kind": "reindex", **parameters}
    [[job_id]] = producer.run(ENQUEUE, **given)
    return int(job_id)


def sqlstate(raised: pytest.ExceptionInfo[pg8000.native.DatabaseError]) -> str:
    return str(raised.value.args[0]["C"])


def test_pg8000_enqueues_with_every_parameter(conn: Connection, producer: pg8000.native.Connection) -> None:
    tenant_id, actor = make_tenant(conn), uuid4()
    due = datetime(2031, 5, 6, 7, 8, tzinfo=UTC)
    job_id = enqueue(
        producer,
        job_kind="email_send",
        payload={"to": ["a@example.com"], "subject": "äöü €"},
        tenant_id=tenant_id,
        idempotency_key="k",
        on_conflict="update",
        priority=7,
        available_at=due,
        max_attempts=2,
        context={"traceparent": "00-1"},
        actor_principal_id=str(actor),
    )
    row = job(conn, job_id)
    assert row["payload"] == {"to": ["a@example.com"], "subject": "äöü €"}
    assert (row["tenant_id"], row["idempotency_key"], row["available_at"]) == (tenant_id, "k", due)
    assert (row["priority"], row["max_attempts"], row["context"]) == (7, 2, {"traceparent": "00-1"})
    assert actions(conn, job_id) == ["job_enqueued"]


def test_pg8000_enqueues_with_none_for_all_else(conn: Connection, producer: pg8000.native.Connection) -> None:
    row = job(conn, enqueue(producer))
    assert (row["payload"], row["priority"], row["max_attempts"], row["status"]) == ({}, 120, 5, "pending")


def test_pg8000_takes_payloads_as_text_too(conn: Connection, producer: pg8000.native.Connection) -> None:
    assert job(conn, enqueue(producer, payload='{"a": [1, null]}'))["payload"] == {"a": [1, None]}


def test_pg8000_enqueues_in_its_own_transaction(conn: Connection, producer: pg8000.native.Connection) -> None:
    producer.run("begin")
    enqueue(producer)
    assert claim(conn) == []
    producer.run("rollback")
    assert snapshot(conn) == []
    producer.run("begin")
    job_id = enqueue(producer)
    producer.run("commit")
    assert claim_one(conn)["id"] == job_id


def test_pg8000_enqueues_many_and_reads_the_answer(conn: Connection, producer: pg8000.native.Connection) -> None:
    jobs = [{"job_kind": "reindex", "idempotency_key": "k", "payload": {"n": n}} for n in range(2)]
    # as text: a list would become an array of jsonb
    rows = producer.run("select ord, job_id, outcome from mdm.enqueue_jobs(:jobs) order by ord", jobs=json.dumps(jobs))
    assert [(row[0], row[2]) for row in rows] == [(1, "inserted"), (2, "existing")]
    assert job(conn, rows[0][1])["payload"] == {"n": 0}


def test_pg8000_asks_for_the_state(conn: Connection, producer: pg8000.native.Connection) -> None:
    job_id = enqueue(producer)
    claim_one(conn)
    rows = producer.run("select status, attempts from mdm.get_job(:id)", id=job_id)
    assert rows == [["running", 1]]


def test_b24_aware_times_are_the_same_instant_in_every_session(
    conn: Connection, producer: pg8000.native.Connection
) -> None:
    due = datetime(2031, 7, 1, 12, tzinfo=UTC)
    for zone in ("Europe/Berlin", "UTC", "America/New_York"):
        producer.run(f"set timezone = '{zone}'")
        assert job(conn, enqueue(producer, available_at=due))["available_at"] == due


@pytest.mark.parametrize("driver", ["pg8000", "psycopg"])
def test_b24_naive_times_are_read_in_the_sessions_time_zone(
    conn: Connection,
    connect: Callable[..., Connection],
    producers: Callable[..., pg8000.native.Connection],
    driver: str,
) -> None:
    """PostgreSQL's rule, and the reason why a producer passes aware datetimes: noon is another instant in each zone."""
    naive = datetime(2031, 7, 1, 12)
    for zone, hour in (("Europe/Berlin", 10), ("UTC", 12), ("America/New_York", 16)):
        if driver == "pg8000":
            producer = producers()
            producer.run(f"set timezone = '{zone}'")
            job_id = enqueue(producer, available_at=naive)
        else:
            other = connect(role="mdm_producer")
            other.execute(f"set timezone = '{zone}'".encode())
            row = other.execute("select mdm.enqueue_job('reindex', p_available_at => %s)", (naive,)).fetchone()
            assert row is not None
            job_id = row[0]
        assert job(conn, job_id)["available_at"] == datetime(2031, 7, 1, hour, tzinfo=UTC)


def test_pg8000_works_jobs_off_with_arrays_and_intervals(
    conn: Connection, producers: Callable[..., pg8000.native.Connection]
) -> None:
    """A worker in any language is a loop over a few calls."""
    tenant_id = make_tenant(conn)
    for _ in range(4):
        enqueue(producers(), tenant_id=tenant_id)
    worker = producers("mdm_worker")
    claimed = worker.run(
        "select id, lease_no, payload, claimed_at from mdm.claim_job('host/1/x', :kinds, :tenants, 4)",
        kinds=["reindex", "email_send"],
        tenants=[tenant_id],
    )
    ids, leases = [row[0] for row in claimed], [row[1] for row in claimed]
    assert len(ids) == 4
    assert all(isinstance(row[2], dict) and row[3].tzinfo for row in claimed)
    assert worker.run("select alive from mdm.extend_jobs(:i, :l)", i=ids, l=leases) == [[True]] * 4
    assert worker.run("select * from mdm.finish_jobs(:i, :l)", i=ids[:1], l=leases[:1]) == [[ids[0]]]
    delays = [timedelta(minutes=5), None]
    released = worker.run("select * from mdm.release_jobs(:i, :l, :d)", i=ids[1:3], l=leases[1:3], d=delays)
    assert sorted(released) == [[ids[1]], [ids[2]]]
    [[status, available_at]] = worker.run(
        "select * from mdm.fail_job(:i, :l, 'broken', p_retry_after => :d)", i=ids[3], l=leases[3], d=timedelta(hours=1)
    )
    assert (status, available_at.tzinfo is not None) == ("pending", True)
    assert worker.run("select id from mdm.claim_job('host/1/x', :kinds)", kinds=["reindex"]) == [[ids[2]]]
    assert worker.run("select id from mdm.claim_job('host/1/x', :kinds)", kinds=[]) == []


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"job_kind": "nope"}, "MJ003"),
        ({"job_kind": None}, "MJ003"),
        ({"payload": "[1]"}, "MJ005"),
        ({"payload": "no json"}, "22P02"),
        ({"payload": '{"a": "\\u0000"}'}, "22P05"),
        ({"payload": {"a": "x\x00y"}}, "22P05"),
        ({"tenant_id": uuid4()}, "MJ005"),
        ({"tenant_id": "no uuid"}, "22P02"),
        ({"idempotency_key": ""}, "MJ005"),
        ({"idempotency_key": "a\x00b"}, "22021"),
        ({"on_conflict": "replace"}, "MJ005"),
        ({"max_attempts": 0}, "MJ005"),
        ({"priority": 2**31}, "22003"),
    ],
)
def test_b86_pg8000_errors_carry_their_sqlstate_and_leave_nothing(
    conn: Connection, producer: pg8000.native.Connection, parameters: Any, code: str
) -> None:
    with pytest.raises(pg8000.native.DatabaseError) as raised:
        enqueue(producer, **parameters)
    assert sqlstate(raised) == code
    assert snapshot(conn) == []
    enqueue(producer)  # the connection goes on


def test_pg8000_error_names_the_remedy(producer: pg8000.native.Connection) -> None:
    with pytest.raises(pg8000.native.DatabaseError) as raised:
        enqueue(producer, job_kind="nope")
    error = raised.value.args[0]
    assert (error["M"], "set_job_kind" in error["H"]) == ("unknown job kind 'nope'", True)


def test_b17_nul_in_an_error_text_is_refused_and_the_job_stays_running(
    conn: Connection, producers: Callable[..., pg8000.native.Connection]
) -> None:
    """The server takes no NUL and says so before anything happens: the text is cleaned before the call."""
    enqueue(producers())
    claimed = claim_one(conn)
    worker = producers("mdm_worker")
    with pytest.raises(pg8000.native.DatabaseError) as raised:
        worker.run("select mdm.fail_job(:i, :l, :e)", i=claimed["id"], l=claimed["lease_no"], e="a\x00b")
    assert sqlstate(raised) == "22021"
    worker.run("select mdm.fail_job(:i, :l, :e)", i=claimed["id"], l=claimed["lease_no"], e="ab")
    assert job(conn, claimed["id"])["last_error"] == "ab"


def test_pg8000_lost_lease_is_mj001(conn: Connection, producers: Callable[..., pg8000.native.Connection]) -> None:
    enqueue(producers())
    claimed = claim_one(conn)
    with pytest.raises(pg8000.native.DatabaseError) as raised:
        producers("mdm_worker").run("select mdm.finish_job(:i, 1)", i=claimed["id"])
    assert (sqlstate(raised), raised.value.args[0]["D"]) == ("MJ001", "claimed again")


def test_pg8000_producer_may_do_no_more(producer: pg8000.native.Connection) -> None:
    with pytest.raises(pg8000.native.DatabaseError) as raised:
        producer.run("select mdm.claim_job('w', '{reindex}')")
    assert sqlstate(raised) == "42501"
