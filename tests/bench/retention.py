"""Retention in the background: what a purge of old jobs costs the claims beside it (D22)."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from kit import Bench
from tables import settle


class Life(NamedTuple):
    """Seconds of one job: of its claim, and of enqueue, claim and finish together, three commits."""

    claim: float
    whole: float


def retention(bench: Bench) -> None:
    """Jobs while a million done ones are purged, against jobs on the same table before it."""
    rows = 50_000 if bench.quick else 1_000_000
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "insert into mdm.aa_job (job_kind, priority, max_attempts, status, attempts, completed_at)"
            " select 'noop', 100, 10, 'done', 1, clock_timestamp() - interval '8000 hours'"
            " from generate_series(1, %s)",
            (rows,),
        )
        settle(conn)
        before = live(conn, seconds=3 if bench.quick else 20)
        purge = threading.Thread(target=purge_all, args=(dsn,))
        began = monotonic()
        purge.start()
        during = live(conn, until=purge)
        seconds = monotonic() - began
        [(left,)] = conn.execute(
            "select count(*) from mdm.aa_job where completed_at < clock_timestamp() - interval '1000 hours'"
        ).fetchall()
    if left:
        raise SystemExit(f"bench: {left} jobs beyond their retention are left")
    bench.report("retention", f"{rows:,} done jobs purged", rows / seconds, "jobs/s")
    for place, what in enumerate(("claim of a job", "enqueue, claim and finish of a job")):
        alone, beside = [life[place] for life in before], [life[place] for life in during]
        bench.times("retention", f"{what} before it", alone, 50, 95)
        bench.times("retention", f"{what} meanwhile", beside, 50, 95, of=alone, limit="before it")


def live(conn: psycopg.Connection[Any], seconds: float = 0, until: threading.Thread | None = None) -> list[Life]:
    """Take jobs one by one for so long, or until a thread has ended."""
    found: list[Life] = []
    end = monotonic() + seconds
    while monotonic() < end or (until is not None and until.is_alive()):
        began = monotonic()
        conn.execute("select mdm.enqueue_job('noop')")
        enqueued = monotonic()
        [job] = conn.execute("select id, lease_no from mdm.claim_job('bench', '{noop}')").fetchall()
        claimed = monotonic()
        conn.execute("select mdm.finish_job(%s, %s)", job)
        found.append(Life(claimed - enqueued, monotonic() - began))
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
