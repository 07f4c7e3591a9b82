"""The frontier on disk: one SQLite file for each pod, written by its one owner.

    meta      name → value              epoch, counters, boot id, what the store has been acknowledged for
    crawls    number → name, seed       the crawls that have not ended
    journal   seq → crawl, admitted, done   what one commit has brought for one crawl: compressed lines, one an item;
                                        item numbers, 8 bytes each, and a checksum (the compressed lines have theirs,
                                        other records too: `sealed`)
    retries   item → attempt, when, crawl   items that were tried and wait
    requests  item → crawl, segment, offset, sent   where the requests of items lie (see payloads.py), and whether they
                                        may have been sent and must not be sent again
    aside     item → crawl, item        items that an edit has excluded, until it is taken back
    cookies   crawl and site → crawl, cookies   of each site, as they were when they last changed
    sites     key → state               clocks that a restart must not forget: Crawl-delay, slowing, breaker
    robots    origin → record
    robots_history   origin, when → record   each robots.txt that was in force, for the audit
    robots_tries   origin → attempt, when    robots.txt that could not be had yet
    outbox    pod, number → message     what is on its way to another pod (see outbox.py)
    sitemaps  crawl and site → count    sitemaps that were admitted, which are few for each site
    refusals  reason, url, parent, crawl    why a URL was not admitted, where that cannot be worked out again
    left_sitemaps   url → crawl, depth, hops, who named it   sitemaps for which there was no room, for a larger crawl

The queue is what was admitted minus what is done, so a commit writes one compressed blob instead of a row for each URL.
WAL and synchronous=NORMAL: a killed process loses nothing that was committed; `sync` makes it safe against a power cut
as well.

Its transactions are counted, in it and in the mark beside it (`mark`). One that has fewer than it must have, or that is
no whole database, is `Damaged`: it would be opened as an empty or an older frontier, and the crawl would end too early.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from isal import isal_zlib

from weft.alive import Alive, silent, watch
from weft.errors import BadInput, Damaged, is_damage, writing
from weft.files import altered_layout
from weft.frontier.durability.mark import MarkFile

SCHEMA_VERSION = 2
ANY_CRAWL = 0  # in the journal: items that ended, of whichever crawls
FROM_STORE = "from_store"  # in meta: the frontier was rebuilt, and the links of stored pages must still be admitted
LOST_TAIL = "lost_tail"  # in meta: a power cut took transactions, and the loss is not yet assessed
SEEDS_OF_CLOSED = "SELECT name, value FROM meta WHERE name >= 'seed:' AND name < 'seed;'"
FREED_PAGES = 1000  # free pages that are returned to the file system at close; more would delay the end
CHECKED_BYTES = 32 * 1024 * 1024  # a file up to this size is read through when it is opened: a tenth of a second
REMEDY = (
    "restore it from a backup, or make a new frontier of the seeds and the stored pages with "
    "`weft rebuild CRAWL_DIR --frontier`, and resume"
)
DELETE_OUTDATED = """
DELETE FROM robots_history WHERE origin = ? AND wall < (
    SELECT max(wall) FROM robots_history WHERE origin = ? AND wall <= ?)"""
_INFLATE_ERROR = cast(type[Exception], isal_zlib.error)  # its stub wrongly declares an instance
_CHECKSUM_MARK = b"\xc1"  # the one byte that MessagePack never uses
_SQLITE_MAGIC = b"SQLite format 3\0"
_CREATE_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS crawls (number INTEGER PRIMARY KEY, record BLOB);
CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, crawl INTEGER NOT NULL, admitted BLOB, done BLOB);
CREATE INDEX IF NOT EXISTS journal_by_crawl ON journal (crawl);
CREATE TABLE IF NOT EXISTS retries (item INTEGER PRIMARY KEY, attempt INTEGER, wall REAL, crawl INTEGER);
CREATE INDEX IF NOT EXISTS retries_by_crawl ON retries (crawl);
CREATE TABLE IF NOT EXISTS requests (
    item INTEGER PRIMARY KEY, crawl INTEGER, segment INTEGER, offset INTEGER, sent INTEGER);
CREATE INDEX IF NOT EXISTS requests_by_crawl ON requests (crawl);
CREATE TABLE IF NOT EXISTS aside (item INTEGER PRIMARY KEY, crawl INTEGER, record BLOB);
CREATE INDEX IF NOT EXISTS aside_by_crawl ON aside (crawl);
CREATE TABLE IF NOT EXISTS cookies (place TEXT PRIMARY KEY, crawl INTEGER, record BLOB);
CREATE INDEX IF NOT EXISTS cookies_by_crawl ON cookies (crawl);
CREATE TABLE IF NOT EXISTS sites (key TEXT PRIMARY KEY, record BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots (origin TEXT PRIMARY KEY, expires REAL, record BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots_tries (origin TEXT PRIMARY KEY, attempt INTEGER, wall REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots_history (
    origin TEXT, wall REAL, record BLOB, PRIMARY KEY (origin, wall)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (pod INTEGER, number INTEGER, message BLOB, PRIMARY KEY (pod, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refusals (reason TEXT, url TEXT, parent INTEGER, crawl INTEGER);
CREATE INDEX IF NOT EXISTS refusals_by_crawl ON refusals (crawl);
CREATE INDEX IF NOT EXISTS refusals_by_url ON refusals (url);
CREATE TABLE IF NOT EXISTS sitemaps (site TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS left_sitemaps (
    url TEXT PRIMARY KEY, crawl INTEGER, depth INTEGER, hops INTEGER, about TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS left_sitemaps_by_crawl ON left_sitemaps (crawl);
"""


