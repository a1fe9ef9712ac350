"""Loads the data sets, plays the steward who marks attributes searchable, and enqueues the reindex that follows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from uuid import uuid5

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from jobrunner.demo.data import NAMESPACE, TENANTS, TYPES, Entity, tenant_id

# What the steward wants to be found at first, and what every later run changes her mind about.
SEARCHABLE: Final = {
    "airport": ["name", "city", "region", "country", "icao", "iata"],
    "city": ["name", "alternate_names", "country"],
}
CHANGING: Final = "timezone"
STEWARD: Final = uuid5(NAMESPACE, "principal/steward")
WORKER: Final = uuid5(NAMESPACE, "principal/worker")
WORKER_ROLE: Final = "mdm_demo_worker"


class Loaded(NamedTuple):
    """What a load found and did."""

    rows: int
    written: int


class Change(NamedTuple):
    """What the steward changed: attributes of a type are searchable now, or no longer."""

    type_key: str
    attribute_keys: list[str]
    searchable: bool


def register(conn: psycopg.Connection[Any]) -> None:
    """Register tenants, principals, types and attributes; what is there already stays as it is."""
    with conn.transaction(), conn.cursor() as cursor:
        cursor.executemany(
            "insert into mdm.aa_tenant (id, name) values (%s, %s) on conflict (id) do nothing",
            [(tenant_id(continent), name) for continent, name in TENANTS.items()],
        )
        cursor.executemany(
            "insert into mdm.aa_principal (id, name, kind, role_name) values (%s, %s, %s, %s) on conflict do nothing",
            [(STEWARD, "steward", "user", None), (WORKER, "reindex worker", "service", WORKER_ROLE)],
        )
        cursor.executemany(
            "insert into mdm.ddm_entity_type (id, type_key, name) values (%s, %s, %s) on conflict do nothing",
            [(uuid5(NAMESPACE, f"type/{key}"), key, key.capitalize()) for key in TYPES],
        )
        cursor.executemany(
            """insert into mdm.ddm_entity_type_attribute (entity_type_id, attribute_key, name, data_type)
               select t.id, %s, %s, %s from mdm.ddm_entity_type t where t.type_key = %s
               on conflict (entity_type_id, attribute_key) do nothing""",
            [
                (attribute, attribute.replace("_", " ").capitalize(), data_type, type_key)
                for type_key, attributes in TYPES.items()
                for attribute, data_type in attributes.items()
            ],
        )


def ensure_login(conn: psycopg.Connection[Any], name: str, role: str) -> None:
    """Make a login for the runner of the demo: a member of this role and nothing more."""
    found = conn.execute("select from pg_catalog.pg_roles where rolname = %s", [name]).fetchone()
    if found is None:
        conn.execute(sql.SQL("create role {} login in role {}").format(sql.Identifier(name), sql.Identifier(role)))


def load(conn: psycopg.Connection[Any], entities: Iterable[Entity]) -> Loaded:
    """Bring the entities into ddm_entity, by key: new ones are inserted, changed ones updated, others left alone."""
    with conn.transaction(), conn.cursor() as cursor:
        cursor.execute(
            """create temporary table staging (
                 tenant_id uuid, type_key text, entity_key text, attributes jsonb) on commit drop"""
        )
        with cursor.copy("copy staging from stdin") as copy:
            for entity in entities:
                copy.write_row((entity.tenant_id, entity.type_key, entity.entity_key, Jsonb(entity.attributes)))
        rows = cursor.rowcount
        cursor.execute(
            """insert into mdm.ddm_entity as e (tenant_id, entity_type_id, entity_key, attributes)
               select s.tenant_id, t.id, s.entity_key, s.attributes
               from staging s
               join mdm.ddm_entity_type t using (type_key)
               left join mdm.ddm_entity o
                 on (o.tenant_id, o.entity_type_id, o.entity_key) = (s.tenant_id, t.id, s.entity_key)
               where o.attributes is distinct from s.attributes
               on conflict (tenant_id, entity_type_id, entity_key) do update
               set attributes = excluded.attributes, updated_at = clock_timestamp()
               where e.attributes <> excluded.attributes"""
        )
        written = cursor.rowcount
    conn.execute("analyze mdm.ddm_entity")
    return Loaded(rows, written)


def mark_searchable(conn: psycopg.Connection[Any]) -> list[Change]:
    """Play the steward: mark the first attributes searchable, or toggle one more where that has been done."""
    changes: list[Change] = []
    with conn.transaction():
        for type_key, wanted in SEARCHABLE.items():
            marked = _set_searchable(conn, type_key, wanted, True)
            if marked:
                changes.append(Change(type_key, marked, True))
                continue
            now = _is_searchable(conn, type_key, CHANGING)
            _set_searchable(conn, type_key, [CHANGING], not now)
            changes.append(Change(type_key, [CHANGING], not now))
    return changes


def _set_searchable(conn: psycopg.Connection[Any], type_key: str, keys: list[str], searchable: bool) -> list[str]:
    changed = conn.execute(
        """update mdm.ddm_entity_type_attribute a
           set searchable = %s
           from mdm.ddm_entity_type t
           where t.id = a.entity_type_id and t.type_key = %s and a.attribute_key = any(%s) and a.searchable <> %s
           returning a.attribute_key""",
        [searchable, type_key, keys, searchable],
    ).fetchall()
    return sorted((row[0] for row in changed), key=keys.index)


def _is_searchable(conn: psycopg.Connection[Any], type_key: str, key: str) -> bool:
    row = conn.execute(
        """select a.searchable
           from mdm.ddm_entity_type_attribute a
           join mdm.ddm_entity_type t on t.id = a.entity_type_id
           where t.type_key = %s and a.attribute_key = %s""",
        [type_key, key],
    ).fetchone()
    return row is not None and row[0]


def enqueue(conn: psycopg.Connection[Any]) -> list[int]:
    """Enqueue one reindex a tenant and type that has rows, in the steward's name; gives the ids of the jobs.

    Where one of the tenant and type still waits, that one does this work too.
    """
    rows = conn.execute(
        """select mdm.request_reindex(s.tenant_id, s.type_key, p_actor_principal_id => %s)
           from (select distinct e.tenant_id, t.type_key
                 from mdm.ddm_entity e
                 join mdm.ddm_entity_type t on t.id = e.entity_type_id
                 order by 1, 2) s""",
        [STEWARD],
    ).fetchall()
    return [row[0] for row in rows]
