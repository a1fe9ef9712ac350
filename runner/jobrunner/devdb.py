"""bin/dev-db: one throw-away server for a checkout, kept between runs. Never for production."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from jobrunner.devbinaries import embedded_bin, find_bin, own, reachable, server_user, usable_bin, version
from jobrunner.devserver import SOCKET_PATH_BYTES, DevServerError, Server, running_pid, start, stop

HELP: Final = """The throw-away server of this checkout; never for production.

  start         start it, and print its URL in the last line; makes an empty database mdm the first time
  stop          stop it; its files stay
  reset         stop it and throw its files away
  url           print its URL
  status        say what runs, and where
  embedded-bin  print where the PostgreSQL programs of .venv are, psql among them"""


def _state_file(root: Path) -> Path:
    return root / ".dev" / "server.json"


def load(root: Path) -> Server | None:
    """Return the checkout's server as it was last started, running or not."""
    try:
        state = json.loads(_state_file(root).read_text(encoding="utf-8"))
        return Server(Path(state["bin"]), Path(state["base"]), Path(state["socket_dir"]), int(state["port"]))
    except (OSError, ValueError, KeyError):
        return None


def _save(root: Path, server: Server) -> None:
    state = {name: value if isinstance(value, int) else str(value) for name, value in asdict(server).items()}
    target = _state_file(root)
    scratch = target.with_suffix(".new")
    scratch.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    scratch.rename(target)


def _private_dir(purpose: str, root: Path, parent: Path) -> Path:
    """Make (or find) a directory of ours for this checkout; somebody else's of that name is refused."""
    mark = hashlib.sha256(str(root).encode()).hexdigest()[:10]
    path = parent / f"mdm-{purpose}-{os.geteuid()}-{mark}"
    path.mkdir(mode=0o700, exist_ok=True)
    user = server_user()
    owner = path.lstat().st_uid
    if path.is_symlink() or owner not in (os.geteuid(), os.geteuid() if user is None else user.pw_uid):
        raise DevServerError(f"{path} belongs to somebody else: remove it")
    own(path)
    return path


def _places(root: Path, major: str, port: int) -> tuple[Path, Path]:
    """Return the data and the socket directory: below .dev/ where the server's user can reach it."""
    dev = root / ".dev"
    base = dev / f"pg{major}" if reachable(dev) else _private_dir("dev", root, Path("/var/tmp")) / f"pg{major}"
    if len(os.fsencode(base / f".s.PGSQL.{port}")) <= SOCKET_PATH_BYTES:
        return base, base
    return base, _private_dir("socket", root, Path(tempfile.gettempdir()))


def start_dev(root: Path, port: int | None = None) -> Server:
    """Start the checkout's server, or return the one that runs."""
    known = load(root)
    if known is not None and running_pid(known) is not None:
        if port is not None and port != known.port:
            raise DevServerError(f"the server runs already, on port {known.port}: bin/dev-db stop first")
        return known
    (root / ".dev").mkdir(exist_ok=True)
    binaries = usable_bin(find_bin())
    number = port or 5432
    base, socket_dir = _places(root, version(binaries).split(".")[0], number)
    server = start(base, binaries, {"max_connections": "200"}, socket_dir=socket_dir, port=number)
    _save(root, server)
    return server


def _url(root: Path) -> str:
    server = load(root)
    if server is None or running_pid(server) is None:
        raise DevServerError("the server does not run: bin/dev-db start")
    return server.dsn()


def _reset(root: Path) -> str:
    """Stop the server and throw its files away."""
    known = load(root)
    if known is None or not known.data.exists():
        return "there is nothing to throw away"
    stop(known)
    shutil.rmtree(known.base)
    return f"removed {known.base}: bin/dev-db start makes an empty server"


def _command(arguments: argparse.Namespace, root: Path) -> str:
    """Carry out one subcommand and return what it prints."""
    match arguments.action:
        case "start":
            server = start_dev(root, arguments.port)
            return f"PostgreSQL {version(server.bin)}, files in {server.base}\n{server.dsn()}"
        case "stop":
            known = load(root)
            if known is None or running_pid(known) is None:
                return "the server does not run"
            stop(known)
            return f"stopped; its files stay in {known.base}"
        case "reset":
            return _reset(root)
        case "url":
            return _url(root)
        case "status":
            _url(root)
            known = load(root)
            assert known is not None
            return f"running: PostgreSQL {version(known.bin)}, pid {running_pid(known)}, files in {known.base}"
        case _:
            return str(embedded_bin() or "")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of bin/dev-db; the exit code is 1 for every refusal."""
    parser = argparse.ArgumentParser(
        prog="bin/dev-db", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["start", "stop", "reset", "url", "status", "embedded-bin"])
    parser.add_argument("--port", type=int, help="number in the socket's name (start; default 5432)")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    try:
        print(_command(arguments, arguments.root.resolve()))
    except (DevServerError, OSError) as error:
        print(f"dev-db: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
