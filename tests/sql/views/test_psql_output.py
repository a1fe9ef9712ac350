"""What an operator sees in psql at 100 columns: each window and explain_job, as a snapshot in shown/.

`\\pset format wrapped`, `\\pset expanded auto`: rows that are too wide are shown one field a line. After a change
that is meant, run these tests once with MDM_SNAPSHOTS=write and read the difference.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from cluster import PgServer, missing
from jobs import Connection, age, call, claim_one, enqueue, fail, make_job

SHOWN = Path(__file__).with_name("shown")
TENANT = "5d1a9c1e-0000-4000-8000-000000000001"
WORKER = "app-1.example.org/4711/0b5f4f0e-0000-4000-8000-000000000001"
ERROR = "OSError: printer.example.org refused the connection after 30 s: out of paper, out of ink and switched off"
TIME = "2026-03-02 09:14:07.583437+00"
QUERIES = {
    "v_job_counts": "select * from mdm.v_job_counts",
    "v_job_dlq": "select * from mdm.v_job_dlq",
    "v_job_running": "select * from mdm.v_job_running",
    "v_job_stale": "select * from mdm.v_job_stale",
    "v_job_history": "select * from mdm.v_job_history where job_id = 1",
    "v_job_health": "select * from mdm.v_job_health where subject not like '(server)'",
    "explain_job_dead": "select * from mdm.explain_job(1)",
    "explain_job_running": "select * from mdm.explain_job(2)",
    "explain_job_pending": "select * from mdm.explain_job(4)",
    "explain_job_not_due": "select * from mdm.explain_job(5)",
    "replay_jobs": """select * from mdm.replay_jobs('{"all": true}')""",
    "discard_jobs": """select * from mdm.discard_jobs('{"all": true}')""",
}


@pytest.fixture
def holder(fresh_dsn: str, connect: Callable[..., Connection]) -> int:
    """Jobs in every state, one of them stale and held by a session; gives the session's pid."""
    conn = connect(dsn=fresh_dsn)
    conn.execute("set timezone = 'UTC'")
    conn.execute("insert into mdm.aa_tenant (id, name) values (%s, 'North')", (TENANT,))
    dead = enqueue(conn, payload={"entity_type": "airport"}, tenant_id=TENANT)
    fail(conn, claim_one(conn, worker_id=WORKER), ERROR, retryable=False)
    stale = enqueue(conn, "index_sync")
    claim_one(conn, "index_sync", worker_id=WORKER)
    age(conn, stale, by=timedelta(hours=5))
    make_job(conn, "running")
    paused = enqueue(conn, "gin_backfill")
    call(conn, "pause_kind", job_kind="gin_backfill", reason="not before the night")
    assert (dead, stale, paused) == (1, 2, 4)
    conn.execute(
        "update mdm.aa_job set created_at = %(time)s, available_at = %(time)s,"
        " completed_at = case when completed_at is not null then %(time)s::timestamptz + interval '1 minute' end",
        {"time": TIME},
    )
    conn.execute("update mdm.aa_job set claimed_at = %s::timestamptz + interval '30 s' where id = 1", (TIME,))
    conn.execute("update mdm.aa_audit_log set occurred_at = %s::timestamptz + id * interval '1 s'", (TIME,))
    conn.execute("update mdm.aa_job set claimed_at = date_trunc('second', claimed_at) where status = 'running'")
    conn.execute("update mdm.aa_job set available_at = clock_timestamp() - interval '5 hours' where status = 'pending'")
    assert enqueue(conn, "outbox_dispatch", available_at="2100-01-01T00:00:00Z") == 5
    other = connect(dsn=fresh_dsn, autocommit=False)
    other.execute("select from mdm.aa_job where id = %s for key share", (stale,))
    return other.info.backend_pid


@pytest.mark.parametrize("name", QUERIES)
def test_psql_shows_it_readably_at_100_columns(name: str, fresh_dsn: str, pg_server: PgServer, holder: int) -> None:
    shown = psql(pg_server.server.bin, fresh_dsn, QUERIES[name]).replace(f"{holder:>11}", f"{'PID':>11}")
    shown = re.sub(rf"\b{holder}\b", "PID", shown)
    shown = re.sub(r"\b(\d\d:\d\d):\d\d\b(?![+.])", r"\1:ss", shown)
    shown = re.sub(r"\b(?!2026-03-02|2100)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00", "YYYY-MM-DD hh:mm:ss+00", shown)
    path = SHOWN / f"{name}.txt"
    if os.environ.get("MDM_SNAPSHOTS") == "write":
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")
    assert max(map(len, shown.splitlines())) <= 100


def psql(directory: Path, dsn: str, query: str) -> str:
    """Run a query in psql as an operator has set it up, and return what it prints."""
    program = directory / "psql"
    if not program.exists():
        missing("psql", f"{directory} has none")
    settings = [f"--pset={each}" for each in ("columns=100", "format=wrapped", "expanded=auto", "pager=off")]
    done = subprocess.run(
        [str(program), "-X", "-q", "-d", dsn, *settings, "-c", "set timezone = 'UTC'", "-c", query],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_snapshots_are_all_of_queries() -> None:
    assert {path.stem for path in SHOWN.glob("*.txt")} == set(QUERIES)
