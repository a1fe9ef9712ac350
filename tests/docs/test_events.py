"""Every event name of the log is in the reference, and every name there is one that is logged."""

from __future__ import annotations

import re

from cluster import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"
SOURCES = sorted((ROOT / "runner" / "jobrunner").rglob("*.py"))
CALL = re.compile(r'\b(?:job_)?event\(\s*(?:logging\.[A-Z]+|level), "(\w+)"')


def test_reference_has_every_event_and_no_other() -> None:
    logged = {name for path in SOURCES for name in CALL.findall(path.read_text())}
    listed = set(re.findall(r"^\| `(\w+)` \| (?:debug|info|warning|error|any) \|", PAGE.read_text(), re.MULTILINE))
    assert len(logged) > 20
    # what goes to a logger by itself: free text of handlers, and what is found out before a pool is there
    assert listed - logged == {"job_said", "said", "kind_left_out"}
    assert logged - listed == set()
