"""The functions of a worker (design 3): claim, end, heartbeat, registry, settings and upkeep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from jobrunner.db.call import Call, Rows, ids, nothing
from jobrunner.job import ClaimedRow

# What a delay may be at most before it is sent; the database clamps it to the kind's max_delay (D8).
MAX_DELAY_SECONDS: Final = 3650 * 86400.0
# Of claim and heartbeat: both skip locked rows, so only DDL on the tables can make them wait.
LOCK_SECONDS: Final = 5.0

Floor = Mapping[str, Mapping[str, str]]


class Failed(NamedTuple):
    """What became of a job that failed."""

    status: str
    available_in_seconds: float


class KindSettings(NamedTuple):
    """What the runner has to know of a kind."""

    job_kind: str
    stale_ttl_seconds: float
    handler_timeout_seconds: float | None
    paused: bool


class Unserved(NamedTuple):
    """A tenant that no job will come of, as things stand; `problem` says why."""

    tenant_id: str
    problem: str


class RateLimit(NamedTuple):
    """The rate limit of a tenant and kind (S7.2); `problem` says why it cannot be used."""

    tenant_id: str
    job_kind: str
    rps: float | None
    burst: int | None
    problem: str | None


def claim_job(
    *, worker_id: str, kinds: Sequence[str], tenant_ids: Sequence[UUID] | None, limit: int, floor: Floor | None
) -> Call[list[ClaimedRow]]:
    """Claim up to `limit` jobs, in order (S4.1)."""
    return Call(
        """select j.id, j.lease_no, j.job_kind, j.tenant_id::text, j.priority,
             date_part('epoch', j.available_at), j.payload::text, j.context::text,
             j.attempts, j.max_attempts, j.idempotency_key, j.key_no, j.claimed_by,
             date_part('epoch', j.claimed_at), date_part('epoch', j.created_at),
             j.releases, j.recoveries, j.run_alone, j.last_error
           from mdm.claim_job(p_worker_id => %(worker_id)s::text, p_kinds => %(kinds)s::text[],
             p_tenant_ids => %(tenant_ids)s::uuid[], p_limit => %(limit)s::int, p_floor => %(floor)s::jsonb) j""",
        lambda rows: [ClaimedRow._make(row) for row in rows],
        {
            "worker_id": worker_id,
            "kinds": _texts(tuple(kinds)),
            "tenant_ids": list(tenant_ids) if tenant_ids is not None else None,
            "limit": limit,
            "floor": Jsonb(floor) if floor is not None else None,
        },
    )


def check_lease(*, job_id: int, lease_no: int) -> Call[None]:
    """Raise MJ001 when the lease is lost; first statement of a chunk (D24)."""
    return Call(
        "select mdm.check_lease(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s)",
        nothing,
        {"job_id": job_id, "lease_no": lease_no},
    )


def finish_job(*, job_id: int, lease_no: int) -> Call[None]:
    """End a job with success (S5.1); MJ001 when the lease is lost."""
    return Call(
        "select mdm.finish_job(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s)",
        nothing,
        {"job_id": job_id, "lease_no": lease_no},
    )


def finish_jobs(*, job_ids: Sequence[int], lease_nos: Sequence[int]) -> Call[set[int]]:
    """End many jobs with success; gives the ids accepted."""
    return Call(
        """select f.job_id from mdm.finish_jobs(
             p_job_ids => %(job_ids)s::bigint[], p_lease_nos => %(lease_nos)s::bigint[]) as f (job_id)""",
        ids,
        {"job_ids": _array(job_ids), "lease_nos": _array(lease_nos)},
    )


def fail_job(
    *, job_id: int, lease_no: int, error: str, retryable: bool = True, retry_after_seconds: float | None = None
) -> Call[Failed | None]:
    """End a run that failed (S5.2, S5.3); MJ001 when the lease is lost."""
    return Call(
        """select f.status::text, date_part('epoch', f.available_at - clock_timestamp())
           from mdm.fail_job(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s, p_error => %(error)s,
             p_retryable => %(retryable)s, p_retry_after => %(retry_after)s::interval) f""",
        lambda rows: Failed._make(rows[0]) if rows else None,
        {
            "job_id": job_id,
            "lease_no": lease_no,
            "error": error,
            "retryable": retryable,
            "retry_after": _interval(retry_after_seconds),
        },
    )


def release_job(*, job_id: int, lease_no: int, retry_after_seconds: float | None, reason: str | None) -> Call[None]:
    """Give a job back with its attempt (D4); MJ001 when the lease is lost."""
    return Call(
        """select mdm.release_job(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s,
             p_retry_after => %(retry_after)s::interval, p_reason => %(reason)s)""",
        nothing,
        {
            "job_id": job_id,
            "lease_no": lease_no,
            "retry_after": _interval(retry_after_seconds),
            "reason": reason,
        },
    )


def release_jobs(
    *, job_ids: Sequence[int], lease_nos: Sequence[int], retry_after_seconds: Sequence[float] | None = None
) -> Call[set[int]]:
    """Give many jobs back with their attempts (D4); without delays they keep their places. Gives the ids accepted."""
    delays = [_interval(seconds) for seconds in retry_after_seconds] if retry_after_seconds is not None else None
    return Call(
        """select r.job_id from mdm.release_jobs(p_job_ids => %(job_ids)s::bigint[],
             p_lease_nos => %(lease_nos)s::bigint[], p_retry_afters => %(delays)s::interval[]) as r (job_id)""",
        ids,
        {"job_ids": _array(job_ids), "lease_nos": _array(lease_nos), "delays": delays},
    )


def extend_jobs(*, job_ids: Sequence[int], lease_nos: Sequence[int]) -> Call[set[int]]:
    """Heartbeat (D5); gives the ids whose lease is lost."""
    return Call(
        """select e.job_id, e.alive
           from mdm.extend_jobs(p_job_ids => %(job_ids)s::bigint[], p_lease_nos => %(lease_nos)s::bigint[]) e""",
        lambda rows: {job_id for job_id, alive in rows if not alive},
        {"job_ids": _array(job_ids), "lease_nos": _array(lease_nos)},
    )


def announce_runner(
    *, runner_id: str, kinds: Sequence[str], tenant_ids: Sequence[UUID] | None, hungry: bool
) -> Call[None]:
    """Write this process into the registry of runners (design 5.5); no kinds = take it out."""
    return Call(
        """select mdm.announce_runner(p_runner_id => %(runner_id)s, p_kinds => %(kinds)s::text[],
             p_tenant_ids => %(tenant_ids)s::uuid[], p_hungry => %(hungry)s)""",
        nothing,
        {
            "runner_id": runner_id,
            "kinds": list(kinds),
            "tenant_ids": list(tenant_ids) if tenant_ids is not None else None,
            "hungry": hungry,
        },
    )


def listen() -> Call[None]:
    """Hear of new jobs on this connection (design 5.5); the payload of a notification is the kind."""
    return Call("listen mdm_jobs", nothing)


def notify(*, payload: str) -> Call[None]:
    """Send a notification on the channel of new jobs: how a runner tests that it would hear of one (B59)."""
    return Call("select pg_notify('mdm_jobs', %(payload)s)", nothing, {"payload": payload})


def job_kind_settings(*, kinds: Sequence[str]) -> Call[list[KindSettings]]:
    """Read what the runner has to know of its kinds; an unregistered kind gives no row (D14)."""
    return Call(
        """select s.job_kind, date_part('epoch', s.stale_ttl),
             date_part('epoch', s.handler_timeout), s.paused
           from mdm.job_kind_settings(p_kinds => %(kinds)s::text[]) s""",
        lambda rows: [KindSettings._make(row) for row in rows],
        {"kinds": list(kinds)},
    )


def rate_limits(*, kinds: Sequence[str]) -> Call[list[RateLimit]]:
    """Read the rate limits of the tenants that have one (S7.2)."""
    return Call(
        """select r.tenant_id::text, r.job_kind, r.rps::float8, r.burst, r.problem
           from mdm.rate_limits(p_kinds => %(kinds)s::text[]) r""",
        lambda rows: [RateLimit._make(row) for row in rows],
        {"kinds": list(kinds)},
    )


def check_tenants(*, tenant_ids: Sequence[UUID]) -> Call[list[Unserved]]:
    """Find the tenants of which this login gets no jobs: mistyped, not made yet, or not its own (S3.3)."""
    return Call(
        """select c.tenant_id::text, c.problem
           from mdm.check_tenants(p_tenant_ids => %(tenant_ids)s::uuid[]) c""",
        lambda rows: [Unserved._make(row) for row in rows],
        {"tenant_ids": list(tenant_ids)},
    )


def _array(numbers: Sequence[int]) -> str:
    """Write numbers as an array of SQL: for hundreds of them ten times as quick as the driver's own way."""
    return "{" + ",".join(map(str, numbers)) + "}"


@lru_cache(maxsize=16)
def _texts(texts: tuple[str, ...]) -> str:
    """Write texts as an array of SQL, once: a claim names the same kinds each time."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


def _interval(seconds: float | None) -> timedelta | None:
    """Turn seconds into an interval that the driver can send: 0 to ten years, NaN is 0."""
    if seconds is None:
        return None
    return timedelta(seconds=min(max(0.0, seconds), MAX_DELAY_SECONDS)) if seconds == seconds else timedelta(0)


def pairs(rows: Rows) -> list[tuple[int, str]]:
    """Read rows of a job id and an outcome."""
    return [(row[0], row[1]) for row in rows]