class FrontierJournal:
    """The journal file of a frontier. Changes are buffered, and written in one transaction by `commit`."""

    def __init__(self, path: Path, alive: Alive = silent) -> None:
        """`alive` is called from inside long statements."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        check_file_size(path)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        watch(self._db, alive)
        self._mark = MarkFile(mark_path(path))
        self._admitted: dict[int, list[bytes]] = defaultdict(list)  # lines, by crawl
        self._lines = 0
        self.done: dict[int, list[int]] = defaultdict(list)
        self._puts: dict[tuple[str, Any], tuple[Any, ...] | None] = {}
        self._history: list[tuple[str, float, bytes]] = []
        self._outdated: list[tuple[str, str, float]] = []
        # Called for files that records refer to: they are on the disk before the records, and deleted after them.
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None
        # Called after a commit with the line of each crawl, and the ended items, by crawl.
        self.on_commit: Callable[[Mapping[int, int], Mapping[int, Sequence[int]]], None] = lambda *_: None
        try:
            self._open_database()
        except BaseException:
            self._db.close()
            self._mark.close()
            raise
        self.put_meta("schema_version", SCHEMA_VERSION)

    def _open_database(self) -> None:
        with report_damage(self.path), writing(self.path):
            if self.path.stat().st_size <= CHECKED_BYTES:
                problem = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
                if problem != "ok":
                    raise Damaged(self.path, f"is damaged ({' '.join(str(problem).split())})", REMEDY)
            self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # for a new file: it shrinks when crawls are forgotten
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._check_layout()
            self._db.executescript(_CREATE_TABLES)
            self._commits = self._durable = int(self.meta("commits") or 0)
        earlier, must = self._mark.earlier_mark, 0
        if earlier is not None:
            must = earlier.commits if self._mark.is_of_this_boot else earlier.durable
            self._durable = min(self._commits, earlier.durable)
        if self._commits < must:
            detail = f"has lost what was written to it last (it has {self._commits:,} of {must:,} transactions)"
            raise Damaged(self.path, detail if self._commits else "is gone, or empty", REMEDY)
        # A power cut took the last transactions, and perhaps links of stored pages with them. The next commit saves the
        # flag, and overwrites the mark.
        self.lost_tail = earlier is not None and self._commits < earlier.commits
        if self.lost_tail:
            self.put_meta(LOST_TAIL, True)
        self.lost_tail = self.lost_tail or self.meta(LOST_TAIL) is not None
        self._has_forgotten = self.meta("last_seq") is not None  # SQLite would reuse the number of a deleted row

    def _check_layout(self) -> None:
        """Refuses a file of another layout; a new one, or one whose creator died early, has none."""
        has_meta = self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is not None
        altered, version = altered_layout(self._db, _CREATE_TABLES), None
        try:
            version = self.meta("schema_version") if has_meta else None
        except sqlite3.OperationalError:  # a column of another name
            if not altered:
                raise
        if version not in (None, SCHEMA_VERSION):
            raise BadInput(
                f"{self.path}: has layout {version}, this Weft reads {SCHEMA_VERSION}; use the Weft that made it"
            )
        if altered:
            raise Damaged(self.path, f"is damaged (its table or index {altered!r} is not what was made)", REMEDY)

    @property
    def unwritten_items(self) -> int:
        """How many items the next commit contains."""
        return self._lines + sum(map(len, self.done.values()))

    def meta(self, name: str) -> Any:
        """A value as it will be after the next commit, or None."""
        with report_damage(self.path):
            row = self.row("meta", name)
            return None if row is None else msgspec.msgpack.decode(row[1])

    def put_meta(self, name: str, value: Any) -> None:
        """Written at the next commit."""
        self._puts["meta", name] = (name, with_checksum(msgspec.msgpack.encode(value)))

    def put(self, table: str, key: Any, *values: Any) -> None:
        """Puts a whole row, written at the next commit; a key of several columns, or of all, is a tuple."""
        kept = [with_checksum(value) if isinstance(value, bytes) else value for value in values]
        self._puts[table, key] = (*key, *kept) if isinstance(key, tuple) else (key, *kept)

    def delete(self, table: str, key: Any) -> None:
        """Deletes a row at the next commit."""
        self._puts[table, key] = None

    def drop_messages(self, pod: int, number: int) -> None:
        """Deletes, at the next commit, the messages to a pod up to this number: the pod has acknowledged them."""
        self._puts["outbox", pod] = (pod, number)

    def next_message(self, pod: int, after: int) -> tuple[int, bytes] | None:
        """The first committed message to a pod after a number."""
        with report_damage(self.path):
            row = self._db.execute(
                "SELECT number, message FROM outbox WHERE pod = ? AND number > ? ORDER BY number LIMIT 1", (pod, after)
            ).fetchone()
            return (int(row[0]), without_checksum(row[1])) if row is not None else None

    def record_robots(self, origin: str, wall: float, record: bytes, deleted_until: float = 0.0) -> None:
        """Evidence for the audit: this robots.txt is in force for an origin from `wall` on. Records in force only
        before `deleted_until` are deleted.
        """
        self._history.append((origin, wall, with_checksum(record)))
        if deleted_until:
            self._outdated.append((origin, origin, deleted_until))

    def save_robots_history(self) -> None:
        """Saves the history before a request is sent: a kill must not leave a request without the robots.txt that
        allowed it.
        """
        if self._history:
            with self._transaction():
                self._db.executemany("INSERT OR REPLACE INTO robots_history VALUES (?, ?, ?)", self._history)
                self._db.executemany(DELETE_OUTDATED, self._outdated)
            self._history.clear()
            self._outdated.clear()

    def add_admitted_lines(self, crawl: int, lines: bytes, count: int) -> None:
        """Adds the lines of `count` new items of a crawl, each with its newline."""
        self._admitted[crawl].append(lines)
        self._lines += count

    def commit(self) -> None:
        """Writes everything since the last commit in one transaction."""
        self.save_robots_history()
        if not (self._admitted or self.done or self._puts):
            return
        self.before_commit()
        with self._transaction():
            lines = self._write_changes()
        ended = dict(self.done)
        self._admitted.clear()
        self._lines = 0
        self.done.clear()
        self._puts.clear()
        self.after_commit()
        if lines:
            self.on_commit(lines, ended)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with report_damage(self.path), writing(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                count = with_checksum(msgspec.msgpack.encode(self._commits + 1))
                self._db.execute("INSERT OR REPLACE INTO meta VALUES ('commits', ?)", (count,))
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        self._commits += 1
        self._mark.write(self._commits, self._durable)

    def _write_changes(self) -> dict[int, int]:
        """Writes all buffered changes; returns the new line of each crawl."""
        seq, lines = self.last_seq() if self._has_forgotten else None, dict[int, int]()
        for crawl in self._admitted.keys() | self.done.keys():
            admitted, ended = self._admitted.get(crawl), self.done.get(crawl)
            blob = isal_zlib.compress(b"".join(admitted).removesuffix(b"\n"), 1) if admitted else None
            done = packed_items(ended) if ended else None
            if admitted or ended:
                seq = None if seq is None else seq + 1
                values = (seq, crawl, blob, done)
                insert = "INSERT INTO journal (seq, crawl, admitted, done) VALUES (?, ?, ?, ?)"
                lines[crawl] = self._db.execute(insert, values).lastrowid or 0
        for (table, key), row in self._puts.items():
            if row is None:
                self._db.execute(f"DELETE FROM {table} WHERE {TABLE_KEYS[table]} = ?", (key,))  # noqa: S608
            elif table == "outbox" and key == row[0]:
                self._db.execute("DELETE FROM outbox WHERE pod = ? AND number <= ?", row)
            else:
                marks = ",".join("?" * len(row))
                self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)  # noqa: S608
        return lines

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """All rows of one of the small tables."""
        with report_damage(self.path):
            for row in self._db.execute(f"SELECT * FROM {table}"):  # noqa: S608
                yield row_without_checksums(row)

    def seeds(self) -> dict[int, int]:
        """The seeds of the fingerprints of all crawls that are not forgotten, by number."""
        with report_damage(self.path):
            closed = (row_without_checksums(row) for row in self._db.execute(SEEDS_OF_CLOSED))
            return fingerprint_seeds(self.rows("crawls"), closed)

    def counts(self, table: str, column: str) -> list[tuple[int, int]]:
        """How many committed rows of a table have each value of a column."""
        with report_damage(self.path):
            return self._db.execute(f"SELECT {column}, count(*) FROM {table} GROUP BY {column}").fetchall()  # noqa: S608

    def keys(self, table: str) -> Iterator[str]:
        """The keys of a table, without reading the records."""
        with report_damage(self.path):
            for (key,) in self._db.execute(f"SELECT {TABLE_KEYS[table]} FROM {table}"):  # noqa: S608
                yield str(key)

    def has_rows(self, table: str) -> bool:
        """Whether a table has committed rows."""
        with report_damage(self.path):
            return self._db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None  # noqa: S608

    def row(self, table: str, key: Any) -> tuple[Any, ...] | None:
        """One row by its key, as it will be after the next commit."""
        with report_damage(self.path):
            row = self._puts.get((table, key), ())
            if row == ():
                select = f"SELECT * FROM {table} WHERE {TABLE_KEYS[table]} = ?"  # noqa: S608
                row = self._db.execute(select, (key,)).fetchone()
            return None if row is None else row_without_checksums(row)

    def forget_crawls(self, crawls: Sequence[int], at_most: int) -> bool:
        """Deletes a part of the data of some crawls; True when nothing is left. Their changes must be committed."""
        with self._transaction():
            last = with_checksum(msgspec.msgpack.encode(self.last_seq()))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('last_seq', ?)", (last,))
            self._has_forgotten = True
            listed, gone = ",".join(map(str, crawls)), 0
            for table, key in _TABLES_OF_CRAWLS.items():
                some = f"SELECT {key} FROM {table} WHERE crawl IN ({listed}) LIMIT ?"  # noqa: S608
                gone += self._db.execute(f"DELETE FROM {table} WHERE {key} IN ({some})", (at_most,)).rowcount  # noqa: S608
            for crawl in crawls:
                # The key begins with the crawl's number and a space; `!` is the character after that.
                first, end = f"{crawl} ", f"{crawl}!"
                gone += self._db.execute("DELETE FROM sitemaps WHERE site >= ? AND site < ?", (first, end)).rowcount
                if not gone:
                    self._db.execute("DELETE FROM crawls WHERE number = ?", (crawl,))
                for name in (f"scope:{crawl}", f"recrawl:{crawl}", f"seed:{crawl}"):
                    self._db.execute("DELETE FROM meta WHERE name = ?", (name,))
        with report_damage(self.path), writing(self.path):
            # `execute` would free only one page, a single step of the statement.
            self._db.executescript(f"PRAGMA incremental_vacuum({FREED_PAGES})")
        return not gone

    def last_seq(self) -> int:
        """The number of the journal's last line; a number is used once, also when its line is forgotten."""
        with report_damage(self.path):
            last = int(self._db.execute("SELECT max(seq) FROM journal").fetchone()[0] or 0)
            return max(last, int(self.meta("last_seq") or 0))

    def admitted_since(self, seq: int, crawl: int | None = None) -> Iterator[tuple[int, int, list[str]]]:
        """Admitted items after a line of the journal, of one crawl or of all: for each line its number, its crawl, and
        the lines of the items.
        """
        only, values = ("AND crawl = ?", (seq, crawl)) if crawl is not None else ("", (seq,))
        select = f"SELECT seq, crawl, admitted FROM journal WHERE seq > ? AND admitted NOT NULL {only} ORDER BY seq"  # noqa: S608
        with report_damage(self.path):
            for line, number, blob in self._db.execute(select, values):
                yield line, number, unpacked_text(blob).split("\n")

    def lines_between(self, first: int, last: int) -> Iterator[tuple[int, int, list[str], Sequence[int]]]:
        """For each line its number, its crawl, the lines of the items it admitted, and the items it ended."""
        with report_damage(self.path):
            for line, crawl, admitted, done in self._db.execute(
                "SELECT seq, crawl, admitted, done FROM journal WHERE seq BETWEEN ? AND ? ORDER BY seq", (first, last)
            ):
                lines = unpacked_text(admitted).split("\n") if admitted else []
                yield line, crawl, lines, unpacked_items(done) if done else ()

    def done_since(self, seq: int, crawl: int | None = None) -> Iterator[tuple[int, int, array[int]]]:
        """Ended items after a line of the journal: of all crawls, or of one and of those that are unknown. For each
        line its number, its crawl, and the items.
        """
        only, values = ("AND crawl IN (?, ?)", (seq, crawl, ANY_CRAWL)) if crawl is not None else ("", (seq,))
        select = f"SELECT seq, crawl, done FROM journal WHERE seq > ? AND done NOT NULL {only} ORDER BY seq"  # noqa: S608
        with report_damage(self.path):
            for line, number, blob in self._db.execute(select, values):
                yield line, number, unpacked_items(blob)

    def sync(self) -> None:
        """Makes committed changes safe against a power cut; may be called from any thread."""
        commits = self._commits
        sync_log(self.path)
        self._durable = max(self._durable, commits)  # the mark has it with the next commit

    def close(self) -> None:
        """Commits and closes."""
        self.commit()
        with report_damage(self.path):
            with suppress(sqlite3.OperationalError):  # a full disk: free pages are kept in the file
                self._db.executescript(f"PRAGMA incremental_vacuum({FREED_PAGES})")
            self.sync()
            self._mark.write(self._commits, self._durable)
            self._db.close()
        self._mark.close()


