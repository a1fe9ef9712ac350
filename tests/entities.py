"""Small steps that tests of master data take: make a type, add entities, look at their vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from jobs import Row, call, rows, value

Connection = psycopg.Connection[Any]


def make_type(
    conn: Connection, type_key: str = "thing", searchable: Sequence[str] = (), other: Sequence[str] = ()
) -> UUID:
    """Register an entity type with its attributes and return its id."""
    type_id: UUID = value(conn, "insert into mdm.ddm_entity_type (type_key) values (%s) returning id", type_key)
    for key, flag in [*((key, True) for key in searchable), *((key, False) for key in other)]:
        conn.execute(
            "insert into mdm.ddm_entity_type_attribute (entity_type_id, attribute_key, searchable) values (%s, %s, %s)",
            (type_id, key, flag),
        )
    return type_id


def set_searchable(conn: Connection, type_id: UUID, key: str, searchable: bool = True) -> None:
    """Do what a steward does."""
    conn.execute(
        "update mdm.ddm_entity_type_attribute set searchable = %s where entity_type_id = %s and attribute_key = %s",
        (searchable, type_id, key),
    )


def add_entities(conn: Connection, tenant_id: UUID, type_id: UUID, attributes: Iterable[dict[str, Any]]) -> list[UUID]:
    """Insert entities and return their ids, in the order in which a reindex walks."""
    with conn.cursor() as cursor:
        cursor.executemany(
            """insert into mdm.ddm_entity (tenant_id, entity_type_id, entity_key, attributes)
               values (%s, %s, gen_random_uuid()::text, %s)""",
            [(tenant_id, type_id, Jsonb(one)) for one in attributes],
        )
    return walk(conn, tenant_id, type_id)


def walk(conn: Connection, tenant_id: UUID, type_id: UUID) -> list[UUID]:
    """Return the ids of a tenant and type in the order in which a reindex walks."""
    found = conn.execute(
        "select id from mdm.ddm_entity where tenant_id = %s and entity_type_id = %s order by id", (tenant_id, type_id)
    )
    return [row[0] for row in found]


def make_stale(conn: Connection) -> None:
    """Spoil every vector behind the trigger's back."""
    conn.execute("update mdm.ddm_entity set search_vector = 'stale'")


def stale(conn: Connection) -> int:
    """Count the entities whose vector is not what their searchable attributes say."""
    return int(
        value(
            conn,
            """select count(*)
               from mdm.ddm_entity e
               where e.search_vector is distinct from mdm._entity_search_vector(e.attributes, array(
                 select a.attribute_key from mdm.ddm_entity_type_attribute a
                 where a.entity_type_id = e.entity_type_id and a.searchable))""",
        )
    )


def words(conn: Connection, entity_id: UUID) -> set[str]:
    """Return the words of an entity's vector."""
    return set(value(conn, "select tsvector_to_array(search_vector) from mdm.ddm_entity where id = %s", entity_id))


def chunk(conn: Connection, claimed: Row, limit: int | None = None) -> Row:
    """Run one chunk of a claimed reindex."""
    [done] = call(conn, "reindex_chunk", job_id=claimed["id"], lease_no=claimed["lease_no"], limit=limit)
    return done


def progress(conn: Connection, job_id: int) -> Row | None:
    """Return the progress row of a job, None when there is none."""
    found = rows(conn, "select * from mdm.aa_reindex_progress where job_id = %s", job_id)
    return found[0] if found else None
