-- The cleanup's share of mdm.check_job_invariants: a slice that is as small in a large table as in a small one. The rows are gone through
-- by id, round after round; the audit of the jobs that ended since the last time. Finds are warnings and stand in aa_job_violation; nothing
-- is repaired here. A login that is bound to tenants would walk over what it may not see, and leaves it to others.
create or replace function mdm.watch_invariants()
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  c_rows constant int := 10000;
  c_jobs constant int := 20000;
  c_entries constant int := 25000;
  -- who ended a job may commit later than the job says
  c_overlap constant interval := interval '1 minute';
  v_now timestamptz := clock_timestamp();
  v_last mdm.aa_job_upkeep;
  v_since timestamptz;
  v_audit record;
  v_after bigint;
  v_from bigint;
  v_to bigint;
  v_full boolean;
  v_found record;
  v_count int := 0;
begin
  if mdm._bound_tenants() is not null or not pg_try_advisory_xact_lock(6579046003) then
    return 0;
  end if;
  select u.* into v_last from mdm.aa_job_upkeep u where u.part = 'invariants';
  if v_now >= v_last.last_at and v_now < v_last.next_at then
    return 0;
  end if;

  v_after := coalesce(v_last.last_id, -9223372036854775808);
  select min(i.id), max(i.id), count(*) = c_rows
  into v_from, v_to, v_full
  from (
    select j.id
    from mdm.aa_job j
    where j.id > v_after
    order by j.id
    limit c_rows) i;
  v_since := greatest(least(coalesce(v_last.last_at, '-infinity'), v_now) - c_overlap, v_now - interval '1 hour');
  select s.o_since, s.o_entry
  into v_audit
  from mdm._audit_slice(v_since, c_jobs, c_entries) s;

  for v_found in
    select c.name, c.violations, c.sample
    from mdm.check_job_invariants(v_audit.o_since, coalesce(v_from, 0), coalesce(v_to, 0), v_audit.o_entry) c
    where c.violations > 0
  loop
    raise warning 'invariant % does not hold: % jobs, %', v_found.name, v_found.violations, v_found.sample
      using hint = 'Look at them before you change anything; docs/how-to/watch.md says what each may mean.';
    insert into mdm.aa_job_violation as v (name, found_at, violations, sample)
    values (v_found.name, v_now, v_found.violations, v_found.sample)
    on conflict (name) do update
    set found_at = excluded.found_at,
      violations = excluded.violations,
      sample = excluded.sample;
    v_count := v_count + v_found.violations;
  end loop;

  -- not often, and never for more than a hundredth of the time, whatever it has to read
  insert into mdm.aa_job_upkeep as u (part, last_at, last_jobs, last_id, next_at)
  values ('invariants', v_now, v_count, case when v_full then v_to end,
    clock_timestamp() + greatest(interval '1 minute', 100 * (clock_timestamp() - v_now)))
  on conflict (part) do update
  set last_at = excluded.last_at,
    last_jobs = excluded.last_jobs,
    last_id = excluded.last_id,
    next_at = excluded.next_at;
  return v_count;
end
$$;

comment on function mdm.watch_invariants() is
  'Looks at the next slice of what mdm.check_job_invariants checks, at most once a minute, and returns how many violations that has: the next 10,000 rows by id, and of the jobs that ended since the last time and the audit of that time as much as can be read quickly. Each broken invariant is a warning and a row of aa_job_violation, which v_job_health shows for a day. Part of mdm.cleanup_jobs; does nothing for a login that is bound to tenants.';
