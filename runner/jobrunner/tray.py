"""The jobs that a slot has claimed, and who may do what with each of them.

A slot and the keeper (at the end also the pool) both reach into a tray. Every job goes one way, under the tray's lock:

    waiting --start--> running --done--> done --take_done--> settling --ended--> out
       |                  |--settle------------------------> settling
       |                  |--take (time is up, stop)-------> taken ----ended--> out
       |                  `--lose (lease lost)-------------> lost (out, though its handler may go on)
       `--withdraw (to be given back)----------------------> settling

So a job is started or given back, never both, and each end has one owner: whoever moved it out of running or waiting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypedDict

from jobrunner.db.session import Cut
from jobrunner.job import ClaimedRow

Severed = Cut | None


class State(Enum):
    """Where a job of a tray is."""

    WAITING = 1
    RUNNING = 2
    DONE = 3  # its handler returned; to be finished with others
    SETTLING = 4  # somebody is about to end it in the database
    TAKEN = 5  # taken away from a handler that still runs; another slot opens in the place of this one
    LOST = 6  # its lease is lost while its handler runs


@dataclass(slots=True, eq=False)
class Hold:
    """A claimed job in a tray. Times are seconds of the monotonic clock."""

    row: ClaimedRow
    beat_at: float  # when its lease was taken or last extended
    state: State = State.WAITING
    started_at: float = 0.0
    cancelled: bool = False
    unsure: bool = False  # an end was sent whose answer got lost
    finished: bool = False  # a chunk carried finish_job, and the handler goes on


class Leases(TypedDict):
    """The two arrays that the plural functions take."""

    job_ids: list[int]
    lease_nos: list[int]


def leases(holds: Iterable[Hold]) -> Leases:
    """The job ids and lease numbers of jobs."""
    rows = [hold.row for hold in holds]
    return Leases(job_ids=[row.id for row in rows], lease_nos=[row.lease_no for row in rows])


class Tray:
    """The claimed jobs of one slot."""

    def __init__(self, sever: Callable[[], Severed]) -> None:
        self.orphaned = False  # the slot's thread has ended, and will do nothing more for what is here
        self._sever = sever  # cuts the slot's connection
        self._lock = threading.Lock()
        self._waiting: deque[Hold] = deque()
        self._current: Hold | None = None  # whose handler runs; also when its lease is lost
        self._done: list[Hold] = []
        self._settling: set[Hold] = set()

    def put(self, rows: Iterable[ClaimedRow], claimed_at: float) -> None:
        """Add what was just claimed."""
        holds = [Hold(row, claimed_at) for row in rows]
        with self._lock:
            self._waiting.extend(holds)

    def put_settling(self, rows: Iterable[ClaimedRow], claimed_at: float) -> list[Hold]:
        """Add what was just claimed and is not to be started: it only has to be kept alive until it is given back."""
        holds = [Hold(row, claimed_at, State.SETTLING) for row in rows]
        with self._lock:
            self._settling.update(holds)
        return holds

    def start(self, now_seconds: float) -> Hold | None:
        """Move the next job to running; None when none waits."""
        with self._lock:
            if not self._waiting:
                return None
            hold = self._current = self._waiting.popleft()
            hold.state = State.RUNNING
            hold.started_at = now_seconds
            return hold

    def done(self, hold: Hold) -> bool:
        """Note that the handler returned and wrote nothing; False when the job was taken away from it."""
        with self._lock:
            kept = self._leave_handler(hold)
            if kept:
                hold.state = State.DONE
                self._done.append(hold)
            return kept

    def settle(self, hold: Hold) -> bool:
        """Keep the running job for the caller to end; False when it was taken away from it."""
        with self._lock:
            kept = self._leave_handler(hold)
            if kept:
                self._move_to_settling([hold])
            return kept

    def take_done(self) -> list[Hold]:
        """Hand over the jobs whose handlers returned, for the caller to finish."""
        with self._lock:
            holds, self._done = self._done, []
            self._move_to_settling(holds)
            return holds

    def put_back(self, holds: Sequence[Hold]) -> None:
        """Return what take_done gave: whether the database finished it is not known."""
        with self._lock:
            for hold in holds:
                hold.state, hold.unsure = State.DONE, True
            self._settling.difference_update(holds)
            self._done.extend(holds)

    def withdraw(self) -> list[Hold]:
        """Hand over the jobs that have not started, for the caller to give back."""
        with self._lock:
            holds = list(self._waiting)
            self._waiting.clear()
            self._move_to_settling(holds)
            return holds

    def take(self, hold: Hold) -> tuple[bool, Severed]:
        """Take a job away from its handler and cut its connection; False when it is not the slot's any more."""
        with self._lock:
            if hold is not self._current:
                return False, None
            self._current = None
            if hold.state is State.LOST:
                hold.state = State.TAKEN
                return False, None
            self._settling.add(hold)
            return True, self._cut(hold, State.TAKEN)

    def lose(self, holds: Iterable[Hold]) -> tuple[list[Hold], Severed]:
        """Drop jobs whose leases are lost; give those that were waiting or running, and the connection that was cut.

        What is done or settling is left alone: its own end will tell what became of it.
        """
        dropped: list[Hold] = []
        severed: Severed = None
        with self._lock:
            for hold in holds:
                if hold.state is State.WAITING:
                    self._waiting.remove(hold)
                    hold.state = State.LOST
                elif hold.state is State.RUNNING:
                    severed = self._cut(hold, State.LOST)
                else:
                    continue
                dropped.append(hold)
        return dropped, severed

    def ended(self, holds: Iterable[Hold]) -> None:
        """Forget jobs that ended."""
        with self._lock:
            self._settling.difference_update(holds)

    def running(self) -> Hold | None:
        """The job whose handler runs, be its lease lost or not."""
        return self._current

    def due_for_beat(self, now_seconds: float, beat_seconds: Callable[[str], float]) -> list[Hold]:
        """The jobs whose lease has to be extended: all that are not finished yet, even if their handlers returned."""
        return [
            hold
            for hold in self.holds
            if now_seconds - hold.beat_at >= beat_seconds(hold.row.job_kind) and not hold.finished
        ]

    @property
    def holds(self) -> list[Hold]:
        """All jobs that are here."""
        with self._lock:
            return [*self._waiting, *self._running(), *self._done, *self._settling]

    @property
    def empty(self) -> bool:
        """True when no job is here."""
        with self._lock:
            return not (self._waiting or self._running() or self._done or self._settling)

    def _running(self) -> list[Hold]:
        current = self._current
        return [current] if current is not None and current.state is State.RUNNING else []

    def _leave_handler(self, hold: Hold) -> bool:
        """Note that a handler returned; False when its job was taken away from it, or lost."""
        if hold is self._current:
            self._current = None
        return hold.state is State.RUNNING

    def _move_to_settling(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            hold.state = State.SETTLING
        self._settling.update(holds)

    def _cut(self, hold: Hold, state: State) -> Severed:
        """Part the running job from its handler. The slot cannot start the next one before the cut is made."""
        hold.state = state
        hold.cancelled = True
        return self._sever()
