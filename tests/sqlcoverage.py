"""Statement coverage of the PL/pgSQL functions, from plpgsql_check's profiler (--sql-coverage).

The profiler counts per database, so the counts of every database are added up before it goes away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, LiteralString

import psycopg
import pytest

GATE = 0.95
OPTIONS = {"plpgsql_check.profiler": "on", "plpgsql_check.profiler_max_shared_chunks": "100000"}
LIBRARIES = "plpgsql,plpgsql_check"
COUNTS: LiteralString = """
    select f.oid::regprocedure::text, s.stmtid, s.lineno, coalesce(s.exec_stmts, 0) > 0
    from pg_proc f
    join pg_language l on l.oid = f.prolang and l.lanname = 'plpgsql'
    cross join lateral plpgsql_profiler_function_statements_tb(f.oid) s
    where f.pronamespace = to_regnamespace('mdm')
"""


@dataclass
class SqlCoverage:
    """What was run so far: function -> statement -> (line, run at least once)."""

    wanted: bool = False
    functions: dict[str, dict[int, tuple[int, bool]]] = field(default_factory=dict)

    def options(self, options: dict[str, str]) -> dict[str, str]:
        """Add to a server's options what the profiler needs."""
        if not self.wanted:
            return options
        libraries = ",".join(filter(None, [LIBRARIES, options.get("shared_preload_libraries")]))
        return {**options, **OPTIONS, "shared_preload_libraries": libraries}

    def add(self, dsn: str) -> None:
        """Add what the functions of this database have run, when it is wanted."""
        if not self.wanted:
            return
        with psycopg.connect(dsn, autocommit=True) as conn:
            # a schema of its own: a test may have dropped public, or made the extension there
            conn.execute("create schema if not exists sql_coverage")
            conn.execute("create extension if not exists plpgsql_check schema sql_coverage")
            conn.execute("set search_path = sql_coverage, public")
            for name, statement, line, ran in conn.execute(COUNTS).fetchall():
                seen = self.functions.setdefault(name, {})
                seen[statement] = (line, ran or seen.get(statement, (line, False))[1])

    def total(self) -> float:
        """Return the share of all statements that ran."""
        every = [ran for statements in self.functions.values() for _, ran in statements.values()]
        return sum(every) / len(every) if every else 0.0

    def report(self, reporter: pytest.TerminalReporter) -> None:
        """Write one line a function, with the lines of its body that never ran."""
        reporter.section("statement coverage of the PL/pgSQL functions")
        for name, statements in sorted(self.functions.items()):
            share = sum(ran for _, ran in statements.values()) / len(statements)
            left = sorted({line for line, ran in statements.values() if not ran})
            note = f"  never ran, lines {', '.join(map(str, left))}" if left else ""
            reporter.write_line(f"{share:7.1%}  {name.split('(')[0]}{note}")
        reporter.write_line(f"{self.total():7.1%}  of {len(self.functions)} functions (at least {GATE:.0%} wanted)")


sql_coverage: Final = SqlCoverage()


def databases(conn: psycopg.Connection[Any]) -> list[str]:
    """The databases of a server that one can connect to."""
    return [name for (name,) in conn.execute("select datname from pg_database where datallowconn")]
