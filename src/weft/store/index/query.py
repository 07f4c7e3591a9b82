"""Reads one index, also while it is being written: rows in the order of their items, by URL, by batch, and counts.

Must stay true: no query keeps a read transaction open for longer than one statement, or the writer's log could not be
emptied; iteration reads a thousand rows at a time, so that memory does not grow with the crawl.
"""

from __future__ import annotations

import sqlite3
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft import urls
from weft.alive import Alive, silent, watch
from weft.errors import BadInput
from weft.records import Row, RowOutput
from weft.store.errors import DamagedIndex, convert_read_errors, store_error
from weft.store.index import intact, keys, replaced, schema
from weft.store.index.hosts import IS_PAGE, MOST_HOSTS
from weft.store.index.index_writer import lost_rows
from weft.store.index.replaced import ReplacedCounts
from weft.store.index.visits import Visit

_ROWS_PER_READ = 1000
_FOR_URL = f"""SELECT {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES} WHERE p.url = ?2 AND ?3 IN (p.crawl, 0)
    AND p.seq IN ({keys.POSITIONS_OF_HASHES}
    UNION ALL SELECT seq FROM asked WHERE url_hash IN (SELECT value FROM json_each(?1)))
    ORDER BY p.item"""  # noqa: S608
# One statement for any number of hashes, so that SQLite compiles it once.
_BY_HASH = f"SELECT {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES} WHERE p.seq IN ({keys.KEYED_POSITIONS})"  # noqa: S608
_BY_ITEM = f"""SELECT {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES}
    WHERE p.item = ?2 AND p.seq IN ({keys.POSITIONS_OF_ITEMS})"""  # noqa: S608
_VISITS = f"""SELECT {replaced.VISIT_COLUMNS} FROM pages p WHERE p.batch <= ?2 AND ?3 IN (p.crawl, 0)
    AND p.seq IN ({keys.POSITIONS_OF_HASHES})"""  # noqa: S608
_ROWS_BY_NUMBER = f"""SELECT p.number, {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES}
    WHERE p.crawl = ? AND p.number > ?
    ORDER BY p.number LIMIT ?"""  # noqa: S608
_PAGE_NUMBERS = """SELECT number FROM pages WHERE crawl = ? AND number > ? AND number <= ? AND status < 300
    AND error = ''"""
_LOST_PAGES = """SELECT coalesce(sum(rows - pages), 0) FROM tally WHERE crawl = ? AND status BETWEEN 200 AND 299
    AND error = ''"""
_ROWS_OF_CRAWL = f"""SELECT p.number, p.batch, {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES}
    WHERE p.crawl = ? AND p.number > ?
    AND p.batch <= ? ORDER BY p.number LIMIT {_ROWS_PER_READ}"""  # noqa: S608
_OUTPUTS = f"""SELECT p.item FROM outputs o JOIN pages p ON p.seq = o.seq
    WHERE o.count > 0 AND o.seq >= {schema.FIRST_AFTER_BATCH}
    AND o.seq <= (SELECT last FROM batches WHERE batch <= ? ORDER BY batch DESC LIMIT 1) ORDER BY o.seq"""  # noqa: S608
_OUTPUTS_OF = f"""SELECT p.item, o.count, o.record FROM pages p JOIN outputs o ON o.seq = p.seq
    WHERE p.seq IN ({keys.POSITIONS_OF_ITEMS}) UNION ALL
    SELECT item, count, record FROM lost_outputs WHERE item IN (SELECT value FROM json_each(?1))"""  # noqa: S608
_LAST_OF_BATCHES = """SELECT max(batch) FROM (SELECT batch FROM (SELECT batch FROM batches WHERE batch > ?1
    UNION SELECT batch FROM changes WHERE batch > ?1) ORDER BY batch LIMIT ?2)"""
