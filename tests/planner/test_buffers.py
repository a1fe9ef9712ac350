"""What a claim costs in pages when the table is full of jobs that it does not want (B45, B46)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import pytest
from psycopg.types.json import Jsonb

from jobs import age, claim_one, enqueue, fail, finish, value
from planner.life import KIND, TENANTS, TWIN
from planner.loads import FOREIGN, fill
from planner.plans import Connection, Open, buffers, watching

ROWS = 200_000
NOT_DUE_PRIORITIES = 20
THROTTLED = TENANTS[-2]
CLAIM: LiteralString = "select * from mdm.claim_job('w', %s::text[], %s::uuid[], %s, %s)"


def cost(
    conn: Connection, kinds: list[str], tenants: list[str] | None = None, limit: int = 1, floor: Any = None
) -> int:
    """Return the pages that a claim touches; what it does is undone. The second of two: the first loads catalogs."""
    touched = []
    for _ in range(2):
        with conn.transaction(force_rollback=True):
            touched.append(buffers(conn, CLAIM, kinds, tenants, limit, floor))
    return touched[-1]


VIEWS: tuple[LiteralString, ...] = (
    "select * from mdm.v_job_dlq",
    "select * from mdm.v_job_running",
    "select * from mdm.v_job_stale",
)


OTHERS: LiteralString = """
    insert into mdm.aa_audit_log (action, object_type) select 'job_enqueued', 'other' from generate_series(1, 50000)
"""
# as if 14 of them had ended each second of the last hour
ENDED: LiteralString = """
    with ended as (
      insert into mdm.aa_job (job_kind, priority, max_attempts, status, attempts, completed_at)
      select 'planned', 1, 1, (array['done', 'dlq'])[g % 2 + 1]::mdm.job_status, 1,
        clock_timestamp() - g * interval '72 ms'
      from generate_series(50000, 1, -1) g
      returning id, status, completed_at)
    insert into mdm.aa_audit_log (occurred_at, action, object_type, object_id)
    select e.completed_at, ('job_' || e.status)::mdm.audit_action, 'job', e.id::text from ended e order by e.id
"""

# two audit rows a job, of 4,000 jobs a day for 30 days, in the order of time; each thousandth job is there, some wait
HISTORY: LiteralString = """
    with life as (
      select g as id, clock_timestamp() - (120000 - g) * interval '21.6 s' as born, g % 20000 <> 0 as ended
      from generate_series(1, 120000) g),
    job as (
      insert into mdm.aa_job (id, job_kind, priority, max_attempts, status, created_at, completed_at)
      overriding system value
      select l.id, 'planned', 1, 1, case when l.ended then 'done' else 'pending' end::mdm.job_status, l.born,
        case when l.ended then l.born + interval '1 s' end
      from life l
      where l.id % 1000 = 0)
    insert into mdm.aa_audit_log (occurred_at, action, object_type, object_id)
    select l.born + n * interval '1 s', (array['job_enqueued', 'job_done'])[n + 1]::mdm.audit_action, 'job', l.id::text
    from life l, generate_series(0, l.ended::int) n
    order by l.id, n
"""


@pytest.fixture(scope="module")
def huge(make_database: Callable[[], Open]) -> Connection:
    """520,000 jobs: of another kind that goes first, of ours but not due, of 998 tenants and of a throttled one."""
    conn = make_database()()
    fill(conn, "foreign", ROWS)
    fill(conn, "not-due", ROWS, priority=f"g % {NOT_DUE_PRIORITIES}")
    fill(conn, "tenants", ROWS // 2, kind=TWIN)
    fill(conn, "not-due", ROWS // 10, tenant=f"'{THROTTLED}'", priority=f"g % {NOT_DUE_PRIORITIES}")
    conn.execute("vacuum analyze mdm.aa_job")
    return conn


def test_views_of_few_jobs_do_not_see_the_others(make_database: Callable[[], Open]) -> None:
    """Many done jobs, three that run and three that are dead; the login is an administrator's."""
    connect = make_database()
    conn = connect()
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts, status, completed_at)"
        " select 'planned', 1, 1, 'done', clock_timestamp() from generate_series(1, 100000)"
    )
    for number in range(6):
        enqueue(conn, KIND)
        claimed = claim_one(conn, KIND)
        if number % 2:
            fail(conn, claimed, retryable=False)
        else:
            age(conn, claimed["id"])
    conn.execute("vacuum analyze mdm.aa_job")
    admin = connect(user="test_mdm_admin")
    for query in VIEWS:
        buffers(admin, query)  # loads catalogs
        assert buffers(admin, query) <= 100, query


