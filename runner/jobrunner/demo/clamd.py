"""A clamd of one's own: one signature made by hand, nothing downloaded, a socket in a directory that goes with it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from jobrunner.errors import JobrunnerError

MARKER: Final = b"THIS-IS-OUR-TEST-MARKER"  # what the signature finds
SIGNATURE: Final = f"Test.Marker:0:*:{MARKER.hex()}\n"
STREAM_BYTES: Final = 1 << 20  # StreamMaxLength
START_SECONDS: Final = 30.0


def find_clamd() -> str | None:
    """Return the program; None when it is not installed (Debian: clamav-daemon)."""
    return shutil.which("clamd") or shutil.which("clamd", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def running_clamd(program: str, **settings: str) -> Iterator[Path]:
    """Run clamd for the time of a with block; gives its socket. Raises JobrunnerError when it does not start."""
    base = Path(tempfile.mkdtemp(prefix="mdm-clamd-"))
    (base / "db").mkdir()
    (base / "db" / "test.ndb").write_text(SIGNATURE)
    lines = {
        "Foreground": "yes",
        "DatabaseDirectory": str(base / "db"),
        "LocalSocket": str(base / "socket"),
        "LogFile": str(base / "log"),
        "TemporaryDirectory": str(base),
        "StreamMaxLength": str(STREAM_BYTES),
        "MaxThreads": "4",
        **settings,
    }
    (base / "conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    with (base / "out").open("wb") as out:
        process = subprocess.Popen([program, "-c", str(base / "conf")], stdout=out, stderr=out, cwd=base)
    try:
        _wait_until_up(process, base)
        yield base / "socket"
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(base)


def _wait_until_up(process: subprocess.Popen[bytes], base: Path) -> None:
    deadline = monotonic() + START_SECONDS
    while not (base / "socket").exists():
        if process.poll() is not None or monotonic() > deadline:
            said = (base / "out").read_text(errors="replace").strip().splitlines()
            raise JobrunnerError(f"clamd does not start: {said[-1] if said else 'it says nothing'}")
        sleep(0.05)
