"""Holds a frontier's state beyond its memory: pieces of long queues and rows of swapped-out sites, as numbered blobs.

    FOLDER/queues.db    blobs: number → checksum (8 bytes), content (see `compression`)
                        facts: which store it is, which checkpoint it has

A blob is written once and never changed; numbers are not used again. A checkpoint names blobs (`begin`). A blob that it
may name is deleted only when a later checkpoint is on the disk (`saved`), so that a process restored from a checkpoint
has all of its blobs; those written since are ignored. Blobs lie in one SQLite file, whose free pages are used again:
there is no file for each site or queue, nothing to compact, and opening costs the same at any size.

The file is a cache: the journal has what is queued. Where it is damaged it is deleted, and the next start reads the
journal instead.
"""

from __future__ import annotations

import os
import sqlite3
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from xxhash import xxh3_64_digest

from weft.errors import Damaged, DiskFull, is_damage, writing
from weft.frontier.durability.compression import packed, unpacked
from weft.frontier.durability.journal import sync_log

REMEDY = "it is deleted: resume the crawl, and what it held is read from the journal"
_BUFFER_BYTES = 1024 * 1024  # bytes of new blobs in memory: one transaction writes them
_CHECKSUM_BYTES = 8
_DELETED_AT_ONCE = 200
_DELETION_TURN_S = 0.01  # for each call of `delete_some`
_FEW_PAGES, _GIVEN_BACK = 100, 200  # free pages that stay in any case, and that go back to the disk at once
_PRAGMA_SETTINGS = (
    "auto_vacuum=INCREMENTAL",
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "wal_autocheckpoint=4000",  # pages
    "cache_size=-8000",  # KB
)
_CREATE_TABLES = """
CREATE TABLE IF NOT EXISTS blobs (number INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class BlobCheckpoint(Struct, array_like=True):
    """Identifies the blobs that a checkpoint names."""

    store: int  # which file it was
    saved: int  # the number of the checkpoint, counted by the file
    first_free: int  # blobs from this number on were written after it
    unwanted: bytes  # numbers, 8 bytes each, of blobs that nothing names any more
    leftover: list[tuple[int, int]]  # first and last numbers of ranges of blobs that nothing names


class BlobStore:
    """The blobs of one pod's frontier; one writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes_written = 0
        self._open_database()

    def _open_database(self) -> None:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._new: dict[int, bytes] = {}  # not in the file yet
        self.next_number = 1
        self._new_bytes = 0
        self._named_below = 0  # blobs below this number may be named by a checkpoint
        self._later: list[int] = []  # named by a checkpoint, and no longer needed
        self._awaiting: list[int] = []  # those of them that the checkpoint being written does not name
        self._unwanted: deque[int] = deque()  # to be deleted
        self._leftover: list[tuple[int, int]] = []  # ranges to be deleted, first and last numbers
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self._db.text_factory = bytes  # a blob that a flipped bit has made a text is still compared with its checksum
        try:
            self._prepare_database()
        except Damaged:
            self._replace_file()

    def _prepare_database(self) -> None:
        with self._report_damage(), writing(self.path):
            self._create_tables()
        with self._report_damage():
            facts: dict[bytes, int] = dict(self._db.execute("SELECT name, value FROM facts").fetchall())
        if b"store" not in facts:
            facts[b"store"] = int.from_bytes(os.urandom(7))
            with self._transaction():
                self._db.execute("INSERT INTO facts VALUES ('store', ?)", (facts[b"store"],))
        self._store, self._saved = facts[b"store"], facts.get(b"saved", 0)
        with self._report_damage():
            self.next_number = (self._db.execute("SELECT max(number) FROM blobs").fetchone()[0] or 0) + 1

    def _create_tables(self) -> None:
        for pragma in _PRAGMA_SETTINGS:
            self._db.execute(f"PRAGMA {pragma}")
        self._db.executescript(_CREATE_TABLES)

    def put(self, content: bytes) -> int:
        """Adds a blob; returns its number, which is not 0."""
        number = self.next_number
        self.next_number += 1
        self._new[number] = content
        self._new_bytes += len(content)
        if self._new_bytes >= _BUFFER_BYTES:
            with suppress(DiskFull):  # the content is still in memory, and the crawl will pause anyway
                self.flush()
        return number

    def get(self, number: int) -> bytes:
        """A blob's content; Damaged if it differs from what was written."""
        new = self._new.get(number)
        if new is not None:
            return new
        with self._report_damage():
            row = self._db.execute("SELECT content FROM blobs WHERE number = ?", (number,)).fetchone()
            if (
                row is None
                or not isinstance(row[0], bytes)
                or row[0][:_CHECKSUM_BYTES] != _checksum_of(number, row[0][_CHECKSUM_BYTES:])
            ):
                raise Damaged(self.path, f"is damaged (blob {number})", REMEDY)
            content: bytes = row[0][_CHECKSUM_BYTES:]
            return unpacked(content)

    def drop(self, number: int) -> None:
        """Marks a blob as no longer needed."""
        if number >= self._named_below:
            new = self._new.pop(number, None)
            if new is None:
                self._unwanted.append(number)
            else:
                self._new_bytes -= len(new)
        else:
            self._later.append(number)

    def drop_all(self, numbers: Iterable[int]) -> None:
        """Marks several blobs as no longer needed."""
        for number in numbers:
            self.drop(number)

    def flush(self) -> None:
        """Writes buffered blobs to the file; DiskFull leaves them in memory."""
        if not self._new:
            return
        rows = [(number, _with_checksum(number, content)) for number, content in self._new.items()]
        with self._transaction():
            self._db.executemany("INSERT INTO blobs VALUES (?, ?)", rows)
        self.bytes_written += sum(len(row) for _, row in rows)
        self._new.clear()
        self._new_bytes = 0

    def delete_some(self) -> None:
        """Deletes some of the blobs that are no longer needed: for some milliseconds, and the rest at the next
        calls.
        """
        until = time.monotonic() + _DELETION_TURN_S
        while (self._unwanted or self._leftover) and time.monotonic() < until:
            some = [self._unwanted.popleft() for _ in range(min(len(self._unwanted), _DELETED_AT_ONCE))]
            try:
                with self._transaction():
                    self._db.executemany("DELETE FROM blobs WHERE number = ?", [(number,) for number in some])
                    self._delete_leftover()
            except DiskFull:
                self._unwanted.extendleft(reversed(some))
                return
        if not self._unwanted:
            self._shrink_file()

    def _shrink_file(self) -> None:
        """Returns some free pages to the file system, if there are more free pages than used ones."""
        free, pages = (self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count"))
        if free > _FEW_PAGES and 2 * free > pages:
            with self._report_damage(), suppress(sqlite3.OperationalError):  # a full disk: they are kept
                # `execute` would free only one page, a single step of the statement.
                self._db.executescript(f"PRAGMA incremental_vacuum({_GIVEN_BACK})")

    def _delete_leftover(self) -> None:
        if self._leftover:
            numbers = "SELECT number FROM blobs WHERE number BETWEEN ? AND ? ORDER BY number LIMIT ?"
            some = f"DELETE FROM blobs WHERE number IN ({numbers})"  # noqa: S608
            if not self._db.execute(some, (*self._leftover[0], _DELETED_AT_ONCE)).rowcount:
                del self._leftover[0]

    # ── checkpoints ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_checkpoint(self) -> BlobCheckpoint:
        """Begins a checkpoint of this moment, which may name every blob that is needed now. It must not be on the disk
        before `sync` has returned.
        """
        self.flush()
        self._saved += 1
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('saved', ?)", (self._saved,))
        self._named_below = self.next_number
        self._awaiting, self._later = self._later, []
        unwanted = array("Q", (*self._unwanted, *self._awaiting)).tobytes()
        return BlobCheckpoint(self._store, self._saved, self.next_number, unwanted, list(self._leftover))

    def sync(self) -> None:
        """Makes flushed blobs safe against a power cut. Uses no connection, so a fork may call it."""
        sync_log(self.path)

    def end_checkpoint(self, *, was_written: bool) -> None:
        """That checkpoint is on the disk, or was given up."""
        if was_written:
            self._unwanted.extend(self._awaiting)
        else:
            self._later += self._awaiting
        self._awaiting = []

    def has_checkpoint(self, named: BlobCheckpoint) -> bool:
        """Whether this file has the blobs that a checkpoint names."""
        return self._store == named.store and self._saved >= named.saved

    def discard_since(self, named: BlobCheckpoint) -> None:
        """Discards what was written since that checkpoint; called before anything is put."""
        self._named_below = named.first_free
        unwanted = array("Q")
        unwanted.frombytes(named.unwanted)
        self._unwanted.extend(unwanted)
        self._leftover = list(named.leftover)
        if self.next_number > named.first_free:
            self._leftover.append((named.first_free, self.next_number - 1))
        self.next_number = max(self.next_number, named.first_free)

    def clear(self) -> None:
        """Starts with an empty store."""
        if self.next_number > 1 or self._saved:
            self._replace_file()

    def close(self) -> None:
        """Writes buffered blobs and closes the file."""
        with suppress(DiskFull):
            self.flush()
        self.delete_some()
        self._db.close()

    def _replace_file(self) -> None:
        self._db.close()
        delete_blobs(self.path)
        self._open_database()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._report_damage(), writing(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _report_damage(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            delete_blobs(self.path)
            raise Damaged(self.path, f"is damaged ({error})", REMEDY) from error
        except Damaged:
            delete_blobs(self.path)  # otherwise the next start would trust the file
            raise


def delete_blobs(path: Path) -> None:
    """Deletes the file, with SQLite's files beside it."""
    for suffix in ("-wal", "-shm", ""):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _with_checksum(number: int, content: bytes) -> bytes:
    data = packed(content)
    return _checksum_of(number, data) + data


def _checksum_of(number: int, content: bytes) -> bytes:
    return xxh3_64_digest(content, number)
