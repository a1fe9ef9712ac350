"""Where the content of attachments lies: a small Protocol, and the directory that comes with the package."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from jobrunner.errors import UsageError
from jobrunner.providers.environ import required

DIR: Final = "JOBRUNNER_STORAGE_DIR"


class ContentUnavailable(Exception):
    """The content is not there, cannot be read, or is not as long as registered. Trying again may help."""


class ContentRefused(Exception):
    """The key can name no content of this storage: no use in retrying."""


class Storage(Protocol):
    """Gives the content of a key."""

    def open(self, key: str) -> BinaryIO:
        """Open a content for reading; raises ContentUnavailable or ContentRefused."""


class DirectoryStorage:
    """A directory: the key is a path below it (Storage)."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> DirectoryStorage:
        """Read JOBRUNNER_STORAGE_DIR; raises UsageError when it is not set or no directory."""
        root = Path(required(environ, DIR, "the directory of the attachments' content"))
        if not root.is_dir():
            raise UsageError(f"{DIR} is {str(root)!r}, which is no directory: create it, or correct the variable")
        return cls(root)

    def open(self, key: str) -> BinaryIO:
        """Open a regular file below the directory, wherever symbolic links lead."""
        path = self._path(key)
        try:
            # a pipe or a device must not be waited for
            content = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        except OSError as error:
            raise ContentUnavailable(f"storage key {key!r}: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(content.fileno()).st_mode):
            content.close()
            raise ContentRefused(f"storage key {key!r} names no regular file")
        return content

    def _path(self, key: str) -> Path:
        """Return the file's path; raises ContentRefused when the key leads out of the directory."""
        try:
            path = (self._root / key).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise ContentRefused(f"storage key {key!r} is no path") from error
        if not key or key.startswith("/") or path == self._root or not path.is_relative_to(self._root):
            raise ContentRefused(f"storage key {key!r} leads out of the storage")
        return path
