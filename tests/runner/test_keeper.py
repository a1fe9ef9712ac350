"""The keeper in a serving pool: heartbeats, lost leases, long handlers, time limits, settings (D5, design 4)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jobrunner import keeper, logs, pool, slot
from jobrunner.ending import Ending
from jobrunner.errors import Cancelled, StuckError, UnfinishedError
from jobrunner.job import Context, Job
from jobrunner.shared import Kinds
from jobrunner.sizing import MAX_JOBS, Sizing
from jobrunner.slot import Slot
from jobs import Connection, actions, call, claim_one, enqueue, job, make_kind, make_tenant, status, statuses, value
from runnerkit import eventually, said, serving

pytestmark = pytest.mark.one_leg("15")

KIND = "kept"


@pytest.fixture(autouse=True)
def kind(conn: Connection) -> str:
    return make_kind(conn, KIND, base_delay="1 hour", max_delay="6 hours", stale_ttl="15 seconds", max_attempts=3)


class Gate:
    """A handler that stays inside until it is let out."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        self.out = threading.Event()
        self.cancelled: list[bool] = []
        self.contexts: list[Context] = []

    def __call__(self, job: Job, ctx: Context) -> None:
        self.contexts.append(ctx)
        self.inside.release()
        self.out.wait(120)
        self.cancelled.append(ctx.cancelled)

    def entered(self) -> None:
        assert self.inside.acquire(timeout=30), "the handler was not called"


def test_keeper_extends_the_lease_of_a_running_job(conn: Connection, dsn: str) -> None:
    gate, job_id = Gate(), enqueue(conn, KIND)
    with serving(dsn, {KIND: gate}):
        gate.entered()
        beat = eventually(lambda: job(conn, job_id)["heartbeat_at"])
        assert 4 <= (beat - job(conn, job_id)["claimed_at"]).total_seconds() < 10, "after a third of 15 seconds"
        gate.out.set()
        eventually(lambda: status(conn, job_id) == "done")
    assert gate.cancelled == [False]


def test_keeper_cancels_a_handler_whose_lease_is_lost(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kinds, "beat_seconds", lambda kinds, job_kind: 0.5)
    tenant, job_id = make_tenant(conn), enqueue(conn, KIND)
    entered, ended = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def handler(job: Job, ctx: Context) -> None:
        given = ctx.connection()
        given.execute("update mdm.aa_tenant set name = 'zombie' where id = %s", (tenant,))
        entered.set()
        try:
            given.execute("select pg_sleep(60)")
        except BaseException as error:
            raised.append(error)
            ctx.raise_if_cancelled()
        finally:
            ended.set()

    with serving(dsn, {KIND: handler}) as served:
        assert entered.wait(30)
        call(conn, "stop_job", job_id=job_id)
        assert ended.wait(30), "the handler was not cancelled"
        eventually(lambda: served.pool.tally.lost == 1)
        entered.clear()
        next_id = enqueue(conn, KIND)
        assert entered.wait(30), "the slot does not work any more"
        call(conn, "stop_job", job_id=next_id)
    assert status(conn, job_id) == "failed"
    assert value(conn, "select name from mdm.aa_tenant where id = %s", tenant) == ""
    sleeping = "select count(*) from pg_stat_activity where query like 'select pg_sleep%%'"
    eventually(lambda: value(conn, sleeping) == 0)


