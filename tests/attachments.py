"""Small steps that tests of virus_scan take: an attachment, and a clamd with a signature database of our own."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from uuid import UUID

from cluster import missing
from jobrunner.demo import clamd
from jobs import Connection, Row, rows, value

Serve = Callable[[socket.socket, Event], None]


def attach(conn: Connection, tenant_id: UUID, storage_key: str, size_bytes: int, status: str = "pending") -> UUID:
    """Commit an upload and return the attachment's id."""
    attachment_id: UUID = value(
        conn,
        "insert into mdm.ddm_attachment (tenant_id, storage_key, size_bytes, virus_scan_status)"
        " values (%s, %s, %s, %s::mdm.virus_scan_status) returning id",
        tenant_id,
        storage_key,
        size_bytes,
        status,
    )
    return attachment_id


def attachment(conn: Connection, attachment_id: UUID) -> Row:
    """Return the row of an attachment."""
    [found] = rows(conn, "select * from mdm.ddm_attachment where id = %s", attachment_id)
    return found


@contextmanager
def running_clamd(**settings: str) -> Iterator[Path]:
    """A clamd with the signature of MARKER; without clamd the test is skipped, or fails where MDM_REQUIRE names it."""
    program = clamd.find_clamd()
    if program is None:
        missing("clamd", "it is not installed (Debian: apt-get install --no-install-recommends clamav-daemon)")
    assert program is not None
    with clamd.running_clamd(program, **settings) as path:
        yield path


@contextmanager
def stub(serve: Serve) -> Iterator[tuple[str, int]]:
    """A server on 127.0.0.1 that treats each connection as it is told."""
    over = Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                Thread(target=one, args=(client,), daemon=True).start()

    def one(client: socket.socket) -> None:
        with client, suppress(OSError):
            serve(client, over)

    Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def take(client: socket.socket) -> bytes:
    """Read a whole INSTREAM and return its content."""
    with client.makefile("rb") as stream:
        assert stream.read(10) == b"zINSTREAM\0"
        content = b""
        while header := stream.read(4):
            length = int.from_bytes(header)
            if not length:
                return content
            content += stream.read(length)
        raise ConnectionError("ended before its end")
