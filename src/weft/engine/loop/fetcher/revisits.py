"""Visits pages again so that an unchanged page costs little: conditional requests, and the comparison of bodies.

An earlier visit is known by the validators of its response (ETag, Last-Modified) and the digest of its body. A 304, or
a body with the same digest, becomes a revisit record and a row with status 304; the old copy remains the stored page.

Earlier visits come from the stored pages themselves (a recrawl), or are given with the URLs by the caller that keeps
them (a site's run). They are looked up for all leases of a claim at once (`foresee`): one lookup per page took longer
than fetching it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weft.fetch.headers import Head
from weft.records import FetchResult, Lease, PastVisit, Purpose, Row
from weft.store.pages import PageStore
from weft.store.warc.warc_records import payload_digest

if TYPE_CHECKING:
    from weft.engine.crawls.running_crawl import RunningCrawl


class EarlierVisit(NamedTuple):
    """A page as an earlier visit found it: the row of that visit, and its validators."""

    row: Row
    etag: str | None
    last_modified: str | None


class VisitSource(Protocol):
    """A source of earlier visits, by URL."""

    def find(self, urls: Sequence[str], crawl: int) -> Mapping[str, EarlierVisit]:
        """The earlier visits of those URLs at which there was a whole page."""


class StoredVisits:
    """Earlier visits from the pages that are stored when this object is made."""

    def __init__(self, store: PageStore) -> None:
        self._pages = store.known_pages()

    def find(self, urls: Sequence[str], crawl: int) -> Mapping[str, EarlierVisit]:
        """The earlier visits of those URLs at which there was a whole page."""
        heads = ((url, page.row, Head(page.head)) for url, page in self._pages.find(urls, crawl).items())
        return {url: EarlierVisit(row, head.etag, head.last_modified) for url, row, head in heads}


class GivenVisits:
    """Earlier visits that were given with the URLs of a crawl (`PageStore.keep_visited`)."""

    def __init__(self, store: PageStore) -> None:
        self._store = store

    def find(self, urls: Sequence[str], crawl: int) -> Mapping[str, EarlierVisit]:
        """The earlier visits of those URLs at which there was a whole page."""
        found = self._store.visited(crawl, urls).items()
        return {url: EarlierVisit(_row_of_visit(visit, crawl), visit.etag, visit.last_modified) for url, visit in found}


def _row_of_visit(visit: PastVisit, crawl: int) -> Row:
    return Row(0, crawl, visit.url, visit.url, 200, visit.at, "", "", "", "", 0, 0, visit.digest, 0, "")


class Revisits:
    """The earlier visits of the pages that are in flight."""

    def __init__(self, visits: VisitSource, renders_since: float | None = None) -> None:
        """`renders_since`: since when (wall clock) the crawl renders pages that need it; None if it renders none. A
        copy from before is asked for without conditions: a browser cannot draw the page of a 304."""
        self._visits = visits
        self._renders_since = renders_since
        self._looked_up: dict[int, EarlierVisit | None] = {}
        self._rows_read: dict[int, Row] = {}

    def look_up_visits(self, leases: Sequence[Lease]) -> None:
        """Looks up the earlier visits that `conditions` will be asked for."""
        pages = [lease for lease in leases if lease.purpose is Purpose.PAGE]
        if not pages:
            return
        found = self._visits.find([lease.url for lease in pages], pages[0].crawl)
        self._looked_up = {lease.item: found.get(lease.url) for lease in pages}

    def conditions(self, lease: Lease) -> list[tuple[str, str]]:
        """Headers that let the server answer \"not modified\"; none for a page that is not known, or not whole."""
        if lease.item not in self._looked_up:
            self.look_up_visits([lease])
        known = self._looked_up.pop(lease.item)
        if known is None:
            return []
        self._rows_read[lease.item] = known.row
        if self._renders_since is not None and not known.row.rendered and known.row.fetched_at < self._renders_since:
            return []
        headers = [("If-None-Match", known.etag), ("If-Modified-Since", known.last_modified)]
        return [(name, value) for name, value in headers if value]

    def earlier_row(self, lease: Lease) -> Row | None:
        """The row of a page's last visit; read once, when the result has arrived."""
        return self._rows_read.pop(lease.item, None)


def look_up_earlier_visits(crawls: Mapping[int, RunningCrawl], leases: Sequence[Lease]) -> None:
    """Looks up earlier visits for the leases of a claim, of crawls that visit pages again."""
    for number in {lease.crawl for lease in leases}:
        if (revisits := crawls[number].revisits) is not None:
            revisits.look_up_visits([lease for lease in leases if lease.crawl == number])


def is_unchanged(before: Row, result: FetchResult) -> bool:
    """Whether the answer states, or its body proves, that the page is unchanged."""
    if result.error:
        return False
    if result.rendered is not None and not result.rendered.error and not before.rendered:
        return False  # the stored copy is the page before its scripts have drawn it
    return result.status == 304 or (200 <= result.status < 300 and payload_digest(result.body) == before.digest)
