"""The scenario enqueue: single enqueues beside the bare inserts of the same two rows, and many in one call."""

from __future__ import annotations

from statistics import median
from typing import Final

from kit import Bench
from queues import NOW, OURS
from tables import fill

PRODUCERS: Final = 16
ROUNDS: Final = 3
# the same two rows without any rule, in one message: what the server can do
BARE: Final = f"""\\startpipeline
begin;
insert into mdm.aa_job (job_kind, priority, available_at, payload, max_attempts)
  values ('noop', 100, clock_timestamp(), {NOW}, 10);
insert into mdm.aa_audit_log (action, object_type, object_id, payload)
  values ('job_enqueued', 'job', '1', '{{"job_kind": "noop"}}');
commit;
\\endpipeline
"""


def enqueue(bench: Bench) -> None:
    """Single enqueues by 16 clients, one commit each, in turn with the bare inserts; and calls of 1,000."""
    ours, bare = [], []
    for _ in range(1 if bench.quick else ROUNDS):
        ours.append(_rate(bench, f"{OURS.enqueue()};\n"))
        bare.append(_rate(bench, BARE))
    what = f"enqueue_job, {PRODUCERS} clients, one commit each"
    bench.report("enqueue", what, median(ours), "jobs/s", median(bare), "the two bare inserts by pgbench")
    with bench.database() as dsn:
        many = fill(dsn, "noop", 5_000 if bench.quick else 100_000)
    bench.report("enqueue", "enqueue_jobs, 1,000 a call, one client", many, "jobs/s")


def _rate(bench: Bench, script: str) -> float:
    """Jobs a second, into an empty table."""
    with bench.database() as dsn:
        return bench.pgbench(dsn, script, clients=PRODUCERS, seconds=2 if bench.quick else 6).rate
