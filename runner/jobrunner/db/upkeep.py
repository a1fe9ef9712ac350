"""The functions of upkeep (design 3): recovery, purge, compaction, and the procedure that loops over them (D17)."""

from __future__ import annotations

from jobrunner.db.call import Call, nothing
from jobrunner.db.worker import pairs


def recover_stale_jobs(*, limit: int = 500) -> Call[list[tuple[int, str]]]:
    """Give back or bury the jobs whose runner is silent (S8, D3); gives job id and outcome."""
    return Call(
        "select r.job_id, r.outcome from mdm.recover_stale_jobs(p_limit => %(limit)s::int) r",
        pairs,
        {"limit": limit},
    )


def purge_jobs(*, limit: int = 1000) -> Call[int]:
    """Delete what is older than its kind's retention (D22); gives the number of jobs deleted."""
    return Call("select mdm.purge_jobs(p_limit => %(limit)s::int)", lambda rows: int(rows[0][0]), {"limit": limit})


def compact_outbox(*, limit: int = 1000) -> Call[int]:
    """Delete outbox events that are delivered (S2.5); gives the number deleted."""
    return Call("select mdm.compact_outbox(p_limit => %(limit)s::int)", lambda rows: int(rows[0][0]), {"limit": limit})


def wake_outbox() -> Call[int]:
    """Enqueue an outbox_dispatch where a delivery is overdue (S2.4); gives 1, or 0 when none is."""
    return Call("select mdm.wake_outbox()", lambda rows: int(rows[0][0]))


def cleanup_jobs() -> Call[None]:
    """Call the procedure that does all of the above; it commits, so it must be called alone (design 3)."""
    return Call("call mdm.cleanup_jobs()", nothing)
