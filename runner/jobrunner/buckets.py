"""Rate limits: a token bucket per tenant and kind, in the process (S7.1, D23). Pure: clock and dice are arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jobrunner.db.process import RateLimit
from jobrunner.job import ClaimedRow

HORIZON_SECONDS: Final = 900.0  # a refused job is put off by at most this
JITTER: Final = 0.1  # of the time of one token; of the horizon, where all meet
# A token that no job comes for is lost. So a job that comes and finds none goes behind the few that come back soon, not
# behind the whole backlog; and a job may be late by so much without a loss.
SOON_SECONDS: Final = 1.0
SOON_JOBS: Final = 20
LATE_SECONDS: Final = 0.25
SLOW_RPS: Final = 0.05  # below that the second until the next look is not missed

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Cap:
    """The limit of a provider, over all tenants, for this process (S7.3)."""

    rps: float
    burst: int


@dataclass(slots=True)
class Bucket:
    """The tokens of one tenant and kind, or of a whole kind."""

    rps: float
    burst: int
    tokens: float
    filled_at: float
    soon_until: float = 0.0  # refused jobs have been put off up to here, the few that come back soon
    later_until: float = 0.0  # and the rest of them up to here

    def take(self, now_seconds: float, dice: Callable[[], float]) -> float | None:
        """Take a token (None), or say in how many seconds to come back: k / rps for the k-th refused job."""
        room = self.burst + (self.rps * LATE_SECONDS if self.waited_for(now_seconds) else 0)
        self.tokens = min(room, self.tokens + self.rps * max(0.0, now_seconds - self.filled_at))
        self.filled_at = now_seconds
        if self.tokens >= 1:
            self.tokens -= 1
            return None
        return self._put_off(now_seconds, dice())

    def waited_for(self, now_seconds: float) -> bool:
        """Whether jobs that were put off are still to come."""
        return now_seconds < self.later_until or now_seconds < self.soon_until

    def _put_off(self, now_seconds: float, die: float) -> float:
        # a rate of 0, or next to it, must not divide
        step = 1 / self.rps if self.rps * HORIZON_SECONDS > 1 else HORIZON_SECONDS
        horizon = now_seconds + HORIZON_SECONDS
        if self.soon_until - now_seconds < max(SOON_SECONDS, SOON_JOBS * step):
            grown_seconds = self.tokens * step if step < HORIZON_SECONDS else 0.0  # of the next token
            until = self.soon_until = min(max(self.soon_until, now_seconds - grown_seconds) + step, horizon)
        else:
            until = self.later_until = min(max(self.later_until, self.soon_until) + step, horizon)
        delay = until - now_seconds
        later = delay + JITTER * die * min(delay, step)
        return later if later <= HORIZON_SECONDS else HORIZON_SECONDS * (1 - JITTER * die)

    def give_back(self) -> None:
        """Return a token that was not used."""
        self.tokens += 1

    def change(self, rps: float, burst: int) -> None:
        """Take a new setting; tokens that are there stay, up to the new burst."""
        if (rps, burst) != (self.rps, self.burst):
            self.rps, self.burst, self.tokens = rps, burst, min(self.tokens, burst)
            self.soon_until = self.later_until = 0.0


class Buckets:
    """The buckets of the process, shared by its slots."""

    def __init__(
        self, clock: Callable[[], float], dice: Callable[[], float], caps: Mapping[str, Cap] | None = None
    ) -> None:
        self._clock = clock
        self._dice = dice
        self._lock = threading.Lock()
        self._buckets: dict[Key, Bucket] = {}
        self._waiting_until = 0.0
        now = clock()
        self._caps = {kind: Bucket(cap.rps, cap.burst, cap.burst, now) for kind, cap in (caps or {}).items()}

    def configure(self, limits: Iterable[RateLimit]) -> dict[Key, str]:
        """Take the settings as they are now; give the problems of those that cannot be used and are left out."""
        now = self._clock()
        problems: dict[Key, str] = {}
        fresh: dict[Key, Bucket] = {}
        with self._lock:
            for limit in limits:
                key = (limit.tenant_id, limit.job_kind)
                if limit.problem is not None or limit.rps is None or limit.burst is None:
                    problems[key] = limit.problem or "rps or burst is missing"
                    continue
                bucket = self._buckets.get(key) or Bucket(limit.rps, limit.burst, limit.burst, now)
                bucket.change(limit.rps, limit.burst)
                fresh[key] = bucket
            self._buckets = fresh
        return problems

    @property
    def waited_for(self) -> bool:
        """Whether jobs that were put off are still to come, so many that it pays to look more often."""
        return self._clock() < self._waiting_until

    def sort(self, rows: Sequence[ClaimedRow]) -> tuple[Sequence[ClaimedRow], list[ClaimedRow], list[float]]:
        """Part claimed rows into those that may run and those that may not, with the seconds to put them off (S7.4)."""
        if not self._buckets and not self._caps:
            return rows, [], []
        allowed: list[ClaimedRow] = []
        refused: list[ClaimedRow] = []
        delays: list[float] = []
        with self._lock:
            now = self._clock()
            for row in rows:
                delay = self._take(row, now)
                if delay is None:
                    allowed.append(row)
                else:
                    refused.append(row)
                    delays.append(delay)
        return allowed, refused, delays

    def _take(self, row: ClaimedRow, now: float) -> float | None:
        """Take a token of the tenant's bucket and one of the cap (None), or say in how many seconds to come back."""
        bucket = self._buckets.get((row.tenant_id, row.job_kind)) if row.tenant_id is not None else None
        delay = self._take_from(bucket, now) if bucket is not None else None
        cap = self._caps.get(row.job_kind)
        if delay is not None or cap is None:
            return delay
        delay = self._take_from(cap, now)
        if delay is not None and bucket is not None:
            bucket.give_back()
        return delay

    def _take_from(self, bucket: Bucket, now: float) -> float | None:
        delay = bucket.take(now, self._dice)
        if delay is not None and bucket.rps > SLOW_RPS:
            self._waiting_until = max(self._waiting_until, now + delay)
        return delay
