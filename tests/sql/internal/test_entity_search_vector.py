"""The words of an entity: what the trigger and reindex share."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from entities import Connection
from jobs import value

pytestmark = pytest.mark.filterwarnings("default")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def vector(conn: Connection, attributes: Any, keys: list[Any] | None) -> str:
    given_attributes = None if attributes is None else Jsonb(attributes)
    return str(value(conn, "select mdm._entity_search_vector(%s, %s::text[])::text", given_attributes, keys))


@pytest.mark.parametrize(
    ("attributes", "keys", "expected"),
    [
        ({"name": "Big Ben"}, ["name"], "'ben':2 'big':1"),
        ({"name": "Big Ben", "secret": "x"}, ["name"], "'ben':2 'big':1"),
        ({"n": 12.5, "z": 0}, ["n", "z"], "'0':3 '12.5':1"),
        ({"list": ["a", {"deep": ["b"]}]}, ["list"], "'a':1 'b':3"),
        ({"name": None, "flag": True}, ["name", "flag"], ""),
        ({"name": ""}, ["name"], ""),
        ({"name": "x"}, ["missing"], ""),
        ({"name": "x"}, [], ""),
        ({"name": "x"}, None, ""),
        ({"name": "x", "": "y"}, ["", None, "name"], "'x':3 'y':1"),
        ({}, ["name"], ""),
        (["name"], ["name"], ""),
        ("name", ["name"], ""),
        (None, ["name"], ""),
        ({"name": "Zürich Москва 東京"}, ["name"], "'zürich':1 'Москва':2 '東京':3"),
    ],
)
def test_entity_search_vector_takes_the_words_of_its_keys(
    conn: Connection, attributes: Any, keys: list[Any] | None, expected: str
) -> None:
    assert value(conn, "select %s::tsvector = %s::tsvector", vector(conn, attributes, keys), expected)


@given(attributes=st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4), keys=st.lists(st.sampled_from("abcde")))
@settings(max_examples=200, deadline=None)
def test_entity_search_vector_is_that_of_the_selected_object(
    shared_admin: Connection, attributes: dict[str, Any], keys: list[str]
) -> None:
    selected = {key: inner for key, inner in attributes.items() if key in keys}
    expected = value(
        shared_admin,
        """select jsonb_to_tsvector('pg_catalog.simple', %s, '["string", "numeric"]')::text""",
        Jsonb(selected),
    )
    assert vector(shared_admin, attributes, keys) == expected


@pytest.mark.parametrize(
    "attribute",
    [
        "select to_jsonb(string_agg('word' || i, ' ')) from generate_series(1, 200000) i",
        "select to_jsonb(string_agg(chr(20000 + i % 20000), ' ')) from generate_series(1, 200000) i",
        # words of words: the text with the most lexemes a character
        "select to_jsonb(string_agg(chr(66304 + i % 30) || chr(66304 + i / 30 % 30) || "
        "case i % 50 when 0 then ' ' else '-' end, '')) from generate_series(1, 200000) i",
        "select to_jsonb(string_agg(to_hex(i) || '.de/b', ' ')) from generate_series(1, 200000) i",
        "select to_jsonb(repeat('x', 3000000))",
        "select jsonb_agg('w' || i) from generate_series(1, 200000) i",
        "select jsonb_agg(jsonb_build_object('k', i, 'n', null, 'b', true)) from generate_series(1, 100000) i",
        "select jsonb_agg(''::text) from generate_series(1, 200000) i",
    ],
)
def test_entity_search_vector_cuts_what_a_tsvector_cannot_hold(conn: Connection, attribute: str) -> None:
    conn.execute("set client_min_messages = error")
    size = conn.execute(
        f"select pg_column_size(mdm._entity_search_vector(jsonb_build_object('a', ({attribute})), array['a']))".encode()
    ).fetchone()
    assert size is not None
    assert size[0] < 1 << 20


def test_entity_search_vector_keeps_the_head_of_a_long_text(conn: Connection) -> None:
    text = "first " + "filler " * 20_000 + "last"
    found = vector(conn, {"a": text, "b": "hidden"}, ["a"])
    assert "'first'" in found
    assert "'last'" not in found
    assert "'hidden'" not in found
