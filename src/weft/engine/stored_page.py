"""A stored page as programs and reports read it: its row, its response decompressed, and what can be read from it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from weft.extract.formats import MAIN, Shape, check_formats, render
from weft.extract.page import Page, extract
from weft.fetch.decode import decode
from weft.records import Row
from weft.store.contract import StoredPage


class CrawledPage:
    """A stored page: its row's facts, its headers and body, and what can be read from it."""

    def __init__(self, row: Row, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
        self.row = row
        self.headers = headers
        self.body = body
        self.damage = ""  # why its body is missing, where what was stored cannot be read any more
        self.number = 0  # among its crawl's rows, where an engine gives it
        self.asked_url = row.url  # where redirects have led to it, what was asked for first: where an engine gives it
        self._page: Page | None = None

    @property
    def url(self) -> str:
        """Where it was found."""
        return self.row.url

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.row.status

    @property
    def title(self) -> str:
        """The page's title, or nothing."""
        return self.row.title

    @property
    def depth(self) -> int:
        """Links from a seed."""
        return self.row.depth

    @property
    def fields(self) -> dict[str, Any]:
        """What the crawl's rules have read from it, by field; empty without rules."""
        return dict(self._read.get("fields", {}))

    @property
    def field_errors(self) -> dict[str, str]:
        """Why fields are missing or null, by their paths."""
        return dict(self._read.get("field_errors", {}))

    @property
    def _read(self) -> dict[str, Any]:
        return json.loads(self.row.fields) if self.row.fields else {}

    @property
    def page(self) -> Page:
        """The parsed page: links, text and the rest. It is parsed in this process, not in a parser child: what comes of
        it has a tree behind it, and is computed when it is first asked for."""
        if self._page is None:
            self._page = extract(self.body, self.row.url, self.header("content-type"))
        return self._page

    def formats(self, names: Iterable[str], shape: Shape = MAIN) -> dict[str, Any]:
        """The page in formats (see docs/extraction.md), made in this process as `page` is."""
        return render(self.page, check_formats(names), shape)

    def header(self, name: str) -> str | None:
        """The first value of a response header."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def __repr__(self) -> str:
        return f"CrawledPage({self.url!r}, {self.status}, {len(self.body)} bytes)"


def read_page(stored: StoredPage) -> CrawledPage | None:
    """A stored page with its body decompressed; None where no response was stored."""
    http = stored.http
    if http is None:
        return None
    encoding = http.content_encoding
    body = decode(http.body, encoding, 1 << 31).body if encoding else http.body
    return CrawledPage(stored.row, http.headers, body)
