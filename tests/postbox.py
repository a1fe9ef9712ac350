"""Mail servers for tests: a real one (aiosmtpd) that keeps what it gets, and one that stalls where it is told."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from threading import Event, Thread
from typing import Any, BinaryIO

from aiosmtpd.controller import Controller

from cluster import free_port

Answer = Callable[[str], str | None]


class Postbox:
    """The handler of aiosmtpd: refuses whom it is told to refuse, and keeps the rest."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.recipients: list[list[str]] = []
        self.on_rcpt: Answer = lambda address: None
        self.on_data: Answer = lambda address: None

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        refusal = self.on_rcpt(address)
        if refusal:
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
        return [message_from_bytes(raw, policy=default) for raw in self.raw]  # type: ignore[misc]

    @property
    def addressees(self) -> list[str]:
        """Who got one, in the order of arrival."""
        return [address for one in self.recipients for address in one]


@contextmanager
def postbox(**options: Any) -> Iterator[tuple[Postbox, int]]:
    """A mail server on 127.0.0.1: what it got, and its port."""
    box = Postbox()
    controller = Controller(box, hostname="127.0.0.1", port=free_port(), **options)
    controller.start()
    try:
        yield box, controller.port
    finally:
        controller.stop()


class Staller:
    """A mail server that says what it should until a stage, then is silent, drips, or hangs up."""

    REPLIES = (("EHLO", b"250 x"), ("MAIL", b"250 ok"), ("RCPT", b"250 ok"), ("DATA", b"354 go"), ("RSET", b"250 ok"))

    def __init__(self, stage: str, how: str) -> None:
        self.stage = stage
        self.how = how
        self.got: list[bytes] = []
        self.over = Event()

    def serve(self, client: socket.socket) -> None:
        if self.stage == "banner":
            return self.stall(client)
        client.sendall(b"220 hello\r\n")
        with client.makefile("rb") as lines:
            self.converse(client, lines)

    def converse(self, client: socket.socket, lines: BinaryIO) -> None:
        in_data = False
        for line in lines:
            self.got.append(line)
            if in_data:
                if self.stage == "in DATA":
                    return self.stall(client)
                if line == b".\r\n":
                    if self.stage == "dot":
                        return self.stall(client)
                    in_data = False
                    client.sendall(b"250 taken\r\n")
                continue
            verb = line[:4].upper().decode()
            if verb == self.stage:
                return self.stall(client)
            in_data = verb == "DATA"
            client.sendall(dict(self.REPLIES).get(verb, b"250 ok") + b"\r\n")

    def stall(self, client: socket.socket) -> None:
        if self.how == "hang up":
            return
        while self.how == "drip" and not self.over.wait(0.05):
            client.sendall(b"2")
        self.over.wait()


@contextmanager
def staller(stage: str, how: str = "silent") -> Iterator[tuple[Staller, int]]:
    """A stalling server on 127.0.0.1, and its port. Stages: connect, banner, a verb of SMTP, `in DATA`, `dot`."""
    server = Staller(stage, how)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
    # nobody accepts and the queue is full: a connect gets no answer
    fillers = [socket.socket() for _ in range(4 if stage == "connect" else 0)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                Thread(target=one, args=(client,), daemon=True).start()

    def one(client: socket.socket) -> None:
        with client, suppress(OSError):
            server.serve(client)

    if stage != "connect":
        Thread(target=accept, daemon=True).start()
    try:
        yield server, listener.getsockname()[1]
    finally:
        server.over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for filler in fillers:
            filler.close()
