-- The health of the queue at a glance: per kind what waits too long or dies, and once what the server and the upkeep do.
create or replace view mdm.v_job_health as
with kind as (
  select k.job_kind, c.due, c.running, c.failed, c.dlq, c.state,
    mdm.oldest_due(k.job_kind) as oldest_due,
    mdm.count_jobs(k.job_kind, 'restless') as released_often
  from mdm.aa_job_kind k
  join mdm.v_job_counts c on c.job_kind = k.job_kind),
snapshot as (
  select a.pid, date_trunc('second', clock_timestamp() - a.xact_start) as age
  from pg_catalog.pg_stat_activity a
  where a.backend_xmin is not null
    and a.datname = current_database()
    and a.pid <> pg_backend_pid()
  order by age(a.backend_xmin) desc
  limit 1),
item as (
  select 1 as place, k.job_kind as subject, 'due' as item, k.due::text as value, null as warning
  from kind k
  where k.due > 0
  union all
  select 1, k.job_kind, 'oldest due', date_trunc('second', clock_timestamp() - k.oldest_due)::text,
    case when k.oldest_due < clock_timestamp() - interval '15 minutes' and k.state <> 'paused'
      then 'waits too long: mdm.explain_job says why; start more runners' end
  from kind k
  where k.due > 0
  union all
  select 2, k.job_kind, 'running', k.running::text, null
  from kind k
  where k.running > 0
  union all
  select 3, k.job_kind, 'dlq', k.dlq::text, 'look into mdm.v_job_dlq'
  from kind k
  where k.dlq > 0
  union all
  select 4, k.job_kind, 'given back more than 10 times', k.released_often::text, 'rate limit too low, or workers restart all the time'
  from kind k
  where k.released_often > 0
  union all
  select 5, k.job_kind, 'state', k.state, case when k.due > 0 and k.state = 'paused' then format('due jobs wait for mdm.resume_kind(%L)', k.job_kind) end
  from kind k
  where k.state <> 'open'
  union all
  select 6, '(runners)', 'live', count(*)::text,
    case when count(*) = 0 and (select sum(k.due) from kind k) > 0 then 'due jobs, but no runner is alive: start one' end
  from mdm.aa_job_runner r
  where r.expires_at > clock_timestamp()
  union all
  select 7, '(upkeep)', p.part, coalesce(date_trunc('second', clock_timestamp() - u.last_at)::text || ' ago', 'never'),
    case when u.last_at is null or u.last_at < clock_timestamp() - p.every * 3 then 'overdue: start a runner, or select mdm.schedule_cleanup()' end
  from (values ('recover', interval '5 minutes'), ('purge', '5 minutes'), ('compact', '5 minutes'), ('invariants', '5 minutes')) p (part, every)
  left join mdm.aa_job_upkeep u on u.part = p.part
  union all
  select 7, '(invariants)', v.name, format('%s jobs, %s ago: %s', v.violations, date_trunc('second', clock_timestamp() - v.found_at), v.sample),
    'does not hold: look at these jobs; mdm.check_job_invariants() has what is wrong now'
  from mdm.aa_job_violation v
  where v.found_at > clock_timestamp() - interval '24 hours'
  union all
  select 8, '(server)', 'oldest snapshot', format('pid %s, %s', s.pid, s.age),
    case when s.age > interval '10 minutes' then 'keeps dead rows from being cleaned; end it if nobody needs it' end
  from snapshot s
  union all
  select 9, '(server)', 'dead rows in aa_job', t.n_dead_tup::text,
    case when t.n_dead_tup > 100000 and t.n_dead_tup > t.n_live_tup then 'autovacuum does not keep up, or a snapshot is held' end
  from pg_catalog.pg_stat_user_tables t
  where t.relid = 'mdm.aa_job'::regclass)
select i.subject, i.item, i.value, i.warning
from item i
order by i.warning is null, i.place, i.subject, i.item;

comment on view mdm.v_job_health is 'The health of the queue: lines with a warning first. Reads partial indexes and statistics, no history.';
comment on column mdm.v_job_health.subject is 'A job kind, or (runners), (upkeep), (invariants), (server).';
comment on column mdm.v_job_health.item is 'What is looked at.';
comment on column mdm.v_job_health.value is 'What it is now.';
comment on column mdm.v_job_health.warning is 'What is wrong and the remedy, NULL = fine.';
