"""How idle slots hear of work: by NOTIFY, by polling, and from each other (design 5.5, B59)."""

from __future__ import annotations

import threading
from math import inf
from time import monotonic
from typing import Any, LiteralString

import pytest

from jobrunner import doorbell, slot
from jobrunner.bell import PATIENCE_SECONDS, Bell
from jobrunner.db.connect import Target
from jobrunner.db.worker import claim_job
from jobs import Connection, enqueue, make_kind, statuses, value
from runnerkit import eventually, serving

pytestmark = pytest.mark.one_leg("18")

KIND = "rung"


@pytest.fixture(autouse=True)
def kind(conn: Connection) -> str:
    return make_kind(conn, KIND)


def idle(served: Any, slots: int = 1) -> None:
    """Wait until all slots sleep and the next poll is far away."""
    eventually(lambda: served.pool._shared.bell.idle == slots)
    eventually(lambda: served.pool._doorbell._pause >= 1.0)


LISTENS: LiteralString = """
    select pid from pg_stat_activity
    where application_name = 'jobrunner doorbell' and query = 'listen mdm_jobs' and state = 'idle'
"""


@pytest.fixture
def never_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle pool does not poll: what wakes it is a NOTIFY."""
    for name in ("FIRST_POLL_SECONDS", "LONGEST_POLL_SECONDS"):
        monkeypatch.setattr(doorbell, name, 600.0)


def listening(conn: Connection, served: Any) -> None:
    """Wait until the slot sleeps and a NOTIFY is wanted and would be heard."""
    eventually(lambda: served.pool._shared.bell.idle == 1)
    eventually(lambda: value(conn, "select bool_or(hungry) from mdm.aa_job_runner"))
    eventually(lambda: conn.execute(LISTENS).fetchall())


@pytest.mark.usefixtures("never_polling")
def test_doorbell_notify_wakes_an_idle_slot_at_once(conn: Connection, dsn: str) -> None:
    started: list[float] = []
    with serving(dsn, {KIND: lambda job, ctx: started.append(monotonic())}) as served:
        waits = []
        for number in range(3):
            listening(conn, served)
            before = monotonic()
            enqueue(conn, KIND)
            eventually(lambda number=number: len(started) > number, every=0.001)
            waits.append(started[-1] - before)
    assert min(waits) < 1, waits


@pytest.mark.usefixtures("never_polling")
def test_doorbell_spares_the_claim_that_would_find_nothing(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that came back short took all there was; what is committed later rings, also while the slot works."""
    claims: list[int] = []
    monkeypatch.setattr(slot, "claim_job", lambda **given: claims.append(given["limit"]) or claim_job(**given))
    entered, leave = threading.Event(), threading.Event()

    def handler(job: Any, ctx: Any) -> None:
        if job.payload:
            entered.set()
            assert leave.wait(30)

    with serving(dsn, {KIND: handler}) as served:
        for number in range(3):
            listening(conn, served)
            eventually(lambda: served.pool._shared.bell.sure)
            enqueue(conn, KIND)
            eventually(lambda number=number: statuses(conn) == {"done": number + 1})
        listening(conn, served)
        claims.clear()
        enqueue(conn, KIND, {"wait": True})
        assert entered.wait(30)
        enqueue(conn, KIND)
        eventually(lambda: served.pool._shared.bell._rung)
        leave.set()
        eventually(lambda: statuses(conn) == {"done": 5})
        listening(conn, served)
        assert len(claims) == 2
        assert min(claims) > 1


@pytest.mark.parametrize("listen", [None, "postgresql://nobody@/none?host=/nowhere"])
def test_b59_doorbell_polls_where_nothing_can_be_heard(conn: Connection, dsn: str, listen: str | None) -> None:
    with serving(dsn, {KIND: lambda job, ctx: None}, listen=Target(listen) if listen else None) as served:
        idle(served)
        for _ in range(10):
            enqueue(conn, KIND)
        eventually(lambda: statuses(conn) == {"done": 10})


def test_b59_doorbell_finds_a_retry_that_falls_due(conn: Connection, dsn: str) -> None:
    make_kind(conn, KIND, base_delay="1 second", jitter=0)
    ran: list[int] = []

    def handler(job: Any, ctx: Any) -> None:
        ran.append(job.attempts)
        if job.attempts == 1:
            raise ValueError

    enqueue(conn, KIND)
    with serving(dsn, {KIND: handler}):
        eventually(lambda: statuses(conn) == {"done": 1})
    assert ran == [1, 2]


@pytest.mark.usefixtures("never_polling")
def test_b59_doorbell_listens_again_after_its_connection_was_lost(conn: Connection, dsn: str) -> None:
    started: list[float] = []
    with serving(dsn, {KIND: lambda job, ctx: started.append(monotonic())}) as served:
        [first] = eventually(lambda: conn.execute(LISTENS).fetchall())
        conn.execute("select pg_terminate_backend(%s)", first)
        # it tries again after a moment, when a poll is due or a slot becomes idle
        eventually(lambda: served.pool._idle.wake() or conn.execute(LISTENS).fetchall() not in ([], [first]))
        listening(conn, served)
        enqueue(conn, KIND)
        eventually(lambda: started)


