"""The pages that answer a sceptic name tests that exist."""

from __future__ import annotations

import re

import pytest

from chaos.kinds import WINDOWS
from chaos.windows import ALL
from cluster import ROOT

PAGES = ("delivery.md", "faults.md")
NAME = re.compile(r"`(tests/[\w./]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", PAGES)
def test_evidence_names_files_and_tests_that_exist(page: str) -> None:
    found = NAME.findall((ROOT / "docs" / "explanation" / page).read_text(encoding="utf-8"))
    assert len(found) > 5
    for path, test in found:
        file = ROOT / path
        assert file.is_file(), path
        assert not test or re.search(rf"^def {test}\(", file.read_text(encoding="utf-8"), re.MULTILINE), test


def test_evidence_has_every_window_of_the_chaos_suite() -> None:
    page = (ROOT / "docs" / "explanation" / "delivery.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(w_\w+)`", page)) - {"w_"}
    assert named == {window.kind for window in ALL}
    assert named <= WINDOWS.keys()
