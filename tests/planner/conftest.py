"""Databases for the planner's tests, prepared but empty; autovacuum does not meddle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from cluster import PgServer, database
from planner.loads import prepare
from planner.plans import Connection, Open


@pytest.fixture(scope="module")
def make_database(pg_server: PgServer, template: Any) -> Iterator[Callable[[], Open]]:
    """Make a database and return what opens sessions of it; both live as long as the module's tests."""
    with ExitStack() as stack:

        def make() -> Open:
            dsn = stack.enter_context(database(pg_server, template.template_dbname))

            def open_one(**options: Any) -> Connection:
                return stack.enter_context(psycopg.connect(dsn, autocommit=True, **options))

            prepare(open_one())
            return open_one

        yield make
