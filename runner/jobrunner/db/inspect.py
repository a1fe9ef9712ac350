"""What `jobrunner doctor` asks a server and its schema; only catalogues and views, no table of ours."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from jobrunner.db.call import Call, Rows


class Login(NamedTuple):
    """Who is connected to what."""

    role: str
    database: str
    version_num: int
    version: str
    encoding: str
    superuser: bool
    backend_pid: int
    clock: datetime
    read_only: bool


class Storage(NamedTuple):
    """How mdm.aa_job is vacuumed."""

    autovacuum: bool
    track_counts: bool
    options: dict[str, str]
    dead_rows: int
    live_rows: int


class Cron(NamedTuple):
    """What pg_cron does for the upkeep: entries that run, those that are switched off, and what failed last time."""

    active: list[str]
    inactive: list[str]
    failed: str | None


class Snapshot(NamedTuple):
    """What holds the oldest snapshot of the database, and for how long; sees_all = whether all could be looked at."""

    holder: str | None
    age_seconds: float
    sees_all: bool


def login() -> Call[Login]:
    """Tell who is connected to what, and what time the server has."""
    return Call(
        """select current_user::text, current_database()::text, current_setting('server_version_num')::int,
             current_setting('server_version'), current_setting('server_encoding'),
             (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user),
             pg_backend_pid(), clock_timestamp(), pg_is_in_recovery()""",
        lambda rows: Login._make(rows[0]),
    )


def missing_roles() -> Call[list[str]]:
    """Give the roles of design 3 that the server does not have."""
    return Call(
        """select w.name
           from unnest(array['mdm_owner', 'mdm_producer', 'mdm_worker', 'mdm_admin', 'mdm_monitor', 'mdm_indexer'])
             as w (name)
           where to_regrole(w.name) is null
           order by 1""",
        _names,
    )


def memberships() -> Call[list[str]]:
    """Give the roles of design 3 whose rights the login has."""
    return Call(
        """select r.rolname::text
           from pg_catalog.pg_roles r
           where r.rolname in ('mdm_owner', 'mdm_producer', 'mdm_worker', 'mdm_admin', 'mdm_monitor', 'mdm_indexer')
             and pg_catalog.pg_has_role(current_user, r.oid, 'usage')
           order by 1""",
        _names,
    )


def wrong_grants() -> Call[list[str]]:
    """Name what the grants have too much or too little: functions for everybody, roles without their own function."""
    return Call(
        """select 'everybody may call ' || p.proname
           from pg_catalog.pg_proc p
           cross join lateral pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
           where p.pronamespace = to_regnamespace('mdm')
             and a.grantee = 0
             and p.proname <> 'job_schema_version'
           union all
           select w.role || ' may not call ' || w.name
           from (values ('mdm_producer', 'enqueue_job'), ('mdm_worker', 'claim_job'), ('mdm_worker', 'finish_job'),
             ('mdm_admin', 'replay_job'), ('mdm_admin', 'discard_job'), ('mdm_monitor', 'job_metrics')) w (role, name)
           join pg_catalog.pg_proc p on p.proname = w.name and p.pronamespace = to_regnamespace('mdm')
           where to_regrole(w.role) is not null
             and not pg_catalog.has_function_privilege(to_regrole(w.role), p.oid, 'execute')
           union all
           select w.role || ' may not use schema mdm'
           from unnest(array['mdm_producer', 'mdm_worker', 'mdm_admin', 'mdm_monitor']) as w (role)
           where to_regrole(w.role) is not null
             and not pg_catalog.has_schema_privilege(to_regrole(w.role), to_regnamespace('mdm'), 'usage')
           order by 1""",
        _names,
    )


def storage() -> Call[Storage | None]:
    """Tell how mdm.aa_job is vacuumed; None when there is no such table."""
    return Call(
        """select current_setting('autovacuum')::boolean, current_setting('track_counts')::boolean,
             coalesce((select jsonb_object_agg(o.option_name, o.option_value)
               from pg_catalog.pg_options_to_table(c.reloptions) o), '{}'),
             coalesce(pg_catalog.pg_stat_get_dead_tuples(c.oid), 0),
             coalesce(pg_catalog.pg_stat_get_live_tuples(c.oid), 0)
           from pg_catalog.pg_class c
           where c.oid = to_regclass('mdm.aa_job')""",
        lambda rows: Storage._make(rows[0]) if rows else None,
    )


def snapshot() -> Call[Snapshot]:
    """Find what keeps dead rows from being cleaned: sessions, prepared transactions, replication slots."""
    return Call(
        """select h.holder, coalesce(date_part('epoch', clock_timestamp() - h.since), 0), s.sees_all
           from (select pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage')) s (sees_all)
           left join lateral (
             select format('pid %s (%s)', a.pid,
                 coalesce(nullif(a.application_name, ''), a.usename::text, a.backend_type)),
               coalesce(a.xact_start, a.query_start), a.backend_xmin
             from pg_catalog.pg_stat_activity a
             where a.backend_xmin is not null
               and a.pid <> pg_backend_pid()
               and a.datname = current_database()
             union all
             select format('prepared transaction %s', p.gid), p.prepared, p.transaction
             from pg_catalog.pg_prepared_xacts p
             where p.database = current_database()
             union all
             select format('replication slot %s', r.slot_name), null, coalesce(r.xmin, r.catalog_xmin)
             from pg_catalog.pg_replication_slots r
             where r.xmin is not null
             order by 2 nulls last
             limit 1) h (holder, since, xmin) on true""",
        lambda rows: Snapshot._make(rows[0]),
    )


def has_cron() -> Call[tuple[bool, bool]]:
    """Tell whether pg_cron is installed in this database, and whether the login may look into it."""
    return Call(
        """select exists (select from pg_catalog.pg_extension e where e.extname = 'pg_cron'),
             coalesce(pg_catalog.has_schema_privilege(to_regnamespace('cron'), 'usage'), false)""",
        lambda rows: (bool(rows[0][0]), bool(rows[0][1])),
    )


def cron() -> Call[Cron]:
    """Tell what pg_cron does for the upkeep, as far as the login may see; only where has_cron says that it may."""
    return Call(
        """select coalesce(array_agg(j.jobname::text order by j.jobname) filter (where j.active), '{}'),
             coalesce(array_agg(j.jobname::text order by j.jobname) filter (where not j.active), '{}'),
             string_agg(format('%s: %s', j.jobname, d.return_message), '; ' order by j.jobname)
               filter (where j.active and d.status = 'failed')
           from cron.job j
           left join lateral (
             select r.status, r.return_message
             from cron.job_run_details r
             where r.jobid = j.jobid
             order by r.runid desc
             limit 1) d on true
           where j.jobname like 'mdm\\_%'""",
        lambda rows: Cron._make(rows[0]),
    )


def _names(rows: Rows) -> list[Any]:
    return [row[0] for row in rows]
