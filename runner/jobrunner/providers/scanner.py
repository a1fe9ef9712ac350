"""What virus_scan needs of a scanner: one content at a time, and an answer that holds for all of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Scanner(Protocol):
    """Looks for malware."""

    def scan(self, chunks: Iterable[bytes], size_bytes: int) -> str | None:
        """Scan a content of `size_bytes`; None = clean as a whole, else the name of what was found.

        Raises ScanRefused or ScannerUnavailable, and whatever reading the chunks raises.
        """


class ScanRefused(Exception):
    """The scanner does not look at this content as a whole, it is too large for instance: no use in retrying."""


class ScannerUnavailable(Exception):
    """There is no answer that counts: not reached, timed out, broken off. Trying again may help."""
