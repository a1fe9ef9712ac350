"""The scenarios. Each measures our system and, where there is one, the bare statements beside it, in the same run."""

from __future__ import annotations

import random
from time import sleep, time
from typing import Final

import psycopg
from imports import import_rows
from kit import Bench, fill, milliseconds, percentile, wait_until
from reindexing import reindex
from retention import retention
from throttled import throttled
from webhooks import webhooks

ENQUEUE: Final = "select mdm.enqueue_job('noop', jsonb_build_object('t', extract(epoch from clock_timestamp())));\n"
# the same two rows without any rule: what the server can do
BARE_ENQUEUE: Final = (
    "begin \\;"
    " insert into mdm.aa_job (job_kind, priority, available_at, payload, max_attempts)"
    " values ('noop', 100, clock_timestamp(), jsonb_build_object('t', extract(epoch from clock_timestamp())), 10) \\;"
    " insert into mdm.aa_audit_log (action, object_type, object_id, payload)"
    " values ('job_enqueued', 'job', '1', '{\"job_kind\": \"noop\"}') \\;"
    " commit;\n"
)
# what a job with one write costs at the least: the row, the status, the audit row, one commit
BARE_WRITE: Final = (
    "\\set id random(1, {jobs})\n"
    "begin \\;"
    " insert into bench_effect (job_id) values (:id) \\;"
    " update mdm.aa_job set last_error = null, context = null where id = :id \\;"
    " insert into mdm.aa_audit_log (action, object_type, object_id, payload)"
    " values ('job_done', 'job', ':id', '{{\"job_kind\": \"write\"}}') \\;"
    " commit;\n"
)


def enqueue(bench: Bench) -> None:
    """Single enqueues by 16 clients, one commit each, against the bare inserts; and enqueue_jobs."""
    seconds = 3 if bench.quick else 8
    with bench.database() as dsn:
        ours = bench.pgbench(dsn, ENQUEUE, clients=16, seconds=seconds)
    with bench.database() as dsn:
        bare = bench.pgbench(dsn, BARE_ENQUEUE, clients=16, seconds=seconds)
    bench.report("enqueue", "enqueue_job, 16 clients, one commit each", f"{ours:,.0f}/s")
    bench.report("enqueue", "of the same two bare inserts", f"{ours / bare:.2f}")
    with bench.database() as dsn:
        bench.report("enqueue", "enqueue_jobs, 1,000 a call", f"{fill(dsn, 'noop', 20_000):,.0f}/s")


def drain(bench: Bench) -> None:
    """No-op jobs, one process, from the first handler's start to the last finish."""
    jobs = 10_000 if bench.quick else 50_000
    for level in ("full", "exceptions"):
        with bench.database() as dsn:
            _audit_level(dsn, "noop", level)
            fill(dsn, "noop", jobs)
            bench.report(
                "drain", f"{jobs:,} no-op jobs, audit_level {level}", f"{_drain(bench, dsn, 'noop', jobs):,.0f}/s"
            )


def write(bench: Bench) -> None:
    """Handlers that write one row in the job's own transaction, against the same statements in pgbench."""
    jobs = 3_000 if bench.quick else 20_000
    with bench.database() as dsn:
        fill(dsn, "write", jobs)
        ours = _drain(bench, dsn, "write", jobs, "--concurrency", "8")
    with bench.database() as dsn:
        fill(dsn, "write", jobs)
        bare = bench.pgbench(dsn, BARE_WRITE.format(jobs=jobs), clients=8, seconds=3 if bench.quick else 8)
    bench.report("write", "one row a job, one commit a job, 8 slots", f"{ours:,.0f}/s")
    bench.report("write", "of the same statements by pgbench, 8 clients", f"{ours / bare:.2f}")


def pickup(bench: Bench) -> None:
    """Single enqueues on an idle runner: from the commit to the handler's start."""
    count = 50 if bench.quick else 200
    with bench.database() as dsn, bench.runner(dsn), psycopg.connect(dsn, autocommit=True) as conn:
        sleep(4)  # until it is idle: what is measured is the idle runner
        committed: dict[float, float] = {}
        for number in range(count):
            before = bench.started()
            conn.execute("select mdm.enqueue_job('noop', jsonb_build_object('t', %s::int))", (number,))
            committed[number] = time()
            wait_until(lambda before=before: bench.started() > before, 10, "the pickup of a job")  # type: ignore[misc]
            sleep(random.uniform(0.02, 0.08))
        waits = [max(0.0, started - committed[number]) for number, started in bench.starts()]
    bench.report("pickup", f"{count} single enqueues, commit to start", milliseconds(waits, 50, 99))