def mark_path(database: Path) -> Path:
    """The path of a journal's mark file."""
    return database.with_suffix(".mark")


def check_file_size(path: Path) -> None:
    """Damaged for a file that is shorter than its header says: SQLite opens it without an error."""
    try:
        with path.open("rb") as file:
            header, size = file.read(100), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return
    log = Path(f"{path}-wal")
    if not size or (log.exists() and log.stat().st_size):
        return  # new (the mark shows if it should not be empty), or the log holds pages that are not in the file yet
    if len(header) < 100 or not header.startswith(_SQLITE_MAGIC):
        raise Damaged(path, "is not a frontier (no database)", REMEDY)
    page_bytes = int.from_bytes(header[16:18], "big")
    # SQLite: the page count is valid only where the change counter equals the version-valid-for number.
    pages, is_valid = int.from_bytes(header[28:32], "big"), header[24:28] == header[92:96]
    if is_valid and size < pages * (65536 if page_bytes == 1 else page_bytes):
        raise Damaged(path, f"is cut off: {size:,} bytes, of {pages:,} pages of {page_bytes:,}", REMEDY)


@contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Turns the errors that a damaged file causes into `Damaged`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise Damaged(path, f"is damaged ({error})", REMEDY) from error
        raise
    except (zlib.error, _INFLATE_ERROR, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(path, f"is damaged ({error})", REMEDY) from error


def with_checksum(record: bytes) -> bytes:
    """A record with a marker byte and its checksum in front."""
    return _CHECKSUM_MARK + zlib.crc32(record).to_bytes(4, "little") + record


def without_checksum(data: bytes) -> bytes:
    """The record inside; data without a marker comes from a pod on Redis, whose file has no checksums."""
    if not data.startswith(_CHECKSUM_MARK):
        return data
    record = data[5:]
    if zlib.crc32(record).to_bytes(4, "little") != data[1:5]:
        raise zlib.error("a record fails its checksum")
    return record


def row_without_checksums(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with its records unsealed."""
    return tuple(without_checksum(value) if isinstance(value, bytes) else value for value in row)


def fingerprint_seeds(crawls: Iterable[tuple[Any, ...]], closed: Iterable[tuple[Any, ...]]) -> dict[int, int]:
    """The seeds of crawls, by number: from the records of those that have not ended, and the notes of the others."""
    seeds = {int(name.partition(":")[2]): msgspec.msgpack.decode(value) for name, value in closed}
    return seeds | {number: msgspec.msgpack.decode(record)["seed"] for number, record in crawls}


def unpacked_text(blob: bytes) -> str:
    """The lines admitted by one commit, one for each item."""
    return isal_zlib.decompress(blob).decode()


def packed_items(items: list[int]) -> bytes:
    """Item numbers and their checksum, as bytes."""
    data = array("Q", items).tobytes()
    return data + zlib.crc32(data).to_bytes(4, "little")


def unpacked_items(blob: bytes) -> array[int]:
    """The item numbers inside."""
    numbers = array("Q")
    data, checksum = blob[:-4], blob[-4:]
    if len(data) % 8 or zlib.crc32(data).to_bytes(4, "little") != checksum:
        raise zlib.error("ended items fail their checksum")
    numbers.frombytes(data)
    return numbers


def sync_log(database: Path) -> None:
    """Syncs SQLite's write-ahead log, which SQLite does not sync at every commit."""
    log = Path(f"{database}-wal")
    if log.exists():
        fd = os.open(log, os.O_RDONLY)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)


_TABLES_OF_CRAWLS = {
    "journal": "seq",
    "retries": "item",
    "requests": "item",
    "aside": "item",
    "cookies": "place",
    "refusals": "rowid",
    "left_sitemaps": "url",
}  # tables with a column for the crawl, and their keys
TABLE_KEYS = {
    "meta": "name",
    "crawls": "number",
    "retries": "item",
    "requests": "item",
    "sites": "key",
    "robots": "origin",
    "robots_tries": "origin",
    "sitemaps": "site",
    "aside": "item",
    "cookies": "place",
    "left_sitemaps": "url",
}