_BATCHES = f"""SELECT batch, place, crawl, number FROM pages
    WHERE seq >= {schema.FIRST_AFTER_BATCH.replace("?", "?1")} AND batch <= ?2
    UNION ALL SELECT batch, place, crawl, number FROM changes WHERE batch > ?1 AND batch <= ?2
    ORDER BY batch, place"""  # noqa: S608
_TIMELINE = """SELECT CAST(fetched_at AS INTEGER), status,
    CASE instr(error, ':') WHEN 0 THEN error ELSE substr(error, 1, instr(error, ':') - 1) END, count(*), sum(length)
    FROM pages WHERE crawl = ? AND number > ? AND number <= ? GROUP BY 1, 2, 3"""
_HIGHEST_NUMBER = """SELECT max((SELECT coalesce(max(number), 0) FROM pages WHERE crawl = ?1),
    (SELECT coalesce(max(number), 0) FROM changes WHERE crawl = ?1))"""
_NEXT_BATCHES = f"SELECT batch, last - first + 1 FROM batches WHERE batch > ? ORDER BY batch LIMIT {_ROWS_PER_READ}"  # noqa: S608
_ROWS_OF_BATCHES = f"""SELECT {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES}
    WHERE p.seq >= {schema.FIRST_AFTER_BATCH}
    AND p.seq <= (SELECT last FROM batches WHERE batch <= ? ORDER BY batch DESC LIMIT 1) ORDER BY p.seq"""  # noqa: S608
_ROWS_IN_ORDER = f"""SELECT p.seq, p.batch, {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES}
    WHERE p.seq > ?1 AND p.seq <= ?2
    ORDER BY p.seq LIMIT {_ROWS_PER_READ}"""  # noqa: S608
_LAST_OF_BATCH = "SELECT last FROM batches WHERE batch <= ? ORDER BY batch DESC LIMIT 1"
_ROWS_OF_POSITIONS = f"""SELECT p.seq, p.batch, {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES}
    WHERE p.seq IN (SELECT value FROM json_each(?)) ORDER BY p.seq"""  # noqa: S608
_ROWS_OF_HASHES = f"""SELECT {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES}
    WHERE p.seq IN (SELECT value FROM json_each(?)){{more}}
    ORDER BY p.item"""  # noqa: S608
_ROWS_THAT_MAY_CHANGE = f"""SELECT {schema.SELECTED_COLUMNS} FROM {schema.PAGES_MAY_CHANGE} WHERE p.item > ?{{more}}
    ORDER BY p.item LIMIT {_ROWS_PER_READ}"""  # noqa: S608
_TOP_HOSTS = f"""SELECT host, sum(pages) FROM (SELECT host, pages FROM hosts WHERE ?1 IN (crawl, 0) UNION ALL
    SELECT host_of(url), count(*) FROM pages
    WHERE seq > {keys.LAST_KEYED} AND {IS_PAGE} AND ?1 IN (crawl, 0) GROUP BY 1)
    GROUP BY host ORDER BY host"""  # noqa: S608
# All rows fetched at some time or later come after the last batch before which all rows were fetched earlier.
_LAST_BEFORE_TIME = "SELECT last FROM batches WHERE latest < ? ORDER BY batch DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Selects rows: every given condition must hold. Items and batches count from just after the number."""

    after_item: int = 0
    upto_item: int | None = None
    after_batch: int | None = None
    upto_batch: int | None = None
    crawl: int | None = None
    status: int | None = None
    error: str | None = None
    fetched_since: float | None = None  # by the wall clock
    stored: bool | None = None  # whether its response is stored, in a WARC file or as text
    may_change: bool = False  # only rows that another visit may change: they have an index of their own

    def sql(self) -> tuple[str, list[object]]:
        """The conditions but for `after_item`, and their values."""
        equal = {"crawl": self.crawl, "status": self.status, "error": self.error}
        given: dict[str, object] = {f"p.{column} = ?": value for column, value in equal.items() if value is not None}
        if self.upto_item is not None:
            given["p.item <= ?"] = self.upto_item
        if self.after_batch is not None:
            given["p.batch > ?"] = self.after_batch
        if self.upto_batch is not None:
            given["p.batch <= ?"] = self.upto_batch
        if self.fetched_since is not None:
            given["p.fetched_at >= ?"] = self.fetched_since
        if self.stored is not None:
            given["(p.file IS NOT NULL) = ?"] = int(self.stored)
        more = f" AND {schema.MAY_CHANGE}" if self.may_change else ""
        return "".join(f" AND {condition}" for condition in given) + more, list(given.values())


