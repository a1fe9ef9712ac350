"""Looks at the world after `bin/run --all`, not at a log: what came to the servers, and what stands in the tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg

from jobrunner.demo import result
from jobrunner.demo.clamd import MARKER
from jobrunner.demo.hooks import Hooks
from jobrunner.demo.postbox import Postbox


class Check(NamedTuple):
    """What was looked at, and whether it is as it should be."""

    good: bool
    text: str


class Jobs(NamedTuple):
    """What became of the jobs of a kind; the handlers ran for so many seconds in all."""

    number: int
    outcome: str
    good: bool
    seconds: float


def now(conn: psycopg.Connection[Any]) -> datetime:
    """Return the time by the database's clock."""
    [(at,)] = _rows(conn, "select clock_timestamp()")
    return at  # type: ignore[no-any-return]


def jobs(conn: psycopg.Connection[Any], since: datetime) -> dict[str, Jobs]:
    """Count the jobs that have ended since then, or have not ended; only mails that were refused may be dead."""
    rows = _rows(
        conn,
        """with counted as (
             select j.job_kind, j.status, count(*) as jobs,
               bool_and(j.status = 'done' or j.status = 'dlq' and exists (
                 select from mdm.aa_email_log l where l.job_id = j.id and l.refused)) as good,
               coalesce(sum(extract(epoch from j.completed_at - j.claimed_at)), 0)::float8 as seconds
             from mdm.aa_job j
             where j.completed_at >= %s or j.completed_at is null
             group by j.job_kind, j.status)
           select c.job_kind, sum(c.jobs)::int, string_agg(c.jobs || ' ' || c.status, ', ' order by c.status),
             bool_and(c.good), sum(c.seconds)
           from counted c
           group by c.job_kind""",
        since,
    )
    return {row[0]: Jobs._make(row[1:]) for row in rows}


def dead(conn: psycopg.Connection[Any], since: datetime) -> list[tuple[int, str, str]]:
    """Read which jobs died, and why."""
    return _rows(
        conn,
        "select id, job_kind, coalesce(last_error, '') from mdm.v_job_dlq where completed_at >= %s order by id",
        since,
    )


def _equal(found: Sequence[Any], what: str, wanted: Sequence[Any], of_what: str) -> Check:
    """Compare what should have the same members; nothing at all is not good."""
    good = bool(found) and sorted(found) == sorted(wanted)
    return Check(good, f"{len(found):,} {what} {'=' if good else 'are not the'} {len(wanted):,} {of_what}")


def _rows(conn: psycopg.Connection[Any], query: LiteralString, *parameters: Any) -> list[Any]:
    return conn.execute(query, parameters).fetchall()


def mails(conn: psycopg.Connection[Any], since: datetime, box: Postbox) -> list[Check]:
    """Compare what the mail server got and refused with the email log (S2.1)."""
    rows = _rows(
        conn,
        """select recipient, provider_message_id, status::text, refused from mdm.aa_email_log
           where coalesce(sent_at, created_at) >= %s""",
        since,
    )
    arrived = [(to[0], str(mail["Message-ID"])) for to, mail in zip(box.recipients, box.mails, strict=True)]
    sent = [(row[0], row[1]) for row in rows if row[2] == "sent"]
    refused = [row[0] for row in rows if row[3]]
    suppressed = [row[0] for row in rows if row[2] == "suppressed"]
    spared = bool(suppressed) and not set(suppressed) & set(box.addressees)
    return [
        _equal(arrived, "mails received", sent, "sent in email_log"),
        _equal(box.refused, "refused", refused, "refused in email_log"),
        Check(spared, f"{len(suppressed):,} suppressed {'got none' if spared else 'got one'}"),
    ]


def calls(conn: psycopg.Connection[Any], since: datetime, hooks: Hooks) -> list[Check]:
    """Compare the calls whose signature was verified with the deliveries (S2.4)."""
    rows = _rows(
        conn,
        """select w.url, 'evt_' || d.event_id from mdm.aa_webhook_delivery d
           join mdm.aa_webhook_endpoint w on w.id = d.endpoint_id
           join mdm.aa_outbox_event o on o.id = d.event_id
           where o.created_at >= %s or d.completed_at >= %s""",
        since,
        since,
    )
    received = [(hooks.url(one.path), one.webhook_id) for one in hooks.received]
    return [_equal(received, "calls received and verified", rows, "deliveries")]


