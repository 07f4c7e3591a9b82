"""Turns among crawls that have something due: proportional-share scheduling by weight.

A crawl that is served moves on by the inverse of its weight, and the one that is furthest behind is next; one whose
turn has no result is not moved. A new or returning crawl begins at the others' position: it neither waits behind a
million queued URLs nor catches up on the time in which it had nothing to do.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from weft.frontier.scheduling.sites import Crawl, Site, SiteQueue


class Fairness:
    """The crawls that have queues ready, by the amount of service they have had."""

    def __init__(self) -> None:
        self._ring: list[tuple[float, int, Crawl]] = []
        self._turn_position = (
            0.0  # the position of the crawl whose turn it is; one served in its stead may be far ahead
        )
        self._last_position = 0.0  # the position of the last turn with a result
        self._ready = 0

    def __bool__(self) -> bool:
        return self._ready > 0

    def remove_crawl(self, crawl: Crawl) -> None:
        """Removes a closed crawl: nothing of it is claimed any more."""
        self._ready -= len(crawl.ready)
        for queue in crawl.ready:
            queue.is_ready = False
        crawl.ready.clear()

    def offer_site(self, site: Site, now: float) -> bool:
        """A site is due: every crawl that has something there, and whose own delay is over, may claim it; False if none
        may."""
        clock = site.clock
        for queue in site.queues:
            crawl = queue.crawl
            if (
                not queue.is_ready
                and queue.may_run(now)
                and clock.has_room(crawl.section)
                and clock.due_for(crawl.section) <= now
            ):
                queue.is_ready = True
                self._ready += 1
                crawl.ready.append(queue)
                if not crawl.is_in_ring:
                    crawl.is_in_ring = True
                    crawl.stride = max(crawl.stride, self._last_position)
                    heappush(self._ring, (crawl.stride, crawl.number, crawl))
        return any(queue.is_ready for queue in site.queues)

    def next_queue(self) -> SiteQueue | None:
        """The next queue of the crawl whose turn it is; None if nothing is ready."""
        ring = self._ring
        while ring:
            stride, number, crawl = ring[0]
            if not crawl.ready:
                heappop(ring)
                crawl.is_in_ring = False
                continue
            if crawl.stride > stride:  # it was served since
                heapreplace(ring, (crawl.stride, number, crawl))
                continue
            self._turn_position = stride
            queue = crawl.ready.popleft()
            queue.is_ready = False
            self._ready -= 1
            return queue
        return None

    def count_served(self, crawl: Crawl) -> None:
        """Something of a crawl was claimed, in its turn or in another's."""
        self._last_position = max(self._last_position, self._turn_position)
        crawl.stride += 1.0 / crawl.weight
