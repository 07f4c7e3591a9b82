"""What can go wrong with kept pages: StoreError, after which the store must be opened again.

A full disk is `weft.errors.DiskFull`; a data dir that cannot be used at all is a `BadInput`; one that a live process
holds is `Busy`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft import errors


class StoreError(errors.WeftError):
    """Stored data cannot be read or written."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the system's and SQLite's ways to say that a write failed into ours."""
    try:
        with errors.writing(path):
            yield
    except OSError as error:
        raise StoreError(path, f"cannot be written: {error.strerror}") from error
    except sqlite3.Error as error:
        raise StoreError(path, f"cannot be written: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns SQLite's ways to say that a file is damaged into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(path, f"cannot be read: {error}") from error
