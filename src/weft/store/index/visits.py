"""Decides which visit of a URL is its current one: the one that exports contain and that counts as a page.

A URL has a row for each visit: of a recrawl, of a retry, of a redirect to itself. Only one of them is current, so that
a crawl that was repeated three times is not three times as large. Pure, except `repeated`, which reads indexes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Protocol

from msgspec import Struct

from weft import urls
from weft.records import BROKEN_OFF

GONE_STATUSES = frozenset({404, 410})


class Visit(Struct, frozen=True, gc=False):
    """The values of a row that decide which visit is current, and those that its counts depend on."""

    url: str
    item: int
    status: int
    fetched_at: float
    error: str
    stored: int  # 0 if the response is not stored
    content_type: str
    depth: int
    length: int
    crawl: int = 0
    request: str | None = None  # as in the row: visits of one URL by different requests are independent

    @property
    def host(self) -> str:
        """The host of its URL."""
        return urls.host_of(self.url)

    @property
    def is_page(self) -> bool:
        """Whether a page was stored."""
        return bool(self.stored) and 200 <= self.status < 300


class HashedIndex(Protocol):
    """The interface of an index for `repeated`."""

    def hashes(self) -> Iterator[int]: ...


def current_visit(visits: Iterable[Visit]) -> Visit | None:
    """The current visit of their URL; None for a page that is gone.

    The last one decides whether the page is still there: it may have gone (404, 410), moved (a redirect) or asked not
    to be kept (noindex). A visit that failed, broke off or found nothing new changes nothing: the best copy remains
    current.
    """
    ordered = sorted(visits, key=attrgetter("fetched_at", "item"))
    last, pages = ordered[-1], [visit for visit in ordered if visit.is_page]
    if not pages:
        return last
    if last.status in GONE_STATUSES:
        return None
    if last.error == "noindex" or (300 <= last.status < 400 and last.status != 304):
        return last
    whole = [visit for visit in pages if visit.error not in BROKEN_OFF]
    return (whole or pages)[-1]


def repeated_hashes(indexes: Sequence[HashedIndex]) -> Iterator[int]:
    """The hashes of the URLs that have several rows in these indexes, in order."""
    last: int | None = None
    for before, after in pairwise(heapq.merge(*(index.hashes() for index in indexes))):
        if before == after != last:
            last = after
            yield after
