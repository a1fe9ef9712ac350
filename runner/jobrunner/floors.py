"""From where a claim has to look: the floors of design 5, rule 2.

Dead index entries gather at the low end of available_at and cannot be cleaned while somebody holds a snapshot.
So a claim looks only at the lanes (kind, priority) in which this process has claimed, from the available_at on up
to which it has, less a margin; and now and then it looks at everything. Pure: the clock is an argument.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from jobrunner.job import ClaimedRow

MARGIN_SECONDS: Final = 0.05  # what commits a little late
WIDE_MARGIN_SECONDS: Final = 10.0  # what commits late, and clocks that step
WIDE_EVERY_SECONDS: Final = 1.0
EXACT_EVERY_SECONDS: Final = 1.0
EXACT_SHARE: Final = 50.0  # an exact scan may take one part in fifty of the time
FORGET_SECONDS: Final = 60.0  # a lane that gave nothing for so long costs its probe no more
EPOCH_MAX: Final = 253402300799.0  # the end of year 9999

Lane = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ticket:
    """The floor of one claim: None = an exact scan. `lanes` is what was known when it was made."""

    floor: dict[str, dict[str, str]] | None
    lanes: dict[Lane, float] = field(default_factory=dict)


class Floors:
    """What the slots of one process have claimed up to, per lane, in seconds since 1970."""

    def __init__(self, *, exact_only: bool = False) -> None:
        self._exact_only = exact_only  # a drain always sees the truth
        self._lock = threading.Lock()
        self._lanes: dict[Lane, float] = {}
        self._used: dict[Lane, float] = {}
        self._exact_at = 0.0
        self._wide_at = 0.0

    def next(self, now_seconds: float) -> Ticket:
        """Give the floor for a claim that starts now (seconds of a monotonic clock)."""
        with self._lock:
            if self._exact_only or not self._lanes or now_seconds >= self._exact_at:
                self._exact_at = now_seconds + EXACT_EVERY_SECONDS
                return Ticket(None, dict(self._lanes))
            margin = MARGIN_SECONDS
            if now_seconds >= self._wide_at:
                self._wide_at = now_seconds + WIDE_EVERY_SECONDS
                margin = WIDE_MARGIN_SECONDS
            floor: dict[str, dict[str, str]] = {}
            for (kind, priority), epoch in self._lanes.items():
                floor.setdefault(kind, {})[str(priority)] = _text(epoch - margin)
            return Ticket(floor, dict(self._lanes))

    def claimed(self, ticket: Ticket, rows: Iterable[ClaimedRow], started: float, ended: float) -> None:
        """Learn from a claim that ran from `started` to `ended` (seconds of the monotonic clock)."""
        lows: dict[Lane, float] = {}
        highs: dict[Lane, float] = {}
        for row in rows:
            lane = (row.job_kind, row.priority)
            lows.setdefault(lane, row.available_epoch)  # a claim gives its rows in order
            highs[lane] = row.available_epoch
        with self._lock:
            for lane, high in highs.items():
                self._move(lane, lows[lane], high, ticket.lanes.get(lane))
                self._used[lane] = ended
            if ticket.floor is None:
                self._exact_at = ended + max(EXACT_EVERY_SECONDS, EXACT_SHARE * (ended - started))
                self._forget(ended)

    def _move(self, lane: Lane, low: float, high: float, known: float | None) -> None:
        """Raise the floor of a lane to what was claimed; what lay below the floor pulls it down."""
        if known is not None and low < known:
            self._lanes[lane] = min(low, self._lanes.get(lane, low))
        else:
            self._lanes[lane] = max(high, self._lanes.get(lane, high))

    def _forget(self, now_seconds: float) -> None:
        """Drop lanes that gave nothing for a while; a kind without lanes is scanned exactly."""
        for lane in [lane for lane, used in self._used.items() if now_seconds - used > FORGET_SECONDS]:
            del self._used[lane], self._lanes[lane]


def _text(epoch_seconds: float) -> str:
    """Write an instant as SQL understands it."""
    return datetime.fromtimestamp(min(max(0.0, epoch_seconds), EPOCH_MAX), UTC).isoformat()
