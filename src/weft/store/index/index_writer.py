"""Writes a slot's index in one data dir: the commit point of a page. The layout is in `schema`, reading in `query`.

Must stay true: a batch's rows and the length of the WARC file that they point into are committed in one transaction; an
item has one row, also if it is committed twice. One process writes; `sync` may run in another thread of it, on a
connection of its own, so that a slow disk does not block the engine.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft import urls
from weft.alive import Alive, silent, watch
from weft.errors import DiskFull
from weft.files import use_write_ahead_log
from weft.records import PastVisit, Row, RowOutput
from weft.store.errors import DamagedIndex, convert_read_errors, convert_write_errors, store_error
from weft.store.index import hosts, intact, keys, replaced, runs, schema
from weft.store.index.items import StoredItems

CHECKPOINT_BYTES = 4 << 20
RESTART_FRAMES = 12_000  # of 4 KB
FOLD_ROWS = 5_000
MERGE_S = 0.05  # of merging in a call of `sync`, unless it falls behind
VERIFIED_ROWS = 20_000  # rows that are checked between two notes of the progress
FREED_PAGES = 1000  # pages of the file, at a time

_ROWS_IN_FILE = f"SELECT {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES} WHERE p.file = ?"  # noqa: S608
_RECORDS_SINCE = f"""SELECT file, warc_offset, warc_length, rendered FROM pages
    WHERE seq >= {schema.FIRST_AFTER_BATCH} AND file IS NOT NULL"""  # noqa: S608
_ROWS_AFTER = (
    f"SELECT p.seq, {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES} WHERE p.seq > ? ORDER BY p.seq LIMIT 500"  # noqa: S608
)
_POSITIONS_OF_ITEMS = f"SELECT seq, item, url_hash FROM pages WHERE seq IN ({keys.POSITIONS_OF_ITEMS})"  # noqa: S608
_KEEP_OUTPUTS = f"""INSERT OR REPLACE INTO lost_outputs SELECT p.item, o.count, o.record FROM pages p
  JOIN outputs o ON o.seq = p.seq WHERE p.seq IN ({keys.POSITIONS_OF_ITEMS})"""  # noqa: S608
_CRAWL, _URL, _REQUEST = (schema.column_index(name) for name in ("crawl", "url", "request"))
_WITHOUT_OUTPUTS: Mapping[int, RowOutput] = {}
_ADD_BATCH = """INSERT INTO batches VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET last = excluded.last,
  latest = max(latest, excluded.latest)"""
_DELETE_EMPTY_BATCHES = """DELETE FROM batches WHERE batch IN (SELECT value FROM json_each(?)) AND NOT EXISTS
  (SELECT 1 FROM pages WHERE seq BETWEEN batches.first AND batches.last)"""
# Jumps from crawl to crawl instead of reading all rows.
_LAST_NUMBERS = """WITH RECURSIVE found(crawl) AS (SELECT min(crawl) FROM pages UNION ALL
  SELECT (SELECT min(crawl) FROM pages WHERE pages.crawl > found.crawl) FROM found WHERE found.crawl NOT NULL)
  SELECT crawl, (SELECT max(number) FROM pages WHERE pages.crawl = found.crawl) FROM found WHERE crawl NOT NULL"""


@dataclass(frozen=True, slots=True)
class FileState:
    """A WARC file in the index: its committed length, and the offset of its last record."""

    id: int
    name: str
    length: int
    last: int
    crawl: int = 0  # the crawl whose records the file holds


@dataclass(frozen=True, slots=True)
class CrawlChange:
    """A change of an engine's crawl: its new record, and its new state if that has changed."""

    crawl: int
    name: str = ""
    record: bytes | None = None
    at: float = 0.0
    state: str = ""
    reason: str = ""


