"""jobrunner.settings: which database, and the one line when it cannot be reached."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cluster import running_server
from jobrunner import devserver
from jobrunner.errors import ConnectError, UsageError
from jobrunner.settings import connect_error, resolve_dsn


def test_resolve_dsn_prefers_the_option_then_jobrunner_dsn_then_pg_variables() -> None:
    environ = {"JOBRUNNER_DSN": "dbname=b", "PGDATABASE": "c", "PGHOST": "/run/x"}
    assert resolve_dsn("dbname=a", environ) == "dbname=a"
    assert resolve_dsn(None, environ) == "dbname=b"
    del environ["JOBRUNNER_DSN"]
    assert conninfo_to_dict(resolve_dsn(None, environ)) == {"dbname": "c", "host": "/run/x"}


@pytest.mark.parametrize("environ", [{}, {"JOBRUNNER_DSN": "", "PGPASSWORD": "s"}])
def test_resolve_dsn_without_any_names_what_to_set(environ: Mapping[str, str]) -> None:
    with pytest.raises(UsageError, match="use --dsn, or set JOBRUNNER_DSN") as caught:
        resolve_dsn(None, environ)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("dsn", ["", "  ", "no such thing secret", "colour=secret"])
def test_resolve_dsn_refuses_what_is_no_connection_string_and_keeps_its_secret(dsn: str) -> None:
    with pytest.raises(UsageError, match="--dsn is") as caught:
        resolve_dsn(dsn, {"JOBRUNNER_DSN": "dbname=b"})
    assert "secret" not in str(caught.value)


def _refusal(conninfo: str) -> ConnectError:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(conninfo)
    error = connect_error(caught.value)
    assert "\n" not in str(error)
    assert error.exit_code == 4
    return error


def test_connect_error_of_a_port_without_a_server_asks_whether_it_runs() -> None:
    assert "Connection refused: is the server running" in str(_refusal("host=127.0.0.1 port=1 dbname=x"))


def test_connect_error_of_an_unknown_host_names_the_host() -> None:
    assert "correct the host" in str(_refusal("host=nowhere.invalid dbname=x"))


def test_connect_error_of_an_unknown_service_names_the_file() -> None:
    assert "add it to ~/.pg_service.conf" in str(_refusal("service=nowhere"))


def test_connect_error_of_a_wrong_password_or_role_names_the_remedy() -> None:
    with running_server() as server:
        dsn = server.dsn("mdm")
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("create role walter login password 'right'")
            (server.data / "pg_hba.conf").write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        devserver.stop(server)
        devserver.start(server.base)
        wrong = _refusal(make_conninfo(dsn, user="walter", password="wrong"))
        none = _refusal(make_conninfo(dsn, user="walter", passfile="/nonexistent"))
        missing = _refusal(make_conninfo(dsn, dbname="nowhere"))
    assert "check the password" in str(wrong)
    assert "give a password" in str(none)
    assert 'database "nowhere" does not exist: create it first' in str(missing)
