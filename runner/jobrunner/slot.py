"""A slot: a thread that claims jobs, runs their handlers one after the other, and ends them (design 5, rule 6)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic
from typing import Final

import psycopg

from jobrunner.context import SlotContext
from jobrunner.db.session import Session
from jobrunner.db.worker import claim_job, finish_and_claim, finish_jobs, release_jobs
from jobrunner.ending import Ending, tell_finished, tell_released
from jobrunner.job import ClaimedRow
from jobrunner.outage import Patience
from jobrunner.outcome import Verdict, run_handler
from jobrunner.shared import Mode, Shared, make_id
from jobrunner.sizing import MAX_JOBS
from jobrunner.steady import GivenUp, Steady
from jobrunner.tray import Hold, State, Tray, leases

THROTTLE_GROWTH: Final = 4  # a claim of which nothing may run is followed by one so many times larger
QUICK_JOBS: Final = 50  # of which a claim takes so many take 2 ms each
OTHERS_SECONDS: Final = 0.05  # how often to look whether the keeper is through with jobs of this slot


class Slot(threading.Thread):
    """One of the workers of the pool, with a connection of its own."""

    def __init__(self, shared: Shared, number: int) -> None:
        super().__init__(name=f"slot-{number}", daemon=True)
        self.number = number
        self.worker_id = make_id()
        self.session = Session(shared.plan.target, self.name)
        self.tray = Tray(self.session.sever)
        self.claiming = False  # a claim is under way: its rows are in no tray yet
        self._retired = False  # its job was taken away while the handler was stuck: another slot takes its place
        self._shared = shared
        self._patience = Patience(shared.outage, shared.dice)
        self._steady = Steady(self.session, self._patience, shared.over)
        self._ending = Ending(self._steady, shared.tally)
        self._meter = shared.tally.meter
        self._throttled = False  # some of the last claim got no token
        self._throttled_limit = 0
        self._worked = True  # found something since it slept last

    @property
    def busy(self) -> bool:
        """True while the slot has jobs, or may be getting some."""
        return self.claiming or not self.tray.empty

    def run(self) -> None:
        """Work until the stop, and after it until what was begun has ended."""
        try:
            while not self._through():
                self._try_turn()
        finally:  # whatever ended it
            self.tray.orphaned, self.claiming = True, False
            self._shared.hunger.claimed(self.worker_id, full=False)
            self._shared.gate.leave(self.worker_id)
            self.session.close()

    def _try_turn(self) -> None:
        """Take a turn; a failure of the database is waited out."""
        try:
            self._turn()
        except psycopg.Error as error:
            self.claiming = False
            # Results that are not in the database yet are worth waiting for; the next claim is not.
            self._patience.failed(error, self._shared.stop if self.tray.empty else self._shared.over)
        except GivenUp:
            return  # the process ends

    def _through(self) -> bool:
        """Whether there is nothing left to do."""
        stopped = self._shared.stop.is_set() and self.tray.empty
        return self._retired or self._shared.over.is_set() or stopped

    def _turn(self) -> None:
        """Finish what is done, claim, run what was claimed; or sleep when there is nothing."""
        if self._shared.stop.is_set():
            self._clear()
            return
        self._pass_the_gate()
        limit = self._limit()
        rows, claimed_at = self._finish_and_claim(limit)
        self._patience.succeeded()
        self._accept(rows, claimed_at)
        if self._admitted(rows):
            self._run_all()
        self._worked = self._worked or bool(rows)
        if self._shared.plan.mode is Mode.ONCE:
            self._shared.stop.set()
        elif not self._retired and (not rows or self._was_all(rows, limit)) and not self._shared.bell.answer():
            self._sleep()

    def _was_all(self, rows: Sequence[ClaimedRow], limit: int) -> bool:
        """Whether a claim took all that was there and whatever comes will ring: then no other claim has to ask."""
        plan, short = self._shared.plan, len(rows) < limit
        return (
            short and plan.mode is Mode.SERVE and self._shared.bell.sure and not (self._throttled or rows[0].run_alone)
        )

    def _sleep(self) -> None:
        """Finish what is done, and sleep until the bell rings."""
        self._finish(self.tray.take_done())
        self._shared.gate.leave(self.worker_id)
        self._shared.bell.wait(after_work=self._worked)
        self._worked = False

    def _pass_the_gate(self) -> None:
        """Wait while a job of another slot runs alone, with nothing of ours under way (D3)."""
        gate = self._shared.gate
        if gate.closed_for(self.worker_id):
            self._finish(self.tray.take_done())
            gate.leave(self.worker_id)
        gate.enter(self.worker_id)

    def _admitted(self, rows: Sequence[ClaimedRow]) -> bool:
        """Whether what waits may start; a job that runs alone is given back while another one does (D3)."""
        gate = self._shared.gate
        if not rows or self.tray.empty or not rows[0].run_alone:
            gate.open(self.worker_id)
            return True
        seconds = gate.be_alone(self.worker_id, again=rows[0].recoveries > 1)
        if seconds is not None:
            self._give_back(self.tray.withdraw(), "another job runs alone", [seconds] if seconds else None)
        return seconds is None

    def _clear(self) -> None:
        """Give back what has not started and finish what is done, without another claim: the pool stops."""
        waiting = self.tray.withdraw()
        self._give_back(waiting, "stop")
        done = self.tray.take_done()
        self._finish(done)
        if not waiting and not done:
            self._shared.over.wait(OTHERS_SECONDS)

    def _finish_and_claim(self, limit: int) -> tuple[Sequence[ClaimedRow], float]:
        """Finish what is done and claim the next, in one transaction and one round trip (rule 6)."""
        self.session.connection()
        done = self.tray.take_done()
        if any(hold.unsure for hold in done):
            self._finish(done)
            done = []
        ticket = self._shared.floors.next(started := monotonic())
        self.claiming = True
        claim = claim_job(
            worker_id=self.worker_id,
            kinds=self._shared.plan.kinds,
            tenant_ids=self._shared.plan.tenant_ids,
            limit=limit,
            floor=ticket.floor,
            durable=not self._shared.outage.trusted,
        )
        try:
            if done:
                accepted, rows = self.session.run(finish_and_claim(finish_jobs(**leases(done)), claim))
            else:
                accepted, rows = set(), self.session.run(claim)
        except psycopg.Error:
            self.tray.put_back(done)
            raise
        self._shared.floors.claimed(ticket, rows, started, monotonic())
        self._tell_claim(rows, limit)
        self._ended(done, accepted)
        return rows, started

    def _limit(self) -> int:
        """How many jobs to claim."""
        if self._shared.plan.mode is Mode.ONCE:
            return 1
        limit = self._shared.sizing.limit()
        self._shared.bell.quick = limit >= QUICK_JOBS
        return max(limit, self._throttled_limit)

    def _tell_claim(self, rows: Sequence[ClaimedRow], limit: int) -> None:
        """Say how the claim came back: whether to wake another slot, and whether NOTIFYs are wanted."""
        full = len(rows) >= limit
        self._shared.hunger.claimed(self.worker_id, full)
        if full or any(row.run_alone for row in rows):
            self._shared.bell.pass_on()

    def _accept(self, rows: Sequence[ClaimedRow], claimed_at: float) -> None:
        """Put what may run into the tray, and put off what has no token (S7.4)."""
        allowed, refused, delays = self._shared.buckets.sort(rows)
        self._meter.claimed(allowed)
        self._meter.throttled(refused)
        self.tray.put(allowed, claimed_at)
        throttled = self.tray.put_settling(refused, claimed_at)
        self.claiming = False
        self._throttled = bool(refused)
        self._throttled_limit = min(MAX_JOBS, THROTTLE_GROWTH * len(rows)) if refused and not allowed else 0
        self._give_back(throttled, "rate limit", delays)

    def _run_all(self) -> None:
        """Run what waits in the tray, until it is empty or the pool stops."""
        while not self._shared.stop.is_set():
            hold = self.tray.start(monotonic())
            if hold is None:
                return
            self._run_one(hold)

    def _run_one(self, hold: Hold) -> None:
        """Run a handler, and end its job unless it was taken away meanwhile."""
        kind = hold.row.job_kind
        context = SlotContext(hold, self._steady, self._shared.kinds.ttl_seconds(kind))
        outcome = run_handler(self._shared.plan.handlers[kind], hold.row, context)
        context.over = True
        self._meter.ran(kind, monotonic() - hold.started_at)
        if outcome.verdict is Verdict.DONE and not context.used:
            kept = self.tray.done(hold)
        elif kept := self.tray.settle(hold):
            self._ending.end(hold, context, outcome)
            self.tray.ended([hold])
        if not kept:
            self._ending.abandon(context)
            self._retired = hold.state is State.TAKEN
        self._shared.sizing.ran(kind, monotonic() - hold.started_at)

    def _finish(self, done: Sequence[Hold]) -> None:
        """Finish jobs whose handlers wrote nothing."""
        if not done:
            return
        try:
            accepted = self._steady.insist(finish_jobs(**leases(done)), done)
        except psycopg.Error:
            self.tray.put_back(done)
            raise
        self._ended(done, accepted or set())

    def _ended(self, done: Sequence[Hold], accepted: set[int]) -> None:
        if done:
            tell_finished(self.session, done, accepted, self._shared.tally)
            self.tray.ended(done)

    def _give_back(self, holds: Sequence[Hold], reason: str, delays: Sequence[float] | None = None) -> None:
        """Release jobs that did not run, with their attempts (D4)."""
        if not holds:
            return
        try:
            self._steady.insist(release_jobs(**leases(holds), retry_after_seconds=delays), holds)
        except psycopg.Error:
            self.tray.ended(holds)
            raise
        self.tray.ended(holds)
        tell_released(holds, reason, self._shared.tally)
