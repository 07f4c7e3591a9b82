"""URLs of an embedded frontier that end without a request: refused at the door, or removed from a queue.

A rejected item has ended for the crawl, but is open until its row is stored: a crash before queues it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from weft.frontier.contract import Item, Rejection
from weft.frontier.durability.checkpoint import OpenItem
from weft.frontier.embedded.durability import EmbeddedDurability
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.resources import Resources
from weft.frontier.politeness import authority_of, log_change
from weft.frontier.scheduling.sites import Crawl, Site, SiteQueue
from weft.records import Found, Purpose, Reason

REMEMBERED_REFUSALS = 100_000


class EmbeddedRejected:
    """See the contract."""

    def __init__(self, base: Resources, sites: EmbeddedSites, durability: EmbeddedDurability) -> None:
        self._journal, self._queues = base.journal, base.queues
        self._kept_requests = base.kept_requests
        self._sites = sites
        self._durability = durability
        self._rejected: list[Rejection] = []
        self._open: dict[int, OpenItem] = {}  # rejected items whose rows are not stored yet
        self._refusals_kept: Counter[int] = Counter()  # by crawl

    def refused(self, crawl: int, reason: Reason, url: str, parent: int) -> None:
        """In the journal, for `weft explain`."""
        if self._refusals_kept[crawl] < REMEMBERED_REFUSALS:
            self._refusals_kept[crawl] += 1
            self._journal.put("refusals", (reason, url, parent, crawl))

    def left_sitemaps(self, crawl: int) -> list[Found]:
        """The sitemaps for which there was no room, up to a bound: for a crawl that may have more of them now."""
        return [
            Found(url, depth, 0, hops, Purpose.SITEMAP, about)
            for url, number, depth, hops, about in self._journal.rows("left_sitemaps")
            if number == crawl
        ]

    def rejections(self) -> list[Rejection]:
        """Items removed from the queues, or not admitted, since the last call: store them, then call `ended`."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def ended(self, items: Iterable[int], batch: int = 0) -> None:
        """Ends rejected items whose rows are stored."""
        for item in items:
            if (out := self._open.pop(item, None)) is not None:
                self._durability.end(out, batch)

    # ── for the other parts ────────────────────────────────────────────────────────────────────────────────────────

    def over_budget(self, crawl: int, found: Found) -> None:
        """There is no room for a URL; a sitemap may be wanted later."""
        if found.purpose is Purpose.SITEMAP and self._refusals_kept[crawl] < REMEMBERED_REFUSALS:
            self._journal.put("left_sitemaps", found.url, crawl, found.depth, found.hops, found.about)
        self.refused(crawl, Reason.BUDGET, found.url, found.parent)

    def add(self, item: Item, crawl: Crawl, reason: Reason, detail: str) -> None:
        """An item that is in no queue."""
        crawl.mark_ended(item)
        request = self._kept_requests.of(item.item).data or b""
        self._rejected.append(Rejection(item, crawl.number, reason, detail, request))
        self._open[item.item] = OpenItem(crawl.number, item)

    def empty(self, queue: SiteQueue, reason: Reason, origin: str = "", detail: str = "") -> None:
        """Rejects everything in a queue, or what it has of one origin."""
        queued = queue.queued
        if origin:
            waiting = queue.remove(origin)
        else:
            waiting = list(queue.items())
            queue.clear()
        self._queues.queued -= queued - queue.queued
        queue.crawl.queued -= queued - queue.queued
        self.add_all(waiting, queue, reason, origin, detail)

    def give_up(self, site: Site, trust: str, origin: str) -> None:
        """What the crawls of one trust have queued for an origin is rejected: its breaker has stayed open for too long.
        What is queued from now on waits for the next probe."""
        for queue in site.all_queues():
            if queue.crawl.trust == trust:
                self.empty(queue, Reason.BREAKER, origin, site.failure)

    def add_all(
        self, waiting: list[Item], queue: SiteQueue, reason: Reason, origin: str = "", detail: str = ""
    ) -> None:
        """Items that were taken out of a queue."""
        before = len(self._rejected)
        for item in waiting:
            if item.purpose is Purpose.ROBOTS:
                self._sites.reject_robots(item, queue, reason, origin)
            elif item.purpose is Purpose.LOGIN:
                self._rejected.append(Rejection(item, queue.crawl.number, reason, detail))
            elif not self._queues.is_void(queue.crawl, item):
                self.add(item, queue.crawl, reason, detail)
        if count := len(self._rejected) - before:
            log_change(reason, authority_of(origin) if origin else queue.key, count)

    def close_crawl(self, crawl: int) -> None:
        """A crawl has ended: what nobody has asked for yet leaves no trace."""
        self._refusals_kept.pop(crawl, None)
        for rejection in self._rejected:
            if rejection.crawl == crawl:
                self._open.pop(rejection.item.item, None)
        self._rejected = [rejection for rejection in self._rejected if rejection.crawl != crawl]

    def open_items(self) -> Iterable[OpenItem]:
        """Those whose rows are not stored yet."""
        return self._open.values()
