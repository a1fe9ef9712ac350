"""The job kinds index_sync (S2.7) and gin_backfill (S2.8): build and drop indexes beside the readers and writers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import psycopg

from jobrunner.db.call import read, send
from jobrunner.db.index import IndexStep, fail_index, sync_index, wants_index
from jobrunner.errors import BAD_ARGUMENT, PermanentError, RetryLater, Snooze, UsageError
from jobrunner.job import Context, Job
from jobrunner.providers.ddl import Ddl, DdlSettings, ddl_session

# A runner without settings gives the job back to one that has them.
NO_SETTINGS_SECONDS: Final = 60.0
# Another build holds the table: look again soon at first, then less often. Not seldom: of many that wait only one gets
# the table, and until they look again it may lie idle.
FIRST_SNOOZE_SECONDS: Final = 2.0
MAX_SNOOZE_SECONDS: Final = 15.0
ROW_HELD: Final = "a transaction holds the row whose index_status is to be set"
ROW_HELD_SECONDS: Final = 5.0
# Drop what is in the way, build, look; more rounds only when somebody toggles meanwhile.
MAX_ROUNDS: Final = 20


class _NotWanted(Exception):
    """The toggle went back while the index was being built."""


def build_index(job: Job, ctx: Context) -> None:
    """Bring the index that the job names to what is wanted now, on a DDL connection of its own.

    The database says what to do (mdm.sync_index) until nothing is left to do; that answer writes index_status and
    finishes the job in one transaction (S5.1). A crash or a second run finds a valid index and only finishes.
    """
    try:
        settings = DdlSettings.from_environ(os.environ)
    except UsageError as error:
        raise Snooze(NO_SETTINGS_SECONDS, str(error)) from error
    with ddl_session(settings) as ddl:
        sync(job, ctx, ddl)


def sync(job: Job, ctx: Context, ddl: Ddl) -> None:
    """Do the work on an open DDL session.

    Raises Snooze while another build has the table (B100), PermanentError for a payload that cannot be right,
    psycopg.Error when the build failed: its leftover is dropped then, and with the last attempt the status is failed.
    """
    if not ddl.lock():
        raise Snooze(snooze_seconds(job.releases), "another index of the table is being built")
    for _ in range(MAX_ROUNDS):
        steps = _next_steps(job, ctx)
        if not steps or _run(job, ctx, ddl, steps):
            return
    raise RetryLater(NO_SETTINGS_SECONDS, f"toggled {MAX_ROUNDS} times while the index was being built")


def snooze_seconds(releases: int) -> float:
    """Return how long to wait for another build, after so many times of waiting."""
    return min(FIRST_SNOOZE_SECONDS * 2.0 ** min(releases, 10), MAX_SNOOZE_SECONDS)


def _next_steps(job: Job, ctx: Context) -> list[IndexStep]:
    """Ask what is due; when nothing is, the job is finished in the same transaction."""
    call = sync_index(job_id=job.id, lease_no=job.lease_no)
    try:
        with ctx.chunk() as chunk:
            steps = read(send(chunk.connection, call), call)
            if not steps:
                chunk.finish()
            return steps
    except psycopg.errors.LockNotAvailable as error:
        raise Snooze(ROW_HELD_SECONDS, ROW_HELD) from error
    except psycopg.Error as error:
        if error.sqlstate == BAD_ARGUMENT:
            raise PermanentError(str(error).splitlines()[0]) from error
        raise


def _run(job: Job, ctx: Context, ddl: Ddl, steps: list[IndexStep]) -> bool:
    """Run the statements; True when the job turns out to be finished."""
    try:
        for step in steps:
            ddl.run(step.statement, _watch(job, ctx, step))
        ctx.logger.info("index_step_done")
    except _NotWanted:
        ctx.logger.info("index_build_not_wanted_any_more")
    except psycopg.Error as error:
        return _after_error(job, ctx, ddl, error)
    return False


def _watch(job: Job, ctx: Context, step: IndexStep) -> Callable[[], None]:
    """Return what looks after a running statement: the lease for all of them, the toggle for a build."""
    call = wants_index(job_id=job.id, lease_no=job.lease_no, statement=step.statement)

    def watch() -> None:
        ctx.raise_if_cancelled()
        if not step.is_build:
            return
        with ctx.chunk() as chunk:
            is_wanted = read(send(chunk.connection, call), call)
        if not is_wanted:
            raise _NotWanted

    return watch


def _after_error(job: Job, ctx: Context, ddl: Ddl, error: psycopg.Error) -> bool:
    """Drop what a failed build left (B99), say why it failed, and raise; True when all is as wanted all the same."""
    steps = _next_steps(job, ctx)
    if not steps:
        return True
    if not steps[0].is_build:
        _drop_leftover(ctx, ddl, steps[0])
    if isinstance(error, psycopg.errors.DeadlockDetected):
        # somebody else builds on the table: no fault of this index, no attempt used up
        raise Snooze(snooze_seconds(job.releases), "the build met another one: deadlock") from error
    call = fail_index(job_id=job.id, lease_no=job.lease_no, error=str(error).splitlines()[0])
    try:
        with ctx.chunk() as chunk:
            send(chunk.connection, call)
    except psycopg.errors.LockNotAvailable:
        raise Snooze(ROW_HELD_SECONDS, f"{ROW_HELD}, after: {error}") from error
    raise error


def _drop_leftover(ctx: Context, ddl: Ddl, step: IndexStep) -> None:
    """Try to; where that fails too, the next run begins with it."""
    try:
        ddl.run(step.statement, ctx.raise_if_cancelled)
    except psycopg.Error:
        ctx.logger.warning("index_leftover_not_dropped", exc_info=True)
