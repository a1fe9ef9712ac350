"""`bin/run --all`: all eight kinds against servers of their sort, and what came of it in the world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from jobrunner.demo import acts, crash, load, reindexing, result, show, world
from jobrunner.demo.clamd import find_clamd, running_clamd
from jobrunner.demo.command import drain
from jobrunner.demo.data import TENANTS, Entity, countries
from jobrunner.demo.hooks import SECRET, Hooks, hooks
from jobrunner.demo.postbox import Postbox, postbox
from jobrunner.handlers import HANDLERS

INDEXER_ROLE: Final = "mdm_demo_indexer"
NO_CLAMD: Final = "clamd is not installed: apt-get install clamav-daemon"
# Builds take turns on a table: a runner of their own does them one after the other.
BUILDS: Final = ("gin_backfill", "index_sync")
BUILDER: Final = ("--kinds", ",".join(BUILDS), "--concurrency", "1")


class Servers(NamedTuple):
    """What the runner speaks to, and its settings for that."""

    box: Postbox
    hooks: Hooks
    storage: Path
    has_clamd: bool
    settings: dict[str, str]

    @property
    def runner(self) -> tuple[str, ...]:
        """The arguments of a runner of all that can run here, but for the builds."""
        kinds = set(HANDLERS) - set(BUILDS) - (set() if self.has_clamd else {"virus_scan"})
        return "--kinds", ",".join(sorted(kinds)), "--concurrency", "4"


@contextmanager
def serving(directory: Path) -> Iterator[Servers]:
    """Run a mail server, a webhook consumer, and clamd where it is installed, for the time of a with block."""
    storage = directory / "attachments"
    storage.mkdir(exist_ok=True)
    program = find_clamd()
    with ExitStack() as stack:
        box, port = stack.enter_context(postbox())
        box.on_rcpt = lambda address: "550 5.1.1 no such user" if address == acts.REFUSED else None
        settings = {
            "JOBRUNNER_SMTP_HOST": "127.0.0.1",
            "JOBRUNNER_SMTP_PORT": str(port),
            "JOBRUNNER_SMTP_FROM": "Master Data <mdm@example.org>",
            "JOBRUNNER_SMTP_TLS": "none",
            "JOBRUNNER_WEBHOOK_ALLOW": "127.0.0.0/8",
            "JOBRUNNER_STORAGE_DIR": str(storage),
        }
        if program is not None:
            settings["JOBRUNNER_CLAMD"] = str(stack.enter_context(running_clamd(program)))
        yield Servers(box, stack.enter_context(hooks()), storage, program is not None, settings)


def run(conn: psycopg.Connection[Any], dsn: str, directory: Path, entities: Iterable[Entity]) -> bool:
    """Give all kinds something to do, run runners, look at the world; False when something is not as it should be."""
    since = world.now(conn)
    load.ensure_login(conn, INDEXER_ROLE, "mdm_indexer")
    reindexes = reindexing.prepare(conn, entities)
    with serving(directory) as servers, crash.short_ttl(conn):
        settings = {
            "JOBRUNNER_DSN": make_conninfo(dsn, user=load.WORKER_ROLE),
            "JOBRUNNER_DDL_DSN": make_conninfo(dsn, user=INDEXER_ROLE),
            **servers.settings,
        }
        pid, claimed = _crash(conn, servers.box, settings)
        _act(conn, servers)
        _schedule_cleanup(conn, crash.stale_at(conn, claimed))
        is_drained = drain(settings, servers.runner, BUILDER)
        result.wait_until_ended(conn, reindexes, reindexing.WAIT_SECONDS if is_drained else 0)
        checks = {
            "bulk_import": world.imports(conn, since),
            "cleanup_jobs": world.stale_claims(conn, pid, claimed),
            "email_send": world.mails(conn, since, servers.box),
            "gin_backfill": world.gin_indexes(conn),
            "index_sync": world.attribute_indexes(conn),
            "outbox_dispatch": world.calls(conn, since, servers.hooks),
            "reindex": world.vectors(conn, reindexes),
        }
        if servers.has_clamd:
            checks["virus_scan"] = world.scans(conn, since, servers.storage)
    return report(conn, since, checks) and is_drained


def _crash(conn: psycopg.Connection[Any], box: Postbox, settings: Mapping[str, str]) -> tuple[int, list[int]]:
    address = f"{uuid4().hex[:8]}@europe.example"  # a new one: mails that an interrupted run has left are sent
    acts.send_mail(conn, "EU", [address])
    pid, claimed = crash.kill_runner(conn, box, address, settings)
    show.step("crash", f"kill -9 of a runner (pid {pid}) that was sending the mail of job {claimed[-1]}")
    return pid, claimed


def _act(conn: psycopg.Connection[Any], servers: Servers) -> None:
    """Do what the platform does; its triggers enqueue the jobs."""
    by = acts.make_sortable(conn)
    show.step("steward", f"{by}: {acts.SORTED[by]} sortable from now on")
    show.step("steward", f"{acts.make_target(conn)}: target of external sources from now on")
    files, lines = acts.upload(conn, countries())
    show.step("upload", f"{files} files with {lines} lines, one of them wrong")
    if servers.has_clamd:
        acts.attach(conn, servers.storage)
        show.step("attach", f"{', '.join(acts.FILES)} to an airport")
    mails = acts.send_mails(conn)
    show.step("mail", f"{mails} mails, one of them to an address that is refused and to one that is suppressed")
    acts.register_consumers(conn, servers.hooks.url, SECRET)
    show.step("events", f"{acts.publish(conn)} for the webhook consumers of {len(TENANTS)} tenants")


def _schedule_cleanup(conn: psycopg.Connection[Any], at: datetime) -> None:
    conn.execute("select mdm.enqueue_job('cleanup_jobs', p_available_at => %s)", [at])
    show.step("cleanup", f"due at {at:%H:%M:%S}, when the claim of the killed runner is stale")


def report(conn: psycopg.Connection[Any], since: datetime, checks: Mapping[str, list[world.Check]]) -> bool:
    """Show each kind with what the world says of it; True when all is as it should be."""
    jobs = world.jobs(conn, since)
    print()
    show.kinds(jobs, checks)
    show.dead(world.dead(conn, since))
    print()
    if show.wrong(jobs, checks):
        return False
    number = sum(jobs[kind].number for kind in checks)
    print(f"OK       {number} jobs of {len(checks)} kinds, and the world is as they say")
    if "virus_scan" not in checks:
        print(f"         virus_scan was not run: {NO_CLAMD}")
    return True
