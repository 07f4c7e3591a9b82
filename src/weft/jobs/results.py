"""What tasks have stored, behind a cursor: pages as documents, or the records themselves. Read in threads of its own.

A stretch of either has the same rows: so many pages and errors, and so many bytes, whichever is reached first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import TypeVar

from weft.engine.exporting import info_of
from weft.engine.reader import Reader
from weft.engine.stored_page import CrawledPage
from weft.errors import BadInput
from weft.jobs.documents import Documents
from weft.jobs.feed import open_reader
from weft.jobs.model import ErrorClass, Task, TaskSpec, error_class
from weft.jobs.service import Failure, Records, Result, Results
from weft.records import Row
from weft.store.warc import RecordMaker

ANSWER_BYTES = 8 << 20  # of bodies or records that go into one answer; one page is always in it
ROWS_AT_ONCE = 200
_T = TypeVar("_T")
# Is given a row that is wanted, with its number and the class of its error; returns how many bytes it adds.
Take = Callable[[int, Row, ErrorClass | None], int]


class StoredResults:
    """Reads what the engine has committed; each thread has a reader and a parser child of its own."""

    def __init__(self, engine_dir: Path) -> None:
        self._engine_dir = engine_dir
        self._threads, self._local = ThreadPoolExecutor(2, "results"), local()
        self._documents: list[Documents] = []

    def close(self) -> None:
        """Ends the threads and their parser children."""
        self._threads.shutdown(wait=True)
        for documents in self._documents:
            documents.close()

    async def results(self, task: Task, cursor: int, limit: int, include_errors: bool) -> Results:
        """Pages as their task has ordered them."""
        return await self._work(self._results, task, cursor, limit, include_errors)

    async def records(self, task: Task, cursor: int, limit: int, include_errors: bool) -> Records:
        """WARC records; the first stretch begins with what a WARC file begins with."""
        return await self._work(self._records, task, cursor, limit, include_errors)

    def reader(self) -> Reader:
        """This thread's."""
        if not hasattr(self._local, "reader"):
            self._local.reader = open_reader(self._engine_dir)
        reader: Reader = self._local.reader
        return reader

    async def _work(
        self, work: Callable[[Task, int, int, bool], _T], task: Task, cursor: int, limit: int, include_errors: bool
    ) -> _T:
        if cursor < 0 or limit < 1:
            raise BadInput("cursor: use the next_cursor of an earlier answer, or 0; limit: from 1")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, task, cursor, limit, include_errors)

    def _results(self, task: Task, cursor: int, limit: int, include_errors: bool) -> Results:
        reader = self.reader()
        pages, errors = list[CrawledPage](), list[Failure]()

        def take(number: int, row: Row, kind: ErrorClass | None) -> int:
            if kind is not None:
                errors.append(_failure(number, row, kind))
            elif (page := reader.read(number, row)) is not None:
                pages.append(page)
                return len(page.body)
            return 0

        cursor, is_full = _stretch(reader, task.id, cursor, limit, include_errors, take)
        return Results(
            results=tuple(self._shown(pages, task.spec)), errors=tuple(errors), cursor=cursor,
            next_cursor=cursor if is_full else None,
        )  # fmt: skip

    def _records(self, task: Task, cursor: int, limit: int, include_errors: bool) -> Records:
        reader, rows = self.reader(), list[Row]()

        def take(_number: int, row: Row, _kind: ErrorClass | None) -> int:
            rows.append(row)
            return row.warc_length

        begins = [] if cursor else [RecordMaker().info(f"{task.id}.warc.gz", info_of(task.id))]
        cursor, is_full = _stretch(reader, task.id, cursor, limit, include_errors, take)
        rows.sort(key=lambda row: (row.warc_file, row.warc_offset))  # a request is looked for before its response
        data = b"".join([*begins, *reader.records(rows)])
        return Records(data=data, cursor=cursor, next_cursor=cursor if is_full else None)

    def _shown(self, pages: Sequence[CrawledPage], spec: TaskSpec) -> Iterator[Result]:
        if not hasattr(self._local, "documents"):
            self._local.documents = Documents()
            self._documents.append(self._local.documents)
        for page, document in zip(pages, self._local.documents(pages, spec), strict=True):
            row = page.row
            yield Result(
                number=page.number, url=row.url, status=row.status, title=row.title, depth=row.depth,
                fetched_at=row.fetched_at, document=document, asked_url=page.asked_url,
            )  # fmt: skip


def _stretch(reader: Reader, name: str, cursor: int, limit: int, include_errors: bool, take: Take) -> tuple[int, bool]:
    """Hands over a task's next rows; returns the number of the last one looked at, and whether there are more now."""
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
                room -= take(number, row, kind)
                taken += 1
            cursor = number
    return cursor, False


def _failure(number: int, row: Row, kind: ErrorClass) -> Failure:
    return Failure(
        number=number, url=row.url, status=row.status, error=row.error, error_class=kind, depth=row.depth,
        at=row.fetched_at,
    )  # fmt: skip
