"""What the statements inside the functions do: their plans, as notices of the session that runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg.errors import Diagnostic

Connection = psycopg.Connection[Any]
Plan = dict[str, Any]
Open = Callable[[], Connection]

SETTINGS: LiteralString = """
    load 'auto_explain';
    set auto_explain.log_min_duration = 0;
    set auto_explain.log_nested_statements = on;
    set auto_explain.log_analyze = on;
    set auto_explain.log_timing = off;
    set auto_explain.log_format = json;
    set auto_explain.log_level = notice;
"""


@dataclass
class Watch:
    """What was seen: the indexes by which one table was reached, `seq` for a walk over it, and whether JIT ran."""

    table: str = "aa_job"
    indexes: set[str] = field(default_factory=set)
    removed: int = 0
    jit: bool = False
    plans: list[Plan] = field(default_factory=list)

    def add(self, diagnostic: Diagnostic) -> None:
        """Take the plan out of one notice of auto_explain."""
        message = diagnostic.message_primary or ""
        _, found, text = message.partition("plan:\n")
        if found:
            plan = json.loads(text)
            self.plans.append(plan)
            self.jit = self.jit or "JIT" in plan
            self.walk(plan["Plan"], None)

    def walk(self, node: Plan, parent: str | None) -> None:
        """Note how a plan reaches the table, where it is run at all; a bitmap is named by the table above it."""
        if node["Actual Loops"] == 0:
            return
        relation = node.get("Relation Name", parent)
        if relation == self.table:
            if node["Node Type"] == "Bitmap Index Scan":
                self.indexes.add(f"bitmap {node['Index Name']}")
            elif node["Node Type"] in ("Index Scan", "Index Only Scan", "Seq Scan"):
                self.indexes.add(node.get("Index Name", "seq"))
            lost = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            self.removed = max(self.removed, lost * node["Actual Loops"])
        for child in node.get("Plans", ()):
            self.walk(child, relation if node["Node Type"].startswith("Bitmap") else None)


@contextmanager
def watching(conn: Connection, table: str = "aa_job") -> Iterator[Watch]:
    """Collect the plans of all that this session runs, functions' inner statements included."""
    watch = Watch(table)
    conn.execute(SETTINGS)
    conn.add_notice_handler(watch.add)
    try:
        yield watch
    finally:
        conn.remove_notice_handler(watch.add)
        conn.execute("set auto_explain.log_min_duration = -1")


def buffers(conn: Connection, query: LiteralString, *parameters: Any) -> int:
    """Run a query and return the pages it touched, those of its functions' inner statements included."""
    [[[found]]] = conn.execute(b"explain (analyze, buffers, timing off, format json) " + query.encode(), parameters)
    return int(found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"])
