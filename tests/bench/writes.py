"""The scenario write: handlers that write one row in the job's own transaction, one commit a job."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic
from typing import Final

import psycopg
from kit import Bench
from tables import fill, settle, together

CLIENTS: Final = 8
# what such a job costs at the least: its row, the end of the job, the audit row, one commit, in one message
BARE_END: Final = """
update mdm.aa_job set status = 'done', completed_at = clock_timestamp(), last_error = null where id = {id};
insert into mdm.aa_audit_log (action, object_type, object_id, payload)
  values ('job_done', 'job', '1', '{{"job_kind": "write"}}');
commit"""
END: Final = "select mdm.finish_job({id}, {lease_no}); commit"
BARE: Final = f"""\\set id random(1, {{jobs}})
\\startpipeline
begin;
insert into bench_effect (job_id) values (:id);
{BARE_END.format(id=":id")};
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
        bare = bench.pgbench(
            dsn, BARE.replace("{jobs}", str(jobs)), clients=CLIENTS, seconds=2 if bench.quick else 8
        ).rate
    limit = f"the same statements by pgbench, {CLIENTS} clients"
    least = _driver(bench, jobs, BARE_END)
    bench.report("write", f"a loop over psycopg, {CLIENTS} threads, bare statements", least, "jobs/s", bare, limit)
    driver = _driver(bench, jobs, END)
    what = f"a loop over psycopg, {CLIENTS} threads, finish_job"
    bench.report("write", what, driver, "jobs/s", bare, limit)
    for processes, how in ((1, "8 slots in one process"), (2, "4 slots in each of two processes")):
        rate = _drain(bench, jobs, processes)
        what = f"one row and one commit a job, {how}"
        bench.report("write", what, rate, "jobs/s", bare, limit)
        bench.report("write", what, rate, "jobs/s", driver, f"a loop over psycopg, {CLIENTS} threads, finish_job")


def _driver(bench: Bench, jobs: int, end: str) -> float:
    """Do by threads of this process what a runner cannot do without for such a job; return jobs a second."""
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        fill(dsn, "write", jobs)
        claimed: list[tuple[int, int]] = []
        while len(claimed) < jobs:
            claimed += conn.execute("select id, lease_no from mdm.claim_job('bare', '{write}', null, 5000)").fetchall()
        settle(conn)
        began = monotonic()
        with ThreadPoolExecutor(CLIENTS) as pool:
            for done in [pool.submit(_write, dsn, end, claimed[first::CLIENTS]) for first in range(CLIENTS)]:
                done.result()
        return jobs / (monotonic() - began)


def _write(dsn: str, end: str, claimed: Sequence[tuple[int, int]]) -> None:
    """Write one row for each job and end it, in a transaction each: three messages."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for job_id, lease_no in claimed:
            conn.pgconn.exec_(b"begin")
            conn.execute("insert into bench_effect (job_id) values (%s)", (job_id,))
            conn.pgconn.exec_(end.format(id=job_id, lease_no=lease_no).encode())


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
