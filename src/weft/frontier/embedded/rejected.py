"""URLs of an embedded frontier that end without a request: refused at admission, or removed from a queue.

A rejected item has ended for the crawl, but is open until its row is stored: a crash before queues it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from weft.frontier.contract import Item, Rejection
from weft.frontier.durability.checkpoint import OpenItem
from weft.frontier.embedded.durability import EmbeddedDurability
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.politeness import authority_of, log_change
from weft.frontier.scheduling.sites import Crawl, Site, SiteQueue
from weft.records import Found, Purpose, Reason

REMEMBERED_REFUSALS = 100_000


class EmbeddedRejected:
    """See the contract."""

    def __init__(self, base: FrontierResources, sites: EmbeddedSites, durability: EmbeddedDurability) -> None:
        self._journal, self._queues = base.journal, base.queues
        self._kept_requests = base.kept_requests
        self._sites = sites
        self._durability = durability
        self._rejected: list[Rejection] = []
        self._open_items: dict[int, OpenItem] = {}  # rejected items whose rows are not stored yet
        self._refusals_kept: Counter[int] = Counter()  # by crawl

    def refused(self, crawl: int, reason: Reason, url: str, parent: int) -> None:
        """Recorded in the journal, for `weft explain`."""
        if self._refusals_kept[crawl] < REMEMBERED_REFUSALS:
            self._refusals_kept[crawl] += 1
            self._journal.put("refusals", (reason, url, parent, crawl))

    def left_sitemaps(self, crawl: int) -> list[Found]:
        """The sitemaps over the limit, up to a bound: for a crawl whose limit is raised."""
        return [
            Found(url, depth, 0, hops, Purpose.SITEMAP, about)
            for url, number, depth, hops, about in self._journal.rows("left_sitemaps")
            if number == crawl
        ]

    def rejections(self) -> list[Rejection]:
        """Items removed from the queues, or not admitted, since the last call: the caller stores their rows, then calls
        `end_stored`.
        """
        rejected, self._rejected = self._rejected, []
        return rejected

    def end_stored(self, items: Iterable[int], commit_batch: int = 0) -> None:
        """Ends the leases of rejected items whose rows are stored. `commit_batch`: the store's batch with those rows,
        whose `acknowledge` makes the end final; 0: at once.
        """
        for item in items:
            if (out := self._open_items.pop(item, None)) is not None:
                self._durability.end_item(out, commit_batch)

    # ── for the other parts ────────────────────────────────────────────────────────────────────────────────────────

    def reject_over_budget(self, crawl: int, found_url: Found) -> None:
        """Rejects a URL over its budget; a sitemap is remembered, since it may be wanted later."""
        if found_url.purpose is Purpose.SITEMAP and self._refusals_kept[crawl] < REMEMBERED_REFUSALS:
            self._journal.put("left_sitemaps", found_url.url, crawl, found_url.depth, found_url.hops, found_url.about)
        self.refused(crawl, Reason.BUDGET, found_url.url, found_url.parent)

    def reject_item(self, item: Item, crawl: Crawl, reason: Reason, detail: str) -> None:
        """Rejects an item that is in no queue."""
        crawl.mark_ended(item)
        request = self._kept_requests.request_of(item.item).data or b""
        self._rejected.append(Rejection(item, crawl.number, reason, detail, request))
        self._open_items[item.item] = OpenItem(crawl.number, item)

    def reject_queue(self, queue: SiteQueue, reason: Reason, origin: str = "", detail: str = "") -> None:
        """Rejects all items in a queue, or those of one origin."""
        queued = queue.queued
        if origin:
            waiting = queue.remove(origin)
        else:
            waiting = list(queue.items())
            queue.clear()
        self._queues.queued -= queued - queue.queued
        queue.crawl.queued -= queued - queue.queued
        self.reject_removed(waiting, queue, reason, origin, detail)

    def give_up_origin(self, site: Site, trust: str, origin: str) -> None:
        """Rejects what the crawls of one trust have queued for an origin: its breaker has been open for too long. What
        is queued from now on waits for the next probe.
        """
        for queue in site.all_queues():
            if queue.crawl.trust == trust:
                self.reject_queue(queue, Reason.BREAKER, origin, site.failure)

    def reject_removed(
        self, waiting: list[Item], queue: SiteQueue, reason: Reason, origin: str = "", detail: str = ""
    ) -> None:
        """Rejects items that were removed from a queue."""
        before = len(self._rejected)
        for item in waiting:
            if item.purpose is Purpose.ROBOTS:
                self._sites.reject_robots(item, queue, reason, origin)
            elif item.purpose is Purpose.LOGIN:
                self._rejected.append(Rejection(item, queue.crawl.number, reason, detail))
            elif not self._queues.is_obsolete(queue.crawl, item):
                self.reject_item(item, queue.crawl, reason, detail)
        if count := len(self._rejected) - before:
            log_change(reason, authority_of(origin) if origin else queue.key, count)

    def close_crawl(self, crawl: int) -> None:
        """Forgets the rejected items of an ended crawl that the caller has not collected yet."""
        self._refusals_kept.pop(crawl, None)
        for rejection in self._rejected:
            if rejection.crawl == crawl:
                self._open_items.pop(rejection.item.item, None)
        self._rejected = [rejection for rejection in self._rejected if rejection.crawl != crawl]

    def open_items(self) -> Iterable[OpenItem]:
        """Rejected items whose rows are not stored yet."""
        return self._open_items.values()
