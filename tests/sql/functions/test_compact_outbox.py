"""compact_outbox (S2.5): dispatched events go once they are older than outbox_dispatch keeps its jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs import Connection, call, make_kind, refused, value


def compact(conn: Connection, **parameters: Any) -> int:
    return int(call(conn, "compact_outbox", **parameters)[0]["compact_outbox"])


def make_events(conn: Connection, count: int, dispatched: str | None) -> None:
    conn.execute(
        "insert into mdm.aa_outbox_event (event_type, dispatched_at)"
        " select 'entity.updated', clock_timestamp() - %s::interval from generate_series(1, %s)",
        (dispatched, count),
    )


def left(conn: Connection) -> int:
    return int(value(conn, "select count(*) from mdm.aa_outbox_event"))


def test_compact_outbox_keeps_what_waits_and_what_is_young(conn: Connection) -> None:
    make_events(conn, 2, None)
    make_events(conn, 3, "23 hours")
    make_events(conn, 4, "25 hours")
    assert compact(conn) == 4
    assert (left(conn), compact(conn)) == (5, 0)


def test_compact_outbox_is_bounded(conn: Connection) -> None:
    make_events(conn, 7, "30 hours")
    assert [compact(conn, limit=limit) for limit in (2, 4, None)] == [2, 4, 1]


def test_compact_outbox_takes_the_oldest_first(conn: Connection) -> None:
    make_events(conn, 1, "30 hours")
    make_events(conn, 1, "40 hours")
    assert compact(conn, limit=1) == 1
    assert value(conn, "select dispatched_at > clock_timestamp() - interval '35 hours' from mdm.aa_outbox_event")


@pytest.mark.parametrize("retention", [None, "-1 hours"])
def test_d22_no_retention_keeps_for_ever(conn: Connection, retention: str | None) -> None:
    make_events(conn, 2, "100000 hours")
    make_kind(conn, "outbox_dispatch", retention_done=retention)
    assert (compact(conn), left(conn)) == (0, 2)


def test_compact_outbox_skips_events_that_others_hold(conn: Connection, connect: Callable[..., Connection]) -> None:
    make_events(conn, 3, "30 hours")
    other = connect(autocommit=False)
    assert compact(other, limit=2) == 2
    assert compact(conn) == 1
    other.commit()


@pytest.mark.parametrize("limit", [0, -1, 10001])
def test_d13_compact_outbox_refuses_other_limits(conn: Connection, limit: int) -> None:
    with refused("MJ005", match=f"p_limit is {limit}"):
        compact(conn, limit=limit)
