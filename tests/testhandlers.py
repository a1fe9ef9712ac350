"""Handlers of the tests that run the real command; a table public.effect counts what they did."""

from __future__ import annotations

import os
import signal
import threading
from time import monotonic, sleep

import psycopg

from jobrunner.errors import PermanentError, RetryLater, Snooze
from jobrunner.job import Context, Handler, Job

TABLE = "create table public.effect (job_id bigint, label text, pid int, at timestamptz default clock_timestamp())"


def noop(job: Job, ctx: Context) -> None:
    """Nothing."""


def effect(job: Job, ctx: Context) -> None:
    """Write an effect in the job's own transaction, after the payload's `seconds`."""
    sleep(job.payload.get("seconds", 0))
    ctx.connection().execute(
        "insert into public.effect (job_id, label, pid) values (%s, %s, %s)",
        (job.id, job.payload.get("label", ""), os.getpid()),
    )


def busy(job: Job, ctx: Context) -> None:
    """Compute for the payload's `seconds`, in stretches that keep the interpreter to themselves; then an effect."""
    until = monotonic() + job.payload["seconds"]
    while monotonic() < until:
        sum(range(500_000))  # about 10 ms during which no other thread runs
    ctx.connection().execute(
        "insert into public.effect (job_id, label, pid) values (%s, 'busy', %s)", (job.id, os.getpid())
    )


def loud(job: Job, ctx: Context) -> None:
    """Commit an effect at once on a connection of its own, then take the payload's `seconds`.

    With `held` in the payload, stay until the table has an effect labelled `go`.
    """
    with psycopg.connect(os.environ["JOBRUNNER_DSN"], autocommit=True) as conn:
        conn.execute("insert into public.effect (job_id, label, pid) values (%s, 'start', %s)", (job.id, os.getpid()))
        while job.payload.get("held") and not conn.execute("select 1 from public.effect where label = 'go'").fetchone():
            sleep(0.02)
    sleep(job.payload.get("seconds", 0))


def killer(job: Job, ctx: Context) -> None:
    """Kill the process when the payload says so."""
    if job.payload.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)


def saboteur(job: Job, ctx: Context) -> None:
    """Make a fault in the runner: what its slot needs next is gone."""
    vars(threading.current_thread())["_meter"] = None


def raises(job: Job, ctx: Context) -> None:
    """Raise what the payload names."""
    raise {
        "error": ValueError("broken"),
        "permanent": PermanentError("never"),
        "later": RetryLater(1, "later"),
        "snooze": Snooze(3600, "not now"),
        "exit": SystemExit(3),
    }[job.payload["error"]]


HANDLERS: dict[str, Handler] = {
    "noop": noop,
    "effect": effect,
    "busy": busy,
    "loud": loud,
    "killer": killer,
    "raises": raises,
    "saboteur": saboteur,
}
