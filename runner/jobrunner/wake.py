"""A pipe that ends somebody's sleep: from any thread, and from a signal."""

from __future__ import annotations

import contextlib
import os
import select


class Wake:
    """The two ends of a pipe that nobody blocks on."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)
        self._woken = False

    def wake(self) -> None:
        """End the sleep, or the next one."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.writer, b"w")

    def wait(self, seconds: float, *others: int) -> set[int]:
        """Sleep until woken, until one of the other descriptors is readable, or for so long; give those others."""
        ready = set(select.select([self.reader, *others], [], [], max(0.0, seconds))[0])
        if self.reader in ready:
            self._woken = True
            with contextlib.suppress(BlockingIOError):
                os.read(self.reader, 4096)
        return ready - {self.reader}

    def take(self) -> bool:
        """Whether a sleep was ended by `wake` since the last call."""
        woken, self._woken = self._woken, False
        return woken

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        os.close(self.writer)
