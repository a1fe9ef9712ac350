"""A mail server on 127.0.0.1 (aiosmtpd) that keeps what it gets, and refuses whom it is told to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.controller import Controller

from jobrunner.demo.ports import free_port

Answer = Callable[[str], str | None]


class Postbox:
    """The handler of aiosmtpd: refuses whom it is told to refuse, and keeps the rest."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.recipients: list[list[str]] = []
        self.refused: list[str] = []
        self.on_rcpt: Answer = lambda address: None
        self.on_data: Answer = lambda address: None

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        refusal = self.on_rcpt(address)
        if refusal:
            self.refused.append(address)
            return refusal
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        refusal = self.on_data(envelope.rcpt_tos[0])
        if refusal:
            return refusal
        self.raw.append(envelope.content)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 taken"

    @property
    def mails(self) -> list[EmailMessage]:
        """The mails received, parsed."""
        return [message_from_bytes(raw, policy=default) for raw in self.raw]

    @property
    def addressees(self) -> list[str]:
        """Who got one, in the order of arrival."""
        return [address for one in self.recipients for address in one]


@contextmanager
def postbox(**options: Any) -> Iterator[tuple[Postbox, int]]:
    """A mail server on 127.0.0.1: what it got, and its port."""
    box = Postbox()
    controller = Controller(box, hostname="127.0.0.1", port=free_port(), ready_timeout=60, **options)
    controller.start()
    try:
        yield box, controller.port
    finally:
        controller.stop()
