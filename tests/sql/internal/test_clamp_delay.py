"""_clamp_delay (D7, D8, B22): what a caller asks for, within 0 and the cap, in seconds; NULL stays NULL."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs import CLAMPED_DELAYS, Connection, value

QUERY = "select mdm._clamp_delay(%s::interval, '6 hours')"


@pytest.mark.parametrize(("given", "clamped"), CLAMPED_DELAYS)
def test_b22_clamp_delay_keeps_within_zero_and_the_cap(conn: Connection, given: str, clamped: timedelta) -> None:
    assert value(conn, QUERY, given) == clamped


def test_b22_null_stays_null(conn: Connection) -> None:
    assert value(conn, QUERY, None) is None


@pytest.mark.parametrize("given", ["1 day", "2 days -1 hour", "1 month"])
def test_b23_clamped_delay_has_no_days(conn: Connection, given: str) -> None:
    query = "select extract(day from d), extract(month from d) from mdm._clamp_delay(%s::interval, '87600 h') d"
    assert conn.execute(query, (given,)).fetchall() == [(0, 0)]
