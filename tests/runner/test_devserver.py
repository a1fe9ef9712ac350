"""The throw-away server: as root and as anybody, with stale files, in places that are too long or not his."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cluster import ROOT, make_base
from jobrunner import devbinaries, devdb, devserver
from jobrunner.devserver import DevServerError, Server

# What does not depend on which server it is: the other leg starts servers enough.
any_server = pytest.mark.one_leg("18")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about dropping root's rights")


@pytest.fixture
def base() -> Iterator[Path]:
    """A short directory; a server that is left in it is stopped."""
    path = make_base()
    yield path
    server = Server(devbinaries.usable_bin(devbinaries.find_bin()), path, path)
    devserver.stop(server)
    shutil.rmtree(path)


def test_start_makes_the_database_and_applies_the_options(base: Path) -> None:
    server = devserver.start(base, options={"work_mem": "7MB", "application_name": "it's"})
    with psycopg.connect(server.dsn()) as conn:
        row = conn.execute(
            "select current_database(), current_setting('work_mem'), current_setting('fsync')"
        ).fetchone()
        assert row == ("mdm", "7MB", "on")
        assert conn.execute("show listen_addresses").fetchone() == ("",)
    assert devserver.start(base).data == server.data  # runs already
    devserver.stop(server)
    assert devserver.running_pid(server) is None
    devserver.stop(server)


def test_start_keeps_the_data_and_forgets_earlier_options(base: Path) -> None:
    server = devserver.start(base, options={"work_mem": "7MB"})
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute("create table kept ()")
    devserver.stop(server)
    with psycopg.connect(devserver.start(base).dsn()) as conn:
        assert conn.execute("select to_regclass('kept')::text, current_setting('work_mem')").fetchone() == (
            "kept",
            "4MB",
        )


@any_server
def test_start_after_a_crash_whose_pid_another_program_has_now(base: Path) -> None:
    server = devserver.start(base)
    pid_file = server.data / "postmaster.pid"
    content = pid_file.read_text().splitlines()
    devserver.stop(server)
    pid_file.write_text("\n".join([str(os.getpid()), *content[1:]]) + "\n")
    assert devserver.running_pid(server) is None
    with psycopg.connect(devserver.start(base).dsn()) as conn:
        assert conn.execute("select 1").fetchone() == (1,)


@any_server
def test_start_where_another_server_has_the_port_is_one_clear_line(base: Path) -> None:
    first = devserver.start(base)
    second = make_base()
    try:
        with pytest.raises(DevServerError, match=r"port 5432 is in use \(.*\): stop that server") as caught:
            devserver.start(second, socket_dir=first.socket_dir)
        assert "\n" not in str(caught.value)
    finally:
        shutil.rmtree(second)


def test_start_with_a_setting_that_does_not_exist_says_so_and_leaves_nothing_running(base: Path) -> None:
    with pytest.raises(DevServerError, match=r'unrecognized configuration parameter "no_such_thing"'):
        devserver.start(base, options={"no_such_thing": "1"})
    assert devserver.running_pid(Server(devbinaries.find_bin(), base, base)) is None


def test_start_below_a_path_that_is_too_long_for_a_socket(base: Path) -> None:
    with pytest.raises(DevServerError, match="longer than 107 bytes"):
        devserver.start(base / ("x" * 100))


@any_server
def test_start_of_another_major_version_on_old_data_names_both(base: Path) -> None:
    server = devserver.start(base)
    devserver.stop(server)
    (server.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(DevServerError, match="belongs to PostgreSQL 9, not"):
        devserver.start(base)


def test_find_bin_refuses_a_directory_without_initdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBRUNNER_PG_BIN", str(tmp_path))
    with pytest.raises(DevServerError, match="holds no initdb"):
        devbinaries.find_bin()


def test_find_bin_takes_the_variable_then_debian_then_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = devbinaries.embedded_bin()
    assert embedded is not None
    monkeypatch.setenv("JOBRUNNER_PG_BIN", str(embedded))
    assert devbinaries.find_bin() == embedded
    monkeypatch.delenv("JOBRUNNER_PG_BIN")
    assert devbinaries.find_bin() == (devbinaries.debian_bin() or embedded)
    monkeypatch.setattr(devbinaries, "DEBIAN", Path("/nonexistent"))
    assert devbinaries.find_bin() == embedded


@as_root
@any_server
def test_start_with_binaries_and_data_that_the_servers_user_cannot_reach(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = devbinaries.embedded_bin()
    assert embedded is not None
    package = embedded.parents[1]
    home = tmp_path / package.name
    shutil.copytree(embedded.parent, home / "pginstall", symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), tmp_path / f"{package.name}.libs")
    tmp_path.chmod(0o700)
    monkeypatch.setattr(devbinaries, "ROOT_CACHE", base / "cache")
    base.chmod(0o755)
    with pytest.raises(DevServerError, match="cannot enter"):
        devserver.start(tmp_path / "data", embedded)
    server = devserver.start(base, home / "pginstall" / "bin")
    with psycopg.connect(server.dsn()) as conn:
        assert conn.execute("select 1").fetchone() == (1,)
    assert server.bin.is_relative_to(base / "cache")
    assert devbinaries.usable_bin(home / "pginstall" / "bin") == server.bin
    assert tmp_path.stat().st_mode & 0o777 == 0o700  # nobody's home was opened
    devserver.stop(server)


@as_root
def test_start_as_an_ordinary_user_needs_no_rights(base: Path) -> None:
    package = base / "code" / "jobrunner"  # the checkout may lie where nobody may read
    package.mkdir(parents=True)
    for name in ("__init__", "devserver", "devbinaries"):
        shutil.copy(ROOT / "runner" / "jobrunner" / f"{name}.py", package)
    script = (
        "import sys; from pathlib import Path; from jobrunner.devserver import *\n"
        "server = start(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "assert running_pid(server)\nstop(server)\nprint(server.data.owner())\n"
    )
    binaries = devbinaries.usable_bin(devbinaries.find_bin())
    os.chown(base, 65534, 65534)
    interpreter = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or sys.executable
    done = subprocess.run(
        [interpreter, "-c", script, base, binaries],
        cwd="/",
        env={"PYTHONPATH": str(base / "code")},
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "nobody"


@any_server
def test_dev_db_start_status_url_stop(capsys: pytest.CaptureFixture[str]) -> None:
    root = make_base()
    root.chmod(0o755)

    def dev_db(*arguments: str) -> tuple[int, str, str]:
        code = devdb.main([*arguments, "--root", str(root)])
        return code, *capsys.readouterr()

    try:
        code, _, err = dev_db("url")
        assert code == 1
        assert err == "dev-db: the server does not run: bin/dev-db start\n"
        code, out, _ = dev_db("start", "--port", "6001")
        assert code == 0
        url = out.splitlines()[-1]
        assert dev_db("url") == (0, url + "\n", "")
        with psycopg.connect(url) as conn:
            assert conn.execute("show port").fetchone() == ("6001",)
        assert dev_db("start")[1].splitlines()[-1] == url
        assert "stop first" in dev_db("start", "--port", "6002")[2]
        assert "running: PostgreSQL" in dev_db("status")[1]
        assert dev_db("stop")[0] == 0
        assert "does not run" in dev_db("stop")[1]
        assert "there is nothing" not in dev_db("reset")[1]
        assert not list(root.rglob("PG_VERSION"))
        assert dev_db("reset") == (0, "there is nothing to throw away\n", "")
    finally:
        dev_db("stop")
        shutil.rmtree(root)


@as_root
@any_server
def test_dev_db_below_a_closed_home_prints_where_its_files_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o700)
    try:
        assert devdb.main(["start", "--root", str(tmp_path)]) == 0
        shown = capsys.readouterr().out
        assert "files in /var/tmp/mdm-dev-" in shown
        with psycopg.connect(shown.splitlines()[-1]) as conn:
            assert conn.execute("select 1").fetchone() == (1,)
    finally:
        known = devdb.load(tmp_path)
        assert devdb.main(["stop", "--root", str(tmp_path)]) == 0
        assert known is not None
        shutil.rmtree(known.base.parent)
