"""The statistics of a pod on Redis, and why a crawl waits. Nothing here changes anything."""

from __future__ import annotations

from typing import NamedTuple

from weft.frontier.contract import WAIT_CAUSES, CrawlCounts, FrontierStats, WaitReason
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.redis_crawls import sites_of

# Reasons why a crawl may not be over, in the order of lua/stats.lua.
WAIT_NAMES = ("outboxes", "scheduled", "blocked", "rejects", "mail", "seeded", "spilled")


class StatsReply(NamedTuple):
    """The reply of lua/stats.lua, all of one moment."""

    counters: list[int]  # queued, sites, admitted, finished, received, the last item
    leased: int
    to_parse: int
    crawls: list[list[int]]  # of each: its number, pages, seen, max, flight, given
    due: int
    waits: list[int]

    def stats(self) -> FrontierStats:
        """The reply in the contract's form."""
        queued, sites, admitted, finished, received, _ = self.counters
        return FrontierStats(
            queued=queued,
            leased=self.leased,
            seen=sum(crawl[2] for crawl in self.crawls),
            sites=sites,
            admitted=admitted,
            finished=finished,
            pages=sum(crawl[1] for crawl in self.crawls),
            to_parse=self.to_parse,
            due=self.due,
            received=received,
        )


def read_stats(link: PodLink) -> StatsReply:
    """Reads the statistics with one script."""
    return StatsReply(*link.call_script("stats", []))


class RedisStatus:
    """See the contract."""

    def __init__(self, link: PodLink) -> None:
        self._link = link

    def stats(self) -> FrontierStats:
        """The current numbers."""
        return read_stats(self._link).stats()

    def stats_and_waits(self) -> tuple[FrontierStats, dict[str, int]]:
        """For the decision that a crawl is over: the statistics, and how much waits for each reason (`WAITS`). One
        script reads both: two calls could both miss an item that moved between them, and the crawl would end without
        it.
        """
        now = read_stats(self._link)
        return now.stats(), dict(zip(WAIT_NAMES, now.waits, strict=True))

    def crawl_counts(self, crawl: int) -> CrawlCounts:
        """The counts of one crawl."""
        is_open, *counts = self._link.call_script("standing", [crawl])
        if not is_open:
            raise KeyError(crawl)
        return CrawlCounts(*counts)

    def waits_for(self, crawl: int) -> WaitReason | None:
        """Why a crawl with queued URLs waits; None while it does not."""
        cause, about, until = self._link.call_script("waiting", [crawl])
        if not cause:
            return None
        return WaitReason(
            WAIT_CAUSES[cause.decode()].format(about.decode()), self._link.to_local_time(int(until)) if until else None
        )

    def has_work(self, crawl: int) -> bool:
        """Whether a queued item of a crawl may still be claimed; checks all of its sites."""
        if not self.crawl_counts(crawl).queued:
            return False
        if self._link.crawls[crawl].limits.max_pages_per_domain is None:
            return True
        return any(self._link.call_script("work", [crawl, *sites])[0] for sites in sites_of(self._link, crawl))
