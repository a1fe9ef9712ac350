"""Ports for servers that cannot be told to take any free one."""

from __future__ import annotations

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, for a program that binds it in a moment.

    Below those that the kernel gives to whoever connects, so that no connection takes it meanwhile.
    """
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(10_000, 30_000)))
            return int(probe.getsockname()[1])
