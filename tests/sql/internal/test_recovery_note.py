"""_recovery_note (S8.1, D9): one note at the end of the error text, counted, within 8,192 bytes."""

from __future__ import annotations

import pytest

from jobs import Connection, value

NOTE = "[stale-claim recovered]"


def note(conn: Connection, text: str | None) -> str:
    result: str = value(conn, "select mdm._recovery_note(%s)", text)
    return result


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        (None, NOTE),
        ("", NOTE),
        ("boom", f"boom {NOTE}"),
        ("two\nlines\n", f"two\nlines\n {NOTE}"),
        (NOTE, f"{NOTE} x2"),
        (f"boom {NOTE}", f"boom {NOTE} x2"),
        (f"boom {NOTE} x2", f"boom {NOTE} x3"),
        (f"boom {NOTE} x9", f"boom {NOTE} x10"),
        (f"two\nlines {NOTE} x99", f"two\nlines {NOTE} x100"),
        (f"{NOTE} in the middle", f"{NOTE} in the middle {NOTE}"),
        (f"{NOTE} {NOTE}", f"{NOTE} {NOTE} x2"),
        (f"boom {NOTE} x", f"boom {NOTE} x {NOTE}"),
        (f"boom {NOTE} x999999998", f"boom {NOTE} x999999999"),
        (f"boom {NOTE} x999999999", f"boom {NOTE} x1000000000"),
    ],
    ids=ascii,
)
def test_d9_recovery_note_is_kept_once_and_counts(conn: Connection, text: str | None, noted: str) -> None:
    assert note(conn, text) == noted


@pytest.mark.parametrize("text", ["x" * 8192, "x" * 8168, "x" * 8169, "é" * 4096, f"{'é' * 4083} {NOTE} x9"])
def test_d9_older_text_is_cut_for_the_note(conn: Connection, text: str) -> None:
    noted = note(conn, text)
    assert 8190 <= len(noted.encode()) <= 8192
    assert noted.startswith(text[0] * 4000)
    assert noted.split(" ", 1)[1] in (NOTE, f"{NOTE} x10")
