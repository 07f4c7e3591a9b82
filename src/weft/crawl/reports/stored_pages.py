"""`weft.StoredPages(DIR)`: what a crawl has stored, for programs. Reads only: a crawl may be running in the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from weft import urls
from weft.crawl.reports.crawls import ReportFolder
from weft.crawl.reports.explain import Explanation, Explanations
from weft.engine.stored.stored_page import CrawledPage, read_page
from weft.records import Row
from weft.store.errors import UnreadableData


class StoredPages:
    """The pages of a data dir, without a request to anyone, also while a crawl runs in it.

        with weft.StoredPages("./weft-data") as pages:
            for page in pages:
                print(page.url, page.title, len(page.page.main_text))

    Iteration yields each page whose response was a success (2xx) as a `weft.CrawledPage`. Of the folder of an engine or
    a service `crawl` names one crawl; otherwise all are read. Raises `weft.errors.BadInput` for a folder without pages,
    and for an unknown crawl.
    """

    def __init__(
        self, data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, crawl: str | None = None
    ) -> None:
        given = [data_dir] if isinstance(data_dir, str | os.PathLike) else data_dir
        self._report = ReportFolder([Path(one) for one in given])
        self._crawls = self._report.crawls(crawl)
        self._store = self._report.store
        self._explanations: Explanations | None = None
        self._name = crawl

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; the same as the end of `with`."""
        if self._explanations is not None:
            self._explanations.close()
        self._report.close()

    def __iter__(self) -> Iterator[CrawledPage]:
        for row in self.rows():
            if 200 <= row.status < 300 and (page := self._read(row)) is not None:
                yield page

    def get(self, url: str) -> CrawledPage | None:
        """The stored page of a URL, whatever its status; None if no response of it is stored."""
        for crawl in self._crawls:
            for stored_as in urls.stored_as(url):
                if (row := self._store.row_of(stored_as, crawl.number)) is not None:
                    return self._read(row)
        return None

    def rows(self) -> Iterator[Row]:
        """A row for each URL that was crawled or rejected: `url`, `status`, `error` and the other columns of an export.
        No stored page is read.
        """
        for crawl in self._crawls:
            yield from self._store.rows_of(crawl.number)

    def parent(self, row: Row) -> str | None:
        """The URL of the page on which a row's URL was discovered; None for seeds and what sitemaps list."""
        return self._store.url_of(row.parent)

    def explain(self, url: str) -> list[Explanation]:
        """Why a URL was, or was not, crawled, as `weft explain` says it: one answer for each crawl it concerns."""
        if self._explanations is None:
            self._explanations = Explanations(self._report, self._name)
        return self._explanations.explain(url)

    def _read(self, row: Row) -> CrawledPage | None:
        try:
            return read_page(self._store.read_page(row))
        except UnreadableData as error:
            page = CrawledPage(row, (), b"")
            page.damage = str(error)
            return page
