"""Statement coverage of the PL/pgSQL functions, from plpgsql_check's profiler (--sql-coverage).

The profiler counts per database, so the counts of every database are added up before it is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
import pytest

GATE = 0.95
OPTIONS = {
    "shared_preload_libraries": "plpgsql,plpgsql_check",
    "plpgsql_check.profiler": "on",
    "plpgsql_check.profiler_max_shared_chunks": "100000",
}
COUNTS: LiteralString = """
    select f.oid::regprocedure::text, s.stmtid, s.lineno, coalesce(s.exec_stmts, 0) > 0
    from pg_proc f
    join pg_language l on l.oid = f.prolang and l.lanname = 'plpgsql'
    cross join lateral plpgsql_profiler_function_statements_tb(f.oid) s
    where f.pronamespace = 'mdm'::regnamespace
"""


@dataclass
class SqlCoverage:
    """What was run so far: function -> statement -> (line, run at least once)."""

    functions: dict[str, dict[int, tuple[int, bool]]] = field(default_factory=dict)

    def add(self, conn: psycopg.Connection[Any]) -> None:
        """Add what the functions of this database have run."""
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
