"""A mail server for tests that stalls where it is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import BinaryIO


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
