"""Sends mail by SMTP with smtplib: every stage has a timeout, the session as a whole a limit."""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from threading import Event, Timer
from typing import Final

from jobrunner.errors import UsageError
from jobrunner.providers.environ import number, required
from jobrunner.providers.mail import Mail, MailRefused, MailUnavailable, MailUnknown

PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}
# A server that answers in time, but byte by byte, is cut off after so many timeouts.
STAGES: Final = 6


@dataclass(frozen=True, slots=True)
class SmtpSettings:
    """Where mails go and in whose name; from the variables JOBRUNNER_SMTP_*."""

    host: str
    port: int
    sender: Address
    tls: str = "starttls"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_seconds: float = 10.0

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> SmtpSettings:
        """Read the settings; raises UsageError that names the variable which is missing or wrong."""
        tls = environ.get("JOBRUNNER_SMTP_TLS", "starttls")
        if tls not in PORTS:
            raise UsageError("JOBRUNNER_SMTP_TLS must be starttls, tls or none")
        return cls(
            host=required(environ, "JOBRUNNER_SMTP_HOST", "the mail server's host name"),
            port=_port(environ, PORTS[tls]),
            sender=_address(required(environ, "JOBRUNNER_SMTP_FROM", "an address")),
            tls=tls,
            user=environ.get("JOBRUNNER_SMTP_USER"),
            password=environ.get("JOBRUNNER_SMTP_PASSWORD"),
            ca_file=environ.get("JOBRUNNER_SMTP_CA_FILE"),
            timeout_seconds=min(number(environ, "JOBRUNNER_SMTP_TIMEOUT_SECONDS", 10.0), 3600.0),
        )


class SmtpSession:
    """An open SMTP session (mail.MailSession)."""

    def __init__(self, smtp: smtplib.SMTP, sender: str, timeout_seconds: float) -> None:
        self._smtp = smtp
        self._sender = sender
        self._limit_seconds = STAGES * timeout_seconds

    def send(self, mail: Mail) -> None:
        """Hand over one mail. Only an answer lost after the final dot leaves open whether it was sent (B107)."""
        with _reached(), _limit(self._smtp, self._limit_seconds):
            self._expect(self._smtp.mail(self._sender), 250)
            self._expect(self._smtp.rcpt(mail.recipient), 250, 251)
            self._expect(self._smtp.docmd("DATA"), 354)
            self._smtp.send(_dotted(mail.message.as_bytes()))
        with _reached():
            self._expect(self._verdict(), 250)

    def _verdict(self) -> tuple[int, bytes]:
        """What the server says about the message; anything but a whole answer leaves it open."""
        try:
            with _limit(self._smtp, self._limit_seconds):
                code, text = self._smtp.getreply()
        except (OSError, smtplib.SMTPException) as error:
            raise MailUnknown(f"no answer after the message was handed over: {_text(error)}") from error
        if code != 250 and not 400 <= code <= 599:
            raise MailUnknown(f"an answer to the message that is none: {code} {text.decode('utf-8', 'replace')}")
        return code, text

    def _expect(self, answer: tuple[int, bytes], *codes: int) -> None:
        """Raise MailRefused when the answer is another one; the session is then ready for the next mail."""
        code, text = answer
        if code in codes:
            return
        message = f"{code} {text.decode('utf-8', 'replace')}"
        if code == 421:
            raise MailUnavailable(message)
        with suppress(OSError, smtplib.SMTPException):  # whoever hangs up now has answered all the same
            self._smtp.rset()
        raise MailRefused(message, permanent=500 <= code <= 599)


@contextmanager
def smtp_session(settings: SmtpSettings) -> Iterator[SmtpSession]:
    """Open a session: connect, TLS, login. Raises MailUnavailable, also for a refused login, which people can mend."""
    with _reached():
        smtp = _connect(settings)
    try:
        yield SmtpSession(smtp, settings.sender.addr_spec, settings.timeout_seconds)
        with suppress(OSError, smtplib.SMTPException):  # what counts is said and answered
            smtp.quit()
    finally:
        smtp.close()


