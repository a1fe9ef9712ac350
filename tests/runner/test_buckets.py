"""Token buckets in the process (S7.1, D23): clock and dice are the test's."""

from __future__ import annotations

from random import Random

import pytest

from jobrunner.buckets import HORIZON_SECONDS, Buckets, Cap
from jobrunner.db.process import RateLimit
from jobrunner.job import ClaimedRow

pytestmark = pytest.mark.one_leg("18")

TENANT = "00000000-0000-0000-0000-000000000001"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def rows(count: int, tenant: str | None = TENANT, kind: str = "email_send") -> list[ClaimedRow]:
    return [
        ClaimedRow(n, n, kind, tenant, 0, 0.0, "{}", None, 1, 5, None, 0, "w", 0.0, 0.0, 0, 0, False, None)
        for n in range(count)
    ]


def limited(rps: float, burst: int, dice: float = 0.0) -> tuple[Buckets, Clock]:
    clock = Clock()
    buckets = Buckets(clock, lambda: dice)
    assert buckets.configure([RateLimit(TENANT, "email_send", rps, burst, None)]) == {}
    return buckets, clock


def test_buckets_without_limits_refuse_nothing() -> None:
    jobs = rows(5)
    assert Buckets(Clock(), lambda: 0.0).sort(jobs) == (jobs, [], [])


def test_buckets_let_the_burst_through_and_put_the_kth_refused_job_off_by_k_over_rps() -> None:
    buckets, _ = limited(rps=2, burst=3)
    allowed, refused, delays = buckets.sort(rows(7))
    assert [row.id for row in allowed] == [0, 1, 2]
    assert [row.id for row in refused] == [3, 4, 5, 6]
    assert delays == pytest.approx([0.5, 1.0, 1.5, 2.0])


def test_buckets_spread_goes_on_in_the_next_claim() -> None:
    buckets, clock = limited(rps=2, burst=1)
    buckets.sort(rows(3))  # two put off: to 0.5 and 1.0 s
    clock.now += 0.25
    assert buckets.sort(rows(1))[2] == pytest.approx([1.25])  # to 1.5 s from the beginning


def test_buckets_job_that_comes_back_when_it_was_told_finds_a_token() -> None:
    buckets, clock = limited(rps=2, burst=1)
    delays = buckets.sort(rows(4))[2]
    start = clock.now
    for delay in delays:
        clock.now = start + delay
        assert buckets.sort(rows(1))[1] == []


@pytest.mark.parametrize(("rps", "burst"), [(20, 1), (200, 1), (1, 1), (2, 3), (100, 20)])
def test_buckets_backlog_gets_its_full_rate_however_small_the_burst(rps: float, burst: int) -> None:
    """What is due is looked for every 30 to 100 ms, by one who takes all of it: no token may go by unused for long."""
    random = Random(rps * burst)
    clock = Clock()
    buckets = Buckets(clock, random.random)
    buckets.configure([RateLimit(TENANT, "email_send", rps, burst, None)])
    waiting = [clock.now] * 4500
    seconds, begin, started = 300.0 if rps < 10 else 20.0, clock.now, 0
    while clock.now < begin + seconds:
        clock.now += random.uniform(0.03, 0.1)
        due = [at for at in waiting if at <= clock.now]
        allowed, _, delays = buckets.sort(rows(len(due)))
        waiting = [at for at in waiting if at > clock.now] + [clock.now + delay for delay in delays]
        started += len(allowed)
        assert started <= burst + rps * (clock.now - begin) + 1
    assert started >= 0.95 * min(rps * seconds, 4000)


def test_buckets_tokens_pile_up_no_more_once_nobody_waits_for_them() -> None:
    buckets, clock = limited(rps=10, burst=1)
    buckets.sort(rows(3))
    clock.now += 0.15  # one of two has come back
    assert buckets.waited_for
    clock.now += 10
    assert not buckets.waited_for
    assert len(buckets.sort(rows(5))[0]) == 1


def test_buckets_slow_rate_is_not_worth_a_closer_look() -> None:
    buckets, _ = limited(rps=0.01, burst=1)
    assert len(buckets.sort(rows(3))[1]) == 2
    assert not buckets.waited_for


def test_buckets_never_put_off_beyond_the_horizon() -> None:
    buckets, _ = limited(rps=0.01, burst=1)
    delays = buckets.sort(rows(50))[2]
    assert delays[0] == pytest.approx(100)
    assert max(delays) <= HORIZON_SECONDS


