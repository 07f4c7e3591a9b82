"""The working set of an embedded frontier: the crawls, the sites, what waits at them, and when each is due.

All of it is in memory and can be rebuilt (see recovery). A site with empty queues is forgotten after a while, or a
crawl of ten million domains would keep them all; its politeness state (a Crawl-delay, a slowdown) is in the journal,
and read from there when the site comes up again.

When more sites are awake than a crawl needs, others come to rest on the disk (`resting`): those that are not due soon,
and those that have had some turns while others wait. New sites begin there. `wake_due` brings them back in their order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path

import msgspec

from weft import urls
from weft.alive import Alive, silent
from weft.config import PolitenessSection
from weft.frontier.contract import Item, PageLinks
from weft.frontier.embedded.fairness import Fairness
from weft.frontier.embedded.packing import SITE, packed_page, packed_site, unpacked_page, unpacked_site
from weft.frontier.embedded.resting import Resting
from weft.frontier.embedded.sites import Crawl, IsBlocked, Lane, Site
from weft.frontier.embedded.turns import KNOWN_TURNS
from weft.frontier.embedded.wheel import IDLE, Wheel
from weft.frontier.journal import Journal, undamaged
from weft.frontier.link_lists import numbered
from weft.frontier.politeness import (
    LONGEST_BACKOFF_S,
    LONGEST_SILENCE_S,
    AddressClock,
    Breaker,
    PolitenessClock,
    Shown,
    authority_of,
)
from weft.frontier.seen import SeenSet
from weft.records import Found, Purpose

FORGET_AFTER_S = 60.0
MOST_AWAKE = 10_000  # sites in memory, unless a claim needs more
SOON_S = 10.0  # a site that is due later may come to rest
_TURNS = KNOWN_TURNS + 1  # that a site has had when others may have its place
_RESTED_AT_ONCE = 500
_KEYS = 50_000
_FORGOTTEN_AT_ONCE = 20
_KEPT_CLOCKS = 10_000  # of addresses; idle ones are forgotten when there are more


class Queues:
    """The working set. Times are of the frontier's clock, except those named `wall`."""

    def __init__(
        self,
        section: PolitenessSection,
        journal: Journal,
        spill: Path,
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.section = section
        self._journal = journal
        self.spill = spill
        self._now = now
        self._wall = wall
        self.crawls: dict[int, Crawl] = {}
        self.sites: dict[str, Site] = {}
        self._address_clocks: dict[str, AddressClock] = {}  # filled where politeness is by address
        self._most_clocks = _KEPT_CLOCKS
        self.wheel: Wheel[Site] = Wheel(len(Shown))
        self.fairness = Fairness()
        self.longest_delay_s = section.delay_s  # of all crawls
        self.longest_wait_s, self.longest_reset_s = section.max_retry_after_s, section.breaker_reset_s  # the same
        self.blocked: dict[int, Crawl] = {}  # those that run, where `unblock` has left sites waiting
        self.queued = 0
        self.not_before = 0.0  # no site is due before this: set when the times of the last requests are unknown
        self.asked: dict[
            str, float | None
        ] = {}  # ends of the last requests before this process; None: it had not ended
        self.ended: Container[int] = ()  # items that the restored queues still hold although they have ended
        self.retries: dict[int, tuple[int, float]] = {}  # attempts of items in the queues, and when they may run (wall)
        self._keys: dict[str, str] = {}
        self._by_origin: dict[str, Site] = {}  # a cache that spares most links the look-up by key
        self._saved = SeenSet(0)  # keys that have a row in the journal: spares most look-ups there
        self._saved.add_new(journal.keys("sites"))
        # By site, the hosts and ports with an open breaker, until when.
        self._blocked: dict[str, dict[str, float]] | None = None
        self._idle: deque[tuple[float, Site]] = deque()
        self.most_awake = MOST_AWAKE
        self.resting = Resting(spill / "sites")
        self._drowsy: deque[Site] = deque()  # those that may come to rest

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
        site = self.sites.get(key) or self.woken(key)
        if site is None:
            site = self.sites[key] = Site(key, self._site_clock(key))
        return site

    def _site_clock(self, key: str) -> PolitenessClock:
        clock, now = PolitenessClock(self.not_before), self._now()
        self._recall(clock, key, now)
        if self.not_before:  # nobody knows when it was asked last: a full delay, which may be a longer one
            clock.due = max(clock.due, self.not_before + max(0.0, clock.delay_s(self.section) - self.longest_delay_s))
        if self.asked and key in self.asked:
            ended = self.asked.pop(key)
            clock.last_start = clock.last_end = now if ended is None else ended
        return clock

    def address_clock(self, address: str) -> AddressClock:
        """The clock of an address, with its saved state where there is one."""
        clock = self._address_clocks.get(address)
        if clock is None:
            now = self._now()
            self._forget_clocks(now)
            clock = self._address_clocks[address] = AddressClock(address, self.not_before)
            self._recall(clock, _key_of(clock), now)
            if clock.due > now + self.longest_wait_s:
                clock.due, clock.long_until = self.not_before, clock.due
            if self.not_before:  # nobody knows when it was asked last: a full delay, which may be a longer one
                clock.due = max(
                    clock.due, self.not_before + max(0.0, clock.delay_s(self.section) - self.longest_delay_s)
                )
        return clock

    def _forget_clocks(self, now: float) -> None:
        if len(self._address_clocks) < self._most_clocks:
            return
        idle_since = now - FORGET_AFTER_S
        self._address_clocks = {
            address: clock
            for address, clock in self._address_clocks.items()
            if clock.active or clock.parked or self._is_waited_for(clock, idle_since)
        }
        self._most_clocks = max(_KEPT_CLOCKS, 2 * len(self._address_clocks))

    def _is_waited_for(self, clock: PolitenessClock, now: float) -> bool:
        """Whether there may be somebody who must still wait for this clock."""
        own = clock.last_end + max(clock.delay_s(self.section), self.longest_delay_s)
        return max(clock.due, clock.held_until(), own) > now

    def _recall(self, clock: PolitenessClock, key: str, now: float) -> None:
        row = self._journal.row("sites", key) if key in self._saved else None
        if row is not None:
            with undamaged(self._journal.path):
                state = msgspec.msgpack.decode(row[1])
            clock.crawl_delay_s, clock.extra_s = state["crawl_delay"], state["extra"]
            clock.forced_single = state["single"]
            # The wall clock may have been ahead when it was written: no wait is longer than it can have been meant.
            wall, most_s = self._wall(), max(self.longest_wait_s, self.longest_delay_s, clock.delay_s(self.section))
            if isinstance(clock, AddressClock):
                most_s = max(most_s, LONGEST_SILENCE_S)
            clock.due = max(clock.due, now + min(state["due_wall"] - wall, most_s))
            for name, (probes, is_open, held_wall) in state.get("breakers", {}).items():
                if is_open:
                    clock.breakers = clock.breakers or {}
                    breaker = clock.breakers[name] = Breaker()
                    breaker.probes = probes
                    breaker.open_until = now + min(max(0.0, held_wall - wall), self.longest_reset_s)

    def open_breakers(self) -> dict[str, float]:
        """Hosts, with their ports, that have an open breaker, and when one request may go there (wall clock).

        Kept from the first question on: until then the journal alone knows those that nobody waits for.
        """
        if self._blocked is None:
            self._blocked = {}
            for key in self._journal.keys("sites"):
                clock = PolitenessClock()
                self._recall(clock, key, self._now())
                self._note_breaker(key, clock)
        now, wall = self._now(), self._wall()
        until: dict[str, float] = {}
        for blocked in self._blocked.values():
            for name, at in blocked.items():
                if at > now:
                    until[name] = max(until.get(name, 0.0), wall + at - now)
        return until

    def _note_breaker(self, key: str, clock: PolitenessClock) -> None:
        if self._blocked is None:
            return
        self._blocked.pop(key, None)
        blocked: dict[str, float] = {}
        for name, breaker in (clock.breakers or {}).items():
            if breaker.open_until:
                authority = authority_of(name)
                blocked[authority] = max(blocked.get(authority, 0.0), breaker.open_until)
        if blocked:
            self._blocked[key] = blocked

    def wait_s(self, wall: float) -> float:
        """The seconds until a saved wall-clock time. One that lies further ahead than the longest wait there is was
        written while the clock was ahead, and nobody knows how long the wait was meant to be."""
        wait_s = max(0.0, wall - self._wall())
        return wait_s if wait_s <= self.longest_wait_s + LONGEST_BACKOFF_S else LONGEST_BACKOFF_S

    def tried(self, item: int, now: float) -> tuple[int, float]:
        """How often an item was tried before this process, and when it may be tried again."""
        if item not in self.retries:
            return 0, 0.0
        attempt, wall = self.retries[item]  # not removed: an item that was moved up has a second entry
        return attempt, now + self.wait_s(wall)

    def save(self, site: Site) -> None:
        """Has the journal remember what a site, or its address, asked for."""
        clock = site.clock
        key, due = site.key, clock.due
        if isinstance(clock, AddressClock):
            key, due = _key_of(clock), max(due, clock.long_until)
        due, now, wall = max(due, clock.due_for(self.section)), self._now(), self._wall()
        record = {
            "crawl_delay": clock.crawl_delay_s,
            "extra": clock.extra_s,
            "lag": clock.lag_s,
            "recent": max(0.0, clock.recent_s),
            "usual": max(0.0, clock.usual_s),
            "single": clock.forced_single,
            "due_wall": wall + max(0.0, due - now),
            "breakers": {
                name: (breaker.probes, True, wall + breaker.open_until - now)
                for name, breaker in (clock.breakers or {}).items()
                if breaker.open_until
            },
        }
        self._saved.add(key)
        self._note_breaker(key, clock)
        self._journal.put("sites", key, msgspec.msgpack.encode(record))

    def forget_idle(self, now: float) -> list[Site]:
        """Forgets a few of the sites that have long been idle, and returns them."""
        gone: list[Site] = []
        while self._idle and self._idle[0][0] <= now and len(gone) < _FORGOTTEN_AT_ONCE:
            _, site = self._idle.popleft()
            site.idle = False
            if site.gone:
                continue
            if self._may_forget(site, now):
                self._leave(site)
                gone.append(site)
            else:
                self._note_idle(site)
        return gone

    def _may_forget(self, site: Site, now: float) -> bool:
        clock, lanes = site.clock, site.all_lanes()
        return (
            not clock.active
            and not self._is_waited_for(clock, now)
            and not clock.parked
            and not any(lane.queued or lane.flight or site in lane.crawl.blocked for lane in lanes)
            and not any(lane.pages and lane.crawl.limits.max_pages_per_domain for lane in lanes)
        )

    def _note_idle(self, site: Site) -> None:
        if not site.idle and not any(lane.queued for lane in site.all_lanes()):
            site.idle = True
            self._idle.append((self._now() + FORGET_AFTER_S, site))

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
            if not attempt and self._is_at_rest(crawl, found, key):
                self.resting.add(key, crawl.number, packed_page(item, found), self._now())
                self.queued += 1
                crawl.queued += 1
                return
            site = self.site(key)
        lane = site.lane(crawl)
        if not lane.queued:
            lane.served_at = max(lane.served_at, self._now())  # before, it did not wait
        was_empty = not lane.queues  # what is urgent may have to wait
        if found.purpose is Purpose.PAGE and not found.hops and not attempt:
            lane.push(item, origin, url[len(origin) :], found.depth, found.parent, found.offsite)
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
            lane.served_at = max(lane.served_at, self._now())  # before, it did not wait
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

    def lane_at(self, key: str, crawl: Crawl) -> Lane:
        """A crawl's lane at a site, for something that is about to be queued there."""
        lane = self.site(key).lane(crawl)
        if not lane.queued:
            lane.served_at = max(lane.served_at, self._now())  # before, it did not wait
        return lane

    def push_urgent(self, lane: Lane, item: Item, not_before: float = 0.0, *, first: bool = False) -> None:
        """Queues an item before the others of its lane."""
        lane.push_urgent(item, not_before, first=first)
        self.queued += 1
        lane.crawl.queued += 1

    def pop(self, lane: Lane, now: float, is_blocked: IsBlocked | None = None) -> Item | None:
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
            return True
        known = crawl.known(item)
        return known is not None and (known.leased or known.ended or known.depth < item.depth)

    def schedule(self, site: Site, *, asked: Lane | None = None, at: float = 0.0) -> None:
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
        if not self.put_off(site, self._now() if asked is None else at) and asked is None:
            self.wheel.remove(site)

    def put_off(self, site: Site, now: float) -> bool:
        """Puts a site on the wheel again, or where it must wait; False: nothing has a time here."""
        clock = site.clock
        time, is_full = self._time_of(site.lanes, clock)
        if time is not None:
            self._put(site, time, now)
        elif is_full:
            if clock.parked is not None and site.next_time() is not None:
                clock.parked[site] = None
        else:
            if not clock.active:
                self._note_idle(site)
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

    def _time_of(self, lanes: list[Lane], clock: PolitenessClock) -> tuple[float | None, bool]:
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
        now = self._now()
        while room > 0 and clock.parked:
            site = next(iter(clock.parked))
            del clock.parked[site]
            at, _ = self._time_of(site.lanes, site.clock)
            if at is not None:
                self.wheel.put(site, at, now)
                room -= at <= max(clock.due_for(self.section), now)

    # ── at rest ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_at_rest(self, crawl: Crawl, found: Found, key: str) -> bool:
        """Whether a page goes to the end of a queue that is at rest, or will be."""
        if found.purpose is not Purpose.PAGE or found.hops or key in self.sites:
            return False
        at_rest = self.resting.find(key) if self.resting else None
        if at_rest is not None:
            # Where a site's queue is bounded, it is woken and counted.
            return at_rest == (crawl.number, False) and crawl.limits.max_pages_per_domain is None
        return len(self.sites) >= self.most_awake

    def woken(self, key: str) -> Site | None:
        """Wakes a site; None if it is not at rest."""
        taken = self.resting.take(key) if self.resting else None
        return None if taken is None else self._wake(self.crawls[taken[0]], taken[1])

    def wake_due(self, limit: int, now: float, *, is_stuck: bool = False) -> None:
        """Wakes as many sites as a claim of `limit` needs; where there is room, some in any case: each has its turn.

        `is_stuck`: those that nobody knows wait for a slot. What is woken behind them may be others.
        """
        if not self.resting:
            return
        due, is_roomy = self.wheel.due(now), len(self.sites) < self.most_awake
        unknown = 0 if is_stuck else self.wheel.waiting(Shown.UNKNOWN)
        share = limit // (KNOWN_TURNS + 1) + 1 - unknown if is_roomy else 0
        for crawl in self.crawls.values():
            count = 0 if crawl.paused else min(max(limit - due - len(crawl.ready), share), crawl.permits())
            while count > 0 and (rows := self.resting.take_due(crawl.number, now)) is not None:
                self._wake(crawl, rows)
                count -= 1

    def rest(self, now: float, release: Callable[[Lane], object]) -> list[Lane]:
        """Brings some of the sites to rest that may; returns their lanes. What they wait for, `release` lets go."""
        rested: list[Lane] = []
        for _ in range(min(len(self._drowsy), _RESTED_AT_ONCE)):
            site = self._drowsy.popleft()
            if site.gone:
                continue
            at, _ = self._time_of(site.lanes, site.clock)
            lane = self._lane_to_rest(site)
            if lane is not None and at is not None:
                release(lane)
                self._bring_to_rest(site, lane, at)
                rested.append(lane)
            elif at is not None and site.tick == IDLE:
                self.wheel.put(site, at, now)
        return rested

    def settle(self, site: Site, lane: Lane) -> None:
        """A site was restored: where many are, it comes to rest at once."""
        if len(self.sites) > self.most_awake and self._lane_to_rest(site) is lane:
            self._bring_to_rest(site, lane, self._now())

    def next_due(self, ranks: Sequence[int] = tuple(Shown)) -> float | None:
        """When something of these ranks may be due."""
        if self._drowsy or any(crawl.permits() > 0 for crawl in self.blocked.values()):
            return 0.0  # a claim lets sites go on that wait for a permit which nobody uses
        first = self.wheel.next_due(ranks)
        if self.resting:
            # While nobody that is unknown has a slot, those at rest are woken by the way, and are no reason to claim.
            now = -1.0 if Shown.UNKNOWN in ranks else self._now()
            for crawl in self.crawls.values():
                at = self.resting.next_due(crawl.number) if self.resting.count(crawl.number) else None
                at = None if at is not None and at <= now else at
                if at is not None and (first is None or at < first) and not crawl.paused and crawl.permits() > 0:
                    first = at
        return first

    def lanes_at_rest(self, crawl: Crawl) -> Iterator[Lane]:
        """A crawl's lanes at sites that are at rest, which they stay."""
        for rows in self.resting.of_crawl(crawl.number):
            site, lane = self._unpacked(crawl, rows, is_woken=False)
            del crawl.sites[site]
            yield lane

    def take_out(self, crawl: Crawl) -> Iterator[Lane]:
        """A crawl's lanes at sites that are at rest, to be emptied; a site that somebody must wait for stays awake."""
        while (rows := self.resting.take_due(crawl.number, float("inf"))) is not None:
            site, lane = self._unpacked(crawl, rows)
            yield lane
            if self._is_waited_for(site.clock, self._now()):
                self.sites[site.key] = site
                self._note_idle(site)
            else:
                crawl.sites.pop(site, None)

    def drop_at_rest(self, crawl: Crawl, alive: Alive = silent) -> None:
        """A crawl has ended: what it has at sites that are at rest is gone."""
        while (rows := self.resting.take_due(crawl.number, float("inf"))) is not None:
            alive()
            if not rows[0].startswith(SITE):
                self.queued -= len(rows)  # nobody has asked there
                continue
            site, lane = self._unpacked(crawl, rows)
            self.queued -= lane.queued
            lane.clear()
            if self._is_waited_for(site.clock, self._now()):
                self.sites[site.key] = site
            else:
                del crawl.sites[site]

    def _wake(self, crawl: Crawl, rows: list[bytes]) -> Site:
        site, _ = self._unpacked(crawl, rows)
        self.sites[site.key] = site
        self.schedule(site)
        return site

    def _unpacked(self, crawl: Crawl, rows: list[bytes], *, is_woken: bool = True) -> tuple[Site, Lane]:
        if rows[0].startswith(SITE):
            site, lane = unpacked_site(rows[0], crawl, self.address_clock)
            rows = rows[1:]
        else:
            key = self.key_of(unpacked_page(rows[0])[-1])
            # When an earlier process asked it is told once: to whoever may ask it next.
            site = Site(key, self._site_clock(key) if is_woken else PolitenessClock())
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
        if any(self.key_about(item.about) != site.key for _, _, item in robots):
            return None  # another site waits for what a redirect led to here
        return waiting[0]

    def _bring_to_rest(self, site: Site, lane: Lane, due: float) -> None:
        wakes = not lane.queues or site.clock.held_until() > 0.0  # a page of another host need not wait for a breaker
        self.resting.add(site.key, lane.crawl.number, packed_site(site, lane), due, wakes=wakes)
        self.wheel.remove(site)
        self._leave(site)

    def _leave(self, site: Site) -> None:
        """A site is not awake any more."""
        del self.sites[site.key]
        site.gone = True
        for lane in site.all_lanes():
            del lane.crawl.sites[site]
            for origin in lane.origins:
                self._by_origin.pop(origin, None)

    # ── permits ────────────────────────────────────────────────────────────────────────────────────────────────────

    def block(self, crawl: Crawl, site: Site) -> None:
        """A site must wait until its crawl has a permit again."""
        crawl.blocked[site] = None

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


def _may_pass(site: Site, lane: Lane) -> bool:
    """Whether what is queued now may run before the others: they may all be behind an open breaker."""
    return site.clock.breakers is not None and len(lane.origins) > 1


def _key_of(clock: AddressClock) -> str:
    """Its key in the journal's table of sites; no host contains a space."""
    return f"ip {clock.address}"
