"""v_job_running, v_job_stale, v_job_history, v_job_health: the windows of an operator."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from jobs import age, call, claim_one, enqueue, fail, make_job, recover, release, rows, value

Connection = psycopg.Connection[Any]


def test_v_job_running_shows_the_longest_first(conn: Connection) -> None:
    first, second = make_job(conn, "running")["id"], make_job(conn, "running")["id"]
    age(conn, second, by=timedelta(minutes=5))
    found = rows(conn, "select * from mdm.v_job_running")
    assert [row["id"] for row in found] == [second, first]
    assert timedelta(minutes=5) <= found[0]["running_for"] < timedelta(minutes=6)
    assert found[0]["silent_for"] == found[0]["running_for"]
    assert found[0]["stale_ttl"] == timedelta(minutes=30)


def test_v_job_stale_names_the_session_in_the_way(conn: Connection, connect: Callable[..., Connection]) -> None:
    job_id = make_job(conn, "running")["id"]
    make_job(conn, "running")
    age(conn, job_id)
    [row] = rows(conn, "select * from mdm.v_job_stale")
    assert (row["id"], row["held_by_pid"]) == (job_id, None)

    holder = connect(autocommit=False)
    holder.execute("select from mdm.aa_job where id = %s for key share", (job_id,))
    assert recover(conn) == {}
    [row] = rows(conn, "select * from mdm.v_job_stale")
    assert (row["held_by_pid"], row["held_state"]) == (holder.info.backend_pid, "idle in transaction")

    holder.rollback()
    assert recover(conn) == {job_id: "pending"}
    assert rows(conn, "select * from mdm.v_job_stale") == []


def test_v_job_stale_names_all_who_hold_a_row_that_had_heartbeats(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    """Chunks that check their lease and the heartbeats beside them make a multixact of the row's xmax."""
    running = make_job(conn, "running")
    lease = {"job_id": running["id"], "lease_no": running["lease_no"]}
    holders = [connect(autocommit=False) for _ in range(2)]
    call(holders[0], "check_lease", **lease)
    call(conn, "extend_jobs", job_ids=[running["id"]], lease_nos=[running["lease_no"]])
    call(holders[1], "check_lease", **lease)
    age(conn, running["id"])
    assert recover(conn) == {}
    held = {row["held_by_pid"] for row in rows(conn, "select * from mdm.v_job_stale")}
    assert held == {holder.info.backend_pid for holder in holders}
    for holder in holders:
        holder.rollback()
    assert [row["held_by_pid"] for row in rows(conn, "select * from mdm.v_job_stale")] == [None]


def test_v_job_history_is_a_timeline(conn: Connection) -> None:
    job_id = enqueue(conn)
    fail(conn, claim_one(conn), "boom", retryable=False)
    call(conn, "replay_job", job_id=job_id, reason="fixed")
    claim_one(conn, worker_id="w2")
    found = rows(conn, "select * from mdm.v_job_history where job_id = %s", job_id)
    assert [row["event"] for row in found] == ["job_enqueued", "job_dlq", "job_replay", "is running"]
    assert "boom" in found[1]["detail"]
    assert "fixed" in found[2]["detail"]
    assert "worker w2" in found[3]["detail"]
    assert found[0]["actor"] == "unknown"


def health(conn: Connection) -> dict[tuple[str, str], tuple[str, str | None]]:
    """Return (subject, item) -> (value, warning)."""
    found = rows(conn, "select * from mdm.v_job_health")
    warnings = [row["warning"] is not None for row in found]
    assert warnings == sorted(warnings, reverse=True), "warnings come first"
    return {(row["subject"], row["item"]): (row["value"], row["warning"]) for row in found}


def test_v_job_health_warns(conn: Connection, connect: Callable[..., Connection]) -> None:
    found = health(conn)
    assert found["(runners)", "live"] == ("0", None)
    assert found["(upkeep)", "recover"][0] == "never"
    assert "overdue" in str(found["(upkeep)", "recover"][1])

    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts, available_at)"
        " values ('reindex', 1, 1, clock_timestamp() - interval '1 hour')"
    )
    make_job(conn, "dlq", "index_sync")
    restless = enqueue(conn, "gin_backfill")
    release(conn, claim_one(conn, "gin_backfill"))
    conn.execute("update mdm.aa_job set releases = 11 where id = %s", (restless,))
    call(conn, "pause_kind", job_kind="gin_backfill")
    reader = connect(autocommit=False)
    reader.execute("set transaction isolation level repeatable read")
    reader.execute("select 1 from mdm.aa_job")

    found = health(conn)
    assert found["reindex", "due"] == ("1", None)
    assert found["reindex", "oldest due"][0].startswith("01:00:0")
    assert "waits too long" in str(found["reindex", "oldest due"][1])
    assert found["index_sync", "dlq"][0] == "1"
    assert found["gin_backfill", "given back more than 10 times"][0] == "1"
    assert found["gin_backfill", "state"][0] == "paused"
    assert "no runner" in str(found["(runners)", "live"][1])
    assert found["(server)", "oldest snapshot"][0].startswith(f"pid {reader.info.backend_pid},")


@pytest.mark.parametrize("part", ["recover", "purge", "compact", "invariants"])
def test_v_job_health_knows_of_upkeep(conn: Connection, part: str) -> None:
    conn.execute("call mdm.cleanup_jobs()")
    assert health(conn)["(upkeep)", part][1] is None
    conn.execute("update mdm.aa_job_upkeep set last_at = clock_timestamp() - interval '16 minutes'")
    assert "overdue" in str(health(conn)["(upkeep)", part][1])


def test_b71_upkeep_is_noted_without_waiting(conn: Connection, connect: Callable[..., Connection]) -> None:
    call(conn, "recover_stale_jobs")
    other = connect(autocommit=False)
    call(other, "recover_stale_jobs")
    conn.execute("set lock_timeout = '1s'")
    call(conn, "recover_stale_jobs")
    other.commit()
    assert value(conn, "select count(*) from mdm.aa_job_upkeep") == 1


@pytest.mark.parametrize("view", ["v_job_running", "v_job_stale", "v_job_history", "v_job_health"])
@pytest.mark.parametrize("role", ["mdm_monitor", "mdm_admin"])
def test_views_are_for_watchers(conn: Connection, connect: Callable[..., Connection], view: str, role: str) -> None:
    make_job(conn, "running")
    watcher = connect(role=role)
    watcher.execute(f"select * from mdm.{view}".encode())


@pytest.mark.slow
@pytest.mark.parametrize("view", ["v_job_counts", "v_job_health"])
def test_views_stay_quick_over_many_done_jobs(fresh_dsn: str, connect: Callable[..., Connection], view: str) -> None:
    """Neither reads the table whole for each kind, nor compiles: plans are pinned inside the functions they call."""
    conn = connect(dsn=fresh_dsn)
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts, status, completed_at)"
        " select 'reindex', 1, 1, 'done', clock_timestamp() from generate_series(1, 100000)"
    )
    conn.execute("analyze mdm.aa_job")
    [(plan,)] = conn.execute(f"explain (analyze, format json) select * from mdm.{view}".encode()).fetchall()
    assert "JIT" not in plan[0]
    assert "aa_job" not in {node.get("Relation Name") for node in nodes(plan[0]["Plan"])}


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """All nodes of a plan."""
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]
