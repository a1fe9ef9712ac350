"""A job that crashes the server: a claim made in trust may be forgotten, but the job does not go on for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from cluster import crash
from jobrunner import devserver, outage, schema, slot
from jobrunner.db.connect import Target
from jobrunner.db.session import Session
from jobrunner.db.worker import claim_job
from jobrunner.devserver import Server
from jobrunner.job import Context, Job
from jobs import Connection, enqueue, job, make_kind, violations
from runnerkit import eventually, serving

pytestmark = pytest.mark.one_leg("18")

Connect = Callable[..., Connection]


@pytest.fixture
def server(own_server: Server, connect: Connect) -> Server:
    """A server that writes nothing to the disk unless somebody waits for it."""
    schema.migrate(own_server.dsn())
    admin = connect(dsn=own_server.dsn())
    admin.execute("alter system set synchronous_commit = 'on'")
    admin.execute("alter system set wal_writer_delay = '10s'")
    admin.execute("alter system set autovacuum = off")
    admin.execute("select pg_reload_conf()")
    make_kind(admin, "crashing", max_attempts=2, base_delay="0.1 seconds", max_delay="0.1 seconds")
    admin.close()
    restart(own_server)
    return own_server


def restart(server: Server) -> None:
    crash(server)
    devserver.start(server.base, server.bin)


@pytest.mark.parametrize(("durable", "status"), [(True, "running"), (False, "pending")])
def test_journey_crash_forgets_a_claim_that_did_not_wait(
    server: Server, connect: Connect, durable: bool, status: str
) -> None:
    db = connect(dsn=server.dsn())
    job_id = enqueue(db, "crashing")
    session = Session(Target(server.dsn()), "test")
    call = claim_job(worker_id="h/1/w", kinds=["crashing"], tenant_ids=None, limit=1, floor=None, durable=durable)
    [row] = session.run(call)
    restart(server)
    found = job(connect(dsn=server.dsn()), job_id)
    assert (found["status"], found["attempts"]) == (status, 1 if durable else 0)
    with pytest.raises(psycopg.OperationalError):
        session.run(call)
    again = session.run(call)
    assert [other.id for other in again] == ([] if durable else [row.id])
    assert row.lease_no not in {other.lease_no for other in again}, "the late worker has no lease any more"
    session.close()


def test_journey_job_that_crashes_the_server_ends_in_the_dlq(
    server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "TRUSTED_SECONDS", 3.0)
    durable: list[bool] = []
    monkeypatch.setattr(slot, "claim_job", lambda **given: durable.append(given["durable"]) or claim_job(**given))
    claimed: list[bool] = []

    def crashing(job: Job, ctx: Context) -> None:
        claimed.append(durable[-1])
        conn = ctx.connection()
        os.kill(conn.info.backend_pid, signal.SIGKILL)
        conn.execute("select pg_sleep(60)")

    def found() -> Any:
        try:
            with psycopg.connect(server.dsn(), row_factory=dict_row) as conn:
                return job(conn, job_id)
        except psycopg.OperationalError:  # not back yet
            return {"status": "away"}

    with serving(server.dsn(), {"crashing": crashing}):
        eventually(lambda: durable and not durable[-1])
        job_id = enqueue(connect(dsn=server.dsn()), "crashing")
        eventually(lambda: found()["status"] == "dlq", 120)
    assert not claimed[0], "the first claim was made in trust"
    assert len(claimed) >= found()["attempts"] + 1, "it was forgotten"
    assert violations(connect(dsn=server.dsn())) == {}
