"""The clamd client against a real clamd, and against servers that stall, break off and lie (S2.6; faults B77, B116)."""

from __future__ import annotations

import io
import socket
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from attachments import running_clamd, stub, take
from jobrunner.demo.clamd import MARKER, STREAM_BYTES
from jobrunner.demo.ports import free_port
from jobrunner.errors import UsageError
from jobrunner.providers.clamd import Clamd, ClamdSettings
from jobrunner.providers.scanner import ScannerUnavailable, ScanRefused
from runnerkit import eventually

pytestmark = pytest.mark.one_leg("15")

SECONDS = 0.3


@pytest.fixture(scope="module")
def clamd() -> Iterator[Path]:
    with running_clamd() as path:
        yield path


def scan(
    address: Path | tuple[str, int],
    content: bytes,
    piece: int = 65_536,
    max_bytes: int = 1 << 30,
    stage_seconds: float = 10.0,
) -> str | None:
    settings = ClamdSettings(
        str(address) if isinstance(address, Path) else address, max_bytes, SECONDS, stage_seconds, stage_seconds
    )
    pieces = (content[start : start + piece] for start in range(0, len(content), piece))
    return Clamd(settings).scan(pieces, len(content))


def reset(client: socket.socket) -> None:
    """Close so that the other side gets a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


# -- a real clamd


@pytest.mark.parametrize("content", [b"", b"harmless", b"x" * (STREAM_BYTES - 1)])
def test_clamd_says_clean(clamd: Path, content: bytes) -> None:
    assert scan(clamd, content) is None


@pytest.mark.parametrize("piece", [1, 7, 65_536])
def test_clamd_finds_the_marker_however_it_is_cut(clamd: Path, piece: int) -> None:
    assert scan(clamd, b"a" * 100 + MARKER + b"b" * 100, piece) == "Test.Marker.UNOFFICIAL"


def test_clamd_looks_into_an_archive(clamd: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside.txt", MARKER * 50)
    assert MARKER not in packed.getvalue()
    assert scan(clamd, packed.getvalue()) == "Test.Marker.UNOFFICIAL"


@pytest.mark.parametrize("more", [1, 10 * STREAM_BYTES])
def test_b116_larger_than_clamds_stream_limit_is_never_clean(clamd: Path, more: int) -> None:
    with pytest.raises((ScanRefused, ScannerUnavailable)):
        scan(clamd, b"x" * (STREAM_BYTES + more))


def test_b116_larger_than_our_own_limit_is_refused_without_a_connection(tmp_path: Path) -> None:
    with pytest.raises(ScanRefused, match="JOBRUNNER_CLAMD_MAX_BYTES is 3"):
        scan(tmp_path / "nobody", b"four", max_bytes=3)


def test_b116_beyond_clamds_other_limits_is_refused_with_alert_exceeds_max() -> None:
    """Without that option clamd says OK of what it has not looked at: see the how-to."""
    with running_clamd(MaxFileSize="1000", AlertExceedsMax="yes") as path:
        with pytest.raises(ScanRefused, match=r"Heuristics\.Limits\.Exceeded"):
            scan(path, b"x" * 5000)
        assert scan(path, b"x" * 500) is None


def test_clamd_over_tcp() -> None:
    port = free_port()
    with running_clamd(TCPSocket=str(port), TCPAddr="127.0.0.1"):
        assert scan(("127.0.0.1", port), MARKER) == "Test.Marker.UNOFFICIAL"


def test_clamd_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScannerUnavailable, match="connect"):
        scan(tmp_path / "nobody", b"x")


# -- servers that do not do as they should


def test_stub_gets_the_content_as_it_is(tmp_path: Path) -> None:
    got: list[bytes] = []

    def serve(client: socket.socket, over: Event) -> None:
        got.append(take(client))
        client.sendall(b"stream: OK\0")

    content = bytes(range(256)) * 999
    with stub(serve) as address:
        assert scan(address, content, 1000) is None
    assert got == [content]


@pytest.mark.parametrize(
    "answer",
    [b"", b"OK\0", b"stream: OK, nearly\0", b"stream: \0", b"stream:OK\0", b"UNKNOWN COMMAND\0", b"stream: FOUND\0",
     b"stream: Can't allocate memory ERROR\0", b"\xff\xfe\0", b"stream: OK FOUND ERROR\0", b"x" * 100_000],
)  # fmt: skip
def test_only_the_word_of_clamd_is_clean(answer: bytes) -> None:
    def serve(client: socket.socket, over: Event) -> None:
        take(client)
        client.sendall(answer)

    with stub(serve) as address, pytest.raises(ScannerUnavailable):
        scan(address, b"content")


def test_b116_size_limit_said_in_mid_stream_is_refused() -> None:
    def serve(client: socket.socket, over: Event) -> None:
        client.recv(100)
        client.sendall(b"INSTREAM size limit exceeded. ERROR\0")
        over.wait()  # takes no more

    with stub(serve) as address, pytest.raises(ScanRefused, match="size limit exceeded"):
        scan(address, b"x" * 50_000_000)


@pytest.mark.parametrize("how", ["reset", "close", "reset before the answer", "OK in mid-stream"])
def test_b116_broken_off_is_never_clean(how: str) -> None:
    def serve(client: socket.socket, over: Event) -> None:
        if how == "reset before the answer":
            take(client)
        else:
            client.recv(100)
        if how == "OK in mid-stream":
            client.sendall(b"stream: OK\0")
            over.wait()
        elif how.startswith("reset"):
            reset(client)

    with stub(serve) as address, pytest.raises(ScannerUnavailable):
        scan(address, b"x" * (50_000 if how == "reset before the answer" else 50_000_000))


@pytest.mark.parametrize("stage", ["takes nothing", "silent", "drip"])
def test_b77_stalled_server_ends_within_its_limit(stage: str) -> None:
    def serve(client: socket.socket, over: Event) -> None:
        if stage != "takes nothing":
            take(client)
        while stage == "drip" and not over.wait(0.05):
            client.sendall(b"s")
        over.wait()

    began = monotonic()
    with stub(serve) as address, pytest.raises(ScannerUnavailable, match="no progress in time"):
        scan(address, b"x" * (50_000_000 if stage == "takes nothing" else 50_000), stage_seconds=2 * SECONDS)
    assert monotonic() - began < 5 * SECONDS + 15


def test_b77_connect_without_an_answer_ends_within_its_limit() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
    fillers = [socket.socket() for _ in range(4)]
    try:
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        began = monotonic()
        with pytest.raises(ScannerUnavailable, match="connect"):
            scan(listener.getsockname(), b"x")
        assert monotonic() - began < SECONDS + 15
    finally:
        for one in (*fillers, listener):
            one.close()


def test_error_of_the_content_gets_out_and_ends_the_stream_unfinished() -> None:
    ended: list[bool] = []

    def serve(client: socket.socket, over: Event) -> None:
        with client.makefile("rb") as stream:
            ended.append(stream.read()[-4:] == bytes(4))

    def pieces() -> Iterator[bytes]:
        yield b"x"
        raise LookupError

    with stub(serve) as address:
        with pytest.raises(LookupError):
            Clamd(ClamdSettings(address)).scan(pieces(), 2)
        eventually(lambda: ended)
    assert ended == [False], "clamd was not told that this was the whole content"


# -- settings


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:3310", ("127.0.0.1", 3310)),
        ("tcp://clamd:3310", ("clamd", 3310)),
        ("[::1]:3310", ("::1", 3310)),
        ("/run/clamav/clamd.ctl", "/run/clamav/clamd.ctl"),
        ("unix:/run/clamd", "/run/clamd"),
        ("unix:///run/clamd", "/run/clamd"),
    ],
)
def test_settings_read_the_address(text: str, address: object) -> None:
    assert ClamdSettings.from_environ({"JOBRUNNER_CLAMD": text}).address == address


def test_settings_read_the_limits() -> None:
    names = ("MAX_BYTES", "CONNECT_TIMEOUT_SECONDS", "SEND_TIMEOUT_SECONDS", "ANSWER_TIMEOUT_SECONDS")
    environ = {f"JOBRUNNER_CLAMD_{name}": str(n) for n, name in enumerate(names, 1)} | {"JOBRUNNER_CLAMD": "h:1"}
    assert ClamdSettings.from_environ(environ) == ClamdSettings(("h", 1), 1, 2.0, 3.0, 4.0)
    assert ClamdSettings.from_environ({"JOBRUNNER_CLAMD": "h:1"}) == ClamdSettings(("h", 1))


@pytest.mark.parametrize(
    "text", ["", " ", "host", "host:", ":3310", "host:0", "host:99999", "host:x", "a b:1", "run/x"]
)
def test_settings_name_the_variable_that_is_wrong(text: str) -> None:
    with pytest.raises(UsageError, match=r"JOBRUNNER_CLAMD is .* set it to"):
        ClamdSettings.from_environ({"JOBRUNNER_CLAMD": text})


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "x"])
def test_settings_name_the_number_that_is_wrong(text: str) -> None:
    with pytest.raises(UsageError, match="JOBRUNNER_CLAMD_MAX_BYTES is"):
        ClamdSettings.from_environ({"JOBRUNNER_CLAMD": "h:1", "JOBRUNNER_CLAMD_MAX_BYTES": text})
