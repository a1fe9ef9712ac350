"""The rules of the house for what is installed: comments, rights, overloads, indexes (design 3, B61)."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest

Connection = psycopg.Connection[Any]

# Each query gives what breaks its rule.
RULES: dict[str, LiteralString] = {
    "every table, view and type has a comment": """
        select c.relname::text
        from pg_class c
        where c.relnamespace = 'mdm'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'c')
          and c.relname not like '%yoyo%'
          and obj_description(c.oid, 'pg_class') is null
          and (c.relkind <> 'c' or obj_description(c.reltype, 'pg_type') is null)""",
    "every column of a table has a comment": """
        select format('%s.%s', c.relname, a.attname)
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace = 'mdm'::regnamespace and c.relkind in ('r', 'p') and c.relname not like '%yoyo%'
          and col_description(c.oid, a.attnum) is null""",
    "every enum has a comment": """
        select t.typname::text
        from pg_type t
        where t.typnamespace = 'mdm'::regnamespace and t.typtype = 'e' and obj_description(t.oid, 'pg_type') is null""",
    "every function has a comment": """
        select f.oid::regprocedure::text
        from pg_proc f
        where f.pronamespace = 'mdm'::regnamespace and obj_description(f.oid, 'pg_proc') is null""",
    "one overload a name": """
        select f.proname::text
        from pg_proc f
        where f.pronamespace = 'mdm'::regnamespace
        group by f.proname
        having count(*) > 1""",
    "a definer function has the pinned path": """
        select f.oid::regprocedure::text
        from pg_proc f
        where f.pronamespace = 'mdm'::regnamespace and f.prosecdef
          and not coalesce(f.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']""",
    "nothing is executable by PUBLIC but job_schema_version": """
        select f.oid::regprocedure::text
        from pg_proc f
        cross join lateral aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a
        where f.pronamespace = 'mdm'::regnamespace and a.grantee = 0 and f.proname <> 'job_schema_version'""",
    # Nobody gains anything by these: _redact is pure and a view calls it with the rights of its reader; the others are
    # called by schedule_cleanup, which is an invoker (design 3), with the rights of its caller.
    "private functions are granted to nobody": """
        select f.oid::regprocedure::text
        from pg_proc f
        cross join lateral aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a
        where f.pronamespace = 'mdm'::regnamespace and f.proname ~ '^_'
          and f.proname not in ('_redact', '_raise', '_check_cron', '_cron_entries')
          and a.grantee not in ('mdm_owner'::regrole, 'mdm_platform'::regrole)""",
    "no role but the owners may write a table": """
        select format('%s to %s: %s', c.relname, a.grantee::regrole, a.privilege_type)
        from pg_class c
        cross join lateral aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
        where c.relnamespace = 'mdm'::regnamespace and c.relkind in ('r', 'p', 'v') and a.privilege_type <> 'SELECT'
          and a.grantee not in (c.relowner, 'mdm_owner'::regrole, 'mdm_platform'::regrole)""",
    "nothing of a table is PUBLIC's": """
        select c.relname::text
        from pg_class c
        cross join lateral aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
        where c.relnamespace = 'mdm'::regnamespace and a.grantee = 0""",
    "everything of ours belongs to one of the two owners": """
        select o.name
        from (
          select c.relname::text, c.relowner from pg_class c where c.relnamespace = 'mdm'::regnamespace
          union all
          select f.proname::text, f.proowner from pg_proc f where f.pronamespace = 'mdm'::regnamespace) o (name, owner)
        where o.owner not in ('mdm_owner'::regrole, 'mdm_platform'::regrole)""",
    "aa_job has no trigger and nothing references it": """
        select t.tgname::text from pg_trigger t where t.tgrelid = 'mdm.aa_job'::regclass
        union all
        select r.conname::text from pg_constraint r where r.confrelid = 'mdm.aa_job'::regclass""",
    "every foreign key is indexed": """
        select format('%s: %s', r.conrelid::regclass, r.conname)
        from pg_constraint r
        join pg_class c on c.oid = r.conrelid and c.relnamespace = 'mdm'::regnamespace
        where r.contype = 'f'
          and not exists (
            select from pg_index i where i.indrelid = r.conrelid and i.indkey[0] = r.conkey[1])""",
    "no name is cut at 63 bytes": """
        select c.relname::text
        from pg_class c
        where c.relnamespace = 'mdm'::regnamespace and octet_length(c.relname) = 63""",
    "no timestamp without time zone": """
        select format('%s.%s', c.relname, a.attname)
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        where c.relnamespace = 'mdm'::regnamespace and c.relkind in ('r', 'v') and c.relname not like '%yoyo%'
          and a.atttypid = 'timestamp'::regtype""",
}


@pytest.mark.parametrize("rule", RULES)
def test_catalog_has(conn: Connection, rule: str) -> None:
    assert [row[0] for row in conn.execute(RULES[rule])] == []


def test_rules_look_at_something(conn: Connection) -> None:
    """The rules would be true of an empty schema as well."""
    row = conn.execute(
        "select count(*) filter (where f.prosecdef), count(*) filter (where f.proname ~ '^_')"
        " from pg_proc f where f.pronamespace = 'mdm'::regnamespace"
    ).fetchone()
    assert row is not None
    assert min(row) > 10
