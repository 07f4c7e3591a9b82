"""Exports a crawl: puts the store, which writes the formats, together with the reading of pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from weft import __version__
from weft.crawl.folder import CrawlFolder
from weft.engine.extracted import NAMES, Extracted
from weft.engine.parsers import Parsers, as_many_as_cores
from weft.engine.stored_page import read_page
from weft.extract.charset import as_text
from weft.extract.kind import Kind
from weft.extract.page import MAX_BYTES
from weft.extract.parse import PARSERS, choose
from weft.store.contract import StoredPage
from weft.store.export.job import Done, Export
from weft.store.export.request import ExportRequest
from weft.store.warc import CONFORMS_TO

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


def parsers_for(folder: CrawlFolder, children: int = 1) -> Parsers:
    """Children with the parser that a crawl uses; raises Missing where it is not installed."""
    html_parser = folder.settings().get("html_parser", PARSERS[0])
    choose(html_parser)
    return Parsers(children, html_parser)


def export(
    data_dirs: Sequence[str | Path],
    order: ExportRequest,
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
    headers = folder.settings().get("headers")
    with parsers_for(folder, as_many_as_cores()) as parsers:
        job = Export(
            order, folder.data_dirs, PageReader(parsers), crawl_id=identity.crawl_id, info=info, watch=watch,
            secret_headers=headers if isinstance(headers, dict) else (),
        )  # fmt: skip
        if out == "-":
            return job.to_stream(sys.stdout.buffer)
        return job.to_path(Path(out)) if isinstance(out, str | Path) else job.to_stream(out)
