"""The source of an export: a snapshot of a crawl, also while the crawl runs.

Must stay true: with the same snapshot the same rows come in the same order, so that an interrupted export can continue;
memory does not grow with the crawl.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from isal import isal_zlib

from weft import urls
from weft.errors import BadInput
from weft.records import Row
from weft.store import text
from weft.store.contract import StoredPage
from weft.store.corpus import Corpus
from weft.store.errors import UnreadableData
from weft.store.index.query import IndexReader, PlacedRow
from weft.store.index.schema import row_hash
from weft.store.index.visits import Visit, current_visit
from weft.store.repair.damage import DECODING_ERRORS
from weft.store.warc.warc_read import WarcRecord, parse_record, read_record

RECORD_HEAD_BYTES = 4096
PARENTS_KEPT = 20_000
MOST_POSITIONS = 4_000_000  # of the rows of hosts, in memory: for more, all rows are read

# For each index its inode and its last batch.
Snapshot = dict[str, tuple[int, int]]
# An index, and the position of a row in it.
Cursor = tuple[str, int]


class ExportSource:
    """Reads a snapshot of a crawl."""

    def __init__(self, data_dirs: Sequence[Path]) -> None:
        self.data_dirs = list(data_dirs)
        self._corpus = Corpus(self.data_dirs)
        self._corpus.check_is_whole()
        self._indexes = {self._index_name(index): index for index in self._corpus.indexes()}
        if not self._indexes:
            raise BadInput(f"{self.data_dirs[0]} holds no pages: there is no index in it")
        self.snapshot: Snapshot = {
            name: (index.path.stat().st_ino, index.last_batch()) for name, index in self._indexes.items()
        }
        self.total = self._corpus.stats(top=0).rows
        self._hosts: Sequence[str] = ()
        self._since = 0.0
        self.url_of: Callable[[int], str | None] = lru_cache(maxsize=PARENTS_KEPT)(self._url_of)

    def go_back(self, snapshot: Mapping[str, tuple[int, int]]) -> bool:
        """Uses an earlier snapshot; False if the indexes have changed since (they were rebuilt)."""
        for name, (inode, batch) in snapshot.items():
            now = self.snapshot.get(name)
            if now is None or now[0] != inode or now[1] < batch:
                return False
        self.snapshot = dict(snapshot)
        return True

    def select_rows(self, hosts: Sequence[str], since: float) -> None:
        """Limits the rows to these hosts (none: all) and to visits since then. Other rows may still come with them, so
        the caller must filter.
        """
        self._hosts, self._since = hosts, since

    def rows(self, cursor: Sequence[Any] | None = None) -> Iterator[tuple[Cursor, Row]]:
        """The rows of one index after the other, in the order of their commits, each with the cursor behind it."""
        begin = tuple(cursor) if cursor else ("", 0)
        for name in sorted(name for name in self.snapshot if name >= begin[0]):
            for some in self._rows_in_order(name, begin[1] if name == begin[0] else 0):
                yield from (((name, position), row) for position, _, row in some)

    def _rows_in_order(self, name: str, after: int) -> Iterator[list[PlacedRow]]:
        index, upto = self._indexes[name], self.snapshot[name][1]
        return index.rows_in_order(after, upto, self._since, self._row_positions(name))

    def _row_positions(self, name: str) -> Sequence[int] | None:
        """The positions of the rows of the wanted hosts; None if all rows are read."""
        if not self._hosts:
            return None
        return self._indexes[name].positions_of_hosts(self._hosts, self.snapshot[name][1], MOST_POSITIONS)

    def current(self, rows: Sequence[Row]) -> set[int]:
        """The items of those rows that were their URL's current visit in their crawl at the snapshot."""
        return self._current_items(rows)

    def _current_items(self, rows: Sequence[Row], crawl: int = 0) -> set[int]:
        by_place: dict[int, list[int]] = {}
        for row in rows:
            by_place.setdefault(urls.data_dir_of(row.url, len(self.data_dirs)), []).append(row_hash(row))
        visits: dict[tuple[int, str, str | None], list[Visit]] = {}
        for name, (_, batch) in self.snapshot.items():
            hashes = by_place.get(int(name.partition("/")[0]), [])
            for visit in self._indexes[name].visits(hashes, batch, crawl):
                visits.setdefault((visit.crawl, visit.url, visit.request), []).append(visit)
        return {chosen.item for of_url in visits.values() if (chosen := current_visit(of_url)) is not None}

    def rows_by_offset(self, name: str, after_batch: int) -> Iterator[tuple[list[Row], int]]:
        """One index's rows in the order of its WARC files, in groups, each with its last batch.

        Batches are committed in the order in which their bytes were appended, so sorting some whole ones is enough.
        """
        waiting = list[tuple[int, Row]]()
        for some in self._rows_in_order(name, self._position_behind(name, after_batch)):
            last = some[-1][1]
            waiting += [(batch, row) for _, batch, row in some]
            if whole := [row for batch, row in waiting if batch < last]:
                yield _rows_by_offset(whole), last - 1
                waiting = [one for one in waiting if one[0] == last]
        if waiting:
            yield _rows_by_offset([row for _, row in waiting]), waiting[-1][0]

    def _position_behind(self, name: str, batch: int) -> int:
        """The position behind a batch."""
        return self._indexes[name].end_of_batch(batch)

    def read_page(self, row: Row) -> StoredPage:
        """The page of a row."""
        return self._corpus.read_page(row)

    def warc_path(self, row: Row) -> Path:
        """The WARC file of a row's record."""
        return self.data_dir(row.url) / "warc" / row.warc_file

    def data_dir(self, url: str) -> Path:
        """The data dir of a URL."""
        return self.data_dirs[urls.data_dir_of(url, len(self.data_dirs))]

    def text(self, row: Row) -> str | None:
        """The page's text if it is stored as a file."""
        return text.read_text(self.data_dir(row.url), row.url, row.crawl)

    def content_path(self, row: Row) -> str | None:
        """The path of that file, through its data dir as the caller named it."""
        path = self.data_dir(row.url) / text.text_path(row.url, row.crawl)
        return str(path) if 200 <= row.status < 300 and path.exists() else None

    def read_head(self, row: Row) -> WarcRecord:
        """A row's record without its body: only the first few KB are read."""
        path = self.warc_path(row)
        try:
            with path.open("rb", buffering=0) as file:
                start = os.pread(file.fileno(), min(RECORD_HEAD_BYTES, row.warc_length), row.warc_offset)
            return parse_head(isal_zlib.decompressobj(wbits=31).decompress(start))
        except DECODING_ERRORS:
            return read_record(path, row.warc_offset, row.warc_length)  # a head of more than a few KB, or a broken one
        except OSError as error:
            raise UnreadableData(path, f"cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Closes the connections."""
        self._corpus.close()

    def _url_of(self, item: int) -> str | None:
        rows = (index.row_of_item(item) for index in self._indexes.values())
        return next((row.url for row in rows if row), None)

    def _index_name(self, index: IndexReader) -> str:
        return f"{self.data_dirs.index(index.path.parent)}/{index.path.name}"


class CrawlSource(ExportSource):
    """Reads one crawl of an engine: its rows in the order of their numbers, without reading other crawls. With hosts,
    it reads the rows of every crawl and skips the others.
    """

    def __init__(self, data_dirs: Sequence[Path], crawl: int) -> None:
        super().__init__(data_dirs)
        self._crawl = crawl
        self.total = self._corpus.stats(top=0, crawl=crawl).rows

    def _rows_in_order(self, name: str, after: int) -> Iterator[list[PlacedRow]]:
        if (positions := self._row_positions(name)) is None:
            yield from self._indexes[name].rows_of_crawl(self._crawl, after, self.snapshot[name][1])
            return
        for some in self._indexes[name].rows_in_order(after, self.snapshot[name][1], self._since, positions):
            if own := [one for one in some if one[2].crawl == self._crawl]:
                yield own

    def _position_behind(self, name: str, batch: int) -> int:
        return (
            super()._position_behind(name, batch) if self._hosts else self._indexes[name].number_at(self._crawl, batch)
        )

    def current(self, rows: Sequence[Row]) -> set[int]:
        """The items of those rows that are their URL's current visit in this crawl."""
        return self._current_items(rows, self._crawl)


def _rows_by_offset(rows: list[Row]) -> list[Row]:
    """The rows that have a record, in the order of the files."""
    return sorted((row for row in rows if row.warc_file), key=attrgetter("warc_file", "warc_offset"))


def parse_head(data: bytes) -> WarcRecord:
    """Parses the beginning of a record; ValueError if it does not contain both heads."""
    warc_end = data.find(b"\r\n\r\n")
    http_end = data.find(b"\r\n\r\n", warc_end + 4)
    if warc_end < 0 or http_end < 0:
        raise ValueError("the beginning is too short")
    head = data[: warc_end + 4]
    lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(b"content-length:")]
    block = data[warc_end + 4 : http_end + 4]
    return parse_record(b"\r\n".join([*lines, b"Content-Length: %d" % len(block)]) + b"\r\n\r\n" + block)
