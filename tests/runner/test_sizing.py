"""How many jobs a claim takes (design 5, rule 6)."""

from __future__ import annotations

import pytest

from jobrunner.sizing import MAX_JOBS, RUNS, Sizing

pytestmark = pytest.mark.one_leg("18")


def measured(seconds: float, runs: int = RUNS, kind: str = "a") -> Sizing:
    sizing = Sizing()
    for _ in range(runs):
        sizing.ran(kind, seconds)
    return sizing


def test_sizing_claims_one_as_long_as_nothing_was_measured() -> None:
    assert Sizing().limit() == 1
    assert Sizing().limit_of("a") == 1


@pytest.mark.parametrize(
    ("seconds", "jobs"), [(0.00001, 500), (0.001, 100), (0.01, 10), (0.05, 2), (0.1, 1), (1.0, 1), (3600.0, 1)]
)
def test_sizing_takes_a_tenth_of_a_second_of_work(seconds: float, jobs: int) -> None:
    assert measured(seconds).limit() == pytest.approx(jobs, abs=1)


def test_sizing_slowest_of_the_last_hundred_times_the_claim_stays_below_a_second() -> None:
    sizing = measured(0.00001, RUNS - 1)
    sizing.ran("a", 0.25)
    assert sizing.limit() == 4
    for _ in range(RUNS):
        sizing.ran("a", 0.00001)
    assert sizing.limit() == MAX_JOBS


@pytest.mark.parametrize(("runs", "jobs"), [(1, 5), (5, 25), (25, 125), (100, 500)])
def test_sizing_grows_with_what_was_measured(runs: int, jobs: int) -> None:
    assert measured(0.0, runs).limit_of("a") == jobs


def test_sizing_of_a_mixture_is_that_of_its_slowest_kind() -> None:
    sizing = measured(0.00001)
    sizing.ran("slow", 5.0)
    assert sizing.limit() == 1


def test_sizing_forgets_a_kind_that_has_not_run_lately() -> None:
    sizing = measured(5.0, kind="slow")
    assert sizing.limit() == 1
    for _ in range(RUNS):
        sizing.ran("a", 0.00001)
    assert sizing.limit() == MAX_JOBS
