"""cleanup_step: one batch of every part of the upkeep (S2.5, D17); what the parts do is tested with each of them."""

from __future__ import annotations

import pytest

from jobs import Connection, refused, statuses, value


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
