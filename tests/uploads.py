"""Small steps that tests of imports take: register types, upload rows, look at them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from jobs import Connection, Row, call, rows, value


def add_attribute(conn: Connection, type_id: UUID, key: str, data_type: str = "text", **flags: Any) -> None:
    """Register an attribute; flags: required, reference_type_id."""
    conn.execute(
        """insert into mdm.ddm_entity_type_attribute
             (entity_type_id, attribute_key, data_type, required, reference_type_id)
           values (%s, %s, %s, %s, %s)""",
        (type_id, key, data_type, flags.get("required", False), flags.get("reference_type_id")),
    )


def upload(conn: Connection, tenant_id: UUID, type_id: UUID, given: list[tuple[Any, Any]]) -> UUID:
    """Upload (entity_key, attributes) rows, in one transaction as the REST endpoint does, and return its id."""
    with conn.transaction():
        import_id: UUID = value(
            conn,
            "insert into mdm.aa_import (tenant_id, entity_type_id) values (%s, %s) returning id",
            tenant_id,
            type_id,
        )
        with conn.cursor() as cursor:
            cursor.executemany(
                "insert into mdm.aa_import_row (import_id, row_no, entity_key, attributes) values (%s, %s, %s, %s)",
                [
                    (import_id, number, key, None if attributes is None else Jsonb(attributes))
                    for number, (key, attributes) in enumerate(given, 1)
                ],
            )
    return import_id


def upload_many(conn: Connection, tenant_id: UUID, type_id: UUID, count: int) -> UUID:
    """Upload `count` rows with keys 1, 2, 3 ..."""
    with conn.transaction():
        import_id: UUID = value(
            conn,
            "insert into mdm.aa_import (tenant_id, entity_type_id) values (%s, %s) returning id",
            tenant_id,
            type_id,
        )
        conn.execute(
            """insert into mdm.aa_import_row (import_id, row_no, entity_key, attributes)
               select %s, n, n::text, jsonb_build_object('name', 'name ' || n) from generate_series(1, %s) n""",
            (import_id, count),
        )
    return import_id


def chunk(conn: Connection, claimed: Row, limit: int | None = None, reject: str | None = None) -> tuple[int, int, bool]:
    """Run one chunk of a claimed import: rows imported, rows rejected, is it the last."""
    [done] = call(
        conn, "import_chunk", job_id=claimed["id"], lease_no=claimed["lease_no"], limit=limit, reject=reject
    )  # fmt: skip
    return done["rows_imported"], done["rows_rejected"], done["is_last"]


def the_import(conn: Connection, import_id: UUID) -> Row:
    """The row of an upload."""
    [row] = rows(conn, "select * from mdm.aa_import where id = %s", import_id)
    return row


def outcomes(conn: Connection, import_id: UUID) -> list[tuple[str, str | None]]:
    """Status and error of each row, in order."""
    query = "select status::text, error from mdm.aa_import_row where import_id = %s order by row_no"
    return [(row[0], row[1]) for row in conn.execute(query, (import_id,))]


def entities(conn: Connection, tenant_id: UUID) -> dict[str, Any]:
    """Key -> attributes of a tenant's entities."""
    query = "select entity_key, attributes from mdm.ddm_entity where tenant_id = %s"
    return dict(conn.execute(query, (tenant_id,)).fetchall())
