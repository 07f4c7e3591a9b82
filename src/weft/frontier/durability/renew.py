"""Replaces a frontier that is damaged beyond use: the next opening admits the links of the stored pages.

Readable records of the old file that cannot be derived again are copied: the sites' politeness state, refusals, and the
history of robots.txt, which the audit needs. The robots.txt files in force are not copied: they are fetched again, and
with them the sitemaps that they name. The old file is kept (`frontier.db.damaged`).
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import Damaged
from weft.frontier.durability.blobs import delete_blobs
from weft.frontier.durability.journal import FROM_STORE, TABLE_KEYS, FrontierJournal, mark_path, row_without_checksums
from weft.frontier.durability.swap_file import delete_swap_files

_COPIED_TABLES = {"robots_history": 3, "sites": 2, "refusals": 4}  # tables, and their columns


def renew_frontier(folder: Path, others: list[int]) -> bool:
    """Makes a pod's frontier admit the stored pages' links at its next opening; returns whether it had to be replaced.

    `others` are the crawl's other pods. The crawl must not be running.
    """
    path = folder / "frontier.db"
    aside = path.with_name("frontier.db.damaged")
    try:
        is_new = _is_frontier_empty(path)
    except Damaged:
        is_new = True
        for suffix in ("-wal", ""):
            Path(f"{aside}{suffix}").unlink(missing_ok=True)
            if (old := Path(f"{path}{suffix}")).exists():
                old.rename(f"{aside}{suffix}")
    if is_new:
        for other in (Path(f"{path}-shm"), mark_path(path), folder / "checkpoint"):
            other.unlink(missing_ok=True)
        delete_blobs(folder / "queues.db")
        delete_swap_files(folder)
    journal = FrontierJournal(path)
    if is_new:
        for table, row in _readable_rows(aside):
            *key, last = row
            journal.put(table, tuple(key), last)
        journal.put_meta("rebuilt_at", time.time())
        # Numbers start beyond every number that this pod has used: receivers drop messages with lower ones as repeats.
        for pod in others:
            journal.put_meta(f"sent:{pod}", time.time_ns() // 1000)
    for pod in others:
        journal.delete("meta", f"safe:{pod}")  # it may be rebuilt again
    journal.put_meta(FROM_STORE, True)
    journal.close()
    return is_new


def _is_frontier_empty(path: Path) -> bool:
    """Whether nothing was ever admitted there; Damaged if not all of it can be read."""
    journal = FrontierJournal(path)
    try:
        for table in TABLE_KEYS:
            _read_to_end(journal.rows(table))
        _read_to_end(journal.admitted_since(0))
        _read_to_end(journal.done_since(0))
        return not journal.last_seq()
    finally:
        journal.close()


def _read_to_end(records: Iterable[object]) -> None:
    deque(records, maxlen=0)


def _readable_rows(path: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The readable rows of a damaged file, of the tables that are copied."""
    if not path.exists():
        return
    for table, columns in _COPIED_TABLES.items():
        try:
            with closing(sqlite3.connect(path)) as db:
                db.execute("PRAGMA writable_schema=ON")  # otherwise SQLite reads nothing of a truncated file
                for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608
                    if len(row) == columns and (sound := _undamaged_row(table, row)) is not None:
                        yield table, sound
        except sqlite3.Error:
            continue  # the rows before the damage were yielded


def _undamaged_row(table: str, row: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A row with its records unsealed; None if it differs from what was written."""
    if not isinstance(row[0], str):
        return None
    if table == "refusals":
        return row if isinstance(row[1], str) else None
    try:
        row = row_without_checksums(row)
        msgspec.msgpack.decode(row[-1])
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return None
    return row
