"""Plans do not change under you (design 5.3): which indexes every function uses, whatever the planner believes.

The table is full of jobs that are no business of the caller's, and the statistics do not say so: there are none, or
they were made when it was empty or when it held one tenant. One session has its plans from the time when the table
was empty, the other makes them now.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.types.json import Jsonb

from jobs import claim, enqueue
from planner.life import KIND, PKEY, whole_life
from planner.loads import LOADS, fill, make_statistics
from planner.plans import Connection, Open, watching

ROWS = 50_000
PLANNED_ANEW = {"get_job", "v_job_dlq", "v_job_running", "v_job_stale"}  # at each call
STATISTICS = ("never", "when-empty", "of-one-tenant", "true")


def departures(conn: Connection) -> dict[str, str]:
    """Go through the whole life and return the steps that do not use the indexes they should, or throw rows away."""
    found = {}
    with conn.transaction(force_rollback=True):
        for name, wanted, act in whole_life(conn):
            with watching(conn) as watch:
                act()
            used = {index.removeprefix("bitmap ") for index in watch.indexes}
            # whatever is found is also written, by its primary key
            if not wanted <= used <= wanted | {PKEY} or watch.removed > 5 or watch.jit:
                found[name] = f"used {sorted(used)}, not {sorted(wanted)}; {watch.removed} thrown away; jit {watch.jit}"
    return found


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("load", LOADS)
def test_b46_plans_use_their_indexes(make_database: Callable[[], Open], load: str, statistics: str) -> None:
    connect = make_database()
    conn, cached = connect(), connect()
    make_statistics(conn, statistics)
    assert set(departures(cached)) <= PLANNED_ANEW
    fill(conn, load, ROWS)
    if statistics == "true":
        conn.execute("vacuum analyze mdm.aa_job")
    assert departures(cached) == {}, "with plans cached while the table was empty"
    assert departures(connect()) == {}, "with fresh plans"


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_plans_do_not_depend_on_the_settings_of_the_session(make_database: Callable[[], Open], mode: str) -> None:
    connect = make_database()
    conn = connect()
    fill(conn, "tenants", ROWS)
    conn.execute("vacuum analyze mdm.aa_job")
    conn.execute(f"set plan_cache_mode = {mode}; set random_page_cost = 40".encode())
    assert departures(conn) == {}


def test_a_claim_of_one_job_with_a_floor_runs_five_statements(make_database: Callable[[], Open]) -> None:
    """The call itself, tenants, floor, lock, update; empty-handed without the last (decision 0012)."""
    conn = make_database()()
    floor = Jsonb({KIND: {"100": (datetime.now(UTC) - timedelta(minutes=1)).isoformat()}})
    enqueue(conn, KIND)
    for statements in (5, 4):
        with watching(conn) as watch:
            claim(conn, KIND, floor=floor)
        assert len(watch.plans) == statements


def test_functions_that_disable_a_path_disable_jit(conn: Connection) -> None:
    """The price of a disabled path that is taken all the same would switch it on: half a second a statement."""
    found = conn.execute("""
        select proname from pg_proc
        where pronamespace = 'mdm'::regnamespace
          and array_to_string(proconfig, ' ') ~ 'enable_[a-z]+=off'
          and not 'jit=off' = any (proconfig)
    """).fetchall()
    assert found == []


def test_watching_sees_a_walk_over_the_table(make_database: Callable[[], Open]) -> None:
    """The test of the tests: a sequential scan inside a function is seen, and so is what it throws away."""
    conn = make_database()()
    fill(conn, "foreign", 100)
    conn.execute("""
        create function public.walk() returns bigint language plpgsql as $$
        begin
          return (select count(*) from mdm.aa_job where job_kind = 'planned');
        end $$
    """)
    with watching(conn) as watch:
        conn.execute("select public.walk()")
    assert (watch.indexes, watch.removed) == ({"seq"}, 100)
