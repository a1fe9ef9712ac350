"""One handler that does whatever harm its payload names; without a name it has its effect in public.effect."""

from __future__ import annotations

import os
import signal
import sys
from time import sleep

import psycopg

from jobrunner.job import Context, Handler, Job


def exits(ctx: Context) -> None:
    os._exit(3)


def aborts(ctx: Context) -> None:
    """Die as a bug in C does."""
    os.abort()


def swells(ctx: Context) -> None:
    """Ask for more memory than the process may have."""
    bytearray(64 << 30)


def creeps(ctx: Context) -> None:
    """Take memory in small pieces until there is none left."""
    pieces = []
    while True:
        pieces.append(bytearray(16 << 20))


def recurses(ctx: Context) -> None:
    recurses(ctx)


def leaves(ctx: Context) -> None:
    sys.exit("handlers may not")


def interrupts(ctx: Context) -> None:
    raise KeyboardInterrupt


def swallows(ctx: Context) -> None:
    """Leave the transaction aborted."""
    try:
        ctx.connection().execute("select 1/0")
    except psycopg.Error:
        return


def meddles(ctx: Context) -> None:
    """Change all that can be changed in the session, then fail."""
    conn = ctx.connection()
    conn.execute("set search_path = ''")
    conn.execute("set statement_timeout = '1ms'")
    conn.execute("set role mdm_monitor")
    conn.execute("set session characteristics as transaction read only")
    conn.execute("select pg_advisory_lock(4711)")
    raise ValueError("meddled")


def closes(ctx: Context) -> None:
    ctx.connection().close()


def is_ended(ctx: Context) -> None:
    """Lose the connection in the middle, as after pg_terminate_backend."""
    ctx.connection().execute("select pg_terminate_backend(pg_backend_pid())")


def hangs(ctx: Context) -> None:
    sleep(3600)


def blocks(ctx: Context) -> None:
    """Block the signals and never look at ctx.cancelled."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    ctx.logger.info("deaf")
    sleep(3600)


HARM = {
    each.__name__: each
    for each in (
        exits, aborts, swells, creeps, recurses, leaves, interrupts, swallows, meddles, closes, is_ended, hangs, blocks
    )
}  # fmt: skip


def handle(job: Job, ctx: Context) -> None:
    if "harm" in job.payload:
        HARM[job.payload["harm"]](ctx)
    else:
        ctx.connection().execute("insert into public.effect (job_id) values (%s)", (job.id,))


def quick(job: Job, ctx: Context) -> None:
    """The same without an effect, so that jobs are claimed and finished many at a time."""
    if "harm" in job.payload:
        HARM[job.payload["harm"]](ctx)


HANDLERS: dict[str, Handler] = {"poison": handle, "quick": quick}
