"""A stored page for programs and reports: its row, its decompressed response, and what can be extracted from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from weft.engine.user_code.page import Page
from weft.extract.formats import MAIN, Shape, check_formats, render
from weft.fetch.decode import decode
from weft.records import FetchResult, Rendered, Row
from weft.store.contract import StoredPage
from weft.store.warc.warc_records import PRINTED, RENDERED, VIEW

_is_picture_name = re.compile(rf"{VIEW}\d+:").match
_NO_RENDERING = Rendered()


class CrawledPage(Page):
    """A stored page, as `weft.crawl`, `weft.StoredPages` and an engine give it.

    It has all that a `weft.Page` has but for `parent` (a row has its number): `url`, `status`, `headers`, `body`,
    `depth`, `fetched_at`. `page` is the page as parsed: `page.main_text`, `page.markdown`, `page.language` and
    the rest of a `ParsedPage`, computed on first use. `row` is its row in the index. Where its bytes are damaged,
    `damage` says so and `body` is empty.
    """

    def __init__(
        self,
        row: Row,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        drawn: Rendered = _NO_RENDERING,
    ) -> None:
        super().__init__(
            row.url, body, status=row.status, headers=headers, depth=row.depth,
            fetched_at=datetime.fromtimestamp(row.fetched_at, UTC), rendered=drawn.html,
            screenshot=drawn.screenshot or next(iter(drawn.pictures), b""),
        )  # fmt: skip
        self.row = row
        self.drawn = drawn  # all that a browser made of it
        self.damage = ""  # why its body is missing, where what was stored cannot be read any more
        self.number = 0  # among its crawl's rows, where an engine gives it
        self.asked_url = row.url  # where redirects have led to it, what was asked for first: where an engine gives it

    @property
    def title(self) -> str:
        """The page's title, or an empty text."""
        return self.row.title

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that the crawl's rules have extracted; empty without rules."""
        return dict(self._read_facts.get("fields", {}))

    @property
    def field_errors(self) -> dict[str, str]:
        """Why fields are missing or null, by their paths."""
        return dict(self._read_facts.get("field_errors", {}))

    @property
    def _read_facts(self) -> dict[str, Any]:
        return json.loads(self.row.fields) if self.row.fields else {}

    def formats(self, names: Iterable[str], shape: Shape = MAIN) -> dict[str, Any]:
        """The page in formats (see docs/extraction.md), computed in this process as `page` is."""
        return render(self.page, check_formats(names), shape)

    def header(self, name: str) -> str | None:
        """The first value of a response header."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


def read_page(stored: StoredPage) -> CrawledPage | None:
    """A stored page with its body decompressed; None if no response was stored."""
    http = stored.http
    if http is None:
        return None
    encoding = http.content_encoding
    body = decode(http.body, encoding, 1 << 31).body if encoding else http.body
    return CrawledPage(stored.row, http.headers, body, _as_rendered(stored) or _NO_RENDERING)


def fetch_result_of(stored: StoredPage) -> tuple[FetchResult, str | None]:
    """A stored response in the form of its transfer's result, to be stored once more under another number; and why its
    body is incomplete, in WARC's terms.
    """
    record = stored.record
    assert record is not None, "a row without a response"
    http = record.http()
    result = FetchResult(
        stored.row.url, http.status, record.head, http.body, None, "", 0.0, 0.0,
        record.headers.get("warc-ip-address", ""), b"", rendered=_as_rendered(stored),
    )  # fmt: skip
    return result, record.headers.get("warc-truncated")


def _as_rendered(stored: StoredPage) -> Rendered | None:
    """The part of a stored response that a browser has rendered."""
    if not (html := stored.resource(RENDERED)):
        return None
    views = [one for one in stored.resources if one.headers["warc-target-uri"].startswith(VIEW)]
    pictures = [one.block for one in views if _is_picture_name(one.headers["warc-target-uri"])]
    whole = [one.block for one in views if not _is_picture_name(one.headers["warc-target-uri"])]
    return Rendered(
        url=stored.row.final_url, html=html, title=stored.row.title, screenshot=whole[0] if whole else b"",
        pictures=tuple(pictures), pdf=stored.resource(PRINTED),
    )  # fmt: skip
