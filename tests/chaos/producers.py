"""Producers in two drivers. They know which jobs were acknowledged; after a broken connection they ask again by key."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pg8000.dbapi
import psycopg

from jobrunner.devserver import Server

STATEMENT = "select mdm.enqueue_job(%s, cast(%s as jsonb), null, %s)"
PAYLOAD = '{"seconds": 0.05}'


class Producer(threading.Thread):
    """Enqueues jobs, each under a key of its own; every tenth transaction is rolled back."""

    def __init__(self, connect: Callable[[], Any], kinds: list[str], pause_seconds: float) -> None:
        super().__init__(daemon=True)
        self.committed: set[str] = set()
        self.rolled_back: set[str] = set()
        self.outages = 0
        self._connect, self._kinds, self._pause_seconds = connect, kinds, pause_seconds
        self._over = threading.Event()
        self._conn: Any = None

    def run(self) -> None:
        while not self._over.wait(self._pause_seconds):
            key, kind = uuid4().hex, random.choice(self._kinds)
            keep = random.random() > 0.1
            while not self._enqueued(kind, key, keep):
                # the commit may have gone through: the same key again tells
                if self._over.wait(0.1) and not keep:
                    return

    def stop(self) -> None:
        """End after the job at hand is acknowledged."""
        self._over.set()
        self.join(30)
        assert not self.is_alive(), "a producer hangs"

    def _enqueued(self, kind: str, key: str, keep: bool) -> bool:
        """Enqueue a job; False when it is not known whether it is there."""
        try:
            if self._conn is None:
                self._conn = self._connect()
            self._conn.cursor().execute(STATEMENT, (kind, PAYLOAD, key))
            if keep:
                self._conn.commit()
                self.committed.add(key)
            else:
                self._conn.rollback()
                self.rolled_back.add(key)
        except (psycopg.Error, pg8000.dbapi.Error, OSError):
            self.outages += 1
            conn, self._conn = self._conn, None
            if conn is not None:
                with suppress(psycopg.Error, pg8000.dbapi.Error, OSError):
                    conn.close()
            return False
        return True


def by_psycopg(server: Server, kinds: list[str], pause_seconds: float) -> Producer:
    return Producer(lambda: psycopg.connect(server.dsn(), application_name="producer psycopg"), kinds, pause_seconds)


def by_pg8000(server: Server, kinds: list[str], pause_seconds: float) -> Producer:
    path = str(server.socket_dir / f".s.PGSQL.{server.port}")

    def connect() -> Any:
        return pg8000.dbapi.connect(
            server.superuser, database="mdm", unix_sock=path, application_name="producer pg8000", timeout=10
        )

    return Producer(connect, kinds, pause_seconds)
