"""The pool: opens the slots and their keepers, replaces what is stuck, and ends them all in order."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final
from uuid import UUID

from jobrunner.bell import Bell
from jobrunner.buckets import Buckets
from jobrunner.db.process import check_tenants, sign_off
from jobrunner.db.producer import Open, open_jobs
from jobrunner.db.session import Session
from jobrunner.doorbell import Doorbell
from jobrunner.ending import tell_left
from jobrunner.errors import JobrunnerError, StuckError, UnfinishedError
from jobrunner.floors import Floors
from jobrunner.gate import Gate
from jobrunner.keeper import Keeper
from jobrunner.leaving import give_back
from jobrunner.logs import event
from jobrunner.metrics import Meter
from jobrunner.remainder import Remainder
from jobrunner.schema import require_schema
from jobrunner.shared import Hunger, Mode, Plan, Shared, Tally
from jobrunner.signals import Signals
from jobrunner.sizing import Sizing
from jobrunner.slot import Slot
from jobrunner.tray import Tray
from jobrunner.upkeep import Upkeep
from jobrunner.wake import Wake

TICK_SECONDS: Final = 0.2
STILL_SECONDS: Final = 30.0  # a main loop that has not ticked for so long is stuck
DRAIN_TICK_SECONDS: Final = 0.02
CALL_SECONDS: Final = 60.0  # a call of the runner's own that takes longer hangs on a dead connection (B51)
CLAIM_SECONDS: Final = 1.0  # a claim that takes longer at the stop waits for a lock
LEAVE_SECONDS: Final = 1.0  # for the keeper to pay what is owed and to sign off

Watch = Callable[[Tally], None]


class Pool:
    """All threads of a runner process. Lives in the main thread."""

    def __init__(self, plan: Plan, wake: Wake, signals: Signals, meter: Meter | None = None) -> None:
        self._plan, self._wake, self._signals = plan, wake, signals
        self.tally = Tally(meter=meter or Meter())
        self._ticked_at = monotonic()
        self._idle = Wake()
        self._shared = shared = Shared(
            plan=plan,
            bell=Bell(plan.concurrency, self._idle.wake),
            gate=Gate(monotonic),
            buckets=Buckets(monotonic, random.random, plan.caps),
            hunger=Hunger(plan.concurrency),
            floors=Floors(exact_only=plan.mode is not Mode.SERVE),
            sizing=Sizing(),
            dice=random.random,
            tally=self.tally,
        )
        self._lock = threading.Lock()  # slots are replaced by the keeper's thread
        self._slots = [Slot(shared, number) for number in range(1, plan.concurrency + 1)]
        self._stuck: list[Slot] = []
        self._keeper = Keeper(shared, self._trays, self._retire)
        self._upkeep = Upkeep(shared)
        self._doorbell = Doorbell(shared, self._idle)
        self._remainder = Remainder(shared)
        self._session = Session(plan.target, "pool")
        self._working = False

    def prepare(self) -> Sequence[Open]:
        """Check the schema, read the settings, recover what a dead runner left; give what there is to do.

        Raises SchemaError and psycopg.Error.
        """
        try:
            require_schema(self._session.connection())
            self._session.run(sign_off(runner_id=self._plan.runner_id))  # who may not work is told before a claim
            self._keeper.refresh()
            if self._plan.tenant_ids:
                self._check_tenants(self._plan.tenant_ids)
            self._upkeep.recover()
            return self._session.run(open_jobs(kinds=self._plan.kinds))
        finally:
            for session in (self._session, self._keeper.session, self._upkeep.session):
                session.close()

    def _check_tenants(self, tenant_ids: Sequence[UUID]) -> None:
        """Warn of tenants that no job will come of; one that does not exist may be made later."""
        for tenant in self._session.run(check_tenants(tenant_ids=tenant_ids)):
            event(logging.WARNING, "tenant_not_served", tenant_id=tenant.tenant_id, problem=tenant.problem)

    @property
    def alive(self) -> bool:
        """Whether the main loop turns."""
        return monotonic() - self._ticked_at < STILL_SECONDS

    @property
    def ready(self) -> bool:
        """Whether jobs are claimed: the database is there, and nobody has asked for the end."""
        return self._working and not self._shared.outage.away and not self._shared.stop.is_set()

    def run(self, watch: Watch) -> None:
        """Work until the plan's end or a signal; raises StuckError and UnfinishedError."""
        event(logging.INFO, "runner_started", runner_id=self._plan.runner_id, kinds=",".join(self._plan.kinds))
        for thread in (*self._slots, self._keeper, self._upkeep, self._doorbell):
            thread.start()
        if self._plan.mode is Mode.DRAIN_ALL:
            self._remainder.start()
        self._working = True
        try:
            self._work(watch)
        except BaseException:
            self._leave()
            raise
        if self._leave():
            raise UnfinishedError(
                "ended before its jobs had: they were given back, or are left to recovery; a longer --grace helps"
            )

    def _work(self, watch: Watch) -> None:
        """Look after the threads until all is over."""
        tick = TICK_SECONDS if self._plan.mode is Mode.SERVE else DRAIN_TICK_SECONDS
        until: float | None = None
        while True:
            self._wake.wait(tick)
            self._ticked_at = monotonic()
            watch(self.tally)
            self._look_after()
            if until is None and (self._shared.stop.is_set() or self._signals.count or self._drained()):
                self._stop()
                until = monotonic() + self._plan.grace_seconds
            if until is not None:
                self._hurry()
            if until is not None and (not self._busy() or self._signals.count > 1 or monotonic() > until):
                return

    # -- the end

    def _drained(self) -> bool:
        """Whether a draining pool is through: nothing due or running, with --drain-all nothing to come either."""
        mode = self._plan.mode
        # What the keeper gives back rings before it leaves its tray: look in this order.
        if mode not in (Mode.DRAIN, Mode.DRAIN_ALL) or self._busy() or not self._shared.bell.all_idle:
            return False
        return mode is Mode.DRAIN or self._remainder.nothing

    def _stop(self) -> None:
        """Claim no more; what runs may end."""
        if self._signals.count and not self._shared.stop.is_set():
            event(logging.INFO, "runner_stopping", runner_id=self._plan.runner_id, grace=self._plan.grace_seconds)
        self._shared.stop.set()
        self._shared.bell.stop()
        self._shared.gate.stop()
        self._idle.wake()

    def _hurry(self) -> None:
        """End a claim that somebody's lock on the table holds up: nothing was claimed by it yet."""
        for slot in self._slots:
            if slot.claiming and slot.session.busy_seconds > CLAIM_SECONDS:
                cut = slot.session.sever()
                if cut is not None:
                    cut.cancel()

    def _busy(self) -> bool:
        """Whether a job of ours has not ended yet."""
        return any(slot.busy for slot in self._all_slots())

    def _leave(self) -> bool:
        """End all threads and give back what has not ended; say whether there was any."""
        self._stop()
        unfinished = self._busy()
        if unfinished:
            give_back(self._shared, self._trays())
        self._shared.over.set()
        self._shared.hunger.again.set()
        until = monotonic() + LEAVE_SECONDS
        # a slot whose job was given back may hang in its handler for ever
        slots = [slot for slot in self._slots if not (unfinished and slot.tray.empty)]
        for thread in (self._keeper, self._doorbell, *slots):
            thread.join(max(0.0, until - monotonic()))
        left = [hold for tray in self._trays() for hold in tray.holds]  # also of a claim that came back meanwhile
        tell_left(left)
        event(logging.INFO, "runner_stopped", runner_id=self._plan.runner_id)
        return unfinished or bool(left)

    # -- looking after the threads

    def _look_after(self) -> None:
        """Replace dead slots, cut hanging calls, count stuck handlers."""
        for thread in (self._keeper, self._upkeep, self._doorbell):
            if not thread.is_alive() and not self._shared.stop.is_set():
                raise JobrunnerError(f"the {thread.name} died, see the log: start the runner again")
        for slot in self._slots:
            if not slot.is_alive() and not self._shared.stop.is_set():
                self._replace(slot)
        for session in [slot.session for slot in self._all_slots()] + [self._keeper.session]:
            if session.busy_seconds > CALL_SECONDS and session.sever() is not None:
                event(logging.ERROR, "call_hangs", session=session.name, seconds=CALL_SECONDS)
        with self._lock:
            self._stuck = [slot for slot in self._stuck if slot.is_alive() or not slot.tray.empty]
        stuck = sum(slot.is_alive() for slot in self._stuck)
        if stuck > self._plan.concurrency:
            raise StuckError(f"{stuck} handlers are stuck: the process ends, its jobs are recovered")

    def _all_slots(self) -> list[Slot]:
        with self._lock:
            return [*self._slots, *self._stuck]

    def _trays(self) -> list[Tray]:
        return [slot.tray for slot in self._all_slots()]

    def _retire(self, tray: Tray) -> None:
        """Open a new slot in the place of one whose handler is stuck; called by the keeper."""
        self._replace(next(slot for slot in self._all_slots() if slot.tray is tray))

    def _replace(self, old: Slot) -> None:
        """Open a slot in the place of another; nobody sees it before it lives, since what is dead is replaced."""
        self._shared.gate.leave(old.worker_id)
        self._shared.hunger.claimed(old.worker_id, full=False)
        if self._plan.mode is Mode.ONCE:
            self._shared.stop.set()  # it had its job
        new = Slot(self._shared, old.number)
        with self._lock:
            if old not in self._slots:
                return  # the main loop and the keeper have both seen it
            new.start()
            self._slots = [new if slot is old else slot for slot in self._slots]
            self._stuck.append(old)
        event(logging.WARNING, "slot_replaced", slot=old.name, worker_id=new.worker_id)
