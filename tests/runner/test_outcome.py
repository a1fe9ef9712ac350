"""What a handler does, as an outcome (D9, D10, B17)."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest

from jobrunner.db.call import LeaseLost
from jobrunner.errors import PermanentError, RetryLater, Snooze
from jobrunner.job import ClaimedRow, Context, Handler, Job
from jobrunner.outcome import DONE, ERROR_BYTES, Verdict, clean, outcome_of, run_handler

pytestmark = pytest.mark.one_leg("18")


class Nothing(Context):
    """A context that no handler here asks for anything."""


def row(payload: str = "{}") -> ClaimedRow:
    return ClaimedRow(7, 1, "a", None, 0, 0.0, payload, None, 1, 5, None, 0, "w", 0.0, 0.0, 0, 0, False, None)


def ran(handler: Handler, payload: str = "{}") -> Any:
    return run_handler(handler, row(payload), Nothing())


def raiser(error: BaseException) -> Handler:
    def handler(job: Job, ctx: Context) -> None:
        raise error

    return handler


def test_outcome_of_a_handler_that_returns_is_done() -> None:
    assert ran(lambda job, ctx: None) is DONE


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError("full")]
)
def test_outcome_of_any_exception_is_a_failure_to_be_tried_again(error: BaseException) -> None:
    outcome = ran(raiser(error))
    assert (outcome.verdict, outcome.retryable, outcome.after_seconds) == (Verdict.FAILED, True, None)
    assert outcome.text == f"{type(error).__name__}: {error}"
    assert outcome.where.startswith(__file__)


class Unreadable(Exception):
    """An error that cannot even be written down."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class BareSnooze(Snooze):
    """A subclass that never called its parent."""

    def __init__(self) -> None:
        """Leave seconds and reason out."""


def unreadable_reason() -> Snooze:
    snooze = Snooze(1, "soon")
    snooze.reason = Unreadable()  # type: ignore[assignment]
    return snooze


@pytest.mark.parametrize("error", [BareSnooze(), unreadable_reason()], ids=["bare", "unreadable"])
def test_outcome_of_an_error_that_cannot_be_read_is_a_failure(error: BaseException) -> None:
    outcome = ran(raiser(error))
    assert (outcome.verdict, outcome.retryable) == (Verdict.FAILED, True)
    assert outcome.text.startswith(f"{type(error).__name__}, which cannot be read: ")


@pytest.mark.parametrize("error", [None, ValueError("no such program")], ids=["returns", "raises"])
def test_child_that_a_handler_forked_does_not_come_back(
    error: BaseException | None, capfd: pytest.CaptureFixture[str]
) -> None:
    codes = []

    def handler(job: Job, ctx: Context) -> None:
        if pid := os.fork():
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        elif error is not None:
            raise error

    assert ran(handler) is DONE
    assert codes == [1]
    came_back = "returned" if error is None else "ValueError: no such program"
    assert capfd.readouterr().err == f"a child that the handler forked came back from it: {came_back}\n"


def test_outcome_of_permanent_error_is_not_tried_again() -> None:
    assert not ran(raiser(PermanentError("never"))).retryable


def test_outcome_of_retry_later_says_when() -> None:
    outcome = ran(raiser(RetryLater(90, "busy")))
    assert (outcome.verdict, outcome.after_seconds, outcome.text) == (Verdict.FAILED, 90, "RetryLater: busy")


def test_outcome_of_snooze_is_a_release() -> None:
    outcome = ran(raiser(Snooze(90, "not now")))
    assert (outcome.verdict, outcome.after_seconds, outcome.text) == (Verdict.RELEASED, 90, "not now")


@pytest.mark.parametrize("kind", [RetryLater, Snooze])
@pytest.mark.parametrize("seconds", ["soon", timedelta(minutes=5), None])
def test_outcome_of_a_time_that_is_no_number_is_a_failure(kind: Any, seconds: Any) -> None:
    def handler(job: Job, ctx: Context) -> None:
        raise kind(seconds, "busy")

    outcome = ran(handler)
    assert (outcome.verdict, outcome.retryable, outcome.after_seconds) == (Verdict.FAILED, True, None)
    assert outcome.text.startswith(("TypeError: float()", "ValueError: could not convert"))


def test_outcome_of_a_lost_lease_is_lost() -> None:
    assert outcome_of(LeaseLost("lease lost on job 1", "recovered")).verdict is Verdict.LOST


def test_b17_outcome_text_has_no_nul_and_no_lone_surrogate() -> None:
    assert ran(raiser(ValueError("a\x00b\ud800c"))).text == "ValueError: ab?c"


def test_outcome_text_is_cut_between_characters() -> None:
    text = clean("x" + "\u20ac" * 5000)
    assert len(text.encode()) == ERROR_BYTES - 1  # one byte, then three each: the last one does not fit
    assert set(text[1:]) == {"\u20ac"}


def test_outcome_of_an_error_that_cannot_be_printed() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert ran(raiser(Unprintable())).text.startswith("Unprintable: <")


@pytest.mark.parametrize("payload", ['{"a": ' + "9" * 5000 + "}", "[" * 100_000 + "]" * 100_000])
def test_b16_outcome_of_a_payload_that_python_cannot_hold_is_permanent(payload: str) -> None:
    called: list[Job] = []
    outcome = ran(lambda job, ctx: called.append(job), payload)
    assert (outcome.verdict, outcome.retryable, called) == (Verdict.FAILED, False, [])
    assert "payload cannot be read" in outcome.text
