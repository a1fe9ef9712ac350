"""A call of one mdm function, apart from the connection that carries it: so that several can share a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, LiteralString, TypeVar

import psycopg
from psycopg.rows import tuple_row

T_co = TypeVar("T_co", covariant=True)
Rows = list[tuple[Any, ...]]


class LeaseLost(Exception):
    """SQLSTATE MJ001: the job does not run under this lease any more (D2); `detail` says what became of it."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(f"{message} ({detail})")
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """The text of a call, its parameters, and what its rows mean."""

    sql: LiteralString
    read: Callable[[Rows], T_co]
    params: Mapping[str, Any] = field(default_factory=dict)


def send(conn: psycopg.Connection[Any], call: Call[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
    """Execute the call in whatever transaction is open (none: in one of its own), without reading its rows.

    The cursor is made by hand: a handler may have changed the connection's row and cursor factories.
    """
    cursor = psycopg.Cursor(conn, row_factory=tuple_row)
    return cursor.execute(call.sql, call.params or None, prepare=True)


def read(cursor: psycopg.Cursor[tuple[Any, ...]], call: Call[T_co]) -> T_co:
    """Give the rows of a cursor their meaning; a call that is no query has no rows."""
    return call.read(cursor.fetchall() if cursor.rownumber is not None else [])


def nothing(rows: Rows) -> None:
    """Read the rows of a call that gives nothing."""


def ids(rows: Rows) -> set[int]:
    """Read a setof bigint."""
    return {row[0] for row in rows}


def lease_lost(error: psycopg.Error) -> LeaseLost:
    """Turn an error with SQLSTATE MJ001 into LeaseLost."""
    return LeaseLost(error.diag.message_primary or "lease lost", error.diag.message_detail or "unknown")
