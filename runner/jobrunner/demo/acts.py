"""What the platform does in `bin/run --all`: it writes to its own tables, whose triggers enqueue the jobs (S2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from uuid import uuid4, uuid5

import psycopg
from psycopg.types.json import Jsonb

from jobrunner.demo.clamd import MARKER
from jobrunner.demo.data import NAMESPACE, TENANTS, Entity, tenant_id
from jobrunner.demo.load import STEWARD

# One is sortable, and one the target of external sources, in turns: every run builds an index and drops another.
SORTED: Final = {"airport": "elevation_ft", "city": "population"}
FILES: Final = {"clean.txt": b"", "infected.txt": MARKER}
REFUSED: Final = "gone@refused.example"
SUPPRESSED: Final = "unsubscribed@europe.example"
ATLANTIS: Final = Entity(tenant_id("EU"), "country", "XX", {"name": "Atlantis", "population": "it sank"})
EVENTS_PER_TENANT: Final = 20


def make_sortable(conn: psycopg.Connection[Any]) -> str:
    """Let the steward want to sort by the other one of SORTED; gives the name of the type (index_sync, S2.7)."""
    pairs = [f"{type_key}.{key}" for type_key, key in SORTED.items()]
    row = conn.execute(
        """with pair as (
             select a.id, t.type_key, a.sortable
             from mdm.ddm_entity_type_attribute a
             join mdm.ddm_entity_type t on t.id = a.entity_type_id
             where t.type_key || '.' || a.attribute_key = any(%s)),
           chosen as (select min(p.type_key) as type_key from pair p where not p.sortable),
           changed as (
             update mdm.ddm_entity_type_attribute a
             set sortable = not p.sortable
             from pair p, chosen c
             where a.id = p.id and p.sortable <> (p.type_key = c.type_key))
           select c.type_key from chosen c""",
        [pairs],
    ).fetchone()
    assert row is not None
    return str(row[0])


def make_target(conn: psycopg.Connection[Any]) -> str:
    """Make the other one of two types the target of external sources; gives its name (gin_backfill, S2.8)."""
    row = conn.execute(
        """with chosen as (
             select min(t.type_key) as type_key
             from mdm.ddm_entity_type t
             where t.type_key = any(%(types)s) and not t.is_external_source_target),
           changed as (
             update mdm.ddm_entity_type t
             set is_external_source_target = not t.is_external_source_target
             from chosen c
             where t.type_key = any(%(types)s) and t.is_external_source_target <> (t.type_key = c.type_key))
           select c.type_key from chosen c""",
        {"types": list(SORTED)},
    ).fetchone()
    assert row is not None
    return str(row[0])


def attach(conn: psycopg.Connection[Any], storage: Path) -> None:
    """Attach a clean and an infected data sheet to an airport (virus_scan, S2.6)."""
    for file_name, tail in FILES.items():
        key = str(uuid4())
        with conn.transaction():
            row = conn.execute(
                """select e.id, e.tenant_id, e.attributes::text
                   from mdm.ddm_entity e
                   join mdm.ddm_entity_type t on t.id = e.entity_type_id
                   where t.type_key = 'airport'
                   order by e.entity_key
                   limit 1"""
            ).fetchone()
            assert row is not None
            content = row[2].encode() + tail
            (storage / key).write_bytes(content)
            conn.execute(
                """insert into mdm.ddm_attachment
                     (entity_id, tenant_id, file_name, content_type, storage_key, size_bytes)
                   values (%s, %s, %s, 'text/plain', %s, %s)""",
                [row[0], row[1], file_name, key, len(content)],
            )


def upload(conn: psycopg.Connection[Any], countries: Iterable[Entity]) -> tuple[int, int]:
    """Upload a file of countries a tenant, one line of them wrong; gives files and lines (bulk_import, S2.2)."""
    conn.execute(
        """update mdm.ddm_entity_type_attribute a
           set required = true, searchable = true
           from mdm.ddm_entity_type t
           where t.id = a.entity_type_id and t.type_key = 'country' and a.attribute_key = 'name' and not a.required"""
    )
    lines = sorted([*countries, ATLANTIS], key=lambda entity: (entity.tenant_id, entity.entity_key))
    files = [list(group) for _, group in groupby(lines, key=lambda entity: entity.tenant_id)]
    for file in files:
        _upload_one(conn, file)
    return len(files), len(lines)


def _upload_one(conn: psycopg.Connection[Any], lines: list[Entity]) -> None:
    with conn.transaction(), conn.cursor() as cursor:
        cursor.execute(
            """insert into mdm.aa_import (tenant_id, entity_type_id, file_name)
               select %s, t.id, 'countries.csv' from mdm.ddm_entity_type t where t.type_key = 'country'
               returning id""",
            [lines[0].tenant_id],
        )
        row = cursor.fetchone()
        assert row is not None
        cursor.executemany(
            "insert into mdm.aa_import_row (import_id, row_no, entity_key, attributes) values (%s, %s, %s, %s)",
            [(row[0], no, line.entity_key, Jsonb(line.attributes)) for no, line in enumerate(lines, 1)],
        )


def send_mails(conn: psycopg.Connection[Any]) -> int:
    """Tell each tenant, and once somebody who is not there and somebody who wants no mail (email_send, S2.1)."""
    conn.execute(
        """insert into mdm.aa_email_suppression (address, reason) values (%s, 'unsubscribe')
           on conflict do nothing""",
        [SUPPRESSED],
    )
    for continent, name in TENANTS.items():
        send_mail(conn, continent, [f"owner@{name.lower().replace(' ', '-')}.example"])
    send_mail(conn, "EU", ["steward@europe.example", SUPPRESSED, REFUSED])
    return len(TENANTS) + 1


def send_mail(conn: psycopg.Connection[Any], continent: str, addresses: list[str]) -> None:
    """Enqueue a mail in the steward's name."""
    conn.execute(
        """select mdm.send_email(p_tenant_id => %s, p_to => %s, p_subject => 'Countries were uploaded',
             p_text => 'See what was rejected.', p_actor_principal_id => %s)""",
        [tenant_id(continent), addresses, STEWARD],
    )


def register_consumers(conn: psycopg.Connection[Any], url: Callable[[str], str], secret: str) -> None:
    """Register a webhook consumer a tenant; `url` makes the address of a path."""
    with conn.cursor() as cursor:
        cursor.executemany(
            """insert into mdm.aa_webhook_endpoint (id, tenant_id, url, secret) values (%s, %s, %s, %s)
               on conflict (id) do update
               set url = excluded.url, secret = excluded.secret, enabled = true, failures = 0, paused_until = null""",
            [
                (uuid5(NAMESPACE, f"endpoint/{continent}"), tenant_id(continent), url(f"/{continent}"), secret)
                for continent in TENANTS
            ],
        )


def publish(conn: psycopg.Connection[Any]) -> int:
    """Write an event for each large city, a statement a tenant; gives their number (outbox_dispatch, S2.4)."""
    return sum(
        conn.execute(
            """insert into mdm.aa_outbox_event (tenant_id, event_type, object_type, object_id, payload)
               select e.tenant_id, 'entity.updated', 'entity', e.id::text, e.attributes - 'alternate_names'
               from mdm.ddm_entity e
               join mdm.ddm_entity_type t on t.id = e.entity_type_id
               where t.type_key = 'city' and e.tenant_id = %s
               order by (e.attributes ->> 'population')::numeric desc nulls last, e.id
               limit %s""",
            [tenant_id(continent), EVENTS_PER_TENANT],
        ).rowcount
        for continent in TENANTS
    )
