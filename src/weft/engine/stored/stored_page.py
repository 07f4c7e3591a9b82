"""A stored page as programs and reports read it: its row, its response decompressed, and what can be read from it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from weft.engine.user_code.page import Page
from weft.extract.formats import MAIN, Shape, check_formats, render
from weft.fetch.decode import decode
from weft.records import Row
from weft.store.contract import StoredPage
from weft.store.warc.warc_records import RENDERED, VIEW


class CrawledPage(Page):
    """A stored page: what a `ParsedPage` is, and its row's facts. `parent` is unknown here: a row has its number."""

    def __init__(
        self,
        row: Row,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        rendered: bytes = b"",
        screenshot: bytes = b"",
    ) -> None:
        super().__init__(
            row.url, body, status=row.status, headers=headers, depth=row.depth,
            fetched_at=datetime.fromtimestamp(row.fetched_at, UTC), rendered=rendered,
        )  # fmt: skip
        self.row = row
        self.screenshot = screenshot  # a PNG
        self.damage = ""  # why its body is missing, where what was stored cannot be read any more
        self.number = 0  # among its crawl's rows, where an engine gives it
        self.asked_url = row.url  # where redirects have led to it, what was asked for first: where an engine gives it

    @property
    def title(self) -> str:
        """The page's title, or nothing."""
        return self.row.title

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

    def formats(self, names: Iterable[str], shape: Shape = MAIN) -> dict[str, Any]:
        """The page in formats (see docs/extraction.md), made in this process as `page` is."""
        return render(self.page, check_formats(names), shape)

    def header(self, name: str) -> str | None:
        """The first value of a response header."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


def read_page(stored: StoredPage) -> CrawledPage | None:
    """A stored page with its body decompressed; None where no response was stored."""
    http = stored.http
    if http is None:
        return None
    encoding = http.content_encoding
    body = decode(http.body, encoding, 1 << 31).body if encoding else http.body
    return CrawledPage(stored.row, http.headers, body, stored.resource(RENDERED), stored.resource(VIEW))
