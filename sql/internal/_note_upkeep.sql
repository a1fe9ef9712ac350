-- Notes that a part of the upkeep ran. Never waits: when somebody else notes the same at this moment, that is as good. A login that is
-- bound to tenants has looked after theirs only, and notes nothing: who watches must see that the others wait.
create or replace function mdm._note_upkeep(p_part text, p_jobs int)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  if mdm._bound_tenants() is not null then
    return;
  end if;
  update mdm.aa_job_upkeep u
  set last_at = clock_timestamp(),
    last_jobs = p_jobs
  where u.part = (select o.part from mdm.aa_job_upkeep o where o.part = p_part for update skip locked);
  -- the first time there is no row to skip, and an insert would wait for another one's
  if not found and pg_try_advisory_xact_lock(6579046002) then
    insert into mdm.aa_job_upkeep (part, last_at, last_jobs)
    select p_part, clock_timestamp(), p_jobs
    where not exists (select from mdm.aa_job_upkeep o where o.part = p_part)
    on conflict (part) do nothing;
  end if;
end
$$;

comment on function mdm._note_upkeep(text, int) is 'Notes that a part of the upkeep ran, without waiting for anybody. Private.';
