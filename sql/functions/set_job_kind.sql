-- Registers a kind or changes its settings while everything runs (D14, D15).
create or replace function mdm.set_job_kind(p_job_kind text, p_settings jsonb default '{}', p_actor_principal_id uuid default null)
returns void
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_settings constant text[] := array['description', 'base_delay', 'max_delay', 'jitter', 'max_attempts', 'priority', 'stale_ttl',
    'handler_timeout', 'retention_done', 'retention_dlq', 'retention_failed', 'audit_level', 'tenant_required', 'redact', 'enabled'];
  v_old mdm.aa_job_kind;
  v_new mdm.aa_job_kind;
  v_unknown text;
begin
  if jsonb_typeof(coalesce(p_settings, '{}')) <> 'object' then
    perform mdm._raise('MJ005', 'p_settings is not a JSON object', null, 'Pass {"max_attempts": 5, ...}.');
  end if;
  select string_agg(quote_literal(s.key), ', ' order by s.key)
  into v_unknown
  from jsonb_object_keys(coalesce(p_settings, '{}')) s (key)
  where s.key <> all (v_settings);
  if v_unknown is not null then
    perform mdm._raise('MJ005', format('unknown setting %s', v_unknown), null,
      format('The settings are %s; pausing has functions of its own, pause_kind and resume_kind.', array_to_string(v_settings, ', ')));
  end if;

  insert into mdm.aa_job_kind (job_kind) values (p_job_kind) on conflict (job_kind) do nothing;
  select k.* into v_old from mdm.aa_job_kind k where k.job_kind = p_job_kind for no key update;
  v_new := jsonb_populate_record(v_old, coalesce(p_settings, '{}'));
  update mdm.aa_job_kind k
  set description = v_new.description,
    -- hours and seconds, never days (D7)
    base_delay = make_interval(secs => extract(epoch from v_new.base_delay)),
    max_delay = make_interval(secs => extract(epoch from v_new.max_delay)),
    -- a product of absurdly small numbers is an error (22003)
    jitter = round(v_new.jitter::numeric, 6),
    max_attempts = v_new.max_attempts,
    priority = v_new.priority,
    stale_ttl = make_interval(secs => extract(epoch from v_new.stale_ttl)),
    handler_timeout = make_interval(secs => extract(epoch from v_new.handler_timeout)),
    retention_done = make_interval(secs => extract(epoch from v_new.retention_done)),
    retention_dlq = make_interval(secs => extract(epoch from v_new.retention_dlq)),
    retention_failed = make_interval(secs => extract(epoch from v_new.retention_failed)),
    audit_level = v_new.audit_level,
    tenant_required = v_new.tenant_required,
    redact = v_new.redact,
    enabled = v_new.enabled
  where k.job_kind = p_job_kind;
  -- a setting taken away shows as the word null: an audit row has no null members
  perform mdm._audit('job_kind_changed', p_actor_principal_id, null, 'job_kind', p_job_kind, (
    select coalesce(jsonb_object_agg(s.key, case when s.value = 'null' then '"null"' else s.value end), '{}')
    from jsonb_each(coalesce(p_settings, '{}')) s));
exception
  when data_exception or check_violation or not_null_violation then
    perform mdm._raise('MJ005', format('bad setting for kind %s: %s', coalesce(p_job_kind, 'NULL'), sqlerrm), null,
      'A name has a-z, 0-9, "_", ".", ":", "-" and begins with a letter. max_attempts >= 1. Intervals are like "30 seconds" or "6 hours"; 0 < base_delay <= max_delay, 0 <= jitter <= 1, stale_ttl >= 15 seconds, retention at most 876000 hours, audit_level full or exceptions.');
end
$$;

comment on function mdm.set_job_kind(text, jsonb, uuid) is
  'Registers a kind that is missing (with the defaults of S6.2, D14) and changes the settings given: keys are the columns of aa_job_kind but job_kind and paused_*. Takes effect with the next claim or failure. Audit job_kind_changed. MJ005 bad name, unknown setting or bad value.';
