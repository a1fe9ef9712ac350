"""What `bin/run` shows: a steward changes what is searchable, and a runner rebuilds the search vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any, Final

import psycopg

from jobrunner.demo import load, result, show
from jobrunner.demo.command import drain
from jobrunner.demo.data import TENANTS, Entity

# A word of the searchable attributes, and one that stands deep in a list of other spellings.
SEARCHES: Final = ("international & tokyo", "Москва")
RUNNER: Final = ("--kinds", "reindex", "--concurrency", "4")
WAIT_SECONDS: Final = 60.0


def run(conn: psycopg.Connection[Any], worker_dsn: str, entities: Iterable[Entity]) -> bool:
    """Load, change, reindex, report; False when a job is not done or a row was not rebuilt."""
    job_ids = prepare(conn, entities)
    is_drained = drain({"JOBRUNNER_DSN": worker_dsn}, RUNNER)
    result.wait_until_ended(conn, job_ids, WAIT_SECONDS if is_drained else 0)
    return report(conn, job_ids) and is_drained


def prepare(conn: psycopg.Connection[Any], entities: Iterable[Entity]) -> list[int]:
    """Load the data, let the steward change what is searchable, enqueue the reindex; gives the jobs."""
    began = monotonic()
    load.register(conn)
    load.ensure_login(conn, load.WORKER_ROLE, "mdm_worker")
    loaded = load.load(conn, entities)
    show.loaded(loaded, len(TENANTS), monotonic() - began)
    show.changes(load.mark_searchable(conn))
    job_ids = load.enqueue(conn)
    show.step("enqueue", f"{len(job_ids)} reindex jobs, one a tenant and type")
    return job_ids


def report(conn: psycopg.Connection[Any], job_ids: Sequence[int]) -> bool:
    """Show what happened; True when every registered row was rebuilt and the searches find something."""
    scopes = result.scopes(conn, job_ids)
    print()
    show.results(scopes, result.run_seconds(conn, job_ids))
    found = [result.search(conn, query) for query in SEARCHES]
    for query, hits in zip(SEARCHES, found, strict=True):
        show.found(query, *hits)
    biggest = max(scopes, key=lambda scope: scope.registered)
    show.trail(biggest, result.audit_trail(conn, biggest.job_id))
    show.waiting(result.waiting(conn))
    print()
    if show.failures(scopes) or not all(total for total, _, _ in found):
        print("FAILED   not every row registered was rebuilt and is found")
        return False
    print(f"OK       {sum(s.rebuilt for s in scopes):,} rows registered, as many rebuilt, all vectors right")
    return True
