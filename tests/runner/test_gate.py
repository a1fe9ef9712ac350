"""The gate (D3): a job that runs alone gets the process to itself for a while; the clock is the test's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from jobrunner.gate import ALONE_SECONDS, Gate
from runnerkit import eventually

pytestmark = pytest.mark.one_leg("15")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(clock: Clock) -> Gate:
    return Gate(clock)


class Doing(threading.Thread):
    """Something that may have to wait."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._action = action
        self.found: list[Any] = []
        self.start()

    def run(self) -> None:
        self.found.append(self._action())

    @property
    def waits(self) -> bool:
        self.join(0.05)
        return self.is_alive()

    def result(self) -> Any:
        self.join(60)
        return self.found[0]


def test_gate_is_open_as_long_as_nobody_wants_to_be_alone(gate: Gate) -> None:
    for slot in ("a", "b", "a", "b"):
        gate.enter(slot)
        assert not gate.closed_for(slot)


def test_gate_waits_for_the_others_and_keeps_them_out(gate: Gate) -> None:
    gate.enter("a")
    gate.enter("b")
    alone = Doing(lambda: gate.be_alone("a", again=False))
    eventually(lambda: gate.closed_for("b"))
    assert alone.waits
    gate.leave("b")
    assert alone.result() is None
    entering = Doing(lambda: gate.enter("b"))
    assert entering.waits
    gate.leave("a")
    entering.result()
    assert not gate.closed_for("b")


def test_gate_does_not_wait_for_who_is_long_at_work(gate: Gate, clock: Clock) -> None:
    gate.enter("long")
    clock.now += ALONE_SECONDS
    gate.enter("a")
    assert gate.be_alone("a", again=False) is None


def test_gate_opens_when_a_long_job_has_survived_a_while(gate: Gate, clock: Clock) -> None:
    gate.enter("a")
    assert gate.be_alone("a", again=False) is None
    assert gate.closed_for("b")
    clock.now += ALONE_SECONDS
    assert not gate.closed_for("b")
    gate.enter("b")


def test_gate_gives_way_to_who_is_alone_already(gate: Gate, clock: Clock) -> None:
    for slot in ("a", "b"):
        gate.enter(slot)
    first = Doing(lambda: gate.be_alone("a", again=False))
    eventually(lambda: gate.closed_for("b"))
    assert gate.be_alone("b", again=True) == 0
    gate.leave("b")
    assert first.result() is None
    clock.now += ALONE_SECONDS
    gate.enter("b")
    clock.now += ALONE_SECONDS
    assert gate.be_alone("b", again=True) is None, "the first one is no suspect of two crashes"


def test_gate_never_lets_two_suspects_of_several_crashes_in(gate: Gate, clock: Clock) -> None:
    gate.enter("a")
    assert gate.be_alone("a", again=True) is None
    clock.now += 5 * ALONE_SECONDS
    gate.enter("b")
    assert gate.be_alone("b", again=True) == ALONE_SECONDS
    assert gate.be_alone("b", again=False) is None, "after one crash it runs beside it"
    clock.now += 5 * ALONE_SECONDS
    gate.leave("a")
    gate.enter("c")
    assert gate.be_alone("c", again=True) is None


def test_gate_stays_closed_from_one_job_that_runs_alone_to_the_next(gate: Gate, clock: Clock) -> None:
    for _ in range(3):
        gate.enter("a")
        assert gate.be_alone("a", again=False) is None
        clock.now += 1
        assert gate.closed_for("b")
    gate.enter("a")
    gate.open("a")
    assert not gate.closed_for("b")


def test_gate_lets_everybody_go_at_the_stop(gate: Gate) -> None:
    for slot in ("a", "b"):
        gate.enter(slot)
    alone = Doing(lambda: gate.be_alone("a", again=False))
    eventually(lambda: gate.closed_for("b"))
    entering = Doing(lambda: gate.enter("c"))
    assert alone.waits
    assert entering.waits
    gate.stop()
    alone.result()
    entering.result()
