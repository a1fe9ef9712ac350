"""The kind virus_scan against a real clamd, from the committed upload to the status (S2.6, S5.1, S10.2; B77, B116)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, BinaryIO
from uuid import UUID

import pytest

from attachments import attach, attachment, running_clamd, stub, take
from jobrunner.demo.clamd import MARKER
from jobrunner.errors import Cancelled, PermanentError, Snooze
from jobrunner.handlers.virus_scan import scan, virus_scan
from jobrunner.job import Context, Job
from jobrunner.providers.scanner import ScannerUnavailable, ScanRefused
from jobrunner.providers.storage import ContentUnavailable
from jobs import Connection, Row, age, claim_one, enqueue, fail, job, make_due, make_tenant, recover, refused, status
from lent import LentContext, as_job, run
from runnerkit import drain


@pytest.fixture(scope="module")
def clamd() -> Iterator[Path]:
    with running_clamd() as path:
        yield path


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


@pytest.fixture
def files(clamd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The storage directory of a runner that has a clamd."""
    monkeypatch.setenv("JOBRUNNER_CLAMD", str(clamd))
    monkeypatch.setenv("JOBRUNNER_STORAGE_DIR", str(tmp_path))
    return tmp_path


class Memory:
    """A storage of one content, whatever the key."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def open(self, key: str) -> BinaryIO:
        return BytesIO(self.content)


class Says:
    """A scanner that reads everything, does something, and says what it is told."""

    def __init__(self, found: str | None = None, meanwhile: Callable[[], Any] = lambda: None) -> None:
        self.found = found
        self.meanwhile = meanwhile
        self.got = b""

    def scan(self, chunks: Iterable[bytes], size_bytes: int) -> str | None:
        self.got = b"".join(chunks)
        self.meanwhile()
        return self.found


class Raises:
    """A scanner that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def scan(self, chunks: Iterable[bytes], size_bytes: int) -> str | None:
        raise self.error


def with_parts(scanner: Any, storage: Any) -> Callable[[Job, Context], None]:
    return lambda job, ctx: scan(job, ctx, scanner, storage)


def upload(conn: Connection, tenant: UUID, size: int, key: str = "a") -> tuple[UUID, Row]:
    """Commit an upload and claim its scan."""
    attachment_id = attach(conn, tenant, key, size)
    return attachment_id, claim_one(conn, "virus_scan")


@pytest.mark.parametrize(
    ("content", "said", "result"),
    [(b"harmless", "clean", None), (b"", "clean", None), (b"xx" + MARKER, "infected", "Test.Marker.UNOFFICIAL")],
)
def test_virus_scan_records_what_clamd_says(
    conn: Connection, tenant: UUID, files: Path, content: bytes, said: str, result: str | None
) -> None:
    (files / "a").write_bytes(content)
    attachment_id, claimed = upload(conn, tenant, len(content))
    run(virus_scan, conn, claimed)
    found = attachment(conn, attachment_id)
    assert (found["virus_scan_status"], found["virus_scan_result"]) == (said, result)
    assert found["scanned_at"] is not None
    assert status(conn, claimed["id"]) == "done"


@pytest.mark.parametrize("length", [0, 7, 9, 200_000])
def test_b116_content_of_another_length_is_never_clean(
    conn: Connection, tenant: UUID, files: Path, length: int
) -> None:
    (files / "a").write_bytes(b"x" * length)
    attachment_id, claimed = upload(conn, tenant, 8)
    for attempt in range(1, claimed["max_attempts"] + 1):
        with pytest.raises(ContentUnavailable, match="registered are 8"):
            run(virus_scan, conn, claimed)
        expected = "failed" if attempt == claimed["max_attempts"] else "pending"
        assert attachment(conn, attachment_id)["virus_scan_status"] == expected
        fail(conn, claimed)
        if expected == "pending":
            make_due(conn, claimed["id"])
            claimed = claim_one(conn, "virus_scan")
    assert status(conn, claimed["id"]) == "dlq"


