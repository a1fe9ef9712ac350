"""The scenario backlog: claims beside pending rows that cannot be claimed, against the same on an empty table."""

from __future__ import annotations

from time import monotonic
from typing import Final, NamedTuple

import psycopg
from drains import drain_loaded
from kit import Bench
from queues import OURS
from tables import Connection, fill, settle

CLAIMS: Final = 300
WARM: Final = 50  # of them, not counted
PRIORITIES: Final = 9  # of the rows; with that of the jobs that are claimed there are ten
TENANTS: Final = 1000
DUE: Final = 10_000
EMPTY: Final = "the empty table"
INSERT: Final = """
    insert into mdm.aa_job (job_kind, tenant_id, priority, available_at, max_attempts)
    select {kind}, {tenant}, {priority}, clock_timestamp() + {due}, 10
    from generate_series(1, {rows}) n
"""
TENANT: Final = "('00000000-0000-4000-8000-' || lpad(({n})::text, 12, '0'))::uuid"
ADD_TENANTS: Final = (
    f"insert into mdm.aa_tenant (id) select {TENANT.format(n='n')} from generate_series(0, {TENANTS}) n"
)


class Shape(NamedTuple):
    """What the table is full of; `bound`: the claims are for one tenant only, `drained`: a drain is measured too."""

    name: str
    kind: str = "'noop'"
    tenant: str = "null::uuid"
    due: str = "interval '0'"
    bound: bool = False
    drained: bool = False


SHAPES: Final = (
    Shape("of another kind", kind="'reindex'", drained=True),
    Shape("not due", due="interval '1 day'", drained=True),
    Shape(f"of {TENANTS:,} other tenants", tenant=TENANT.format(n=f"n % {TENANTS}"), bound=True),
    # what the runners make of a throttled backlog: put off by up to 15 minutes
    Shape("of one throttled tenant", tenant=TENANT.format(n="0"), due="(60 + n % 840) * interval '1 second'"),
)


def backlog(bench: Bench) -> None:
    """Claims of one job, in turn with an empty table, and drains; then the pages that an empty-handed claim touches."""
    rows, due = (20_000, 1_000) if bench.quick else (1_000_000, DUE)
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        drained = _drain(bench, dsn, conn, due)
        bench.report("backlog", f"drain of {due:,} due jobs, empty table", drained, "jobs/s")
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        for shape in SHAPES:
            _beside(bench, conn, shape, rows, due, drained)
    _empty_handed(bench, rows)


def _beside(bench: Bench, empty: Connection, shape: Shape, rows: int, due: int, drained: float) -> None:
    """Measure beside so many rows of a shape, and in turn on an empty table."""
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        tenant = _fill(conn, shape, rows)
        found, limit = _claims_in_turn(conn, empty, tenant if shape.bound else None)
        what = f"{rows:,} pending {shape.name}"
        bench.times("backlog", f"claim beside {what}", found, 50, 95, of=limit, limit=EMPTY)
        if shape.drained:
            rate = _drain(bench, dsn, conn, due)
            bench.report("backlog", f"drain of {due:,} behind {what}", rate, "jobs/s", drained, EMPTY)


def _fill(conn: Connection, shape: Shape, rows: int, priorities: int = PRIORITIES) -> str:
    """Insert pending rows directly; return a tenant that has none."""
    conn.execute(ADD_TENANTS.encode())
    fields = {"kind": shape.kind, "tenant": shape.tenant, "due": shape.due}
    conn.execute(INSERT.format(rows=rows, priority=f"n % {priorities}", **fields).encode())
    settle(conn)
    [(tenant,)] = conn.execute(f"select {TENANT.format(n=TENANTS)}::text".encode()).fetchall()
    return str(tenant)


def _claims_in_turn(conn: Connection, empty: Connection, tenant: str | None) -> tuple[list[float], list[float]]:
    """Enqueue and claim one job a few hundred times in both databases; return the seconds of the claims."""
    empty.execute(f"{ADD_TENANTS} on conflict do nothing".encode())
    turns = [(_claim_seconds(conn, tenant), _claim_seconds(empty, tenant)) for _ in range(CLAIMS)][WARM:]
    return [first for first, _ in turns], [second for _, second in turns]


def _claim_seconds(conn: Connection, tenant: str | None) -> float:
    """Enqueue and claim one job; return the seconds of the claim."""
    conn.execute("select mdm.enqueue_job('noop', p_tenant_id => %s::uuid)", (tenant,))
    began = monotonic()
    rows = conn.execute(
        "select id from mdm.claim_job('bench', '{noop}', %s::uuid[])", ([tenant] if tenant else None,)
    ).fetchall()
    if len(rows) != 1:
        raise SystemExit("bench: the claim found nothing")
    return monotonic() - began


def _drain(bench: Bench, dsn: str, conn: Connection, jobs: int) -> float:
    """Enqueue due jobs and drain them with one process."""
    fill(dsn, "noop", jobs)
    return drain_loaded(bench, OURS, dsn, conn, jobs).rate


def _empty_handed(bench: Bench, rows: int) -> None:
    """Pages of a claim that finds nothing, beside jobs that are not due."""
    for priorities in (0, 1, 10, 200):
        with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
            if priorities:
                _fill(conn, Shape("", due="interval '1 day'"), rows // 5, priorities)
            touched = [_buffers(conn) for _ in range(3)]  # the first loads catalogs
        what = f"{rows // 5:,} not due, {priorities} priorities" if priorities else "empty table"
        limit = "20 + 5 a priority"
        bench.report("backlog", f"empty-handed claim, {what}", touched[-1], "buffers", 20 + 5 * priorities, limit)


def _buffers(conn: Connection) -> int:
    [[[found]]] = conn.execute(
        "explain (analyze, buffers, timing off, format json) select * from mdm.claim_job('bench', '{noop}')"
    ).fetchall()
    return int(found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"])
