"""Stored pages as exports read them: by parser children, so that a page that kills its parser costs itself alone."""

from __future__ import annotations

from collections.abc import Callable

from weft.engine.extracted import NAMES, Extracted
from weft.engine.parsers import Parsers
from weft.engine.stored_page import read_page
from weft.extract.charset import as_text
from weft.extract.kind import Kind
from weft.extract.page import MAX_BYTES
from weft.store.contract import StoredPage

_MIME = {Kind.HTML: "text/html", Kind.FEED: "application/xml", Kind.XML: "application/xml", Kind.TEXT: "text/plain"}


class ReadPage:
    """A stored page as the exports read it: what a parser child has found in it; with its body where HTML is wanted."""

    def __init__(self, page: Extracted, body: bytes) -> None:
        self._page, self._body = page, body

    @property
    def text(self) -> str:
        """All that a reader could read."""
        return self._page.text

    @property
    def main_text(self) -> str:
        """What the page is about."""
        return self._page.main_text

    @property
    def article(self) -> str:
        """What the page is about, by trafilatura."""
        return self._page.article

    @property
    def markdown(self) -> str:
        """The same as Markdown."""
        return self._page.markdown

    @property
    def html(self) -> str:
        """The body as text; as much of it as was read."""
        return as_text(self._body, self._page.charset)

    @property
    def language(self) -> str | None:
        """The two letters of the page's language."""
        return self._page.language

    @property
    def mime(self) -> str | None:
        """What the body is, by its content; None for what holds no text."""
        return _MIME.get(self._page.kind)


class PageReader:
    """Has stored pages read by parser children."""

    def __init__(self, parsers: Parsers) -> None:
        self._parsers = parsers

    def __call__(self, stored: StoredPage, wanted: tuple[str, ...]) -> Callable[[], ReadPage | None]:
        """Begins to read a page; what it gives waits for it, and gives None where no response is stored."""
        crawled = read_page(stored)
        if crawled is None:
            return lambda: None
        names = [name for name in wanted if name in NAMES]
        pending = self._parsers.submit(crawled.body, crawled.url, crawled.header("content-type"), names)
        body = crawled.body[:MAX_BYTES] if "html" in wanted else b""
        return lambda: ReadPage(self._parsers.result(pending), body)
