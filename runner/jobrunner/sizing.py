"""How many jobs a slot claims at once: about 100 ms of work (design 5, rule 6). Pure: it is told the times."""

from __future__ import annotations

from collections import deque
from typing import Final

RUNS: Final = 100  # how many runs are remembered, of each kind and of all
WORK_SECONDS: Final = 0.1  # a claim is about so much work
SLOWEST_SECONDS: Final = 1.0  # and less than this, were every run like the slowest remembered one
MAX_JOBS: Final = 500
GROWTH: Final = 5  # few measured runs prove little: claim at most so many times more


class Sizing:
    """The measured handler times of one process. Each list is only appended to, so slots share them without a lock."""

    def __init__(self, max_jobs: int = MAX_JOBS) -> None:
        self._max_jobs = max_jobs
        self._runs: dict[str, deque[float]] = {}
        self._recent: deque[str] = deque(maxlen=RUNS)

    def ran(self, job_kind: str, seconds: float) -> None:
        """Remember a run."""
        runs = self._runs.get(job_kind)
        if runs is None:
            runs = self._runs.setdefault(job_kind, deque(maxlen=RUNS))
        runs.append(seconds)
        self._recent.append(job_kind)

    def limit(self) -> int:
        """How many to claim: what the slowest of the kinds that ran lately allows; one as long as nothing ran."""
        kinds = set(self._recent.copy())
        return min((self.limit_of(kind) for kind in kinds), default=1)

    def limit_of(self, job_kind: str) -> int:
        """How many jobs of this kind make a claim."""
        runs = self._runs.get(job_kind, deque()).copy()
        if not runs:
            return 1
        mean = max(sum(runs) / len(runs), 1e-9)
        slowest = max(*runs, 1e-9)
        fits = min(WORK_SECONDS / mean, SLOWEST_SECONDS / slowest, GROWTH * len(runs), self._max_jobs)
        return max(1, int(fits))
