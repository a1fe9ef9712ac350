"""announce_runner (design 5.5): the registry of live runners. What enqueue makes of it is tested with enqueue_job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from jobs import Connection, call, refused, rows


def announce(conn: Connection, runner_id: str | None = "r1", kinds: Any = ("reindex",), **parameters: Any) -> None:
    call(conn, "announce_runner", runner_id=runner_id, kinds=None if kinds is None else list(kinds), **parameters)


def runners(conn: Connection) -> list[dict[str, Any]]:
    return rows(conn, "select * from mdm.aa_job_runner order by runner_id")


def test_announced_runner_is_live_for_90_seconds(conn: Connection) -> None:
    tenant_id = uuid4()
    announce(conn, kinds=["reindex", "email_send"], tenant_ids=[tenant_id], hungry=False)
    [row] = runners(conn)
    assert (row["runner_id"], row["kinds"], row["tenant_ids"]) == ("r1", ["reindex", "email_send"], [tenant_id])
    assert row["hungry"] is False
    assert row["expires_at"] - row["seen_at"] == timedelta(seconds=90)


def test_d13_nulls_are_defaults(conn: Connection) -> None:
    announce(conn, tenant_ids=None, hungry=None)
    call(conn, "announce_runner", runner_id="r2", kinds=["reindex"])
    assert [(row["tenant_ids"], row["hungry"]) for row in runners(conn)] == [(None, True)] * 2


def test_later_announcement_replaces_the_earlier(conn: Connection) -> None:
    announce(conn, hungry=True)
    [before] = runners(conn)
    announce(conn, kinds=["index_sync"], tenant_ids=[], hungry=False)
    [after] = runners(conn)
    assert (after["kinds"], after["tenant_ids"], after["hungry"]) == (["index_sync"], [], False)
    assert after["seen_at"] > before["seen_at"]
    assert after["expires_at"] > before["expires_at"]


def test_empty_list_of_kinds_takes_a_runner_off(conn: Connection) -> None:
    announce(conn, "r1")
    announce(conn, "r2")
    announce(conn, "r1", kinds=[])
    announce(conn, "never seen", kinds=[])
    assert [row["runner_id"] for row in runners(conn)] == ["r2"]


def test_announcement_clears_away_who_expired(conn: Connection) -> None:
    announce(conn, "dead")
    announce(conn, "alive")
    conn.execute("update mdm.aa_job_runner set expires_at = clock_timestamp() where runner_id = 'dead'")
    announce(conn, "r1")
    assert [row["runner_id"] for row in runners(conn)] == ["alive", "r1"]


def test_expired_runner_comes_back(conn: Connection) -> None:
    announce(conn)
    conn.execute("update mdm.aa_job_runner set expires_at = '2020-01-01'")
    announce(conn)
    assert len(runners(conn)) == 1


def test_announcement_waits_for_nobody_elses_row(conn: Connection, connect: Callable[..., Connection]) -> None:
    announce(conn, "other")
    conn.execute("update mdm.aa_job_runner set expires_at = '2020-01-01'")
    holder = connect(autocommit=False)
    holder.execute("select from mdm.aa_job_runner for update")
    conn.execute("set statement_timeout = '10s'")
    announce(conn, "r1")
    assert [row["runner_id"] for row in runners(conn)] == ["other", "r1"]


@pytest.mark.parametrize("parameters", [{"runner_id": None}, {"kinds": None}])
def test_announce_runner_refuses_nulls(conn: Connection, parameters: Any) -> None:
    with refused("MJ005", match="p_runner_id or p_kinds is NULL"):
        announce(conn, **parameters)
