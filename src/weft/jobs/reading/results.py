"""Reads what tasks have stored, after a cursor: pages as documents, or WARC records. Runs in threads of its own.

A slice of either kind has the same rows: it ends at the limit of rows or of bytes, whichever is reached first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock, local
from typing import Any

from msgspec import Struct

from weft.engine.stored.exporting import warcinfo_of
from weft.engine.stored.reader import EngineReader
from weft.engine.stored.stored_page import CrawledPage
from weft.errors import BadInput
from weft.jobs.model import Task, error_class, error_text
from weft.jobs.reading.documents import Documents
from weft.jobs.reading.index import IndexReaders
from weft.jobs.service import Failure, RecordSlice, ResultSlice, ScrapedResult
from weft.jobs.store.sqlite import SqliteJobStore
from weft.records import Row
from weft.scraping import ErrorClass
from weft.store.warc.warc_records import RecordMaker

ANSWER_BYTES = 8 << 20  # The bytes of bodies or records in one answer; an answer has at least one page.
ROWS_AT_ONCE = 200
COUNTED_TOGETHER = 2000  # events whose pages are counted in one query
COUNTED_CRAWLS = 256
KEPT_BYTES = 24 << 20  # The bytes of rendered documents that are cached.
# Called with a wanted row, its number and the class of its error; returns how many bytes it adds to the answer.
AddRow = Callable[[int, Row, ErrorClass | None], int]


class StoredResults:
    """Reads what the engine has committed; each thread has a reader and a parser process of its own."""

    def __init__(self, engine_dir: Path, store: SqliteJobStore) -> None:
        self._store = store
        self._index, self._local = IndexReaders(engine_dir, "results", 2), local()
        self._documents: list[Documents] = []
        self._document_cache = _DocumentCache()
        self._page_counts = PageCounts()

    def close(self) -> None:
        """Ends the threads and their parser processes."""
        self._index.close()
        for documents in self._documents:
            documents.close()

    async def results(
        self, task_id: str, owner: str | None = None, *, cursor: int = 0, limit: int = 100,
        include_errors: bool = False,
    ) -> ResultSlice:  # fmt: skip
        """Pages in their task's formats; see `JobService.results`."""
        task = self._check_arguments(task_id, owner, cursor, limit)
        return await self._index.run(lambda: self._read_results(task, cursor, limit, include_errors))

    async def records(
        self, task_id: str, owner: str | None = None, *, cursor: int = 0, limit: int = 100,
        include_errors: bool = False,
    ) -> RecordSlice:  # fmt: skip
        """WARC records; the first slice begins with a warcinfo record."""
        task = self._check_arguments(task_id, owner, cursor, limit)
        return await self._index.run(lambda: self._records(task, cursor, limit, include_errors))

    async def lost_pages(self, task: Task) -> int:
        """How many of a task's pages have lost their bytes, as the engine has found at its start."""

        def read() -> int:
            crawl = self._index.reader.crawl_named(task.id)
            return 0 if crawl is None else self._index.reader.lost_pages(crawl)

        return await self._index.run(read)

    async def cursor_behind(self, task_id: str, owner: str | None = None, *, pages: int) -> int:
        """The cursor after a task's first `pages` pages."""
        self._store.task(task_id, owner)

        def read() -> int:
            crawl = self._index.reader.crawl_named(task_id)
            return 0 if crawl is None else self._page_counts.cursor_behind(self._index.reader, crawl, pages)

        return await self._index.run(read)

    def committed(self, task: Task) -> tuple[Mapping[str, int], int] | None:
        """The committed outcomes of a task's URLs, and the number of its last event."""
        reader = self._index.reader
        crawl = reader.crawl_named(task.id)
        return None if crawl is None else (reader.ends(crawl), reader.last_number(crawl))

    def _check_arguments(self, task_id: str, owner: str | None, cursor: int, limit: int) -> Task:
        if cursor < 0 or limit < 1:
            raise BadInput("cursor: use the next_cursor of an earlier answer, or 0; limit: from 1")
        return self._store.task(task_id, owner)

    def _read_results(self, task: Task, cursor: int, limit: int, include_errors: bool) -> ResultSlice:
        reader = self._index.reader
        pages, errors = list[CrawledPage | _CachedPage](), list[Failure]()

        def add_row(number: int, row: Row, kind: ErrorClass | None) -> int:
            if kind is not None:
                errors.append(_failure_of_row(number, row, kind))
            elif (kept := self._document_cache.get(task.id, number)) is not None:
                pages.append(kept)
                return kept.body_bytes
            else:
                page = reader.read_page_even_damaged(number, row)
                pages.append(page)
                return len(page.body)
            return 0

        cursor, is_full = _read_slice(reader, task.id, cursor, limit, include_errors, add_row)
        made = self._documents_of([page for page in pages if isinstance(page, CrawledPage)], task)
        return ResultSlice(
            results=tuple(page.result if isinstance(page, _CachedPage) else next(made) for page in pages),
            errors=tuple(errors), cursor=cursor, next_cursor=cursor if is_full else None,
        )  # fmt: skip

    def _records(self, task: Task, cursor: int, limit: int, include_errors: bool) -> RecordSlice:
        reader, rows = self._index.reader, list[Row]()

        def add_row(_number: int, row: Row, _kind: ErrorClass | None) -> int:
            rows.append(row)
            return row.warc_length

        begins = [] if cursor else [RecordMaker().info(f"{task.id}.warc.gz", warcinfo_of(task.id))]
        cursor, is_full = _read_slice(reader, task.id, cursor, limit, include_errors, add_row)
        rows.sort(key=lambda row: (row.warc_file, row.warc_offset))  # a request record precedes its response
        data = b"".join([*begins, *reader.records(rows)])
        return RecordSlice(data=data, cursor=cursor, next_cursor=cursor if is_full else None)

    def _documents_of(self, pages: Sequence[CrawledPage], task: Task) -> Iterator[ScrapedResult]:
        if not hasattr(self._local, "documents"):
            self._local.documents = Documents()
            self._documents.append(self._local.documents)
        for page, document in zip(pages, self._local.documents(pages, task.spec), strict=True):
            result = result_of(page, document)
            if "unparsed" not in document:  # the next attempt may succeed
                self._document_cache.keep(task.id, result, len(page.body))
            yield result


