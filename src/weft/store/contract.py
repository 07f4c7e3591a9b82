"""The records that a page store returns.

The order of calls to `PageStore` that its guarantees rest on, every 20 to 100 ms:
    add       any number of pages, in memory
    write     their texts and WARC bytes reach the operating system
              (the engine makes the links found on them durable)
    commit    their index rows: from here on the pages are kept, and a crash cannot take them
    sync      about once a second, from another thread: bytes, then rows, reach the disk; a power cut cannot take them
A process killed anywhere in between leaves no row without its bytes, no bytes without their row, and one row per item.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.records import Row
from weft.store.warc.warc_read import HttpMessage, WarcRecord


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page as stored: its row, and its record where there was a response."""

    row: Row
    record: WarcRecord | None
    resources: tuple[WarcRecord, ...] = ()  # records of a browser's rendering

    @property
    def http(self) -> HttpMessage | None:
        """The response: headers in order with duplicates, the body as received, with its content codings."""
        return self.record.http() if self.record else None

    def resource(self, kind: str) -> bytes:
        """A browser's rendering of the page, by the beginning of its URI (`warc.RENDERED`, ...); may be empty."""
        return next((one.block for one in self.resources if one.headers["warc-target-uri"].startswith(kind)), b"")


@dataclass(frozen=True, slots=True)
class CurrentContents:
    """What a crawl holds now: each URL counts once, by its current visit (see `visits`)."""

    urls: int
    pages: int  # URLs that have a page
    gone: int  # that had one, and no longer do
    page_bytes: int
    kinds: dict[tuple[int, str], int]  # URLs by status and error
    content_types: dict[str, int]
    depths: dict[int, int]
    hosts: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Stats:
    """The totals of a crawl. `pages` are stored 2xx; `rows` are all ended items."""

    rows: int
    pages: int
    body_bytes: int
    warc_bytes: int
    first: float
    last: float
    statuses: dict[int, int]
    errors: dict[str, int]
    content_types: dict[str, int]
    depths: dict[int, int]
    hosts: list[tuple[str, int]]
    kinds: dict[tuple[int, str], int]  # rows by status and error
    page_bytes: int  # of the pages' bodies alone
