"""Reads one index, also while it is being written: rows in the order of their items, by URL, by batch, and counts.

Must stay true: no query keeps a read transaction open for longer than one statement, or the writer's log could not be
emptied; iteration reads a thousand rows at a time, so that memory does not grow with the crawl.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft.alive import Alive, silent, watch
from weft.errors import BadInput
from weft.records import Row
from weft.store import schema
from weft.store.errors import DamagedIndex, reading, store_error
from weft.store.index import lost_rows
from weft.store.visits import Visit

_CHUNK = 1000
_VISIT = tuple[str, int, int, float, str, int, str, int, int, str, int]
_FOR_URL = f"""SELECT {schema.ROW} FROM {schema.PAGES} WHERE p.url = ?1 AND ?3 IN (p.crawl, 0) AND p.item IN (
    SELECT item FROM lookup WHERE url_hash = ?2 UNION ALL SELECT item FROM pages
    WHERE batch > (SELECT value FROM meta WHERE key = 'folded') AND url_hash = ?2) ORDER BY p.item"""  # noqa: S608
# One statement for any number of hashes, so that SQLite compiles it once.
_BY_HASH = f"""SELECT {schema.ROW} FROM {schema.PAGES} WHERE p.item IN (
    SELECT item FROM lookup WHERE url_hash IN (SELECT value FROM json_each(?1))
    UNION SELECT value FROM json_each(?2))"""  # noqa: S608
_FOLDED = "(SELECT value FROM meta WHERE key = 'folded')"
_HASHES = f"SELECT url_hash, item FROM lookup WHERE (url_hash, item) > (?, ?) ORDER BY 1, 2 LIMIT {10 * _CHUNK}"  # noqa: S608
_VISITS = """SELECT p.url, p.item, p.status, p.fetched_at, p.error, p.file IS NOT NULL, p.content_type, p.depth,
    p.length, p.host, p.crawl FROM pages p WHERE p.batch <= {upto} AND p.item IN (
    SELECT item FROM lookup WHERE url_hash IN ({hashes}) UNION ALL
    SELECT item FROM pages WHERE batch > {folded} AND url_hash IN ({hashes}))"""
_NUMBERED = f"""SELECT p.number, {schema.ROW} FROM {schema.PAGES} WHERE p.crawl = ? AND p.number > ?
    ORDER BY p.number LIMIT ?"""  # noqa: S608
_PAGE_NUMBERS = """SELECT number FROM pages WHERE crawl = ? AND number > ? AND number <= ? AND status < 300
    AND error = ''"""
_LOST_PAGES = """SELECT coalesce(sum(rows - pages), 0) FROM tally WHERE crawl = ? AND status BETWEEN 200 AND 299
    AND error = ''"""
_OF_CRAWL = f"""SELECT p.number, p.batch, {schema.ROW} FROM {schema.PAGES} WHERE p.crawl = ? AND p.number > ?
    AND p.batch <= ? ORDER BY p.number LIMIT {_CHUNK}"""  # noqa: S608
_LAST_OF_BATCHES = """SELECT max(batch) FROM (SELECT batch FROM (SELECT batch FROM pages WHERE batch > ?
    UNION SELECT batch FROM changes WHERE batch > ?) ORDER BY batch LIMIT ?)"""
_BATCHES = """SELECT batch, place, crawl, number FROM pages WHERE batch > ? AND batch <= ? UNION ALL
    SELECT batch, place, crawl, number FROM changes WHERE batch > ? AND batch <= ? ORDER BY batch, place"""
_TIMELINE = """SELECT CAST(fetched_at AS INTEGER), status,
    CASE instr(error, ':') WHEN 0 THEN error ELSE substr(error, 1, instr(error, ':') - 1) END, count(*), sum(length)
    FROM pages WHERE crawl = ? AND number > ? AND number <= ? GROUP BY 1, 2, 3"""
_HIGHEST_NUMBER = """SELECT max((SELECT coalesce(max(number), 0) FROM pages WHERE crawl = ?1),
    (SELECT coalesce(max(number), 0) FROM changes WHERE crawl = ?1))"""
_NEXT_BATCHES = f"SELECT batch FROM pages WHERE batch > ? ORDER BY batch LIMIT {_CHUNK}"  # noqa: S608
_COMMITTED = f"""SELECT {schema.ROW} FROM {schema.PAGES} WHERE p.batch > ? AND p.batch <= ?
    ORDER BY p.batch, p.item"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Where:
    """Which rows: every condition that is given must hold. Items and batches are counted from just after the number."""

    after_item: int = 0
    upto_item: int | None = None
    after_batch: int | None = None
    upto_batch: int | None = None
    crawl: int | None = None
    status: int | None = None
    host: str | None = None
    error: str | None = None
    fetched_since: float | None = None  # by the wall clock
    stored: bool | None = None  # whether its response is stored, in a WARC file or as text
    may_change: bool = False  # those alone that another visit may change: they have an index of their own

    def sql(self) -> tuple[str, list[object]]:
        """The conditions but for `after_item`, and their values."""
        # The plus keeps SQLite from using the index on batches, by which it would sort all rows for each thousand.
        equal = {"crawl": self.crawl, "status": self.status, "host": self.host, "error": self.error}
        given: dict[str, object] = {f"p.{column} = ?": value for column, value in equal.items() if value is not None}
        if self.upto_item is not None:
            given["p.item <= ?"] = self.upto_item
        if self.after_batch is not None:
            given["+p.batch > ?"] = self.after_batch
        if self.upto_batch is not None:
            given["+p.batch <= ?"] = self.upto_batch
        if self.fetched_since is not None:
            given["p.fetched_at >= ?"] = self.fetched_since
        if self.stored is not None:
            given["(p.file IS NOT NULL) = ?"] = int(self.stored)
        more = f" AND {schema.MAY_CHANGE}" if self.may_change else ""
        return "".join(f" AND {condition}" for condition in given) + more, list(given.values())


