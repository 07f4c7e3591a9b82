"""Stored pages as exports read them: by parser children, so that a page that kills its parser costs itself alone."""

from __future__ import annotations

from collections.abc import Callable

from weft.engine.parsing.extracted import NAMES, Extracted
from weft.engine.parsing.parsers import Parsers
from weft.engine.stored.stored_page import read_page
from weft.extract.page import MAX_BYTES
from weft.store.contract import StoredPage


class PageReader:
    """Has stored pages read by parser children."""

    def __init__(self, parsers: Parsers) -> None:
        self._parsers = parsers

    def __call__(self, stored: StoredPage, wanted: tuple[str, ...]) -> Callable[[], Extracted | None]:
        """Begins to read a page; what it gives waits for it, and gives None where no response is stored."""
        crawled = read_page(stored)
        if crawled is None:
            return lambda: None
        names = [name for name in wanted if name in NAMES]
        pending = self._parsers.submit(crawled.readable, crawled.url, crawled.readable_type, names)
        body = crawled.readable[:MAX_BYTES] if "html" in wanted else b""

        def read() -> Extracted:
            page = self._parsers.result(pending)
            page.body = body
            return page

        return read