@pytest.mark.parametrize("key", ["../a", "/etc/passwd"])
def test_virus_scan_of_a_key_that_leads_out_is_permanent(conn: Connection, tenant: UUID, files: Path, key: str) -> None:
    attachment_id, claimed = upload(conn, tenant, 1, key)
    with pytest.raises(PermanentError, match="leads out"):
        run(virus_scan, conn, claimed)
    assert attachment(conn, attachment_id)["virus_scan_status"] == "failed"


def test_b116_too_large_is_permanent_and_failed(
    conn: Connection, tenant: UUID, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBRUNNER_CLAMD_MAX_BYTES", "100")
    (files / "a").write_bytes(b"x" * 101)
    attachment_id, claimed = upload(conn, tenant, 101)
    with pytest.raises(PermanentError, match="too large"):
        run(virus_scan, conn, claimed)
    found = attachment(conn, attachment_id)
    assert found["virus_scan_status"] == "failed"
    assert "too large" in found["virus_scan_result"]


def test_virus_scan_without_clamd_is_pending_and_tried_again(
    conn: Connection, tenant: UUID, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "a").write_bytes(b"x")
    attachment_id, claimed = upload(conn, tenant, 1)
    with monkeypatch.context() as broken, pytest.raises(ScannerUnavailable):
        broken.setenv("JOBRUNNER_CLAMD", str(files / "nobody"))
        run(virus_scan, conn, claimed)
    assert attachment(conn, attachment_id)["virus_scan_status"] == "pending"
    fail(conn, claimed)
    make_due(conn, claimed["id"])
    run(virus_scan, conn, claim_one(conn, "virus_scan"))
    found = attachment(conn, attachment_id)
    assert (found["virus_scan_status"], found["virus_scan_result"]) == ("clean", None)


@pytest.mark.parametrize("missing", ["JOBRUNNER_CLAMD", "JOBRUNNER_STORAGE_DIR"])
def test_virus_scan_without_settings_gives_the_job_back(
    conn: Connection, tenant: UUID, files: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delenv(missing)
    _, claimed = upload(conn, tenant, 1)
    with pytest.raises(Snooze, match=missing):
        run(virus_scan, conn, claimed)


def test_virus_scan_twice_says_the_same(conn: Connection, tenant: UUID) -> None:
    """The result was committed nowhere: the worker died between the answer and the commit."""
    attachment_id, claimed = upload(conn, tenant, 3)
    scanner = Says("Eicar")
    context = LentContext(conn, claimed)
    scan(as_job(claimed), context, scanner, Memory(b"abc"))
    conn.execute("rollback")
    assert attachment(conn, attachment_id)["virus_scan_status"] == "pending"
    age(conn, claimed["id"])
    assert recover(conn) == {claimed["id"]: "pending"}
    run(with_parts(scanner, Memory(b"abc")), conn, claim_one(conn, "virus_scan"))
    assert attachment(conn, attachment_id)["virus_scan_status"] == "infected"


def test_virus_scan_of_a_zombie_writes_nothing(
    conn: Connection, connect: Callable[..., Connection], tenant: UUID
) -> None:
    attachment_id, claimed = upload(conn, tenant, 3)
    healer = connect()

    def lose() -> None:
        age(healer, claimed["id"])
        assert recover(healer) == {claimed["id"]: "pending"}

    with refused("MJ001"):
        run(with_parts(Says(None, meanwhile=lose), Memory(b"abc")), conn, claimed)
    conn.execute("rollback")
    assert attachment(healer, attachment_id)["virus_scan_status"] == "pending"


def test_virus_scan_holds_no_transaction_while_the_scanner_works(conn: Connection, tenant: UUID) -> None:
    states: list[str] = []
    _, claimed = upload(conn, tenant, 3)
    run(
        with_parts(Says(meanwhile=lambda: states.append(conn.info.transaction_status.name)), Memory(b"abc")),
        conn,
        claimed,
    )
    assert states == ["IDLE"]


def test_content_replaced_meanwhile_keeps_its_own_scan(
    conn: Connection, connect: Callable[..., Connection], tenant: UUID
) -> None:
    attachment_id, claimed = upload(conn, tenant, 3)

    def replace() -> None:
        connect().execute("update mdm.ddm_attachment set storage_key = 'b', size_bytes = 4")

    run(with_parts(Says(None, meanwhile=replace), Memory(b"abc")), conn, claimed)
    assert status(conn, claimed["id"]) == "done"
    assert attachment(conn, attachment_id)["virus_scan_status"] == "pending"
    scanner = Says("Eicar")
    run(with_parts(scanner, Memory(b"abcd")), conn, claim_one(conn, "virus_scan"))
    assert scanner.got == b"abcd"
    assert attachment(conn, attachment_id)["virus_scan_status"] == "infected"


def test_attachment_that_is_gone_is_done(conn: Connection, tenant: UUID) -> None:
    _, claimed = upload(conn, tenant, 3)
    conn.execute("delete from mdm.ddm_attachment")
    run(with_parts(Raises(AssertionError()), Memory(b"abc")), conn, claimed)
    assert status(conn, claimed["id"]) == "done"


def test_bad_payload_is_permanent(conn: Connection, tenant: UUID) -> None:
    enqueue(conn, "virus_scan", {"attachment_id": "x"}, tenant_id=tenant)
    with pytest.raises(PermanentError, match="names no attachment"):
        run(with_parts(Says(), Memory(b"")), conn, claim_one(conn, "virus_scan"))


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (ScanRefused("too large\0\ud800"), PermanentError, "failed"),
        (ScannerUnavailable("clamd hung up"), ScannerUnavailable, "pending"),
        (RuntimeError("a bug"), RuntimeError, "pending"),
    ],
)
def test_no_error_of_a_scanner_is_clean(
    conn: Connection, tenant: UUID, error: Exception, raised: type[Exception], said: str
) -> None:
    attachment_id, claimed = upload(conn, tenant, 3)
    with pytest.raises(raised):
        run(with_parts(Raises(error), Memory(b"abc")), conn, claimed)
    assert attachment(conn, attachment_id)["virus_scan_status"] == said


