"""The database half of the kind reindex (S2.3)."""

from __future__ import annotations

from typing import NamedTuple

from jobrunner.db.call import Call


class ReindexChunk(NamedTuple):
    """What a chunk did; `blocked_by` says who holds the next row, if somebody does."""

    rows_rebuilt: int
    rows_changed: int
    is_last: bool
    blocked_by: str | None


def reindex_chunk(*, job_id: int, lease_no: int, limit: int) -> Call[ReindexChunk]:
    """Rebuild the next `limit` rows of a claimed reindex; MJ001 when the lease is lost, MJ005 for a bad payload."""
    return Call(
        """select c.rows_rebuilt, c.rows_changed, c.is_last, c.blocked_by
           from mdm.reindex_chunk(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s, p_limit => %(limit)s::int) c""",
        lambda rows: ReindexChunk._make(rows[0]),
        {"job_id": job_id, "lease_no": lease_no, "limit": limit},
    )
