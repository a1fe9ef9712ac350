"""find_jobs: the ids of the jobs in a state that few are in."""

from __future__ import annotations

import pytest

from jobs import STATES, Connection, call, make_job, refused


def test_find_jobs_gives_the_jobs_of_the_state(conn: Connection) -> None:
    made = {state: make_job(conn, state)["id"] for state in STATES[1:]}
    for state in ("running", "dlq"):
        assert [row["find_jobs"] for row in call(conn, "find_jobs", status=state)] == [made[state]]


@pytest.mark.parametrize("state", ["pending", "done", "failed", None])
def test_find_jobs_refuses_states_of_many(conn: Connection, state: str | None) -> None:
    with refused("MJ005", match=state or "NULL"):
        call(conn, "find_jobs", status=state)
