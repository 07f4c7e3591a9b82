"""What a pod's processes share on disk: the bodies of robots.txt, and refusals that cannot be worked out again.

    robots           origin → version, record            the newest robots.txt
    robots_history   origin, when → record               each robots.txt that was in force, for the audit
    refusals         crawl, reason, url → parent
    left_sitemaps    url → crawl, depth, hops, who named it   those for which there was no room
    meta             scope:CRAWL → where seeds' redirects have led, as Redis has it too: for who reads files alone

One SQLite file on the node (WAL), many writers. Redis holds a robots.txt's expiry and version; a record is written here
before Redis has its version, so a process that reads the version from Redis finds the record here.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from weft.errors import BadInput, writing
from weft.files import use_write_ahead_log
from weft.frontier.contract import RobotsRecord
from weft.frontier.durability.journal import DELETE_OUTDATED, sync_log
from weft.frontier.requests import robots_evidence
from weft.records import Found, Purpose

_CREATE_TABLES = """
CREATE TABLE IF NOT EXISTS robots (origin TEXT PRIMARY KEY, version INTEGER, record BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots_history (
    origin TEXT, wall REAL, record BLOB, PRIMARY KEY (origin, wall)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refusals (
    reason TEXT, url TEXT, parent INTEGER, crawl INTEGER, PRIMARY KEY (crawl, reason, url)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS left_sitemaps (
    url TEXT PRIMARY KEY, crawl INTEGER, depth INTEGER, hops INTEGER, about TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
"""
_WRITE_WAIT_S = 30.0  # for another process's write
MOST_REFUSALS = 100_000


class SharedRecords:
    """The shared file; see the module."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=_WRITE_WAIT_S, check_same_thread=False)
            use_write_ahead_log(self._db, _WRITE_WAIT_S)
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_CREATE_TABLES)
        except sqlite3.DatabaseError as error:
            raise BadInput(f"{path}: cannot hold robots.txt files: {error}; choose another data dir") from None
        self._new_refusals: dict[tuple[int, str, str], int] = {}
        self._new_sitemaps: dict[str, tuple[int, int, int, str]] = {}
        self._recorded_counts = 0

    def save_robots(self, origin: str, record: RobotsRecord, wall: float, deleted_until: float = 0.0) -> int:
        """Saves a robots.txt; returns its version. Records in force only before `deleted_until` are deleted."""
        data = msgspec.msgpack.encode(record)
        with writing(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                row = self._db.execute("SELECT version, record FROM robots WHERE origin = ?", (origin,)).fetchone()
                version = (row[0] if row else 0) + 1
                self._db.execute("INSERT OR REPLACE INTO robots VALUES (?, ?, ?)", (origin, version, data))
                evidence = robots_evidence(record)
                if row is None or robots_evidence(msgspec.msgpack.decode(row[1], type=RobotsRecord)) != evidence:
                    self._db.execute("INSERT OR REPLACE INTO robots_history VALUES (?, ?, ?)", (origin, wall, evidence))
                    self._db.execute(DELETE_OUTDATED, (origin, origin, deleted_until))
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        return int(version)

    def robots(self, origin: str) -> tuple[int, RobotsRecord] | None:
        """Version and record of the newest robots.txt."""
        row = self._db.execute("SELECT version, record FROM robots WHERE origin = ?", (origin,)).fetchone()
        return None if row is None else (int(row[0]), msgspec.msgpack.decode(row[1], type=RobotsRecord))

    def save_scope(self, crawl: int, extensions: list[str]) -> None:
        """Saves a crawl's scope extensions."""
        with writing(self._path):
            row = (f"scope:{crawl}", msgspec.msgpack.encode(extensions))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)

    def record_refusal(self, crawl: int, reason: str, url: str, parent: int) -> None:
        """Remembers a refusal, up to a bound; `commit` writes it."""
        if self._recorded_counts < MOST_REFUSALS:
            self._recorded_counts += 1
            self._new_refusals[crawl, reason, url] = parent

    def record_sitemap(self, crawl: int, sitemap: Found) -> None:
        """Records a sitemap over the limit, up to a bound; `commit` writes it."""
        if self._recorded_counts < MOST_REFUSALS:
            self._new_sitemaps[sitemap.url] = (crawl, sitemap.depth, sitemap.hops, sitemap.about)

    def recorded_sitemaps(self, crawl: int) -> list[Found]:
        """The recorded sitemaps."""
        rows = self._db.execute("SELECT url, depth, hops, about FROM left_sitemaps WHERE crawl = ?", (crawl,))
        return [Found(url, depth, 0, hops, Purpose.SITEMAP, about) for url, depth, hops, about in rows]

    def commit(self) -> None:
        """Writes the recorded refusals and sitemaps."""
        if not (self._new_refusals or self._new_sitemaps):
            return
        with writing(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            rows = [(reason, url, parent, crawl) for (crawl, reason, url), parent in self._new_refusals.items()]
            try:
                self._db.executemany("INSERT OR IGNORE INTO refusals VALUES (?, ?, ?, ?)", rows)
                left = [(url, *place) for url, place in self._new_sitemaps.items()]
                self._db.executemany("INSERT OR IGNORE INTO left_sitemaps VALUES (?, ?, ?, ?, ?)", left)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        self._new_refusals.clear()
        self._new_sitemaps.clear()

    def sync(self) -> None:
        """Makes what was written safe against a power cut."""
        sync_log(self._path)

    def close(self) -> None:
        """Commits and closes the file."""
        self.commit()
        self._db.close()