class RowNumbers:
    """Counts each crawl's rows and changes of state, over all data dirs; a number is used when it is committed."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def raise_to(self, last: Mapping[int, int]) -> None:
        """Numbers up to these are used already."""
        for crawl, number in last.items():
            self._last[crawl] = max(number, self._last.get(crawl, 0))

    def last_number(self, crawl: int) -> int:
        """The last number that was used."""
        return self._last.get(crawl, 0)

    def next_number(self, taken: dict[int, int], crawl: int) -> int:
        """The next number of a crawl, after those in `taken`, where it is added."""
        taken[crawl] = taken.get(crawl, self._last.get(crawl, 0)) + 1
        return taken[crawl]

    def forget(self, crawl: int) -> None:
        """The crawl is gone."""
        self._last.pop(crawl, None)


class SlotIndex:
    """The writer's side of one index."""

    def __init__(
        self,
        path: Path,
        facts: Mapping[str, object],
        numbers: RowNumbers | None = None,
        alive: Alive = silent,
    ) -> None:
        """Opens the index, or creates it; `facts` identify the crawl, and must not change.

        `numbers` are shared by the indexes of all data dirs. `alive` is called from inside long statements.
        """
        self.path = path
        self._alive = alive
        self._deletions = 0
        self._numbers = numbers or RowNumbers()
        self._sync_db: sqlite3.Connection | None = None
        with convert_write_errors(path):
            self._db = _open_connection(path, timeout=30)
        watch(self._db, alive)
        try:
            with convert_write_errors(path):
                self._prepare_tables(facts)
            schema.check_facts(self._db, path, facts)
            # The committing thread changes one, the folding thread the other; rows between them have no keys yet.
            self._folded = self.meta_number("folded")
            ((self._seq,),) = self._query("SELECT coalesce(max(seq), 0) FROM pages")
            self._seq = max(self._seq, self._folded)
            latest = self._query("SELECT latest FROM batches ORDER BY batch DESC LIMIT 1")
            self._latest_fetched_at: float = latest[0][0] if latest else 0.0
            self._stored_items_cache = self._stored_items()
            self._numbers.raise_to(dict(self._query(_LAST_NUMBERS)))
            self._numbers.raise_to(dict(self._query("SELECT crawl, max(number) FROM changes GROUP BY crawl")))
        except BaseException:
            self._db.close()
            raise

    def meta_number(self, key: str) -> int:
        """One of the numbers in `meta`."""
        values = self._query("SELECT value FROM meta WHERE key = ?", key)
        if not values or not isinstance(values[0][0], int):
            raise DamagedIndex(self.path, f"it has no number {key!r}")
        return int(values[0][0])

    def files(self) -> list[FileState]:
        """The slot's WARC files, oldest first."""
        return [FileState(*row) for row in self._query("SELECT id, name, length, last, crawl FROM files ORDER BY id")]

    def register(self, name: str, crawl: int = 0) -> FileState:
        """Registers a WARC file before it exists: an unregistered file on the disk is then never ours."""
        with convert_write_errors(self.path):
            cursor = self._db.execute(
                "INSERT INTO files (name, length, last, crawl) VALUES (?, 0, 0, ?)", (name, crawl)
            )
        return FileState(int(cursor.lastrowid or 0), name, 0, 0, crawl)

    def items_with_rows(self, items: Sequence[int]) -> set[int]:
        """Those of the items that have a row."""
        return self._stored_items_cache.items_among(items)

    def _stored_items(self) -> StoredItems:
        late = self._query(f"SELECT item FROM pages WHERE seq > {keys.LAST_KEYED}")  # noqa: S608
        return StoredItems(self._items_between, [item for (item,) in late])

    def _items_between(self, first: int, end: int) -> list[int]:
        return [item for (item,) in self._query(keys.ITEMS_IN_RUNS, first, end)]

    def commit(
        self,
        batch: int,
        durable: int,
        rows: Sequence[tuple[Any, ...]],
        files: Iterable[FileState],
        changes: Sequence[CrawlChange] = (),
        outputs: Mapping[int, RowOutput] = _WITHOUT_OUTPUTS,
    ) -> None:
        """Commits in one transaction: the rows (as `values_of` returns them), the committed lengths, changes of crawls,
        the batch's number. A row of an item that has one is left out. `outputs` of some of the rows, by item.
        """
        taken: dict[int, int] = {}
        after = self._numbers.next_number
        new = self._rows_without_known(rows)
        with convert_write_errors(self.path), _transaction(self._db):
            first, last = self._seq + 1, self._seq + len(new)
            self._db.executemany(
                schema.INSERT_ROW,
                [
                    (seq, batch, *row, after(taken, row[2]), place)
                    for place, (seq, row) in enumerate(zip(range(first, last + 1), new, strict=True), 1)
                ],
            )
            self._add_outputs(first, new, outputs)
            for place, change in enumerate(changes, len(rows) + 1):
                self._write_change(change, batch, after(taken, change.crawl) if change.state else 0, place)
            if new:
                self._db.execute(schema.ADD_TO_TALLY, (first, last))
                latest = max(self._latest_fetched_at, max(row[schema.FETCHED_AT_INDEX] for row in new))
                self._db.execute(_ADD_BATCH, (batch, first, last, latest))
            for file in files:
                self._db.execute(
                    "UPDATE files SET length = ?, last = ? WHERE id = ?", (file.length, file.last, file.id)
                )
            numbers = ((batch, "batch"), (durable, "durable"))
            self._db.executemany("UPDATE meta SET value = ? WHERE key = ?", numbers)
        self._numbers.raise_to(taken)
        if new:
            self._seq, self._latest_fetched_at = last, latest
            self._stored_items_cache.add_items(row[0] for row in new)

    def _rows_without_known(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """One row for each item that has none yet."""
        first = {row[0]: row for row in reversed(rows)}
        stored = self._stored_items_cache.items_among(first)
        return [row for row in rows if first[row[0]] is row and row[0] not in stored]

    def _add_outputs(self, first: int, new: Sequence[tuple[Any, ...]], outputs: Mapping[int, RowOutput]) -> None:
        """Adds the outputs of new rows, which are numbered from `first` on; in the rows' transaction."""
        if outputs:
            made = ((seq, row[_CRAWL], outputs.get(row[0])) for seq, row in enumerate(new, first))
            kept = [(seq, crawl, one.count, schema.pack_output(one)) for seq, crawl, one in made if one is not None]
            self._db.executemany("INSERT INTO outputs VALUES (?, ?, ?, ?)", kept)
        if asked := [(schema.url_hash(row[_URL]), seq) for seq, row in enumerate(new, first) if row[_REQUEST]]:
            self._db.executemany("INSERT INTO asked VALUES (?, ?)", asked)

    def _write_change(self, change: CrawlChange, batch: int, number: int, place: int) -> None:
        if change.record is not None:
            values = (change.crawl, change.name, change.record)
            self._db.execute("INSERT OR REPLACE INTO crawls VALUES (?, ?, ?)", values)
        if number:
            row = (change.crawl, number, batch, change.at, change.state, change.reason, place)
            self._db.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def may_come_again(self, crawl: int, after: int) -> None:
        """Notes that rows of items beyond this one may be visits of URLs that have a row in that crawl (0: in their
        own). Durable when this returns, which must be before they are queued.
        """
        noted = replaced.notes(self._db)
        if min(noted.get(crawl, after + 1), noted.get(0, after + 1)) > after:
            with convert_write_errors(self.path):
                replaced.may_come_again(self._db, crawl, after)
                self.flush()

    def copy_notes(self, notes: Mapping[int, int]) -> None:
        """Copies the notes of another index made by `may_come_again`, and nothing else."""
        with convert_write_errors(self.path), _transaction(self._db):
            self._db.execute("DELETE FROM again")
            for crawl, after in notes.items():
                replaced.may_come_again(self._db, crawl, after)

    def crawls(self) -> list[tuple[int, str, bytes]]:
        """The crawls of an engine: number, name and record."""
        return [(number, name, bytes(record)) for number, name, record in self._query("SELECT * FROM crawls")]

    def crawls_with_rows(self) -> list[int]:
        """The crawls that have rows."""
        return [crawl for (crawl,) in self._query("SELECT DISTINCT crawl FROM tally")]

    def forget(self, crawls: Sequence[int], at_most: int) -> bool:
        """Deletes some rows of these crawls; True when none is left."""
        self._shrink_file()
        of_crawls = f"SELECT seq FROM pages WHERE crawl IN ({','.join(map(str, crawls))}) LIMIT ?"  # noqa: S608
        with convert_write_errors(self.path), _transaction(self._db):
            rows = self._query(f"SELECT seq, item, url_hash FROM pages WHERE seq IN ({of_crawls})", at_most)  # noqa: S608
            self._delete_rows(rows)
            visited = sum(self._forget_visited(crawl, at_most) for crawl in crawls)
            if rows or visited:
                return False
            for table in ("tally", "hosts", "changes", *replaced.COUNT_TABLES):
                self._db.executemany(f"DELETE FROM {table} WHERE crawl = ?", [(crawl,) for crawl in crawls])  # noqa: S608
            return True

    def _delete_rows(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """Deletes rows (`seq`, item, hash) with their keys; in a transaction."""
        self._deletions += 1
        listed = keys.as_json_list(seq for seq, _, _ in rows)
        seqs = "(SELECT value FROM json_each(?))"
        batches = [batch for (batch,) in self._query(f"SELECT DISTINCT batch FROM pages WHERE seq IN {seqs}", listed)]  # noqa: S608
        runs.delete_entries(self._db, ((key, seq) for seq, *both in rows for key in both))
        asked = self._query(f"SELECT url, seq FROM pages WHERE request NOT NULL AND seq IN {seqs}", listed)  # noqa: S608
        gone = [(schema.url_hash(url), seq) for url, seq in asked]
        self._db.executemany("DELETE FROM asked WHERE url_hash = ? AND seq = ?", gone)
        self._db.execute(f"DELETE FROM outputs WHERE seq IN {seqs}", (listed,))  # noqa: S608
        self._db.execute(f"DELETE FROM pages WHERE seq IN {seqs}", (listed,))  # noqa: S608
        self._db.execute(_DELETE_EMPTY_BATCHES, (keys.as_json_list(batches),))

    def _forget_visited(self, crawl: int, at_most: int) -> bool:
        some = "SELECT url_hash FROM visited WHERE crawl = ? LIMIT ?"
        sql = f"DELETE FROM visited WHERE crawl = ? AND url_hash IN ({some})"  # noqa: S608
        return self._db.execute(sql, (crawl, crawl, at_most)).rowcount > 0

    def keep_visited(self, crawl: int, visits: Iterable[PastVisit]) -> None:
        """Stores earlier visits of pages that a crawl will request, at once: the pages may be claimed before a
        commit.
        """
        values = [(crawl, schema.url_hash(visit.url), msgspec.msgpack.encode(visit)) for visit in visits]
        with convert_write_errors(self.path), _transaction(self._db):
            self._db.executemany("INSERT OR REPLACE INTO visited VALUES (?, ?, ?)", values)

    def visited(self, crawl: int, urls: Sequence[str]) -> dict[str, PastVisit]:
        """The stored earlier visits of these URLs; a damaged one is left out, so the visit determines it again."""
        hashes = {schema.url_hash(url): url for url in urls}
        marks = ",".join("?" * len(hashes))
        sql = f"SELECT record FROM visited WHERE crawl = ? AND url_hash IN ({marks})"  # noqa: S608
        visits: dict[str, PastVisit] = {}
        for (record,) in self._query(sql, crawl, *hashes):
            with suppress(msgspec.MsgspecError):
                visit = msgspec.msgpack.decode(record, type=PastVisit)
                visits[visit.url] = visit
        return {url: visits[url] for url in hashes.values() if url in visits}

    def forget_files(self, crawls: Sequence[int]) -> None:
        """Deletes the crawls whose files are deleted; returns their disk space."""
        with convert_write_errors(self.path), _transaction(self._db):
            # The files of a crawl lie in the folder of its number; `0` is the character after the slash. There is an
            # index on names, and none on crawls.
            folders = [(f"{crawl}/", f"{crawl}0") for crawl in crawls]
            self._db.executemany("DELETE FROM files WHERE name >= ? AND name < ?", folders)
            self._db.executemany("DELETE FROM crawls WHERE number = ?", [(crawl,) for crawl in crawls])
            for crawl in crawls:
                self._numbers.forget(crawl)
        self._shrink_file()

    def _shrink_file(self) -> None:
        """Returns some free pages to the file system: more than one piece of a deletion frees, and few enough not to
        delay others.
        """
        with convert_write_errors(self.path):
            # `execute` would free only one page, a single step of the statement.
            self._db.executescript(f"PRAGMA incremental_vacuum({FREED_PAGES})")

    def rows_in(self, file: int) -> list[Row]:
        """The rows that point into a WARC file."""
        return schema.decode_rows(self._query(_ROWS_IN_FILE, file), self.path)

    def records_since(self, batch: int) -> dict[int, set[tuple[int, int]]]:
        """Offset and length of the records that were committed after a batch, by file; a rendered page has two: its
        own, and the one with the records behind it.
        """
        records_by_file: dict[int, set[tuple[int, int]]] = {}
        for file, offset, length, rendered in self._query(_RECORDS_SINCE, batch):
            records_by_file.setdefault(file, set()).add((offset, length))
            if rendered:
                records_by_file[file].add((offset + length, rendered))
        return records_by_file

    def verify(self) -> Iterator[int]:
        """Checks all rows in pieces, and yields the size of each; DamagedIndex for a row that differs from what was
        written: most rows are never read while a crawl runs. It continues an earlier, interrupted check.
        """
        noted = self._query("SELECT value FROM meta WHERE key = 'verified'")
        after, count = noted[0][0] if noted and isinstance(noted[0][0], int) else -1, 0
        while rows := self._query(_ROWS_AFTER, after):
            for _, *row in rows:
                schema.check_row(tuple(row), self.path)
            after, count = rows[-1][0], count + len(rows)
            if count >= VERIFIED_ROWS:
                count = 0
                self._note_verified(after)
            yield len(rows)
        yield from self._verify_keys()
        self._note_verified(-1)

    def _verify_keys(self) -> Iterator[int]:
        """Checks each run of keys; the merge checks a run that is merged meanwhile."""
        for run, *_ in self._query(keys.READABLE_RUNS):
            after, totals = keys.BEFORE_ALL_HASHES, (0, 0)
            while (progress := self._check_keys(run, after, totals)) is not None:
                after, totals = progress
                yield 1

    def _check_keys(
        self, run: int, after: tuple[int, int], totals: tuple[int, int]
    ) -> tuple[tuple[int, int], tuple[int, int]] | None:
        if (progress := runs.check_piece(self._query, run, after, totals)) is not None:
            return progress
        stored = self._query("SELECT entries, checksum FROM runs WHERE run = ? AND level >= 0", run)
        if stored and stored[0] != totals:
            raise DamagedIndex(self.path, f"the keys of run {run} are not what was written")
        return None

    def _note_verified(self, seq: int) -> None:
        with suppress(DiskFull), convert_write_errors(self.path):  # after a failure some rows are checked twice
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('verified', ?)", (seq,))

    def items_since(self, batch: int) -> list[int]:
        """The items committed after a batch."""
        return [item for (item,) in self._query(schema.ITEMS_SINCE, batch)]

    def move_to_lost(self, rows: Sequence[Row], file: FileState) -> None:
        """Moves rows whose bytes are lost to `lost`, and sets the file's committed length. Their outputs contain their
        requests.
        """
        with convert_write_errors(self.path), _transaction(self._db):
            self._keep_lost_rows(rows)
            self._db.execute(_KEEP_OUTPUTS, (keys.as_json_list(row.item for row in rows),))
            positions = self._query(_POSITIONS_OF_ITEMS, keys.as_json_list(row.item for row in rows))
            replaced.subtract_deleted(self._db, self.path, [seq for seq, _, _ in positions])
            self._delete_rows(positions)
            self._db.execute("UPDATE files SET length = ?, last = ? WHERE id = ?", (file.length, file.last, file.id))
            self._db.execute("DELETE FROM tally")
            self._db.execute(schema.ADD_TO_TALLY, (0, self._seq))
            hosts.recount_hosts(self._db)
        self._stored_items_cache = self._stored_items()

    def lost_rows(self) -> list[Row]:
        """The rows that were lost and are not queued again yet, in the order of their items."""
        records = self._query("SELECT record FROM lost ORDER BY item")
        return lost_rows((record for (record,) in records), self.path)

    def add_lost_rows(self, rows: Sequence[Row]) -> None:
        """Adds rows to the lost ones."""
        with convert_write_errors(self.path), _transaction(self._db):
            self._keep_lost_rows(rows)

    def delete_lost_rows(self) -> None:
        """Deletes the lost rows: their URLs are queued again, durably."""
        with convert_write_errors(self.path):
            self._db.execute("DELETE FROM lost")
            self._db.execute("DELETE FROM lost_outputs")

    def _keep_lost_rows(self, rows: Sequence[Row]) -> None:
        values = ((row.item, msgspec.msgpack.encode(row)) for row in rows)
        self._db.executemany("INSERT OR REPLACE INTO lost VALUES (?, ?)", values)

    def begin_at_batch(self, batch: int) -> None:
        """Starts writing at this batch. An index with an earlier one has lost rows from here on."""
        with convert_write_errors(self.path), _transaction(self._db):
            self._db.execute("UPDATE meta SET value = ? WHERE key = 'batch' AND value < ?", (batch, batch))
            self._db.execute("DELETE FROM meta WHERE key = 'rebuilt'")

    def note_rebuilt(self) -> None:
        """Marks the index as rebuilt: its last batch does not show what the crawl had committed before."""
        with convert_write_errors(self.path):
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('rebuilt', 1)")

    def is_rebuilt(self) -> bool:
        """Whether it was rebuilt and not written to since."""
        return bool(self._query("SELECT 1 FROM meta WHERE key = 'rebuilt'"))

    def sync(self, last: bool = False) -> None:
        """Makes committed rows durable, and does the housekeeping. The WARC files must be synced first."""
        with convert_write_errors(self.path):
            size = self.flush()
        try:
            self._housekeep(size, last)
        except sqlite3.DatabaseError as error:
            # The housekeeping may wait: the rows are safe in the log, and the next commit reports a full disk.
            if getattr(error, "sqlite_errorname", "") not in ("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_IOERR_WRITE"):
                raise store_error(self.path, error, "written") from error

    def note_durable(self, batch: int) -> None:
        """Records the last durable batch, so that the next opening need not check earlier ones."""
        with convert_write_errors(self.path):
            self._db.execute("UPDATE meta SET value = ? WHERE key = 'durable'", (batch,))

    def seal(self) -> None:
        """Notes that the file is complete, with a checksum; nothing is written to it until it is opened again."""
        with suppress(DiskFull), convert_write_errors(self.path), _transaction(self._db):  # it is whole without, too
            intact.seal(self._db)

    def flush(self) -> int:
        """Syncs the write-ahead log, and returns its size."""
        # SQLite syncs its log only when it moves it into the database; a separate descriptor may sync it at any time
        # (closing one on the database itself would drop SQLite's locks).
        fd = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def close(self) -> None:
        """Closes both connections; closing the last one moves the log into the file."""
        if self._sync_db is not None:
            self._sync_db.close()
        self._db.close()

    def _prepare_tables(self, facts: Mapping[str, object]) -> None:
        empty = schema.is_empty(self._db, self.path)
        if not empty:
            schema.check_layout(self._db, self.path)
            intact.check_is_intact(self._db, self.path)
        else:
            self._db.execute(schema.AUTO_VACUUM)
        _set_pragmas(self._db)
        with _transaction(self._db):  # one transaction: other processes refuse an index with half of the facts
            if empty:
                schema.create_tables(self._db)
            intact.unseal(self._db)
            self._db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", facts.items())

    def _housekeep(self, log_bytes: int, last: bool) -> None:
        if self._sync_db is None:
            self._sync_db = _open_connection(self.path, timeout=0.25)
            _set_pragmas(self._sync_db)
        # Only the last call runs in the process's main thread: from another thread, a heartbeat would hide that the
        # main thread is stuck.
        watch(self._sync_db, self._alive if last else None)
        if self._seq - self._folded >= (1 if last else FOLD_ROWS):
            self._key_new_rows(self._sync_db)
        self._merge_runs(self._sync_db)
        if log_bytes > CHECKPOINT_BYTES:
            _checkpoint_log(self._sync_db)

    def _key_new_rows(self, db: sqlite3.Connection) -> None:
        """Gives rows their keys. The rows that they replace are read before the transaction, and again if rows were
        deleted meanwhile.
        """
        deletions = self._deletions
        with _transaction(db, "DEFERRED"):
            new = replaced.read_new_rows(db, self.path)
        with _transaction(db):
            if self._deletions != deletions:
                new = replaced.read_new_rows(db, self.path)
            self._folded = runs.make_run(db, new)

    def _merge_runs(self, db: sqlite3.Connection) -> None:
        """Merges runs for a moment; for longer if merging would fall behind the rows."""
        until = time.monotonic() + MERGE_S
        while time.monotonic() < until or runs.runs_in_fullest_level(db) >= 2 * runs.RUNS_PER_MERGE:
            with _transaction(db):
                if not runs.merge_piece(db, self.path):
                    return

    def _query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with convert_read_errors(self.path):
            return self._db.execute(sql, values).fetchall()


def lost_rows(records: Iterable[bytes], path: Path) -> list[Row]:
    """Decodes the rows in the table `lost`."""
    try:
        return [msgspec.msgpack.decode(record, type=Row) for record in records]
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise DamagedIndex(path, f"a lost row of it: {error}") from error


def _open_connection(path: Path, timeout: float) -> sqlite3.Connection:
    # SQLite would create it readable for all users; its log inherits the file's mode. A file that exists is not opened
    # here: closing it would drop the locks of this process's other connections, and a stranger who opens the database
    # then deletes the log under its writer.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    db.create_function("host_of", 1, urls.host_of, deterministic=True)
    return db


def _set_pragmas(db: sqlite3.Connection) -> None:
    use_write_ahead_log(db)
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")  # done by `sync`, after the WARC files are on the disk
    db.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
    db.execute("PRAGMA cache_size = -8000")


def _checkpoint_log(db: sqlite3.Connection) -> None:
    """Moves the log into the database; if the writer appends so fast that this never completes, makes it wait."""
    (_, frames, _) = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if frames > RESTART_FRAMES:
        db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()


@contextmanager
def _transaction(db: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """A transaction that is rolled back on any exception."""
    try:
        db.execute(f"BEGIN {kind}")
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite has often rolled back by itself
            db.execute("ROLLBACK")
        raise
