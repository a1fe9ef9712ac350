"""Recovery among other things: time limits per kind, bad rows, restarts of the server (S8, D3, D17)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cluster import crash
from jobrunner import devserver, schema
from jobrunner.devserver import Server
from jobs import (
    KIND,
    actions,
    age,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    ids,
    job,
    make_due,
    make_kind,
    recover,
    rows,
    status,
    statuses,
    violations,
)
from races.sessions import Connection

Session = Callable[..., Connection]


def running(conn: Connection, job_kind: str = KIND, jobs: int = 1, by: timedelta = timedelta(hours=100)) -> list[int]:
    """Make running jobs, claimed one by one, that have been silent for `by`."""
    made = [enqueue(conn, job_kind) for _ in range(jobs)]
    for _ in made:
        claim_one(conn, job_kind)
    age(conn, *made, by=by)
    return made


def test_b06_each_kind_has_its_own_time_limit(conn: Connection) -> None:
    make_kind(conn, "short", stale_ttl="60 seconds")
    make_kind(conn, "long", stale_ttl="1 hour")
    [short] = running(conn, "short", by=timedelta(minutes=10))
    [long] = running(conn, "long", by=timedelta(minutes=10))
    assert recover(conn) == {short: "pending"}
    assert status(conn, long) == "running"


def test_b08_legal_long_jobs_hide_no_stuck_one(conn: Connection) -> None:
    make_kind(conn, "long", stale_ttl="1 hour")
    make_kind(conn, "short", stale_ttl="1 minute")
    running(conn, "long", jobs=10, by=timedelta(minutes=30))
    [stuck] = running(conn, "short", by=timedelta(minutes=5))
    assert recover(conn, limit=10) == {stuck: "pending"}


def test_b10_a_superseded_job_ends_and_the_others_are_recovered(conn: Connection) -> None:
    superseded = enqueue(conn, payload={"n": 1}, idempotency_key="k")
    claim_one(conn)
    newer = enqueue(conn, payload={"n": 2}, idempotency_key="k", on_conflict="update")
    call(conn, "pause_kind", job_kind=KIND)  # so that the newer one stays pending
    [other] = running(conn, "cleanup_jobs")
    age(conn, superseded)
    assert recover(conn) == {other: "pending", superseded: "done"}
    assert job(conn, superseded)["last_error"] == f"superseded by {newer}"
    assert status(conn, newer) == "pending"
    assert actions(conn, superseded) == ["job_enqueued", "job_done"]
    assert violations(conn) == {}


@pytest.mark.parametrize("jobs", [1, 3])
def test_b10_a_row_that_cannot_be_written_stops_no_other(
    fresh_dsn: str, connect: Callable[..., Connection], jobs: int
) -> None:
    conn = connect(dsn=fresh_dsn)
    made = running(conn, jobs=2 * jobs)
    poisoned, healthy = made[:jobs], made[jobs:]
    conn.execute("update mdm.aa_job set payload = %s where id = any(%s)", (Jsonb({"bad": True}), poisoned))
    # the rows that are there are not looked at, a new version of one is refused
    conn.execute("alter table mdm.aa_job add constraint poison check (not payload ? 'bad') not valid")
    warnings: list[str] = []
    conn.add_notice_handler(lambda diagnostic: warnings.append(diagnostic.message_primary or ""))

    assert recover(conn) == dict.fromkeys(healthy, "pending")
    assert statuses(conn) == {"running": jobs, "pending": jobs}
    assert [warning for warning in warnings if "cannot be recovered" in warning] == [
        f'job {id} cannot be recovered: new row for relation "aa_job" violates check constraint "poison"'
        for id in poisoned
    ]
    assert {job(conn, id)["recoveries"] for id in healthy} == {1}

    conn.execute("alter table mdm.aa_job drop constraint poison")
    assert recover(conn) == dict.fromkeys(poisoned, "pending")
    assert violations(conn) == {}


def test_b14_a_killer_is_dead_after_its_attempts(conn: Connection) -> None:
    job_id = enqueue(conn, max_attempts=3)
    for outcome in ("pending", "pending", "dlq"):
        assert ids(claim(conn)) == [job_id]
        age(conn, job_id)
        assert recover(conn) == {job_id: outcome}
        make_due(conn, job_id)
    assert claim(conn) == []
    assert job(conn, job_id)["attempts"] == 3
    assert actions(conn, job_id) == ["job_enqueued", "job_dlq"]


def test_b14_a_killer_in_a_batch_costs_its_neighbours_nothing(conn: Connection) -> None:
    """Fifty jobs of one claim and one kills whoever runs it: one in the DLQ after max_attempts + 1 claims, 49 done."""
    made = [enqueue(conn, max_attempts=3) for _ in range(50)]
    killer = made[20]
    claims_of_killer = 0
    while batch := claim(conn, limit=50):
        claims_of_killer += killer in ids(batch)
        if killer in ids(batch):
            age(conn, *ids(batch))
            recover(conn)
            continue
        call(conn, "finish_jobs", job_ids=ids(batch), lease_nos=[row["lease_no"] for row in batch])
    assert statuses(conn) == {"done": 49, "dlq": 1}
    assert status(conn, killer) == "dlq"
    assert claims_of_killer == 4
    assert {row["attempts"] for row in rows(conn, "select attempts from mdm.aa_job where status = 'done'")} == {1}
    assert violations(conn) == {}


def test_recovered_jobs_run_alone_also_after_a_failure(conn: Connection) -> None:
    made = [enqueue(conn) for _ in range(3)]
    age(conn, *ids(claim(conn, limit=3)))
    recover(conn)
    first = claim_one(conn, limit=10)
    fail(conn, first, retry_after=timedelta(0))
    assert job(conn, made[0])["run_alone"]
    assert [len(claim(conn, limit=10)) for _ in range(4)] == [1, 1, 1, 0]


def test_b13_a_sweep_that_a_crash_interrupts_is_done_whole_by_the_next(own_server: Server) -> None:
    dsn = own_server.dsn()
    schema.migrate(dsn)
    with psycopg.connect(dsn, autocommit=True, options="-c synchronous_commit=on") as conn:
        conn.execute(
            "insert into mdm.aa_job (job_kind, priority, max_attempts) select %s, 1, 5 from generate_series(1, 200)",
            (KIND,),
        )
        conn.execute("select mdm.claim_job('w', array[%s]) from generate_series(1, 200)", (KIND,))
        conn.execute("update mdm.aa_job set claimed_at = '2000-01-01'")
    healer = psycopg.connect(dsn)
    assert len(recover(healer)) == 200  # and no commit
    crash(own_server)
    healer.close()
    devserver.start(own_server.base, own_server.bin)
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert statuses(conn) == {"running": 200}
        assert len(recover(conn)) == 200
        assert recover(conn) == {}
        found = rows(conn, "select distinct status, attempts, recoveries, last_error from mdm.aa_job")
        assert found == [{"status": "pending", "attempts": 1, "recoveries": 1, "last_error": "[stale-claim recovered]"}]
