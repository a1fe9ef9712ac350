"""_backoff (S6, D8, B19, B21, B23): pure; any number of attempts gives a delay within the cap and its jitter."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobs import Connection, value

MIN, MAX = -(2**31), 2**31 - 1


def backoff(conn: Connection, attempts: int, base: str = "30 s", cap: str = "24 h", *more: float) -> timedelta:
    jitter, random = more or (0, 0)
    query = "select mdm._backoff(%s, %s::interval, %s::interval, %s, %s)"
    delay: timedelta = value(conn, query, attempts, base, cap, jitter, random)
    return delay


@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [
        *((n, 30 * 2 ** (n - 1)) for n in range(1, 13)),
        *((n, 86400) for n in (13, 31, 32, 40, 64, 1100, 2147483646, MAX)),
        *((n, 30) for n in (0, -1, MIN)),
    ],
)
def test_b19_backoff_doubles_up_to_the_cap(conn: Connection, attempts: int, seconds: int) -> None:
    assert backoff(conn, attempts) == timedelta(seconds=seconds)


@pytest.mark.parametrize("random", [0, 0.25, 0.5, 0.999999])
@pytest.mark.parametrize("attempts", [1, 5, 13, MAX])
def test_d8_jitter_is_a_fraction_of_the_capped_delay(conn: Connection, attempts: int, random: float) -> None:
    plain = backoff(conn, attempts)
    jittered = backoff(conn, attempts, "30 s", "24 h", 0.1, random)
    assert abs(jittered - plain * (1 + 0.1 * random)) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("base", "cap", "attempts", "seconds"),
    [
        ("1 s", "1 s", MAX, 1),
        ("1 microsecond", "87600 h", 1, 0.000001),
        ("1 microsecond", "87600 h", MAX, 87600 * 3600),
        ("87600 h", "87600 h", MAX, 87600 * 3600),
        ("87600 h", "87600 h", 63, 87600 * 3600),
        ("5 min", "6 h", 3, 1200),
    ],
)
def test_backoff_at_the_limits_of_base_and_cap(
    conn: Connection, base: str, cap: str, attempts: int, seconds: float
) -> None:
    assert backoff(conn, attempts, base, cap) == timedelta(seconds=seconds)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_b23_backoff_has_no_days(conn: Connection, zone: Any) -> None:
    conn.execute("select set_config('timezone', %s, false)", (zone,))
    query = "select extract(day from mdm._backoff(%s, '30 s', '240 h', 0.1, 0.5))"
    assert value(conn, query, 99) == 0
