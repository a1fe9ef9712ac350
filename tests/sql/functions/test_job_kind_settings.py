"""job_kind_settings (S2.9, D5): what a runner applies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobs import Connection, call, make_kind


def test_job_kind_settings_of_registered_kinds(conn: Connection) -> None:
    make_kind(conn, "index_sync", handler_timeout="2 hours", enabled=False)
    call(conn, "pause_kind", job_kind="reindex")
    conn.execute("update mdm.aa_job_kind set paused_until = '2020-01-01' where job_kind = 'cleanup_jobs'")
    answer = call(conn, "job_kind_settings", kinds=["reindex", "nope", "index_sync", "cleanup_jobs", "reindex"])
    assert [tuple(row.values()) for row in answer] == [
        ("cleanup_jobs", timedelta(minutes=10), None, False),
        ("index_sync", timedelta(hours=2), timedelta(hours=2), False),
        ("reindex", timedelta(minutes=30), None, True),
    ]
    assert [*answer[0]] == ["job_kind", "stale_ttl", "handler_timeout", "paused"]


@pytest.mark.parametrize("kinds", [[], None, ["nope"], [None]])
def test_job_kind_settings_of_nothing(conn: Connection, kinds: Any) -> None:
    assert call(conn, "job_kind_settings", kinds=kinds) == []
