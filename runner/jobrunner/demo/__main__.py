"""`bin/run`: real master data and a real runner, and what came of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from jobrunner.demo import every, keep, load, reindexing
from jobrunner.demo.command import command
from jobrunner.demo.data import Entity, entities
from jobrunner.errors import JobrunnerError


def main(argv: Sequence[str] | None = None, source: Callable[[], Iterable[Entity]] = entities) -> int:
    """Run the demo on the database of --dsn; 1 when something is not as it should be."""
    parser = argparse.ArgumentParser(prog="bin/run")
    parser.add_argument("--dsn", required=True)
    parser.add_argument(
        "--directory", type=Path, required=True, help="for attachments, and the kept runner's log and pid"
    )
    parser.add_argument("--all", action="store_true", help="all eight kinds")
    parser.add_argument("--keep", action="store_true", help="leave a runner up")
    options = parser.parse_args(argv)
    worker_dsn = make_conninfo(options.dsn, user=load.WORKER_ROLE)
    with psycopg.connect(options.dsn, autocommit=True) as conn:
        try:
            if options.all:
                good = every.run(conn, options.dsn, options.directory, source())
            else:
                good = reindexing.run(conn, worker_dsn, source())
        except JobrunnerError as error:
            print(f"run: {error}", file=sys.stderr)
            return 1
        if options.keep:
            good = leave_up(conn, options.dsn, worker_dsn, options.directory) and good
    return 0 if good else 1


def leave_up(conn: psycopg.Connection[Any], dsn: str, worker_dsn: str, directory: Path) -> bool:
    """Leave a runner up, the one of an earlier run if it still is, and say how to look; False when it did not start."""
    pid = keep.kept_runner(directory / "runner.pid")
    pid = pid or keep.start_runner(conn, command(reindexing.RUNNER), worker_dsn, directory)
    if pid is None:
        print(f"FAILED   the runner did not start: see {directory / 'runner.log'}")
        return False
    print(keep.hint(dsn, pid, str(directory / "runner.log")))
    return True


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("run: interrupted: the next run works off what is left", file=sys.stderr)
        sys.exit(130)
