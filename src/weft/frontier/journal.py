"""The frontier on disk: one SQLite file for each pod, written by its one owner.

    meta      name → value              epoch, counters, boot id, what the store has been acknowledged for
    crawls    number → name, seed, limits, scope extensions
    journal   seq → admitted, done      admitted: compressed lines, one an item; done: item numbers, 8 bytes each
    retries   item → attempt, when      items that were tried and wait
    sites     key → state               clocks that a restart must not forget: Crawl-delay, slowing, breaker
    robots    origin → record
    robots_history   origin, when → record   every robots.txt that was ever in force, for the audit
    robots_tries   origin → attempt, when    robots.txt that could not be had yet
    outbox    pod, number → message     what is on its way to another pod (see outbox.py)
    sitemaps  crawl and site → count    sitemaps that were let in, which are few for each site

What is queued is what was admitted less what is done: nothing else needs to be written when a URL is found or fetched,
which is one compressed blob for each commit instead of a row for each URL. WAL and synchronous=NORMAL: a killed process
loses nothing that was committed; `sync` makes it safe against a power cut as well.
"""

from __future__ import annotations

import os
import sqlite3
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from isal import isal_zlib

from weft.errors import BadInput, writing

SCHEMA_VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS crawls (number INTEGER PRIMARY KEY, record BLOB);
CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, admitted BLOB, done BLOB);
CREATE TABLE IF NOT EXISTS retries (item INTEGER PRIMARY KEY, attempt INTEGER, wall REAL);
CREATE TABLE IF NOT EXISTS sites (key TEXT PRIMARY KEY, record BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots (origin TEXT PRIMARY KEY, expires REAL, record BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots_tries (origin TEXT PRIMARY KEY, attempt INTEGER, wall REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots_history (
    origin TEXT, wall REAL, record BLOB, PRIMARY KEY (origin, wall)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (pod INTEGER, number INTEGER, message BLOB, PRIMARY KEY (pod, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refusals (reason TEXT, url TEXT, parent INTEGER);
CREATE TABLE IF NOT EXISTS sitemaps (site TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID;
"""


class Journal:
    """The frontier's file. What is put is written together by `commit`."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            raise BadInput(f"{path}: is not a frontier: {error}; choose another data dir") from None
        version = self.meta("schema_version")
        if version not in (None, SCHEMA_VERSION):
            raise BadInput(f"{path}: has layout {version}, this Weft reads {SCHEMA_VERSION}; use the Weft that made it")
        self.admitted: list[str] = []
        self.done: list[int] = []
        self._puts: dict[tuple[str, Any], tuple[Any, ...] | None] = {}
        self._history: list[tuple[str, float, bytes]] = []
        self.put_meta("schema_version", SCHEMA_VERSION)

    def meta(self, name: str) -> Any:
        """A value that was put, or None."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else msgspec.msgpack.decode(row[0])

    def put_meta(self, name: str, value: Any) -> None:
        """Written at the next commit."""
        self._puts["meta", name] = (name, msgspec.msgpack.encode(value))

    def put(self, table: str, key: Any, *values: Any) -> None:
        """A whole row, written at the next commit; a key of several columns is a tuple."""
        self._puts[table, key] = (*key, *values) if isinstance(key, tuple) else (key, *values)

    def latest(self, table: str, key: Any) -> tuple[Any, ...] | None:
        """One row by its key, as it will be after the next commit."""
        return self._puts[table, key] if (table, key) in self._puts else self.row(table, key)

    def delete(self, table: str, key: Any) -> None:
        """A row to be gone at the next commit."""
        self._puts[table, key] = None

    def refuse(self, reason: str, url: str, parent: int) -> None:
        """Remembers a refusal that could not be worked out again later."""
        self._puts["refusals", (reason, url)] = (reason, url, parent)

    def sent(self, pod: int, number: int) -> None:
        """Another pod has these messages for good: they are gone at the next commit."""
        self._puts["outbox", pod] = (pod, number)

    def message(self, pod: int, after: int) -> tuple[int, bytes] | None:
        """The first committed message to a pod after a number."""
        row = self._db.execute(
            "SELECT number, message FROM outbox WHERE pod = ? AND number > ? ORDER BY number LIMIT 1", (pod, after)
        ).fetchone()
        return (int(row[0]), bytes(row[1])) if row is not None else None

    def robots_told(self, origin: str, wall: float, record: bytes) -> None:
        """Evidence for the audit: by this robots.txt was an origin asked from then on."""
        self._history.append((origin, wall, record))

    def save_history(self) -> None:
        """Before anything is asked: a kill must not leave a request without the robots.txt that allowed it."""
        if self._history:
            with self._transaction():
                self._db.executemany("INSERT OR REPLACE INTO robots_history VALUES (?, ?, ?)", self._history)
            self._history.clear()

    def commit(self) -> None:
        """Everything since the last commit, or nothing of it."""
        self.save_history()
        if not (self.admitted or self.done or self._puts):
            return
        with self._transaction():
            self._write()
        self.admitted.clear()
        self.done.clear()
        self._puts.clear()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with writing(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _write(self) -> None:
        if self.admitted or self.done:
            blob = isal_zlib.compress("\n".join(self.admitted).encode(), 1) if self.admitted else None
            done = array("Q", self.done).tobytes() if self.done else None
            self._db.execute("INSERT INTO journal (admitted, done) VALUES (?, ?)", (blob, done))
        for (table, key), row in self._puts.items():
            if row is None:
                self._db.execute(f"DELETE FROM {table} WHERE {_KEYS[table]} = ?", (key,))  # noqa: S608
            elif table == "outbox" and key == row[0]:
                self._db.execute("DELETE FROM outbox WHERE pod = ? AND number <= ?", row)
            else:
                marks = ",".join("?" * len(row))
                self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)  # noqa: S608

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """All rows of one of the small tables."""
        yield from self._db.execute(f"SELECT * FROM {table}")  # noqa: S608

    def keys(self, table: str) -> Iterator[str]:
        """The keys of a table, without what stands behind them."""
        return (str(key) for (key,) in self._db.execute(f"SELECT {_KEYS[table]} FROM {table}"))  # noqa: S608

    def row(self, table: str, key: Any) -> tuple[Any, ...] | None:
        """One row by its key."""
        found = self._db.execute(f"SELECT * FROM {table} WHERE {_KEYS[table]} = ?", (key,)).fetchone()  # noqa: S608
        return None if found is None else tuple(found)

    def last_seq(self) -> int:
        """The number of the journal's last line."""
        return int(self._db.execute("SELECT max(seq) FROM journal").fetchone()[0] or 0)

    def admitted_since(self, seq: int) -> Iterator[list[str]]:
        """The lines of what was admitted after a line of the journal, commit by commit."""
        for (blob,) in self._db.execute(
            "SELECT admitted FROM journal WHERE seq > ? AND admitted NOT NULL ORDER BY seq", (seq,)
        ):
            yield isal_zlib.decompress(blob).decode().split("\n")

    def done_since(self, seq: int) -> Iterator[array[int]]:
        """The items that ended after a line of the journal, commit by commit."""
        for (blob,) in self._db.execute(
            "SELECT done FROM journal WHERE seq > ? AND done NOT NULL ORDER BY seq", (seq,)
        ):
            numbers = array("Q")
            numbers.frombytes(blob)
            yield numbers

    def sync(self) -> None:
        """Makes what was committed safe against a power cut."""
        sync_log(self._path)

    def close(self) -> None:
        """Commits and closes."""
        self.commit()
        self._db.close()


def sync_log(database: Path) -> None:
    """Puts SQLite's write-ahead log on the disk, which it does not do by itself at every commit."""
    log = Path(f"{database}-wal")
    if log.exists():
        fd = os.open(log, os.O_RDONLY)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)


_KEYS = {
    "meta": "name",
    "crawls": "number",
    "retries": "item",
    "sites": "key",
    "robots": "origin",
    "robots_tries": "origin",
    "sitemaps": "site",
}
