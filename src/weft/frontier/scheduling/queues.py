"""The working set of an embedded frontier: the crawls, the sites, their queued items, and when each site is due.

It is in memory up to a bound, and beyond that in blobs; all of it can be rebuilt (see recovery). A site with empty
queues is forgotten after a while, since a crawl of ten million domains cannot keep them all; its politeness state is in
the journal (`site_clocks`). When more sites are in memory than a crawl needs, others are swapped out to disk
(`swapping`).
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
from weft.frontier.durability.journal import FrontierJournal
from weft.frontier.link_lists import numbered
from weft.frontier.politeness import PolitenessClock, Responsiveness
from weft.frontier.ranks import rank_of
from weft.frontier.scheduling.fairness import Fairness
from weft.frontier.scheduling.site_clocks import CLOCK_KEPT_S, SiteClocks
from weft.frontier.scheduling.site_packing import pack_links, pack_page
from weft.frontier.scheduling.sites import Crawl, IsBlocked, Site, SiteQueue
from weft.frontier.scheduling.swapped_sites import SwappedSites
from weft.frontier.scheduling.swapping import SiteSwapping
from weft.frontier.scheduling.turns import KNOWN_TURNS
from weft.frontier.scheduling.wheel import Wheel
from weft.records import Found, Purpose

MAX_SITES_IN_MEMORY = 10_000  # sites in memory, unless a claim needs more
MOST_IDLE_SITES = 10_000  # idle sites, with nothing queued, above which more are forgotten
DUE_SOON_S = 10.0  # a site that is due later may be swapped out
_TURNS_IN_MEMORY = KNOWN_TURNS + 1  # of a site, after which other sites may have its memory
_MOST_CACHED_KEYS = 50_000
_FORGOTTEN_AT_ONCE = 20
_EXCESS_AT_ONCE = 500  # where there are more


class Queues:
    """The working set. Times are of the frontier's clock, except those named `wall`."""

    def __init__(
        self,
        section: PolitenessSection,
        journal: FrontierJournal,
        blobs: BlobStore,
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
        process: int = 0,
    ) -> None:
        """`process` distinguishes its rows of sites from those of earlier processes."""
        self.section = section
        self.blobs = blobs
        self.process = process
        self.now = now
        self.clocks = SiteClocks(section, journal, now, wall)
        self.crawls: dict[int, Crawl] = {}
        self.sites: dict[str, Site] = {}
        self.wheel: Wheel[Site] = Wheel(len(Responsiveness))
        self.fairness = Fairness()
        self.blocked: dict[int, Crawl] = {}  # running crawls for which `unblock` has left sites waiting
        self.queued = 0
        self.ended = Bitmap()  # items that the restored queues still hold although they have ended
        self.retries: dict[int, tuple[int, float]] = {}  # attempts of items in the queues, and when they may run (wall)
        self._key_cache: dict[str, str] = {}
        self._by_origin: dict[str, Site] = {}  # a cache that spares most links the look-up by key
        self._idle: deque[tuple[float, Site]] = deque()
        self.max_in_memory = MAX_SITES_IN_MEMORY
        self.swapped = SwappedSites(blobs)
        self.swapping = SiteSwapping(self)
        self._swappable = self.swapping.swappable

    # ── sites ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def key_of(self, url: str) -> str:
        """The politeness key of a URL."""
        origin = url[: url.index("/", 8)]
        key = self._key_cache.get(origin)
        if key is None:
            if len(self._key_cache) > _MOST_CACHED_KEYS:
                self._key_cache.clear()
            host = urls.host_of(url)
            key = self._key_cache[origin] = urls.domain(host) if self.section.key_scope == "domain" else host
        return key

    def key_about(self, about: str) -> str:
        """The politeness key of an origin, given with the trust of its robots.txt."""
        return self.key_of(about.rpartition(" ")[2] + "/")

    def site(self, key: str) -> Site:
        """The site of a key, with its saved politeness state where there is one."""
        site = self.known_site(key)
        if site is None:
            site = self.sites[key] = Site(key, self.clocks.site_clock(key))
        return site

    def known_site(self, key: str) -> Site | None:
        """The site of a key if it is in memory; None if nothing is queued there."""
        return self.sites.get(key) or self.swapping.swap_in(key)

    def failed_tries(self, item: int, now: float) -> tuple[int, float]:
        """How often earlier processes tried an item, and when it may be tried again."""
        if item not in self.retries:
            return 0, 0.0
        attempt, wall = self.retries[item]  # not removed: an item that was moved up has a second entry
        return attempt, now + self.clocks.wait_s(wall)

    def forget_idle(self, now: float) -> list[Site]:
        """Forgets a few of the sites that have long been idle, and returns them. If many are in memory, also those
        whose clocks no request must wait for: links to such a site would keep it, and its queue, in memory and in each
        checkpoint.
        """
        gone: list[Site] = []
        excess = len(self.sites) - self.max_in_memory - MOST_IDLE_SITES
        early_s = max(0.0, CLOCK_KEPT_S - max(self.section.delay_s, self.clocks.longest_delay_s))
        for _ in range(min(len(self._idle), max(_FORGOTTEN_AT_ONCE, min(excess, _EXCESS_AT_ONCE)))):
            if self._idle[0][0] > (now + early_s if len(gone) < excess else now):
                break
            _, site = self._idle.popleft()
            site.idle = False
            if site.gone:
                continue
            if self._may_forget(site, now):
                self.remove_site(site)
                gone.append(site)
            else:
                self.note_idle(site)
        return gone

    def _may_forget(self, site: Site, now: float) -> bool:
        clock, queues = site.clock, site.all_queues()
        return (
            not clock.active
            and not self.clocks.is_waited_for(clock, now)
            and not clock.parked
            and not any(queue.queued or queue.flight or site in queue.crawl.blocked for queue in queues)
            and not any(queue.pages and queue.crawl.limits.max_pages_per_domain for queue in queues)
        )

    def note_idle(self, site: Site) -> None:
        """Marks a site whose queues are empty: it is forgotten after a while."""
        if not site.idle and not any(queue.queued for queue in site.all_queues()):
            site.idle = True
            self._idle.append((self.now() + CLOCK_KEPT_S, site))

    # ── the queues ─────────────────────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, crawl: Crawl, found_url: Found, item: int, attempt: int = 0, not_before: float = 0.0) -> None:
        """Queues an item under its site."""
        url = found_url.url
        origin = url[: url.index("/", 8)]
        known = self._by_origin.get(origin)
        if known is not None and not known.gone:
            site = known
        else:
            key = self.key_of(url)
            if not attempt and self.swapping.accepts_page(crawl, found_url, key):
                self.swapped.add(key, crawl.number, pack_page(item, found_url), self.now())
                self.queued += 1
                crawl.queued += 1
                return
            site = self.site(key)
        queue = site.queue_of(crawl)
        if not queue.queued:
            queue.served_at = max(queue.served_at, self.now())  # its wait begins now
        was_empty = not queue.queues  # an urgent item may have to wait
        if found_url.purpose is Purpose.PAGE and not found_url.hops and not attempt:
            rank = rank_of(found_url.depth, found_url.priority)
            queue.push(item, origin, url[len(origin) :], rank, found_url.parent, found_url.offsite)
            if site is not known:
                self._by_origin[origin] = site
        else:
            urgent = Item(
                item, found_url.url, found_url.depth, found_url.parent, found_url.hops, found_url.purpose,
                found_url.about, attempt,
                found_url.offsite,
            )  # fmt: skip
            queue.push_urgent(urgent, not_before)
            was_empty = True
        self.queued += 1
        crawl.queued += 1
        if was_empty or _may_run_first(site, queue):
            self.schedule(site)

    def enqueue_links(self, crawl: Crawl, links: PageLinks, urls_there: list[str], first: int) -> None:
        """Queues a page's links to one origin, numbered from `first`: one lookup and one text for all of them."""
        site, at = self.site_at(links.origin), 0
        if site is None and self._swap_out_links(crawl, links, urls_there, first):
            return
        while site is None:  # repeat until the origin is known here
            if at == len(urls_there):
                return
            found_url = Found(urls_there[at], links.depth, links.parent, offsite=links.offsite)
            self.enqueue(crawl, found_url, first + at)
            site, at = self.site_at(links.origin), at + 1
        count = len(urls_there) - at
        if not count:
            return
        queue = site.queue_of(crawl)
        if not queue.queued:
            queue.served_at = max(queue.served_at, self.now())  # its wait begins now
        was_empty = not queue.queues  # an urgent item may have to wait
        hops = f".{links.offsite}" if links.offsite else ""
        middle, cut = f" {links.parent} {queue.origin_number(links.origin)}{hops} ", len(links.origin)
        queue.queue(links.depth).push_all(numbered(first + at, middle, urls_there[at:], cut), count)
        queue.queued += count
        self.queued += count
        crawl.queued += count
        if was_empty or _may_run_first(site, queue):
            self.schedule(site)

    def _swap_out_links(self, crawl: Crawl, links: PageLinks, urls_there: list[str], first: int) -> bool:
        """Adds links to a site that is swapped out, or will be, as one row; False if they must be queued."""
        if not urls_there or crawl.limits.max_pages_per_domain is not None:
            return False
        key = self.key_of(urls_there[0])
        if not self.swapping.accepts_page(crawl, Found(urls_there[0], links.depth, links.parent), key):
            return False
        self.swapped.add(key, crawl.number, pack_links(first, links, urls_there), self.now())
        self.queued += len(urls_there)
        crawl.queued += len(urls_there)
        return True

    def site_at(self, origin: str) -> Site | None:
        """The site of an origin whose pages were recently queued; None if it must be looked up."""
        site = self._by_origin.get(origin)
        return None if site is None or site.gone else site

    def queue_at(self, key: str, crawl: Crawl) -> SiteQueue:
        """A crawl's queue at a site, for an item that is about to be queued there."""
        queue = self.site(key).queue_of(crawl)
        if not queue.queued:
            queue.served_at = max(queue.served_at, self.now())  # its wait begins now
        return queue

    def push_urgent(self, queue: SiteQueue, item: Item, not_before: float = 0.0, *, first: bool = False) -> None:
        """Queues an item before the others of its queue."""
        queue.push_urgent(item, not_before, first=first)
        self.queued += 1
        queue.crawl.queued += 1

    def pop(self, queue: SiteQueue, now: float, is_blocked: IsBlocked | None = None) -> Item | None:
        """The queue's next item, skipping those that have ended, were moved up, or must wait."""
        while (item := queue.pop(now, is_blocked)) is not None:
            self.queued -= 1
            queue.crawl.queued -= 1
            if self.is_obsolete(queue.crawl, item):
                continue
            if not self.retries or item.attempt or item.item not in self.retries:
                return item
            attempt, not_before = self.failed_tries(item.item, now)
            self.push_urgent(queue, msgspec.structs.replace(item, attempt=attempt), not_before)
        return None

    def is_obsolete(self, crawl: Crawl, item: Item) -> bool:
        """Whether an entry is obsolete: its item has ended, is leased, or was moved up."""
        if self.ended and item.item in self.ended:
            if crawl.depths is None:  # else an item may have several entries
                self.ended.discard(item.item)
            return True
        if crawl.depths is None:
            return False
        known = crawl.known_depth(item)
        return known is not None and (known.leased or known.ended or known.depth < item.depth)

    def schedule(self, site: Site, *, asked: SiteQueue | None = None, at: float = 0.0) -> None:
        """Puts a site on the wheel for when it may be claimed from.

        `asked`: this queue was just tried, and had no item to run `at` that time. It may have one by now: without the
        claim's time, items that became due since would never be claimed.
        """
        clock, queues = site.clock, site.queues
        if asked is not None:
            asked.stalled_at = at
        if clock.parked:
            self.schedule_parked(clock)
        if asked is None:
            for queue in queues:
                queue.stalled_at = None
            if len(queues) == 1 and clock.parked is None and not clock.has_room(queues[0].crawl.section):
                return  # as after each claim: the end of a request schedules the site
        if not self.reschedule_site(site, self.now() if asked is None else at) and asked is None:
            self.wheel.remove(site)

    def reschedule_site(self, site: Site, now: float) -> bool:
        """Puts a site on the wheel again, or in the queue where it must wait; False if neither is possible."""
        clock = site.clock
        time, is_full = self.claim_time_of(site.queues, clock)
        if time is not None:
            self._put_on_wheel(site, time, now)
        elif is_full:
            if clock.parked is not None and site.next_time() is not None:
                clock.parked[site] = None
        else:
            if not clock.active:
                self.note_idle(site)
            return False
        return True

    def _put_on_wheel(self, site: Site, at: float, now: float) -> None:
        """Puts a site on the wheel; if many are in memory, a site that is not due soon becomes swappable."""
        if len(self.sites) < self.max_in_memory * 9 // 10:
            self.wheel.put(site, at, now)
        elif at > now + DUE_SOON_S:
            self.wheel.remove(site)
            self._swappable.append(site)
        else:
            self.wheel.put(site, at, now)
            if site.served >= _TURNS_IN_MEMORY and self.swapped:
                self._swappable.append(site)

    def claim_time_of(self, queues: list[SiteQueue], clock: PolitenessClock) -> tuple[float | None, bool]:
        """When one of the queues may be claimed from; None if an event must come first, or nothing waits. And whether
        one of them has no slot left.

        What a queue that was asked without success has then waits for a permit, a budget or a robots.txt, which will
        schedule the site. Most crawls of an engine are set alike: the clock is asked once for those.
        """
        first: float | None = None
        is_full = has_place = False
        due, section = 0.0, None
        for queue in queues:
            crawl = queue.crawl
            if crawl.section is not section:
                section = crawl.section
                has_place = clock.has_room(section)
                due = clock.due_for(section) if has_place else 0.0
                is_full = is_full or not has_place
            if not has_place or not queue.queued or (first is not None and first <= due):
                continue
            at = queue.next_time() if queue.stalled_at is None else queue.next_waiting_time(queue.stalled_at)
            if at is not None:
                at = max(due, at)
                first = at if first is None else min(first, at)
        return first, is_full

    def schedule_parked(self, clock: PolitenessClock) -> None:
        """Schedules as many parked sites as the address has free slots, not all of a thousand sites at one address at
        once.
        """
        room = clock.places(self.section) - clock.active
        now = self.now()
        while room > 0 and clock.parked:
            site = next(iter(clock.parked))
            del clock.parked[site]
            at, _ = self.claim_time_of(site.queues, site.clock)
            if at is not None:
                self.wheel.put(site, at, now)
                room -= at <= max(clock.due_for(self.section), now)

    def next_due(self, ranks: Sequence[int] = tuple(Responsiveness)) -> float | None:
        """When something of these ranks may be due."""
        if self._swappable or any(crawl.permits() > 0 for crawl in self.blocked.values()):
            return 0.0  # a claim schedules sites that wait for a permit which is free again
        first = self.wheel.next_due(ranks)
        if self.swapped:
            # While no slot is free for unknown sites, swapped-out ones are only swapped in on the way, and give no
            # reason to claim.
            now = -1.0 if Responsiveness.UNKNOWN in ranks else self.now()
            for crawl in self.crawls.values():
                at = self.swapped.next_due(crawl.number) if self.swapped.count(crawl.number) else None
                at = None if at is not None and at <= now else at
                if at is not None and (first is None or at < first) and not crawl.paused and crawl.permits() > 0:
                    first = at
        return first

    def remove_site(self, site: Site) -> None:
        """Removes a site from memory."""
        del self.sites[site.key]
        site.gone = True
        for queue in site.all_queues():
            del queue.crawl.sites[site]
            for origin in queue.origins:
                self._by_origin.pop(origin, None)

    # ── permits ────────────────────────────────────────────────────────────────────────────────────────────────────

    def schedule_blocked(self, crawl: Crawl) -> int:
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

    def schedule_all_blocked(self) -> bool:
        """Unblocks sites of every crawl: a site that was unblocked but is not due, or claimed a sitemap, uses no
        permit.
        """
        return sum(self.schedule_blocked(crawl) for crawl in list(self.blocked.values())) > 0


def _may_run_first(site: Site, queue: SiteQueue) -> bool:
    """Whether a newly queued item may run before the others: they may all be behind an open breaker."""
    return site.clock.breakers is not None and len(queue.origins) > 1
