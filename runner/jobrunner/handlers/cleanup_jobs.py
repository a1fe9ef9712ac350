"""The job kind cleanup_jobs (S2.5): a third driver of the upkeep, beside the runners themselves and pg_cron (D17)."""

from __future__ import annotations

from jobrunner.db.call import read, send
from jobrunner.db.upkeep import cleanup_step
from jobrunner.job import Context, Job


def cleanup_jobs(job: Job, ctx: Context) -> None:
    """Do the upkeep in batches, each beginning with check_lease; the last one finishes the job (D24)."""
    more = True
    while more:
        with ctx.chunk() as chunk:
            more = read(send(chunk.connection, call := cleanup_step()), call)
            if not more:
                chunk.finish()
