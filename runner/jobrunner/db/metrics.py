"""What an exporter reads (S12.1)."""

from __future__ import annotations

from typing import NamedTuple

from jobrunner.db.call import Call


class Gauge(NamedTuple):
    """One value of mdm.job_metrics; job_kind is None for what is about no kind."""

    metric: str
    tenant_id: str | None
    job_kind: str | None
    value: float


def job_metrics() -> Call[list[Gauge]]:
    """Read the gauges (S12.1, D18)."""
    return Call(
        "select m.metric, m.tenant_id::text, m.job_kind, m.value from mdm.job_metrics() m",
        lambda rows: [Gauge._make(row) for row in rows],
    )
