"""Wakes idle slots: as many as there is work for."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Bell:
    """Slots wait here; the doorbell and slots that found plenty ring."""

    def __init__(self, slots: int, on_idle: Callable[[], None]) -> None:
        self._slots = slots
        self._on_idle = on_idle
        self._condition = threading.Condition()
        self._idle = 0
        self._rings = 0
        self._stopped = False
        self.sure = False  # every job that is committed rings: notifications are known to come through

    def ring(self) -> None:
        """Wake one idle slot; when none is idle, the next one to become idle looks again at once."""
        with self._condition:
            self._rings = min(self._rings + 1, max(self._idle, 1))
            self._condition.notify()

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
            while not self._rings and not self._stopped:
                self._condition.wait()
            self._rings = max(0, self._rings - 1)
            self._idle -= 1

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
