"""v_job_counts: how many jobs of each kind stand where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs import Connection, call, enqueue, make_job, make_kind, rows

NUMBERS = ("due", "later", "running", "done", "failed", "dlq")


def counts(conn: Connection) -> dict[str, tuple[int, ...]]:
    found = rows(conn, "select * from mdm.v_job_counts")
    return {row["job_kind"]: tuple(row[name] for name in NUMBERS) for row in found}


def test_v_job_counts_has_a_row_for_every_kind(conn: Connection) -> None:
    assert len(counts(conn)) == 8
    assert set(counts(conn).values()) == {(0,) * 6}


def test_v_job_counts_counts(conn: Connection) -> None:
    for number, state in enumerate(("running", "done", "failed", "dlq"), 3):
        for _ in range(number):
            make_job(conn, state)
    enqueue(conn)
    for _ in range(2):
        enqueue(conn, available_at=datetime.now(UTC) + timedelta(hours=1))
    enqueue(conn, "cleanup_jobs")
    assert counts(conn)["reindex"] == (1, 2, 3, 4, 5, 6)
    assert counts(conn)["cleanup_jobs"] == (1, 0, 0, 0, 0, 0)
    assert counts(conn)["index_sync"] == (0,) * 6


@pytest.mark.parametrize(
    ("enabled", "until", "state"),
    [
        (True, None, "open"),
        (True, "infinity", "paused"),
        (True, "2020-01-01 00:00+00", "open"),
        (False, None, "disabled"),
        (False, "infinity", "disabled"),
    ],
)
def test_v_job_counts_tells_the_state_of_the_kind(
    conn: Connection, enabled: bool, until: str | None, state: str
) -> None:
    make_kind(conn, "reindex", enabled=enabled)
    if until:
        call(conn, "pause_kind", job_kind="reindex", until=until)
    [row] = rows(conn, "select state from mdm.v_job_counts where job_kind = 'reindex'")
    assert row["state"] == state
