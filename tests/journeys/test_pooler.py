"""Journeys through pgbouncer in transaction mode (D19, B57, B59)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from cluster import PgServer
from jobrunner.db.connect import Target
from jobrunner.db.session import Session
from jobrunner.db.worker import claim_job, finish_jobs
from jobs import Connection, enqueue, make_kind, make_tenant, status, statuses, value, violations
from pgbouncer import pgbouncer, through
from runnerkit import TERM, eventually, jobrunner, options, run, serving
from testhandlers import TABLE

pytestmark = pytest.mark.one_leg("15")

Connect = Callable[..., Connection]
KINDS = ("noop", "effect", "loud", "raises")


@pytest.fixture
def pooled(pg_server: PgServer, dsn: str, conn: Connection) -> Iterator[str]:
    """The shared database by way of a pooler with two connections, fewer than its clients."""
    for kind in KINDS:
        make_kind(conn, kind, max_attempts=3, base_delay="1 second", max_delay="1 second")
    conn.execute("drop table if exists public.effect")
    conn.execute(TABLE)
    with pgbouncer(pg_server.server, servers=2) as port:
        yield through(dsn, port)
    conn.execute("drop table public.effect")


def test_b57_pooler_360_claims_of_six_clients_through_two_connections(conn: Connection, pooled: str) -> None:
    for _ in range(360):
        enqueue(conn, "noop")
    errors: list[BaseException] = []

    def work() -> None:
        session = Session(Target(pooled, pooler=True), "six")
        claim = claim_job(worker_id="w/1/1", kinds=["noop"], tenant_ids=None, limit=1, floor=None)
        try:
            for _ in range(60):
                [row] = session.run(claim)
                assert session.run(finish_jobs(job_ids=[row.id], lease_nos=[row.lease_no])) == {row.id}
        except BaseException as error:
            errors.append(error)
        session.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert statuses(conn) == {"done": 360}
    assert violations(conn) == {}


def test_b57_pooler_without_the_option_is_what_prepared_statements_break_on(conn: Connection, pooled: str) -> None:
    """The trap itself: named statements of several clients meet on one connection."""
    session = psycopg.connect(pooled, autocommit=True, prepare_threshold=0)
    other = psycopg.connect(pooled, autocommit=True, prepare_threshold=0)
    with pytest.raises((psycopg.errors.DuplicatePreparedStatement, psycopg.errors.InvalidSqlStatementName)):
        for number in range(20):
            session.execute("select %s::int", (number,))
            other.execute("select %s::text", (str(number),))
    session.close()
    other.close()


def test_pooler_journey_of_the_whole_life(conn: Connection, pooled: str, dsn: str) -> None:
    """Writes, failures, snoozes, dead jobs, chunks of reindex, heartbeats and the rate limit by way of the pooler."""
    tenant = make_tenant(conn, metadata={"rate_limit": {"noop": {"rps": 5, "burst": 2}}})
    jobs = [enqueue(conn, "effect") for _ in range(60)]
    throttled = [enqueue(conn, "noop", tenant_id=tenant) for _ in range(6)]
    dead = enqueue(conn, "raises", {"error": "permanent"})
    again = enqueue(conn, "raises", {"error": "error"})
    chunked = enqueue(conn, "reindex")
    arguments = options(["noop", "effect", "raises", "reindex"], "--pooler", "--drain-all")
    code, out, err = run(pooled, *arguments)
    assert (code, [line for line in err.splitlines() if " job_" not in line]) == (0, [])
    counted = dict(conn.execute("select job_id, count(*) from public.effect group by job_id").fetchall())
    assert counted == dict.fromkeys(jobs, 1)
    assert {status(conn, each) for each in [*jobs, *throttled, chunked]} == {"done"}
    assert (status(conn, dead), status(conn, again)) == ("dlq", "dlq")
    assert "done 67," in out.splitlines()[-1]
    assert violations(conn) == {}


def test_pooler_journey_sigterm_gives_back(conn: Connection, pooled: str) -> None:
    job_id = enqueue(conn, "loud", {"seconds": 60})
    with jobrunner(pooled, *options(["loud"], "--pooler", "--grace", "0")) as command:
        eventually(lambda: value(conn, "select count(*) from public.effect"))
        command.signal(TERM)
        assert command.end() == 5
    assert status(conn, job_id) == "pending"
    assert value(conn, "select count(*) from mdm.aa_job_runner") == 0


def test_pooler_is_detected_and_said(conn: Connection, pooled: str) -> None:
    job_id = enqueue(conn, "noop")
    code, _, err = run(pooled, *options(["noop"], "--drain"))
    assert (code, status(conn, job_id)) == (0, "done")
    assert len(err.splitlines()) == 1
    assert "pooler_detected" in err
    assert "--listen-dsn" in err


def test_pooler_no_pooler_is_detected_on_a_direct_connection(conn: Connection, dsn: str) -> None:
    make_kind(conn, "noop")
    code, _, err = run(dsn, *options(["noop"], "--drain"))
    assert (code, err) == (0, "")


@pytest.mark.parametrize("deaf", [True, False])
def test_b59_pooler_listen_is_tested_and_polling_takes_over(
    conn: Connection, pooled: str, dsn: str, deaf: bool, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """LISTEN by way of the pooler succeeds and hears nothing; on a direct connection it hears at once."""
    monkeypatch.setattr("jobrunner.doorbell.PROOF_SECONDS", 1.0 if deaf else 20.0)
    target = Target(pooled, pooler=True)
    with serving(
        pooled, {"noop": lambda job, ctx: None}, target=target, listen=target if deaf else Target(dsn)
    ) as served:
        doorbell = served.pool._doorbell
        if deaf:
            eventually(lambda: doorbell._listen_at > 0)
        else:
            eventually(lambda: doorbell.session.current is not None and doorbell._proof_by is None)
        jobs = [enqueue(conn, "noop") for _ in range(10)]
        eventually(lambda: {status(conn, job_id) for job_id in jobs} == {"done"})
    assert [record.message for record in caplog.records].count("listen_deaf") == deaf


def test_b59_doorbell_hears_nothing_from_another_database(
    conn: Connection, dsn: str, fresh_dsn: str, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jobrunner.doorbell.PROOF_SECONDS", 0.5)
    make_kind(conn, "noop")
    with serving(dsn, {"noop": lambda job, ctx: None}, listen=Target(fresh_dsn)) as served:
        eventually(lambda: served.pool._doorbell._warned)
        job_id = enqueue(conn, "noop")
        eventually(lambda: status(conn, job_id) == "done")
    assert [record.message for record in caplog.records].count("listen_deaf") == 1
