"""find_holders: who holds a row; who is named is tested with v_job_stale, which asks."""

from __future__ import annotations

import pytest

from jobs import Connection, value


@pytest.mark.parametrize("xmax", ["0", "1", "4294967295"])
def test_find_holders_of_what_nobody_holds_are_none(conn: Connection, xmax: str) -> None:
    assert value(conn, "select count(*) from mdm.find_holders(%s::xid)", xmax) == 0
