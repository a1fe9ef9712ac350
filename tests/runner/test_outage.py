"""Pauses and reports while the database is away (B75)."""

from __future__ import annotations

import threading
from itertools import pairwise

import psycopg
import pytest

from jobrunner import outage as module
from jobrunner.outage import TRUSTED_SECONDS, Outage, Patience, passes

pytestmark = pytest.mark.one_leg("18")


def patience(dice: float = 0.0, outage: Outage | None = None) -> Patience:
    return Patience(outage or Outage(), lambda: dice)


def test_b75_patience_pauses_grow_from_a_tenth_of_a_second_to_five() -> None:
    waiting = patience()
    pauses = [waiting.note(psycopg.OperationalError()) for _ in range(2000)]
    assert pauses[0] == pytest.approx(0.1)
    assert all(earlier <= later for earlier, later in pairwise(pauses))
    assert pauses[-1] == pytest.approx(5.0)


def test_patience_jitter_cuts_a_pause_by_up_to_half() -> None:
    assert patience(dice=0.999).note(psycopg.OperationalError()) == pytest.approx(0.05, rel=0.01)


def test_patience_begins_anew_after_a_success() -> None:
    waiting = patience()
    for _ in range(5):
        waiting.note(psycopg.OperationalError())
    waiting.succeeded()
    assert waiting.note(psycopg.OperationalError()) == pytest.approx(0.1)


def test_patience_pause_ends_with_the_event() -> None:
    waiting, stop = patience(), threading.Event()
    stop.set()
    for _ in range(20):
        waiting.failed(psycopg.OperationalError(), stop)  # 70 seconds, were it not for the event


def test_b75_outage_is_reported_once_by_all_threads(lines: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    threads = [patience(outage=outage) for _ in range(6)]
    for _ in range(50):
        for each in threads:
            each.note(psycopg.OperationalError("the server is away\nfor a while"))
    for each in threads:
        each.succeeded()
    assert [record.getMessage() for record in lines.records] == ["database_lost", "database_back"]


def test_outage_trusts_a_database_that_has_been_there_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    outage = Outage()
    assert not outage.trusted
    now += TRUSTED_SECONDS
    assert not outage.trusted
    now += 0.1
    assert outage.trusted
    outage.back()
    assert outage.trusted, "no loss, no return"
    outage.lost(psycopg.OperationalError())
    assert not outage.trusted
    now += 1000
    assert not outage.trusted, "still away"
    outage.back()
    assert not outage.trusted
    now += TRUSTED_SECONDS + 0.1
    assert outage.trusted


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("connection refused"),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.CannotConnectNow(),
        psycopg.errors.TooManyConnections(),
        psycopg.errors.ReadOnlySqlTransaction(),
        psycopg.errors.LockNotAvailable(),
        psycopg.errors.SerializationFailure(),
        psycopg.errors.DeadlockDetected(),
        psycopg.errors.IdleInTransactionSessionTimeout(),
        psycopg.errors.QueryCanceled(),
    ],
)
def test_outage_passes_by_itself(error: psycopg.Error) -> None:
    assert passes(error)


@pytest.mark.parametrize("error", [psycopg.errors.InsufficientPrivilege(), psycopg.errors.UndefinedFunction()])
def test_outage_that_somebody_has_to_mend(error: psycopg.Error) -> None:
    assert not passes(error)
