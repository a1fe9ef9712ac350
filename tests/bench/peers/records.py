"""The record that each handler writes when it starts: the "t" of its payload and the wall clock."""

from __future__ import annotations

import os
import struct
from time import time
from typing import Final

RECORD: Final = struct.Struct("<dd")


class Records:
    """The records of one process."""

    def __init__(self) -> None:
        name = f"{os.environ['BENCH_LOG']}/{os.getpid()}"
        self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, t: float) -> None:
        """Note the start of a handler."""
        os.write(self._file, RECORD.pack(t, time()))
