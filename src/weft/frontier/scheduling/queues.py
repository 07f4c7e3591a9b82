"""The working set of an embedded frontier: the crawls, the sites, what waits at them, and when each is due.

It is in memory and, as far as that is bounded, in blobs; all of it can be rebuilt (see recovery). A site with empty
queues is forgotten after a while, or a crawl of ten million domains would keep them all; its politeness state is in the
journal (`site_clocks`). When more sites are awake than a crawl needs, others come to rest on the disk (`at_rest`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from weft import urls
from weft.config import PolitenessSection
from weft.frontier.contract import Item, PageLinks
from weft.frontier.durability.blobs import BlobStore
from weft.frontier.durability.items import Bitmap
from weft.frontier.durability.journal import Journal
from weft.frontier.link_lists import numbered
from weft.frontier.politeness import PolitenessClock, Shown
from weft.frontier.ranks import rank_of
from weft.frontier.scheduling.fairness import Fairness
from weft.frontier.scheduling.site_clocks import FORGET_AFTER_S, SiteClocks
from weft.frontier.scheduling.site_packing import packed_page
from weft.frontier.scheduling.sites import Crawl, IsBlocked, Site, SiteQueue
from weft.frontier.scheduling.swapped_sites import Resting
from weft.frontier.scheduling.swapping import AtRest
from weft.frontier.scheduling.turns import KNOWN_TURNS
from weft.frontier.scheduling.wheel import Wheel
from weft.records import Found, Purpose

MOST_AWAKE = 10_000  # sites in memory, unless a claim needs more
SOON_S = 10.0  # a site that is due later may come to rest
_TURNS = KNOWN_TURNS + 1  # that a site has had when others may have its place
_KEYS = 50_000
_FORGOTTEN_AT_ONCE = 20


class Queues:
    """The working set. Times are of the frontier's clock, except those named `wall`."""

    def __init__(
        self,
        section: PolitenessSection,
        journal: Journal,
        blobs: BlobStore,
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
        process: int = 0,
    ) -> None:
        """`process` tells its rows of sites from those of earlier processes."""
        self.section = section
        self.blobs = blobs
        self.process = process
        self.now = now
        self.clocks = SiteClocks(section, journal, now, wall)
        self.crawls: dict[int, Crawl] = {}
        self.sites: dict[str, Site] = {}
        self.wheel: Wheel[Site] = Wheel(len(Shown))
        self.fairness = Fairness()
        self.blocked: dict[int, Crawl] = {}  # those that run, where `unblock` has left sites waiting
        self.queued = 0
        self.ended = Bitmap()  # items that the restored queues still hold although they have ended
        self.retries: dict[int, tuple[int, float]] = {}  # attempts of items in the queues, and when they may run (wall)
        self._keys: dict[str, str] = {}
        self._by_origin: dict[str, Site] = {}  # a cache that spares most links the look-up by key
        self._idle: deque[tuple[float, Site]] = deque()
        self.most_awake = MOST_AWAKE
        self.resting = Resting(blobs)
        self.at_rest = AtRest(self)
        self._drowsy = self.at_rest.drowsy

    # ── sites ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def key_of(self, url: str) -> str:
        """The politeness key of a URL."""
        origin = url[: url.index("/", 8)]
        key = self._keys.get(origin)
        if key is None:
            if len(self._keys) > _KEYS:
                self._keys.clear()
            host = urls.host_of(url)
            key = self._keys[origin] = urls.domain(host) if self.section.key_scope == "domain" else host
        return key

    def key_about(self, about: str) -> str:
        """The politeness key of an origin, as a robots.txt is about one: behind a trust."""
        return self.key_of(about.rpartition(" ")[2] + "/")

    def site(self, key: str) -> Site:
        """The site of a key, with its saved politeness state where there is one."""
        site = self.known_site(key)
        if site is None:
            site = self.sites[key] = Site(key, self.clocks.site_clock(key))
        return site

    def known_site(self, key: str) -> Site | None:
        """The site of a key, awake; None where nothing waits."""
        return self.sites.get(key) or self.at_rest.woken(key)

    def tried(self, item: int, now: float) -> tuple[int, float]:
        """How often an item was tried before this process, and when it may be tried again."""
        if item not in self.retries:
            return 0, 0.0
        attempt, wall = self.retries[item]  # not removed: an item that was moved up has a second entry
        return attempt, now + self.clocks.wait_s(wall)

    def forget_idle(self, now: float) -> list[Site]:
        """Forgets a few of the sites that have long been idle, and returns them."""
        gone: list[Site] = []
        while self._idle and self._idle[0][0] <= now and len(gone) < _FORGOTTEN_AT_ONCE:
            _, site = self._idle.popleft()
            site.idle = False
            if site.gone:
                continue
            if self._may_forget(site, now):
                self.leave(site)
                gone.append(site)
            else:
                self.note_idle(site)
        return gone

    def _may_forget(self, site: Site, now: float) -> bool:
        clock, lanes = site.clock, site.all_lanes()
        return (
            not clock.active
            and not self.clocks.is_waited_for(clock, now)
            and not clock.parked
            and not any(lane.queued or lane.flight or site in lane.crawl.blocked for lane in lanes)
            and not any(lane.pages and lane.crawl.limits.max_pages_per_domain for lane in lanes)
        )

    def note_idle(self, site: Site) -> None:
        """A site whose queues are empty is forgotten after a while."""
        if not site.idle and not any(lane.queued for lane in site.all_lanes()):
            site.idle = True
            self._idle.append((self.now() + FORGET_AFTER_S, site))

    # ── what waits ─────────────────────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, crawl: Crawl, found: Found, item: int, attempt: int = 0, not_before: float = 0.0) -> None:
        """Queues an item under its site."""
        url = found.url
        origin = url[: url.index("/", 8)]
        known = self._by_origin.get(origin)
        if known is not None and not known.gone:
            site = known
        else:
            key = self.key_of(url)
            if not attempt and self.at_rest.takes(crawl, found, key):
                self.resting.add(key, crawl.number, packed_page(item, found), self.now())
                self.queued += 1
                crawl.queued += 1
                return
            site = self.site(key)
        lane = site.lane(crawl)
        if not lane.queued:
            lane.served_at = max(lane.served_at, self.now())  # before, it did not wait
        was_empty = not lane.queues  # what is urgent may have to wait
        if found.purpose is Purpose.PAGE and not found.hops and not attempt:
            rank = rank_of(found.depth, found.priority)
            lane.push(item, origin, url[len(origin) :], rank, found.parent, found.offsite)
            if site is not known:
                self._by_origin[origin] = site
        else:
            urgent = Item(
                item, found.url, found.depth, found.parent, found.hops, found.purpose, found.about, attempt,
                found.offsite,
            )  # fmt: skip
            lane.push_urgent(urgent, not_before)
            was_empty = True
        self.queued += 1
        crawl.queued += 1
        if was_empty or _may_pass(site, lane):
            self.schedule(site)

    def enqueue_links(self, crawl: Crawl, links: PageLinks, urls_there: list[str], first: int) -> None:
        """Queues a page's links to one origin, numbered from `first` on: one look-up, one text for all of them."""
        site, at = self.site_at(links.origin), 0
        while site is None:  # until the origin is known here
            if at == len(urls_there):
                return
            found = Found(urls_there[at], links.depth, links.parent, offsite=links.offsite)
            self.enqueue(crawl, found, first + at)
            site, at = self.site_at(links.origin), at + 1
        count = len(urls_there) - at
        if not count:
            return
        lane = site.lane(crawl)
        if not lane.queued:
            lane.served_at = max(lane.served_at, self.now())  # before, it did not wait
        was_empty = not lane.queues  # what is urgent may have to wait
        hops = f".{links.offsite}" if links.offsite else ""
        middle, cut = f" {links.parent} {lane.place_of(links.origin)}{hops} ", len(links.origin)
        lane.queue(links.depth).push_all(numbered(first + at, middle, urls_there[at:], cut), count)
        lane.queued += count
        self.queued += count
        crawl.queued += count
        if was_empty or _may_pass(site, lane):
            self.schedule(site)

    def site_at(self, origin: str) -> Site | None:
        """The site of an origin of which pages were queued lately; None where it must be looked up."""
        site = self._by_origin.get(origin)
        return None if site is None or site.gone else site

    def lane_at(self, key: str, crawl: Crawl) -> SiteQueue:
        """A crawl's lane at a site, for something that is about to be queued there."""
        lane = self.site(key).lane(crawl)
        if not lane.queued:
            lane.served_at = max(lane.served_at, self.now())  # before, it did not wait
        return lane

    def push_urgent(self, lane: SiteQueue, item: Item, not_before: float = 0.0, *, first: bool = False) -> None:
        """Queues an item before the others of its lane."""
        lane.push_urgent(item, not_before, first=first)
        self.queued += 1
        lane.crawl.queued += 1

    def pop(self, lane: SiteQueue, now: float, is_blocked: IsBlocked | None = None) -> Item | None:
        """The lane's next item, without those that have ended, were moved up, or must wait."""
        while (item := lane.pop(now, is_blocked)) is not None:
            self.queued -= 1
            lane.crawl.queued -= 1
            if self.is_void(lane.crawl, item):
                continue
            if not self.retries or item.attempt or item.item not in self.retries:
                return item
            attempt, not_before = self.tried(item.item, now)
            self.push_urgent(lane, msgspec.structs.replace(item, attempt=attempt), not_before)
        return None

    def is_void(self, crawl: Crawl, item: Item) -> bool:
        """Whether an entry is one that its item has left behind: it has ended, is out, or was moved up."""
        if self.ended and item.item in self.ended:
            if crawl.depths is None:  # else an item may have several entries
                self.ended.discard(item.item)
            return True
        known = crawl.known(item)
        return known is not None and (known.leased or known.ended or known.depth < item.depth)

    def schedule(self, site: Site, *, asked: SiteQueue | None = None, at: float = 0.0) -> None:
        """Puts a site on the wheel for when it may be claimed from.

        `asked`: this lane just was, and had nothing that might run `at` that time. By now it may: the claim's time
        counts, or what came due since would never be asked for.
        """
        clock, lanes = site.clock, site.lanes
        if asked is not None:
            asked.stalled_at = at
        if clock.parked:
            self.wake(clock)
        if asked is None:
            for lane in lanes:
                lane.stalled_at = None
        if not self.put_off(site, self.now() if asked is None else at) and asked is None:
            self.wheel.remove(site)

    def put_off(self, site: Site, now: float) -> bool:
        """Puts a site on the wheel again, or where it must wait; False: nothing has a time here."""
        clock = site.clock
        time, is_full = self.time_of(site.lanes, clock)
        if time is not None:
            self._put(site, time, now)
        elif is_full:
            if clock.parked is not None and site.next_time() is not None:
                clock.parked[site] = None
        else:
            if not clock.active:
                self.note_idle(site)
            return False
        return True

    def _put(self, site: Site, at: float, now: float) -> None:
        """Puts a site on the wheel; where many are awake, one that is not due soon among those that may rest."""
        if len(self.sites) < self.most_awake * 9 // 10:
            self.wheel.put(site, at, now)
        elif at > now + SOON_S:
            self.wheel.remove(site)
            self._drowsy.append(site)
        else:
            self.wheel.put(site, at, now)
            if site.served >= _TURNS and self.resting:
                self._drowsy.append(site)

    def time_of(self, lanes: list[SiteQueue], clock: PolitenessClock) -> tuple[float | None, bool]:
        """When one of the lanes may be claimed from; None where an event must come first, or nothing waits. And
        whether one of them has no place left.

        What a lane that was asked in vain has then waits for a permit, a budget or a robots.txt, which will schedule
        the site. Most crawls of an engine are set alike: the clock is asked once for those.
        """
        first: float | None = None
        is_full = has_place = False
        due, section = 0.0, None
        for lane in lanes:
            crawl = lane.crawl
            if crawl.section is not section:
                section = crawl.section
                has_place = clock.active < clock.places(section)
                due = clock.due_for(section) if has_place else 0.0
                is_full = is_full or not has_place
            if not has_place or not lane.queued or (first is not None and first <= due):
                continue
            at = lane.next_time() if lane.stalled_at is None else lane.later(lane.stalled_at)
            if at is not None:
                at = max(due, at)
                first = at if first is None else min(first, at)
        return first, is_full

    def wake(self, clock: PolitenessClock) -> None:
        """Lets as many parked sites go on as the turn has places: of a thousand on one address, not all at once."""
        room = clock.places(self.section) - clock.active
        now = self.now()
        while room > 0 and clock.parked:
            site = next(iter(clock.parked))
            del clock.parked[site]
            at, _ = self.time_of(site.lanes, site.clock)
            if at is not None:
                self.wheel.put(site, at, now)
                room -= at <= max(clock.due_for(self.section), now)

    def next_due(self, ranks: Sequence[int] = tuple(Shown)) -> float | None:
        """When something of these ranks may be due."""
        if self._drowsy or any(crawl.permits() > 0 for crawl in self.blocked.values()):
            return 0.0  # a claim lets sites go on that wait for a permit which nobody uses
        first = self.wheel.next_due(ranks)
        if self.resting:
            # While nobody that is unknown has a slot, those at rest are woken by the way, and are no reason to claim.
            now = -1.0 if Shown.UNKNOWN in ranks else self.now()
            for crawl in self.crawls.values():
                at = self.resting.next_due(crawl.number) if self.resting.count(crawl.number) else None
                at = None if at is not None and at <= now else at
                if at is not None and (first is None or at < first) and not crawl.paused and crawl.permits() > 0:
                    first = at
        return first

    def leave(self, site: Site) -> None:
        """A site is not awake any more."""
        del self.sites[site.key]
        site.gone = True
        for lane in site.all_lanes():
            del lane.crawl.sites[site]
            for origin in lane.origins:
                self._by_origin.pop(origin, None)

    # ── permits ────────────────────────────────────────────────────────────────────────────────────────────────────

    def unblock(self, crawl: Crawl) -> int:
        """Schedules as many blocked sites as there are free permits; returns how many."""
        count = min(len(crawl.blocked), max(0, crawl.permits()))
        for _ in range(count):
            site = next(iter(crawl.blocked))
            del crawl.blocked[site]
            self.schedule(site)
        if crawl.blocked and not crawl.paused:
            self.blocked[crawl.number] = crawl
        else:
            self.blocked.pop(crawl.number, None)
        return count

    def unblock_waiting(self) -> bool:
        """Unblocks for every crawl: a site that was unblocked and is not due, or claimed a sitemap, uses no permit."""
        return sum(self.unblock(crawl) for crawl in list(self.blocked.values())) > 0


def _may_pass(site: Site, lane: SiteQueue) -> bool:
    """Whether what is queued now may run before the others: they may all be behind an open breaker."""
    return site.clock.breakers is not None and len(lane.origins) > 1