class PageCounts:
    """Finds the cursor after a number of pages. Errors, redirects and changes of state have numbers, too, so pages must
    be counted; each block of COUNTED_TOGETHER numbers is counted once, because it does not change any more."""

    def __init__(self) -> None:
        self._lock = Lock()
        # crawl → pages up to 0, COUNTED_TOGETHER, 2 * COUNTED_TOGETHER, ...
        self._counts: OrderedDict[int, list[int]] = OrderedDict()

    def cursor_behind(self, numbers: EngineReader, crawl: int, pages: int) -> int:
        """The cursor after a crawl's first `pages` pages: 0 for none; after the last event if there are fewer."""
        if pages <= 0:
            return 0
        last = numbers.last_number(crawl)
        with self._lock:
            counts = self._counts.setdefault(crawl, [0])
            self._counts.move_to_end(crawl)
            while len(self._counts) > COUNTED_CRAWLS:
                self._counts.popitem(last=False)
            while counts[-1] < pages and (upto := len(counts) * COUNTED_TOGETHER) <= last:
                counts.append(counts[-1] + len(numbers.page_numbers(crawl, upto - COUNTED_TOGETHER, upto)))
            before = bisect_left(counts, pages) - 1  # the last block that ends before the wanted page
            left = pages - counts[before]
        within = numbers.page_numbers(crawl, before * COUNTED_TOGETHER, min(last, (before + 1) * COUNTED_TOGETHER))
        return within[left - 1] if left <= len(within) else last


class _CachedPage(Struct, frozen=True):
    """A cached page."""

    result: ScrapedResult
    body_bytes: int
    size: int


class _DocumentCache:
    """A cache of rendered documents: a stored page does not change. Firecrawl's clients request the first documents of
    a task at each poll, and a hundred pages would be read and parsed each time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, int], _CachedPage] = OrderedDict()
        self._bytes = 0

    def get(self, task_id: str, number: int) -> _CachedPage | None:
        with self._lock:
            if (kept := self._kept.get((task_id, number))) is not None:
                self._kept.move_to_end((task_id, number))
            return kept

    def keep(self, task_id: str, result: ScrapedResult, body_bytes: int) -> None:
        size = 2000 + sum(map(_size_of_value, result.document.values()))
        with self._lock:
            if (task_id, result.number) in self._kept:
                return
            self._kept[task_id, result.number] = _CachedPage(result, body_bytes, size)
            self._bytes += size
            while self._bytes > KEPT_BYTES:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= gone.size


def result_of(page: CrawledPage, document: dict[str, Any]) -> ScrapedResult:
    """A stored page with its document."""
    row = page.row
    return ScrapedResult(
        number=page.number, url=row.url, status=row.status, title=row.title, depth=row.depth,
        fetched_at=row.fetched_at, document=document, asked_url=page.asked_url,
    )  # fmt: skip


def _size_of_value(value: object) -> int:
    """The approximate size in memory."""
    return len(value) if isinstance(value, str) else 100 * len(value) if isinstance(value, list) else 0


def _read_slice(
    reader: EngineReader, name: str, cursor: int, limit: int, include_errors: bool, add_row: AddRow
) -> tuple[int, bool]:
    """Passes a task's next rows to `add_row`; returns the number of the last row that was read, and whether there are
    more now."""
    crawl = reader.crawl_named(name)
    taken, room, more = 0, ANSWER_BYTES, crawl is not None
    while more and crawl is not None:
        rows = reader.rows(crawl, cursor, ROWS_AT_ONCE)
        more = len(rows) == ROWS_AT_ONCE
        for number, row in rows:
            kind = error_class(row.status, row.error)
            is_page = kind is None and not 300 <= row.status < 400
            if is_page or (kind is not None and include_errors):
                if taken >= limit or (room <= 0 and taken):
                    return cursor, True
                room -= add_row(number, row, kind)
                taken += 1
            cursor = number
    return cursor, False


def _failure_of_row(number: int, row: Row, kind: ErrorClass) -> Failure:
    return Failure(
        number=number, url=row.url, status=row.status, error=error_text(row.status, row.error), error_class=kind,
        depth=row.depth, at=row.fetched_at,
    )  # fmt: skip