def test_name_of_what_was_found_is_stored_whatever_it_is(conn: Connection, tenant: UUID) -> None:
    attachment_id, claimed = upload(conn, tenant, 3)
    run(with_parts(Says("Bad\0Name\ud800"), Memory(b"abc")), conn, claimed)
    assert attachment(conn, attachment_id)["virus_scan_result"] == "BadName?"


def test_cancelled_scan_stops_between_two_pieces(conn: Connection, tenant: UUID) -> None:
    attachment_id, claimed = upload(conn, tenant, 300_000)
    context = LentContext(conn, claimed)

    class Cancels(Says):
        def scan(self, chunks: Iterable[bytes], size_bytes: int) -> str | None:
            next(iter(chunks))
            context.cancelled = True
            return super().scan(chunks, size_bytes)

    with pytest.raises(Cancelled):
        scan(as_job(claimed), context, Cancels(), Memory(b"x" * 300_000))
    assert attachment(conn, attachment_id)["virus_scan_status"] == "pending"
    assert job(conn, claimed["id"])["status"] == "running"


def test_b77_silent_clamd_gives_its_slots_back(
    conn: Connection, dsn: str, tenant: UUID, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = iter([True] * 4)

    def serve(client: socket.socket, over: Event) -> None:
        if next(silent, False):
            over.wait()
        take(client)
        client.sendall(b"stream: OK\0")

    monkeypatch.setenv("JOBRUNNER_CLAMD_ANSWER_TIMEOUT_SECONDS", "1.5")
    (files / "a").write_bytes(b"abc")
    uploads = [attach(conn, tenant, "a", 3) for _ in range(5)]
    with stub(serve) as (host, port):
        monkeypatch.setenv("JOBRUNNER_CLAMD", f"{host}:{port}")
        began = monotonic()
        tally = drain(dsn, {"virus_scan": virus_scan}, concurrency=4)
        assert monotonic() - began < 1.5 + 15
    assert (tally.done, tally.failed) == (1, 4)
    said = [attachment(conn, upload)["virus_scan_status"] for upload in uploads]
    assert sorted(said) == ["clean", *["pending"] * 4]
