"""A throttled backlog of one tenant: what it costs the others, and whether it gets its own rate (S7, D23)."""

from __future__ import annotations

import threading
from time import monotonic, sleep, time
from typing import Any, Final

import psycopg
from kit import Bench
from psycopg.types.json import Jsonb
from tables import wait_until

RATE: Final = 50  # what each of the tenants may have; the busy one has no burst
OTHERS: Final = 100  # jobs a second of all other tenants together
STREAM: Final = """\\set n random(1, 20)
select mdm.enqueue_job('noop', jsonb_build_object('t', extract(epoch from clock_timestamp())),
  ('00000000-0000-4000-8000-0000000000' || lpad(:n::text, 2, '0'))::uuid);
"""
TENANTS: Final = """
    insert into mdm.aa_tenant (id, metadata)
    select ('00000000-0000-4000-8000-0000000000' || lpad(n::text, 2, '0'))::uuid,
      jsonb_build_object('rate_limit', jsonb_build_object('noop', jsonb_build_object('rps', %s::int, 'burst', %s::int)))
    from generate_series(%s::int, %s::int) n
"""
BUSY: Final = "00000000-0000-4000-8000-000000000000"


def throttled(bench: Bench) -> None:
    """The other tenants' wait without the backlog, while it is put off for the first time, and beside it."""
    rows, seconds = (10_000, 10) if bench.quick else (100_000, 40)
    alone, _ = _stream(bench, 0, seconds)
    beside, got = _stream(bench, rows, seconds)
    bench.times("throttled", f"other tenants, {OTHERS}/s, enqueue to start", alone, 50, 95)
    what = f"the same beside {rows:,} throttled jobs"
    bench.times("throttled", what, beside, 50, 95, of=alone, limit="without them")
    bench.report("throttled", "the throttled tenant, burst 1", got, "jobs/s", RATE, "what it may have")


def _stream(bench: Bench, rows: int, seconds: int) -> tuple[list[float], float]:
    """Let the others work beside so many jobs of the busy tenant; their waits, and what it gets a second."""
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(TENANTS, (1000, 1000, 1, 20))
        conn.execute(TENANTS, (RATE, 1, 0, 0))
        with bench.runner(dsn):
            stream = threading.Thread(
                target=bench.pgbench,
                args=(dsn, STREAM),
                kwargs={"clients": 2, "seconds": seconds + (30 if rows else 5), "rate": OTHERS},
            )
            sleep(3)
            began = time()
            stream.start()
            sleep(2)
            filled = _fill(conn, rows)
            quiet = time()
            stream.join()
            ended = time()
            starts = bench.starts()
    if rows:
        first = [at - asked for asked, at in starts if asked and began <= asked < quiet]
        bench.report("throttled", f"{rows:,} jobs of one tenant enqueued and put off", rows / filled, "jobs/s")
        bench.times("throttled", "other tenants meanwhile, enqueue to start", first, 50, 95)
    waits = [at - asked for asked, at in starts if asked >= quiet]
    mine = [at for asked, at in starts if not asked and at >= quiet]
    return waits, len(mine) / (ended - quiet)


def _fill(conn: psycopg.Connection[Any], rows: int) -> float:
    """Enqueue for the busy tenant, and wait until each job was put off once; the seconds of that."""
    began = monotonic()
    if rows:
        batch = Jsonb([{"job_kind": "noop", "tenant_id": BUSY}] * 1000)
        for _ in range(rows // 1000):
            conn.execute("select count(*) from mdm.enqueue_jobs(%s)", (batch,))
        wait_until(lambda: _due(conn) < RATE, 120, "the putting off of the backlog")
    return monotonic() - began


def _due(conn: psycopg.Connection[Any]) -> int:
    [(count,)] = conn.execute(
        "select count(*) from (select from mdm.aa_job where status = 'pending' and job_kind = 'noop'"
        " and available_at <= clock_timestamp() and releases = 0 limit 1000) due"
    ).fetchall()
    return int(count)
