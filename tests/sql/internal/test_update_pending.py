"""_update_pending (D6): a row that is not pending is neither written nor left locked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs import Connection, make_job, snapshot, value

CALL = """select mdm._update_pending(%s, '{"new": 1}', 1, null, null, null, null)"""


@pytest.mark.parametrize("state", ["running", "done", "failed", "dlq"])
def test_d6_update_of_a_row_that_is_not_pending_leaves_it_free(
    conn: Connection, connect: Callable[..., Connection], state: str
) -> None:
    job_id = make_job(conn, state)["id"]
    before = snapshot(conn)
    producer = connect(autocommit=False)
    assert value(producer, CALL, job_id) is False
    assert conn.execute("select 1 from mdm.aa_job for update nowait").fetchall() == [(1,)]
    producer.commit()
    assert snapshot(conn) == before


@pytest.mark.parametrize("job_id", [None, -1])
def test_d6_update_of_no_row_is_false(conn: Connection, job_id: int | None) -> None:
    assert value(conn, CALL, job_id) is False
