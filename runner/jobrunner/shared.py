"""What the threads of one runner process share."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from uuid import UUID

from jobrunner.bell import Bell
from jobrunner.buckets import Buckets, Cap
from jobrunner.db.connect import Target
from jobrunner.db.process import KindSettings
from jobrunner.floors import Floors
from jobrunner.gate import Gate
from jobrunner.job import Handler
from jobrunner.metrics import Meter
from jobrunner.outage import Outage
from jobrunner.sizing import Sizing

DEFAULT_TTL_SECONDS: Final = 900.0  # of a kind that is not registered (S8.1)


def make_id() -> str:
    """Make a worker_id: <host>/<pid>/<uuid> (S3.2)."""
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4()}"


class Mode(Enum):
    """When the pool ends by itself."""

    SERVE = "serve"
    DRAIN = "drain"  # when nothing is due or running
    DRAIN_ALL = "drain_all"  # when nothing is left that will become due either
    ONCE = "once"  # after one job


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pool is to do."""

    target: Target
    handlers: Mapping[str, Handler]  # of the kinds to work on
    tenant_ids: tuple[UUID, ...] | None = None
    concurrency: int = 4
    mode: Mode = Mode.SERVE
    grace_seconds: float = 30.0
    caps: Mapping[str, Cap] = field(default_factory=dict)  # of the providers behind kinds (S7.3)
    listen: Target | None = None  # a direct connection for LISTEN; None = poll only
    runner_id: str = field(default_factory=make_id)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds to claim."""
        return tuple(self.handlers)


@dataclass(slots=True)
class Tally:
    """What became of the jobs of this process. Jobs, not runs, are counted once they ended in the database."""

    done: int = 0
    failed: int = 0  # to be tried again
    released: int = 0
    dead: int = 0
    lost: int = 0
    meter: Meter = field(default_factory=Meter)  # the same for an exporter, by kind
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *, done: int = 0, failed: int = 0, released: int = 0, dead: int = 0, lost: int = 0) -> None:
        """Count jobs that ended."""
        with self._lock:
            self.done += done
            self.failed += failed
            self.released += released
            self.dead += dead
            self.lost += lost

    @property
    def ran(self) -> int:
        """How many runs ended."""
        return self.done + self.failed + self.dead + self.lost


class Kinds:
    """The settings of the kinds, as they were read last."""

    def __init__(self) -> None:
        self._settings: dict[str, KindSettings] = {}

    def learn(self, settings: Iterable[KindSettings]) -> set[str]:
        """Take the settings as they are now; give the kinds that were not known before."""
        fresh = {each.job_kind: each for each in settings}
        new = fresh.keys() - self._settings.keys()
        self._settings = fresh
        return new

    def ttl_seconds(self, job_kind: str) -> float:
        """The stale TTL of a kind (S8.2)."""
        known = self._settings.get(job_kind)
        return known.stale_ttl_seconds if known is not None else DEFAULT_TTL_SECONDS

    def beat_seconds(self, job_kind: str) -> float:
        """How often its leases are extended (D5)."""
        return self.ttl_seconds(job_kind) / 3

    def timeout_seconds(self, job_kind: str) -> float | None:
        """How long its handler may run; None = as long as it likes."""
        known = self._settings.get(job_kind)
        return known.handler_timeout_seconds if known is not None else None

    def known(self, job_kind: str) -> bool:
        """Whether the kind is registered."""
        return job_kind in self._settings


class Hunger:
    """Whether the process wants to be notified: always, but while the last claim of every slot came back full."""

    def __init__(self, slots: int) -> None:
        self.again = threading.Event()  # set when hunger comes back: to be announced at once
        self._slots = slots
        self._full: set[str] = set()

    def claimed(self, worker_id: str, full: bool) -> None:
        """Note how a slot's claim came back."""
        if full:
            self._full.add(worker_id)
        elif worker_id in self._full:
            self._full.discard(worker_id)
            self.again.set()

    @property
    def hungry(self) -> bool:
        """True when a NOTIFY is wanted."""
        return len(self._full) < self._slots


@dataclass(slots=True)
class Shared:
    """The one of each that all threads use."""

    plan: Plan
    bell: Bell
    gate: Gate
    buckets: Buckets
    hunger: Hunger
    floors: Floors
    sizing: Sizing
    dice: Callable[[], float]
    kinds: Kinds = field(default_factory=Kinds)
    tally: Tally = field(default_factory=Tally)
    outage: Outage = field(default_factory=Outage)
    stop: threading.Event = field(default_factory=threading.Event)  # claim no more, end what runs
    over: threading.Event = field(default_factory=threading.Event)  # give up whatever is not done yet
