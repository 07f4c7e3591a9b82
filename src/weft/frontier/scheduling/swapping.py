"""Sites that are swapped out to the disk, and swapped in in their order: when more are in memory than a crawl needs.

Sites are swapped out if they are not due soon, or if they have had some turns while others wait; new sites begin
swapped out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify
from typing import TYPE_CHECKING

import msgspec

from weft.alive import Alive
from weft.frontier.politeness import AddressClock, PolitenessClock, Responsiveness
from weft.frontier.scheduling.site_packing import (
    SITE,
    PackedSite,
    pack_site,
    read_site,
    restore_responsiveness,
    unpack_clock,
    unpack_pages,
    unpack_queue,
)
from weft.frontier.scheduling.sites import Crawl, Site, SiteQueue
from weft.frontier.scheduling.spill import pieces_of
from weft.frontier.scheduling.turns import KNOWN_TURNS
from weft.frontier.scheduling.wheel import IDLE
from weft.records import Found, Purpose

if TYPE_CHECKING:
    from weft.frontier.scheduling.queues import Queues

_SWAPPED_OUT_AT_ONCE = 500
_CLEARED_AT_ONCE = 100  # sites of a crawl that has ended


class SiteSwapping:
    """Moves sites between the working set and its rows on the disk. A site is in one of them."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._now = queues.now
        self.swappable: deque[Site] = deque()  # those that may be swapped out

    def accepts_page(self, crawl: Crawl, found_url: Found, key: str) -> bool:
        """Whether a page goes to the end of a queue that is swapped out, or will be."""
        if found_url.purpose is not Purpose.PAGE or found_url.hops or key in self._queues.sites:
            return False
        holder = self._queues.swapped.find(key) if self._queues.swapped else None
        if holder is not None:
            # A site with a bounded queue is swapped in and counted.
            return holder == (crawl.number, False) and crawl.limits.max_pages_per_domain is None
        return len(self._queues.sites) >= self._queues.max_in_memory

    def swap_in(self, key: str) -> Site | None:
        """Swaps in a site; None if it is not swapped out."""
        taken = self._queues.swapped.remove(key) if self._queues.swapped else None
        if taken is None:
            return None
        number, rows = taken
        crawl = self._queues.crawls.get(number)
        if crawl is not None:
            return self._swap_in_rows(crawl, rows)
        site = self._without_queue(rows)
        return None if site is None else self._add_empty_site(site)

    def swap_in_due(self, limit: int, now: float, *, is_stuck: bool = False) -> None:
        """Swaps in as many sites as a claim of `limit` needs; where there is room, some in any case: each has its turn.

        `is_stuck`: unknown sites wait for a slot. Sites swapped in after them may be of other classes.
        """
        if not self._queues.swapped:
            return
        due, is_roomy = self._queues.wheel.due(now), len(self._queues.sites) < self._queues.max_in_memory
        unknown = 0 if is_stuck else self._queues.wheel.waiting(Responsiveness.UNKNOWN)
        share = limit // (KNOWN_TURNS + 1) + 1 - unknown if is_roomy else 0
        for crawl in self._queues.crawls.values():
            count = 0 if crawl.paused else min(max(limit - due - len(crawl.ready), share), crawl.permits())
            while count > 0 and (rows := self._queues.swapped.remove_due(crawl.number, now)) is not None:
                self._swap_in_rows(crawl, rows)
                count -= 1

    def swap_out(self, now: float, release: Callable[[SiteQueue], object]) -> list[SiteQueue]:
        """Swaps out some of the swappable sites; returns their queues. `release` gives up what they wait for."""
        rested: list[SiteQueue] = []
        for _ in range(min(len(self.swappable), _SWAPPED_OUT_AT_ONCE)):
            site = self.swappable.popleft()
            if site.gone:
                continue
            at, _ = self._queues.claim_time_of(site.queues, site.clock)
            queue = self._queue_to_swap(site)
            if queue is not None and at is not None:
                release(queue)
                self._swap_out_site(site, queue, at)
                rested.append(queue)
            elif at is not None and site.tick == IDLE:
                self._queues.wheel.put(site, at, now)
        return rested

    def make_swappable_later(self, site: Site) -> None:
        """A site was restored: if many are in memory, it becomes swappable in later claims."""
        if len(self._queues.sites) > self._queues.max_in_memory:
            self.swappable.append(site)

    def swapped_queues(self, crawl: Crawl) -> Iterator[SiteQueue]:
        """A crawl's queues at swapped-out sites, which remain swapped out."""
        blobs = self._queues.blobs
        for rows in self._queues.swapped.rows_of_crawl(crawl.number):
            first = blobs.next_number
            site, site_queue = self._unpack_site(crawl, rows, is_swapped_in=False)
            del crawl.sites[site]
            spilled = [number for queue in site_queue.queues for number in pieces_of(queue.state()) if number >= first]
            try:
                yield site_queue
            finally:
                blobs.drop_all(spilled)

    def drop_swapped(self, crawl: Crawl) -> None:
        """Removes the swapped-out sites of an ended crawl bit by bit in later claims (`clear_some_sites`)."""
        self._queues.swapped.abandon(crawl.number)

    def clear_some_sites(self, now: float) -> None:
        """Clears some of the sites of ended crawls; one whose clock a request must wait for is then in memory."""
        for _ in range(_CLEARED_AT_ONCE):
            rows = self._queues.swapped.remove_abandoned()
            if rows is None:
                return
            site = self._without_queue(rows)
            if site is not None and self._queues.clocks.is_waited_for(site.clock, now):
                self._add_empty_site(site)

    def clear_all_sites(self, crawl: int, alive: Alive) -> None:
        """Clears all remaining sites of a crawl that is opened again."""
        self._queues.swapped.abandon(crawl)
        while crawl in self._queues.swapped.gone:
            self.clear_some_sites(self._now())
            alive()

    def _add_empty_site(self, site: Site) -> Site:
        """Nothing is queued there, but the site is known."""
        self._queues.sites[site.key] = site
        self._queues.note_idle(site)
        return site

    def _without_queue(self, rows: list[bytes]) -> Site | None:
        """A site without its queue, not in memory yet; None for one that was never asked."""
        if not rows[0].startswith(SITE):
            return None
        packed = read_site(rows[0])
        for _, state in packed.queues:
            self._queues.blobs.drop_all(pieces_of(state))
        return Site(packed.key, self._restored_clock(packed))

    def _swap_in_rows(self, crawl: Crawl, rows: list[bytes]) -> Site:
        site, _ = self._unpack_site(crawl, rows)
        self._queues.sites[site.key] = site
        self._queues.schedule(site)
        return site

    def _unpack_site(self, crawl: Crawl, rows: list[bytes], *, is_swapped_in: bool = True) -> tuple[Site, SiteQueue]:
        if rows[0].startswith(SITE):
            packed = read_site(rows[0])
            site = Site(packed.key, self._restored_clock(packed, is_swapped_in=is_swapped_in))
            queue = unpack_queue(packed, site, crawl)
            if packed.process != self._queues.process:
                self._reset_times(queue)
            rows = rows[1:]
        else:
            (_, origin, path, *_), *_ = unpack_pages(rows[0])
            key = self._queues.key_of(origin + path)
            # The last request of an earlier process is recorded once: for the process that may ask the site next.
            site = Site(key, self._queues.clocks.site_clock(key) if is_swapped_in else PolitenessClock())
            queue = site.queue_of(crawl)
            queue.served_at = self._now()
        for row in rows:
            for page in unpack_pages(row):
                queue.push(*page)
        return site, queue

    def _restored_clock(self, packed: PackedSite, *, is_swapped_in: bool = True) -> PolitenessClock:
        """The clock of a site. That of an earlier process may lack the last request, and uses another time base: the
        last request is in the request log and in the journal.
        """
        if packed.process == self._queues.process:
            return unpack_clock(packed, self._queues.clocks.address_clock)
        clock = self._queues.clocks.site_clock(packed.key) if is_swapped_in else PolitenessClock()
        restore_responsiveness(packed, clock)
        return clock

    def _reset_times(self, queue: SiteQueue) -> None:
        """A queue that an earlier process has packed: its times are invalid; urgent items may have been tried since."""
        now = self._now()
        queue.served_at, queue.stalled_at, queue.look_at = now, None, 0.0
        for name in ("urgent", "sitemaps"):
            heap = []
            for _, at, item in getattr(queue, name) or ():
                attempt, not_before = self._queues.failed_tries(item.item, now)
                heap.append((not_before, at, msgspec.structs.replace(item, attempt=attempt)))
            heapify(heap)
            setattr(queue, name, heap or None)

    def _queue_to_swap(self, site: Site) -> SiteQueue | None:
        """The only queue of a site that may be swapped out; None if it may not."""
        clock = site.clock
        is_shared = isinstance(clock, AddressClock)
        if site.out or site.paused or (site in (clock.parked or ()) if is_shared else clock.active):
            return None
        waiting = [queue for queue in site.queues if queue.queued]
        if len(waiting) != 1 or any(
            queue.flight or queue.is_ready or site in queue.crawl.blocked or (queue is not waiting[0] and queue.pages)
            for queue in site.queues
        ):
            return None
        if waiting[0].logins:
            return None  # it belongs to this process alone
        robots = waiting[0].robots or ()
        if any(self._queues.key_about(item.about) != site.key for _, _, item in robots):
            return None  # another site waits for the target of a redirect here
        return waiting[0]

    def _swap_out_site(self, site: Site, queue: SiteQueue, due: float) -> None:
        wakes = not queue.queues or site.clock.held_until() > 0.0  # a page of another host need not wait for a breaker
        row = pack_site(site, queue, self._queues.process)
        self._queues.swapped.add(site.key, queue.crawl.number, row, due, wakes=wakes)
        self._queues.wheel.remove(site)
        self._queues.remove_site(site)
