"""cleanup_jobs (S2.5, D17): recovery, retention and compaction in committed batches, each part on its own."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from jobs import Connection, age, make_job, make_kind, status, statuses, value

LOCK = 6579046001


def make_work(conn: Connection) -> tuple[int, int]:
    """Make one stale job, one job beyond its retention and one old event."""
    stale, old = make_job(conn, "running")["id"], make_job(conn, "done")["id"]
    age(conn, stale)
    conn.execute("update mdm.aa_job set completed_at = '2020-01-01' where id = %s", (old,))
    conn.execute("insert into mdm.aa_outbox_event (event_type, dispatched_at) values ('x', '2020-01-01')")
    return stale, old


def done(conn: Connection, work: tuple[int, int]) -> tuple[str, str, int]:
    return status(conn, work[0]), status(conn, work[1]), value(conn, "select count(*) from mdm.aa_outbox_event")


@pytest.mark.parametrize("role", [None, "mdm_worker", "mdm_admin"])
def test_cleanup_does_all_three_parts(conn: Connection, connect: Callable[..., Connection], role: str | None) -> None:
    work = make_work(conn)
    connect(role=role).execute("call mdm.cleanup_jobs()")
    assert done(conn, work) == ("pending", "gone", 0)


def test_cleanup_twice_changes_nothing_more(conn: Connection) -> None:
    work = make_work(conn)
    conn.execute("call mdm.cleanup_jobs()")
    conn.execute("call mdm.cleanup_jobs(null)")
    assert done(conn, work) == ("pending", "gone", 0)


def test_b71_cleanup_beside_another_does_nothing_and_waits_for_nobody(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    work = make_work(conn)
    other = connect(autocommit=False)
    other.execute("select pg_advisory_xact_lock(%s)", (LOCK,))
    conn.execute("set statement_timeout = '10s'")
    conn.execute("call mdm.cleanup_jobs()")
    assert done(conn, work) == ("running", "done", 1)
    other.rollback()
    conn.execute("call mdm.cleanup_jobs()")
    assert done(conn, work) == ("pending", "gone", 0)


def test_cleanup_ends_after_its_budget(conn: Connection) -> None:
    conn.execute("select mdm.enqueue_job('reindex') from generate_series(1, 700)")
    conn.execute("select from mdm.claim_job('w', '{reindex}', p_limit => 10000)")
    conn.execute("update mdm.aa_job set claimed_at = '2020-01-01'")
    conn.execute("call mdm.cleanup_jobs('0')")
    assert statuses(conn) == {"pending": 500, "running": 200}  # one batch


def test_cleanup_works_off_more_than_one_batch(conn: Connection) -> None:
    conn.execute("select mdm.enqueue_job('reindex') from generate_series(1, 2500)")
    conn.execute("update mdm.aa_job set status = 'done', completed_at = '2020-01-01'")
    conn.execute("select mdm.enqueue_job('reindex') from generate_series(1, 1100)")
    conn.execute("select from mdm.claim_job('w', '{reindex}', p_limit => 10000)")
    conn.execute("update mdm.aa_job set claimed_at = '2020-01-01' where status = 'running'")
    conn.execute("call mdm.cleanup_jobs()")
    assert conn.execute("select status::text, count(*) from mdm.aa_job group by 1").fetchall() == [("pending", 1100)]


def test_invariant_5_part_that_fails_stops_no_other(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    conn = connect(dsn=fresh_dsn)
    work = make_work(conn)
    dead = make_job(conn, "dlq")["id"]
    make_kind(conn, "reindex", retention_dlq="0")
    conn.execute("alter table mdm.aa_audit_log add check (action <> 'job_discard')")
    warnings: list[str] = []
    conn.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    conn.execute("call mdm.cleanup_jobs()")
    assert [text[:21] for text in warnings] == ["cleanup: purge failed"]
    assert done(conn, work) == ("pending", "done", 0)
    assert status(conn, dead) == "dlq"


def test_cleanup_leaves_the_session_as_it_was(conn: Connection) -> None:
    conn.execute("set synchronous_commit = on")
    conn.execute("call mdm.cleanup_jobs()")
    assert conn.execute("show synchronous_commit").fetchone() == ("on",)


def test_cleanup_commits_and_so_refuses_a_transaction(connect: Callable[..., Connection]) -> None:
    with pytest.raises(psycopg.Error) as raised:
        connect(autocommit=False).execute("call mdm.cleanup_jobs()")
    assert raised.value.sqlstate == "2D000"
