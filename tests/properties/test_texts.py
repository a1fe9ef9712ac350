"""Error texts: any text comes out shorter, whole in its characters, and with one recovery note (S8.1, D9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

Pure = Callable[..., Any]
LIMIT = 8192
NOTE = "[stale-claim recovered]"

# Everything but NUL and lone surrogates: neither can reach the server. Wide characters, so that cuts fall inside them.
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("aé€😀\u0301\n")
texts = st.text(characters)
long_texts = st.builds(lambda text, n: text * n, st.text(characters, min_size=1, max_size=5), st.integers(1, 9000))
notes = st.sampled_from([NOTE, f" {NOTE}", f"{NOTE} x2", f"{NOTE} x999999999", "[stale-claim", " x3", f"{NOTE}\n"])
noted_texts = st.lists(texts | long_texts | notes, max_size=4).map("".join)


def size(text: str) -> int:
    return len(text.encode())


@given(text=texts | long_texts, limit=st.integers(0, 40) | st.integers(8180, 8200))
@example(text="", limit=0)
@example(text="😀", limit=3)
@example(text="e\u0301", limit=2)
def test_cut_bytes_is_the_longest_prefix_of_whole_characters(pure: Pure, text: str, limit: int) -> None:
    assert pure("_cut_bytes", text, limit) == text.encode()[:limit].decode(errors="ignore")


@given(text=noted_texts)
@example(text="")
@example(text=" ")
@example(text=NOTE * 2)
@example(text="x" * LIMIT)
@example(text="€" * LIMIT)
def test_recovery_note_stands_at_the_end_of_at_most_8192_bytes(pure: Pure, text: str) -> None:
    noted = pure("_recovery_note", text)
    assert size(noted) <= LIMIT
    start, _, tail = noted.rpartition(NOTE)
    assert tail == "" or tail.startswith(" x")
    assert start == "" or start.endswith(" ")


@given(text=(texts | long_texts).filter(lambda text: NOTE not in text), times=st.integers(1, 5))
def test_recovery_note_is_kept_once_and_counts(pure: Pure, text: str, times: int) -> None:
    noted = text
    for _ in range(times):
        noted = pure("_recovery_note", noted)
    note = NOTE if times == 1 else f"{NOTE} x{times}"
    assert noted.count(NOTE) == 1
    assert noted.endswith(note)
    kept = noted.removesuffix(note).removesuffix(" ")
    assert text.lstrip(" ").startswith(kept.lstrip(" "))
    if size(text) + 1 + size(note) <= LIMIT:
        assert kept.lstrip(" ") == text.lstrip(" ")


def test_recovery_note_of_nothing_is_the_note_alone(pure: Pure) -> None:
    assert pure("_recovery_note", None) == NOTE


@given(text=texts | long_texts)
def test_fail_job_stores_any_text(conn: Any, text: str) -> None:
    conn.execute("delete from mdm.aa_job")
    conn.execute("select mdm.enqueue_job('reindex')")
    row = conn.execute("select id, lease_no from mdm.claim_job('w', array['reindex'])").fetchone()
    conn.execute("select mdm.fail_job(%s, %s, %s)", (*row, text))
    stored = conn.execute("select last_error from mdm.aa_job").fetchone()[0]
    assert stored == text.encode()[:LIMIT].decode(errors="ignore")
