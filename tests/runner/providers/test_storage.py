"""The directory storage: content below its directory, and nothing else (S2.6)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobrunner.errors import UsageError
from jobrunner.providers.storage import ContentRefused, ContentUnavailable, DirectoryStorage

pytestmark = pytest.mark.one_leg("18")


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    (tmp_path / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "below").mkdir(parents=True)
    (root / "below" / "größe .bin").write_bytes(b"content")
    return DirectoryStorage(root)


def test_open_reads_a_file_below(storage: DirectoryStorage) -> None:
    for key in ("below/größe .bin", "./below//größe .bin", "below/../below/größe .bin"):
        with storage.open(key) as content:
            assert content.read() == b"content"


@pytest.mark.parametrize(
    "key", ["../secret", "below/../../secret", "/etc/passwd", "", ".", "..", "a\0b", "below/..", "x/../../secret"]
)
def test_open_refuses_what_leads_out(storage: DirectoryStorage, key: str) -> None:
    with pytest.raises(ContentRefused):
        storage.open(key)


def test_open_refuses_the_absolute_path_even_of_its_own_file(storage: DirectoryStorage, tmp_path: Path) -> None:
    with pytest.raises(ContentRefused):
        storage.open(str(tmp_path / "root" / "below" / "größe .bin"))


def test_open_follows_links_only_inside(storage: DirectoryStorage, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "in").symlink_to(root / "below" / "größe .bin")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "dir").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    with storage.open("in") as content:
        assert content.read() == b"content"
    for key in ("out", "dir/secret"):
        with pytest.raises(ContentRefused):
            storage.open(key)
    with pytest.raises((ContentRefused, ContentUnavailable)):
        storage.open("loop")


def test_open_does_not_wait_for_a_pipe_and_reads_no_directory(storage: DirectoryStorage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "root" / "pipe")
    with pytest.raises(ContentRefused, match="no regular file"):
        storage.open("pipe")
    with pytest.raises((ContentRefused, ContentUnavailable)):
        storage.open("below")


@pytest.mark.parametrize("key", ["missing", "below/missing", "x" * 300, "below/größe .bin/more"])
def test_open_of_what_is_not_there_may_be_tried_again(storage: DirectoryStorage, key: str) -> None:
    with pytest.raises(ContentUnavailable):
        storage.open(key)


def test_from_environ_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="JOBRUNNER_STORAGE_DIR is not set"):
        DirectoryStorage.from_environ({})
    with pytest.raises(UsageError, match="no directory"):
        DirectoryStorage.from_environ({"JOBRUNNER_STORAGE_DIR": str(tmp_path / "missing")})
    DirectoryStorage.from_environ({"JOBRUNNER_STORAGE_DIR": str(tmp_path)})