def steady(bench: Bench) -> None:
    """A steady stream: enqueue to start, without and with a held snapshot."""
    seconds = 16 if bench.quick else 120
    for rate, held in ((500, False), (800, True)):
        with bench.database() as dsn, bench.runner(dsn), psycopg.connect(dsn) as holder:
            sleep(3)
            if held:
                holder.execute("set transaction isolation level repeatable read")
                holder.execute("select count(*) from mdm.aa_job")
            began = time()
            produced = bench.pgbench(dsn, ENQUEUE, clients=4, seconds=seconds, rate=rate)
            sleep(1)
            waits = [(asked - began, started - asked) for asked, started in bench.starts()]
        first = [wait for at, wait in waits if 2 <= at < seconds / 4]
        last = [wait for at, wait in waits if at >= seconds * 3 / 4]
        name = f"{rate}/s for {seconds} s" + (", snapshot held" if held else "")
        bench.report("steady", f"{name}: produced", f"{produced:,.0f}/s")
        bench.report("steady", f"{name}: first quarter", milliseconds(first, 50, 95))
        bench.report("steady", f"{name}: last quarter", milliseconds(last, 50, 95))


def backlog(bench: Bench) -> None:
    """One claim beside pending rows that cannot be claimed, against a claim on an empty table."""
    rows = 50_000 if bench.quick else 1_000_000
    shapes = {
        "of another kind": "select 'reindex', null::uuid, 1, clock_timestamp() from generate_series(1, {rows})",
        "not due": "select 'noop', null::uuid, 1, clock_timestamp() + interval '1 day' from generate_series(1, {rows})",
        "of 1,000 other tenants": (
            "select 'noop', t.id, n % 10, clock_timestamp() from generate_series(1, {rows} / 1000) n, mdm.aa_tenant t"
        ),
    }
    with bench.database() as dsn:
        empty = _claim_seconds(dsn, None)
    bench.report("backlog", "claim of one job, empty table", milliseconds(empty, 50, 95))
    for name, query in shapes.items():
        with bench.database() as dsn:
            tenant = _fill_backlog(dsn, query.format(rows=rows), tenants="tenants" in name)
            found = _claim_seconds(dsn, tenant)
        ratio = percentile(found, 95) / percentile(empty, 95)
        bench.report("backlog", f"beside {rows:,} pending rows {name}", f"{milliseconds(found, 50, 95)}, {ratio:.1f} x")


SCENARIOS: Final = {
    each.__name__: each
    for each in (enqueue, drain, write, pickup, steady, backlog, throttled, retention, webhooks, reindex)
} | {"import": import_rows}


def _audit_level(dsn: str, kind: str, level: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("select mdm.set_job_kind(%s, jsonb_build_object('audit_level', %s::text))", (kind, level))


def _drain(bench: Bench, dsn: str, kind: str, jobs: int, *arguments: str) -> float:
    """Drain a kind with one process and return jobs a second."""
    with (
        bench.runner(dsn, "--drain", *arguments, kinds=kind) as process,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        process.wait(300)
        [(done, ended)] = conn.execute(
            "select count(*), extract(epoch from max(completed_at))::float8 from mdm.aa_job where status = 'done'"
        ).fetchall()
    if done != jobs:
        raise SystemExit(f"bench: {done} of {jobs} jobs were done")
    return float(jobs / (ended - min(started for _, started in bench.starts())))


def _fill_backlog(dsn: str, query: str, tenants: bool) -> str | None:
    """Insert pending rows directly; return the tenant to claim for, if the claim is to be bound to one."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        if tenants:
            conn.execute("insert into mdm.aa_tenant (id) select gen_random_uuid() from generate_series(1, 1000)")
        conn.execute(
            "insert into mdm.aa_job (job_kind, tenant_id, priority, available_at, max_attempts)"
            f" select *, 10 from ({query}) s".encode()
        )
        [(mine,)] = conn.execute(
            "insert into mdm.aa_tenant (id) values (gen_random_uuid()) returning id::text"
        ).fetchall()
        conn.execute("vacuum analyze")
        conn.execute("checkpoint")
    return mine if tenants else None


def _claim_seconds(dsn: str, tenant: str | None) -> list[float]:
    """Enqueue and claim one job a few hundred times; return the seconds of the claims."""
    found = []
    with psycopg.connect(dsn, autocommit=True) as conn:
        for _ in range(300):
            conn.execute("select mdm.enqueue_job('noop', p_tenant_id => %s::uuid)", (tenant,))
            began = time()
            rows = conn.execute(
                "select id from mdm.claim_job('bench', '{noop}', %s::uuid[])", ([tenant] if tenant else None,)
            ).fetchall()
            found.append(time() - began)
            if len(rows) != 1:
                raise SystemExit("bench: the claim found nothing")
    return found[50:]
