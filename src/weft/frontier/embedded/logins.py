"""Logins in an embedded frontier: requests that come before pages, and pages that wait for them.

The numbers of their items are valid in this process only, like those of robots.txt requests: neither journal nor
checkpoint contains them.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.frontier.contract import Item
from weft.frontier.embedded.resources import FrontierResources
from weft.records import Purpose


class EmbeddedLogins:
    """See the contract."""

    def __init__(self, base: FrontierResources) -> None:
        self._queues, self._counts, self._now = base.queues, base.counts, base.now

    def hold(self, crawl: int, holds: Callable[[str], bool]) -> None:
        """See the contract; `Choice` calls `holds`."""
        self._queues.crawls[crawl].holds = holds

    def release(self, crawl: int) -> None:
        """Checks all sites of the crawl that are in memory; swapped-out ones are tried when they are swapped in."""
        for site in list(self._queues.crawls[crawl].sites):
            self._queues.schedule(site)

    def ask(self, crawl: int, url: str, about: str, wait_s: float = 0.0) -> None:
        """Leased before anything else except a robots.txt."""
        queue = self._queues.queue_at(self._queues.key_of(url), self._queues.crawls[crawl])
        item = Item(self._counts.next_transient_item(), url, 0, 0, 0, Purpose.LOGIN, about)
        self._queues.push_urgent(queue, item, self._now() + wait_s if wait_s else 0.0)
        self._queues.schedule(queue.site)
