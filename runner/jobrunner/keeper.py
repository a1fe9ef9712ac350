"""The keeper: beats the hearts of the leases, ends what a slot cannot, and keeps what the process knows fresh.

One thread with a connection of its own, so that nothing a handler does can hold up a heartbeat (D5).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import Final

import psycopg

from jobrunner.db.call import LeaseLost
from jobrunner.db.process import announce_runner, job_kind_settings, rate_limits, sign_off
from jobrunner.db.session import Session
from jobrunner.db.worker import extend_jobs, fail_job, finish_jobs, release_jobs
from jobrunner.ending import tell_done, tell_failed, tell_finished, tell_left, tell_lost, tell_released
from jobrunner.logs import event, job_event
from jobrunner.outage import Patience, first_line, passes
from jobrunner.outcome import failed
from jobrunner.shared import Shared
from jobrunner.steady import ALREADY_ENDED
from jobrunner.tray import Hold, State, Tray, leases

TICK_SECONDS: Final = 0.25
STUCK_SECONDS: Final = 1.0  # a handler that runs longer keeps nothing waiting behind it (rule 6)
REFRESH_SECONDS: Final = 30.0  # settings, limits and the registry's row
FULL_SECONDS: Final = 1.0  # so long every claim has to come back full before NOTIFYs are waived
LOCK_SECONDS: Final = 1.0  # so long an end waits for somebody's lock on the job's row, and all hearts with it
LOCKED: Final = "55P03"
SLOT_DIED: Final = "SlotDied: the slot that ran the job ended of a fault of the runner; its log has the traceback"


@dataclass(frozen=True, slots=True)
class Debt:
    """An end that is owed to the database."""

    tray: Tray
    holds: Sequence[Hold]
    pay: Callable[[Sequence[Hold]], None]


class Keeper(threading.Thread):
    """Watches over the trays of all slots."""

    def __init__(
        self,
        shared: Shared,
        trays: Callable[[], Iterable[Tray]],
        on_stuck: Callable[[Tray], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(name="keeper", daemon=True)
        self.session = Session(shared.plan.target, self.name, lock_seconds=LOCK_SECONDS)
        self._shared = shared
        self._trays = trays
        self._on_stuck = on_stuck
        self._clock = clock
        self._patience = Patience(shared.outage, shared.dice)
        self._debts: list[Debt] = []  # ends that are owed to the database
        self._announced: bool | None = None
        self._announced_at = 0.0
        self._hungry_at = 0.0
        self._refreshed_at = clock()
        self._problems: dict[tuple[str, str], str] = {}

    def run(self) -> None:
        """Tick until the process is over; then pay what is owed and sign off."""
        while not self._shared.over.is_set():
            self._try(self.tick)
            self._shared.hunger.again.wait(TICK_SECONDS)
            self._shared.hunger.again.clear()
        self._try(self._sign_off)
        self.session.close()

    def tick(self) -> None:
        """Do what is due: what needs no database, the hearts, the debts, then the rest."""
        now = self._clock()
        for tray in self._trays():
            self._look_at(tray, now)
        self._beat(now)
        self._pay()
        self._announce(now)
        if now - self._refreshed_at >= REFRESH_SECONDS:
            self.refresh()
        self._patience.succeeded()

    def refresh(self) -> None:
        """Read the settings of the kinds and the rate limits again; warn of what is new and wrong."""
        kinds = self._shared.plan.kinds
        settings, limits = self.session.run(job_kind_settings(kinds=kinds)), self.session.run(rate_limits(kinds=kinds))
        self._refreshed_at = self._clock()
        first = self._announced is None
        known = {kind for kind in kinds if self._shared.kinds.known(kind)}
        self._shared.kinds.learn(settings)
        for kind in kinds:
            if not self._shared.kinds.known(kind) and (first or kind in known):
                event(logging.WARNING, "kind_not_registered", job_kind=kind, remedy="mdm.set_job_kind registers it")
        problems = self._shared.buckets.configure(limits)
        for key in problems.keys() - self._problems.keys():
            event(logging.WARNING, "rate_limit_ignored", tenant_id=key[0], job_kind=key[1], problem=problems[key])
        self._problems = problems

    def _try(self, action: Callable[[], None]) -> None:
        """Do it; a failure of the database is waited out, and everything owed stays owed."""
        try:
            action()
        except psycopg.Error as error:
            self._patience.failed(error, self._shared.over)

    # -- hearts

    def _beat(self, now: float) -> None:
        """Extend the leases that are due, and let go of those that are lost (D5).

        In one call for all slots, a bare statement: where handlers compute in all slots, each step of a call waits.
        """
        due = [(tray, tray.due_for_beat(now, self._shared.kinds.beat_seconds)) for tray in self._trays()]
        holds = [hold for _, each in due for hold in each]
        if not holds:
            return
        lost_ids = self.session.run(extend_jobs(**leases(holds)))
        for hold in holds:
            hold.beat_at = now
        for tray, each in due:
            self._lose(tray, [hold for hold in each if hold.row.id in lost_ids])

    def _lose(self, tray: Tray, holds: Sequence[Hold]) -> None:
        lost, severed = tray.lose(holds)
        for hold in lost:
            tell_lost(hold, "the heartbeat found it lost", self._shared.tally)
        if severed is not None:
            severed.cancel()

    # -- what a slot cannot end by itself

    def _look_at(self, tray: Tray, now: float) -> None:
        """Free what stands behind a long handler, and take the job from a handler whose time is up."""
        if tray.orphaned and not (tray.empty or self._shared.over.is_set()):
            self._inherit(tray)
        current = tray.running()
        if current is None:
            return
        ran_seconds = now - current.started_at
        limit_seconds = self._shared.kinds.timeout_seconds(current.row.job_kind) or inf
        if ran_seconds > min(STUCK_SECONDS, limit_seconds) or self._shared.stop.is_set():
            self._take_over(tray, "behind a long handler")
        if ran_seconds > limit_seconds:
            self._time_out(tray, current, limit_seconds)

    def _take_over(self, tray: Tray, reason: str) -> None:
        """Owe the end of all that no handler runs."""
        self._owe(tray, tray.withdraw(), partial(self._release, reason=reason))
        self._owe(tray, tray.take_done(), self._finish)

    def _inherit(self, tray: Tray) -> None:
        """End what a slot left that died; what it was just ending may have ended, and is left to recovery."""
        self._take_over(tray, "the slot died")
        current = tray.running()
        if current is not None and tray.take(current)[0]:
            self._owe(tray, [current], partial(self._fail, text=SLOT_DIED))
        owed = {hold for debt in self._debts for hold in debt.holds}
        left = [hold for hold in tray.holds if hold not in owed]
        tell_left(left)
        tray.ended(left)

    def _time_out(self, tray: Tray, hold: Hold, limit_seconds: float) -> None:
        """A thread cannot be killed: its lease is failed, its connection cut, another slot opened (design 4)."""
        taken, severed = tray.take(hold)
        if hold.state is not State.TAKEN:
            return
        job_event(logging.ERROR, "handler_timeout", hold.row, limit_seconds=limit_seconds)
        if taken:
            self._owe(tray, [hold], partial(self._fail, text=f"HandlerTimeout: ran longer than {limit_seconds:g} s"))
        self._on_stuck(tray)
        if severed is not None:
            severed.cancel()

    def _owe(self, tray: Tray, holds: Sequence[Hold], pay: Callable[[Sequence[Hold]], None]) -> None:
        if holds:
            self._debts.append(Debt(tray, holds, pay))

    def _pay(self) -> None:
        """Tell the database what is owed to it; what fails stays owed, unless it is refused for good."""
        while self._debts:
            debt = self._debts[0]
            try:
                debt.pay(debt.holds)
            except psycopg.Error as error:
                for hold in debt.holds:
                    hold.unsure = True
                if error.sqlstate == LOCKED:  # the others first; hearts do not wait
                    self._debts.append(self._debts.pop(0))
                    return
                if passes(error):
                    raise
                event(logging.ERROR, "end_refused", error=first_line(error), sqlstate=error.sqlstate)
            self._debts.pop(0)
            debt.tray.ended(debt.holds)

    def _release(self, holds: Sequence[Hold], reason: str) -> None:
        self.session.run(release_jobs(**leases(holds)))
        tell_released(holds, reason, self._shared.tally)
        self._shared.bell.ring()

    def _finish(self, holds: Sequence[Hold]) -> None:
        accepted = self.session.run(finish_jobs(**leases(holds)))
        tell_finished(self.session, holds, accepted, self._shared.tally)

    def _fail(self, holds: Sequence[Hold], text: str) -> None:
        [hold] = holds
        try:
            result = self.session.run(fail_job(job_id=hold.row.id, lease_no=hold.row.lease_no, error=text))
        except LeaseLost as lost:
            if hold.finished and lost.detail == ALREADY_ENDED:
                tell_done([hold], self._shared.tally)
                return
            if not (hold.unsure and lost.detail == ALREADY_ENDED):
                tell_lost(hold, lost.detail, self._shared.tally)
                return
            result = None
        tell_failed(hold, result, failed(text), self._shared.tally)

    # -- the registry

    def _announce(self, now: float) -> None:
        """Keep the registry's row alive, and change it when the hunger changed: at once to hungry, late to full."""
        hungry = self._shared.hunger.hungry
        self._hungry_at = now if hungry else self._hungry_at
        wanted = hungry or now - self._hungry_at < FULL_SECONDS
        if wanted == self._announced and now - self._announced_at < REFRESH_SECONDS:
            return
        plan = self._shared.plan
        self.session.run(
            announce_runner(runner_id=plan.runner_id, kinds=plan.kinds, tenant_ids=plan.tenant_ids, hungry=wanted)
        )
        self._announced, self._announced_at = wanted, now

    def _sign_off(self) -> None:
        """Pay what is owed and take the process out of the registry."""
        self._pay()
        self.session.run(sign_off(runner_id=self._shared.plan.runner_id))
