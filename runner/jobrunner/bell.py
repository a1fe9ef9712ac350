"""Wakes idle slots: as many as there is work for.

Where handlers are quick, one slot does: it claims all there is, and what comes meanwhile it claims in the transaction
that finishes what it did. So a ring leaves the sleepers asleep while another slot is awake, which will look before it
sleeps; when it does not within PATIENCE_SECONDS, the next sleeper is woken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

PATIENCE_SECONDS: Final = 0.003


class Bell:
    """Slots wait here; the doorbell and slots that found plenty ring."""

    def __init__(self, slots: int, on_idle: Callable[[], None]) -> None:
        self._slots = slots
        self._on_idle = on_idle
        self._condition = threading.Condition()
        self._idle = 0
        self._rings = 0
        self._unheard_since: float | None = None  # rung while another slot was awake, and not answered yet
        self._stopped = False
        self.quick = False  # a turn of a slot takes a moment only
        self.sure = False  # every job that is committed rings: notifications are known to come through

    def ring(self) -> None:
        """Wake one idle slot; when none is idle, the next one to become idle looks again at once."""
        with self._condition:
            self._rings = min(self._rings + 1, max(self._idle, 1))
            self._condition.notify()

    def ring_softly(self) -> None:
        """Ring for a slot that is awake and quick, if there is one; the caller has to call `insist` when it is time."""
        with self._condition:
            if self.quick and self._idle < self._slots:
                self._rings = max(self._rings, 1)
                self._unheard_since = self._unheard_since or monotonic()
                return
        self.ring()

    def insist(self) -> None:
        """Wake a sleeper for the soft ring that nobody has answered."""
        with self._condition:
            self._unheard_since = None
            self._condition.notify()

    def seconds_to_insist(self) -> float | None:
        """How long a soft ring may still wait for an answer; None when there is none."""
        since = self._unheard_since
        return None if since is None else since + PATIENCE_SECONDS - monotonic()

    def answer(self) -> bool:
        """Whether it rang: asked by a slot that is about to sleep, and then looks again instead."""
        with self._condition:
            return self._take()

    def pass_on(self) -> None:
        """Wake one more idle slot, if there is one: called by a slot that found as much as it asked for."""
        with self._condition:
            if self._rings < self._idle:
                self._rings += 1
                self._condition.notify()

    def wait(self, *, after_work: bool) -> None:
        """Sleep until the next ring or the stop; `after_work` = since its last sleep the slot had found some."""
        if after_work:
            self._on_idle()
        with self._condition:
            self._idle += 1
            while not self._stopped and not self._take():
                self._condition.wait()
            self._idle -= 1

    def _take(self) -> bool:
        """Answer one ring."""
        if not self._rings:
            return False
        self._rings -= 1
        self._unheard_since = None
        return True

    def stop(self) -> None:
        """Let everybody go, now and later."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    @property
    def idle(self) -> int:
        """How many slots sleep and have not been rung for."""
        with self._condition:
            return max(0, self._idle - self._rings)

    @property
    def all_idle(self) -> bool:
        """True when every slot sleeps: nothing was found and nothing runs."""
        return self.idle == self._slots