def test_keeper_gives_back_what_stands_behind_a_long_handler(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 6: quick runs made the claim large; the jobs behind the long one are back in their place after a second."""
    monkeypatch.setattr(Sizing, "limit", lambda sizing: MAX_JOBS)  # what quick runs lead to on an idle machine
    gate = Gate()
    quick = {enqueue(conn, KIND) for _ in range(200)}
    long_id = enqueue(conn, KIND, {"long": True})
    behind = [enqueue(conn, KIND) for _ in range(40)]
    places = {job_id: job(conn, job_id)["available_at"] for job_id in behind}

    def handler(job: Job, ctx: Context) -> None:
        if job.payload:
            gate(job, ctx)

    with serving(dsn, {KIND: handler}):
        gate.entered()
        eventually(lambda: {status(conn, job_id) for job_id in behind} == {"pending"})
        eventually(lambda: {status(conn, job_id) for job_id in quick} == {"done"})
        rows = [job(conn, job_id) for job_id in behind]
        assert {row["attempts"] for row in rows} == {0}
        assert {row["id"]: row["available_at"] for row in rows} == places
        assert any(row["releases"] for row in rows), "none was claimed with the long one: the test proves nothing"
        gate.out.set()
        eventually(lambda: statuses(conn) == {"done": 241})
    assert status(conn, long_id) == "done"


def test_b77_keeper_fails_a_handler_that_hangs_and_opens_another_slot(conn: Connection, dsn: str) -> None:
    make_kind(conn, KIND, handler_timeout="1 second")
    gate = Gate()
    hung = [enqueue(conn, KIND, {"hang": True}) for _ in range(2)]
    good = enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        if job.payload:
            gate(job, ctx)

    with serving(dsn, {KIND: handler}, concurrency=2) as served:
        gate.entered()
        gate.entered()
        eventually(lambda: status(conn, good) == "done")
        eventually(lambda: {status(conn, job_id) for job_id in hung} == {"pending"})
        rows = [job(conn, job_id) for job_id in hung]
        assert [row["attempts"] for row in rows] == [1, 1]
        assert {row["last_error"] for row in rows} == {"HandlerTimeout: ran longer than 1 s"}
        assert [context.cancelled for context in gate.contexts] == [True, True]
        with pytest.raises(Cancelled):
            gate.contexts[0].connection()
        before = [job(conn, job_id) for job_id in hung]
        gate.out.set()
        eventually(lambda: len(gate.cancelled) == 2)
        after = enqueue(conn, KIND)
        eventually(lambda: status(conn, after) == "done")
        assert [job(conn, job_id) for job_id in hung] == before, "a handler whose time was up ended its job later"
        eventually(lambda: (served.pool.tally.failed, served.pool.tally.done) == (2, 2))


def test_keeper_slot_that_is_being_opened_is_not_taken_for_a_dead_one(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another would be opened in its place, and nobody would look after the jobs of the first."""
    make_kind(conn, KIND, handler_timeout="0.3 seconds")
    gate, start, slots, busy = Gate(), Slot.start, list[Slot](), list[bool]()

    def slow_start(slot: Slot) -> None:
        slots.append(slot)
        if threading.current_thread().name == "keeper":
            other = threading.Thread(target=served.pool._look_after)  # as the main loop does
            other.start()
            other.join(1.0)
            busy.append(other.is_alive())
        start(slot)

    monkeypatch.setattr(Slot, "start", slow_start)
    with serving(dsn, {KIND: gate}) as served:
        enqueue(conn, KIND)
        gate.entered()
        eventually(lambda: len(slots) >= 2)
        eventually(lambda: [slot.name for slot in slots if slot.is_alive()] == ["slot-1", "slot-1"])
        assert len(slots) == 2
        assert set(served.pool._all_slots()) == set(slots), "each is looked after"
        gate.out.set()
        eventually(lambda: [slot for slot in slots if slot.is_alive()] == slots[1:])
    assert busy == [True], "it had to wait"


def test_keeper_gives_back_what_stands_behind_a_handler_whose_limit_is_short(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_kind(conn, KIND, handler_timeout="0.3 seconds")
    monkeypatch.setattr(Sizing, "limit", lambda sizing: MAX_JOBS)
    gate = Gate()
    with conn.transaction():
        hung, behind = enqueue(conn, KIND, {"hang": True}), enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        if job.payload:
            gate(job, ctx)

    with serving(dsn, {KIND: handler}):
        eventually(lambda: (status(conn, hung), status(conn, behind)) == ("pending", "done"))
        gate.out.set()


def test_keeper_time_limit_holds_for_a_handler_whose_lease_is_lost(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that hangs is stopped by hand, and its handler does not look at ctx.cancelled."""
    make_kind(conn, KIND, handler_timeout="2 seconds")
    monkeypatch.setattr(Kinds, "beat_seconds", lambda kinds, job_kind: 0.3)
    gate, hung = Gate(), enqueue(conn, KIND, {"hang": True})

    def handler(job: Job, ctx: Context) -> None:
        if job.payload:
            gate(job, ctx)

    with serving(dsn, {KIND: handler}) as served:
        gate.entered()
        call(conn, "stop_job", job_id=hung)
        good = enqueue(conn, KIND)
        eventually(lambda: status(conn, good) == "done")
        assert served.pool.tally.lost == 1
        gate.out.set()
        eventually(lambda: not served.pool._stuck)
    assert status(conn, hung) == "failed"


def test_keeper_slot_whose_handler_hangs_does_not_waive_notifications(conn: Connection, dsn: str) -> None:
    make_kind(conn, KIND, handler_timeout="0.3 seconds")
    gate, job_id = Gate(), enqueue(conn, KIND)
    with serving(dsn, {KIND: gate}) as served:
        eventually(lambda: status(conn, job_id) == "pending")
        eventually(lambda: served.pool._shared.hunger.hungry)
        gate.out.set()


def test_keeper_beats_on_while_an_end_waits_for_a_lock(
    conn: Connection, dsn: str, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has the row of a job open whose time is up: the leases of the others go on."""
    make_kind(conn, "limited", handler_timeout="0.3 seconds")
    monkeypatch.setattr(Kinds, "beat_seconds", lambda kinds, job_kind: 0.5)
    gate, limited, other = Gate(), enqueue(conn, "limited"), enqueue(conn, KIND)
    holder = connect()
    with serving(dsn, {KIND: gate, "limited": gate}, concurrency=2):
        with holder.transaction():
            eventually(lambda: statuses(conn) == {"running": 2})
            holder.execute("select 1 from mdm.aa_job where id = %s for update", (limited,))
            waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = %s"
            eventually(lambda: value(conn, waits, "jobrunner keeper"))
            first = eventually(lambda: job(conn, other)["heartbeat_at"])
            eventually(lambda: job(conn, other)["heartbeat_at"] > first)
        eventually(lambda: status(conn, limited) == "pending")
        gate.out.set()
        eventually(lambda: status(conn, other) == "done")


def test_keeper_does_not_miss_the_lease_of_a_job_that_its_handler_finished(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kinds, "beat_seconds", lambda kinds, job_kind: 0.1)
    gate, job_id = Gate(), enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        if not job.payload:
            with ctx.chunk() as chunk:
                chunk.finish()
        gate(job, ctx)

    with serving(dsn, {KIND: handler}, concurrency=2) as served:
        gate.entered()
        other = enqueue(conn, KIND, {"long": True})
        gate.entered()
        first = eventually(lambda: job(conn, other)["heartbeat_at"])
        eventually(lambda: job(conn, other)["heartbeat_at"] > first)
        gate.out.set()
        eventually(lambda: served.pool.tally.done == 2)
    assert (status(conn, job_id), served.pool.tally.lost, gate.cancelled) == ("done", 0, [False, False])


def test_keeper_more_stuck_handlers_than_slots_end_the_process(conn: Connection, dsn: str) -> None:
    make_kind(conn, KIND, handler_timeout="0.3 seconds")
    gate = Gate()
    for _ in range(2):
        enqueue(conn, KIND)
    with serving(dsn, {KIND: gate}) as served:
        eventually(lambda: served.error is not None)
        gate.out.set()
    assert isinstance(served.error, StuckError)
    assert served.error.exit_code == 70


def test_keeper_announces_the_runner_and_takes_it_off(conn: Connection, dsn: str) -> None:
    with serving(dsn, {KIND: Gate()}):
        row = eventually(lambda: conn.execute("select kinds, tenant_ids, hungry from mdm.aa_job_runner").fetchone())
        assert row == ([KIND], None, True)
    eventually(lambda: value(conn, "select count(*) from mdm.aa_job_runner") == 0)


def test_keeper_waives_notifications_while_every_claim_comes_back_full(conn: Connection, dsn: str) -> None:
    gate = Gate()
    for _ in range(3):
        enqueue(conn, KIND)
    with serving(dsn, {KIND: gate}):
        gate.entered()
        eventually(lambda: not value(conn, "select bool_or(hungry) from mdm.aa_job_runner"))
        gate.out.set()
        eventually(lambda: value(conn, "select bool_and(hungry) from mdm.aa_job_runner"))


def test_keeper_reads_settings_and_limits_again(conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "REFRESH_SECONDS", 0.2)
    tenant = make_tenant(conn)
    ran: list[int] = []
    with serving(dsn, {KIND: lambda job, ctx: ran.append(job.id)}) as served:
        shared = served.pool._shared
        assert shared.kinds.ttl_seconds(KIND) == 15
        make_kind(conn, KIND, stale_ttl="60 seconds")
        conn.execute(
            """update mdm.aa_tenant set metadata = '{"rate_limit": {"kept": {"rps": 0, "burst": 1}}}' where id = %s""",
            (tenant,),
        )
        eventually(lambda: shared.kinds.ttl_seconds(KIND) == 60 and shared.buckets._buckets)
        jobs = [enqueue(conn, KIND, tenant_id=tenant) for _ in range(3)]
        eventually(lambda: (served.pool.tally.released, served.pool.tally.done) == (2, 1))
    assert [status(conn, job_id) for job_id in jobs].count("done") == len(ran) == 1


@pytest.mark.parametrize("signals", [1, 2])
def test_b74_pool_gives_unfinished_jobs_back(conn: Connection, dsn: str, signals: int) -> None:
    gate, jobs = Gate(), [enqueue(conn, KIND) for _ in range(3)]
    with serving(dsn, {KIND: gate}, concurrency=2, grace_seconds=0.3 if signals == 1 else 60.0) as served:
        gate.entered()
        gate.entered()
        served.signals.count = signals - 1
        served.stop()
        gate.out.set()
    assert isinstance(served.error, UnfinishedError)
    assert served.error.exit_code == 5
    eventually(lambda: statuses(conn) == {"pending": 3})
    assert {job(conn, job_id)["attempts"] for job_id in jobs} == {0}
    assert [context.cancelled for context in gate.contexts] == [True, True]


def test_b74_pool_lets_running_jobs_end_within_the_grace(conn: Connection, dsn: str) -> None:
    gate, jobs = Gate(), [enqueue(conn, KIND) for _ in range(3)]
    with serving(dsn, {KIND: gate}, concurrency=2, grace_seconds=30.0) as served:
        gate.entered()
        gate.entered()
        letting_out = threading.Thread(target=lambda: eventually(served.pool._shared.stop.is_set) and gate.out.set())
        letting_out.start()
        served.stop()
        letting_out.join()
    assert served.error is None
    assert sorted(status(conn, job_id) for job_id in jobs) == ["done", "done", "pending"]
    assert job(conn, jobs[2])["attempts"] == 0


def test_b12_pool_recovers_the_jobs_of_a_dead_runner_at_its_start(conn: Connection, dsn: str) -> None:
    job_id = enqueue(conn, KIND)
    claim_one(conn, KIND, worker_id="dead")
    conn.execute("update mdm.aa_job set claimed_at = claimed_at - interval '1 minute'")
    with serving(dsn, {KIND: lambda job, ctx: None}):
        eventually(lambda: status(conn, job_id) == "done")
    assert actions(conn, job_id) == ["job_enqueued", "job_done"]


def dies(*arguments: Any) -> None:
    raise MemoryError("a fault of ours")


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, lines: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Log what ends a thread, as the command does."""
    monkeypatch.setattr(threading, "excepthook", logs.log_death)
    return lines


def test_keeper_ends_what_a_dead_slot_left(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    """What waited is given back, what is done is finished, and the one that ran has failed."""
    monkeypatch.setattr(Sizing, "limit", lambda sizing: MAX_JOBS)
    ran: list[int] = []
    original = slot.run_handler

    def run_handler(handler: Any, row: Any, ctx: Any) -> Any:
        return dies() if row.id == killer and row.attempts == 1 else original(handler, row, ctx)

    monkeypatch.setattr(slot, "run_handler", run_handler)
    with conn.transaction():
        done = [enqueue(conn, KIND) for _ in range(3)]
        killer = enqueue(conn, KIND)
        waiting = [enqueue(conn, KIND) for _ in range(3)]
    with serving(dsn, {KIND: lambda job, ctx: ran.append(job.id)}) as served:
        eventually(lambda: statuses(conn) == {"done": 6, "pending": 1})
        eventually(lambda: not served.pool._stuck)
        tally = served.pool.tally
        eventually(lambda: (tally.done, tally.failed, tally.released) == (6, 1, 3))
    row = job(conn, killer)
    assert (row["attempts"], row["last_error"]) == (1, keeper.SLOT_DIED)
    assert sorted(ran) == sorted(done + waiting), "each ran once"
    assert {(job(conn, job_id)["attempts"], job(conn, job_id)["releases"]) for job_id in waiting} == {(1, 1)}
    [died] = said(logged, "thread_died")
    assert (died["thread"], died["traceback"].splitlines()[-1]) == ("slot-1", "MemoryError: a fault of ours")
    assert said(logged, "jobs_left_to_recovery") == []


def test_keeper_leaves_to_recovery_what_a_dead_slot_was_ending(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Kinds, "beat_seconds", lambda kinds, job_kind: 0.3)
    monkeypatch.setattr(Ending, "end", dies)
    gate, job_id = Gate(), enqueue(conn, KIND, {"writes": True})

    def handler(job: Job, ctx: Context) -> None:
        if job.payload:
            ctx.connection().execute("select 1")
        else:
            gate(job, ctx)

    with serving(dsn, {KIND: handler}):
        eventually(lambda: said(logged, "jobs_left_to_recovery"))
        before = job(conn, job_id)
        other = enqueue(conn, KIND)
        gate.entered()
        first = eventually(lambda: job(conn, other)["heartbeat_at"])
        eventually(lambda: job(conn, other)["heartbeat_at"] > first)
        assert job(conn, job_id) == before, "no heartbeat any more"
        gate.out.set()
        eventually(lambda: status(conn, other) == "done")
    assert (before["status"], before["last_error"]) == ("running", None)
    assert said(logged, "jobs_left_to_recovery") == [{"count": 1, "job_ids": str(job_id)}]
    sessions = "select count(*) from pg_stat_activity where state = 'idle in transaction'"
    assert value(conn, sessions) == 0, "the transaction of the dead slot holds the job's row"


def test_pool_with_a_slot_that_dies_while_it_stops_ends_at_once(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    gate, job_id = Gate(), enqueue(conn, KIND)
    with serving(dsn, {KIND: gate}, grace_seconds=60.0) as served:
        gate.entered()
        monkeypatch.setattr(slot.Slot, "_clear", dies)
        served.signals.count = 1
        eventually(served.pool._shared.stop.is_set)
        gate.out.set()
        served.signals.count = 0
        served.stop()
    assert served.error is None
    assert (status(conn, job_id), len(said(logged, "thread_died"))) == ("done", 1)


def test_pool_replaces_a_slot_that_died(conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    original = pool.Slot._turn

    def turn(slot: Any) -> None:
        if not died:
            raise AssertionError("a fault of ours")
        original(slot)

    monkeypatch.setattr(pool.Slot, "_turn", turn)
    job_id = enqueue(conn, KIND)
    with serving(dsn, {KIND: lambda job, ctx: None}):
        eventually(lambda: status(conn, job_id) == "done")
    assert len(died) == 1
