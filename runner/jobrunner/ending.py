"""How a job ends: what its outcome means for the database, and for whom it is counted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg.pq import TransactionStatus

from jobrunner.context import SlotContext
from jobrunner.db.call import LeaseLost
from jobrunner.db.session import CommitLost, Session
from jobrunner.db.worker import Failed, check_lease, fail_job, finish_job, release_job
from jobrunner.logs import event, job_event, logger
from jobrunner.outage import first_line
from jobrunner.outcome import Outcome, Verdict, failed
from jobrunner.shared import Tally
from jobrunner.steady import ALREADY_ENDED, Steady
from jobrunner.tray import Hold

ABORTED: Final = "the handler left its transaction aborted: it swallowed the error of an SQL statement"
UNUSABLE: Final = "the connection of the job's transaction is closed or busy: what was written in it is lost"
CHUNK_OPEN: Final = "the handler left a chunk open: what was written in it is lost"
NAMED_JOBS: Final = 20  # of those that are left to recovery; the others are counted


class Ending:
    """Ends the jobs of one slot."""

    def __init__(self, session: Steady, tally: Tally) -> None:
        self._session = session
        self._tally = tally

    def end(self, hold: Hold, context: SlotContext, outcome: Outcome) -> None:
        """Tell the database how a run ended that needs a word of its own; what it refuses for good is recovered."""
        try:
            if hold.finished:
                self._finished(hold, outcome)
            elif context.chunk_open:
                self._end_badly(hold, context, failed(CHUNK_OPEN))
            elif outcome.verdict is Verdict.DONE:
                self._finish(hold, context)
            else:
                self._end_badly(hold, context, outcome)
        except LeaseLost as lost:
            tell_lost(hold, lost.detail, self._tally)
        except psycopg.Error as error:
            job_event(logging.ERROR, "end_refused", hold.row, error=first_line(error), sqlstate=error.sqlstate)

    def abandon(self, context: SlotContext) -> None:
        """Leave a clean session behind a job that was taken away: its writes are rolled back."""
        if context.used:
            self._session.raw.rollback()

    def _finished(self, hold: Hold, outcome: Outcome) -> None:
        """A chunk of the handler carried finish_job; an error after that comes too late to count."""
        if outcome.verdict is not Verdict.DONE:
            job_event(logging.ERROR, "error_after_finish", hold.row, error=outcome.text, where=outcome.where)
        tell_done([hold], self._tally)

    def _finish(self, hold: Hold, context: SlotContext) -> None:
        """Finish a job whose handler had the connection."""
        status = self._session.raw.status
        if context.open and status is TransactionStatus.INTRANS:
            self._commit(hold, context)
        elif context.open and status is TransactionStatus.INERROR:
            self._end_badly(hold, context, failed(ABORTED))
        elif context.open and status is not TransactionStatus.IDLE:
            self._end_badly(hold, context, failed(UNUSABLE))
        else:
            if context.open:
                job_event(logging.ERROR, "handler_committed", hold.row)
            self._session.raw.rollback()
            self._session.insist(finish_job(job_id=hold.row.id, lease_no=hold.row.lease_no), [hold])
            tell_done([hold], self._tally)

    def _commit(self, hold: Hold, context: SlotContext) -> None:
        """Commit the handler's writes and its finish_job together (S5.1)."""
        try:
            self._session.raw.commit(finish_job(job_id=hold.row.id, lease_no=hold.row.lease_no))
        except CommitLost as error:
            self._end_badly(hold, context, failed(str(error)))
        except psycopg.Error as error:
            # Refused by a deferred constraint, or the answer is lost: then fail_job tells whether it was committed.
            hold.unsure = error.sqlstate is None or error.sqlstate.startswith(("08", "57", "58"))
            self._end_badly(hold, context, failed(f"{type(error).__name__} at commit: {error}"))
        else:
            tell_done([hold], self._tally)

    def _end_badly(self, hold: Hold, context: SlotContext, outcome: Outcome) -> None:
        """Roll back, then tell the database in a transaction of its own (design 4)."""
        if context.used:
            self._session.raw.rollback()
        hold.unsure = hold.unsure or context.finish_sent
        if outcome.verdict is Verdict.LOST and not hold.unsure:
            tell_lost(hold, outcome.text, self._tally)
        elif outcome.verdict is Verdict.RELEASED:
            self._release(hold, outcome)
        else:
            self._fail(hold, outcome)

    def _release(self, hold: Hold, outcome: Outcome) -> None:
        row = hold.row
        call = release_job(
            job_id=row.id, lease_no=row.lease_no, retry_after_seconds=outcome.after_seconds, reason=outcome.text
        )
        self._session.insist(call, [hold])
        self._tally.add(released=1)
        self._tally.meter.ended([row.job_kind], "released")
        job_event(logging.INFO, "job_released", row, reason=outcome.text, retry_after_seconds=outcome.after_seconds)

    def _fail(self, hold: Hold, outcome: Outcome) -> None:
        row = hold.row
        call = fail_job(
            job_id=row.id,
            lease_no=row.lease_no,
            error=outcome.text,
            retryable=outcome.retryable,
            retry_after_seconds=outcome.after_seconds,
        )
        before = hold.unsure
        result = self._session.insist(call, [hold])
        if result is None and before:
            tell_done([hold], self._tally)  # the commit whose answer was lost had succeeded
        else:
            tell_failed(hold, result, outcome, self._tally)