def _connect(settings: SmtpSettings) -> smtplib.SMTP:
    """Connect and log in; what is open when that fails is closed."""
    smtp = _NoLookup(settings) if settings.tls != "tls" else _NoLookupTls(settings)
    try:
        with _limit(smtp, STAGES * settings.timeout_seconds):
            code, text = smtp.connect(settings.host, settings.port)
            if code != 220:
                raise smtplib.SMTPConnectError(code, text)
            if settings.tls == "starttls":
                smtp.starttls(context=_context(settings))
            if settings.user is not None:
                smtp.login(settings.user, settings.password or "")
            smtp.ehlo_or_helo_if_needed()
    except BaseException:
        smtp.close()
        raise
    return smtp


class _NoLookup(smtplib.SMTP):
    """SMTP that is not connected yet, and names itself without asking the resolver."""

    def __init__(self, settings: SmtpSettings) -> None:
        super().__init__(local_hostname=settings.sender.domain, timeout=settings.timeout_seconds)
        self._host = settings.host  # for the name in the certificate


class _NoLookupTls(smtplib.SMTP_SSL):
    """The same with TLS from the first byte."""

    def __init__(self, settings: SmtpSettings) -> None:
        super().__init__(
            local_hostname=settings.sender.domain, timeout=settings.timeout_seconds, context=_context(settings)
        )
        self._host = settings.host


def _context(settings: SmtpSettings) -> ssl.SSLContext:
    """Certificates are checked, against the given authority if there is one."""
    return ssl.create_default_context(cafile=settings.ca_file)


@contextmanager
def _reached() -> Iterator[None]:
    """Turn what smtplib and the network raise into MailUnavailable."""
    try:
        yield
    except (OSError, smtplib.SMTPException) as error:
        raise MailUnavailable(_text(error)) from error


@contextmanager
def _limit(smtp: smtplib.SMTP, seconds: float) -> Iterator[None]:
    """Cut the connection when the block takes longer: a timeout alone starts anew with every byte (B77)."""
    late = Event()
    timer = Timer(seconds, _cut, (smtp, late))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if late.is_set():  # smtplib takes half an answer for a whole one
        raise TimeoutError(f"took longer than {seconds:g} s")


def _cut(smtp: smtplib.SMTP, late: Event) -> None:
    """Shut the socket under whoever waits for it."""
    late.set()
    sock = smtp.sock
    if sock is not None:
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # below TLS, which is not ours to end here


def _dotted(data: bytes) -> bytes:
    """A message as DATA wants it: CRLF, dots at the start of a line doubled, a dot at the end."""
    lines = re.sub(rb"\r\n|\r|\n", b"\r\n", data)
    body = re.sub(rb"(?m)^\.", b"..", lines)
    return body + (b"" if body.endswith(b"\r\n") else b"\r\n") + b".\r\n"


def _text(error: Exception) -> str:
    """One line about an error of smtplib or the network."""
    return f"{type(error).__name__}: {error}"


def _port(environ: Mapping[str, str], default: int) -> int:
    """The port to connect to."""
    port = number(environ, "JOBRUNNER_SMTP_PORT", default)
    if not 1 <= port <= 65535:
        raise UsageError("JOBRUNNER_SMTP_PORT must lie between 1 and 65535")
    return int(port)


def _address(text: str) -> Address:
    """Parse `Name <user@host>` or `user@host`."""
    name, _, rest = text.rpartition("<")
    try:
        address = Address(name.strip().strip('"'), addr_spec=rest.removesuffix(">").strip())
        if address.username and address.domain and address.addr_spec.isascii():
            return address
    except (MessageError, ValueError, IndexError):
        pass
    raise UsageError("JOBRUNNER_SMTP_FROM must be an address: user@example.org or Name <user@example.org>")
