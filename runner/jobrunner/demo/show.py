"""What `bin/run` prints: aligned lines for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jobrunner.demo.load import Change, Loaded
from jobrunner.demo.result import AuditRow, Hit, Scope
from jobrunner.demo.world import Check, Jobs

LABEL_WIDTH = 9
NO_JOBS = Jobs(0, "none", False, 0.0)


def step(label: str, text: str) -> None:
    """Print what a step did."""
    print(f"{label:<{LABEL_WIDTH}} {text}", flush=True)


def loaded(found: Loaded, tenants: int, seconds: float) -> None:
    """Print what the load brought."""
    what = "all there already" if found.written == 0 else f"{found.written:,} new or changed"
    step("load", f"{found.rows:,} airports and cities of {tenants} tenants, {what} ({seconds:.1f} s)")


def changes(made: Iterable[Change]) -> None:
    """Print what the steward changed: why the vectors are out of date."""
    for change in made:
        state = "searchable from now on" if change.searchable else "no longer searchable"
        step("steward", f"{change.type_key}: {', '.join(change.attribute_keys)} {state}")


def results(scopes: Sequence[Scope], seconds: float) -> None:
    """Print the jobs, row by row, with their sums."""
    header = ("job", "tenant", "type", "status", "registered", "rebuilt", "changed", "right", "chunks", "seconds")
    lines = [
        (str(s.job_id), s.tenant, s.type_key, s.status, f"{s.registered:,}", f"{s.rebuilt:,}", f"{s.changed:,}",
         f"{s.right:,}", str(s.chunks), f"{s.seconds:.2f}")
        for s in scopes
    ]  # fmt: skip
    columns = zip(*((s.registered, s.rebuilt, s.changed, s.right, s.chunks) for s in scopes), strict=True)
    sums = [f"{sum(column):,}" for column in columns] or ["0"] * 5
    table(header, [*lines, ("", "all", "", "", *sums, f"{seconds:.2f}")], numbers=(0, *range(4, 10)))
    done = sum(s.status == "done" for s in scopes)
    rows = sum(s.rebuilt for s in scopes)
    print(f"\n{done} of {len(scopes)} jobs done in {seconds:.1f} s, {rows / max(seconds, 0.001):,.0f} rows a second")


def failures(scopes: Sequence[Scope]) -> int:
    """Print what is not as it should be and return how many jobs that are."""
    bad = [scope for scope in scopes if not scope.complete]
    for s in bad:
        why = f": {s.last_error}" if s.last_error else ""
        print(f"FAILED   job {s.job_id}, {s.type_key} of {s.tenant}: {s.status}, "
              f"{s.registered:,} registered, {s.rebuilt:,} rebuilt, {s.right:,} right{why}")  # fmt: skip
    return len(bad)


def found(query: str, total: int, hits: Sequence[Hit], seconds: float) -> None:
    """Print the best hits of a search."""
    print(f"\nsearch   {query!r}: {total:,} found in {seconds * 1000:.1f} ms")
    table(None, [(hit.name, hit.type_key, hit.country, hit.tenant) for hit in hits])


def trail(scope: Scope, rows: Sequence[AuditRow]) -> None:
    """Print the audit trail of a job."""
    print(f"\naudit    of job {scope.job_id}, {scope.type_key} of {scope.tenant}")
    table(
        None, [(f"{r.occurred_at:%H:%M:%S.%f}"[:-3], r.action, f"by {r.actor}", f"as {r.session_role}") for r in rows]
    )


def waiting(kinds: Iterable[tuple[str, int]]) -> None:
    """Print what waits for runners of other kinds, and why: the steward's changes asked for more than a reindex."""
    for job_kind, count in kinds:
        print(
            f"\nalso     {count:,} {job_kind} jobs were enqueued by the same changes and wait: the runner above takes"
            f"\n         reindex only (docs/reference/kinds.md says what a runner of {job_kind} needs)"
        )


def kinds(jobs: Mapping[str, Jobs], checks: Mapping[str, Sequence[Check]]) -> None:
    """Print what became of each kind, and what the world says of it."""
    lines = []
    for kind, found in checks.items():
        its = jobs.get(kind, NO_JOBS)
        cells = (kind, str(its.number), its.outcome, f"{its.seconds:.2f}")
        lines += [(*(cells if check is found[0] else ("", "", "", "")), check.text) for check in found]
    table(("kind", "jobs", "outcome", "seconds", "in the world"), lines, numbers=(1, 3))


def dead(jobs: Iterable[tuple[int, str, str]]) -> None:
    """Print what waits for an operator."""
    print()
    for job_id, job_kind, error in jobs:
        step("dlq", f"job {job_id}, {job_kind}: {error}")


def wrong(jobs: Mapping[str, Jobs], checks: Mapping[str, Sequence[Check]]) -> int:
    """Print what is not as it should be, and return how much that is."""
    bad = [(kind, check.text) for kind, found in checks.items() for check in found if not check.good]
    bad += [(kind, jobs.get(kind, NO_JOBS).outcome) for kind in checks if not jobs.get(kind, NO_JOBS).good]
    for kind, text in bad:
        print(f"FAILED   {kind}: {text}")
    return len(bad)


def table(
    header: Sequence[str] | None, lines: Sequence[Sequence[str]], numbers: Iterable[int] = (), indent: str = "  "
) -> None:
    """Print aligned columns; those of `numbers` to the right."""
    every = [header, *lines] if header else list(lines)
    if not every:
        return
    right = set(numbers)
    widths = [max(len(line[column]) for line in every) for column in range(len(every[0]))]
    for line in every:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print((indent + "  ".join(cells)).rstrip())