def test_counts_fetch_no_row_that_they_do_not_count(huge: Connection) -> None:
    """The second of two calls: the first loads catalogs."""

    def pages(query: LiteralString, *parameters: Any) -> int:
        return [buffers(huge, query, *parameters) for _ in range(2)][-1]

    def counting(kind: str, place: str) -> int:
        return pages("select mdm.count_jobs(%s, %s)", kind, place)

    kinds = (KIND, TWIN, FOREIGN)
    assert counting(FOREIGN, "later") < counting(FOREIGN, "due") / 2, "an index scan finds that there is none"
    assert counting(KIND, "due") < counting(KIND, "later") / 2
    counted = sum(counting(kind, place) for kind in kinds for place in ("due", "restless"))
    assert pages("select * from mdm.v_job_health") < counted + 1000, "it shows neither the later nor the done ones"


def test_a_look_at_the_invariants_costs_as_much_in_a_large_table(make_database: Callable[[], Open]) -> None:
    """50,000 done and dead jobs of this hour with their audit rows, and as many pending ones."""
    conn = make_database()()
    conn.execute("alter table mdm.aa_audit_log set (autovacuum_enabled = off)")
    conn.execute(OTHERS)
    fill(conn, "foreign", 50_000)
    conn.execute(ENDED)
    conn.execute("vacuum analyze mdm.aa_job")
    pages = []
    for _ in range(3):  # the first loads catalogs
        conn.execute("update mdm.aa_job_upkeep set next_at = clock_timestamp()")
        with watching(conn, "aa_audit_log") as watch:
            pages.append(buffers(conn, "select mdm.watch_invariants()"))
        assert watch.indexes == {"aa_audit_log_pkey"}
    whole = buffers(conn, "select * from mdm.check_job_invariants()")
    assert max(pages[1:]) < 1_500 < whole / 2


def test_the_history_of_a_job_is_read_from_its_own_time(make_database: Callable[[], Open]) -> None:
    """Also in a session of a login that is no superuser, and where the planner believes that the audit is small."""
    connect = make_database()
    conn = connect()
    conn.execute("alter table mdm.aa_audit_log set (autovacuum_enabled = off)")
    conn.execute(HISTORY)
    conn.execute("vacuum mdm.aa_audit_log")
    table = value(conn, "select pg_relation_size('mdm.aa_audit_log') / current_setting('block_size')::int")
    stretch = 128  # pages that the index knows together
    admin = connect(user="test_mdm_admin")

    def pages(reader: Connection, job_id: int) -> int:
        return buffers(reader, "select * from mdm.v_job_history where job_id = %s", job_id)

    pages(admin, 1000)  # loads catalogs
    for job_id in (1_000, 39_000, 116_000, 119_000):
        assert pages(admin, job_id) <= 3 * stretch < table / 8, job_id
    waiting = [pages(admin, job_id) for job_id in (60_000, 100_000, 120_000)]
    assert waiting[1] <= table / 6 + 3 * stretch
    assert waiting[2] <= 3 * stretch < waiting[1] < waiting[0] <= table / 2 + 3 * stretch

    with watching(conn, "aa_audit_log") as watch:
        pages(conn, 39_000)
    assert watch.indexes == {"bitmap ix_aa_audit_log_occurred_at"}
    assert not watch.jit


@pytest.fixture
def undone(huge: Connection) -> Any:
    with huge.transaction(force_rollback=True):
        yield huge


