"""What a handler gets: the job, and the context that lends it transactions and tells it when to stop."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

import psycopg

from jobrunner.errors import PermanentError

_decode: Final = json.JSONDecoder().raw_decode


class ClaimedRow(NamedTuple):
    """A claimed row as the driver gives it: no value in it can fail to load, whatever the producer wrote.

    Times are seconds since 1970-01-01 UTC (a timestamp of -infinity is -inf), payload and context are JSON texts.
    """

    id: int
    lease_no: int
    job_kind: str
    tenant_id: str | None
    priority: int
    available_epoch: float
    payload: str
    context: str | None
    attempts: int
    max_attempts: int
    idempotency_key: str | None
    key_no: int
    claimed_by: str
    claimed_epoch: float
    created_epoch: float
    releases: int
    recoveries: int
    run_alone: bool
    last_error: str | None


class Job(NamedTuple):
    """A claimed job: the columns of mdm.aa_job that a handler may want."""

    id: int
    lease_no: int
    job_kind: str
    tenant_id: UUID | None
    priority: int
    available_at: datetime
    payload: dict[str, Any]
    context: Any
    attempts: int
    max_attempts: int
    idempotency_key: str | None
    key_no: int
    claimed_by: str
    claimed_at: datetime
    created_at: datetime
    releases: int
    recoveries: int
    last_error: str | None

    @classmethod
    def from_row(cls, row: ClaimedRow) -> Job:
        """Build the job; raises PermanentError when Python cannot hold the payload."""
        return cls(
            row.id,
            row.lease_no,
            row.job_kind,
            UUID(row.tenant_id) if row.tenant_id is not None else None,
            row.priority,
            _instant(row.available_epoch),
            _parsed(row.payload),
            _parsed(row.context) if row.context is not None else None,
            row.attempts,
            row.max_attempts,
            row.idempotency_key,
            row.key_no,
            row.claimed_by,
            _instant(row.claimed_epoch),
            _instant(row.created_epoch),
            row.releases,
            row.recoveries,
            row.last_error,
        )


class Chunk(Protocol):
    """One transaction of a handler that commits more than once (D24)."""

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection, in a transaction that began with check_lease; never commit or roll back on it."""

    def finish(self) -> None:
        """Make this the last chunk: its commit carries finish_job, and the runner does nothing more for the job."""


class Context(Protocol):
    """What the runner lends a handler for the time of one job."""

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection of the job's own transaction, opened at the first call (S5.1).

        The runner commits it together with finish_job when the handler returns and rolls it back when the handler
        raises. Never commit or roll back on it; `with connection.transaction()` makes a savepoint and is welcome.
        """

    def chunk(self) -> AbstractContextManager[Chunk]:
        """Open a transaction that begins with check_lease and is committed at the end of the with block (D24).

        Raises LeaseLost (SQLSTATE MJ001) when the lease is gone, Cancelled when the handler was told to stop.
        """

    @property
    def cancelled(self) -> bool:
        """True when the handler has to stop: its lease is lost, its time is up, or the runner ends."""

    def raise_if_cancelled(self) -> None:
        """Raise errors.Cancelled when the handler has to stop; long handlers call it between their steps."""

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds job_id, job_kind, tenant_id, worker_id and attempt to every line."""


Handler = Callable[[Job, Context], None]


def _instant(epoch_seconds: float) -> datetime:
    """Turn seconds since 1970 into a datetime in UTC; what lies outside its years becomes its first or last one."""
    try:
        return datetime.fromtimestamp(epoch_seconds, UTC)
    except (OverflowError, ValueError):
        edge = datetime.min if epoch_seconds < 0 else datetime.max
        return edge.replace(tzinfo=UTC)


def _parsed(text: str) -> Any:
    """Parse JSON; jsonb may hold numbers and depths that Python refuses: such a job can never run."""
    try:
        return _decode(text)[0]
    except (ValueError, RecursionError) as error:
        raise PermanentError(f"the payload cannot be read: {error}") from None
