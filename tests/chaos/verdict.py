"""What must hold in the end: every committed job ended exactly once, its effects happened once, the invariants hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from chaos.kinds import ENDS
from chaos.world import Connection, World
from jobs import violations

QUERY = """
    select j.id, j.status::text,
      (select count(*) from public.effect e where e.job_id = j.id),
      (select count(distinct e.part) from public.effect e where e.job_id = j.id),
      (select count(*) from mdm.aa_audit_log a
       where a.object_type = 'job' and a.object_id = j.id::text and a.action in ('job_done', 'job_dlq'))
    from mdm.aa_job j
    where j.job_kind = %s
"""


def judge(world: World, conn: Connection, kinds: Mapping[str, str]) -> Counter[str]:
    """Check all jobs of these kinds (kind -> handler); count the outcomes."""
    outcomes: Counter[str] = Counter()
    for kind, base in kinds.items():
        status, effects = ENDS[base]
        rows = conn.execute(QUERY, (kind,)).fetchall()
        outcomes.update(f"{row[1]} ({base})" for row in rows)
        bad = [row for row in rows if row[1:] != (status, effects, effects, 1)]
        world.expect(
            not bad, f"{kind}: {len(bad)} jobs ended otherwise, such as {bad[:3]} (id, status, effects, parts, ends)"
        )
    found = violations(conn)
    world.expect(not found, f"invariants: {found}")
    return outcomes


def judge_keys(world: World, conn: Connection, committed: Iterable[str], rolled_back: Iterable[str]) -> None:
    """Check that every acknowledged enqueue is a job, once, and that no other one is."""
    stored = Counter(
        key for (key,) in conn.execute("select idempotency_key from mdm.aa_job where idempotency_key is not null")
    )
    lost = [key for key in committed if stored[key] != 1]
    ghosts = [key for key in rolled_back if stored[key]]
    world.expect(not lost, f"{len(lost)} acknowledged jobs are lost or doubled: {lost[:3]}")
    world.expect(not ghosts, f"{len(ghosts)} jobs of rolled back transactions exist: {ghosts[:3]}")
