"""Exports a crawl: puts the store, which writes the formats, together with the reading of pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from weft import __version__
from weft.crawl.folder import CrawlFolder
from weft.crawl.stored import CrawledPage, read_page
from weft.extract.article import article
from weft.extract.kind import Kind
from weft.extract.page import MAX_BYTES, Page
from weft.extract.parse import PARSERS, choose
from weft.store.contract import StoredPage
from weft.store.export.job import Done, Export
from weft.store.export.order import Order
from weft.store.warc import CONFORMS_TO

_MIME = {Kind.HTML: "text/html", Kind.FEED: "application/xml", Kind.XML: "application/xml", Kind.TEXT: "text/plain"}


class ReadablePage:
    """A stored page as the exports read it."""

    def __init__(self, crawled: CrawledPage) -> None:
        self._crawled = crawled

    @property
    def _page(self) -> Page:
        return self._crawled.page

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
        return article(self.html, self._crawled.url)

    @property
    def markdown(self) -> str:
        """The same as Markdown."""
        return self._page.markdown

    @property
    def html(self) -> str:
        """The body as text; as much of it as was read."""
        charset = self._page.charset
        return self._crawled.body[:MAX_BYTES].decode(_codec(charset), "replace") if charset else ""

    @property
    def language(self) -> str | None:
        """The two letters of the page's language."""
        return self._page.language

    @property
    def mime(self) -> str | None:
        """What the body is, by its content; None for what holds no text."""
        return _MIME.get(self._page.kind)


def reader(stored: StoredPage) -> ReadablePage | None:
    """A stored page, to be read; None where no response is stored."""
    crawled = read_page(stored)
    return ReadablePage(crawled) if crawled is not None else None


def export(
    data_dirs: Sequence[str | Path],
    order: Order,
    out: str | Path | BinaryIO,
    *,
    watch: Callable[[int, int], None] = lambda _read, _all: None,
) -> Done:
    """Writes a crawl's pages to a path, to `-` (standard output) or to an open file."""
    folder = CrawlFolder(data_dirs)
    identity = folder.go_on()
    info = {
        "software": f"Weft/{__version__}",
        "format": "WARC File Format 1.1",
        "conformsTo": CONFORMS_TO,
        "isPartOf": identity.crawl_id,
        "description": "records of a crawl put together by weft export",
    }
    settings = folder.settings()
    choose(settings.get("html_parser", PARSERS[0]))
    headers = settings.get("headers")
    job = Export(
        order, folder.data_dirs, reader, crawl_id=identity.crawl_id, info=info, watch=watch,
        secret_headers=headers if isinstance(headers, dict) else (),
    )  # fmt: skip
    if out == "-":
        return job.to_stream(sys.stdout.buffer)
    return job.to_path(Path(out)) if isinstance(out, str | Path) else job.to_stream(out)


def _codec(charset: str) -> str:
    """Python's name where it is another."""
    try:
        "".encode(charset)
    except LookupError:
        return "latin-1"
    return charset
