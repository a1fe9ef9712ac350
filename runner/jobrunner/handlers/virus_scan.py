"""The job kind virus_scan (S2.6): has an attachment scanned and records what was said of its whole content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Final

import psycopg

from jobrunner.db.call import read, send
from jobrunner.db.scan import Attachment, attachment_to_scan, fail_scan, record_scan
from jobrunner.errors import BAD_ARGUMENT, PermanentError, Snooze, UsageError
from jobrunner.job import Context, Job
from jobrunner.providers.clamd import Clamd, ClamdSettings
from jobrunner.providers.scanner import Scanner, ScannerUnavailable, ScanRefused
from jobrunner.providers.storage import ContentRefused, ContentUnavailable, DirectoryStorage, Storage

CHUNK_BYTES: Final = 64 << 10
# A runner without settings gives the job back to one that has them.
SNOOZE_SECONDS: Final = 60.0


def virus_scan(job: Job, ctx: Context) -> None:
    """Scan with the clamd and the storage of this runner's settings."""
    try:
        scanner = Clamd(ClamdSettings.from_environ(os.environ))
        storage = DirectoryStorage.from_environ(os.environ)
    except UsageError as error:
        raise Snooze(SNOOZE_SECONDS, str(error)) from error
    scan(job, ctx, scanner, storage)


def scan(job: Job, ctx: Context, scanner: Scanner, storage: Storage) -> None:
    """Scan the job's attachment; a second run says the same again (S10.2).

    No transaction is open while the scanner works; the result and finish_job share one (S5.1). What cannot be scanned
    raises PermanentError, what may be another time one of the errors of storage and scanner; neither is ever clean.
    """
    attachment = _attachment(job, ctx)
    if attachment is None:
        ctx.logger.info("attachment_is_gone")
        return
    try:
        with storage.open(attachment.storage_key) as content:
            found = scanner.scan(_whole(content, attachment.size_bytes, ctx), attachment.size_bytes)
    except (ContentRefused, ScanRefused) as error:
        _record_failure(job, ctx, attachment, error, retryable=False)
        raise PermanentError(str(error)) from error
    except (ContentUnavailable, ScannerUnavailable) as error:
        _record_failure(job, ctx, attachment, error, retryable=True)
        raise
    call = record_scan(job_id=job.id, lease_no=job.lease_no, attachment=attachment, found=_storable(found))
    if not read(send(ctx.connection(), call), call):
        ctx.logger.info("attachment_has_changed")


def _attachment(job: Job, ctx: Context) -> Attachment | None:
    """Ask what to scan."""
    call = attachment_to_scan(job_id=job.id, lease_no=job.lease_no)
    try:
        with ctx.chunk() as chunk:
            return read(send(chunk.connection, call), call)
    except psycopg.Error as error:
        if error.sqlstate == BAD_ARGUMENT:
            raise PermanentError(str(error).splitlines()[0]) from error
        raise


def _whole(content: BinaryIO, size_bytes: int, ctx: Context) -> Iterator[bytes]:
    """Read the content in pieces; raises ContentUnavailable when it is not as long as registered."""
    length = 0
    while True:
        ctx.raise_if_cancelled()
        try:
            piece = content.read(CHUNK_BYTES)
        except OSError as error:
            raise ContentUnavailable(f"the content cannot be read: {error.strerror}") from error
        length += len(piece)
        if length > size_bytes or (not piece and length != size_bytes):
            raise ContentUnavailable(f"the content has {length} bytes or more, registered are {size_bytes}")
        if not piece:
            return
        yield piece


def _record_failure(job: Job, ctx: Context, attachment: Attachment, error: Exception, *, retryable: bool) -> None:
    """Write why there is no result, before the job itself fails."""
    text = _storable(str(error)) or type(error).__name__
    call = fail_scan(job_id=job.id, lease_no=job.lease_no, attachment=attachment, error=text, retryable=retryable)
    with ctx.chunk() as chunk:
        send(chunk.connection, call)


def _storable(text: str | None) -> str | None:
    """Make a text of others storable: no NUL, no lone surrogates."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode() if text is not None else None
