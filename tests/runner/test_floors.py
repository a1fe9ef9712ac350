"""The floors of claims (design 5, rule 2): three tiers, told by an injected clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from jobrunner.floors import Floors, Ticket
from jobrunner.job import ClaimedRow

pytestmark = pytest.mark.one_leg("18")

T0 = 1_700_000_000.0


def row(available_epoch: float, kind: str = "a", priority: int = 100) -> ClaimedRow:
    return ClaimedRow(
        1, 1, kind, None, priority, available_epoch, "{}", None, 1, 5, None, 0, "w", T0, T0, 0, 0, False, None
    )


def floor_of(ticket: Ticket, kind: str = "a", priority: int = 100) -> float:
    assert ticket.floor is not None
    return datetime.fromisoformat(ticket.floor[kind][str(priority)]).timestamp() - T0


def primed(*rows: ClaimedRow, now: float = 0.0) -> Floors:
    """Floors after an exact scan at `now` that took no time."""
    floors = Floors()
    ticket = floors.next(now)
    assert ticket.floor is None
    floors.claimed(ticket, rows, now, now)
    return floors


def test_floors_first_scan_is_exact_and_the_next_starts_a_margin_below_what_was_claimed() -> None:
    floors = primed(row(T0), row(T0 + 5))
    floors.next(0.1)  # the wide one
    assert floor_of(floors.next(0.2)) == pytest.approx(4.95)


def test_floors_look_ten_seconds_back_once_a_second() -> None:
    floors = primed(row(T0))
    assert floor_of(floors.next(0.1)) == pytest.approx(-10)
    assert floor_of(floors.next(0.2)) == pytest.approx(-0.05)
    assert floor_of(floors.next(0.99)) == pytest.approx(-0.05)


def test_floors_scan_exactly_again_after_a_second_of_the_clock() -> None:
    floors = primed(row(T0))
    assert floors.next(0.999).floor is not None
    assert floors.next(1.001).floor is None


def test_floors_slow_exact_scan_waits_fifty_times_its_duration() -> None:
    floors = Floors()
    ticket = floors.next(0.0)
    floors.claimed(ticket, [row(T0)], 0.0, 0.1)
    assert floors.next(5.0).floor is not None
    assert floors.next(5.11).floor is None


def test_floors_exact_scan_under_way_is_not_begun_twice() -> None:
    floors = primed(row(T0))
    assert floors.next(2.0).floor is None
    assert floors.next(2.1).floor is not None


def test_floors_row_below_the_floor_pulls_it_down() -> None:
    floors = primed(row(T0 + 100))
    wide = floors.next(0.1)
    floors.claimed(wide, [row(T0 + 95), row(T0 + 120)], 0.1, 0.1)
    assert floor_of(floors.next(0.2)) == pytest.approx(94.95)


def test_floors_answers_out_of_order_do_not_lower_the_floor() -> None:
    floors = primed(row(T0))
    first, second = floors.next(0.1), floors.next(0.2)
    floors.claimed(second, [row(T0 + 6), row(T0 + 10)], 0.2, 0.2)
    floors.claimed(first, [row(T0 + 1), row(T0 + 5)], 0.1, 0.3)
    assert floor_of(floors.next(0.4)) == pytest.approx(9.95)


def test_floors_keep_lanes_apart() -> None:
    floors = primed(row(T0, "a", 1), row(T0 + 50, "a", 2), row(T0 + 70, "b", 1))
    floors.next(0.1)
    ticket = floors.next(0.2)
    assert (floor_of(ticket, "a", 1), floor_of(ticket, "a", 2), floor_of(ticket, "b", 1)) == pytest.approx(
        (-0.05, 49.95, 69.95)
    )


def test_floors_forget_a_lane_that_gave_nothing_for_a_minute() -> None:
    floors = primed(row(T0, "a", 1), row(T0, "a", 2))
    floors.claimed(floors.next(40.0), [row(T0 + 1, "a", 2)], 40.0, 40.0)
    floors.claimed(floors.next(61.0), [], 61.0, 61.0)
    ticket = floors.next(61.5)
    assert ticket.floor is not None
    assert list(ticket.floor["a"]) == ["2"]


def test_floors_without_lanes_are_exact() -> None:
    floors = primed()
    assert floors.next(0.01).floor is None


def test_floors_of_a_drain_are_always_exact() -> None:
    floors = Floors(exact_only=True)
    floors.claimed(floors.next(0.0), [row(T0)], 0.0, 0.0)
    assert floors.next(0.1).floor is None


@pytest.mark.parametrize("epoch", [float("-inf"), -1e18, 0.0, 253402300799.0, 1e18, float("inf")])
def test_floors_write_any_instant_that_a_row_can_have(epoch: float) -> None:
    floors = primed(row(epoch))
    ticket = floors.next(0.1)
    assert ticket.floor is not None
    assert 1970 <= datetime.fromisoformat(ticket.floor["a"]["100"]).astimezone(UTC).year <= 9999


def test_floors_are_what_the_database_takes(conn: Any) -> None:
    ticket = Ticket({"reindex": {"-5": "2020-01-01T00:00:00+00:00"}})
    from jobrunner.db.call import read, send
    from jobrunner.db.worker import claim_job

    call = claim_job(worker_id="w", kinds=["reindex"], tenant_ids=None, limit=1, floor=ticket.floor)
    assert read(send(conn, call), call) == []
