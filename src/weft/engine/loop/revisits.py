"""Pages that are visited again: what to ask so that an unchanged one costs little, and how to tell one.

The stored response says what it was called (ETag, Last-Modified) and what it held (digest). A 304, or a body with the
same digest, becomes a revisit record and a row with status 304: the old copy stays the page.
"""

from __future__ import annotations

from weft.records import FetchResult, Lease, Row
from weft.store.errors import Unreadable
from weft.store.pages import PageStore
from weft.store.warc import payload_digest


class Revisits:
    """The known pages among what is in flight."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._known: dict[int, Row] = {}

    def conditions(self, lease: Lease) -> list[tuple[str, str]]:
        """Headers that let the server answer \"not modified\"; none for a page that is not known, or not whole."""
        try:
            stored = self._store.get(lease.url, lease.crawl)
        except Unreadable:
            return []  # the copy is damaged: the visit brings a new one
        http = stored.http if stored is not None else None
        if stored is None or http is None or not 200 <= stored.row.status < 300 or not stored.row.is_whole:
            return []
        self._known[lease.item] = stored.row
        headers = [("If-None-Match", http.get("etag")), ("If-Modified-Since", http.get("last-modified"))]
        return [(name, value) for name, value in headers if value]

    def known(self, lease: Lease) -> Row | None:
        """The page's row of the last visit; asked once, when the result is there."""
        return self._known.pop(lease.item, None)


def is_unchanged(before: Row, result: FetchResult) -> bool:
    """Whether the answer says, or shows, that the page is as it was."""
    if result.error:
        return False
    return result.status == 304 or (200 <= result.status < 300 and payload_digest(result.body) == before.digest)
