"""The calls of a worker that are more than one function (db/worker.py)."""

from __future__ import annotations

import pytest

from jobrunner.db.call import read, send
from jobrunner.db.connect import Target
from jobrunner.db.session import BEGIN, COMMIT, Session
from jobrunner.db.worker import claim_job, finish_and_claim, finish_jobs
from jobs import Connection, claim, enqueue, statuses, value

pytestmark = pytest.mark.one_leg("15")

CLAIM = claim_job(worker_id="h/1/w", kinds=["reindex"], tenant_ids=None, limit=3, floor=None)


@pytest.mark.parametrize("pooler", [False, True])
def test_worker_finishes_and_claims_in_one_transaction(conn: Connection, dsn: str, pooler: bool) -> None:
    for priority in (1, 2, 9, 7, 8, 6):
        enqueue(conn, priority=priority)
    ran, stale = claim(conn, limit=2)
    session = Session(Target(dsn, pooler=pooler), "test")
    finish = finish_jobs(job_ids=[ran["id"], stale["id"]], lease_nos=[ran["lease_no"], 1])
    accepted, rows = session.run(finish_and_claim(finish, CLAIM))
    assert accepted == {ran["id"]}
    assert [(row.priority, row.claimed_by) for row in rows] == [(6, "h/1/w"), (7, "h/1/w"), (8, "h/1/w")]
    assert statuses(conn) == {"done": 1, "running": 4, "pending": 1}
    written = "select count(distinct xmin::text) from mdm.aa_job where id = any (%s)"
    assert value(conn, written, [ran["id"], *(row.id for row in rows)]) == 1
    session.close()


@pytest.mark.parametrize(("durable", "setting"), [(True, "on"), (False, "off")])
def test_worker_claim_waits_for_the_disk_or_not_for_its_own_transaction_only(
    conn: Connection, dsn: str, durable: bool, setting: str
) -> None:
    job_id = enqueue(conn)
    call = claim_job(worker_id="h/1/w", kinds=["reindex"], tenant_ids=None, limit=3, floor=None, durable=durable)
    session = Session(Target(dsn), "test")
    raw = session.connection()
    raw.execute("set synchronous_commit = 'on'")
    send(raw, BEGIN)
    assert [row.id for row in read(send(raw, call), call)] == [job_id]
    assert raw.execute("show synchronous_commit").fetchone() == (setting,)
    send(raw, COMMIT)
    assert raw.execute("show synchronous_commit").fetchone() == ("on",)
    assert session.run(call) == []
    session.close()


def test_worker_finish_and_claim_waits_for_the_disk(conn: Connection, dsn: str) -> None:
    enqueue(conn)
    [ran] = claim(conn)
    call = claim_job(worker_id="h/1/w", kinds=["reindex"], tenant_ids=None, limit=3, floor=None, durable=False)
    both = finish_and_claim(finish_jobs(job_ids=[ran["id"]], lease_nos=[ran["lease_no"]]), call)
    session = Session(Target(dsn), "test")
    raw = session.connection()
    raw.execute("set synchronous_commit = 'on'")
    send(raw, BEGIN)
    assert read(send(raw, both), both) == ({ran["id"]}, [])
    assert raw.execute("show synchronous_commit").fetchone() == ("on",)
    send(raw, COMMIT)
    session.close()


def test_worker_finishes_where_nothing_is_left_to_claim(conn: Connection, dsn: str) -> None:
    enqueue(conn)
    [ran] = claim(conn)
    session = Session(Target(dsn), "test")
    finish = finish_jobs(job_ids=[ran["id"]], lease_nos=[ran["lease_no"]])
    assert session.run(finish_and_claim(finish, CLAIM)) == ({ran["id"]}, [])
    assert session.run(finish_and_claim(finish, CLAIM)) == (set(), [])
    session.close()
