"""Chooses what a claim leases next: one of the sites that are due, one of its queues, and there the first item that may
run.

A robots.txt that is not known is asked for before the page that needs it; a page that needs a login waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.frontier.contract import Item
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.embedded.robots_files import RobotsFiles
from weft.frontier.politeness import LONG_WAIT_IN_DELAYS, AddressClock, PolitenessClock
from weft.frontier.scheduling.sites import MOST_PASSED_OVER, Crawl, IsBlocked, Site, SiteQueue, origin_of
from weft.frontier.scheduling.turns import ClassTurns
from weft.records import Purpose

if TYPE_CHECKING:
    from weft.frontier.embedded.leases import LiveLease

SEARCH_LONGER_S = 1.0  # until a site is tried again whose queue begins with more blocked items than one search skips


class QueueChooser:
    """Chooses among live queues; changes queues only: the caller makes the lease."""

    def __init__(
        self, base: FrontierResources, robots: RobotsFiles, turns: ClassTurns, live: dict[int, LiveLease]
    ) -> None:
        self._base = base
        self._queues = base.queues
        self._machine = base.machine
        self._robots = robots
        self._turns = turns
        self._live = live

    def next_queue(self, now: float) -> SiteQueue | None:
        """The next queue to try: of one crawl the site that has been due longest, of several by turns."""
        queues = self._queues
        if len(queues.crawls) == 1 and not queues.fairness:
            while (site := self._turns.pop_site(queues.wheel, now)) is not None:
                if site.queues:
                    return site.queues[0]
            return None
        for rank in self._turns.classes_with_room():
            while (site := queues.wheel.pop(now, rank)) is not None:
                if not queues.fairness.offer_site(site, now):
                    queues.reschedule_site(site, now)  # its reason to be scheduled is gone, or its clock has advanced
        while (queue := queues.fairness.next_queue()) is not None and not self._turns.has_room(queue.site.rank):
            queues.wheel.put(queue.site, now, now)
        return queue

    def item_at(self, queue: SiteQueue, now: float) -> tuple[SiteQueue, Item] | None:
        """An item of this queue, or of another one at its site that has waited too long; None: the site waits."""
        site = queue.site
        if len(site.queues) > 1 and (longest := self._longest_waiting(site, queue, now)) is not queue:
            due = site.clock.due_for(longest.crawl.section)
            if due > now:  # its own delay is longer than the others': they wait, or it never has a turn
                self._queues.wheel.put(site, due, now)
                return None
            queue = longest
        clock, section = site.clock, queue.crawl.section
        has_room = clock.has_room(section)
        if not has_room and clock.parked is None:
            return None  # others were first; the end of one of their leases schedules the site
        if not has_room or clock.due_for(section) > now:
            self._queues.schedule(site)
            return None
        due = self.machine_due(clock, machine_key(site, clock), queue.crawl, now)
        if due > now:  # another process of this user has asked this site, or is about to
            site.held = (now if site.held is None else site.held[0], due)
            self._queues.wheel.put(site, due, now)
            return None
        site.held = None
        item = self._next_item(site, queue, now)
        if item is None:
            self._queues.schedule(site, asked=queue, at=now)
            return None
        return queue, item

    def machine_due(self, clock: PolitenessClock, key: str, crawl: Crawl, now: float) -> float:
        """When the other processes of this machine leave room for a request."""
        alone = clock.places(crawl.section) == 1
        return self._machine.due(key, now, clock.delay_s(crawl.section), alone=alone)

    def is_origin_held(self, clock: PolitenessClock, name: str, now: float, item: int = 0) -> bool:
        """Whether an origin must not be asked because of its breaker: it is open and its time has not come, or its
        probe is out (unless `item` is the probe).
        """
        breaker = clock.breaker(name)
        if breaker is None or not breaker.open_until:
            return False
        if breaker.open_until > now:
            return True
        probe = self._live.get(breaker.probe) if breaker.probe != item else None
        return probe is not None and not probe.cooled

    def _longest_waiting(self, site: Site, queue: SiteQueue, now: float) -> SiteQueue:
        """The queue whose turn it is, or one of another crawl that has waited ten of its own delays."""
        for other in site.queues:
            if other.served_at < queue.served_at and other.may_run(now) and other.has_budget():
                delay_s = other.crawl.section.delay_s
                if delay_s and now - other.served_at > LONG_WAIT_IN_DELAYS * delay_s and other.crawl.permits() > 0:
                    queue = other
        return queue

    def _next_item(self, site: Site, queue: SiteQueue, now: float) -> Item | None:
        """The queue's next item; robots.txt first if it is not known."""
        if not queue.queued:
            return None
        is_full = queue.crawl.permits() <= 0
        # A robots.txt uses no page permit, and the pod with the last permit may wait for it.
        if is_full and (queue.crawl.paused or not queue.robots or queue.robots[0][0] > now):
            queue.crawl.blocked[site] = None
            return None
        if not queue.has_budget():
            return None
        is_blocked = self._blocked_origins(site.clock, queue.crawl.trust, now)
        item = self._queues.pop(queue, now, is_blocked)
        if item is None and is_blocked is not None:
            queue.look_at = _next_breaker_try(queue, site.clock, now)
        if item is None or item.purpose is Purpose.ROBOTS:
            return item
        if is_full:  # the robots.txt is behind an open breaker
            self._queues.push_urgent(queue, item, first=True)
            queue.crawl.blocked[site] = None
            return None
        origin = origin_of(item.url)
        about = queue.crawl.trust + origin
        if self._robots.is_in_force(about):
            if item.purpose is Purpose.PAGE and queue.crawl.holds is not None and queue.crawl.holds(item.url):
                self._queues.push_urgent(queue, item, first=True)
                return self._next_item(site, queue, now) if queue.logins and queue.logins[0][0] <= now else None
            return item
        self._queues.push_urgent(queue, item, first=True)
        if about in self._robots.being_fetched:
            return None
        self._robots.being_fetched.add(about)
        attempt, wall = self._robots.failed_tries(about)
        number, url = self._base.counts.next_transient_item(), origin + "/robots.txt"
        robots = Item(number, url, item.depth, item.item, 0, Purpose.ROBOTS, about, attempt)
        if wall <= self._base.wall():
            return robots
        # An earlier process has failed to get it, and its wait is not over.
        self._queues.push_urgent(queue, robots, now + self._queues.clocks.wait_s(wall))
        return None

    def _blocked_origins(self, clock: PolitenessClock, trust: str, now: float) -> IsBlocked | None:
        """Returns a test whether an origin's breaker is open, for crawls of one trust; None if no breaker of the site
        is open.
        """
        if clock.breakers is None or not any(breaker.open_until for breaker in clock.breakers.values()):
            return None
        return lambda origin: self.is_origin_held(clock, trust + origin, now)


def machine_key(site: Site, clock: PolitenessClock) -> str:
    """The key under which the machine's clock counts a request."""
    return clock.address if isinstance(clock, AddressClock) else site.key


def _next_breaker_try(site_queue: SiteQueue, clock: PolitenessClock, now: float) -> float:
    """When a queue is tried again whose next URLs are behind open breakers: when a probe is due, or a retry. Soon, if
    the search was cut short. 0: an event schedules it.
    """
    times = [one.open_until for one in (clock.breakers or {}).values() if one.open_until > now]
    times += [entry[0] for entry in site_queue.urgent_entries() if entry[0] > now][:1]
    if len(site_queue.origins) > 1 and any(len(queue) > MOST_PASSED_OVER for queue in site_queue.queues):
        times.append(now + SEARCH_LONGER_S)
    return min(times, default=0.0)
