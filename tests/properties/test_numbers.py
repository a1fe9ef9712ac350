"""Backoff and delays over the whole range of every argument (S6, D8, B19)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

Pure = Callable[..., Any]
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
CAP = timedelta(hours=87600)

attempts = st.integers(INT_MIN, INT_MAX) | st.integers(0, 70) | st.sampled_from([12, 13, 28, 31, 32, 40, 64, 1100])
delays = st.timedeltas(timedelta(microseconds=1), CAP)
fractions = st.just(0.0) | st.floats(1e-6, 1)


def backoff(pure: Pure, n: int, base: timedelta, cap: timedelta, jitter: float, random: float) -> float:
    """Return the delay in seconds; a float, since Python's timedelta could not hold a broken result."""
    delay: timedelta = pure("_backoff", n, base, cap, jitter, random)
    return delay.total_seconds()


def expected(n: int, base: timedelta, cap: timedelta) -> float:
    """The formula of S6.1 in whole microseconds, without jitter; 2**60 of them are beyond every cap."""
    microsecond = timedelta(microseconds=1)
    return min(base // microsecond * 2 ** min(max(n, 1) - 1, 60), cap // microsecond) / 1e6


@given(n=attempts, base=delays, cap=delays, jitter=fractions, random=fractions)
@example(n=INT_MAX, base=timedelta(seconds=30), cap=timedelta(hours=24), jitter=0.1, random=1.0)
@example(n=INT_MIN, base=timedelta(microseconds=1), cap=timedelta(microseconds=1), jitter=1.0, random=1.0)
@example(n=INT_MAX, base=CAP, cap=CAP, jitter=1.0, random=1.0)
@example(n=40, base=timedelta(seconds=30), cap=timedelta(hours=24), jitter=0.0, random=0.0)
def test_b19_backoff_is_the_formula_for_every_int(
    pure: Pure, n: int, base: timedelta, cap: timedelta, jitter: float, random: float
) -> None:
    base = min(base, cap)
    wanted = expected(n, base, cap) * (1 + random * jitter)
    assert backoff(pure, n, base, cap, jitter, random) == pytest.approx(wanted, rel=1e-9, abs=1e-6)


@given(n=attempts, base=delays, cap=delays, jitter=fractions, random=fractions)
def test_b21_jitter_stays_in_its_window(
    pure: Pure, n: int, base: timedelta, cap: timedelta, jitter: float, random: float
) -> None:
    base = min(base, cap)
    least = backoff(pure, n, base, cap, jitter, 0.0)
    most = backoff(pure, n, base, cap, jitter, 1.0)
    delay = backoff(pure, n, base, cap, jitter, random)
    assert base.total_seconds() - 1e-6 <= least <= delay + 1e-6
    assert delay <= most + 1e-6
    assert most <= cap.total_seconds() * (1 + jitter) + 1e-5


@given(n=st.integers(1, 100), base=delays, cap=delays)
def test_backoff_never_shrinks(pure: Pure, n: int, base: timedelta, cap: timedelta) -> None:
    base = min(base, cap)
    assert backoff(pure, n, base, cap, 0.1, 0.0) <= backoff(pure, n + 1, base, cap, 0.1, 0.0) + 1e-6


@given(delay=st.none() | st.timedeltas(-CAP * 10, CAP * 10), cap=delays)
@example(delay=timedelta(0), cap=timedelta(hours=24))
@example(delay=timedelta(hours=-1), cap=timedelta(hours=24))
@example(delay=timedelta(days=365_000), cap=timedelta(hours=24))
def test_b22_clamp_delay_is_within_zero_and_the_cap(pure: Pure, delay: timedelta | None, cap: timedelta) -> None:
    clamped = pure("_clamp_delay", delay, cap)
    assert clamped == (None if delay is None else min(max(delay, timedelta(0)), cap))


@given(base=delays, cap=delays, jitter=fractions | st.floats(0, 1))
def test_set_job_kind_stores_what_backoff_can_use(
    conn: Any, pure: Pure, base: timedelta, cap: timedelta, jitter: float
) -> None:
    """Settings that are accepted come out of the table unchanged, in hours and seconds (D7)."""
    assume(base <= cap)
    settings = {
        "base_delay": f"{base.total_seconds():f} s",
        "max_delay": f"{cap.total_seconds():f} s",
        "jitter": jitter,
    }
    conn.execute("select mdm.set_job_kind('odd', %s)", (Jsonb(settings),))
    stored = conn.execute(
        "select base_delay, max_delay, extract(day from max_delay) from mdm.aa_job_kind where job_kind = 'odd'"
    ).fetchone()
    assert stored[0].total_seconds() == pytest.approx(base.total_seconds(), abs=1e-5)
    assert stored[1].total_seconds() == pytest.approx(cap.total_seconds(), abs=1e-5)
    assert stored[2] == 0
    conn.execute("select mdm._backoff(1, base_delay, max_delay, jitter, 1e-15) from mdm.aa_job_kind")
