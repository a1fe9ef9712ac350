"""Tables full of jobs that are no business of the caller's, and statistics that are not true."""

from __future__ import annotations

from typing import LiteralString

from jobs import make_kind
from planner.life import KIND, TENANTS, TWIN
from planner.plans import Connection

FOREIGN = "foreign"
INSERT: LiteralString = """
    insert into mdm.aa_job (tenant_id, job_kind, priority, max_attempts, available_at)
    select {tenant}, '{kind}', {priority}, 5, clock_timestamp() + interval '{due}'
    from generate_series(1, {rows}) g
"""
# Of 998 tenants: the last two of the thousand have nothing.
TENANT: LiteralString = "('00000000-0000-0000-0000-' || lpad((g % 998)::text, 12, '0'))::uuid"
# Jobs of another kind that go first, jobs of ours that are not due (in five priorities), jobs of other tenants.
LOADS: dict[str, dict[str, str]] = {
    "foreign": {"tenant": "null", "kind": FOREIGN, "priority": "1", "due": "-1 hour"},
    "not-due": {"tenant": "null", "kind": KIND, "priority": "g % 5 + 1", "due": "10 hours"},
    "tenants": {"tenant": TENANT, "kind": KIND, "priority": "101", "due": "-1 second"},
}


def prepare(conn: Connection) -> None:
    """Two kinds of one priority, a kind to fill the table with, and a thousand tenants; no autovacuum."""
    conn.execute("alter table mdm.aa_job set (autovacuum_enabled = off)")
    for kind in (KIND, TWIN, FOREIGN):
        make_kind(conn, kind, retention_done="1 hour", retention_dlq="1 hour", retention_failed="1 hour")
    conn.execute("insert into mdm.aa_tenant (id) select unnest(%s::uuid[])", (TENANTS,))


def fill(conn: Connection, load: str, rows: int, **other: str) -> None:
    """Fill the table with jobs of a load."""
    conn.execute(INSERT.format(rows=rows, **{**LOADS[load], **other}).encode())


def make_statistics(conn: Connection, statistics: str) -> None:
    """Tell the planner something that will not be true."""
    if statistics == "of-one-tenant":
        fill(conn, "tenants", 20_000, tenant=f"'{TENANTS[1]}'")
    if statistics != "never":
        conn.execute("vacuum analyze mdm.aa_job")
    if statistics == "of-one-tenant":
        conn.execute("truncate mdm.aa_job")
