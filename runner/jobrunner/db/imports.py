"""The database half of the kind bulk_import (S2.2)."""

from __future__ import annotations

from typing import NamedTuple

from jobrunner.db.call import Call, nothing


class ImportChunk(NamedTuple):
    """What a chunk did."""

    rows_imported: int
    rows_rejected: int
    is_last: bool


def import_chunk(*, job_id: int, lease_no: int, limit: int, reject: str | None = None) -> Call[ImportChunk]:
    """Check and store the next `limit` rows of an upload; `reject` says why the next row cannot be stored.

    MJ001 when the lease is lost, MJ005 for a bad payload.
    """
    return Call(
        """select c.rows_imported, c.rows_rejected, c.is_last
           from mdm.import_chunk(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s, p_limit => %(limit)s::int,
             p_reject => %(reject)s) c""",
        lambda rows: ImportChunk._make(rows[0]),
        {"job_id": job_id, "lease_no": lease_no, "limit": limit, "reject": reject},
    )


def fail_import(*, job_id: int, lease_no: int, error: str) -> Call[None]:
    """Say at the upload that its job gives up; MJ001 when the lease is lost."""
    return Call(
        "select mdm.fail_import(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s, p_error => %(error)s)",
        nothing,
        {"job_id": job_id, "lease_no": lease_no, "error": error},
    )
