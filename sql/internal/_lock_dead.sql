-- The dead jobs that a filter of replay_jobs and discard_jobs names, in the order of id, at most p_limit. Rows that another session
-- holds are passed over: two administrators at work do not wait for each other (B66).
create or replace function mdm._lock_dead(p_filter jsonb, p_limit int)
returns setof mdm.aa_job
language plpgsql
volatile
parallel unsafe
security invoker
set enable_seqscan = off
set jit = off
as $$
declare
  v_unknown text;
begin
  if jsonb_typeof(p_filter) is distinct from 'object' then
    perform mdm._raise('MJ005', 'p_filter is not a JSON object', null, 'Pass {"job_kind": "reindex"}, or {"all": true} for every dead job.');
  end if;
  select string_agg(quote_literal(f.key), ', ' order by f.key)
  into v_unknown
  from jsonb_object_keys(p_filter) f (key)
  where f.key not in ('job_kind', 'tenant_id', 'completed_after', 'completed_before', 'last_error', 'all');
  if v_unknown is not null then
    perform mdm._raise('MJ005', format('unknown filter key %s', v_unknown), null,
      'The keys are job_kind, tenant_id, completed_after, completed_before, last_error (contains), all.');
  end if;
  -- every text contains the empty one
  if p_filter - 'all' in ('{}', '{"last_error": ""}') and p_filter -> 'all' is distinct from 'true' then
    perform mdm._raise('MJ006', 'the filter is empty', 'It would take every dead job.', 'Say {"all": true} if that is meant.');
  end if;
  if p_limit not between 1 and 10000 then
    perform mdm._raise('MJ005', format('p_limit is %s', p_limit), null, 'Use 1 .. 10000 (D13).');
  end if;

  return query
    select j.*
    from mdm.aa_job j
    where j.id = any (array(select f.id from mdm.find_jobs('dlq') f (id)))
      and j.status = 'dlq'
      and (p_filter -> 'job_kind' is null or j.job_kind = p_filter ->> 'job_kind')
      and (p_filter -> 'tenant_id' is null or j.tenant_id is not distinct from (p_filter ->> 'tenant_id')::uuid)
      and (p_filter -> 'completed_after' is null or j.completed_at >= (p_filter ->> 'completed_after')::timestamptz)
      and (p_filter -> 'completed_before' is null or j.completed_at < (p_filter ->> 'completed_before')::timestamptz)
      and (p_filter -> 'last_error' is null or strpos(j.last_error, p_filter ->> 'last_error') > 0)
    order by j.id
    limit p_limit
    for update skip locked;
exception
  when data_exception then
    perform mdm._raise('MJ005', format('a value of the filter has the wrong type: %s', sqlerrm), null,
      'tenant_id is a uuid (null = the platform''s own jobs), completed_after and completed_before are timestamps with time zone.');
end
$$;

comment on function mdm._lock_dead(jsonb, int) is
  'Locks the dlq jobs that a filter names, passing over those that others hold; MJ005 bad filter, MJ006 empty filter. Private.';
