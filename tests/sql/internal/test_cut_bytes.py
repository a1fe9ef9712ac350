"""_cut_bytes (D9): the first bytes of a text, never half a character."""

from __future__ import annotations

import pytest

from jobs import Connection, value

SAMPLES = ["", "abc", "äöü", "a€b€", "😀😀", "a😀é€", "e\u0301e\u0301", "\n\t ", "x" * 20]


def cut(conn: Connection, text: str | None, size: int) -> str | None:
    result: str | None = value(conn, "select mdm._cut_bytes(%s, %s)", text, size)
    return result


@pytest.mark.parametrize("text", SAMPLES, ids=ascii)
def test_d9_cut_bytes_is_the_longest_start_that_fits(conn: Connection, text: str) -> None:
    for size in range(22):
        starts = [text[:end] for end in range(len(text) + 1)]
        assert cut(conn, text, size) == max((start for start in starts if len(start.encode()) <= size), key=len), (
            f"{size} bytes"
        )


def test_cut_bytes_of_null_is_null(conn: Connection) -> None:
    assert cut(conn, None, 5) is None


def test_cut_bytes_of_a_long_text(conn: Connection) -> None:
    assert value(conn, "select octet_length(mdm._cut_bytes(repeat('€', 1000000), 8192))") == 8190
