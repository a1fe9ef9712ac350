"""The functions and views of an operator (S9, design 3): the dead letter queue, pause, stop, explain, health."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from jobrunner.db.call import Call, nothing
from jobrunner.db.worker import pairs


class Dead(NamedTuple):
    """A job of the dead letter queue (S9.1)."""

    id: int
    job_kind: str
    tenant_id: str | None
    attempts: int
    max_attempts: int
    completed_at: datetime
    last_error: str | None
    payload: Any
    priority: int
    idempotency_key: str | None
    context: Any
    claimed_by: str | None
    recoveries: int
    created_at: datetime


class State(NamedTuple):
    """Where a job stands (mdm.get_job)."""

    job_id: int
    job_kind: str
    tenant_id: str | None
    status: str
    attempts: int
    max_attempts: int
    last_error: str | None


class Reason(NamedTuple):
    """One reason why a job is not running; `until` = when it ends, None where nobody knows."""

    reason: str
    detail: str
    until: str | None


class Moment(NamedTuple):
    """One line of a job's history."""

    at: str | None
    event: str
    actor: str | None
    session_role: str | None
    detail: str | None


class Health(NamedTuple):
    """One line of v_job_health; `warning` = what is wrong and the remedy."""

    subject: str
    item: str
    value: str
    warning: str | None


def dead_jobs(
    *,
    job_id: int | None = None,
    job_kind: str | None = None,
    tenant_id: UUID | None = None,
    platform: bool = False,
    after: datetime | None = None,
    before: datetime | None = None,
    error: str | None = None,
    limit: int = 50,
) -> Call[list[Dead]]:
    """List dead jobs, newest first (view v_job_dlq); `platform` = only those of no tenant, `error` = contains."""
    return Call(
        """select d.id, d.job_kind, d.tenant_id::text, d.attempts, d.max_attempts, d.completed_at, d.last_error,
             d.payload, d.priority, d.idempotency_key, d.context, d.claimed_by, d.recoveries, d.created_at
           from mdm.v_job_dlq d
           where (%(job_id)s::bigint is null or d.id = %(job_id)s)
             and (%(job_kind)s::text is null or d.job_kind = %(job_kind)s)
             and (%(tenant_id)s::uuid is null or d.tenant_id = %(tenant_id)s)
             and (not %(platform)s or d.tenant_id is null)
             and (%(after)s::timestamptz is null or d.completed_at >= %(after)s)
             and (%(before)s::timestamptz is null or d.completed_at < %(before)s)
             and (%(error)s::text is null or strpos(d.last_error, %(error)s) > 0)
           order by d.completed_at desc, d.id desc
           limit %(limit)s""",
        lambda rows: [Dead._make(row) for row in rows],
        {
            "job_id": job_id,
            "job_kind": job_kind,
            "tenant_id": tenant_id,
            "platform": platform,
            "after": after,
            "before": before,
            "error": error,
            "limit": limit,
        },
    )


def get_job(*, job_id: int) -> Call[State | None]:
    """Tell where a job stands, without its payload; None when there is no such job."""
    return Call(
        """select g.job_id, g.job_kind, g.tenant_id::text, g.status::text, g.attempts, g.max_attempts, g.last_error
           from mdm.get_job(p_job_id => %(job_id)s) g""",
        lambda rows: State._make(rows[0]) if rows else None,
        {"job_id": job_id},
    )


def replay_job(*, job_id: int, reason: str | None, actor: UUID | None) -> Call[str]:
    """Let a dead or stopped job run again (S9.2). MJ002 no such job, MJ004 wrong state or superseded."""
    return Call(
        "select mdm.replay_job(p_job_id => %(job_id)s, p_reason => %(reason)s, p_actor_principal_id => %(actor)s)",
        lambda rows: str(rows[0][0]),
        {"job_id": job_id, "reason": reason, "actor": actor},
    )


def discard_job(*, job_id: int, reason: str | None, actor: UUID | None) -> Call[str]:
    """Delete a job for good (S9.3). MJ002 no such job, MJ004 running or done."""
    return Call(
        "select mdm.discard_job(p_job_id => %(job_id)s, p_reason => %(reason)s, p_actor_principal_id => %(actor)s)",
        lambda rows: str(rows[0][0]),
        {"job_id": job_id, "reason": reason, "actor": actor},
    )