@pytest.mark.parametrize("rps", [0.0, 1e-300, 1e-9])
def test_b85_buckets_rate_of_nothing_waits_for_the_horizon(rps: float) -> None:
    buckets, clock = limited(rps=rps, burst=1)
    buckets.sort(rows(1))
    clock.now += 3600
    assert buckets.sort(rows(2))[2] == pytest.approx([HORIZON_SECONDS, HORIZON_SECONDS])


def test_buckets_huge_rate_limits_nothing_for_long() -> None:
    buckets, clock = limited(rps=1e6, burst=1)
    buckets.sort(rows(1))
    clock.now += 0.001
    assert buckets.sort(rows(1))[1] == []


@pytest.mark.parametrize(("dice", "first"), [(0.0, 0.5), (0.999, 0.55)])
def test_buckets_jitter_delays_by_up_to_a_tenth(dice: float, first: float) -> None:
    buckets, _ = limited(rps=2, burst=1, dice=dice)
    assert buckets.sort(rows(2))[2] == pytest.approx([first], rel=1e-3)


def test_buckets_jitter_at_the_horizon_spreads_downwards() -> None:
    buckets, _ = limited(rps=0.0, burst=1, dice=0.999)
    buckets.sort(rows(1))
    assert buckets.sort(rows(1))[2] == pytest.approx([HORIZON_SECONDS * 0.9], rel=1e-3)


def test_buckets_tokens_do_not_pile_up_beyond_the_burst() -> None:
    buckets, clock = limited(rps=10, burst=2)
    clock.now += 1000
    assert len(buckets.sort(rows(5))[0]) == 2


def test_buckets_concern_one_tenant_and_kind() -> None:
    buckets, _ = limited(rps=0, burst=1)
    buckets.sort(rows(1))
    for others in (rows(3, tenant=None), rows(3, tenant="other"), rows(3, kind="reindex")):
        assert buckets.sort(others)[1] == []


def test_b85_buckets_report_a_malformed_setting_and_do_not_apply_it() -> None:
    buckets = Buckets(Clock(), lambda: 0.0)
    problems = buckets.configure([RateLimit(TENANT, "email_send", None, None, "rps is not a number")])
    assert problems == {(TENANT, "email_send"): "rps is not a number"}
    assert buckets.sort(rows(3))[1] == []


def test_buckets_read_again_keep_their_level_and_take_a_change() -> None:
    buckets, clock = limited(rps=1, burst=5)
    buckets.sort(rows(5))
    buckets.configure([RateLimit(TENANT, "email_send", 1, 5, None)])
    assert len(buckets.sort(rows(1))[1]) == 1
    buckets.configure([RateLimit(TENANT, "email_send", 100, 5, None)])
    clock.now += 0.05
    assert buckets.sort(rows(1))[1] == []
    buckets.configure([])
    assert buckets.sort(rows(9))[1] == []


def test_buckets_cap_counts_all_tenants_and_the_platform() -> None:
    """S7.3: the limit of a provider, whoever's job it is."""
    buckets = Buckets(Clock(), lambda: 0.0, {"email_send": Cap(rps=2, burst=3)})
    jobs = rows(2) + rows(2, tenant="00000000-0000-0000-0000-000000000002") + rows(1, tenant=None)
    allowed, refused, delays = buckets.sort(jobs)
    assert (allowed, refused, delays) == (jobs[:3], jobs[3:], [0.5, 1.0])
    assert buckets.sort(rows(5, kind="reindex"))[1] == []


def test_buckets_job_that_the_cap_refuses_costs_its_tenant_no_token() -> None:
    clock = Clock()
    buckets = Buckets(clock, lambda: 0.0, {"email_send": Cap(rps=1, burst=1)})
    buckets.configure([RateLimit(TENANT, "email_send", 0.001, 2, None)])
    assert len(buckets.sort(rows(2))[0]) == 1
    clock.now += 1
    assert len(buckets.sort(rows(1))[0]) == 1, "the second token of the tenant is there still"


def test_buckets_job_that_its_tenant_refuses_costs_the_cap_no_token() -> None:
    buckets = Buckets(Clock(), lambda: 0.0, {"email_send": Cap(rps=1, burst=2)})
    buckets.configure([RateLimit(TENANT, "email_send", 1, 1, None)])
    allowed, refused, _ = buckets.sort(rows(3) + rows(1, tenant=None))
    assert (len(allowed), len(refused)) == (2, 2)
    assert allowed[1].tenant_id is None
