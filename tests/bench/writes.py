"""The scenario write: handlers that write one row in the job's own transaction, one commit a job."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import psycopg
from kit import Bench
from tables import fill, settle, together

CLIENTS: Final = 8
# what such a job costs at the least: its row, the end of the job, the audit row, one commit, in one message
BARE: Final = """\\set id random(1, {jobs})
\\startpipeline
begin;
insert into bench_effect (job_id) values (:id);
update mdm.aa_job set status = 'done', completed_at = clock_timestamp(), last_error = null where id = :id;
insert into mdm.aa_audit_log (action, object_type, object_id, payload)
  values ('job_done', 'job', '1', '{{"job_kind": "write"}}');
commit;
\\endpipeline
"""
CLAIM_ALL: Final = """
    update mdm.aa_job
    set status = 'running', claimed_by = 'bare', claimed_at = clock_timestamp(), lease_no = 1, attempts = 1
"""


def write(bench: Bench) -> None:
    """Eight slots in one process and in two, beside the same statements by pgbench with eight clients."""
    jobs = 2_000 if bench.quick else 20_000
    with bench.database() as dsn:
        fill(dsn, "write", jobs)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(CLAIM_ALL)
            settle(conn)
        bare = bench.pgbench(dsn, BARE.format(jobs=jobs), clients=CLIENTS, seconds=2 if bench.quick else 8).rate
    for processes, how in ((1, "8 slots in one process"), (2, "4 slots in each of two processes")):
        rate = _drain(bench, jobs, processes)
        what = f"one row and one commit a job, {how}"
        bench.report("write", what, rate, "jobs/s", bare, f"the same statements by pgbench, {CLIENTS} clients")


def _drain(bench: Bench, jobs: int, processes: int) -> float:
    """Drain the jobs; return jobs a second, from the first handler's start to the last end."""
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        fill(dsn, "write", jobs)
        slots = str(CLIENTS // processes)
        with ExitStack() as stack:
            with together(dsn, processes):
                runners = [
                    stack.enter_context(bench.runner(dsn, "--drain", "--concurrency", slots, kinds="write"))
                    for _ in range(processes)
                ]
            for runner in runners:
                runner.wait(300)
        [(done, ended)] = conn.execute(
            "select count(*), extract(epoch from max(completed_at))::float8 from mdm.aa_job where status = 'done'"
        ).fetchall()
    if done != jobs:
        raise SystemExit(f"bench: {done} of {jobs} jobs were done")
    return float(jobs / (ended - min(started for _, started in bench.starts())))
