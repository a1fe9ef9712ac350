"""`bin/run`: load real master data, reindex it with a real runner, and show what happened."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

from jobrunner.demo import keep, load, result, show
from jobrunner.demo.data import TENANTS, entities

# A word of the searchable attributes, and one that stands deep in a list of other spellings.
SEARCHES: Final = ("international & tokyo", "Москва")
RUNNER: Final = ("--kinds", "reindex", "--concurrency", "4")
WAIT_SECONDS: Final = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo on the database of --dsn; 1 when a job is not done or a row was not rebuilt."""
    parser = argparse.ArgumentParser(prog="bin/run")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--keep", type=Path, help="leave a runner up, with its log and pid in this directory")
    options = parser.parse_args(argv)
    worker_dsn = make_conninfo(options.dsn, user=load.WORKER_ROLE)
    with psycopg.connect(options.dsn, autocommit=True) as conn:
        job_ids = prepare(conn)
        code = drain(worker_dsn)
        result.wait_until_ended(conn, job_ids, WAIT_SECONDS if code == 0 else 0)
        good = report(conn, job_ids) and code == 0
        if options.keep is not None:
            good = leave_up(conn, options.dsn, worker_dsn, options.keep) and good
    return 0 if good else 1


def prepare(conn: psycopg.Connection[Any]) -> list[int]:
    """Load the data, let the steward change what is searchable, enqueue the reindex; gives the jobs."""
    began = monotonic()
    load.register(conn)
    load.ensure_worker_role(conn)
    loaded = load.load(conn, entities())
    show.loaded(loaded, len(TENANTS), monotonic() - began)
    show.changes(load.mark_searchable(conn))
    job_ids = load.enqueue(conn)
    show.step("enqueue", f"{len(job_ids)} reindex jobs, one a tenant and type")
    return job_ids


def drain(worker_dsn: str) -> int:
    """Run a real runner, with the rights of a worker, until nothing is due; gives its exit code."""
    arguments = [*RUNNER, "--drain-all"]
    show.step("run", "jobrunner " + " ".join(arguments))
    environment = {**os.environ, "JOBRUNNER_DSN": worker_dsn}
    code = subprocess.run(keep.command(arguments), env=environment, check=False).returncode
    if code != 0:
        show.step("FAILED", f"the runner ended with exit code {code}")
    return code


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


def leave_up(conn: psycopg.Connection[Any], dsn: str, worker_dsn: str, directory: Path) -> bool:
    """Leave a runner up, the one of an earlier run if it still is, and say how to look; False when it did not start."""
    pid = keep.kept_runner(directory / "runner.pid")
    pid = pid or keep.start_runner(conn, keep.command([*RUNNER]), worker_dsn, directory)
    if pid is None:
        print(f"FAILED   the runner did not start: see {directory / 'runner.log'}")
        return False
    print(keep.hint(dsn, pid, str(directory / "runner.log")))
    return True


if __name__ == "__main__":
    sys.exit(main())