def scans(conn: psycopg.Connection[Any], since: datetime, storage: Path) -> list[Check]:
    """Compare virus_scan_status with what is in the files (S2.6)."""
    rows = _rows(
        conn,
        """select file_name, storage_key, virus_scan_status::text, coalesce(virus_scan_result, '')
           from mdm.ddm_attachment where coalesce(scanned_at, created_at) >= %s order by file_name""",
        since,
    )
    found = []
    for file_name, key, status, said in rows:
        truth = "infected" if MARKER in (storage / key).read_bytes() else "clean"
        found.append(Check(status == truth, f"{file_name} is {status}{said and f' ({said})'}"))
    return found


def imports(conn: psycopg.Connection[Any], since: datetime) -> list[Check]:
    """Compare the lines without an error with the entities, and see that the others made none (S2.2)."""
    [(lines, stored, rejected, errors, made)] = _rows(
        conn,
        """select count(*) filter (where r.error is null),
             count(*) filter (where r.error is null and e.attributes = r.attributes),
             count(*) filter (where r.error is not null),
             string_agg(distinct r.error, ', '),
             count(*) filter (where r.error is not null and e.id is not null)
           from mdm.aa_import i
           join mdm.aa_import_row r on r.import_id = i.id
           left join mdm.ddm_entity e
             on (e.tenant_id, e.entity_type_id, e.entity_key) = (i.tenant_id, i.entity_type_id, r.entity_key)
           where coalesce(i.completed_at, i.created_at) >= %s""",
        since,
    )
    good = lines > 0 and lines == stored
    return [
        Check(good, f"{stored:,} entities {'=' if good else 'are not the'} {lines:,} lines without error"),
        Check(rejected > 0 and made == 0, f"{rejected:,} rejected: {errors}"),
    ]


def attribute_indexes(conn: psycopg.Connection[Any]) -> list[Check]:
    """Compare pg_index with what the attributes want (S2.7)."""
    wanted = _rows(
        conn,
        """select i.index_name
           from mdm.ddm_entity_type_attribute a
           cross join lateral mdm._attribute_index(a.entity_type_id, a.attribute_key) i
           where i.definition is not null""",
    )
    return _indexes(conn, wanted, "ix_entity_attribute_")


def gin_indexes(conn: psycopg.Connection[Any]) -> list[Check]:
    """Compare pg_index with what the types want (S2.8)."""
    wanted = _rows(
        conn,
        """select i.index_name from mdm.ddm_entity_type t cross join lateral mdm._gin_index(t.type_key) i
           where i.definition is not null""",
    )
    return _indexes(conn, wanted, "ix_entity_attributes_gin_")


def _indexes(conn: psycopg.Connection[Any], wanted: list[Any], prefix: str) -> list[Check]:
    there = _rows(
        conn,
        """select c.relname::text, x.indisvalid and x.indisready
           from pg_catalog.pg_index x
           join pg_catalog.pg_class c on c.oid = x.indexrelid
           where x.indrelid = 'mdm.ddm_entity'::regclass and starts_with(c.relname, %s)""",
        prefix,
    )
    invalid = [name for name, is_valid in there if not is_valid]
    valid = [(name,) for name, is_valid in there if is_valid]
    return [
        _equal(valid, "valid", wanted, "wanted"),
        *(Check(False, f"{name} is not valid") for name in invalid),
    ]


def vectors(conn: psycopg.Connection[Any], job_ids: Sequence[int]) -> list[Check]:
    """Compute each vector anew, and compare it with the one that is stored (S2.3)."""
    scopes = result.scopes(conn, job_ids)
    right, registered = sum(s.right for s in scopes), sum(s.registered for s in scopes)
    good = bool(scopes) and all(scope.complete for scope in scopes)
    return [Check(good, f"{right:,} vectors rebuilt {'=' if good else 'are not the'} {registered:,} entities")]


def stale_claims(conn: psycopg.Connection[Any], pid: int, job_ids: Sequence[int]) -> list[Check]:
    """See that the jobs of the runner that was killed were taken back, and done by another one (S8)."""
    rows = _rows(
        conn,
        """select j.id, j.status = 'done' and j.recoveries > 0 and split_part(j.claimed_by, '/', 2) <> %s
           from mdm.aa_job j where j.id = any(%s)""",
        str(pid),
        list(job_ids),
    )
    good = bool(rows) and all(is_good for _, is_good in rows)
    what = f"stale claim of {', '.join(f'job {job_id}' for job_id, _ in rows)}"
    return [Check(good, f"{what} recovered, and done" if good else f"{what} was not recovered, or is not done")]
