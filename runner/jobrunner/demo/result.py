"""What the reindex did, as the database tells it: jobs, rows rebuilt and registered, a search, an audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from time import monotonic, sleep
from typing import Any, NamedTuple

import psycopg


class Scope(NamedTuple):
    """One job's tenant and type. `right` rows carry the vector that their searchable attributes ask for."""

    job_id: int
    tenant: str
    type_key: str
    status: str
    last_error: str | None
    registered: int
    rebuilt: int
    changed: int
    right: int
    chunks: int
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every registered row was rebuilt, and rightly."""
        return self.status == "done" and self.registered == self.rebuilt == self.right


class Hit(NamedTuple):
    """One entity that a search found."""

    name: str
    type_key: str
    country: str
    tenant: str


class AuditRow(NamedTuple):
    """One act in the life of a job: who is said to have done it, and which login did."""

    occurred_at: datetime
    action: str
    actor: str
    session_role: str


def wait_until_ended(conn: psycopg.Connection[Any], job_ids: Sequence[int], seconds: float) -> None:
    """Return when none of the jobs is pending or running (another runner may have them), or after `seconds`."""
    deadline = monotonic() + seconds
    query = "select from mdm.aa_job where id = any(%s) and status in ('pending', 'running') limit 1"
    while conn.execute(query, [list(job_ids)]).fetchone() is not None and monotonic() < deadline:
        sleep(0.1)


def scopes(conn: psycopg.Connection[Any], job_ids: Sequence[int]) -> list[Scope]:
    """Read what became of the jobs, and check each row of ddm_entity against its vector."""
    rows = conn.execute(
        """select j.id, t.name, j.payload ->> 'entity_type', j.status::text, j.last_error,
             e.registered, coalesce(p.rows_rebuilt, 0), coalesce(p.rows_changed, 0), e.right, coalesce(p.chunks, 0),
             coalesce(extract(epoch from j.completed_at - j.claimed_at), 0)::float8
           from mdm.aa_job j
           join mdm.aa_tenant t on t.id = j.tenant_id
           left join mdm.aa_reindex_progress p on p.job_id = j.id
           join lateral (
             select count(*) as registered,
               count(*) filter (where d.search_vector = mdm._entity_search_vector(d.attributes, k.keys)) as right
             from mdm.ddm_entity_type y
             cross join lateral (
               select array_agg(a.attribute_key) filter (where a.searchable)
               from mdm.ddm_entity_type_attribute a
               where a.entity_type_id = y.id) k (keys)
             join mdm.ddm_entity d on d.tenant_id = j.tenant_id and d.entity_type_id = y.id
             where y.type_key = j.payload ->> 'entity_type') e on true
           where j.id = any(%s)
           order by t.name, j.payload ->> 'entity_type'""",
        [list(job_ids)],
    ).fetchall()
    return [Scope._make(row) for row in rows]


def waiting(conn: psycopg.Connection[Any]) -> list[tuple[str, int]]:
    """Count the pending index builds that the steward's change asked for too (S2.7); other jobs are none of ours."""
    rows = conn.execute(
        """select job_kind, count(*) from mdm.aa_job
           where status = 'pending' and job_kind in ('index_sync', 'gin_backfill')
           group by job_kind order by job_kind"""
    ).fetchall()
    return [(row[0], row[1]) for row in rows]


def run_seconds(conn: psycopg.Connection[Any], job_ids: Sequence[int]) -> float:
    """Return the time from the first claim to the last end, in seconds."""
    row = conn.execute(
        """select coalesce(extract(epoch from max(completed_at) - min(claimed_at)), 0)::float8
           from mdm.aa_job where id = any(%s)""",
        [list(job_ids)],
    ).fetchone()
    return float(row[0]) if row else 0.0


def search(conn: psycopg.Connection[Any], query: str, limit: int = 5) -> tuple[int, list[Hit], float]:
    """Search the vectors; gives the number of hits, the best of them, and the time in seconds."""
    began = monotonic()
    rows = conn.execute(
        """select e.attributes ->> 'name', t.type_key, e.attributes ->> 'country', n.name, count(*) over ()
           from mdm.ddm_entity e
           join mdm.ddm_entity_type t on t.id = e.entity_type_id
           join mdm.aa_tenant n on n.id = e.tenant_id
           cross join to_tsquery('simple', %s) q
           where e.search_vector @@ q
           order by ts_rank(e.search_vector, q) desc, e.attributes ->> 'name', e.id
           limit %s""",
        [query, limit],
    ).fetchall()
    seconds = monotonic() - began
    return (rows[0][4] if rows else 0), [Hit._make(row[:4]) for row in rows], seconds


def audit_trail(conn: psycopg.Connection[Any], job_id: int) -> list[AuditRow]:
    """Read the audit rows of a job, oldest first."""
    rows = conn.execute(
        """select a.occurred_at, a.action::text, coalesce(p.name, '-'), a.session_role::text
           from mdm.aa_audit_log a
           left join mdm.aa_principal p on p.id = a.actor_principal_id
           where a.object_type = 'job' and a.object_id = %s
           order by a.id""",
        [str(job_id)],
    ).fetchall()
    return [AuditRow._make(row) for row in rows]
