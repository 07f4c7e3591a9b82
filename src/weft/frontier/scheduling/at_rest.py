"""Sites that come to rest on the disk, and are woken in their order: when more are awake than a crawl needs.

Those come to rest that are not due soon, and those that have had some turns while others wait; new sites begin there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from weft.alive import Alive, silent
from weft.frontier.politeness import AddressClock, PolitenessClock, Shown
from weft.frontier.scheduling.packing import SITE, packed_site, unpacked_page, unpacked_site
from weft.frontier.scheduling.sites import Crawl, Lane, Site
from weft.frontier.scheduling.turns import KNOWN_TURNS
from weft.frontier.scheduling.wheel import IDLE
from weft.records import Found, Purpose

if TYPE_CHECKING:
    from weft.frontier.scheduling.queues import Queues

_RESTED_AT_ONCE = 500


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
        return None if taken is None else self._wake(self._queues.crawls[taken[0]], taken[1])

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

    def rest(self, now: float, release: Callable[[Lane], object]) -> list[Lane]:
        """Brings some of the sites to rest that may; returns their lanes. What they wait for, `release` lets go."""
        rested: list[Lane] = []
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

    def settle(self, site: Site, lane: Lane) -> None:
        """A site was restored: where many are, it comes to rest at once."""
        if len(self._queues.sites) > self._queues.most_awake and self._lane_to_rest(site) is lane:
            self._bring_to_rest(site, lane, self._now())

    def lanes_at_rest(self, crawl: Crawl) -> Iterator[Lane]:
        """A crawl's lanes at sites that are at rest, which they stay."""
        for rows in self._queues.resting.of_crawl(crawl.number):
            site, lane = self._unpacked(crawl, rows, is_woken=False)
            del crawl.sites[site]
            yield lane

    def take_out(self, crawl: Crawl) -> Iterator[Lane]:
        """A crawl's lanes at sites that are at rest, to be emptied; a site that somebody must wait for stays awake."""
        while (rows := self._queues.resting.take_due(crawl.number, float("inf"))) is not None:
            site, lane = self._unpacked(crawl, rows)
            yield lane
            if self._queues.clocks.is_waited_for(site.clock, self._now()):
                self._queues.sites[site.key] = site
                self._queues.note_idle(site)
            else:
                crawl.sites.pop(site, None)

    def drop_at_rest(self, crawl: Crawl, alive: Alive = silent) -> None:
        """A crawl has ended: what it has at sites that are at rest is gone."""
        while (rows := self._queues.resting.take_due(crawl.number, float("inf"))) is not None:
            alive()
            if not rows[0].startswith(SITE):
                self._queues.queued -= len(rows)  # nobody has asked there
                continue
            site, lane = self._unpacked(crawl, rows)
            self._queues.queued -= lane.queued
            lane.clear()
            if self._queues.clocks.is_waited_for(site.clock, self._now()):
                self._queues.sites[site.key] = site
            else:
                del crawl.sites[site]

    def _wake(self, crawl: Crawl, rows: list[bytes]) -> Site:
        site, _ = self._unpacked(crawl, rows)
        self._queues.sites[site.key] = site
        self._queues.schedule(site)
        return site

    def _unpacked(self, crawl: Crawl, rows: list[bytes], *, is_woken: bool = True) -> tuple[Site, Lane]:
        if rows[0].startswith(SITE):
            site, lane = unpacked_site(rows[0], crawl, self._queues.clocks.address_clock)
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

    def _lane_to_rest(self, site: Site) -> Lane | None:
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
        robots = waiting[0].robots or ()
        if any(self._queues.key_about(item.about) != site.key for _, _, item in robots):
            return None  # another site waits for what a redirect led to here
        return waiting[0]

    def _bring_to_rest(self, site: Site, lane: Lane, due: float) -> None:
        wakes = not lane.queues or site.clock.held_until() > 0.0  # a page of another host need not wait for a breaker
        self._queues.resting.add(site.key, lane.crawl.number, packed_site(site, lane), due, wakes=wakes)
        self._queues.wheel.remove(site)
        self._queues.leave(site)
