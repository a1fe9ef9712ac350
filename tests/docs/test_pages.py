"""Every page of the documentation runs as written, and every link in it leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cluster import ROOT, PgServer, missing
from docpages import Session, blocks, commands, environment, matches, normalised, pages

pytestmark = pytest.mark.one_leg("15")

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
RUNNABLE = ("console", "sql", "python")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def page_dsn(fresh_dsn: str) -> Iterator[str]:
    """A migrated database for one page; roles that the page makes are dropped again, they belong to the cluster."""
    roles = "select rolname from pg_roles"
    with psycopg.connect(fresh_dsn, autocommit=True) as conn:
        before = set(conn.execute(roles))
        yield fresh_dsn
        for (role,) in set(conn.execute(roles)) - before:
            conn.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


@pytest.mark.parametrize(
    "path", [path for path in pages() if any(b.language in RUNNABLE for b in blocks(path))], ids=name
)
def test_page_runs_as_written(path: Path, page_dsn: str, pg_server: PgServer, tmp_path: Path) -> None:
    psql_dir = pg_server.server.bin
    if not (psql_dir / "psql").exists():
        missing("psql", f"{psql_dir} has none")
    parts = {key: str(value) for key, value in conninfo_to_dict(page_dsn).items()}
    (tmp_path / "sql").symlink_to(ROOT / "sql")  # pages are read in the checkout
    session = Session(environment(parts, page_dsn, psql_dir), tmp_path)
    try:
        for block in blocks(path):
            session.run(block)
    finally:
        session.psql.close()


@pytest.mark.parametrize("path", pages(), ids=name)
def test_page_links_resolve(path: Path) -> None:
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines())
    broken = []
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert not broken


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made from their words."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen = {ROOT / "README.md"}
    todo = list(seen)
    while todo:
        page = todo.pop()
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            there = (page.parent / target.partition("#")[0]).resolve()
            if there.suffix == ".md" and there.is_file() and there not in seen:
                seen.add(there)
                todo.append(there)
    assert set(pages()) - seen == set()


def test_shown_output_that_differs_is_noticed() -> None:
    real = normalised((" id | status ", "----+--------", "  1 | done   ", "(1 row)"))
    assert matches(normalised(("id | status", "---+---", "1 | done", "(1 row)")), real)
    assert matches(["...", "(1 row)"], real)
    assert matches(["id | ...", "...", "1 | ...", "(1 row)"], real)
    assert not matches(["id | ...", "2 | ...", "(1 row)"], real)
    assert not matches(normalised(("id | status", "---+---", "1 | dlq", "(1 row)")), real)
    assert not matches(["(1 row)"], real)


def test_console_block_is_split_into_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo a \\\n    b\na b\nmdm=# select 1,\nmdm-#   2;\n 1 | 2\n```\n")
    (block,) = blocks(page)
    assert [(c.tool, c.text, c.output) for c in commands(block)] == [
        ("bash", "echo a \\\n    b", ("a b",)),
        ("psql", "select 1,\n  2;", (" 1 | 2",)),
    ]
