"""Reads stored pages for exports in parser children, so that a page that kills its parser costs only itself."""

from __future__ import annotations

from collections.abc import Callable

from weft.engine.parsing.extracted import NAMES, Extracted
from weft.engine.parsing.parsers import Parsers
from weft.engine.stored.stored_page import read_page
from weft.extract.page import MAX_BYTES
from weft.store.contract import StoredPage


class PageReader:
    """Reads stored pages in parser children."""

    def __init__(self, parsers: Parsers) -> None:
        self._parsers = parsers

    def __call__(self, stored: StoredPage, wanted: tuple[str, ...]) -> Callable[[], Extracted | None]:
        """Begins to read a page; the returned function waits for the result, which is None if no response is stored."""
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