def stop_job(*, job_id: int, reason: str | None, actor: UUID | None) -> Call[str]:
    """Mark a job as broken for good (S5.4); a running one loses its lease. MJ002 no such job, MJ004 has ended."""
    return Call(
        "select mdm.stop_job(p_job_id => %(job_id)s, p_reason => %(reason)s, p_actor_principal_id => %(actor)s)",
        lambda rows: str(rows[0][0]),
        {"job_id": job_id, "reason": reason, "actor": actor},
    )


def replay_jobs(
    *, filter: Mapping[str, Any], limit: int, dry_run: bool, reason: str | None, actor: UUID | None
) -> Call[list[tuple[int, str]]]:
    """Replay the dead jobs that a filter names (S9.2); gives job id and outcome. MJ005 bad filter, MJ006 empty one."""
    return Call(
        """select r.job_id, r.outcome
           from mdm.replay_jobs(p_filter => %(filter)s, p_limit => %(limit)s::int, p_dry_run => %(dry_run)s,
             p_reason => %(reason)s, p_actor_principal_id => %(actor)s) r""",
        pairs,
        {"filter": Jsonb(filter), "limit": limit, "dry_run": dry_run, "reason": reason, "actor": actor},
    )


def discard_jobs(
    *, filter: Mapping[str, Any], limit: int, dry_run: bool, reason: str | None, actor: UUID | None
) -> Call[list[tuple[int, str]]]:
    """Delete the dead jobs that a filter names (S9.3); gives job id and outcome. MJ005 bad filter, MJ006 empty one."""
    return Call(
        """select r.job_id, r.outcome
           from mdm.discard_jobs(p_filter => %(filter)s, p_limit => %(limit)s::int, p_dry_run => %(dry_run)s,
             p_reason => %(reason)s, p_actor_principal_id => %(actor)s) r""",
        pairs,
        {"filter": Jsonb(filter), "limit": limit, "dry_run": dry_run, "reason": reason, "actor": actor},
    )


def pause_kind(*, job_kind: str, until: datetime | None, reason: str | None, actor: UUID | None) -> Call[None]:
    """Stop claiming jobs of a kind until then, None = until it is resumed. MJ003 unknown kind."""
    return Call(
        """select mdm.pause_kind(p_job_kind => %(job_kind)s, p_until => %(until)s, p_reason => %(reason)s,
             p_actor_principal_id => %(actor)s)""",
        nothing,
        {"job_kind": job_kind, "until": until, "reason": reason, "actor": actor},
    )


def resume_kind(*, job_kind: str, actor: UUID | None) -> Call[None]:
    """Claim jobs of a kind again. MJ003 unknown kind."""
    return Call(
        "select mdm.resume_kind(p_job_kind => %(job_kind)s, p_actor_principal_id => %(actor)s)",
        nothing,
        {"job_kind": job_kind, "actor": actor},
    )


def explain_job(*, job_id: int) -> Call[list[Reason]]:
    """Give every reason why a job is not running. MJ002 no such job."""
    return Call(
        "select e.reason, e.detail, date_trunc('second', e.until)::text from mdm.explain_job(p_job_id => %(job_id)s) e",
        lambda rows: [Reason._make(row) for row in rows],
        {"job_id": job_id},
    )


def job_history(*, job_id: int) -> Call[list[Moment]]:
    """Give a job's audit rows and its present state, in order (view v_job_history)."""
    return Call(
        """select h.at::text, h.event, h.actor, h.session_role::text, h.detail
           from mdm.v_job_history h
           where h.job_id = %(job_id)s""",
        lambda rows: [Moment._make(row) for row in rows],
        {"job_id": job_id},
    )


def job_health() -> Call[list[Health]]:
    """Give the lines of v_job_health, those with a warning first."""
    return Call(
        "select h.subject, h.item, h.value, h.warning from mdm.v_job_health h",
        lambda rows: [Health._make(row) for row in rows],
    )
