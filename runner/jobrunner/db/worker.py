"""The functions of a worker (design 3): claim, end and heartbeat."""

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

Floor = Mapping[str, Mapping[str, str]]


class Failed(NamedTuple):
    """What became of a job that failed."""

    status: str
    available_in_seconds: float


CLAIMED: Final = """j.id, j.lease_no, j.job_kind, j.tenant_id::text, j.priority,
    date_part('epoch', j.available_at), j.payload::text, j.context::text,
    j.attempts, j.max_attempts, j.idempotency_key, j.key_no, j.claimed_by,
    date_part('epoch', j.claimed_at), date_part('epoch', j.created_at),
    j.releases, j.recoveries, j.run_alone, j.last_error"""
CLAIM: Final = """mdm.claim_job(p_worker_id => %(worker_id)s::text, p_kinds => %(kinds)s::text[],
    p_tenant_ids => %(tenant_ids)s::uuid[], p_limit => %(limit)s::int, p_floor => %(floor)s::jsonb)"""
# for the transaction of this statement alone
WITHOUT_WAIT: Final = "set_config('synchronous_commit', 'off', true) s,"
FINISH: Final = """mdm.finish_jobs(
    p_job_ids => %(job_ids)s::bigint[], p_lease_nos => %(lease_nos)s::bigint[])"""


def claim_job(
    *,
    worker_id: str,
    kinds: Sequence[str],
    tenant_ids: Sequence[UUID] | None,
    limit: int,
    floor: Floor | None,
    durable: bool = True,
) -> Call[list[ClaimedRow]]:
    """Claim up to `limit` jobs, in order (S4.1).

    Not `durable`: its commit does not wait for the disk. A server that crashes in the next half second forgets the
    claim then, as though it had not been made; whatever is committed later by the job waits, and makes it last too.
    """
    return Call(
        f"select {CLAIMED} from {'' if durable else WITHOUT_WAIT} {CLAIM} j",
        lambda rows: [ClaimedRow._make(row) for row in rows],
        {
            "worker_id": worker_id,
            "kinds": _texts(tuple(kinds)),
            "tenant_ids": list(tenant_ids) if tenant_ids is not None else None,
            "limit": limit,
            "floor": Jsonb(floor) if floor is not None else None,
        },
    )


def finish_and_claim(finish: Call[set[int]], claim: Call[list[ClaimedRow]]) -> Call[tuple[set[int], list[ClaimedRow]]]:
    """Finish and then claim, in one statement and so in one transaction (design 5, rule 6).

    The ids that were accepted come with the first row. The outer side of a left join runs first.
    """
    return Call(
        f"""select {CLAIMED}, case when coalesce(j.ordinality, 1) = 1 then f.job_ids end
            from (select array_agg(d.job_id) as job_ids from {FINISH} as d (job_id)) f
            left join lateral {CLAIM} with ordinality j on true""",
        _finished_and_claimed,
        {**finish.params, **claim.params},
    )


def _finished_and_claimed(rows: Rows) -> tuple[set[int], list[ClaimedRow]]:
    """Read the answer of finish_and_claim; without a claimed job its one row is empty."""
    accepted = set(rows[0][-1] or ())
    return accepted, [ClaimedRow._make(row[:-1]) for row in rows if row[0] is not None]


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
        f"select d.job_id from {FINISH} as d (job_id)",
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
