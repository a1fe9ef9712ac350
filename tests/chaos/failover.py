"""Two servers in synchronous streaming replication over TCP: the primary is killed under load, the standby promoted."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import psycopg

from chaos.producers import Producer
from chaos.verdict import judge, judge_keys
from chaos.world import TABLE, Connection, World, recover_of, register
from cluster import OPTIONS as FAST
from cluster import make_base
from jobrunner import devserver, schema
from jobrunner.demo.ports import free_port
from jobrunner.devbinaries import run as run_as_server
from jobrunner.devserver import Server
from jobs import value
from runnerkit import TERM, eventually

HOST = "127.0.0.1"
PRIMARY = {
    **FAST,
    "listen_addresses": HOST,
    "synchronous_commit": "on",
    "wal_level": "replica",
    "hot_standby": "on",
    "max_wal_senders": "4",
}


def run(world: World, conn: Connection) -> None:
    """Kill the primary for good; nothing that it acknowledged may be missing on the other."""
    if not (world.server.bin / "pg_basebackup").exists():
        print(f"SKIPPED: {world.server.bin} has no pg_basebackup")
        return
    with pair() as (primary, standby):
        _fail_over(world, primary, standby)


@contextmanager
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary with the schema, and its synchronous standby."""
    bases = make_base(), make_base()
    primary = standby = None
    try:
        primary = devserver.start(bases[0], options=PRIMARY, port=free_port())
        schema.migrate(primary.dsn())
        standby = _standby(primary, bases[1])
        with psycopg.connect(primary.dsn(), autocommit=True) as admin:
            admin.execute("alter system set synchronous_standby_names = '*'")
            admin.execute("select pg_reload_conf()")
            sync = "select count(*) from pg_stat_replication where sync_state = 'sync'"
            eventually(lambda: value(admin, sync) == 1, 30)
            admin.execute(TABLE)
        yield primary, standby
    finally:
        for server in (primary, standby):
            if server is not None:
                devserver.stop(server)
        for base in bases:
            shutil.rmtree(base, ignore_errors=True)


def _standby(primary: Server, base: Any) -> Server:
    server = Server(primary.bin, base, base, free_port())
    devserver.own(base)
    tool = primary.bin / "pg_basebackup"
    where = f"host={HOST} port={primary.port} user={primary.superuser}"
    done = run_as_server([tool, "-D", server.data, "-d", where, "-R", "-X", "stream", "-c", "fast", "--no-sync"], base)
    assert done.returncode == 0, done.stdout
    return devserver.start(base, options=PRIMARY, port=server.port)


def both(primary: Server, standby: Server) -> str:
    """The DSN that finds whichever of the two can write."""
    hosts = f"{HOST}:{primary.port},{HOST}:{standby.port}"
    return f"postgresql://{primary.superuser}@{hosts}/mdm?target_session_attrs=read-write"


def kill_all(server: Server) -> None:
    """Kill the postmaster and its children, as a power cut does."""
    pid = devserver.running_pid(server)
    assert pid is not None
    assert os.getpgid(pid) == pid, "the server shares its process group"
    os.killpg(pid, signal.SIGKILL)
    eventually(lambda: devserver.running_pid(server) is None)


def _fail_over(world: World, primary: Server, standby: Server) -> None:
    dsn = both(primary, standby)
    with psycopg.connect(primary.dsn(), autocommit=True) as conn:
        register(conn, "failover")
        producer = Producer(lambda: psycopg.connect(dsn, connect_timeout=5), ["failover"], 0.01)
        runners = [world.runner(["failover"], "--concurrency", "2", dsn=dsn) for _ in range(2)]
        producer.start()
        done = "select count(*) from mdm.aa_job where status = 'done'"
        eventually(lambda: value(conn, done) > 30, 60)
    before = len(producer.committed)
    kill_all(primary)
    began = monotonic()
    with psycopg.connect(standby.dsn(), autocommit=True) as conn:
        conn.execute("select pg_promote()")
        promoted = monotonic()
        at = value(conn, "select clock_timestamp()")
        first = "select min(claimed_at) from mdm.aa_job where claimed_at > %s"
        seconds = (eventually(lambda: value(conn, first, at), 60) - at).total_seconds()
        print(f"  promoted after {promoted - began:.2f} s, first claim {seconds:.2f} s after that")
        eventually(lambda: len(producer.committed) > before + 20, 60)
        producer.stop()
        for runner in runners:
            runner.signal(TERM)
            world.expect(runner.end() == 0, f"a runner: {runner.log[-300:]}")
            runner.close()
        _rest(world, conn, dsn, [runner.pid for runner in runners])
        judge_keys(world, conn, producer.committed, producer.rolled_back)
        outcomes = judge(world, conn, {"failover": "effect"})
        print(f"  acknowledged {len(producer.committed)} jobs, {before} of them by the lost primary")
        print("jobs: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())), flush=True)


def _rest(world: World, conn: Connection, dsn: str, pids: list[int]) -> None:
    """Claims whose answer was lost with the primary are recovered; then all is done."""
    recover_of(conn, pids)
    rest = world.runner(["failover"], "--drain-all", dsn=dsn)
    world.expect(rest.end() == 0, f"the rest: {rest.log[-300:]}")
    rest.close()