def tell_done(holds: Sequence[Hold], tally: Tally) -> None:
    """Count jobs that are done, and say so: one by one, or the number when they were finished together."""
    tally.add(done=len(holds))
    tally.meter.ended((hold.row.job_kind for hold in holds), "done")
    if len(holds) == 1:
        job_event(logging.INFO, "job_done", holds[0].row)
        return
    event(logging.INFO, "jobs_done", count=len(holds), worker_id=holds[0].row.claimed_by)
    if logger.isEnabledFor(logging.DEBUG):
        for hold in holds:
            job_event(logging.DEBUG, "job_done", hold.row)


def tell_failed(hold: Hold, result: Failed | None, outcome: Outcome, tally: Tally) -> None:
    """Count a run that failed, and say what becomes of its job."""
    status = result.status if result is not None else None
    fields = {"error": outcome.text, "where": outcome.where}
    outcome_name = {"dlq": "dlq", "done": "superseded"}.get(status or "", "failed")
    tally.meter.ended([hold.row.job_kind], outcome_name)
    if status == "dlq":
        tally.add(dead=1)
        job_event(logging.ERROR, "job_dead", hold.row, **fields)
    elif status == "done":
        tally.add(done=1)
        job_event(logging.INFO, "job_superseded", hold.row, **fields)
    else:
        tally.add(failed=1)
        seconds = result.available_in_seconds if result is not None else None
        job_event(logging.WARNING, "job_failed", hold.row, retry_in_seconds=seconds, **fields)


def tell_released(holds: Sequence[Hold], reason: str, tally: Tally) -> None:
    """Count jobs that were given back without a run."""
    tally.add(released=len(holds))
    tally.meter.ended((hold.row.job_kind for hold in holds if hold.started_at), "released")
    event(logging.INFO, "jobs_released", count=len(holds), reason=reason, worker_id=holds[0].row.claimed_by)
    for hold in holds:
        job_event(logging.DEBUG, "job_released", hold.row, reason=reason)


def tell_lost(hold: Hold, detail: str, tally: Tally) -> None:
    """Count a run whose lease was lost: somebody else has the job, or had the last word."""
    tally.add(lost=1)
    tally.meter.lost(hold.row.job_kind)
    if hold.started_at:
        tally.meter.ended([hold.row.job_kind], "lost")
    job_event(logging.WARNING, "lease_lost", hold.row, detail=detail)


def tell_left(holds: Sequence[Hold]) -> None:
    """Say which jobs stay behind as running: nobody could tell the database of their end."""
    left = sorted(hold.row.id for hold in holds)
    if left:
        named = ",".join(map(str, left[:NAMED_JOBS])) + (",..." if len(left) > NAMED_JOBS else "")
        event(logging.ERROR, "jobs_left_to_recovery", count=len(left), job_ids=named)


def tell_finished(session: Session, holds: Sequence[Hold], accepted: set[int], tally: Tally) -> None:
    """Count what finish_jobs accepted; of the others, ask what became of their leases."""
    done = [hold for hold in holds if hold.row.id in accepted]
    for hold in holds if len(done) < len(holds) else ():
        if hold.row.id in accepted:
            continue
        detail = _detail(session, hold)
        if hold.unsure and detail == ALREADY_ENDED:
            done.append(hold)  # by the attempt whose answer was lost
        else:
            tell_lost(hold, detail, tally)
    if done:
        tell_done(done, tally)


def _detail(session: Session, hold: Hold) -> str:
    """Ask what became of a lease."""
    try:
        session.run(check_lease(job_id=hold.row.id, lease_no=hold.row.lease_no))
    except LeaseLost as lost:
        return lost.detail
    except psycopg.Error:
        return "unknown"
    return "held"