EVERY_ROW = RowFilter()
PlacedRow = tuple[int, int, Row]  # a row with its position, and its batch


class IndexReader:
    """The reader's side of one index."""

    def __init__(self, path: Path, *, whole: bool = True, alive: Alive = silent) -> None:
        """`whole`: refuse a damaged index; otherwise it is read as far as possible. `alive` is called from inside
        long statements.
        """
        self.path = path
        self._db = _open_connection(path, whole, alive)

    def has_tables(self, facts: Mapping[str, object]) -> bool:
        """Whether its tables exist; BadInput if it belongs to another data dir."""
        with convert_read_errors(self.path):
            if schema.is_empty(self._db, self.path):
                return False
            if schema.read_fact(self._db, "data_dirs") is not None:  # otherwise its creator has not written it yet
                schema.check_facts(self._db, self.path, facts)
            return True

    def rows(self, where: RowFilter = EVERY_ROW) -> Iterator[Row]:
        """The rows in the order of their items: each is looked up. All of a large index are read faster `in_order`."""
        more, values = where.sql()
        if where.may_change:
            yield from self._rows_that_may_change(where.after_item, more, values)
            return
        sql = _ROWS_OF_HASHES.format(more=more)
        below = keys.LAST_KEY if where.upto_item is None else where.upto_item + 1
        for entries in keys.walk_entries(
            self._query, "item", (max(where.after_item, -1), keys.LAST_KEY), below, _ROWS_PER_READ
        ):
            yield from schema.decode_rows(
                self._query(sql, keys.as_json_list(seq for _, seq in entries), *values), self.path
            )

    def _rows_that_may_change(self, after: int, more: str, values: list[object]) -> Iterator[Row]:
        sql = _ROWS_THAT_MAY_CHANGE.format(more=more)
        while True:
            rows = self._query(sql, after, *values)
            yield from schema.decode_rows(rows, self.path)
            if len(rows) < _ROWS_PER_READ:
                return
            after = rows[-1][0]

    def rows_in_order(
        self, after: int, upto_batch: int, since: float = 0.0, only: Sequence[int] | None = None
    ) -> Iterator[list[PlacedRow]]:
        """The rows in the order of their commits, after a position, in pieces. `since`: from the first on that may have
        been fetched then or later; `only`: those at these positions, which are sorted.
        """
        last = self._query_number(_LAST_OF_BATCH, upto_batch)
        if since:
            after = max(after, self._query_number(_LAST_BEFORE_TIME, since))
        if only is not None:
            yield from self._rows_of_positions(only[bisect_right(only, after) : bisect_right(only, last)])
            return
        while rows := self._query(_ROWS_IN_ORDER, after, last):
            yield self._decode_placed(rows)
            after = rows[-1][0]

    def _rows_of_positions(self, seqs: Sequence[int]) -> Iterator[list[PlacedRow]]:
        for start in range(0, len(seqs), _ROWS_PER_READ):
            yield self._decode_placed(
                self._query(_ROWS_OF_POSITIONS, keys.as_json_list(seqs[start : start + _ROWS_PER_READ]))
            )

    def _decode_placed(self, found: list[tuple[Any, ...]]) -> list[PlacedRow]:
        rows = schema.decode_rows((values[2:] for values in found), self.path)
        return [(int(one[0]), int(one[1]), row) for one, row in zip(found, rows, strict=True)]

    def end_of_batch(self, batch: int) -> int:
        """The position of the last row up to a batch."""
        return self._query_number(_LAST_OF_BATCH, batch)

    def positions_of_hosts(self, hosts: Iterable[str], upto_batch: int, most: int) -> array[int] | None:
        """The positions of the rows of these hosts, sorted, among them few of others; None if there are too many."""
        last, positions = self.end_of_batch(upto_batch), array("q")
        for hashes in map(schema.hashes_of, hosts):
            for some in keys.walk_entries(
                self._query, "url_hash", (hashes.start - 1, keys.LAST_KEY), hashes.stop, 10 * _ROWS_PER_READ
            ):
                positions.extend(seq for _, seq in some if seq <= last)
                if len(positions) > most:
                    return None
        return array("q", sorted(positions))

    def rows_of_url(self, url: str, crawl: int = 0) -> list[Row]:
        """Every row of a URL, oldest first; of one crawl, or of all (0)."""
        rows = self._query(_FOR_URL, keys.as_json_list([schema.url_hash(url)]), url, crawl)
        return schema.decode_rows(rows, self.path)

    def rows_of_hashes(self, hashes: Sequence[int], seqs: Sequence[int] = ()) -> list[Row]:
        """The rows of URLs with these hashes that have their keys, and those with some positions."""
        return schema.decode_rows(self._query(_BY_HASH, keys.as_json_list(hashes), keys.as_json_list(seqs)), self.path)

    def rows_without_keys(self) -> list[tuple[int, int]]:
        """Hash and position of the rows that have no keys yet."""
        return self._query(f"SELECT url_hash, seq FROM pages WHERE seq > {keys.LAST_KEYED}")  # noqa: S608

    def _rows_by_number(self, crawl: int, after: int, limit: int) -> list[tuple[int, Row]]:
        """Rows in the order of their numbers."""
        found = self._query(_ROWS_BY_NUMBER, crawl, after, limit)
        rows = schema.decode_rows((values[1:] for values in found), self.path)
        return [(int(values[0]), row) for values, row in zip(found, rows, strict=True)]

    def rows_and_changes(
        self, crawl: int, after: int, limit: int
    ) -> tuple[list[tuple[int, Row]], list[tuple[int, float, str, str]]]:
        """A crawl's rows and changes of state, consistent with each other: a commit between two reads would leave a
        gap.
        """
        self._query("BEGIN")
        try:
            return self._rows_by_number(crawl, after, limit), self._changes(crawl, after, limit)
        finally:
            self._query("COMMIT")

    def _changes(self, crawl: int, after: int, limit: int) -> list[tuple[int, float, str, str]]:
        """Number, time, state and reason."""
        sql = "SELECT number, at, state, reason FROM changes WHERE crawl = ? AND number > ? ORDER BY number LIMIT ?"
        return [(number, at, state, reason) for number, at, state, reason in self._query(sql, crawl, after, limit)]

    def timeline(self, crawl: int, after: int, upto: int) -> list[tuple[int, int, str, int, int]]:
        """A crawl's rows between two numbers, counted by second of the wall clock, status and kind of error, with the
        bytes of their bodies.
        """
        return [tuple(entry) for entry in self._query(_TIMELINE, crawl, after, upto)]

    def page_numbers(self, crawl: int, after: int, upto: int) -> list[int]:
        """The numbers of a crawl's rows that are pages, neither errors nor redirects, between two numbers."""
        return [number for (number,) in self._query(_PAGE_NUMBERS, crawl, after, upto)]

    def lost_pages(self, crawl: int) -> int:
        """How many pages of a crawl have a row but no bytes: they were lost."""
        return int(self._query(_LOST_PAGES, crawl)[0][0])

    def highest_number(self, crawl: int) -> int:
        """The number of a crawl's last row or change of state; 0 if there is none."""
        return int(self._query(_HIGHEST_NUMBER, crawl)[0][0])

    def batches(self, after: int, limit: int) -> list[tuple[int, int, int, int]]:
        """The next few commits of all crawls: batch, position, crawl and number of each row and change, in order."""
        last = self._query(_LAST_OF_BATCHES, after, limit)[0][0]
        entries = self._query(_BATCHES, after, last) if last is not None else ()
        return [(batch, place, crawl, number) for batch, place, crawl, number in entries]

    def crawls_with_rows(self) -> list[int]:
        """The crawls that have rows."""
        return [crawl for (crawl,) in self._query("SELECT DISTINCT crawl FROM tally")]

    def crawls(self) -> list[tuple[int, str, bytes]]:
        """The crawls of an engine: number, name and record."""
        return [(number, name, bytes(record)) for number, name, record in self._query("SELECT * FROM crawls")]

    def crawl(self, number: int) -> tuple[str, bytes] | None:
        """The name and record of a crawl of an engine."""
        records = self._query("SELECT name, record FROM crawls WHERE number = ?", number)
        return (records[0][0], bytes(records[0][1])) if records else None

    def crawl_named(self, name: str) -> int | None:
        """The number of the crawl of that name."""
        numbers = self._query("SELECT number FROM crawls WHERE name = ?", name)
        return int(numbers[0][0]) if numbers else None

    def row_of_item(self, item: int) -> Row | None:
        """The row of an item."""
        rows = self._query(_BY_ITEM, keys.as_json_list([item]), item)
        return schema.decode_rows(rows, self.path)[0] if rows else None

    def outputs_of(self, items: Sequence[int]) -> dict[int, RowOutput]:
        """The outputs of a user's code for pages, by item; pages without output are left out."""
        outputs = self._query(_OUTPUTS_OF, keys.as_json_list(items))
        return {item: schema.unpack_output(count, bytes(record), self.path) for item, count, record in outputs}

    def outputs_committed(self, after_batch: int) -> tuple[list[int], int]:
        """The items with non-empty outputs of the next few batches, in the order of their commits; and the last of
        those batches.
        """
        upto = self._some_batches(after_batch)
        return [item for (item,) in self._query(_OUTPUTS, after_batch, upto)], upto

    def items_made(self, crawl: int = 0) -> int:
        """How many items a user's code has produced."""
        return int(self._query(*_for_crawl("SELECT coalesce(sum(count), 0) FROM outputs", crawl))[0][0])

    def items_since(self, batch: int) -> list[int]:
        """The items committed after a batch."""
        return sorted(item for (item,) in self._query(schema.ITEMS_SINCE, batch))

    def rows_of_next_batches(self, after_batch: int, at_most: int = 1 << 62) -> tuple[list[Row], int]:
        """The rows of the next few batches, in the order of their commits, and the last of those batches."""
        upto = min(at_most, self._some_batches(after_batch))
        return schema.decode_rows(self._query(_ROWS_OF_BATCHES, after_batch, upto), self.path), upto

    def _some_batches(self, after: int) -> int:
        """The last of the next few batches: of a thousand rows, or a little more."""
        rows, last = 0, after
        for last, count in self._query(_NEXT_BATCHES, after):  # noqa: B007 - it is what is returned
            if (rows := rows + count) >= _ROWS_PER_READ:
                break
        return last

    def files(self) -> dict[str, int]:
        """The committed length of each WARC file."""
        return dict(self._query("SELECT name, length FROM files"))

    def rows_of_crawl(self, crawl: int, after: int, upto_batch: int) -> Iterator[list[PlacedRow]]:
        """A crawl's rows after a number, in the order of their numbers, some at a time, each with its number."""
        while values := self._query(_ROWS_OF_CRAWL, crawl, after, upto_batch):
            yield self._decode_placed(values)
            after = int(values[-1][0])

    def number_at(self, crawl: int, batch: int) -> int:
        """The last number of a crawl up to a batch."""
        sql = "SELECT coalesce(max(number), 0) FROM pages WHERE crawl = ? AND batch <= ?"
        return int(self._query(sql, crawl, batch)[0][0])

    def visits(self, hashes: Sequence[int], upto_batch: int = 1 << 62, crawl: int = 0) -> list[Visit]:
        """The visits of URLs with these hashes (in one crawl, or all): the values that decide which is the
        current one.
        """
        visits: list[Visit] = []
        for start in range(0, len(hashes), _ROWS_PER_READ):
            some = keys.as_json_list(hashes[start : start + _ROWS_PER_READ])
            visits += [
                Visit(*values)
                for values in self._checked_types(self._query(_VISITS, some, upto_batch, crawl), replaced.VISIT_TYPES)
            ]
        return visits

    def hashes(self) -> Iterator[int]:
        """The hash of every row's URL, in order."""
        for entries in keys.walk_entries(self._query, "url_hash", keys.BEFORE_ALL_HASHES, 0, 10 * _ROWS_PER_READ):
            yield from (hash_ for hash_, _ in entries)

    def replaced(self, crawl: int = 0, top: int = 0) -> ReplacedCounts:
        """The rows of a crawl (0: of all) that are replaced within this index; `top`: how many hosts are wanted."""
        self._query("BEGIN")  # rows may get their keys between two statements
        try:
            with convert_read_errors(self.path):
                counts = replaced.read_counts(self._db, self.path, crawl, top, MOST_HOSTS)
                counts.add_counts(replaced.count_by_late_rows(self._db, self.path, crawl))
                return counts
        finally:
            self._query("COMMIT")

    def repeat_notes(self) -> dict[int, int]:
        """The notes of `may_come_again`, by crawl: after which items rows may be visits of URLs that have a row."""
        with convert_read_errors(self.path):
            return replaced.notes(self._db)

    def redirect_target_hashes(self) -> array[int]:
        """The hashes of redirect targets."""
        sql = "SELECT url_hash FROM pages INDEXED BY pages_led WHERE hops > 0"
        with convert_read_errors(self.path):
            return array("q", (hash_ for (hash_,) in self._db.execute(sql)))

    def rows_in_file(self, name: str) -> list[Row]:
        """The rows that point into a WARC file."""
        rows = self._query(f"SELECT {schema.SELECTED_COLUMNS} FROM {schema.PAGES_WITH_FILES} WHERE f.name = ?", name)  # noqa: S608
        return schema.decode_rows(rows, self.path)

    def lost_rows(self) -> list[Row]:
        """The rows that were lost and are not queued again yet."""
        return lost_rows((record for (record,) in self._query("SELECT record FROM lost ORDER BY item")), self.path)

    def crawl_id(self) -> object:
        """The id of its crawl."""
        with convert_read_errors(self.path):
            return schema.read_fact(self._db, "crawl_id")

    def last_batch(self) -> int:
        """The last batch that was committed."""
        values = self._query("SELECT value FROM meta WHERE key = 'batch'")
        if not values or not isinstance(values[0][0], int):
            raise DamagedIndex(self.path, "it has no last batch")
        return int(values[0][0])

    def totals(self, crawl: int = 0) -> tuple[int, int, int, float, float]:
        """Rows, pages, body bytes, first and last time; of one crawl, or of all."""
        sql = """SELECT coalesce(sum(rows), 0), coalesce(sum(pages), 0), coalesce(sum(bytes), 0),
          coalesce(min(first), 0.0), coalesce(max(last), 0.0) FROM tally"""
        values = self._query(*_for_crawl(sql, crawl))
        ((rows, pages, body_bytes, first, last),) = self._checked_types(values, tuple[int, int, int, float, float])
        return rows, pages, body_bytes, first, last

    def warc_bytes(self, crawl: int = 0) -> int:
        """The committed size of the WARC files; of one crawl, or of all."""
        return int(self._query(*_for_crawl("SELECT coalesce(sum(length), 0) FROM files", crawl))[0][0])

    def counts(self, column: str, crawl: int = 0) -> dict[Any, int]:
        """How many rows there are for each status, error, content_type or depth."""
        assert column in ("status", "error", "content_type", "depth")
        values = self._query(*_for_crawl(f"SELECT {column}, sum(rows) FROM tally", crawl, f"GROUP BY {column}"))  # noqa: S608
        kinds = tuple[int, int] if column in ("status", "depth") else tuple[str, int]
        return dict(self._checked_types(values, kinds))

    def kinds(self, crawl: int = 0, depth: int | None = None) -> list[tuple[int, str, int, int]]:
        """Status, error, how many rows (of a depth, of a crawl) have both, and the bytes of those that are pages."""
        sql = (
            "SELECT status, error, sum(rows), sum(iif(pages > 0, bytes, 0)) FROM tally WHERE (?1 IS NULL OR depth = ?1)"
        )
        values = self._query(f"{sql} AND (?2 = 0 OR crawl = ?2) GROUP BY status, error", depth, crawl)
        return [(status, error, rows, page_bytes) for status, error, rows, page_bytes in values]

    def hosts(self, crawl: int = 0) -> Iterator[tuple[str, int]]:
        """How many 2xx pages each host has, in the order of the hosts; reads every row."""
        sql = f"SELECT host_of(url) AS host, count(*) FROM pages WHERE {IS_PAGE}"  # noqa: S608
        more = " AND crawl = ?" if crawl else ""
        with convert_read_errors(self.path):
            for entry in self._db.execute(f"{sql}{more} GROUP BY host ORDER BY host", (crawl,) if crawl else ()):
                yield from self._checked_types([entry], tuple[str, int])

    def top_hosts(self, crawl: int = 0) -> Iterator[tuple[str, int]]:
        """The hosts with the most 2xx pages, in the order of the hosts, as counted while rows are stored: for the
        exactness see `hosts`.
        """
        entries = self._query(_TOP_HOSTS, crawl)
        yield from self._checked_types(entries, tuple[str, int])

    def close(self) -> None:
        """Closes the connection."""
        self._db.close()

    def _query_number(self, sql: str, *values: object) -> int:
        """The number that a query returns; 0 if there is none."""
        found = self._query(sql, *values)
        return int(found[0][0]) if found else 0

    def _query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with convert_read_errors(self.path):
            return self._db.execute(sql, values).fetchall()

    def _checked_types(self, found: list[tuple[Any, ...]], kinds: Any) -> list[Any]:
        """The values, if they are of these types; DamagedIndex otherwise, since SQLite keeps no checksums."""
        try:
            return [msgspec.convert(values, kinds) for values in found]
        except msgspec.ValidationError as error:
            raise DamagedIndex(self.path, f"a count of it: {error}") from error


def _for_crawl(select: str, crawl: int, rest: str = "") -> tuple[Any, ...]:
    """A query about one crawl, or about all, and its argument."""
    return (f"{select} WHERE crawl = ? {rest}", crawl) if crawl else (f"{select} {rest}",)


def _open_connection(path: Path, whole: bool, alive: Alive) -> sqlite3.Connection:
    """A read-only connection. Without a log, and if none can be created (a read-only medium), it is `immutable`."""
    quoted = path.resolve().as_uri()
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        try:
            return _open_checked(f"{quoted}?{mode}", path, whole, alive)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if isinstance(store_fault := store_error(path, error, "read"), DamagedIndex):
                raise store_fault from error
            refused = error
        if Path(f"{path}-wal").exists():
            break
    raise BadInput(f"{path} cannot be read ({refused})") from refused


def _open_checked(uri: str, path: Path, whole: bool, alive: Alive) -> sqlite3.Connection:
    db = sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None, check_same_thread=False)
    watch(db, alive)
    db.create_function("host_of", 1, urls.host_of, deterministic=True)
    try:
        if not schema.is_empty(db, path):
            schema.check_layout(db, path)
            if whole:
                intact.check_is_intact(db, path)
    except BaseException:
        db.close()
        raise
    return db
