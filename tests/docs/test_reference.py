"""docs/reference is what bin/docs makes of the installed schema, errors.py and the command line."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from cluster import ROOT

pytestmark = pytest.mark.one_leg("15")

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate.py, which is no part of any package."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_is_current(generate: ModuleType, conn: Connection) -> None:
    stale = [path.name for path in generate.outdated(generate.render(conn))]
    assert stale == [], "run bin/docs"


def test_reference_notices_a_page_that_differs(generate: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert generate.outdated({page: "new\n"}) == [page]
    page.write_text("old\n")
    assert generate.outdated({page: "new\n"}) == [page]
    assert generate.outdated({page: "old\n"}) == []


def test_every_public_object_is_in_the_reference(generate: ModuleType, conn: Connection) -> None:
    functions = (generate.REFERENCE / "functions.md").read_text()
    tables = (generate.REFERENCE / "tables.md").read_text()
    names = conn.execute(
        "select proname from pg_proc where pronamespace = 'mdm'::regnamespace and proname not like '\\_%'"
    )
    assert [name for (name,) in names if f"\n### {name}\n" not in functions] == []
    relations = conn.execute(
        "select relname from pg_class where relnamespace = 'mdm'::regnamespace and relkind in ('r', 'p', 'v')"
        " and relname not like '%yoyo%'"
    )
    assert [name for (name,) in relations if f"\n### {name}\n" not in tables] == []


def test_comment_of_a_function_names_every_sqlstate_that_it_raises(generate: ModuleType, conn: Connection) -> None:
    every = generate.functions(conn)
    codes = generate.raised(every)
    missing = {
        f.name: sorted(code for code in codes[f.name] if code not in f.comment)
        for f in every
        if not f.name.startswith("_") and f.result != "trigger"
    }
    assert {name: found for name, found in missing.items() if found} == {}


def test_meanings_are_those_of_the_constants(generate: ModuleType) -> None:
    assert list(generate.MEANINGS) == list(generate.sqlstates())


def test_every_sqlstate_that_the_schema_raises_is_a_constant(generate: ModuleType) -> None:
    raised = {code for path in (ROOT / "sql").rglob("*.sql") for code in re.findall(r"'(MJ\d{3})'", path.read_text())}
    # MJ000 is private: enqueue's update catches it itself (D6)
    assert raised - {"MJ000"} <= set(generate.sqlstates().values())


def test_every_kind_and_every_variable_of_the_runner_is_documented(conn: Connection) -> None:
    page = (ROOT / "docs" / "reference" / "kinds.md").read_text()
    kinds = conn.execute("select job_kind from mdm.aa_job_kind order by 1").fetchall()
    assert [kind for (kind,) in kinds if f"| `{kind}` |" not in page] == []
    sources = [*(ROOT / "runner" / "jobrunner" / "providers").glob("*.py")]
    variables = {name for path in sources for name in re.findall(r'"(JOBRUNNER_[A-Z_]+)"', path.read_text())}
    assert sorted(name for name in variables if f"`{name}`" not in page) == []


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "explanation" / "dependencies.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(name for group in project["optional-dependencies"].values() for name in group),
    ]
    names = [re.match(r"[\w-]+(\[\w+\])?", text).group() for text in wanted]  # type: ignore[union-attr]
    assert [name for name in names if f"`{name}`" not in page] == []
