"""The jobs that a slot has claimed, and who may do what with each of them.

A slot and the keeper (at the end also the pool) both reach into a tray. Every job goes one way, under the tray's lock:

    waiting --start--> running --done--> done --take_done--> settling --ended--> out
       |                  |--settle------------------------> settling
       |                  |--take (time is up, stop)-------> taken ----ended--> out
       |                  `--lose (lease lost)-------------> lost -----ended--> out
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
    TAKEN = 5  # taken away from a handler that still runs
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
        self._sever = sever  # cuts the slot's connection
        self._lock = threading.Lock()
        self._waiting: deque[Hold] = deque()
        self._current: Hold | None = None
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
            if hold.state is not State.RUNNING:
                return False
            hold.state = State.DONE
            self._current = None
            self._done.append(hold)
            return True

    def settle(self, hold: Hold) -> bool:
        """Keep the running job for the caller to end; False when it was taken away from it."""
        with self._lock:
            if hold.state is not State.RUNNING:
                return False
            self._move_to_settling([hold])
            self._current = None
            return True

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
        """Take a running job away from its handler and cut its connection; False when it does not run any more."""
        with self._lock:
            if hold.state is not State.RUNNING:
                return False, None
            return True, self._take_current(State.TAKEN)

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
                    severed = self._take_current(State.LOST)
                else:
                    continue
                dropped.append(hold)
        return dropped, severed

    def ended(self, holds: Iterable[Hold]) -> None:
        """Forget jobs that ended."""
        with self._lock:
            self._settling.difference_update(holds)

    def running(self) -> Hold | None:
        """The job whose handler runs."""
        return self._current

    def due_for_beat(self, now_seconds: float, beat_seconds: Callable[[str], float]) -> list[Hold]:
        """The jobs whose lease has to be extended: all that are here, since even what is done is not finished yet."""
        return [hold for hold in self.holds if now_seconds - hold.beat_at >= beat_seconds(hold.row.job_kind)]

    @property
    def holds(self) -> list[Hold]:
        """All jobs that are here."""
        with self._lock:
            current = [self._current] if self._current is not None else []
            return [*self._waiting, *current, *self._done, *self._settling]

    @property
    def empty(self) -> bool:
        """True when no job is here."""
        with self._lock:
            return not (self._waiting or self._current or self._done or self._settling)

    def _move_to_settling(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            hold.state = State.SETTLING
        self._settling.update(holds)

    def _take_current(self, state: State) -> Severed:
        """Part the running job from its handler. The slot cannot start the next one before the cut is made."""
        hold = self._current
        assert hold is not None
        hold.state = state
        hold.cancelled = True
        self._current = None
        if state is State.TAKEN:
            self._settling.add(hold)
        return self._sever()
