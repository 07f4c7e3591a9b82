"""The errors of the page store.

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
from shlex import quote

from weft import errors


class StoreError(errors.WeftError):
    """Stored data cannot be read or written."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path


class UnreadableData(StoreError):
    """One page's bytes are damaged or gone; other pages are not affected."""


class DamagedIndex(StoreError):
    """An index is damaged; it can be rebuilt from the WARC files."""

    exit_code = 2

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(path, f"is damaged ({detail}): {rebuild_advice(path.parent)}")


def rebuild_advice(data_dir: Path) -> str:
    """The advice for an index that is damaged, missing or older than its crawl."""
    # Only the first data dir has engine.json, and `weft rebuild` needs all of them.
    is_whole = (data_dir / "engine.json").exists()
    which = quote(str(data_dir)) if is_whole else "DIR..., with all data dirs of the crawl,"
    return f"`weft rebuild {which}` makes it again from the WARC files"


@contextmanager
def convert_write_errors(path: Path) -> Iterator[None]:
    """Turns the system's and SQLite's write errors into StoreError and DiskFull."""
    try:
        with errors.writing(path):
            yield
    except OSError as error:
        raise StoreError(path, f"cannot be written: {error.strerror}") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise store_error(path, error, "written") from error


@contextmanager
def convert_read_errors(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into StoreError and DamagedIndex."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise store_error(path, error, "read") from error


# SQLITE_ERROR: a table or column is missing, because a bit of the stored layout has flipped.
_DAMAGE_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_IOERR_SHORT_READ")


def store_error(path: Path, error: sqlite3.Error | UnicodeDecodeError, done: str) -> StoreError:
    """The StoreError for an error of SQLite; `done` is "read" or "written"."""
    if isinstance(error, UnicodeDecodeError):  # SQLite's own message quotes a damaged layout
        return DamagedIndex(path, "its layout cannot be read")
    name = getattr(error, "sqlite_errorname", None) or ""
    # Python raises its error about text that is not UTF-8 without a code of SQLite.
    if name.startswith(_DAMAGE_ERRORS) or "Could not decode to UTF-8" in str(error):
        return DamagedIndex(path, str(error))
    return StoreError(path, f"cannot be {done}: {error}")
