"""What an export reads: a snapshot of a crawl, also while the crawl runs.

Must stay true: with the same snapshot the same rows come in the same order, so that an interrupted export can continue;
memory does not grow with the crawl.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from pathlib import Path

from isal import isal_zlib

from weft import urls
from weft.errors import BadInput
from weft.records import Row
from weft.store import text
from weft.store.contract import StoredPage
from weft.store.corpus import Corpus
from weft.store.damage import BROKEN
from weft.store.errors import Unreadable
from weft.store.query import IndexReader, Where
from weft.store.schema import url_hash
from weft.store.visits import Visit, standing
from weft.store.warc_read import Record, parse, read_record

HEAD_BYTES = 4096
PARENTS_KEPT = 20_000

# For each index its inode and its last batch.
Snapshot = dict[str, tuple[int, int]]


class Source:
    """A crawl, for reading."""

    def __init__(self, data_dirs: Sequence[Path]) -> None:
        self.data_dirs = list(data_dirs)
        self._corpus = Corpus(self.data_dirs)
        self._corpus.check()
        self._indexes = {self._name(index): index for index in self._corpus.indexes()}
        if not self._indexes:
            raise BadInput(f"{self.data_dirs[0]} holds no pages: there is no index in it")
        self.snapshot: Snapshot = {
            name: (index.path.stat().st_ino, index.last_batch()) for name, index in self._indexes.items()
        }
        self.total = self._corpus.stats(top=0).rows
        self.url_of: Callable[[int], str | None] = lru_cache(maxsize=PARENTS_KEPT)(self._url_of)

    def go_back(self, snapshot: Mapping[str, tuple[int, int]]) -> bool:
        """Uses an earlier snapshot; False where the indexes are not the same any more (they were rebuilt)."""
        for name, (inode, batch) in snapshot.items():
            now = self.snapshot.get(name)
            if now is None or now[0] != inode or now[1] < batch:
                return False
        self.snapshot = dict(snapshot)
        return True

    def rows(self, after_item: int = 0) -> Iterator[Row]:
        """Rows in the order of their items."""
        parts = (
            self._indexes[name].rows(Where(after_item=after_item, upto_batch=batch))
            for name, (_, batch) in self.snapshot.items()
        )
        return heapq.merge(*parts, key=attrgetter("item"))

    def current(self, rows: Sequence[Row]) -> set[int]:
        """The items of those rows that stand for their URLs in their crawl, as that was at the snapshot."""
        return self._current(rows)

    def _current(self, rows: Sequence[Row], crawl: int = 0) -> set[int]:
        by_place: dict[int, list[int]] = {}
        for row in rows:
            by_place.setdefault(urls.data_dir_of(row.url, len(self.data_dirs)), []).append(url_hash(row.url))
        visits: dict[tuple[int, str], list[Visit]] = {}
        for name, (_, batch) in self.snapshot.items():
            hashes = by_place.get(int(name.partition("/")[0]), [])
            for visit in self._indexes[name].visits(hashes, batch, crawl):
                visits.setdefault((visit.crawl, visit.url), []).append(visit)
        return {chosen.item for of_url in visits.values() if (chosen := standing(of_url)) is not None}

    def by_place(self, name: str, after_batch: int) -> Iterator[tuple[list[Row], int]]:
        """One index's rows in the order of its WARC files, some at a time, each time with their last batch.

        Batches are committed in the order in which their bytes were appended, so sorting a few at a time is enough.
        """
        index, last = self._indexes[name], self.snapshot[name][1]
        while after_batch < last:
            rows, after_batch = index.committed(after_batch, last)
            if not rows:
                return
            yield _in_place(rows), after_batch

    def read(self, row: Row) -> StoredPage:
        """The page that a row stands for."""
        return self._corpus.read(row)

    def warc_path(self, row: Row) -> Path:
        """The WARC file that holds a row's record."""
        return self.data_dir(row.url) / "warc" / row.warc_file

    def data_dir(self, url: str) -> Path:
        """The data dir of a URL."""
        return self.data_dirs[urls.data_dir_of(url, len(self.data_dirs))]

    def text(self, row: Row) -> str | None:
        """The page's text where it is kept as a file."""
        return text.read(self.data_dir(row.url), row.url, row.crawl)

    def content_path(self, row: Row) -> str | None:
        """The path of that file, through its data dir as the caller named it."""
        path = self.data_dir(row.url) / text.path_of(row.url, row.crawl)
        return str(path) if 200 <= row.status < 300 and path.exists() else None

    def head(self, row: Row) -> Record:
        """A row's record without its body: only the first few KB are read."""
        path = self.warc_path(row)
        try:
            with path.open("rb", buffering=0) as file:
                start = os.pread(file.fileno(), min(HEAD_BYTES, row.warc_length), row.warc_offset)
            return parse_head(isal_zlib.decompressobj(wbits=31).decompress(start))
        except BROKEN:
            return read_record(path, row.warc_offset, row.warc_length)  # a head of more than a few KB, or a broken one
        except OSError as error:
            raise Unreadable(path, f"cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Closes the connections."""
        self._corpus.close()

    def _url_of(self, item: int) -> str | None:
        rows = (index.for_item(item) for index in self._indexes.values())
        return next((row.url for row in rows if row), None)

    def _name(self, index: IndexReader) -> str:
        return f"{self.data_dirs.index(index.path.parent)}/{index.path.name}"


class CrawlSource(Source):
    """One crawl of an engine, for reading: its rows come in the order of their numbers, and no other's are read."""

    def __init__(self, data_dirs: Sequence[Path], crawl: int) -> None:
        super().__init__(data_dirs)
        self._crawl = crawl
        self.total = self._corpus.stats(top=0, crawl=crawl).rows

    def rows(self, after_item: int = 0) -> Iterator[Row]:
        """Rows in the order of their numbers, after that of an item."""
        parts = (self._numbered(name, after_item) for name in self.snapshot)
        return (row for _, _, row in heapq.merge(*parts, key=itemgetter(0)))

    def _numbered(self, name: str, after_item: int) -> Iterator[tuple[int, int, Row]]:
        index, upto = self._indexes[name], self.snapshot[name][1]
        after = max((index.number_of(after_item) for index in self._indexes.values()), default=0) if after_item else 0
        while some := index.of_crawl(self._crawl, after, upto):
            yield from some
            after = some[-1][0]

    def current(self, rows: Sequence[Row]) -> set[int]:
        """The items of those rows that stand for their URLs in this crawl."""
        return self._current(rows, self._crawl)

    def by_place(self, name: str, after_batch: int) -> Iterator[tuple[list[Row], int]]:
        """One index's rows of this crawl in the order of its WARC files, whole batches at a time."""
        index, upto = self._indexes[name], self.snapshot[name][1]
        after, waiting = index.number_at(self._crawl, after_batch), list[tuple[int, Row]]()
        while some := index.of_crawl(self._crawl, after, upto):
            after, last = some[-1][0], some[-1][1]
            waiting += [(batch, row) for _, batch, row in some]
            if whole := [row for batch, row in waiting if batch < last]:
                yield _in_place(whole), last - 1
                waiting = [one for one in waiting if one[0] == last]
        if waiting:
            yield _in_place([row for _, row in waiting]), waiting[-1][0]


def _in_place(rows: list[Row]) -> list[Row]:
    """Those that have a record, in the order of the files."""
    return sorted((row for row in rows if row.warc_file), key=attrgetter("warc_file", "warc_offset"))


def parse_head(data: bytes) -> Record:
    """Parses the beginning of a record; ValueError where it does not contain both heads."""
    warc_end = data.find(b"\r\n\r\n")
    http_end = data.find(b"\r\n\r\n", warc_end + 4)
    if warc_end < 0 or http_end < 0:
        raise ValueError("the beginning is too short")
    head = data[: warc_end + 4]
    lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(b"content-length:")]
    block = data[warc_end + 4 : http_end + 4]
    return parse(b"\r\n".join([*lines, b"Content-Length: %d" % len(block)]) + b"\r\n\r\n" + block)
