"""Handlers of the chaos suite. A table public.effect counts what they did; files tell where they stand.

A file `hold-<place>` in $CHAOS_MARKS makes a handler wait there, after it has made `at-<place>`.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep

import psycopg

from chaos.kinds import CHUNKS, STORM, WINDOWS
from jobrunner.errors import PermanentError
from jobrunner.job import Context, Handler, Job

MARKS = Path(os.environ["CHAOS_MARKS"])
INSERT = "insert into public.effect (job_id, part, pid) values (%s, %s, %s)"


def stand(place: str) -> None:
    """Say that this place is reached, and wait as long as it is held."""
    hold = MARKS / f"hold-{place}"
    if hold.exists():
        (MARKS / f"at-{place}").touch()
        while hold.exists():
            sleep(0.01)


def effect(job: Job, ctx: Context) -> None:
    """One effect, in the job's own transaction."""
    stand(f"{job.job_kind}-before")
    sleep(job.payload.get("seconds", 0))
    ctx.connection().execute(INSERT, (job.id, 0, os.getpid()))
    stand(f"{job.job_kind}-after")


def busy(job: Job, ctx: Context) -> None:
    """Compute for so many seconds, in stretches that keep the interpreter to themselves, and write one effect."""
    until = monotonic() + job.payload["seconds"]
    while monotonic() < until:
        sum(range(job.payload.get("stretch", 5_000_000)))  # no other thread runs meanwhile
        for _ in range(100_000):
            pass
    ctx.connection().execute(INSERT, (job.id, 0, os.getpid()))


def noop(job: Job, ctx: Context) -> None:
    """Nothing: such jobs are finished together."""
    stand(f"{job.job_kind}-before")


def chunks(job: Job, ctx: Context) -> None:
    """One effect a chunk; a second run goes on where the first stopped."""
    with ctx.chunk() as chunk:
        row = chunk.connection.execute("select count(*) from public.effect where job_id = %s", (job.id,)).fetchone()
    for part in range(row[0] if row else 0, CHUNKS):
        sleep(job.payload.get("seconds", 0))
        with ctx.chunk() as chunk:
            chunk.connection.execute(INSERT, (job.id, part, os.getpid()))
            if part == CHUNKS - 1:
                chunk.finish()
        stand(f"{job.job_kind}-chunk{part}")


def flaky(job: Job, ctx: Context) -> None:
    """Write, and fail the first time: the write is rolled back."""
    ctx.connection().execute(INSERT, (job.id, 0, os.getpid()))
    if job.attempts == 1:
        raise ValueError("the first run fails")


def poison(job: Job, ctx: Context) -> None:
    """Write, and never succeed."""
    ctx.connection().execute(INSERT, (job.id, 0, os.getpid()))
    raise PermanentError("not in a thousand years")


def timeouts(job: Job, ctx: Context) -> None:
    """Run into a timeout of the server the first time: statement, lock or idle, by the job's number."""
    conn = ctx.connection()
    conn.execute(INSERT, (job.id, 0, os.getpid()))
    if job.attempts > 1:
        return
    name = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")[job.id % 3]
    conn.execute("select set_config(%s, '50ms', true)", (name,))
    if job.id % 3 == 0:
        conn.execute("select pg_sleep(30)")
    elif job.id % 3 == 1:
        with psycopg.connect(os.environ["JOBRUNNER_DSN"]) as other:
            other.execute("select pg_advisory_xact_lock(%s)", (job.id,))
            conn.execute("select pg_advisory_xact_lock(%s)", (job.id,))
    else:
        sleep(0.3)


BASES: dict[str, Handler] = {
    "effect": effect,
    "busy": busy,
    "noop": noop,
    "chunks": chunks,
    "flaky": flaky,
    "poison": poison,
    "timeouts": timeouts,
}
HANDLERS: dict[str, Handler] = {kind: BASES[base] for kind, base in {**WINDOWS, **STORM}.items()}
