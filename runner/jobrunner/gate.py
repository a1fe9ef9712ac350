"""The gate that slots pass before they claim: a job that runs alone (D3) gets the process to itself, for a while.

Of several jobs that were under way when a process died, one may have killed it. Each runs again with nothing beside
it, so that the next crash tells. A killer mostly kills soon: who has survived ALONE_SECONDS gets company again, or the
other slots would stand still for as long as a long job runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from typing import Final

ALONE_SECONDS: Final = 10.0


class Gate:
    """Which slots are at work, and which of them wants to be alone."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._inside: dict[str, float] = {}  # slots at work, and since when on what they have now
        self._alone: str | None = None  # the slot that has the gate closed
        self._closed_until = 0.0
        self._again: str | None = None  # the slot whose job was in more than one crash
        self._stopped = False

    def closed_for(self, slot: str) -> bool:
        """Whether another slot wants to be alone."""
        return self._alone not in (None, slot) and self._clock() < self._closed_until and not self._stopped

    def enter(self, slot: str) -> None:
        """Begin with something new, once the gate is open; while it is closed hold no job."""
        with self._condition:
            while self.closed_for(slot):
                self._condition.wait(max(0.0, min(self._closed_until - self._clock(), ALONE_SECONDS)))
            self._inside[slot] = self._clock()

    def leave(self, slot: str) -> None:
        """Be through with all jobs."""
        with self._condition:
            self._inside.pop(slot, None)
            self._condition.notify_all()
        self.open(slot)

    def open(self, slot: str) -> None:
        """Want to be alone no more; a slot that gets one job after the other that runs alone keeps the gate closed."""
        if slot not in (self._alone, self._again):
            return
        with self._condition:
            self._alone = None if self._alone == slot else self._alone
            self._again = None if self._again == slot else self._again
            self._condition.notify_all()

    def be_alone(self, slot: str, *, again: bool) -> float | None:
        """Close the gate behind a job that runs alone, and wait for the others, but for those that are long at work.

        None = it may start. Otherwise another is alone, and this job has to be given back for so many seconds: two that
        were in more than one crash (`again`) never run at the same time.
        """
        with self._condition:
            if self.closed_for(slot):
                return 0.0
            if again and self._again not in (None, slot):
                return ALONE_SECONDS
            self._alone = slot
            self._again = slot if again else None if self._again == slot else self._again
            self._closed_until = inf
            while (wait_seconds := self._company_seconds(slot)) > 0 and not self._stopped:
                self._condition.wait(wait_seconds)
            self._closed_until = self._clock() + ALONE_SECONDS
            return None

    def _company_seconds(self, slot: str) -> float:
        """For how long another slot may still be new at its work."""
        newest = max((since for other, since in self._inside.items() if other != slot), default=-inf)
        return newest + ALONE_SECONDS - self._clock()

    def stop(self) -> None:
        """Let everybody go, now and later."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
