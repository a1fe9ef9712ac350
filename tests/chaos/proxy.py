"""A proxy between a runner and the server that reads along: it stops at a given statement, and can go silent.

A gate stops one connection in a known place: with the statement not sent yet, or with its answer not delivered.
Silence is the half-open connection: nothing is forwarded and nothing is closed.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

PROTOCOL_3: Final = 196608
CHUNK_BYTES: Final = 65536
SYNC: Final = "(sync)"  # what commits a statement that stands alone


@dataclass(slots=True, eq=False)
class Gate:
    """A place in the traffic of one connection, hit once: statement `at`, after `after` in the same connection."""

    at: str
    after: str = ""
    answer: bool = False  # the statement is let through, its answer is held back
    skip: int = 0  # how many times it lets pass before
    reached: threading.Event = field(default_factory=threading.Event)

    def __str__(self) -> str:
        return f"{self.at!r} after {self.after!r}"


@dataclass(slots=True, eq=False)
class _Link:
    """One connection: its two sockets and what was said on it."""

    client: socket.socket
    server: socket.socket
    texts: dict[bytes, str] = field(default_factory=dict)  # of prepared statements
    last: str = ""  # the statement before
    held: threading.Event = field(default_factory=threading.Event)  # its answers are held back
    gate: Gate | None = None
    silent: bool = False

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens on 127.0.0.1 and forwards to the server's socket."""

    def __init__(self, server_path: str) -> None:
        self._path = server_path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[_Link] = []
        self._lock = threading.Lock()
        self._loud = threading.Event()
        self._loud.set()
        self._gate: Gate | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def dsn(self, user: str = "postgres", dbname: str = "mdm") -> str:
        """Where a client connects."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{dbname}?sslmode=disable&gssencmode=disable"

    def arm(self, gate: Gate | None) -> None:
        """Stop the next connection that comes to the gate."""
        self._gate = gate

    def silence(self) -> None:
        """Forward nothing more on the connections that exist; new ones work."""
        with self._lock:
            self._loud.clear()
            for link in self._links:
                link.silent = True

    def speak(self) -> None:
        """End the silence: what was held back goes on."""
        self._loud.set()

    def close(self) -> None:
        self._listener.close()
        self._loud.set()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._path)
            except OSError:
                client.close()
                continue
            link = _Link(client, server)
            with self._lock:
                self._links.append(link)
            for pump in (self._to_server, self._to_client):
                threading.Thread(target=self._pump, args=(pump, link), daemon=True).start()

    def _pump(self, pump: object, link: _Link) -> None:
        with suppress(OSError):
            pump(link)  # type: ignore[operator]
        link.close()
        with self._lock, suppress(ValueError):
            self._links.remove(link)

    def _to_client(self, link: _Link) -> None:
        while data := link.server.recv(CHUNK_BYTES):
            self._wait(link)
            if link.held.is_set():
                assert link.gate is not None
                link.gate.reached.set()
                return self._until_gone(link)
            link.client.sendall(data)
        return None

    def _to_server(self, link: _Link) -> None:
        buffer = bytearray()
        started = False
        while data := link.client.recv(CHUNK_BYTES):
            buffer += data
            while (message := _message(buffer, started)) is not None:
                started = started or struct.unpack_from("!i", message, 4)[0] == PROTOCOL_3
                self._wait(link)
                if self._stops(link, message):
                    return self._until_gone(link)
                link.server.sendall(message)
        return None

    def _stops(self, link: _Link, message: bytes) -> bool:
        """Whether the connection stands at the gate before this message; for an answer's gate note that it came.

        Of a message with several statements those before the gate are sent.
        """
        text = _statement(link, message)
        if text is None:
            return False
        before = link.last
        if text != SYNC:
            link.last = text.rpartition("; ")[2]
        gate = self._gate
        at = text.rfind(gate.at) if gate is not None else -1
        if gate is None or at < 0 or gate.after not in before + text[:at]:
            return False
        if gate.skip:
            gate.skip -= 1
            return False
        self._gate, link.gate = None, gate
        if gate.answer:
            link.held.set()
            return False
        if message[:1] == b"Q" and "; " in text[:at]:
            link.held.set()
            link.server.sendall(_query(text[:at].rpartition("; ")[0]))
        else:
            gate.reached.set()
        return True

    def _wait(self, link: _Link) -> None:
        if link.silent:
            self._loud.wait()
            link.silent = False

    @staticmethod
    def _until_gone(link: _Link) -> None:
        """Hold the connection open until the client is dead: then the server sees its end."""
        while link.client.recv(CHUNK_BYTES):
            pass


def _message(buffer: bytearray, started: bool) -> bytes | None:
    """Take the next whole message of a client out of the buffer; the first ones have no type."""
    head = 1 if started else 0
    if len(buffer) < head + 4:
        return None
    size = head + struct.unpack_from("!i", buffer, head)[0]
    if len(buffer) < size:
        return None
    message = bytes(buffer[:size])
    del buffer[:size]
    return message


def _query(text: str) -> bytes:
    """A Query message."""
    body = text.encode() + b"\0"
    return b"Q" + struct.pack("!i", len(body) + 4) + body


def _statement(link: _Link, message: bytes) -> str | None:
    """The text that a Query or Bind executes; a Parse is remembered under its name."""
    kind, body = message[:1], message[5:]
    if kind == b"Q":
        return body.rstrip(b"\0").decode()
    if kind == b"P":
        name, text, _ = body.split(b"\0", 2)
        link.texts[name] = text.decode()
    elif kind == b"S":
        return SYNC
    elif kind == b"B":
        _, name, _ = body.split(b"\0", 2)
        return link.texts.get(name, "")
    return None
