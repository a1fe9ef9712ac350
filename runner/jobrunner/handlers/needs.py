"""What the package's own kinds need of a runner: settings in its environment, rights, a directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from jobrunner.errors import UsageError
from jobrunner.handlers import HANDLERS
from jobrunner.job import Handler
from jobrunner.providers.clamd import ClamdSettings
from jobrunner.providers.ddl import DSN, GRANT, check_ddl
from jobrunner.providers.smtp import SmtpSettings
from jobrunner.providers.storage import DirectoryStorage

logger: Final = logging.getLogger("jobrunner")


class Need(NamedTuple):
    """A variable without which a kind cannot run here, what to set it to, and what looks at all of the settings."""

    variable: str
    value: str
    check: Callable[[Mapping[str, str]], object]


def _check_scan(environ: Mapping[str, str]) -> None:
    ClamdSettings.from_environ(environ)
    DirectoryStorage.from_environ(environ)


NEEDS: Final[Mapping[str, Need]] = {
    "email_send": Need("JOBRUNNER_SMTP_HOST", "the mail server's host name", SmtpSettings.from_environ),
    "index_sync": Need(DSN, GRANT, check_ddl),
    "gin_backfill": Need(DSN, GRANT, check_ddl),
    "virus_scan": Need("JOBRUNNER_CLAMD", "clamd's host:port or the path of its socket", _check_scan),
}


def able(handlers: Mapping[str, Handler], environ: Mapping[str, str], *, named: bool) -> dict[str, Handler]:
    """Return the handlers that this runner can run (S3.3).

    A kind of ours whose settings are missing is refused when it was `named`, and left out (the log says so) when it
    was not; one whose settings are wrong is refused in any case. Raises UsageError or ConnectError with the remedy.
    """
    return {kind: handler for kind, handler in handlers.items() if _is_able(kind, handler, environ, named)}


def _is_able(kind: str, handler: Handler, environ: Mapping[str, str], named: bool) -> bool:
    need = NEEDS.get(kind)
    if need is None or handler is not HANDLERS.get(kind):
        return True
    if not environ.get(need.variable, "").strip():
        text = f"kind {kind} cannot run here: {need.variable} is not set: set it to {need.value}"
        if named:
            raise UsageError(text)
        logger.info("kind_left_out", extra={"fields": {"job_kind": kind, "reason": text}})
        return False
    need.check(environ)
    return True
