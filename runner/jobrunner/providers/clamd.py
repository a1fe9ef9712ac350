"""Scans with clamd: the INSTREAM command of its protocol, over TCP or a unix socket, every stage with a time limit."""

from __future__ import annotations

import re
import select
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final

from jobrunner.errors import UsageError
from jobrunner.providers.environ import number, required
from jobrunner.providers.scanner import ScannerUnavailable, ScanRefused

ADDRESS: Final = re.compile(r"(?:tcp://)?(\[[^\]]+\]|[^:/\s]+):(\d{1,5})")
FOUND: Final = re.compile(r"stream: (.+) FOUND")
# Said with AlertExceedsMax: clamd did not look at all of the content.
NOT_WHOLE: Final = ("Heuristics.Limits.Exceeded", "INSTREAM size limit exceeded")
ANSWER_BYTES: Final = 65_536
# Not above clamd's own StreamMaxLength and MaxFileSize: beyond the latter it says OK without having looked.
MAX_BYTES: Final = 25 << 20
CONNECT_SECONDS: Final = 5.0
SEND_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class ClamdSettings:
    """Where clamd listens, and its limits; from the variables JOBRUNNER_CLAMD*."""

    address: str | tuple[str, int]  # path of a unix socket, or host and port
    max_bytes: int = MAX_BYTES
    connect_seconds: float = CONNECT_SECONDS
    send_seconds: float = SEND_SECONDS
    answer_seconds: float = ANSWER_SECONDS

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ClamdSettings:
        """Read the settings; raises UsageError that names the variable which is missing or wrong."""
        text = required(environ, "JOBRUNNER_CLAMD", "clamd's host:port or the path of its socket")
        return cls(
            address=_address(text),
            max_bytes=int(number(environ, "JOBRUNNER_CLAMD_MAX_BYTES", MAX_BYTES)),
            connect_seconds=number(environ, "JOBRUNNER_CLAMD_CONNECT_TIMEOUT_SECONDS", CONNECT_SECONDS),
            send_seconds=number(environ, "JOBRUNNER_CLAMD_SEND_TIMEOUT_SECONDS", SEND_SECONDS),
            answer_seconds=number(environ, "JOBRUNNER_CLAMD_ANSWER_TIMEOUT_SECONDS", ANSWER_SECONDS),
        )


class Clamd:
    """The scanner of a clamd (scanner.Scanner)."""

    def __init__(self, settings: ClamdSettings) -> None:
        self._settings = settings

    def scan(self, chunks: Iterable[bytes], size_bytes: int) -> str | None:
        """Scan; None means that clamd was given everything and then said OK (S2.6)."""
        if size_bytes > self._settings.max_bytes:
            raise ScanRefused(
                f"too large to be scanned: {size_bytes} bytes, JOBRUNNER_CLAMD_MAX_BYTES is {self._settings.max_bytes}"
            )
        with _reached("connect"):
            sock = self._connect()
        with sock:
            is_complete = self._send(sock, chunks)
            with _reached("answer"):
                answer = _receive(sock, monotonic() + self._settings.answer_seconds)
        return _verdict(answer, is_complete)

    def _connect(self) -> socket.socket:
        address, seconds = self._settings.address, self._settings.connect_seconds
        if isinstance(address, tuple):
            return socket.create_connection(address, timeout=seconds)
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(seconds)
            sock.connect(address)
        except OSError:
            sock.close()
            raise
        return sock

    def _send(self, sock: socket.socket, chunks: Iterable[bytes]) -> bool:
        """Send the content; False when clamd answered, or hung up, before it had everything."""
        deadline = monotonic() + self._settings.send_seconds
        with _reached("send"):
            _send_all(sock, b"zINSTREAM\0", deadline)
        for chunk in chunks:  # reading them may raise errors of its own, which are not clamd's
            with _reached("send"):
                if chunk and not _send_all(sock, struct.pack("!L", len(chunk)) + chunk, deadline):
                    return False
        with _reached("send"):
            return _send_all(sock, struct.pack("!L", 0), deadline)


def _send_all(sock: socket.socket, data: bytes, deadline: float) -> bool:
    """Send; False when the other side has already said something, or takes no more."""
    if select.select([sock], [], [], 0)[0]:
        return False
    sock.settimeout(max(deadline - monotonic(), 0.001))
    try:
        sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _receive(sock: socket.socket, deadline: float) -> str:
    """Read the answer, up to its NUL or the end of the connection."""
    answer = b""
    while b"\0" not in answer and len(answer) < ANSWER_BYTES:
        sock.settimeout(max(deadline - monotonic(), 0.001))
        if not (data := sock.recv(4096)):
            break
        answer += data
    return answer.partition(b"\0")[0].decode("utf-8", "replace").strip()


def _verdict(answer: str, is_complete: bool) -> str | None:
    """Read the answer: only the word OK, after everything was sent, is clean."""
    if any(mark in answer for mark in NOT_WHOLE):
        raise ScanRefused(f"too large for clamd: {answer}")
    if is_complete and answer == "stream: OK":
        return None
    if found := FOUND.fullmatch(answer):
        return found[1]
    when = "" if is_complete else " before it had the whole content"
    raise ScannerUnavailable(f"clamd answered {answer!r}{when}" if answer else f"clamd hung up{when}")


@contextmanager
def _reached(stage: str) -> Iterator[None]:
    """Turn what the socket raises into ScannerUnavailable."""
    try:
        yield
    except TimeoutError as error:
        raise ScannerUnavailable(f"clamd: no progress in time ({stage})") from error
    except OSError as error:
        raise ScannerUnavailable(f"clamd: {error} ({stage})") from error


def _address(text: str) -> str | tuple[str, int]:
    """Read host:port, [v6]:port, tcp://host:port, unix:/path or /path."""
    path = text.removeprefix("unix://").removeprefix("unix:")
    if path.startswith("/"):
        return path
    parts = ADDRESS.fullmatch(text)
    if parts is None or not 0 < int(parts[2]) < 65_536:
        raise UsageError(f"JOBRUNNER_CLAMD is {text!r}: set it to host:port or to the path of a socket")
    return parts[1].strip("[]"), int(parts[2])
