"""oldest_due: the first pending job of a kind by time, whatever its priority."""

from __future__ import annotations

import pytest

from jobs import Connection, enqueue, make_job, value


@pytest.mark.parametrize("oldest", [-5, 50, 900])
def test_oldest_due_looks_at_every_priority(conn: Connection, oldest: int) -> None:
    for priority in (-5, 50, 900):
        at = "2010-01-01T00:00:00Z" if priority == oldest else "2020-01-01T00:00:00Z"
        enqueue(conn, priority=priority, available_at=at)
    enqueue(conn, "index_sync", available_at="2001-01-01T00:00:00Z")
    assert value(conn, "select mdm.oldest_due('reindex') = '2010-01-01T00:00:00Z'")


def test_oldest_due_of_a_kind_without_pending_jobs_is_null(conn: Connection) -> None:
    make_job(conn, "dlq")
    assert value(conn, "select mdm.oldest_due('reindex')") is None
