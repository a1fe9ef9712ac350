"""The job kind email_send (S2.1): marks, sends and records one recipient after the other."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final

from jobrunner.db.call import read, send
from jobrunner.db.email import EmailMark, mark_email, record_email
from jobrunner.errors import PermanentError, Snooze, UsageError
from jobrunner.handlers.email_message import compose
from jobrunner.job import Context, Job
from jobrunner.providers.mail import Mail, MailRefused, MailSession, MailUnavailable
from jobrunner.providers.smtp import SmtpSettings, smtp_session

PROVIDER: Final = "smtp"
# A runner without settings gives the job back to one that has them.
SNOOZE_SECONDS: Final = 60.0


@dataclass(slots=True)
class Tally:
    """What this run could not send."""

    again: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)

    def end(self) -> None:
        """Raise when something is left: to be tried again, or (only that) for good."""
        if self.again:
            raise MailUnavailable("; ".join(self.again + self.given_up))
        if self.given_up:
            raise PermanentError("; ".join(self.given_up))


def email_send(job: Job, ctx: Context) -> None:
    """Send what the payload says, each recipient once (S10.2).

    Every recipient is marked in a transaction of its own before the provider is called, and recorded in one after
    it; the last record carries finish_job (D24). A run that finds the mark of a lost run sends once more with the
    same Message-ID, and never a third time. A 5xx answer is final for that recipient, a 4xx one is tried again.
    """
    settings = _settings()
    mails = compose(job.payload, settings.sender)
    tally = Tally()
    with smtp_session(settings) as session:
        for mail in mails:
            _one(job, ctx, session, mail, settings.sender.domain, tally, is_last=mail is mails[-1])
    tally.end()


def _settings() -> SmtpSettings:
    """The settings of this runner; without them the job is not this runner's."""
    try:
        return SmtpSettings.from_environ(os.environ)
    except UsageError as error:
        raise Snooze(SNOOZE_SECONDS, str(error)) from error


def _one(job: Job, ctx: Context, session: MailSession, mail: Mail, domain: str, tally: Tally, *, is_last: bool) -> None:
    """Bring one recipient as far as it goes; MailUnknown leaves the mark for the next run to find."""
    mark = _mark(job, ctx, mail, domain)
    if mark.decision in ("refused", "unknown"):
        tally.given_up.append(f"{mail.recipient}: {mark.decision}, see the email log")
    if mark.decision != "send":
        return
    del mail.message["Message-ID"], mail.message["Date"]
    mail.message["Message-ID"] = mark.message_id
    mail.message["Date"] = format_datetime(datetime.now(UTC))
    try:
        session.send(mail)
    except MailRefused as error:
        (tally.given_up if error.permanent else tally.again).append(f"{mail.recipient}: {error}")
        _record(job, ctx, mail, "refused" if error.permanent else "failed", error)
    except MailUnavailable as error:
        _record(job, ctx, mail, "failed", error)
        raise
    else:
        _record(job, ctx, mail, "sent", finish=is_last and not tally.again and not tally.given_up)


def _mark(job: Job, ctx: Context, mail: Mail, domain: str) -> EmailMark:
    """Commit the mark before the provider is called."""
    call = mark_email(
        job_id=job.id,
        lease_no=job.lease_no,
        recipient=mail.recipient,
        subject=mail.message["Subject"],
        provider=PROVIDER,
        domain=domain,
    )
    with ctx.chunk() as chunk:
        return read(send(chunk.connection, call), call)


def _record(
    job: Job, ctx: Context, mail: Mail, outcome: str, error: Exception | None = None, *, finish: bool = False
) -> None:
    """Commit what the provider said, as soon as it has; the last good one together with the job's end (S5.1)."""
    text = str(error).replace("\x00", "") if error else None
    call = record_email(job_id=job.id, lease_no=job.lease_no, recipient=mail.recipient, outcome=outcome, error=text)
    with ctx.chunk() as chunk:
        send(chunk.connection, call)
        if finish:
            chunk.finish()