def test_doorbell_wakes_as_many_slots_as_there_is_work(conn: Connection, dsn: str) -> None:
    together = threading.Barrier(4)
    with serving(dsn, {KIND: lambda job, ctx: together.wait(30) and None}, concurrency=4) as served:
        idle(served, 4)
        for _ in range(4):
            enqueue(conn, KIND)
        eventually(lambda: statuses(conn) == {"done": 4})
    assert not together.broken


def test_doorbell_finds_what_lies_below_the_floors(conn: Connection, dsn: str) -> None:
    """Design 5, rule 2: a new priority and an old available_at wait for an exact scan, a second at most."""
    with serving(dsn, {KIND: lambda job, ctx: None}):
        enqueue(conn, KIND)
        eventually(lambda: statuses(conn) == {"done": 1})
        enqueue(conn, KIND, priority=7)
        enqueue(conn, KIND, available_at="2001-01-01")
        eventually(lambda: statuses(conn) == {"done": 3})


def sleeping(bell: Bell, count: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=bell.wait, kwargs={"after_work": False}) for _ in range(count)]
    for thread in threads:
        thread.start()
    eventually(lambda: bell.idle == count)
    return threads


def test_bell_ring_wakes_one() -> None:
    bell = Bell(3, lambda: None)
    threads = sleeping(bell, 3)
    assert bell.all_idle
    bell.ring()
    eventually(lambda: sum(thread.is_alive() for thread in threads) == 2)
    assert (bell.idle, bell.all_idle) == (2, False)
    bell.stop()
    for thread in threads:
        thread.join(30)


def test_bell_wakes_the_one_that_fell_asleep_last() -> None:
    bell = Bell(3, lambda: None)
    threads: list[threading.Thread] = []
    for count in (1, 2, 3):
        threads.append(threading.Thread(target=bell.wait, kwargs={"after_work": False}))
        threads[-1].start()
        eventually(lambda count=count: bell.idle == count)
    for last in reversed(threads):
        bell.ring()
        last.join(30)
        assert not last.is_alive()


def test_bell_rung_while_nobody_sleeps_lets_the_next_one_look_again() -> None:
    bell = Bell(1, lambda: None)
    bell.ring()
    bell.ring()
    bell.wait(after_work=True)  # at once
    [thread] = sleeping(bell, 1)
    bell.stop()
    thread.join(30)


def test_bell_is_passed_on_to_sleepers_only() -> None:
    bell = Bell(2, lambda: None)
    bell.pass_on()
    [thread] = sleeping(bell, 1)
    assert thread.is_alive()
    bell.pass_on()
    thread.join(30)
    assert not thread.is_alive()


def test_bell_rung_softly_is_left_to_a_quick_slot_that_is_awake() -> None:
    bell = Bell(2, lambda: None)
    bell.quick = True
    [thread] = sleeping(bell, 1)
    bell.ring_softly()
    bell.ring_softly()
    assert bell.seconds_to_insist() <= PATIENCE_SECONDS
    assert bell.answer()
    assert bell.seconds_to_insist() == inf
    assert not bell.answer(), "a claim takes all that rang meanwhile"
    assert thread.is_alive()
    bell.stop()
    thread.join(30)


def test_bell_rung_softly_wakes_a_sleeper_when_nobody_answers() -> None:
    bell = Bell(2, lambda: None)
    bell.quick = True
    [thread] = sleeping(bell, 1)
    bell.ring_softly()
    eventually(lambda: bell.seconds_to_insist() < 0)
    assert thread.is_alive()
    bell.insist()
    thread.join(30)
    assert not thread.is_alive()
    assert bell.seconds_to_insist() == inf


@pytest.mark.parametrize(("quick", "sleepers"), [(True, 2), (False, 1)])
def test_bell_rung_softly_rings_when_all_sleep_or_runs_are_long(quick: bool, sleepers: int) -> None:
    bell = Bell(2, lambda: None)
    bell.quick = quick
    threads = sleeping(bell, sleepers)
    bell.ring_softly()
    eventually(lambda: sum(thread.is_alive() for thread in threads) == sleepers - 1)
    bell.stop()
    for thread in threads:
        thread.join(30)


@pytest.mark.usefixtures("never_polling")
def test_doorbell_wakes_another_slot_beside_one_that_is_long_at_work(conn: Connection, dsn: str) -> None:
    """Runs were quick so far, so the ring is left to the slot that is awake; but that one does not come back."""
    leave, ran = threading.Event(), []

    def handler(job: Any, ctx: Any) -> None:
        ran.append(job.id)
        if job.payload:
            assert leave.wait(60)

    with serving(dsn, {KIND: handler}, concurrency=2) as served:
        bell = served.pool._shared.bell
        eventually(lambda: conn.execute(LISTENS).fetchall())
        eventually(lambda: enqueue(conn, KIND) and bell.quick, every=0.05)
        long = enqueue(conn, KIND, {"long": True})
        eventually(lambda: long in ran)
        other = enqueue(conn, KIND)
        eventually(lambda: other in ran)
        leave.set()


def test_bell_tells_of_a_sleeper_that_had_worked() -> None:
    told: list[int] = []
    bell = Bell(1, lambda: told.append(1))
    bell.stop()
    bell.wait(after_work=False)
    bell.wait(after_work=True)
    assert told == [1]
