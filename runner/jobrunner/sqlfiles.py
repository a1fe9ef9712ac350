"""The files of sql/ and migrations/ in this package: where they are, and what the two lists name."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from jobrunner.errors import SchemaError

INCLUDE: Final = re.compile(r"\\ir (\S+)")
PART: Final = re.compile(r"-- \[(\w+)\]")


def data_dir(name: str) -> Path:
    """Return the directory `sql` or `migrations`: of the installed wheel, else of the checkout."""
    here = Path(__file__).resolve().parent
    candidates = (here / "_data" / name, here.parents[1] / name)
    found = next((path for path in candidates if path.is_dir()), None)
    if found is None:
        raise SchemaError(f"the package has no {name}/ directory: install it again")
    return found


def listed_files(list_name: str, part: str | None = None) -> list[str]:
    r"""Return the paths of a list's `\ir` lines (below sql/), all of them or those of one `-- [part]`."""
    current = None
    paths = []
    for number, line in enumerate(text_of(list_name).splitlines(), 1):
        if heading := PART.fullmatch(line.strip()):
            current = heading[1]
        elif include := INCLUDE.fullmatch(line.strip()):
            paths += [include[1]] if part in (None, current) else []
        elif line.strip() and not line.startswith("--"):
            raise SchemaError(rf"sql/{list_name}:{number} is neither a comment nor an \ir line")
    return paths


def text_of(path: str) -> str:
    """Return the text of a file below sql/."""
    return (data_dir("sql") / path).read_text(encoding="utf-8")


def always_hashes() -> dict[str, str]:
    """Return path -> sha256 of the files that every migrate loads."""
    return {path: hashlib.sha256(text_of(path).encode()).hexdigest() for path in listed_files("always.sql")}
