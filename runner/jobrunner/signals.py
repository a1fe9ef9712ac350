"""SIGTERM and SIGINT: the first asks the pool to drain, the second to give back at once."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from jobrunner.wake import Wake

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Counts the signals and wakes the main thread; a signal handler may take no lock, so it does nothing else."""

    def __init__(self, wake: Wake) -> None:
        self.count = 0
        self._wake = wake

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Receive the signals for the time of a with block, in the main thread."""
        before: dict[int, Any] = {each: signal.signal(each, self._note) for each in SIGNALS}
        wakeup = signal.set_wakeup_fd(self._wake.writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for each, handler in before.items():
                signal.signal(each, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def reset_in_children() -> None:
    """Let a child that a handler forks die of a signal as any process does (B78)."""
    os.register_at_fork(after_in_child=_to_default)


def _to_default() -> None:
    signal.set_wakeup_fd(-1)
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)
