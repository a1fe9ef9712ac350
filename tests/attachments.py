"""Small steps that tests of virus_scan take: an attachment, and a clamd with a signature database of our own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from uuid import UUID

from cluster import missing
from jobs import Connection, Row, rows, value
from runnerkit import eventually

MARKER = b"THIS-IS-OUR-TEST-MARKER"  # what the signature database knows
SIGNATURE = f"Test.Marker:0:*:{MARKER.hex()}\n"
STREAM_BYTES = 1 << 20  # StreamMaxLength
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


def find_clamd() -> str:
    """Return the program; skips the test without it, or fails it where MDM_REQUIRE names clamd."""
    program = shutil.which("clamd") or shutil.which("clamd", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        missing("clamd", "it is not installed (Debian: apt-get install --no-install-recommends clamav-daemon)")
    assert program is not None
    return program


@contextmanager
def running_clamd(**settings: str) -> Iterator[Path]:
    """A clamd of one's own, with one signature and no download; gives its socket."""
    program = find_clamd()
    base = Path(tempfile.mkdtemp(prefix="mdm-clamd-"))
    (base / "db").mkdir()
    (base / "db" / "test.ndb").write_text(SIGNATURE)
    lines = {
        "Foreground": "yes",
        "DatabaseDirectory": str(base / "db"),
        "LocalSocket": str(base / "socket"),
        "LogFile": str(base / "log"),
        "TemporaryDirectory": str(base),
        "StreamMaxLength": str(STREAM_BYTES),
        "MaxThreads": "4",
        **settings,
    }
    (base / "conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    with (base / "out").open("wb") as out:
        process = subprocess.Popen([program, "-c", str(base / "conf")], stdout=out, stderr=out, cwd=base)
    try:
        eventually(lambda: _up(process, base), seconds=30)
        yield base / "socket"
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(base)


def _up(process: subprocess.Popen[bytes], base: Path) -> bool:
    assert process.poll() is None, (base / "out").read_text()
    return (base / "socket").exists()


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
