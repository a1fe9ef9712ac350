"""`bin/run --keep`: leave a runner up, and say how to look at it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import psycopg

from jobrunner.demo.command import environment
from jobrunner.devserver import find_bin

START_SECONDS: Final = 30.0


def kept_runner(pid_file: Path) -> int | None:
    """Return the pid of the runner that an earlier run left up, if it still is."""
    try:
        pid = int(pid_file.read_text())
        return pid if b"jobrunner" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
    except (OSError, ValueError):
        return None


def start_runner(conn: psycopg.Connection[Any], command: list[str], worker_dsn: str, directory: Path) -> int | None:
    """Start a runner that outlives this process; gives its pid once it is in the registry, None when it ended."""
    with (directory / "runner.log").open("ab") as log:
        runner = subprocess.Popen(
            command,
            env=environment({"JOBRUNNER_DSN": worker_dsn}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (directory / "runner.pid").write_text(f"{runner.pid}\n")
    deadline = monotonic() + START_SECONDS
    while runner.poll() is None and monotonic() < deadline:
        if _is_live(conn, runner.pid):
            return runner.pid
        sleep(0.1)
    return None


def _is_live(conn: psycopg.Connection[Any], pid: int) -> bool:
    """Say whether the runner has announced itself: its id is host/pid/uuid (S3.2)."""
    row = conn.execute(
        "select from mdm.aa_job_runner where split_part(runner_id, '/', 2) = %s and expires_at > clock_timestamp()",
        [str(pid)],
    ).fetchone()
    return row is not None


def hint(dsn: str, pid: int, log: str) -> str:
    """Return what to do with what stays up."""
    # the server's own first: what the path has may be a wrapper for a client that is not installed
    own = find_bin() / "psql"
    psql = own if own.exists() else shutil.which("psql") or "psql"
    return f"""
The server and a runner stay up (pid {pid}, log {log}). Look, and give the runner something to do:
  {psql} '{dsn}'
  select mdm.request_reindex(id, 'airport') from mdm.aa_tenant where name = 'Europe';
  select * from mdm.v_job_counts;
Stop them:
  kill {pid}; bin/dev-db stop"""
