"""The tray: a job is started or given back, never both, and its end has one owner."""

from __future__ import annotations

import threading
from collections import Counter
from time import monotonic

import pytest

from jobrunner.job import ClaimedRow
from jobrunner.tray import Hold, State, Tray

pytestmark = pytest.mark.one_leg("18")


def rows(count: int, kind: str = "a") -> list[ClaimedRow]:
    return [
        ClaimedRow(n, n, kind, None, 0, 0.0, "{}", None, 1, 5, None, 0, "w", 0.0, 0.0, 0, 0, False, None)
        for n in range(count)
    ]


class Cut:
    """Counts how often the connection was cut."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def cut() -> Cut:
    return Cut()


@pytest.fixture
def tray(cut: Cut) -> Tray:
    return Tray(cut)


def started(tray: Tray) -> Hold:
    hold = tray.start(1.0)
    assert hold is not None
    return hold


def test_tray_starts_in_order_and_ends_empty(tray: Tray) -> None:
    tray.put(rows(3), 0.0)
    for number in range(3):
        hold = started(tray)
        assert hold.row.id == number
        assert tray.running() is hold
        assert tray.done(hold)
    assert tray.start(1.0) is None
    holds = tray.take_done()
    assert [hold.row.id for hold in holds] == [0, 1, 2]
    assert not tray.empty
    tray.ended(holds)
    assert tray.empty


def test_tray_withdraws_what_has_not_started(tray: Tray) -> None:
    tray.put(rows(3), 0.0)
    started(tray)
    assert [hold.row.id for hold in tray.withdraw()] == [1, 2]
    assert tray.start(1.0) is None


@pytest.mark.parametrize("way", ["take", "lose"])
def test_tray_job_taken_from_its_handler_is_no_longer_the_slots(tray: Tray, cut: Cut, way: str) -> None:
    tray.put(rows(1), 0.0)
    hold = started(tray)
    if way == "take":
        assert tray.take(hold)[0]
    else:
        assert tray.lose([hold])[0] == [hold]
    assert (hold.cancelled, cut.times) == (True, 1)
    assert not tray.done(hold)
    assert not tray.settle(hold)


@pytest.mark.parametrize("end", ["done", "settle"])
def test_tray_job_that_the_slot_ends_cannot_be_taken(tray: Tray, cut: Cut, end: str) -> None:
    tray.put(rows(1), 0.0)
    hold = started(tray)
    assert getattr(tray, end)(hold)
    assert tray.take(hold) == (False, None)
    assert tray.lose([hold]) == ([], None)
    assert (hold.cancelled, cut.times) == (False, 0)


def test_tray_job_that_is_lost_is_out_but_its_handler_is_known(tray: Tray, cut: Cut) -> None:
    tray.put(rows(1), 0.0)
    hold = started(tray)
    tray.lose([hold])
    assert (tray.empty, tray.holds, tray.running()) == (True, [], hold)
    assert tray.take(hold) == (False, None)
    assert (hold.state, tray.running(), tray.empty, cut.times) == (State.TAKEN, None, True, 1)
    assert not tray.settle(hold)


def test_tray_losing_a_waiting_job_cuts_nothing(tray: Tray, cut: Cut) -> None:
    tray.put(rows(2), 0.0)
    first, second = tray.due_for_beat(100.0, lambda kind: 1.0)
    assert tray.lose([second])[0] == [second]
    assert cut.times == 0
    assert started(tray) is first
    assert tray.start(1.0) is None


def test_tray_keeps_every_lease_alive_until_its_end_is_stored(tray: Tray) -> None:
    tray.put(rows(4), 0.0)
    tray.done(started(tray))
    settling = started(tray)
    tray.settle(settling)
    started(tray)
    thrown = tray.put_settling(rows(1), 0.0)
    assert len(tray.due_for_beat(10.0, lambda kind: 5.0)) == 5
    assert tray.due_for_beat(4.9, lambda kind: 5.0) == []
    tray.ended([settling, *thrown])
    assert len(tray.due_for_beat(10.0, lambda kind: 5.0)) == 3


def test_tray_beats_each_kind_at_its_own_pace(tray: Tray) -> None:
    tray.put([*rows(1, "slow"), *rows(1, "quick")], 0.0)
    due = tray.due_for_beat(10.0, {"slow": 100.0, "quick": 5.0}.__getitem__)
    assert [hold.row.job_kind for hold in due] == ["quick"]


def test_tray_takes_back_what_could_not_be_finished(tray: Tray) -> None:
    tray.put(rows(1), 0.0)
    hold = started(tray)
    tray.done(hold)
    tray.put_back(tray.take_done())
    assert (hold.state, hold.unsure) == (State.DONE, True)
    assert tray.take_done() == [hold]


def test_tray_race_of_start_and_withdraw_never_gives_a_job_to_both(tray: Tray) -> None:
    """200 rounds of a slot and a keeper over 50 jobs: each is run once or given back once."""
    for _ in range(200):
        tray.put(rows(50), 0.0)
        seen: list[int] = []
        barrier = threading.Barrier(2)

        def slot(seen: list[int] = seen, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            while (hold := tray.start(monotonic())) is not None:
                seen.append(hold.row.id)
                tray.done(hold)

        def keeper(seen: list[int] = seen, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            holds = tray.withdraw()
            seen.extend(hold.row.id for hold in holds)
            tray.ended(holds)

        threads = [threading.Thread(target=slot), threading.Thread(target=keeper)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tray.ended(tray.take_done())
        assert Counter(seen) == Counter(range(50))
        assert tray.empty


def test_tray_race_of_end_and_take_has_one_owner(tray: Tray) -> None:
    """1,000 rounds of a handler that returns while its time is up: exactly one of the two ends the job."""
    for _ in range(1000):
        tray.put(rows(1), 0.0)
        hold = started(tray)
        won: list[str] = []
        barrier = threading.Barrier(2)

        def slot(hold: Hold = hold, won: list[str] = won, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            if tray.settle(hold):
                won.append("slot")

        thread = threading.Thread(target=slot)
        thread.start()
        barrier.wait()
        if tray.take(hold)[0]:
            won.append("keeper")
        thread.join()
        assert len(won) == 1
        tray.ended([hold])
