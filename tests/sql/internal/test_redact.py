"""_redact (model: aa_job_kind.redact): the listed keys of a payload are hidden, the rest is untouched."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from jobs import Connection, value

HIDDEN = "[redacted]"


@pytest.mark.parametrize(
    ("payload", "keys", "shown"),
    [
        ({"a": 1, "b": 2}, [], {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, ["a"], {"a": HIDDEN, "b": 2}),
        ({"a": 1, "b": 2}, ["a", "b", "c"], {"a": HIDDEN, "b": HIDDEN}),
        ({"a": {"deep": 1}, "l": ["a"]}, ["a"], {"a": HIDDEN, "l": ["a"]}),
        ({"a": None}, ["a"], {"a": HIDDEN}),
        ({"n": {"a": 1}}, ["a"], {"n": {"a": 1}}),
        ({"A": 1}, ["a"], {"A": 1}),
        ({"": 1, "é": 2}, ["", "é"], {"": HIDDEN, "é": HIDDEN}),
        ({"a": 1}, [None], {"a": 1}),
        ({"a": 1}, [None, "a"], {"a": HIDDEN}),
        ({}, ["a"], {}),
    ],
    ids=repr,
)
def test_redact_hides_the_listed_keys(conn: Connection, payload: Any, keys: Any, shown: Any) -> None:
    assert value(conn, "select mdm._redact(%s, %s)", Jsonb(payload), keys) == shown
