"""The database half of the kind virus_scan (S2.6)."""

from __future__ import annotations

from typing import NamedTuple

from jobrunner.db.call import Call


class Attachment(NamedTuple):
    """Where the content lies, and how many bytes it has."""

    storage_key: str
    size_bytes: int


def attachment_to_scan(*, job_id: int, lease_no: int) -> Call[Attachment | None]:
    """Give what to scan; None when the attachment is gone. MJ001, MJ005."""
    return Call(
        """select a.storage_key, a.size_bytes
           from mdm.attachment_to_scan(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s) a""",
        lambda rows: Attachment._make(rows[0]) if rows else None,
        {"job_id": job_id, "lease_no": lease_no},
    )


def record_scan(*, job_id: int, lease_no: int, attachment: Attachment, found: str | None) -> Call[bool]:
    """Write what the scanner said of the whole content; False when that is another one by now. MJ001, MJ005."""
    return Call(
        """select mdm.record_scan(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s,
             p_storage_key => %(storage_key)s, p_size_bytes => %(size_bytes)s::bigint, p_found => %(found)s)""",
        lambda rows: bool(rows[0][0]),
        {"job_id": job_id, "lease_no": lease_no, **attachment._asdict(), "found": found},
    )


def fail_scan(*, job_id: int, lease_no: int, attachment: Attachment, error: str, retryable: bool) -> Call[bool]:
    """Write why the content could not be scanned; True when that is final. MJ001, MJ005."""
    return Call(
        """select mdm.fail_scan(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s,
             p_storage_key => %(storage_key)s, p_size_bytes => %(size_bytes)s::bigint, p_error => %(error)s,
             p_retryable => %(retryable)s)""",
        lambda rows: bool(rows[0][0]),
        {"job_id": job_id, "lease_no": lease_no, **attachment._asdict(), "error": error, "retryable": retryable},
    )
