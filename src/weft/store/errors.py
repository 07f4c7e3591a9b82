"""What can go wrong with kept pages, divided by what the caller does about it.

    StoreError               the store cannot go on: stop, and open it again later (exit 1)
    └── DiskFull             no room: free some, then call the same step again; nothing is lost or half done

A data dir that cannot be used at all is a `BadInput`; one that a live process holds is `Busy`.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.errors import WeftError

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# SQLite knows ENOSPC as FULL; a quota or size limit it reports as a failed write, a full tmpfs as a failed SHMSIZE.
_SQLITE_NO_ROOM = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"})


class StoreError(WeftError):
    """Stored data cannot be read or written."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path


class DiskFull(StoreError):
    """There is no room for what must be written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "no space left on the device (or a quota is used up): free some and go on")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the system's and SQLite's ways to say that a write failed into ours."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFull(path) from error
        raise StoreError(path, f"cannot be written: {error.strerror}") from error
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "") in _SQLITE_NO_ROOM:
            raise DiskFull(path) from error
        raise StoreError(path, f"cannot be written: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns SQLite's ways to say that a file is damaged into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(path, f"cannot be read: {error}") from error
