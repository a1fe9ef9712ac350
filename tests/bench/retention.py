"""Retention in the background: what a purge of old jobs costs the claims beside it (D22)."""

from __future__ import annotations

import threading
from time import time
from typing import Any

import psycopg
from kit import Bench, milliseconds, percentile


def retention(bench: Bench) -> None:
    """Claims while a million done jobs are purged, against claims on the same table before it."""
    rows = 50_000 if bench.quick else 1_000_000
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "insert into mdm.aa_job (job_kind, priority, max_attempts, status, attempts, completed_at)"
            " select 'noop', 100, 10, 'done', 1, clock_timestamp() - interval '8000 hours'"
            " from generate_series(1, %s)",
            (rows,),
        )
        conn.execute("vacuum analyze")
        conn.execute("checkpoint")
        before = claim_seconds(conn, seconds=3 if bench.quick else 10)
        purge = threading.Thread(target=purge_all, args=(dsn,))
        began = time()
        purge.start()
        during = claim_seconds(conn, until=purge)
        seconds = time() - began
        [(left,)] = conn.execute(
            "select count(*) from mdm.aa_job where completed_at < clock_timestamp() - interval '1000 hours'"
        ).fetchall()
    if left:
        raise SystemExit(f"bench: {left} jobs beyond their retention are left")
    bench.report("retention", f"{rows:,} done jobs purged", f"{rows / seconds:,.0f}/s")
    bench.report("retention", "enqueue, claim and finish of a job before it", milliseconds(before, 50, 95))
    ratio = percentile(during, 95) / percentile(before, 95)
    bench.report("retention", "the same meanwhile", f"{milliseconds(during, 50, 95)}, {ratio:.1f} x")


def claim_seconds(
    conn: psycopg.Connection[Any], seconds: float = 0, until: threading.Thread | None = None
) -> list[float]:
    """Take jobs one by one for so long, or until a thread has ended; return the seconds of each."""
    found: list[float] = []
    end = time() + seconds
    while time() < end or (until is not None and until.is_alive()):
        began = time()
        conn.execute("select mdm.enqueue_job('noop')")
        [job] = conn.execute("select id, lease_no from mdm.claim_job('bench', '{noop}')").fetchall()
        conn.execute("select mdm.finish_job(%s, %s)", job)
        found.append(time() - began)
    return found


def purge_all(dsn: str) -> None:
    """Call the cleanup, as the runners do, until nothing is left."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        more = True
        while more:
            conn.execute("call mdm.cleanup_jobs()")
            [(more,)] = conn.execute(
                "select exists (select from mdm.aa_job j join mdm.aa_job_kind k using (job_kind)"
                " where j.status = 'done' and j.completed_at < clock_timestamp() - k.retention_done)"
            ).fetchall()
