"""Wakes idle slots: as many as there is work for, the one that fell asleep last first.

Where handlers are quick, one slot does: it claims all there is, and what comes meanwhile it claims in the transaction
that finishes what it did. So a ring leaves the sleepers asleep while another slot is awake, which will look before it
sleeps; when it does not within PATIENCE_SECONDS, the next sleeper is woken. The last one's session is still warm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final

PATIENCE_SECONDS: Final = 0.003


class Bell:
    """Slots wait here; the doorbell and slots that found plenty ring."""

    def __init__(self, slots: int, on_idle: Callable[[], None]) -> None:
        self._slots = slots
        self._on_idle = on_idle
        self._lock = threading.Lock()
        self._sleepers: list[threading.Condition] = []
        self._rung = False  # and nobody has answered: whoever is about to sleep looks again
        self._unheard_since: float | None = None  # of a soft ring
        self._stopped = False
        self.quick = False  # a turn of a slot takes a moment only
        self.sure = False  # every job that is committed rings: notifications are known to come through

    def ring(self) -> None:
        """Wake one idle slot; when none is idle, the next one to become idle looks again at once."""
        with self._lock:
            self._rung = not self._wake()

    def ring_softly(self) -> None:
        """Ring for a slot that is awake and quick, if there is one; the caller has to call `insist` when it is time."""
        with self._lock:
            if not self.quick or len(self._sleepers) == self._slots:
                self._rung = not self._wake()
            elif not self._rung:
                self._rung, self._unheard_since = True, monotonic()

    def insist(self) -> None:
        """Wake a sleeper for the soft ring that nobody has answered."""
        with self._lock:
            self._unheard_since = None
            self._rung = self._rung and not self._wake()

    def seconds_to_insist(self) -> float:
        """How long a soft ring may still wait for an answer; for ever when there is none."""
        since = self._unheard_since
        return inf if since is None else since + PATIENCE_SECONDS - monotonic()

    def pass_on(self) -> None:
        """Wake one more idle slot, if there is one: called by a slot that found as much as it asked for."""
        with self._lock:
            self._wake()

    def answer(self) -> bool:
        """Whether it rang: asked by a slot that is about to sleep, and then looks again instead."""
        with self._lock:
            return self._take()

    def wait(self, *, after_work: bool) -> None:
        """Sleep until the next ring or the stop; `after_work` = since its last sleep the slot had found some."""
        if after_work:
            self._on_idle()
        with self._lock:
            if not self._take() and not self._stopped:
                self._sleepers.append(mine := threading.Condition(self._lock))
                mine.wait()

    def stop(self) -> None:
        """Let everybody go, now and later."""
        with self._lock:
            self._stopped = True
            while self._wake():
                pass

    @property
    def idle(self) -> int:
        """How many slots sleep."""
        return len(self._sleepers)

    @property
    def all_idle(self) -> bool:
        """True when every slot sleeps: nothing was found and nothing runs."""
        return self.idle == self._slots

    def _wake(self) -> bool:
        """Wake the slot that fell asleep last; False when none sleeps."""
        if not self._sleepers:
            return False
        self._sleepers.pop().notify()
        return True

    def _take(self) -> bool:
        """Answer a ring."""
        rung, self._rung, self._unheard_since = self._rung, False, None
        return rung
