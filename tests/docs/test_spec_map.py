"""The spec map is complete: every clause, and every file and test that it names exists."""

from __future__ import annotations

import re

from cluster import ROOT

PAGE = ROOT / "docs" / "reference" / "spec-map.md"
# How many clauses each section of the specification has, and how many decisions came with it.
CLAUSES = {1: 2, 2: 9, 3: 3, 4: 2, 5: 4, 6: 3, 7: 6, 8: 3, 9: 3, 10: 2, 11: 2, 12: 4, 13: 4}
DECISIONS = 24
ROW = re.compile(r"^\| ((?:S\d+\.\d+)|(?:D\d+)) \| (.+) \| (.+) \| (.*) \|$", re.MULTILINE)
NAME = re.compile(r"`([\w./-]+?\.\w+)(?:::(\w+))?`")


def rows() -> list[tuple[str, str, str, str]]:
    return [(m[1], m[2], m[3], m[4]) for m in ROW.finditer(PAGE.read_text(encoding="utf-8"))]


def test_spec_map_has_every_clause_once() -> None:
    wanted = [f"S{section}.{number}" for section, count in CLAUSES.items() for number in range(1, count + 1)]
    wanted += [f"D{number}" for number in range(1, DECISIONS + 1)]
    assert [clause for clause, *_ in rows()] == wanted


def test_spec_map_says_where_each_clause_is_done() -> None:
    assert [clause for clause, _, where, _ in rows() if not NAME.search(where)] == []


def test_spec_map_names_a_test_or_a_reason() -> None:
    bad = [clause for clause, _, _, held in rows() if "`tests/" not in held and not re.match(r"— \w{3}", held)]
    assert bad == []


def test_spec_map_names_files_and_tests_that_exist() -> None:
    wrong = []
    for clause, _, where, held in rows():
        for path, test in NAME.findall(where) + NAME.findall(held):
            file = ROOT / path
            found = file.is_file() and (not test or re.search(rf"^def {test}\(", file.read_text(), re.MULTILINE))
            wrong += [] if found else [f"{clause}: {path}::{test}" if test else f"{clause}: {path}"]
        wrong += [
            f"{clause}: {name}" for name in re.findall(r"`(tests/[^`]*)`", held) if not NAME.fullmatch(f"`{name}`")
        ]
    assert wrong == []
