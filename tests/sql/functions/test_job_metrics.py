"""job_metrics: the gauges of S12.1 from one read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from jobs import call, enqueue, make_job, make_tenant, value

Connection = psycopg.Connection[Any]


def test_job_metrics_counts_per_tenant_and_kind(conn: Connection) -> None:
    tenant = make_tenant(conn)
    make_job(conn, "dlq", tenant_id=tenant)
    make_job(conn, "failed")
    make_job(conn, "done")
    make_job(conn, "running")
    for _ in range(2):
        enqueue(conn, tenant_id=tenant)
    enqueue(conn, "index_sync", available_at="2100-01-01T00:00:00Z")

    found = {
        (row["metric"], row["tenant_id"], row["job_kind"]): row["value"]
        for row in call(conn, "job_metrics")
        if row["metric"] not in ("mdm_jobs_oldest_due_seconds", "mdm_jobs_live_runners", "mdm_jobs_violations")
    }
    assert found == {
        ("mdm_jobs_pending", tenant, "reindex"): 2,
        ("mdm_jobs_pending", None, "index_sync"): 1,
        ("mdm_jobs_running", None, "reindex"): 1,
        ("mdm_jobs_dlq", tenant, "reindex"): 1,
    }


@pytest.mark.parametrize("priority", [-5, 50, 900])
def test_job_metrics_tells_the_age_of_the_oldest_due_job(conn: Connection, priority: int) -> None:
    enqueue(conn, priority=50)
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts, available_at)"
        " values ('reindex', %s, 1, clock_timestamp() - interval '100 s')",
        (priority,),
    )
    enqueue(conn, "index_sync", available_at="2100-01-01T00:00:00Z")
    ages = {
        row["job_kind"]: row["value"]
        for row in call(conn, "job_metrics")
        if row["metric"] == "mdm_jobs_oldest_due_seconds"
    }
    assert 100 <= ages["reindex"] < 160
    assert ages["index_sync"] == 0
    assert set(ages) == {kind for (kind,) in conn.execute("select job_kind from mdm.aa_job_kind")}


def test_job_metrics_counts_live_runners_by_kind(conn: Connection) -> None:
    call(conn, "announce_runner", runner_id="r1", kinds=["reindex", "index_sync"])
    call(conn, "announce_runner", runner_id="r2", kinds=["reindex"])
    call(conn, "announce_runner", runner_id="r3", kinds=["reindex"])
    conn.execute("update mdm.aa_job_runner set expires_at = clock_timestamp() where runner_id = 'r3'")
    live = {row["job_kind"]: row["value"] for row in call(conn, "job_metrics") if row["metric"].endswith("runners")}
    assert (live["reindex"], live["index_sync"], live["email_send"]) == (2, 1, 0)


def test_b72_job_metrics_tells_how_old_the_upkeep_is(conn: Connection) -> None:
    assert [row for row in call(conn, "job_metrics") if row["metric"].endswith("age_seconds")] == []
    conn.execute("call mdm.cleanup_jobs()")
    conn.execute("update mdm.aa_job_upkeep set last_at = last_at - interval '1000 s'")
    ages = {row["metric"]: row["value"] for row in call(conn, "job_metrics") if row["metric"].endswith("age_seconds")}
    assert set(ages) == {f"mdm_jobs_{part}_age_seconds" for part in ("recover", "purge", "compact", "invariants")}
    assert all(1000 <= seconds < 1060 for seconds in ages.values())


def test_b97_job_metrics_reads_partial_indexes_only(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    conn = connect(dsn=fresh_dsn)
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts, status, completed_at)"
        " select 'reindex', 1, 1, 'done', clock_timestamp() from generate_series(1, 100000)"
    )
    conn.execute("analyze mdm.aa_job")
    for _ in range(2000):
        conn.execute("insert into mdm.aa_job (job_kind, priority, max_attempts) values ('reindex', 1, 1)")
    pages = "select pg_relation_size('mdm.aa_job') / 8192"
    before = pages_read(conn)
    call(conn, "job_metrics")
    assert pages_read(conn) - before < value(conn, pages) / 4


def pages_read(conn: Connection) -> int:
    """How many pages of aa_job this session has looked at, its own statistics flushed."""
    conn.execute("select pg_stat_force_next_flush()")
    return int(
        value(
            conn,
            "select heap_blks_read + heap_blks_hit from pg_statio_user_tables where relid = 'mdm.aa_job'::regclass",
        )
    )
