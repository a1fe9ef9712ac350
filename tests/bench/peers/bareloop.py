"""The least that a worker can do, as a limit to compare with: a loop that listens, takes jobs and ends them.

One session, one statement, one audit row for each job; no lease, no heartbeat, no kinds, no tenants, no retries, no
metrics. Its program is not the product's and nothing may be learnt from it but how quick the machine is.
"""

from __future__ import annotations

import sys
from time import time
from typing import Final

import psycopg
from records import Records

HUNGRY_SECONDS: Final = 5.0
# ends what was taken before, and takes what is there
TURN: Final = """
    with ended as (
      update mdm.aa_job
      set status = 'done', completed_at = clock_timestamp()
      where id = any (%(done)s::bigint[])
      returning id),
    audit as (
      insert into mdm.aa_audit_log (action, object_type, object_id, payload)
      select 'job_done', 'job', id::text, '{"job_kind": "noop"}'
      from ended)
    update mdm.aa_job j
    set status = 'running', claimed_by = 'bare', claimed_at = clock_timestamp(), lease_no = 1, attempts = 1
    where j.id = any (array(
      select id
      from mdm.aa_job
      where status = 'pending' and job_kind = 'noop' and priority = 100 and available_at <= clock_timestamp()
      order by available_at, id
      limit 50
      for update skip locked))
    returning j.id, (j.payload ->> 't')::float8
"""


def main(dsn: str) -> None:
    """Work until it is ended."""
    records = Records()
    options = "-c enable_seqscan=off -c enable_sort=off -c plan_cache_mode=force_generic_plan"
    with psycopg.connect(dsn, autocommit=True, options=options) as conn:
        conn.execute("listen mdm_jobs")
        taken: list[int] = []
        hungry_until = 0.0
        while True:
            if time() > hungry_until:
                conn.execute("select mdm.announce_runner('bare', '{noop}', null, true)")
                hungry_until = time() + HUNGRY_SECONDS
            rows = conn.execute(TURN, {"done": taken}, prepare=True).fetchall()
            for _, t in rows:
                records.add(t)
            taken = [job_id for job_id, _ in rows]
            if not rows:
                # the connection is the generator's as long as it is not exhausted
                list(conn.notifies(timeout=1.0, stop_after=1))


if __name__ == "__main__":
    main(sys.argv[1])
