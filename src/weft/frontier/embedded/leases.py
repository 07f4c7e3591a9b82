"""Leases of an embedded frontier: what is due is claimed, and what was claimed ends.

A claim is in the request log before it is returned, so that every politeness clock survives a kill; leases of an older
epoch change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from weft.errors import DiskFull
from weft.frontier.contract import (
    End,
    Ended,
    Item,
    Outcome,
    Rejection,
    RobotsRecord,
    Slots,
    Wanted,
)
from weft.frontier.embedded.checkpoint import OpenItem
from weft.frontier.embedded.sites import PASSED_OVER, Crawl, IsBlocked, Lane, Site, origin_of
from weft.frontier.embedded.state import State
from weft.frontier.politeness import (
    LONG_WAIT,
    LONGEST_BACKOFF_S,
    UNREACHABLE_S,
    AddressClock,
    PolitenessClock,
    Shown,
    authority_of,
    breaker_name,
    log_change,
)
from weft.records import Lease, Purpose, Reason

LOOK_FURTHER_S = 1.0  # until a lane is looked at again whose queue begins with more than are passed over at once


class LiveLease:
    """A lease that is out, with the site, lane, clock and item that it holds."""

    __slots__ = ("clock", "cooled", "gave_up", "item", "lane", "lease", "noted", "rank", "site")

    def __init__(self, lease: Lease, site: Site, lane: Lane, item: Item) -> None:
        self.lease = lease
        self.site = site
        self.clock = site.clock  # which counts this request; the site may move to its address's clock later
        self.lane = lane
        self.item = item
        self.cooled = False
        self.gave_up = False  # it was the last probe of an origin that was given up
        self.noted = ""  # the key under which the machine's clock counts it
        self.rank = site.clock.shown  # whose slot it has


class Leases(State):
    """Claiming and ending."""

    def claim(self, owner: str, limit: int, slots: Slots | None = None) -> list[Lease]:
        """Leases for what is due, in the request log before it returns."""
        now = self.now()
        self._turns.limit(slots)
        self._expire(now)
        self._forget_idle(now)
        self._rest(now)
        self._queues.wake_due(limit, now, is_stuck=not self._turns.has_room(Shown.UNKNOWN))
        with self._machine.locked() as may_claim:
            leases = self._claim(owner, limit, now) if may_claim else []
        if leases:
            try:
                self._journal.save_history()
                self._requests.flush()
            except DiskFull:
                self.finish(Outcome(lease, End.RELEASE) for lease in leases)
                raise
        return leases

    def _claim(self, owner: str, limit: int, now: float) -> list[Lease]:
        leases: list[Lease] = []
        while len(leases) < limit:
            lane = self._next_lane(now)
            if lane is None:
                if self._queues.unblock_waiting():
                    continue
                break
            lease = self._claim_at(lane, owner, now)
            if lease is not None:
                leases.append(lease)
        return leases

    def depth_of(self, lease: Lease) -> int:
        """From the known depths, which are kept where there is a `max_depth`; else the lease's own."""
        crawl = self._queues.crawls[lease.crawl]
        known = crawl.depths.get(crawl.seen.fingerprint(lease.url)) if crawl.depths is not None else None
        return lease.depth if known is None or known.item != lease.item else min(known.depth, lease.depth)

    def cool(self, ended: Iterable[Ended]) -> None:
        """Frees the places and sets the clocks."""
        over: list[tuple[str, float, float]] = []
        for one in ended:
            state = self._valid(one.lease)
            if state is None or state.cooled:
                continue
            state.cooled = True
            self._requests.end(one.lease.item, one.at, one.outcome or "-")
            self._end_request(state, one)
            self._schedule(state)
            over.append((state.noted, one.at, state.clock.due))
        self._machine.ended(over)
        self._commit_sites()

    def finish(self, outcomes: Iterable[Outcome], batch: int = 0) -> list[bool]:
        """Ends leases. `batch`: the store's batch that `acknowledge` names once it is durable."""
        accepted = []
        unasked = False
        for outcome in outcomes:
            state = self._valid(outcome.lease)
            accepted.append(state is not None)
            if state is None:
                continue
            self._take_home(state)
            if not state.cooled:
                self._free_place(state)
                self._machine.ended([(state.noted, self.now(), 0.0)])
                self._requests.end(outcome.lease.item, self.now(), "unasked")
                unasked = True
            self._end_lease(state, outcome, batch)
            self._schedule(state)
        if unasked:
            self._requests.try_flush()
        return accepted

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Remembers an origin's robots.txt; its Crawl-delay raises the site's delay."""
        self._robots.learn(origin, record)
        self._requests.robots(self.now(), origin, record)
        site = self._queues.site(self._queues.key_about(origin))
        if crawl_delay_s and crawl_delay_s > site.clock.crawl_delay_s:
            site.clock.crawl_delay_s = crawl_delay_s
            site.clock.forced_single = True
            # The request for robots.txt has already ended, and set `due` with the shorter delay.
            site.clock.due = max(site.clock.due, self.now() + crawl_delay_s)
            self._save_site(site)
            self._commit_sites()
        self._queues.schedule(site)

    def next_due(self) -> float | None:
        """When claiming may give something next."""
        return 0.0 if self._queues.fairness else self._queues.next_due(self._turns.with_room())

    def cookies_of(self, lease: Lease) -> tuple[int, bytes] | None:
        """What an earlier process has kept of a lease's site."""
        return self._cookies.of(lease)

    def keep_cookies(self, crawl: int, key: str, data: bytes) -> int:
        """Durable with the next commit, like the links of the answer that set them."""
        return self._cookies.keep(crawl, key, data)

    def take_places(self, wanted: Sequence[Wanted]) -> list[bool]:
        """Moves each site to the clock of its address, which it shares with all other sites there."""
        with self._machine.locked() as may_ask:
            granted = [self._take_place(one, may_ask) for one in wanted]
        if not all(granted):
            self._requests.try_flush()
        self._commit_sites()
        return granted

    def _take_place(self, wanted: Wanted, may_ask: bool) -> bool:
        state = self._valid(wanted.lease)
        if state is None:
            return False
        clock, before, site, now = self._queues.address_clock(wanted.address), state.clock, state.site, self.now()
        was = clock.crawl_delay_s
        clock.wants(wanted.crawl_delay_s)
        raised = clock.crawl_delay_s > was
        if clock is before and not raised and clock.long_until <= now:
            return True
        before.active -= 1
        self._machine.ended([(state.noted, now, 0.0)])
        section = state.lane.crawl.section
        name = breaker_name(state.lane.crawl.trust, state.lease.url)
        may_go = (
            may_ask
            and max(clock.due_for(section), clock.long_until) <= now
            and clock.has_room(section)
            and not self._is_held(clock, name, now, state.lease.item)
            and self._machine_due(clock, clock.address, state.lane.crawl, now) <= now
        )
        if not isinstance(site.clock, AddressClock):
            clock.joined(site.clock)
        site.clock = state.clock = clock
        if raised:
            self._save_site(site)
        if may_go:
            clock.started(now)
            self._note_probe(clock, name, state.lease.item)
            self._note_start(state, now)
        else:
            self._take_home(state)
            self._turns.out[state.rank] -= 1
            self._requests.end(wanted.lease.item, now, "unasked")
            self._give_back(state, state.item.attempt, 0.0, first=True)
        if clock.long_until > now:
            for lane in site.all_lanes():
                self._reject(lane, Reason.RETRY_AFTER)
        if before is not clock:
            self._queues.wake(before)
        if not may_go or clock.has_room(section):
            self._queues.schedule(site)
        return may_go

    # ── claiming ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _next_lane(self, now: float) -> Lane | None:
        """What to try next: of one crawl the site that has been due longest, of several by turns."""
        queues = self._queues
        if len(queues.crawls) == 1 and not queues.fairness:
            while (site := self._turns.pop(queues.wheel, now)) is not None:
                if site.lanes:
                    return site.lanes[0]
            return None
        for rank in self._turns.with_room():
            while (site := queues.wheel.pop(now, rank)) is not None:
                if not queues.fairness.offer(site, now):
                    queues.put_off(site, now)  # what it was put there for is gone, or its clock has moved on
        while (lane := queues.fairness.next()) is not None and not self._turns.has_room(lane.site.rank):
            queues.wheel.put(lane.site, now, now)
        return lane

    def _claim_at(self, lane: Lane, owner: str, now: float) -> Lease | None:
        site = lane.site
        if len(site.lanes) > 1 and (longest := self._longest_waiting(site, lane, now)) is not lane:
            due = site.clock.due_for(longest.crawl.section)
            if due > now:  # its own delay is longer than the others': they wait, or it never has a turn
                self._queues.wheel.put(site, due, now)
                return None
            lane = longest
        clock, section = site.clock, lane.crawl.section
        if clock.active >= clock.places(section) and clock.parked is None:
            return None  # others came first; the end of one of theirs schedules the site
        if clock.active >= clock.places(section) or clock.due_for(section) > now:
            self._queues.schedule(site)
            return None
        due = self._machine_due(clock, _machine_key(site, clock), lane.crawl, now)
        if due > now:  # another process of this user has asked this site, or is about to
            site.held = (now if site.held is None else site.held[0], due)
            self._queues.wheel.put(site, due, now)
            return None
        site.held = None
        item = self._take(site, lane, now)
        if item is None:
            self._queues.schedule(site, asked=lane, at=now)
            return None
        lease = self._lease(site, lane, item, owner, now)
        self._queues.schedule(site)
        return lease

    def _machine_due(self, clock: PolitenessClock, key: str, crawl: Crawl, now: float) -> float:
        alone = clock.places(crawl.section) == 1
        return self._machine.due(key, now, clock.delay_s(crawl.section), alone=alone)

    def _note_start(self, state: LiveLease, now: float) -> None:
        state.noted = _machine_key(state.site, state.clock)
        self._machine.started(state.noted, now, state.lane.crawl.section.lease_s)

    def _longest_waiting(self, site: Site, lane: Lane, now: float) -> Lane:
        """The lane whose turn it is, or one of another crawl that has waited ten of its own delays."""
        for other in site.lanes:
            if other.served_at < lane.served_at and other.may_run(now) and other.has_budget():
                delay_s = other.crawl.section.delay_s
                if delay_s and now - other.served_at > LONG_WAIT * delay_s and other.crawl.permits() > 0:
                    lane = other
        return lane

    def _take(self, site: Site, lane: Lane, now: float) -> Item | None:
        """The lane's next item; robots.txt first where it is not known."""
        if not lane.queued:
            return None
        if lane.crawl.permits() <= 0:
            self._queues.block(lane.crawl, site)
            return None
        if not lane.has_budget():
            return None
        is_blocked = self._blocked_origins(site.clock, lane.crawl.trust, now)
        item = self._queues.pop(lane, now, is_blocked)
        if item is None and is_blocked is not None:
            lane.look_at = _look_again_at(lane, site.clock, now)
        if item is None or item.purpose is Purpose.ROBOTS:
            return item
        origin = origin_of(item.url)
        about = lane.crawl.trust + origin
        if self._robots.is_in_force(about):
            return item
        self._queues.push_urgent(lane, item, first=True)
        if about in self._robots.pending:
            return None
        self._robots.pending.add(about)
        attempt, wall = self._robots.tried(about)
        robots = Item(
            self._transient(), origin + "/robots.txt", item.depth, item.item, 0, Purpose.ROBOTS, about, attempt
        )
        if wall <= self._wall():
            return robots
        # An earlier process has failed to get it, and its wait is not over.
        self._queues.push_urgent(lane, robots, now + self._queues.wait_s(wall))
        return None

    def _blocked_origins(self, clock: PolitenessClock, trust: str, now: float) -> IsBlocked | None:
        """What tells whether an origin's breaker is open, for crawls of one trust; None where none of the site's is."""
        if clock.breakers is None or not any(breaker.open_until for breaker in clock.breakers.values()):
            return None
        return lambda origin: self._is_held(clock, trust + origin, now)

    def _is_held(self, clock: PolitenessClock, name: str, now: float, item: int = 0) -> bool:
        """Whether nothing may be asked behind a breaker now: it is open, and its time has not come, or its probe (but
        for `item` itself) is out."""
        breaker = clock.breaker(name)
        if breaker is None or not breaker.open_until:
            return False
        if breaker.open_until > now:
            return True
        probe = self._leases.get(breaker.probe) if breaker.probe != item else None
        return probe is not None and not probe.cooled

    def _note_probe(self, clock: PolitenessClock, name: str, item: int) -> None:
        """A request goes out: behind an open breaker it is the probe."""
        breaker = clock.breaker(name)
        if breaker is not None and breaker.open_until:
            breaker.probe = item

    def _release_robots(self, lane: Lane) -> None:
        """Other crawls must not wait for a robots.txt that this one will not ask for."""
        released, lane.robots = lane.robots or (), None
        self._queues.queued -= len(released)
        lane.crawl.queued -= len(released)
        lane.queued -= len(released)
        for _, _, item in released:
            self._let_go(item.about, lane.site)

    def _let_go(self, about: str, here: Site | None = None) -> None:
        """A robots.txt does not come from who was to ask for it: whoever waits for it may ask. A redirect may have led
        from their site to another; `here`: the one that is scheduled in any case."""
        self._robots.pending.discard(about)
        site = self._queues.sites.get(self._queues.key_about(about))
        if site is not None and site is not here:
            self._queues.schedule(site)

    def _mark(self, item: Item, crawl: Crawl, *, leased: bool) -> None:
        if (known := crawl.known(item)) is not None:
            known.leased = leased

    def _mark_ended(self, item: Item, crawl: Crawl) -> None:
        if (known := crawl.known(item)) is not None:
            known.ended = True

    def _lease(self, site: Site, lane: Lane, item: Item, owner: str, now: float) -> Lease:
        section = lane.crawl.section
        delay_s = site.clock.delay_s(section)
        lease = Lease(
            item.item, lane.crawl.number, item.url, site.key, item.depth, item.parent, item.hops, item.purpose,
            item.about, item.offsite, item.attempt, owner, self.epoch, now + section.lease_s, delay_s,
        )  # fmt: skip
        live = self._leases[item.item] = LiveLease(lease, site, lane, item)
        self._turns.out[live.rank] += 1
        site.clock.started(now)
        if site.clock.breakers is not None:
            self._note_probe(site.clock, breaker_name(lane.crawl.trust, item.url), item.item)
        site.out += 1
        site.served += 1
        self._note_start(live, now)
        lane.served_at = now
        if len(self._queues.crawls) > 1:  # one that is alone must not pay for it when another comes
            self._queues.fairness.served(lane.crawl)
        lane.crawl.leased += 1
        if item.purpose is Purpose.PAGE:
            lane.flight += 1
            lane.crawl.flight += 1
            self._mark(item, lane.crawl, leased=True)
        self._requests.start(item.item, now, site.key, delay_s, site.clock.places(section), item.url, lease.crawl)
        return lease

    def _expire(self, now: float) -> None:
        """Queues the items of expired leases again; leases are in the order of their deadlines."""
        while self._leases:
            state = next(iter(self._leases.values()))
            if state.lease.deadline > now:
                return
            self._take_home(state)
            if not state.cooled:
                self._free_place(state)
                self._requests.end(state.lease.item, now, "expired")
                state.clock.ended(now)
                self._machine.ended([(state.noted, now, 0.0)])
            self._give_back(state, state.item.attempt, 0.0, first=True)
            self._schedule(state)

    def _take_home(self, state: LiveLease) -> None:
        """A lease is over."""
        del self._leases[state.lease.item]
        state.lane.crawl.leased -= 1
        state.site.out -= 1

    def _valid(self, lease: Lease) -> LiveLease | None:
        state = self._leases.get(lease.item)
        return state if state is not None and state.lease == lease else None

    # ── ending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _schedule(self, state: LiveLease) -> None:
        self._queues.schedule(state.site)
        if state.clock is not state.site.clock and state.clock.parked:
            self._queues.wake(state.clock)

    def _free_place(self, state: LiveLease) -> None:
        state.clock.active -= 1
        self._turns.out[state.rank] -= 1

    def _end_request(self, state: LiveLease, ended: Ended) -> None:
        clock, section, trust = state.clock, state.lane.crawl.section, state.lane.crawl.trust
        name = breaker_name(trust, ended.lease.url)
        self._free_place(state)
        clock.ended(ended.at)
        before = clock.logged_state(name)
        if ended.took_s is not None or ended.ok is not None:
            clock.took(ended.took_s if ended.took_s is not None or not ended.ok else 0.0, section)
        if ended.slow_down:
            clock.slow_down(ended.at, ended.retry_after_s, section, in_trouble=ended.in_trouble)
            if (ended.retry_after_s or 0.0) > section.max_retry_after_s:
                for lane in state.site.all_lanes():
                    self._reject(lane, Reason.RETRY_AFTER)
        if ended.ok is False:
            state.site.failure = f"HTTP {ended.outcome}" if ended.outcome.isdecimal() else ended.outcome
        if ended.ok is not None:
            clock.answered(ended.lease.item, ended.ok, ended.at, section, name)
        after = clock.logged_state(name)
        if before != after or ended.slow_down:
            self._save_site(state.site)
            clock.log_changes(before, state.site.key, section, name)
        if after[2] > before[2] and clock.is_given_up(section, name):
            state.gave_up = True
            self._give_up(state.site, trust, origin_of(ended.lease.url))

    def _give_up(self, site: Site, trust: str, origin: str) -> None:
        """What the crawls of one trust have queued for an origin is rejected: its breaker has stayed open for too long.
        What is queued from now on waits for the next probe."""
        for lane in site.all_lanes():
            if lane.crawl.trust == trust:
                self._reject(lane, Reason.BREAKER, origin, site.failure)

    def _end_lease(self, state: LiveLease, outcome: Outcome, batch: int) -> None:
        lane, item = state.lane, state.item
        if lane.crawl.is_closed:
            if item.purpose is Purpose.ROBOTS:
                self._let_go(item.about, state.site)
            return
        if outcome.end is End.RETRY and state.gave_up:
            if item.purpose is Purpose.PAGE:
                self._free_permit(lane)
                self._mark(item, lane.crawl, leased=False)
                item = lane.crawl.at_known_depth(item)
            self._reject_items([item], lane, Reason.BREAKER, origin_of(item.url), state.site.failure)
            return
        if outcome.end in (End.RETRY, End.RELEASE):
            again = outcome.end is End.RETRY
            # A site may name any time in Retry-After; nothing waits longer than the settings allow.
            wait_s = min(outcome.wait_s, lane.crawl.section.max_retry_after_s + LONGEST_BACKOFF_S)
            self._give_back(state, item.attempt + again, self.now() + wait_s if again else 0.0, first=not again)
            return
        if item.purpose is Purpose.PAGE:
            self._free_permit(lane)
            self._mark_ended(item, lane.crawl)
            if outcome.end is End.PAGE:
                lane.pages += 1
                lane.crawl.pages += 1
        self._end_item(OpenItem(lane.crawl.number, item), batch)

    def _give_back(self, state: LiveLease, attempt: int, not_before: float, *, first: bool) -> None:
        item = state.item
        wall = self._wall() + max(0.0, not_before - self.now())
        if state.lane.crawl.is_closed or (item.purpose is Purpose.ROBOTS and state.lane.crawl.paused):
            if item.purpose is not Purpose.ROBOTS:
                return
            if attempt != item.attempt:
                self._robots.failed(item.about, attempt, wall)
            self._let_go(item.about, state.site)  # whoever needs it next asks for it again, when its wait is over
            return
        if item.purpose is Purpose.PAGE:
            self._free_permit(state.lane)
            self._mark(item, state.lane.crawl, leased=False)
            item = state.lane.crawl.at_known_depth(item)
        if attempt != item.attempt:
            item = msgspec.structs.replace(item, attempt=attempt)
            if item.purpose is Purpose.ROBOTS:
                self._robots.failed(item.about, attempt, wall)
            else:
                self._journal.put("retries", item.item, attempt, wall, state.lane.crawl.number)
        # The site may have been forgotten while this was out.
        lane = self._queues.lane_at(state.site.key, state.lane.crawl)
        self._queues.push_urgent(lane, item, not_before, first=first)
        self._queues.schedule(lane.site)

    def _free_permit(self, lane: Lane) -> None:
        lane.flight -= 1
        lane.crawl.flight -= 1
        self._queues.unblock(lane.crawl)

    def _reject(self, lane: Lane, reason: Reason, origin: str = "", detail: str = "") -> None:
        """Empties a lane, or removes what it has of one origin; `rejections` returns its items."""
        queued = lane.queued
        if origin:
            waiting = lane.remove(origin)
        else:
            waiting = list(lane.items())
            lane.clear()
        self._queues.queued -= queued - lane.queued
        lane.crawl.queued -= queued - lane.queued
        self._reject_items(waiting, lane, reason, origin, detail)

    def _reject_items(
        self, waiting: list[Item], lane: Lane, reason: Reason, origin: str = "", detail: str = ""
    ) -> None:
        before = len(self._rejected)
        for item in waiting:
            if item.purpose is Purpose.ROBOTS:
                self._reject_robots(item, lane, reason, origin)
            elif not self._queues.is_void(lane.crawl, item):
                self._mark_ended(item, lane.crawl)
                self._rejected.append(Rejection(item, lane.crawl.number, reason, detail))
                self._rejected_out[item.item] = OpenItem(lane.crawl.number, item)
        if count := len(self._rejected) - before:
            log_change(reason, authority_of(origin) if origin else lane.key, count)

    def _reject_robots(self, item: Item, lane: Lane, reason: Reason, origin: str) -> None:
        """A robots.txt is not asked for. Where a redirect has led to what is given up, it cannot be had: whoever asked
        again would be led there again."""
        about = item.about.rpartition(" ")[2]
        is_given_up_too = about == origin if origin else self._queues.key_about(item.about) == lane.key
        if reason is Reason.DROPPED or is_given_up_too:
            self._let_go(item.about)
        else:
            self._give_up_robots(item, reason)

    def _give_up_robots(self, item: Item, reason: Reason) -> None:
        until = self._wall() + UNREACHABLE_S
        self.robots_known(item.about, RobotsRecord("unreachable", b"", until, f"{reason} at {item.url}"), None)

    def _forget_idle(self, now: float) -> None:
        for site in self._queues.forget_idle(now):
            for lane in site.all_lanes():
                for origin in lane.origins:
                    self._robots.forget(lane.crawl.trust + origin)

    def _rest(self, now: float) -> None:
        """Brings sites to rest; a robots.txt that one waits for is asked for again when it is woken."""
        for lane in self._queues.rest(now, self._release_robots):
            for origin in lane.origins:
                self._robots.forget(lane.crawl.trust + origin)


def _look_again_at(lane: Lane, clock: PolitenessClock, now: float) -> float:
    """When a lane whose next URLs are behind open breakers is tried again: when a probe is due, or something that has
    to wait by itself; in a moment where not all of it was looked at. 0: an event will come."""
    times = [one.open_until for one in (clock.breakers or {}).values() if one.open_until > now]
    times += [entry[0] for entry in lane.urgents() if entry[0] > now][:1]
    if len(lane.origins) > 1 and any(len(queue) > PASSED_OVER for queue in lane.queues):
        times.append(now + LOOK_FURTHER_S)
    return min(times, default=0.0)


def _machine_key(site: Site, clock: PolitenessClock) -> str:
    return clock.address if isinstance(clock, AddressClock) else site.key
