"""Sessions for races: every statement of theirs has a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from races.sessions import IMPATIENT, OPTIONS, Connection


@pytest.fixture
def session(dsn: str, connect: Callable[..., Connection]) -> Callable[..., Connection]:
    """Open a session that waits for locks; session(patient=False) gives up after a second (55P03)."""

    def open_one(*, patient: bool = True, **options: Any) -> Connection:
        return connect(**{"dsn": dsn, "options": OPTIONS if patient else IMPATIENT, **options})

    return open_one
