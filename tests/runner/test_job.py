"""The job that a handler gets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from jobrunner.job import ClaimedRow, Job

TENANT = "00000000-0000-0000-0000-000000000001"


def row(**changes: Any) -> ClaimedRow:
    base = ClaimedRow(
        7, 2**53 - 1, "a", TENANT, -5, 0.0, '{"n": 1}', "[1]", 2, 5, "k", 3, "h/1/u", 1.5, 2.0, 4, 5, False, "old"
    )
    return base._replace(**changes)


def test_job_carries_every_value_of_the_row() -> None:
    job = Job.from_row(row())
    assert (job.id, job.lease_no, job.job_kind, job.priority) == (7, 2**53 - 1, "a", -5)
    assert (job.tenant_id, job.payload, job.context) == (UUID(TENANT), {"n": 1}, [1])
    assert (job.attempts, job.max_attempts, job.idempotency_key, job.key_no) == (2, 5, "k", 3)
    assert (job.releases, job.recoveries, job.last_error, job.claimed_by) == (4, 5, "old", "h/1/u")
    assert job.claimed_at == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)


def test_job_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Job.from_row(row()).id = 8  # type: ignore[misc]


def test_job_of_the_platform_has_no_tenant() -> None:
    job = Job.from_row(row(tenant_id=None, context=None))
    assert (job.tenant_id, job.context) == (None, None)


@pytest.mark.parametrize(("epoch", "year"), [(float("-inf"), 1), (-1e15, 1), (1e15, 9999), (float("inf"), 9999)])
def test_job_takes_instants_that_python_has_not(epoch: float, year: int) -> None:
    assert Job.from_row(row(available_epoch=epoch)).available_at.year == year
