"""What email_send needs of whoever carries its mails: one session, one recipient at a time."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import EmailMessage
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Mail:
    """One message to one recipient, whose address stands in no header but To."""

    recipient: str
    message: EmailMessage


class MailSession(Protocol):
    """A connection to the provider."""

    def send(self, mail: Mail) -> None:
        """Hand over one mail; returns when the provider has taken it, raises one of the errors below otherwise."""


class MailRefused(Exception):
    """The provider refused this mail; it was not sent. Trying again is of use unless `permanent`."""

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent


class MailUnavailable(Exception):
    """The provider cannot be reached or broke off; the mail was certainly not sent. The session is of no more use."""


class MailUnknown(Exception):
    """The mail was handed over and the answer is lost: it may have been sent. The session is of no more use."""
