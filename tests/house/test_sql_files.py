"""The rules of the house for the files below sql/: what a machine can check of design 2 and the style."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from cluster import ROOT
from jobrunner import schema

pytestmark = pytest.mark.one_leg("18")

SQL = ROOT / "sql"
LISTS = ("once.sql", "always.sql")
FILES = sorted(str(path.relative_to(SQL)) for path in SQL.rglob("*.sql"))
SWITCHES = {"roles/as_owner.sql", "roles/as_platform.sql", "roles/as_installer.sql"}
ROUTINES = [path for path in FILES if path.startswith(("internal/", "functions/", "kinds/"))]
LAYERS = ("internal", "functions", "kinds", "views", "cron", "grants.sql")
# Design 3: around each part of the cleanup, as the row-by-row fallback of a sweep, and around a SQL handler.
WHEN_OTHERS = {"functions/cleanup_step.sql", "functions/recover_stale_jobs.sql", "functions/run_sql_jobs.sql"}
VOLATILITY = {"volatile": "parallel unsafe", "stable": "parallel safe", "immutable": "parallel safe"}
PURE_BUT_VOLATILE = {"internal/_raise.sql"}  # volatile, so that no planner raises it before its time


def text_of(path: str) -> str:
    return (SQL / path).read_text(encoding="utf-8")


def code_of(path: str) -> str:
    """The text without its comments and string literals."""
    text = re.sub(r"--[^\n]*", "", text_of(path))
    return re.sub(r"'(?:[^']|'')*'", "''", text)


def test_every_file_is_in_exactly_one_list() -> None:
    listed = [path for name in LISTS for path in schema.listed_files(name) if path not in SWITCHES]
    assert [path for path, times in Counter(listed).items() if times > 1] == []
    assert set(listed) | SWITCHES | {*LISTS, "install.sql"} == set(FILES)


def test_install_is_both_lists() -> None:
    assert re.findall(r"^\\ir (\S+)$", text_of("install.sql"), re.MULTILINE) == list(LISTS)


def test_every_part_sets_its_role_and_gives_it_back() -> None:
    parts = re.split(r"^-- \[(\w+)\]$", text_of("once.sql"), flags=re.MULTILINE)[1:]
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        paths = re.findall(r"^\\ir (\S+)$", body, re.MULTILINE)
        assert paths[0] in SWITCHES, name
        switches = [path for path in paths if path in SWITCHES]
        assert switches[-1] == "roles/as_installer.sql", name
    assert schema.listed_files("always.sql")[-1] == "roles/as_installer.sql"


def test_always_goes_one_way() -> None:
    paths = schema.listed_files("always.sql")
    tops = ["cron" if path.endswith("schedule_cleanup.sql") else path.split("/")[0] for path in paths]
    order = [LAYERS.index(top) for top in tops if top in LAYERS]
    assert order == sorted(order)


@pytest.mark.parametrize("path", [path for path in FILES if path not in (*LISTS, "install.sql")])
def test_file_opens_with_what_and_why_and_has_no_psql_command(path: str) -> None:
    assert text_of(path).startswith("-- ")
    assert not re.search(r"^\\", text_of(path), re.MULTILINE)


@pytest.mark.parametrize("path", ROUTINES)
def test_file_defines_the_one_routine_that_it_is_named_after(path: str) -> None:
    names = re.findall(r"^create or replace (?:function|procedure) mdm\.(\w+)", text_of(path), re.MULTILINE)
    assert names == [Path(path).stem]
    assert names[0].startswith("_") == path.startswith("internal/")


def header(path: str) -> list[str]:
    """The clauses between the parameters and the body, each starts its line."""
    lines = text_of(path).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("create or replace "))
    clauses = []
    for line in lines[start + 1 :]:
        if re.match(r"[a-z]", line):
            clauses.append(line)
        if re.match(r"(as|return|begin)\b(?!s)", line):
            return clauses
    raise AssertionError(f"{path} has no body")


@pytest.mark.parametrize("path", ROUTINES)
def test_header_names_every_clause_in_order(path: str) -> None:
    clauses = header(path)
    words = [clause.split(" ")[0] for clause in clauses]
    settings = [word for word in words if word == "set"]
    if re.search(r"^create or replace procedure ", text_of(path), re.MULTILINE):
        assert words == ["language", "security", "as"]  # a procedure that commits may have no SET
        return
    volatility = words[2]
    assert words[:1] + words[1:2] + words[3:5] == ["returns", "language", "parallel", "security"]
    assert words[5:-1] == settings
    if "exception\n" in code_of(path):  # a subtransaction: not in a parallel worker
        assert clauses[3] == "parallel unsafe"
    elif path not in PURE_BUT_VOLATILE:
        assert clauses[3] == VOLATILITY[volatility]


@pytest.mark.parametrize("path", [path for path in FILES if "security definer" in code_of(path)])
def test_security_definer_is_public_api_with_a_pinned_path(path: str) -> None:
    assert path.startswith(("functions/", "kinds/"))
    assert "set search_path = pg_catalog, pg_temp" in header(path)


def test_when_others_stands_only_where_the_design_says() -> None:
    assert {path for path in FILES if re.search(r"when\s+others", code_of(path))} == WHEN_OTHERS


@pytest.mark.parametrize("path", FILES)
def test_no_select_star_and_no_quoted_identifier(path: str) -> None:
    code = code_of(path)
    assert not re.search(r"select\s+\*", code)
    assert '"' not in code


@pytest.mark.parametrize("path", [path for path in FILES if "string_agg(" in code_of(path)])
def test_a_text_is_put_together_in_a_stated_order(path: str) -> None:
    """Else a message depends on the plan. A text search vector does not show the order."""
    code = code_of(path).replace("to_tsvector('', left(string_agg(", "")
    for call in re.split(r"\bstring_agg\(", code)[1:]:
        assert re.search(r"\border by\b", call.splitlines()[0]), call[:80]


def test_no_trigger_on_aa_job() -> None:
    assert not [path for path in FILES if re.search(r"create\s[^;]*trigger[^;]*\bon mdm\.aa_job\b", code_of(path))]
