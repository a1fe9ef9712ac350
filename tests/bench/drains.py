"""The scenario drain: no-op jobs from the first handler's start until nothing is left; what it costs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from time import monotonic, sleep, time
from typing import Final

import psycopg
from kit import Bench
from machine import busy_seconds, resident_mb, wal_bytes
from queues import OURS, Queue, beside, database, load, peers, worker
from tables import Connection, fill, number_of, settle, together, wait_until

BATCH: Final = 500
CLIENTS: Final = 2
LONGEST_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.2
# claim and finish of a batch, with the audit rows, as bare statements
BARE: Final = f"""
    with claimed as (
      update mdm.aa_job
      set status = 'running', claimed_by = 'bare', claimed_at = clock_timestamp(), lease_no = 1, attempts = attempts + 1
      where id = any (array(
        select id
        from mdm.aa_job
        where status = 'pending' and job_kind = 'noop' and priority = 100 and available_at <= now()
        order by available_at, id
        limit {BATCH}
        for update skip locked))
      returning id)
    select quote_literal(coalesce(array_agg(id), '{{}}')) as ids from claimed \\gset
    with done as (
      update mdm.aa_job
      set status = 'done', completed_at = clock_timestamp()
      where id = any (:ids::bigint[])
      returning id)
    insert into mdm.aa_audit_log (action, object_type, object_id, payload)
    select 'job_done', 'job', id::text, '{{"job_kind": "noop"}}' from done;
"""


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain reached and used; the CPU of the whole machine, the memory of the largest process."""

    rate: float
    cpu_microseconds: float
    wal_bytes: float
    resident_mb: float


def drain(bench: Bench) -> None:
    """No-op jobs and one process; ours with both audit levels, beside bare statements in batches."""
    jobs = 5_000 if bench.quick else 50_000
    theirs = {}
    for peer in peers(bench):
        with database(bench, peer) as dsn:
            theirs[peer.name] = measured = load_and_drain(bench, peer, dsn, jobs)
        tell(bench, f"{jobs:,} no-op jobs, {peer.name}", measured)
    bare = _bare(bench, jobs)
    for level in ("full", "exceptions"):
        with bench.database() as dsn:
            with psycopg.connect(dsn, autocommit=True) as conn:
                conn.execute("select mdm.set_job_kind('noop', jsonb_build_object('audit_level', %s::text))", (level,))
            measured = load_and_drain(bench, OURS, dsn, jobs)
        tell(bench, f"{jobs:,} no-op jobs, audit {level}", measured, bare)
        rates = {name: drained.rate for name, drained in theirs.items()}
        beside(bench, "drain", f"audit {level}, drain", measured.rate, "jobs/s", rates, most=True)
        cpu = {name: drained.cpu_microseconds for name, drained in theirs.items()}
        beside(bench, "drain", f"audit {level}, CPU", measured.cpu_microseconds, "µs/job", cpu, most=False)


def tell(bench: Bench, what: str, measured: Drained, bare: float | None = None) -> None:
    """Report a drain."""
    limit = f"bare statements by pgbench, {CLIENTS} clients"
    bench.report("drain", what, measured.rate, "jobs/s", bare, limit)
    bench.report("drain", f"{what}: CPU of the machine", measured.cpu_microseconds, "µs/job")
    bench.report("drain", f"{what}: memory of the process", measured.resident_mb, "MB")
    bench.report("drain", f"{what}: WAL", measured.wal_bytes, "bytes/job")


def load_and_drain(bench: Bench, queue: Queue, dsn: str, jobs: int) -> Drained:
    """Enqueue so many jobs, let the server come to rest, and drain them with one process."""
    load(queue, dsn, jobs)
    with psycopg.connect(dsn, autocommit=True) as conn:
        settle(conn)
        return drain_loaded(bench, queue, dsn, conn, jobs)


def drain_loaded(bench: Bench, queue: Queue, dsn: str, conn: Connection, jobs: int, processes: int = 1) -> Drained:
    """Drain so many jobs that are there and due; several processes (of ours) begin at the same time.

    A peer that is not through in LONGEST_SECONDS is measured by what it has started until then.
    """
    bench.forget()
    rest = number_of(conn, queue.left) - (jobs if queue.driver else 0)
    wal = wal_bytes(conn)
    with ExitStack() as stack:
        with together(dsn, processes) if processes > 1 else nullcontext():
            pids = [stack.enter_context(worker(bench, queue, dsn)).pid for _ in range(processes)]
        wait_until(lambda: bench.started() > 0, 60, "the start of the first job")
        cpu = busy_seconds()
        resident = _watch(lambda: bench.started() >= jobs and number_of(conn, queue.left) <= rest, pids)
        done = bench.started()
        seconds = time() - min(at for _, at in bench.starts())
        cpu = busy_seconds() - cpu
        wal = wal_bytes(conn) - wal
    if done != jobs and not queue.driver:
        raise SystemExit(f"bench: {done} starts for {jobs} jobs")
    return Drained(done / seconds, cpu / done * 1e6, wal / done, resident)


def _watch(over: Callable[[], bool], pids: list[int]) -> float:
    """Wait until all is over, or for the longest time; return the memory of the largest process meanwhile."""
    resident, look_at, limit = 0.0, 0.0, monotonic() + LONGEST_SECONDS
    while not over() and monotonic() < limit:
        if monotonic() > look_at:
            resident = max(resident, *map(resident_mb, pids))
            look_at = monotonic() + LOOK_SECONDS
        sleep(0.005)
    return max(resident, *map(resident_mb, pids))


def _bare(bench: Bench, jobs: int) -> float:
    """Jobs a second of the bare statements."""
    with bench.database() as dsn:
        fill(dsn, "noop", jobs)
        turns = bench.pgbench(dsn, BARE, clients=CLIENTS, transactions=jobs // BATCH // CLIENTS)
        with psycopg.connect(dsn) as conn:
            done = number_of(conn, "select count(*) from mdm.aa_job where status = 'done'")
    if done != jobs:
        raise SystemExit(f"bench: the bare statements finished {done} of {jobs} jobs")
    return turns.rate * BATCH
