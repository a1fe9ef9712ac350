"""The scenario import (S2.2): rows a second of bulk_import, beside one bare INSERT ... SELECT of the same rows."""

from __future__ import annotations

from itertools import cycle, islice
from time import monotonic
from typing import Any, Final

import psycopg
from kit import Bench
from psycopg.types.json import Jsonb
from tables import settle

from jobrunner.demo.data import TYPES, Entity, entities
from jobrunner.demo.load import SEARCHABLE

TYPE: Final = "city"
# what is imported, without checks, chunks, marks and a report; the trigger that keeps the search vector works for both
BARE: Final = """
    insert into mdm.ddm_entity (tenant_id, entity_type_id, entity_key, attributes)
    select i.tenant_id, i.entity_type_id, r.entity_key, r.attributes
    from mdm.aa_import_row r
    join mdm.aa_import i on i.id = r.import_id
"""


def import_rows(bench: Bench) -> None:
    """Import an upload of real cities with one jobrunner process."""
    count = 10_000 if bench.quick else 100_000
    cities = [one for one in entities() if one.type_key == TYPE]
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        upload(conn, cities, count)
        conn.execute("set plan_cache_mode = force_generic_plan")  # as in import_chunk: the trigger is the most of it
        began = monotonic()
        conn.execute(BARE)
        bare = count / (monotonic() - began)
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        upload(conn, cities, count)
        conn.execute("update mdm.aa_import set status = 'pending'")
        with bench.runner(dsn, "--drain", kinds="bulk_import") as process:
            process.wait(600)
        [(imported, seconds)] = conn.execute(
            """select i.rows_imported, extract(epoch from j.completed_at - j.claimed_at)::float8
               from mdm.aa_import i, mdm.aa_job j
               where i.status = 'done' and j.job_kind = 'bulk_import'"""
        ).fetchall()
    if imported != count:
        raise SystemExit(f"bench: {imported} of {count} rows were imported")
    bench.report("import", "one INSERT ... SELECT", bare, "rows/s")
    limit = "one INSERT ... SELECT of the same rows"
    bench.report("import", f"{count:,} rows by bulk_import, one job", count / seconds, "rows/s", bare, limit)


def register(conn: psycopg.Connection[Any]) -> tuple[Any, Any]:
    """Make a tenant and the type with its attributes; their ids."""
    [(tenant,)] = conn.execute("insert into mdm.aa_tenant (id) values (gen_random_uuid()) returning id").fetchall()
    [(type_id,)] = conn.execute(
        "insert into mdm.ddm_entity_type (type_key) values (%s) returning id", (TYPE,)
    ).fetchall()
    with conn.cursor() as cursor:
        cursor.executemany(
            """insert into mdm.ddm_entity_type_attribute (entity_type_id, attribute_key, data_type, searchable)
               values (%s, %s, %s, %s)""",
            [(type_id, key, data_type, key in SEARCHABLE[TYPE]) for key, data_type in TYPES[TYPE].items()],
        )
    return tenant, type_id


def upload(conn: psycopg.Connection[Any], cities: list[Entity], count: int) -> None:
    """Stage so many rows, the cities again and again under different keys; the upload is not complete yet."""
    tenant, type_id = register(conn)
    [(import_id,)] = conn.execute(
        "insert into mdm.aa_import (tenant_id, entity_type_id, status) values (%s, %s, 'uploading') returning id",
        (tenant, type_id),
    ).fetchall()
    rows = islice(enumerate(cycle(cities), 1), count)
    with (
        conn.cursor() as cursor,
        cursor.copy("copy mdm.aa_import_row (import_id, row_no, entity_key, attributes) from stdin") as copy,
    ):
        for number, city in rows:
            copy.write_row((import_id, number, f"{city.entity_key}-{number}", Jsonb(city.attributes)))
    settle(conn)
