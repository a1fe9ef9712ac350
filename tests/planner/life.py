"""The life of jobs, step by step, each with the indexes of mdm.aa_job that it may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from jobs import Row, age, call, claim, claim_one, enqueue, fail, finish, ids, recover, release, rows
from planner.plans import Connection

KIND = "planned"
TWIN = "planned_too"
TENANTS = [f"00000000-0000-0000-0000-{n:012}" for n in range(1000)]

PKEY = "aa_job_pkey"
CLAIM = "ix_aa_job_claim"
CLAIM_TENANT = "ix_aa_job_claim_tenant"
RUNNING = "ix_aa_job_running"
DONE = "ix_aa_job_done"
DEAD = "ix_aa_job_dead"
KEY = "uq_aa_job_key"

Step = tuple[str, set[str], Callable[[], Any]]


def leases(batch: list[Row]) -> dict[str, list[int]]:
    return {"job_ids": ids(batch), "lease_nos": [row["lease_no"] for row in batch]}


def batch_of(conn: Connection, size: int = 3, **parameters: Any) -> list[Row]:
    """Enqueue and claim some jobs."""
    for _ in range(size):
        enqueue(conn, KIND, **parameters)
    return claim(conn, KIND, limit=size)


def claims(conn: Connection) -> Iterator[Step]:
    """Claims: empty-handed and with rows, exact and with a floor, over one lane and over two."""
    floor = {KIND: {"100": datetime.now(UTC) - timedelta(minutes=1)}, TWIN: {"100": datetime.now(UTC)}}
    text = Jsonb({kind: {p: at.isoformat() for p, at in lanes.items()} for kind, lanes in floor.items()})
    for given, name in ((None, "exact"), (text, "floor")):
        yield f"claim, {name}, nothing due", {CLAIM}, lambda given=given: claim(conn, KIND, TWIN, floor=given)
        enqueue(conn, KIND)
        yield f"claim, {name}", {CLAIM, PKEY}, lambda given=given: claim_one(conn, KIND, floor=given)
        for kind in (KIND, TWIN):
            enqueue(conn, kind)
        yield f"claim, {name}, lanes", {CLAIM, PKEY}, lambda given=given: claim(conn, KIND, TWIN, limit=5, floor=given)
        bound = {"tenant_ids": TENANTS[-2:], "floor": given}
        yield f"claim, tenants, {name}, nothing due", {CLAIM_TENANT}, lambda bound=bound: claim(conn, KIND, **bound)
        for tenant in TENANTS[-2:]:
            enqueue(conn, KIND, tenant_id=tenant)
        yield f"claim, tenants, {name}", {CLAIM_TENANT, PKEY}, lambda bound=bound: claim(conn, KIND, limit=5, **bound)
    enqueue(conn, KIND, idempotency_key="keyed")
    yield "claim, key", {CLAIM, PKEY, KEY}, lambda: claim_one(conn, KIND)


def ends(conn: Connection) -> Iterator[Step]:
    """Ends and signs of life of a claim."""
    one, two, three, four, five = batch_of(conn, 5)
    yield "check_lease", {PKEY}, lambda: call(conn, "check_lease", job_id=one["id"], lease_no=one["lease_no"])
    yield "finish_job", {PKEY}, lambda: finish(conn, one)
    yield "fail_job", {PKEY}, lambda: fail(conn, two)
    yield "fail_job, dead", {PKEY}, lambda: fail(conn, three, retryable=False)
    yield "release_job", {PKEY}, lambda: release(conn, four, retry_after=timedelta(hours=1))
    yield "extend_jobs", {PKEY}, lambda: call(conn, "extend_jobs", **leases([five]))
    yield "finish_jobs", {PKEY}, lambda: call(conn, "finish_jobs", **leases([five]))
    batch = batch_of(conn)
    yield "release_jobs", {PKEY}, lambda: call(conn, "release_jobs", **leases(batch))
    batch = claim(conn, KIND, limit=3)
    age(conn, *ids(batch))
    yield "recover_stale_jobs", {RUNNING, PKEY}, lambda: recover(conn)
    yield "recover_stale_jobs, nothing", {RUNNING, PKEY}, lambda: recover(conn)


def others(conn: Connection) -> Iterator[Step]:
    """Producers with keys, administrators, retention."""
    yield "enqueue_job, new key", {KEY}, lambda: enqueue(conn, KIND, idempotency_key="k")
    yield "enqueue_job, known key", {KEY}, lambda: enqueue(conn, KIND, idempotency_key="k")
    update = {"idempotency_key": "k", "on_conflict": "update"}
    yield "enqueue_job, update", {KEY, PKEY}, lambda: enqueue(conn, KIND, **update)
    job_id = enqueue(conn, KIND, idempotency_key="k")
    yield "get_job", {PKEY}, lambda: call(conn, "get_job", job_id=job_id)
    yield "stop_job", {PKEY}, lambda: call(conn, "stop_job", job_id=job_id)
    yield "replay_job", {KEY, PKEY}, lambda: call(conn, "replay_job", job_id=job_id)
    yield "discard_job", {PKEY}, lambda: call(conn, "discard_job", job_id=job_id)
    [dead] = batch_of(conn, 1)
    fail(conn, dead, retryable=False)
    yield "replay_job, no key", {KEY, PKEY}, lambda: call(conn, "replay_job", job_id=dead["id"])
    batch = claim(conn, KIND, limit=10)
    finish(conn, batch[0])
    for claimed in batch[1:]:
        fail(conn, claimed, retryable=False)
    conn.execute("update mdm.aa_job set completed_at = '2000-01-01' where id = any(%s)", (ids(batch),))
    yield "purge_jobs", {DONE, DEAD, PKEY}, lambda: call(conn, "purge_jobs")
    yield "purge_jobs, nothing", {DONE, DEAD, PKEY}, lambda: call(conn, "purge_jobs")


def windows(conn: Connection) -> Iterator[Step]:
    """What operators look at: jobs of the states that few are in."""
    for _ in range(2):
        enqueue(conn, KIND)
    running, dead = claim_one(conn, KIND), claim_one(conn, KIND)
    fail(conn, dead, retryable=False)
    yield "v_job_dlq", {DEAD, PKEY}, lambda: rows(conn, "select * from mdm.v_job_dlq")
    yield "v_job_running", {RUNNING, PKEY}, lambda: rows(conn, "select * from mdm.v_job_running")
    age(conn, running["id"])
    yield "v_job_stale", {RUNNING, PKEY}, lambda: rows(conn, "select * from mdm.v_job_stale")
    for what in ("emails", "imports", "scans"):
        yield f"settle_{what}", {DEAD}, lambda what=what: call(conn, f"settle_{what}")
    yield "replay_jobs, dry run", {DEAD, KEY}, lambda: call(conn, "replay_jobs", filter={"all": True})
    yield "watch_invariants", {DONE, DEAD, PKEY}, lambda: call(conn, "watch_invariants")
    yield "discard_jobs", {DEAD, PKEY}, lambda: call(conn, "discard_jobs", filter={"all": True}, dry_run=False)


def whole_life(conn: Connection) -> Iterator[Step]:
    yield from claims(conn)
    yield from ends(conn)
    yield from others(conn)
    yield from windows(conn)
