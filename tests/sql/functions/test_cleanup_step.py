"""cleanup_step: one batch of every part of the upkeep (S2.5, D17); what the parts do is tested with each of them."""

from __future__ import annotations

import pytest

from jobs import Connection, refused, rows, statuses, value


def make_stale(conn: Connection, jobs: int) -> None:
    """Make running jobs whose worker went silent long ago."""
    conn.execute("select mdm.enqueue_job('reindex') from generate_series(1, %s)", (jobs,))
    conn.execute("select from mdm.claim_job('w', '{reindex}', p_limit => 10000)")
    conn.execute("update mdm.aa_job set claimed_at = '2020-01-01'")


def test_cleanup_step_says_whether_more_is_left(conn: Connection) -> None:
    make_stale(conn, 5)
    assert value(conn, "select mdm.cleanup_step(3)") is True
    assert statuses(conn) == {"pending": 3, "running": 2}
    assert value(conn, "select mdm.cleanup_step(3)") is False
    assert statuses(conn) == {"pending": 5}


def test_cleanup_step_takes_500_by_default(conn: Connection) -> None:
    make_stale(conn, 501)
    assert value(conn, "select mdm.cleanup_step(null)") is True
    assert statuses(conn) == {"pending": 500, "running": 1}


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_cleanup_step_refuses_a_limit_out_of_range(conn: Connection, limit: int) -> None:
    with refused("MJ005", match="p_limit"):
        conn.execute("select mdm.cleanup_step(%s)", (limit,))


PARTS = {
    "recover": "recover_stale_jobs",
    "purge": "purge_jobs",
    "deliveries": "give_up_deliveries",
    "compact": "compact_outbox",
    "wake": "wake_outbox",
    "indexes": "settle_index_status",
    "imports": "settle_imports",
    "scans": "settle_scans",
    "emails": "settle_emails",
    "invariants": "watch_invariants",
}


def break_part(conn: Connection, function: str) -> None:
    """Let a function of the upkeep fail."""
    [made] = rows(
        conn,
        """select format('create or replace function mdm.%%I(%%s) returns %%s language plpgsql
             as $$begin raise division_by_zero; end$$',
             p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)) as made
           from pg_proc p
           where p.pronamespace = 'mdm'::regnamespace and p.proname = %s""",
        function,
    )
    conn.execute(made["made"])


def test_invariant_5_each_part_is_guarded(conn: Connection) -> None:
    warnings: list[str] = []
    conn.add_notice_handler(lambda notice: warnings.append((notice.message_primary or "").split()[1]))
    for part, function in PARTS.items():
        with conn.transaction(force_rollback=True):
            break_part(conn, function)
            assert value(conn, "select mdm.cleanup_step()") is False
            assert warnings == [part]
        warnings.clear()
    with conn.transaction(force_rollback=True):
        for function in PARTS.values():
            break_part(conn, function)
        assert value(conn, "select mdm.cleanup_step()") is False
    assert warnings == list(PARTS), "each was called, though all before it had failed"
