-- Which running jobs went silent together with one of these (D3): in the same process, in another slot of it, as the worker_id
-- <host>/<pid>/<uuid> says (S3.2). Nobody can tell which of them killed it, so each counts from now on as claimed together with another,
-- also where its own recovery is still to come because its kind has a longer stale_ttl.
-- A worker shows itself every third of the stale_ttl: it was dead half a stale_ttl after its last sign at the latest. Two jobs belong
-- together when both can have died at one moment; a process of the same name (containers repeat host and pid) at another time did not.
create or replace function mdm._mark_together(p_job_ids bigint[])
returns void
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  update mdm.aa_job j
  set claimed_together = 2
  where j.id = any (array(
    with silent as materialized (
      select j.id, j.claimed_by, j.claimed_together, w.process,
        coalesce(j.heartbeat_at, j.claimed_at) as seen_at,
        coalesce(j.heartbeat_at, j.claimed_at) + k.stale_ttl / 2 as dead_at
      from mdm.aa_job_kind k
      join mdm.aa_job j on j.job_kind = k.job_kind
      cross join substring(j.claimed_by from '^(.+/[0-9]+)/[^/]+$') w (process)
      where j.status = 'running'
        and w.process = any (array(
          select substring(r.claimed_by from '^(.+/[0-9]+)/[^/]+$')
          from mdm.aa_job r
          where r.id = any (p_job_ids))))
    select l.id
    from mdm.aa_job l
    where l.id = any (array(
      select s.id
      from silent s
      where s.claimed_together = 1
        and exists (
          select
          from silent o
          where o.process = s.process
            and o.claimed_by <> s.claimed_by
            and (o.id = any (p_job_ids) or s.id = any (p_job_ids))
            and o.seen_at <= s.dead_at
            and s.seen_at <= o.dead_at)))
    order by l.id
    for no key update skip locked));
end
$$;

comment on function mdm._mark_together(bigint[]) is
  'Notes of the running jobs that went silent together with one of these, in another slot of the same process, that they were not alone (D3). Private.';
