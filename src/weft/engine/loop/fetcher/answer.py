"""A transfer that has ended, as the engine's steps pass it on."""

from __future__ import annotations

import msgspec

from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.fetcher.verdict import VerdictKind, kind_of
from weft.fetch.headers import Head
from weft.frontier.contract import TransferEnd
from weft.records import FetchResult, Lease
from weft.store.warc.masking import without_cookie_values


class EndedTransfer:
    """The result of a transfer, its lease, and the kind of answer it is; `asked_at` is the time of day of the
    request.
    """

    __slots__ = ("asked_at", "crawl", "ended", "handed", "head", "kind", "lease", "result")

    def __init__(self, crawl: RunningCrawl, lease: Lease, result: FetchResult, asked_at: float) -> None:
        self.crawl = crawl
        self.lease = lease
        self.result = result
        self.asked_at = asked_at
        self.kind: VerdictKind = kind_of(result)
        self.head = Head(result.head)
        self.ended: TransferEnd | None = None  # for the site's clock, if the transfer was made
        self.handed = False  # handed to a parser together with its end

    def mask_cookies(self) -> None:
        """Masks the cookies that it sets: they belong to a login session, so only their names are kept."""
        self.result = msgspec.structs.replace(self.result, head=without_cookie_values(self.result.head))
        self.head = Head(self.result.head)

    @property
    def redirects(self) -> bool:
        """Whether it is a redirect."""
        return self.kind is VerdictKind.REDIRECT and self.head.location is not None
