"""count_jobs: what the views count, from partial indexes only."""

from __future__ import annotations

import pytest

from jobs import Connection, call, enqueue, make_job, refused, value

PLACES = ("due", "later", "running", "done", "failed", "dlq", "restless")


def count(conn: Connection, place: str, job_kind: str = "reindex") -> int:
    return int(value(conn, "select mdm.count_jobs(%s, %s)", job_kind, place))


@pytest.mark.parametrize("place", PLACES)
def test_count_jobs_counts_each_place_of_its_kind(conn: Connection, place: str) -> None:
    for state in ("done", "failed", "dlq", "running"):
        make_job(conn, state)
    make_job(conn, "dlq", "index_sync")
    enqueue(conn)
    enqueue(conn, available_at="2100-01-01T00:00:00Z")
    restless = enqueue(conn, available_at="2100-01-01T00:00:00Z")
    assert count(conn, "restless") == 0
    conn.execute("update mdm.aa_job set releases = 11 where id = %s", (restless,))
    wanted = dict.fromkeys(PLACES, 1) | {"later": 2}
    assert count(conn, place) == wanted[place]
    assert count(conn, place, "index_sync") == int(place == "dlq")
    assert count(conn, place, "nope") == 0


@pytest.mark.parametrize("place", ["pending", "", None])
def test_count_jobs_of_another_place_is_mj005(conn: Connection, place: str | None) -> None:
    with refused("MJ005"):
        call(conn, "count_jobs", job_kind="reindex", place=place)
