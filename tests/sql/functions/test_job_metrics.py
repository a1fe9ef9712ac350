"""job_metrics: the gauges of S12.1 from one read."""

from __future__ import annotations

from typing import Any

import psycopg

from jobs import call, enqueue, make_job, make_tenant

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
        if row["metric"] != "mdm_jobs_oldest_due_seconds"
    }
    assert found == {
        ("mdm_jobs_pending", tenant, "reindex"): 2,
        ("mdm_jobs_pending", None, "index_sync"): 1,
        ("mdm_jobs_running", None, "reindex"): 1,
        ("mdm_jobs_dlq", tenant, "reindex"): 1,
    }


def test_job_metrics_tells_the_age_of_the_oldest_due_job(conn: Connection) -> None:
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts, available_at)"
        " values ('reindex', 1, 1, clock_timestamp() - interval '100 s')"
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
