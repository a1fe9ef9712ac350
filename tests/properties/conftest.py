"""Hypothesis: short and the same every time under CI, longer by HYPOTHESIS_PROFILE=long."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from jobs import Connection

# The database is shared by the examples on purpose, and a machine under load is no finding.
COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
settings.register_profile("ci", derandomize=True, database=None, **COMMON)
settings.register_profile("short", **COMMON)
settings.register_profile("long", max_examples=2000, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "short"))


@pytest.fixture
def pure(conn: Connection) -> Callable[..., Any]:
    """Call a private function of the schema with positional arguments: pure("_backoff", 1, ...)."""

    def call(function: str, *arguments: Any) -> Any:
        places = ", ".join(["%s"] * len(arguments))
        query = f"select mdm.{function}({places})"
        return conn.execute(query.encode(), arguments).fetchone()[0]  # type: ignore[index]

    return call
