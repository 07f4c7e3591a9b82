"""One transfer that has ended, as the engine's steps hand it on."""

from __future__ import annotations

from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.fetcher.verdict import VerdictKind, kind_of
from weft.fetch.headers import Head
from weft.frontier.contract import Ended
from weft.records import FetchResult, Lease


class EndedTransfer:
    """What came, for which lease, and what kind of answer it is; `asked_at` is the time of day of the request."""

    __slots__ = ("asked_at", "crawl", "ended", "handed", "head", "kind", "lease", "result")

    def __init__(self, crawl: RunningCrawl, lease: Lease, result: FetchResult, asked_at: float) -> None:
        self.crawl = crawl
        self.lease = lease
        self.result = result
        self.asked_at = asked_at
        self.kind: VerdictKind = kind_of(result)
        self.head = Head(result.head)
        self.ended: Ended | None = None  # for the site's clock, where the transfer was made
        self.handed = False  # to a parser, and its end with it

    @property
    def redirects(self) -> bool:
        """Whether it leads somewhere else."""
        return self.kind is VerdictKind.REDIRECT and self.head.location is not None
