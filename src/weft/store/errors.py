"""What can go wrong with kept pages.

    StoreError           stored data cannot be read or written; the store must be opened again
    ├── Unreadable       one page's bytes are damaged or gone: skip it and go on with the rest
    └── DamagedIndex     an index is damaged: `weft rebuild` makes it again (exit 2)

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


class Unreadable(StoreError):
    """One page's bytes are damaged or gone; the others are as they were."""


class DamagedIndex(StoreError):
    """An index does not hold what it should; the WARC files do."""

    exit_code = 2

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(path, f"is damaged ({detail}): {remedy(path.parent)}")


def remedy(data_dir: Path) -> str:
    """What a person does about an index that is damaged, missing or older than its crawl."""
    # Only the first data dir has the crawl's identity, and the others alone are no crawl to the command.
    which = str(data_dir) if (data_dir / "crawl.json").exists() else "DIR..., with all data dirs of the crawl,"
    return f"`weft rebuild {which}` makes it again from the WARC files"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the system's and SQLite's ways to say that a write failed into ours."""
    try:
        with errors.writing(path):
            yield
    except OSError as error:
        raise StoreError(path, f"cannot be written: {error.strerror}") from error
    except sqlite3.Error as error:
        raise store_error(path, error, "written") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns SQLite's ways to say that a file is damaged into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(path, error, "read") from error


# SQLITE_ERROR: a table or column that our statements name is not there, since a bit of the layout has changed.
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_IOERR_SHORT_READ")


def store_error(path: Path, error: sqlite3.Error, done: str) -> StoreError:
    """What SQLite's error means for an index that could not be read, or written."""
    name = getattr(error, "sqlite_errorname", None) or ""
    # Python tells of a text that is not UTF-8 without any code of SQLite's.
    if name.startswith(_DAMAGE) or "Could not decode to UTF-8" in str(error):
        return DamagedIndex(path, str(error))
    return StoreError(path, f"cannot be {done}: {error}")