def test_b46_an_empty_handed_claim_costs_a_probe_per_priority(huge: Connection) -> None:
    assert cost(huge, [KIND]) <= 20 + 5 * NOT_DUE_PRIORITIES
    assert cost(huge, [KIND], [THROTTLED]) <= 20 + 5 * NOT_DUE_PRIORITIES
    assert cost(huge, ["cleanup_jobs"]) <= 20


def test_b46_a_claim_of_the_one_due_job_does_not_see_the_others(undone: Connection) -> None:
    enqueue(undone, KIND)
    assert cost(undone, [KIND]) <= 50 + 5 * NOT_DUE_PRIORITIES
    enqueue(undone, "cleanup_jobs")
    assert cost(undone, ["cleanup_jobs"]) <= 50
    enqueue(undone, KIND, tenant_id=THROTTLED)
    assert cost(undone, [KIND], [THROTTLED]) <= 50 + 5 * NOT_DUE_PRIORITIES


def test_b46_a_claim_bound_to_a_tenant_does_not_see_the_others(undone: Connection) -> None:
    idle = TENANTS[-1]
    assert cost(undone, [TWIN], [idle]) <= 20
    assert cost(undone, [TWIN, KIND, FOREIGN], [idle]) <= 30
    enqueue(undone, TWIN, tenant_id=idle)
    assert cost(undone, [TWIN], [idle]) <= 50
    assert cost(undone, [TWIN], TENANTS[:1]) <= 50
    assert cost(undone, [TWIN], [*TENANTS[:10], idle], limit=10) <= 20 * 10 + 25 * 11


def test_b46_a_batch_costs_in_proportion_to_its_size(huge: Connection) -> None:
    one, many = cost(huge, [TWIN]), cost(huge, [TWIN], limit=500)
    assert one <= 50
    assert many <= one + 500 * 25


def test_b46_two_lanes_cost_in_proportion_to_the_batch(huge: Connection) -> None:
    assert cost(huge, [TWIN, FOREIGN, KIND], limit=10) <= 400


# -- B45


LIFE: LiteralString = """
    do $$
    declare
      v_ids bigint[];
      v_leases bigint[];
    begin
      for i in 1 .. 40 loop
        select array_agg(c.id), array_agg(c.lease_no)
        into v_ids, v_leases
        from mdm.claim_job('w', array['planned'], null, 500) c;
        perform mdm.extend_jobs(v_ids, v_leases);
        perform mdm.finish_jobs(v_ids, v_leases);
        commit;
      end loop;
    end $$
"""


def test_b45_a_held_snapshot_makes_the_exact_claim_dear_but_not_the_one_with_a_floor(
    make_database: Callable[[], Open],
) -> None:
    """20,000 jobs go through while somebody holds a snapshot: dead index entries pile up at the low end."""
    connect = make_database()
    conn, holder = connect(), connect()
    fill(conn, "tenants", 20_000, tenant="null", priority="100")
    before = cost(conn, [KIND])
    holder.execute("begin isolation level repeatable read")
    holder.execute("select count(*) from mdm.aa_job")
    conn.execute(LIFE)
    started = datetime.now(UTC) - timedelta(milliseconds=50)
    enqueue(conn, KIND)
    floor = Jsonb({KIND: {"100": started.isoformat()}})
    exact, floored = cost(conn, [KIND]), cost(conn, [KIND], floor=floor)
    end = cost_of_finish(conn)

    holder.execute("rollback")
    conn.execute("vacuum mdm.aa_job")
    after = cost(conn, [KIND])

    assert floored <= before + 20
    assert exact > 10 * floored, "the snapshot made no bloat: this tests nothing"
    assert exact <= 20_000 // 10
    assert after <= before + 20
    assert end <= 60


def cost_of_finish(conn: Connection) -> int:
    """Return the pages that finish_job touches; the index of running jobs is full of dead entries."""
    with conn.transaction(force_rollback=True):
        one, two = (claim_one_new(conn) for _ in range(2))
        finish(conn, one)  # loads catalogs
        return buffers(conn, "select mdm.finish_job(%s, %s)", two["id"], two["lease_no"])


def claim_one_new(conn: Connection) -> dict[str, Any]:
    enqueue(conn, KIND)
    return claim_one(conn, KIND)
