"""Runs a handler, and turns whatever it does into an outcome. Pure, but for the handler."""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from enum import Enum
from typing import Final

from jobrunner.db.call import LeaseLost
from jobrunner.errors import PermanentError, RetryLater, Snooze
from jobrunner.job import ClaimedRow, Context, Handler, Job

ERROR_BYTES: Final = 8192  # D9


class Verdict(Enum):
    """How a run ended."""

    DONE = 1
    FAILED = 2
    RELEASED = 3
    LOST = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and what the database is to be told."""

    verdict: Verdict
    text: str = ""
    retryable: bool = True
    after_seconds: float | None = None
    where: str | None = None  # file:line of the error, for the log


DONE: Final = Outcome(Verdict.DONE)


def run_handler(handler: Handler, row: ClaimedRow, context: Context) -> Outcome:
    """Run the handler: the one place where that happens. Nothing that it raises gets out (invariant 6).

    Nor does a child that it forked: that one would end the job of its parent, by its parent's connection.
    """
    pid = os.getpid()
    try:
        handler(Job.from_row(row), context)
        outcome = DONE
    except BaseException as error:
        outcome = _outcome_of_any(error)
    if os.getpid() != pid:
        os.write(2, f"a child that the handler forked came back from it: {outcome.text or 'returned'}\n".encode())
        os._exit(1)
    return outcome


def _outcome_of_any(error: BaseException) -> Outcome:
    """Say what an error means, also when the error cannot say it."""
    try:
        return outcome_of(error)
    except BaseException as broken:
        return failed(f"{type(error).__name__}, which cannot be read: {type(broken).__name__}")


def outcome_of(error: BaseException) -> Outcome:
    """Say what an error of a handler means."""
    if isinstance(error, Snooze):
        return Outcome(Verdict.RELEASED, clean(error.reason), after_seconds=error.seconds)
    if isinstance(error, LeaseLost):
        return Outcome(Verdict.LOST, clean(str(error)))
    text = clean(f"{type(error).__name__}: {_message(error)}")
    if isinstance(error, RetryLater):
        return Outcome(Verdict.FAILED, text, after_seconds=error.seconds, where=_where(error))
    return Outcome(Verdict.FAILED, text, retryable=not isinstance(error, PermanentError), where=_where(error))


def failed(text: str) -> Outcome:
    """The outcome of a run that the runner itself finds fault with."""
    return Outcome(Verdict.FAILED, clean(text))


def clean(text: object) -> str:
    """Make a text storable: no NUL, no lone surrogates, at most 8,192 bytes, cut between characters (D9, B17)."""
    data = str(text).replace("\x00", "").encode("utf-8", "replace")
    return data[:ERROR_BYTES].decode("utf-8", "ignore")


def _message(error: BaseException) -> str:
    """The error's own text; an error whose str() raises has a standard one."""
    return str(traceback.TracebackException(type(error), error, None))


def _where(error: BaseException) -> str | None:
    """The innermost place of the traceback."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