EVERY = Where()


class IndexReader:
    """The reader's side of one index."""

    def __init__(self, path: Path, *, whole: bool = True, alive: Alive = silent) -> None:
        """`whole`: refuse an index that was cut; else it is read as far as possible. `alive` is called from inside
        long statements."""
        self.path = path
        self._db = _connect(path, whole, alive)

    def begun(self, facts: Mapping[str, object]) -> bool:
        """Whether its tables exist; BadInput where it belongs to another data dir."""
        with reading(self.path):
            if schema.is_empty(self._db, self.path):
                return False
            if schema.fact(self._db, "data_dirs") is not None:  # else its creator has not written it yet
                schema.check_facts(self._db, self.path, facts)
            return True

    def rows(self, where: Where = EVERY) -> Iterator[Row]:
        """The rows in the order of their items."""
        more, values = where.sql()
        pages = schema.PAGES_MAY_CHANGE if where.may_change else schema.PAGES
        sql = f"SELECT {schema.ROW} FROM {pages} WHERE p.item > ?{more} ORDER BY p.item LIMIT {_CHUNK}"  # noqa: S608
        after = where.after_item
        while True:
            found = self._all(sql, after, *values)
            yield from schema.rows(found, self.path)
            if len(found) < _CHUNK:
                return
            after = found[-1][0]

    def for_url(self, url: str, crawl: int = 0) -> list[Row]:
        """Every row of a URL, oldest first; of one crawl, or of all (0)."""
        return schema.rows(self._all(_FOR_URL, url, schema.url_hash(url), crawl), self.path)

    def by_hash(self, hashes: Sequence[int], items: Sequence[int] = ()) -> list[Row]:
        """The rows of URLs with these hashes that the look-up table has, and those of some items."""
        return schema.rows(
            self._all(_BY_HASH, f"[{','.join(map(str, hashes))}]", f"[{','.join(map(str, items))}]"), self.path
        )

    def unfolded(self) -> list[tuple[int, int]]:
        """Hash and item of the rows that the look-up table does not have yet."""
        return self._all(f"SELECT url_hash, item FROM pages WHERE batch > {_FOLDED}")  # noqa: S608

    def _numbered(self, crawl: int, after: int, limit: int) -> list[tuple[int, Row]]:
        """Rows in the order of their numbers."""
        found = self._all(_NUMBERED, crawl, after, limit)
        rows = schema.rows((values[1:] for values in found), self.path)
        return [(int(values[0]), row) for values, row in zip(found, rows, strict=True)]

    def happened(
        self, crawl: int, after: int, limit: int
    ) -> tuple[list[tuple[int, Row]], list[tuple[int, float, str, str]]]:
        """A crawl's rows and changes of state as of one moment: a commit between the two reads would tear a gap."""
        self._all("BEGIN")
        try:
            return self._numbered(crawl, after, limit), self._changes(crawl, after, limit)
        finally:
            self._all("COMMIT")

    def _changes(self, crawl: int, after: int, limit: int) -> list[tuple[int, float, str, str]]:
        """Number, time, state and reason."""
        sql = "SELECT number, at, state, reason FROM changes WHERE crawl = ? AND number > ? ORDER BY number LIMIT ?"
        return [(number, at, state, reason) for number, at, state, reason in self._all(sql, crawl, after, limit)]

    def timeline(self, crawl: int, after: int, upto: int) -> list[tuple[int, int, str, int, int]]:
        """A crawl's rows between two numbers, counted by second of the wall clock, status and kind of error: with how
        many there were, and the bytes of their bodies."""
        return [tuple(found) for found in self._all(_TIMELINE, crawl, after, upto)]

    def page_numbers(self, crawl: int, after: int, upto: int) -> list[int]:
        """The numbers of a crawl's rows that are pages, neither errors nor redirects, between two numbers."""
        return [number for (number,) in self._all(_PAGE_NUMBERS, crawl, after, upto)]

    def lost_pages(self, crawl: int) -> int:
        """How many pages of a crawl have a row and no bytes: they were lost."""
        return int(self._all(_LOST_PAGES, crawl)[0][0])

    def highest_number(self, crawl: int) -> int:
        """The number of a crawl's last row or change of state; 0 if there is none."""
        return int(self._all(_HIGHEST_NUMBER, crawl)[0][0])

    def batches(self, after: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Of the next few commits of all crawls: batch, place, crawl and number of each row and change, in order."""
        last = self._all(_LAST_OF_BATCHES, after, after, limit)[0][0]
        found = self._all(_BATCHES, after, last, after, last) if last is not None else ()
        return [(batch, place, crawl, number) for batch, place, crawl, number in found]

    def crawls_with_rows(self) -> list[int]:
        """The crawls that have rows."""
        return [crawl for (crawl,) in self._all("SELECT DISTINCT crawl FROM tally")]

    def crawls(self) -> list[tuple[int, str, bytes]]:
        """The crawls of an engine: number, name and record."""
        return [(number, name, bytes(record)) for number, name, record in self._all("SELECT * FROM crawls")]

    def crawl(self, number: int) -> tuple[str, bytes] | None:
        """The name and record of a crawl of an engine."""
        found = self._all("SELECT name, record FROM crawls WHERE number = ?", number)
        return (found[0][0], bytes(found[0][1])) if found else None

    def crawl_named(self, name: str) -> int | None:
        """The number of the crawl of that name."""
        found = self._all("SELECT number FROM crawls WHERE name = ?", name)
        return int(found[0][0]) if found else None

    def for_item(self, item: int) -> Row | None:
        """The row of an item."""
        found = self._all(f"SELECT {schema.ROW} FROM {schema.PAGES} WHERE p.item = ?", item)  # noqa: S608
        return schema.rows(found, self.path)[0] if found else None

    def since(self, batch: int) -> list[int]:
        """The items committed after a batch."""
        return [item for (item,) in self._all("SELECT item FROM pages WHERE batch > ? ORDER BY item", batch)]

    def committed(self, after_batch: int, at_most: int = 1 << 62) -> tuple[list[Row], int]:
        """The rows of the next few batches, in the order of their commits, and the last of those batches."""
        found = self._all(_NEXT_BATCHES, after_batch)
        upto = min(at_most, max((batch for (batch,) in found), default=after_batch))
        return schema.rows(self._all(_COMMITTED, after_batch, upto), self.path), upto

    def files(self) -> dict[str, int]:
        """The WARC files, and how much of each is committed."""
        return dict(self._all("SELECT name, length FROM files"))

    def of_crawl(self, crawl: int, after: int, upto_batch: int) -> list[tuple[int, int, Row]]:
        """A crawl's rows after a number, in the order of their numbers: some, each with its number and batch."""
        found = self._all(_OF_CRAWL, crawl, after, upto_batch)
        rows = schema.rows((values[2:] for values in found), self.path)
        return [(int(one[0]), int(one[1]), row) for one, row in zip(found, rows, strict=True)]

    def number_of(self, item: int) -> int:
        """The number of an item's row among those of its crawl; 0 where there is none."""
        found = self._all("SELECT number FROM pages WHERE item = ?", item)
        return int(found[0][0]) if found else 0

    def number_at(self, crawl: int, batch: int) -> int:
        """The last number of a crawl up to a batch."""
        sql = "SELECT coalesce(max(number), 0) FROM pages WHERE crawl = ? AND batch <= ?"
        return int(self._all(sql, crawl, batch)[0][0])

    def visits(self, hashes: Sequence[int], upto_batch: int = 1 << 62, crawl: int = 0) -> list[Visit]:
        """The rows of URLs with these hashes (of one crawl, or all): as far as they tell which stands for its URL."""
        found: list[Visit] = []
        for start in range(0, len(hashes), _CHUNK):
            listed = ",".join(map(str, hashes[start : start + _CHUNK]))
            sql = _VISITS.format(hashes=listed, folded=_FOLDED, upto=int(upto_batch))
            sql += f" AND p.crawl = {int(crawl)}" if crawl else ""
            found += [Visit(*values) for values in self._typed(self._all(sql), _VISIT)]
        return found

    def hashes(self) -> Iterator[int]:
        """The hash of every row's URL, in order."""
        late = [hash_ for (hash_,) in self._all(f"SELECT url_hash FROM pages WHERE batch > {_FOLDED} ORDER BY 1")]  # noqa: S608
        return heapq.merge(late, self._folded())

    def own_repeated(self) -> list[int] | None:
        """The hashes that several rows have; None where some are not in the look-up table yet."""
        if self._all(f"SELECT 1 FROM pages WHERE batch > {_FOLDED} LIMIT 1"):  # noqa: S608
            return None
        found = self._all("SELECT url_hash FROM lookup GROUP BY url_hash HAVING count(*) > 1")
        return [hash_ for (hash_,) in found]

    def repeated_in(self, crawl: int) -> list[int]:
        """The hashes that several rows of one crawl have; reads no other's rows."""
        sql = "SELECT url_hash FROM pages INDEXED BY pages_by_number WHERE crawl = ? GROUP BY url_hash"
        return [hash_ for (hash_,) in self._all(f"{sql} HAVING count(*) > 1", crawl)]

    def _folded(self) -> Iterator[int]:
        after = (-(1 << 63), -1)
        while found := self._all(_HASHES, *after):
            yield from (hash_ for hash_, _ in found)
            after = found[-1]

    def in_file(self, name: str) -> list[Row]:
        """The rows that point into a WARC file."""
        found = self._all(f"SELECT {schema.ROW} FROM {schema.PAGES} WHERE f.name = ?", name)  # noqa: S608
        return schema.rows(found, self.path)

    def lost(self) -> list[Row]:
        """The rows that were lost and are not queued again yet."""
        return lost_rows((record for (record,) in self._all("SELECT record FROM lost ORDER BY item")), self.path)

    def crawl_id(self) -> object:
        """The id of its crawl."""
        with reading(self.path):
            return schema.fact(self._db, "crawl_id")

    def last_batch(self) -> int:
        """The last batch that was committed."""
        found = self._all("SELECT value FROM meta WHERE key = 'batch'")
        if not found or not isinstance(found[0][0], int):
            raise DamagedIndex(self.path, "it has no last batch")
        return int(found[0][0])

    def totals(self, crawl: int = 0) -> tuple[int, int, int, float, float]:
        """Rows, pages, body bytes, first and last time; of one crawl, or of all."""
        sql = """SELECT coalesce(sum(rows), 0), coalesce(sum(pages), 0), coalesce(sum(bytes), 0),
          coalesce(min(first), 0.0), coalesce(max(last), 0.0) FROM tally"""
        found = self._all(*_of(sql, crawl))
        ((rows, pages, body_bytes, first, last),) = self._typed(found, tuple[int, int, int, float, float])
        return rows, pages, body_bytes, first, last

    def warc_bytes(self, crawl: int = 0) -> int:
        """The committed size of the WARC files; of one crawl, or of all."""
        return int(self._all(*_of("SELECT coalesce(sum(length), 0) FROM files", crawl))[0][0])

    def counts(self, column: str, crawl: int = 0) -> dict[Any, int]:
        """How many rows there are for each status, error, content_type or depth."""
        assert column in ("status", "error", "content_type", "depth")
        found = self._all(*_of(f"SELECT {column}, sum(rows) FROM tally", crawl, f"GROUP BY {column}"))  # noqa: S608
        kinds = tuple[int, int] if column in ("status", "depth") else tuple[str, int]
        return dict(self._typed(found, kinds))

    def kinds(self, crawl: int = 0, depth: int | None = None) -> list[tuple[int, str, int, int]]:
        """Status, error, how many rows (of a depth, of a crawl) have both, and the bytes of those that are pages."""
        sql = (
            "SELECT status, error, sum(rows), sum(iif(pages > 0, bytes, 0)) FROM tally WHERE (?1 IS NULL OR depth = ?1)"
        )
        found = self._all(f"{sql} AND (?2 = 0 OR crawl = ?2) GROUP BY status, error", depth, crawl)
        return [(status, error, rows, page_bytes) for status, error, rows, page_bytes in found]

    def hosts(self, crawl: int = 0) -> Iterator[tuple[str, int]]:
        """How many 2xx pages each host has, in the order of the hosts."""
        sql = "SELECT host, count(*) FROM pages WHERE status BETWEEN 200 AND 299"
        more = " AND crawl = ?" if crawl else ""
        with reading(self.path):
            for found in self._db.execute(f"{sql}{more} GROUP BY host ORDER BY host", (crawl,) if crawl else ()):
                yield from self._typed([found], tuple[str, int])

    def close(self) -> None:
        """Closes the connection."""
        self._db.close()

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with reading(self.path):
            return self._db.execute(sql, values).fetchall()

    def _typed(self, found: list[tuple[Any, ...]], kinds: Any) -> list[Any]:
        """The values, if they are of these types; DamagedIndex otherwise, since SQLite keeps no checksums."""
        try:
            return [msgspec.convert(values, kinds) for values in found]
        except msgspec.ValidationError as error:
            raise DamagedIndex(self.path, f"a count of it: {error}") from error


def _of(select: str, crawl: int, rest: str = "") -> tuple[Any, ...]:
    """A question about one crawl, or about all, and its value."""
    return (f"{select} WHERE crawl = ? {rest}", crawl) if crawl else (f"{select} {rest}",)


def _connect(path: Path, whole: bool, alive: Alive) -> sqlite3.Connection:
    """A read-only connection. Without a log, and where none can be created (a read-only medium), it is `immutable`."""
    quoted = path.resolve().as_uri()
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        try:
            return _checked(f"{quoted}?{mode}", path, whole, alive)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if isinstance(found := store_error(path, error, "read"), DamagedIndex):
                raise found from error
            refused = error
        if Path(f"{path}-wal").exists():
            break
    raise BadInput(f"{path} cannot be read ({refused})") from refused


def _checked(uri: str, path: Path, whole: bool, alive: Alive) -> sqlite3.Connection:
    db = sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None, check_same_thread=False)
    watch(db, alive)
    try:
        if not schema.is_empty(db, path):
            schema.check(db, path)
            if whole:
                schema.check_whole(db, path)
    except BaseException:
        db.close()
        raise
    return db
