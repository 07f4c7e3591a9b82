"""Sites that come to rest on the disk, and are woken in their order: when more are awake than a crawl needs.

Those come to rest that are not due soon, and those that have had some turns while others wait; new sites begin there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify
from typing import TYPE_CHECKING

import msgspec

from weft.alive import Alive
from weft.frontier.politeness import AddressClock, PolitenessClock, Shown
from weft.frontier.scheduling.packing import (
    SITE,
    PackedSite,
    clock_of,
    packed_site,
    read_site,
    recall_shown,
    unpacked_lane,
    unpacked_page,
)
from weft.frontier.scheduling.sites import Crawl, Site, SiteQueue
from weft.frontier.scheduling.spill import pieces_of
from weft.frontier.scheduling.turns import KNOWN_TURNS
from weft.frontier.scheduling.wheel import IDLE
from weft.records import Found, Purpose

if TYPE_CHECKING:
    from weft.frontier.scheduling.queues import Queues

_RESTED_AT_ONCE = 500
_CLEARED_AT_ONCE = 100  # sites of a crawl that has ended


class AtRest:
    """Moves sites between the working set and its rows on the disk (`Queues.resting`). A site is in one of them."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._now = queues.now
        self.drowsy: deque[Site] = deque()  # those that may come to rest

    def takes(self, crawl: Crawl, found: Found, key: str) -> bool:
        """Whether a page goes to the end of a queue that is at rest, or will be."""
        if found.purpose is not Purpose.PAGE or found.hops or key in self._queues.sites:
            return False
        at_rest = self._queues.resting.find(key) if self._queues.resting else None
        if at_rest is not None:
            # Where a site's queue is bounded, it is woken and counted.
            return at_rest == (crawl.number, False) and crawl.limits.max_pages_per_domain is None
        return len(self._queues.sites) >= self._queues.most_awake

    def woken(self, key: str) -> Site | None:
        """Wakes a site; None if it is not at rest."""
        taken = self._queues.resting.take(key) if self._queues.resting else None
        if taken is None:
            return None
        number, rows = taken
        crawl = self._queues.crawls.get(number)
        if crawl is not None:
            return self._wake(crawl, rows)
        site = self._cleared(rows)
        return None if site is None else self._awake(site)

    def wake_due(self, limit: int, now: float, *, is_stuck: bool = False) -> None:
        """Wakes as many sites as a claim of `limit` needs; where there is room, some in any case: each has its turn.

        `is_stuck`: those that nobody knows wait for a slot. What is woken behind them may be others.
        """
        if not self._queues.resting:
            return
        due, is_roomy = self._queues.wheel.due(now), len(self._queues.sites) < self._queues.most_awake
        unknown = 0 if is_stuck else self._queues.wheel.waiting(Shown.UNKNOWN)
        share = limit // (KNOWN_TURNS + 1) + 1 - unknown if is_roomy else 0
        for crawl in self._queues.crawls.values():
            count = 0 if crawl.paused else min(max(limit - due - len(crawl.ready), share), crawl.permits())
            while count > 0 and (rows := self._queues.resting.take_due(crawl.number, now)) is not None:
                self._wake(crawl, rows)
                count -= 1

    def rest(self, now: float, release: Callable[[SiteQueue], object]) -> list[SiteQueue]:
        """Brings some of the sites to rest that may; returns their lanes. What they wait for, `release` lets go."""
        rested: list[SiteQueue] = []
        for _ in range(min(len(self.drowsy), _RESTED_AT_ONCE)):
            site = self.drowsy.popleft()
            if site.gone:
                continue
            at, _ = self._queues.time_of(site.lanes, site.clock)
            lane = self._lane_to_rest(site)
            if lane is not None and at is not None:
                release(lane)
                self._bring_to_rest(site, lane, at)
                rested.append(lane)
            elif at is not None and site.tick == IDLE:
                self._queues.wheel.put(site, at, now)
        return rested

    def settle(self, site: Site) -> None:
        """A site was restored: where many are, it may come to rest, with the claims that follow."""
        if len(self._queues.sites) > self._queues.most_awake:
            self.drowsy.append(site)

    def lanes_at_rest(self, crawl: Crawl) -> Iterator[SiteQueue]:
        """A crawl's lanes at sites that are at rest, which they stay."""
        blobs = self._queues.blobs
        for rows in self._queues.resting.of_crawl(crawl.number):
            first = blobs.next_number
            site, lane = self._unpacked(crawl, rows, is_woken=False)
            del crawl.sites[site]
            spilled = [number for queue in lane.queues for number in pieces_of(queue.state()) if number >= first]
            try:
                yield lane
            finally:
                blobs.drop_all(spilled)

    def take_out(self, crawl: Crawl) -> Iterator[SiteQueue]:
        """A crawl's lanes at sites that are at rest, to be emptied; a site that somebody must wait for stays awake."""
        while (rows := self._queues.resting.take_due(crawl.number, float("inf"))) is not None:
            site, lane = self._unpacked(crawl, rows)
            yield lane
            if self._queues.clocks.is_waited_for(site.clock, self._now()):
                self._awake(site)
            else:
                crawl.sites.pop(site, None)

    def drop_at_rest(self, crawl: Crawl) -> None:
        """A crawl has ended: what it has at sites that are at rest goes with the claims that follow (`clear_some`)."""
        self._queues.resting.abandon(crawl.number)

    def clear_some(self, now: float) -> None:
        """Clears some of the sites of crawls that have ended; one that somebody must wait for is awake then."""
        for _ in range(_CLEARED_AT_ONCE):
            rows = self._queues.resting.take_abandoned()
            if rows is None:
                return
            site = self._cleared(rows)
            if site is not None and self._queues.clocks.is_waited_for(site.clock, now):
                self._awake(site)

    def clear_all(self, crawl: int, alive: Alive) -> None:
        """The same for all that is left of a crawl which comes back."""
        self._queues.resting.abandon(crawl)
        while crawl in self._queues.resting.gone:
            self.clear_some(self._now())
            alive()

    def _awake(self, site: Site) -> Site:
        """Nothing is queued there, but the site is known."""
        self._queues.sites[site.key] = site
        self._queues.note_idle(site)
        return site

    def _cleared(self, rows: list[bytes]) -> Site | None:
        """A site without what was queued there, not awake yet; None for one that nobody has asked."""
        if not rows[0].startswith(SITE):
            return None
        packed = read_site(rows[0])
        for _, state in packed.queues:
            self._queues.blobs.drop_all(pieces_of(state))
        return Site(packed.key, self._clock_of(packed))

    def _wake(self, crawl: Crawl, rows: list[bytes]) -> Site:
        site, _ = self._unpacked(crawl, rows)
        self._queues.sites[site.key] = site
        self._queues.schedule(site)
        return site

    def _unpacked(self, crawl: Crawl, rows: list[bytes], *, is_woken: bool = True) -> tuple[Site, SiteQueue]:
        if rows[0].startswith(SITE):
            packed = read_site(rows[0])
            site = Site(packed.key, self._clock_of(packed, is_woken=is_woken))
            lane = unpacked_lane(packed, site, crawl)
            if packed.process != self._queues.process:
                self._renew(lane)
            rows = rows[1:]
        else:
            key = self._queues.key_of(unpacked_page(rows[0])[-1])
            # When an earlier process asked it is told once: to whoever may ask it next.
            site = Site(key, self._queues.clocks.site_clock(key) if is_woken else PolitenessClock())
            lane = site.lane(crawl)
            lane.served_at = self._now()
        for row in rows:
            item, depth, parent, offsite, url = unpacked_page(row)
            path = url.index("/", 8)
            lane.push(item, url[:path], url[path:], depth, parent, offsite)
        return site, lane

    def _clock_of(self, packed: PackedSite, *, is_woken: bool = True) -> PolitenessClock:
        """The clock of a site. That of an earlier process may not know of its last request, and goes by another time:
        what is known of that is in the request log and in the journal."""
        if packed.process == self._queues.process:
            return clock_of(packed, self._queues.clocks.address_clock)
        clock = self._queues.clocks.site_clock(packed.key) if is_woken else PolitenessClock()
        recall_shown(packed, clock)
        return clock

    def _renew(self, lane: SiteQueue) -> None:
        """A lane that an earlier process has packed: its times are void; what is urgent may have been tried since."""
        now = self._now()
        lane.served_at, lane.stalled_at, lane.look_at = now, None, 0.0
        for name in ("urgent", "sitemaps"):
            heap = []
            for _, at, item in getattr(lane, name) or ():
                attempt, not_before = self._queues.tried(item.item, now)
                heap.append((not_before, at, msgspec.structs.replace(item, attempt=attempt)))
            heapify(heap)
            setattr(lane, name, heap or None)

    def _lane_to_rest(self, site: Site) -> SiteQueue | None:
        """The one lane of a site that may come to rest; None if it may not."""
        clock = site.clock
        is_shared = isinstance(clock, AddressClock)
        if site.out or site.paused or (site in (clock.parked or ()) if is_shared else clock.active):
            return None
        waiting = [lane for lane in site.lanes if lane.queued]
        if len(waiting) != 1 or any(
            lane.flight or lane.is_ready or site in lane.crawl.blocked or (lane is not waiting[0] and lane.pages)
            for lane in site.lanes
        ):
            return None
        if waiting[0].logins:
            return None  # it is of this process alone
        robots = waiting[0].robots or ()
        if any(self._queues.key_about(item.about) != site.key for _, _, item in robots):
            return None  # another site waits for what a redirect led to here
        return waiting[0]

    def _bring_to_rest(self, site: Site, lane: SiteQueue, due: float) -> None:
        wakes = not lane.queues or site.clock.held_until() > 0.0  # a page of another host need not wait for a breaker
        row = packed_site(site, lane, self._queues.process)
        self._queues.resting.add(site.key, lane.crawl.number, row, due, wakes=wakes)
        self._queues.wheel.remove(site)
        self._queues.leave(site)
