"""plpgsql_check finds nothing in any PL/pgSQL function (the extension comes with Debian's server)."""

from __future__ import annotations

from typing import LiteralString

import psycopg

from cluster import missing

FINDINGS: LiteralString = """
    select f.oid::regprocedure::text, c.lineno, c.level, c.message, c.detail, c.hint
    from pg_proc f
    join pg_language l on l.oid = f.prolang and l.lanname = 'plpgsql'
    left join pg_trigger t on t.tgfoid = f.oid
    cross join lateral plpgsql_check_function_tb(
      f.oid, coalesce(t.tgrelid, 0), fatal_errors => false, extra_warnings => true, security_warnings => true,
      performance_warnings => false) c
    where f.pronamespace = 'mdm'::regnamespace
    order by 1, 2
"""


def test_plpgsql_check_finds_nothing(fresh_dsn: str) -> None:
    with psycopg.connect(fresh_dsn, autocommit=True) as conn:
        if not conn.execute("select 1 from pg_available_extensions where name = 'plpgsql_check'").fetchone():
            missing("plpgsql_check", "this server has no such extension")
        conn.execute("create extension if not exists plpgsql_check")
        assert conn.execute(FINDINGS).fetchall() == []
