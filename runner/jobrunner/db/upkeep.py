"""The functions of upkeep (design 3): recovery, one step of everything, and the procedure that repeats it (D17)."""

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


def cleanup_step() -> Call[bool]:
    """Do one batch of every part of the upkeep; gives whether more is left (D17)."""
    return Call("select mdm.cleanup_step()", lambda rows: bool(rows[0][0]))


def cleanup_jobs() -> Call[None]:
    """Call the procedure that repeats the step; it commits, so it must be called alone (design 3)."""
    return Call("call mdm.cleanup_jobs()", nothing)
