"""Installing into a schema that a platform has already (D20): its tables are used, and what they miss is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from cluster import PgServer
from jobrunner import schema
from jobrunner.errors import JobrunnerError
from jobs import actions, claim_one, enqueue, finish, value

Connection = psycopg.Connection[Any]

# What a platform called acme brings: the tables of the data model in its own words, with columns that we do not know.
ACME: LiteralString = """
do $$ begin create role acme nologin; exception when duplicate_object then null; end $$;
create schema mdm authorization acme;
set role acme;
create type mdm.audit_action as enum ('login', 'logout');
create table mdm.aa_tenant (id uuid primary key, name text, metadata jsonb default '{}', country text default 'DE');
create table mdm.aa_principal (id uuid primary key, name text unique, kind text, role_name name, email text);
create table mdm.aa_principal_tenant (
  principal_id uuid references mdm.aa_principal, tenant_id uuid references mdm.aa_tenant);
create table mdm.aa_audit_log (
  id bigint generated always as identity, occurred_at timestamptz, action mdm.audit_action, actor_principal_id uuid,
  session_role name, tenant_id uuid, object_type text, object_id text, payload jsonb, hash bytea);
"""
# Its master data has the columns of our stand-ins and more.
ACME_FILES = ("index_status", "ddm_entity_type", "ddm_entity_type_attribute", "ddm_entity")


@pytest.fixture
def acme(empty_dsn: str) -> Iterator[Connection]:
    """A database with the tables of a platform."""
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(ACME)
        for name in ACME_FILES:
            conn.execute((schema.data_dir("sql") / "platform" / f"{name}.sql").read_bytes())
        conn.execute("alter table mdm.ddm_entity add column golden_record boolean")
        conn.execute("reset role")
        yield conn


def test_migrate_uses_the_tables_of_a_platform(acme: Connection) -> None:
    schema.migrate(dsn(acme))
    tenant = value(acme, "insert into mdm.aa_tenant (id, country) values (gen_random_uuid(), 'FR') returning id")

    job_id = enqueue(acme, tenant_id=tenant)
    finish(acme, claim_one(acme))

    assert actions(acme, job_id) == ["job_enqueued", "job_done"]
    assert value(acme, "select relowner::regrole::text from pg_class where oid = 'mdm.aa_tenant'::regclass") == "acme"
    assert value(acme, "select 'login'::mdm.audit_action is not null")
    assert schema.migrate(dsn(acme)).migrations == ()


def test_migrate_says_which_columns_a_platform_misses(acme: Connection) -> None:
    acme.execute("alter table mdm.aa_principal drop column role_name")
    acme.execute("alter table mdm.aa_audit_log drop column session_role")
    with pytest.raises(JobrunnerError, match=r"mdm\.aa_audit_log\.session_role, mdm\.aa_principal\.role_name"):
        schema.migrate(dsn(acme))


def test_migrate_says_which_grants_an_installer_has_to_ask_for(acme: Connection, pg_server: PgServer) -> None:
    acme.execute("do $$ begin create role acme_dba login createrole; exception when duplicate_object then null; end $$")
    acme.execute(f"grant create on database {acme.info.dbname} to acme_dba".encode())
    acme.execute("grant usage, create on schema mdm to acme_dba with grant option")
    for role in ("mdm_owner", "mdm_platform"):
        acme.execute(
            f"do $$ begin create role {role} nologin; exception when duplicate_object then null; end $$".encode()
        )
    admin = " with admin option" if acme.info.server_version >= 160000 else ""
    acme.execute(f"grant mdm_owner, mdm_platform to acme_dba{admin}".encode())
    acme.execute("alter type mdm.audit_action owner to mdm_platform")

    plain = dsn(acme).replace("postgres@", "acme_dba@")
    with pytest.raises(JobrunnerError, match=r"grant references on mdm\.aa_tenant to mdm_platform"):
        schema.migrate(plain)


def dsn(conn: Connection) -> str:
    """Return where a connection leads."""
    return f"postgresql://postgres@/{conn.info.dbname}?host={conn.info.host.replace('/', '%2F')}&port={conn.info.port}"
