"""The rules of the house for the Python files: SQL stands in db/ only, and nothing else knows a table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import ROOT

pytestmark = pytest.mark.one_leg("18")

PACKAGE = ROOT / "runner" / "jobrunner"
# The demo plays the platform, whose tables it fills; the throw-away server makes its database in single-user mode.
APART = {PACKAGE / "devserver.py", *(PACKAGE / "demo").glob("*.py")}
FILES = sorted({*PACKAGE.rglob("*.py"), *(ROOT / "migrations").glob("*.py")} - APART)
STATEMENT = re.compile(
    r"\s*(select\b.*(\bfrom\b|\()|insert\s+into\b|update\s+\S+\s+set\b|delete\s+from\b|with\s+\w+\s+as\b|call\s+mdm"
    r"|(create|alter|drop)\s+(or|table|index|type|role|user|database|schema|function|view|extension)\b"
    r"|(un)?listen\s+\S+$|notify\s+\S+$|(set|reset)\s+(local|session|role)\b|begin\b.*isolation)",
    re.IGNORECASE | re.DOTALL,
)


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """The string constants of a module, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sql_stands_in_db_only(path: Path) -> None:
    found = [(line, text) for line, text in strings(path) if STATEMENT.match(text)]
    assert path.is_relative_to(PACKAGE / "db") or found == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_bookkeeping_knows_a_table(path: Path) -> None:
    found = [
        (line, text)
        for line, text in strings(path)
        if re.search(r"\b(from|join|into|update|table)\s+mdm\.(aa|ddm)_", text)
    ]
    assert path.name == "bookkeeping.py" or found == []


def test_the_rules_would_notice() -> None:
    bookkeeping = [text for _, text in strings(PACKAGE / "db" / "bookkeeping.py")]
    assert sum(bool(STATEMENT.match(text)) for text in bookkeeping) > 5


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_module_says_what_it_is_and_stays_readable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 250


@pytest.mark.parametrize("path", sorted((ROOT / "migrations").glob("*.py")), ids=lambda path: path.name)
def test_migration_is_ten_lines_without_text_of_its_own(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 12
