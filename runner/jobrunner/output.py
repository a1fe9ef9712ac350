"""What a command prints: tables on a terminal, aligned columns in a pipe, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

CUT: Final = 200  # characters of a cell for people; JSON has all of it


def show(head: Sequence[str], rows: Sequence[Sequence[Any]], *, as_json: bool = False) -> None:
    """Print rows: as a JSON array of objects, a table on a terminal, or columns."""
    if as_json:
        show_json([dict(zip(head, row, strict=True)) for row in rows])
    elif sys.stdout.isatty():
        _table(head, rows)
    else:
        _columns([list(head), *([cell(value) for value in row] for row in rows)])
    sys.stdout.flush()  # before what follows on stderr


def show_one(fields: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Print the fields of one thing, a line each; those that are empty are left out for people."""
    if as_json:
        show_json(fields)
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        if value is not None:
            print(f"{name.ljust(width)}  {cell(value, cut=None)}")


def show_json(value: Any) -> None:
    """Print a value as JSON; times as ISO 8601, everything else that JSON does not know as its text."""
    print(json.dumps(value, default=_plain, ensure_ascii=False))


def cell(value: Any, cut: int | None = CUT) -> str:
    """Write a value on one line, without anything that a terminal would obey."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return _here(value).isoformat(" ", "seconds")
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    text = " ".join("".join(char if char.isprintable() else " " for char in str(value)).split())
    return text if cut is None or len(text) <= cut else f"{text[: cut - 1]}…"


def _here(value: datetime) -> datetime:
    """The time in this machine's zone; as it is where that zone is in the year 10000 already."""
    try:
        return value.astimezone()
    except OverflowError:
        return value


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _columns(lines: Iterable[Sequence[str]]) -> None:
    """Print aligned columns."""
    lines = list(lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table that fits the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        number = [isinstance(value, int) and not isinstance(value, bool) for value in row]
        table.add_row(
            *(Text(cell(value), justify="right" if right else "left") for value, right in zip(row, number, strict=True))
        )
    Console(file=sys.stdout).print(table)
