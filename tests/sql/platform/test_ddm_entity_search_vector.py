"""The trigger of our stand-in: vectors are right while rows change."""

from __future__ import annotations

from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from entities import Connection, add_entities, make_stale, make_type, set_searchable, stale, words
from jobs import make_tenant, value


@pytest.fixture
def thing(conn: Connection) -> UUID:
    return make_type(conn, "thing", searchable=["name"], other=["note"])


def test_search_vector_is_built_on_insert(conn: Connection, thing: UUID) -> None:
    [entity] = add_entities(conn, make_tenant(conn), thing, [{"name": "Big Ben", "note": "hidden"}])
    assert words(conn, entity) == {"big", "ben"}


def test_search_vector_follows_the_attributes_and_the_type(conn: Connection, thing: UUID) -> None:
    [entity] = add_entities(conn, make_tenant(conn), thing, [{"name": "old", "note": "seen"}])
    conn.execute(
        "update mdm.ddm_entity set attributes = %s where id = %s", (Jsonb({"name": "new", "note": "seen"}), entity)
    )
    assert words(conn, entity) == {"new"}
    other = make_type(conn, "other", searchable=["note"])
    conn.execute("update mdm.ddm_entity set entity_type_id = %s where id = %s", (other, entity))
    assert words(conn, entity) == {"seen"}


def test_search_vector_is_stale_until_a_reindex_when_a_steward_changes_the_attributes(
    conn: Connection, thing: UUID
) -> None:
    add_entities(conn, make_tenant(conn), thing, [{"name": "a", "note": "b"}])
    set_searchable(conn, thing, "note")
    assert stale(conn) == 1


def test_search_vector_written_alone_does_not_fire_the_trigger(conn: Connection, thing: UUID) -> None:
    [entity] = add_entities(conn, make_tenant(conn), thing, [{"name": "a"}])
    make_stale(conn)
    assert words(conn, entity) == {"stale"}


def test_search_vector_trigger_is_only_on_our_own_table(conn: Connection) -> None:
    assert value(
        conn,
        """select t.tgenabled = 'O' and c.relowner = 'mdm_platform'::regrole
           from pg_trigger t join pg_class c on c.oid = t.tgrelid
           where t.tgname = 'ddm_entity_search_vector'""",
    )
