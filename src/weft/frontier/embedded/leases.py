"""Leases of an embedded frontier: claims items that are due, and ends leases.

A claim is in the request log before it is returned, so that every politeness clock survives a kill; leases of an older
epoch have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from weft.errors import DiskFull
from weft.frontier.contract import End, EndedLease, HandRouter, Item, SlotRequest, Slots, TransferEnd
from weft.frontier.durability.checkpoint import OpenItem
from weft.frontier.embedded.choosing import QueueChooser, machine_key
from weft.frontier.embedded.durability import EmbeddedDurability
from weft.frontier.embedded.excluded import ExcludedItems
from weft.frontier.embedded.kept_requests import KeptRequest
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.rejected import EmbeddedRejected
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.politeness import LONGEST_BACKOFF_S, AddressClock, PolitenessClock, Responsiveness, breaker_name
from weft.frontier.scheduling.sites import Site, SiteQueue, origin_of
from weft.frontier.scheduling.turns import ClassTurns
from weft.frontier.scheduling.wheel import IDLE
from weft.records import Lease, Purpose, Reason


class LiveLease:
    """A lease that is out, with its site, queue, clock and item."""

    __slots__ = ("clock", "cooled", "gave_up", "item", "lease", "machine_key", "queue", "rank", "site")

    def __init__(self, lease: Lease, site: Site, queue: SiteQueue, item: Item) -> None:
        self.lease = lease
        self.site = site
        self.clock = site.clock  # counts this request; the site may move to its address's clock later
        self.queue = queue
        self.item = item
        self.cooled = False
        self.gave_up = False  # it was the last probe of an origin that is given up
        self.machine_key = ""  # the key under which the machine's clock counts the request
        self.rank = site.clock.shown  # the class whose slot it uses


class EmbeddedLeases:
    """See the contract. Holds the leases that are out, in the order of their deadlines."""

    def __init__(
        self,
        base: FrontierResources,
        sites: EmbeddedSites,
        rejected: EmbeddedRejected,
        durability: EmbeddedDurability,
        excluded: ExcludedItems,
    ) -> None:
        self.epoch = base.epoch
        self._base, self._now = base, base.now
        self._queues, self._requests, self._machine = base.queues, base.requests, base.machine
        self._kept_requests = base.kept_requests
        self._sites = sites
        self._rejected = rejected
        self._durability = durability
        self._excluded = excluded
        self._live_leases: dict[int, LiveLease] = {}
        self._turns = ClassTurns()
        self._choice = QueueChooser(base, sites.robots_files, self._turns, self._live_leases)

    def __len__(self) -> int:
        return len(self._live_leases)

    def claim(self, owner: str, limit: int, slots: Slots | None = None, route: HandRouter | None = None) -> list[Lease]:
        """Leases for what is due, in the request log before it returns, with the hands that shall make them."""
        now = self._now()
        self._turns.limit(slots)
        self._expire_leases(now)
        self._sites.forget_idle_sites(now)
        self._queues.swapping.swap_in_due(limit, now, is_stuck=not self._turns.has_room(Responsiveness.UNKNOWN))
        with self._machine.locked() as may_claim:
            leases = self._claim_due(owner, limit, now, route) if may_claim else []
        if leases:
            try:
                self._base.journal.save_robots_history()
                self._requests.flush()
            except DiskFull:
                self.finish(EndedLease(lease, End.RELEASE) for lease in leases)
                raise
        return leases

    def next_due(self) -> float | None:
        """When a claim may next return something."""
        return 0.0 if self._queues.fairness else self._queues.next_due(self._turns.classes_with_room())

    def sending(self, leases: Sequence[Lease]) -> None:
        """See the contract; also commits the items' lines, which may not be committed yet."""
        self._kept_requests.mark_sent(lease.item for lease in leases)
        self._base.journal.commit()
        self._base.journal.sync()

    def not_sent(self, lease: Lease) -> None:
        """See the contract; durable from the next commit on."""
        self._kept_requests.mark_sent([lease.item], sent=False)

    def claim_slots(self, wanted: Sequence[SlotRequest]) -> list[bool]:
        """Moves each site to the clock of its address, which all sites there share."""
        with self._machine.locked() as may_ask:
            granted = [self._claim_slot(one, may_ask) for one in wanted]
        if not all(granted):
            self._requests.try_flush()
        self._sites.commit_saved()
        return granted

    def depth_of(self, lease: Lease) -> int:
        """From the known depths, which exist with a `max_depth`; otherwise the lease's own."""
        crawl = self._queues.crawls[lease.crawl]
        known = crawl.depths.get(crawl.seen.fingerprint(lease.url)) if crawl.depths is not None else None
        return lease.depth if known is None or known.item != lease.item else min(known.depth, lease.depth)

    def cool(self, ended: Iterable[TransferEnd]) -> None:
        """Frees the slots and sets the clocks."""
        over: list[tuple[str, float, float]] = []
        for one in ended:
            state = self._valid_lease(one.lease)
            if state is None or state.cooled:
                continue
            state.cooled = True
            self._requests.log_end(one.lease.item, one.at, one.outcome or "-")
            self._end_request(state, one)
            self._schedule_site(state)
            over.append((state.machine_key, one.at, state.clock.due))
        self._machine.ended(over)
        self._sites.commit_saved()

    def finish(self, outcomes: Iterable[EndedLease], batch: int = 0) -> list[bool]:
        """Ends leases. `batch`: the store's batch that `acknowledge` names once it is durable."""
        accepted = []
        unasked = False
        for outcome in outcomes:
            state = self._valid_lease(outcome.lease)
            accepted.append(state is not None)
            if state is None:
                continue
            if state.cooled:
                self._remove_lease(state)
            else:
                unasked = self._release_lease(state, "unasked", self._now()) or unasked
            self._end_lease(state, outcome, batch)
            if outcome.end in (End.RETRY, End.RELEASE) or not state.cooled or not _is_scheduled(state.site):
                self._schedule_site(state)
        if unasked:
            self._requests.try_flush()
        return accepted

    def exclude(self, leases: Iterable[Lease]) -> None:
        """Excludes items that an edit no longer admits, until a later edit does; no request was sent for them."""
        for lease in leases:
            state = self._valid_lease(lease)
            if state is None:
                continue
            self._release_lease(state, "unasked", self._now())
            self._excluded.add(lease.crawl, self._item_to_requeue(state.queue, state.item))
            self._schedule_site(state)
        self._requests.try_flush()

    def open_items(self) -> list[OpenItem]:
        """The items that are out."""
        return [
            OpenItem(state.queue.crawl.number, state.item)
            for state in self._live_leases.values()
            if state.item.item > 0
        ]

    # ── claiming ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _claim_due(self, owner: str, limit: int, now: float, route: HandRouter | None) -> list[Lease]:
        leases: list[Lease] = []
        next_queue, item_at = self._choice.next_queue, self._choice.item_at
        while len(leases) < limit:
            queue = next_queue(now)
            if queue is None:
                if self._queues.schedule_all_blocked():
                    continue
                break
            chosen = item_at(queue, now)
            if chosen is not None:
                kept = self._kept_requests.request_of(chosen[1].item)
                if kept.may_have_been_sent or kept.data is None:
                    self._reject_returned(*chosen, kept)
                else:
                    leases.append(self._make_lease(*chosen, owner, now, kept.data, route))
                self._queues.schedule(queue.site)
        return leases

    def _reject_returned(self, queue: SiteQueue, item: Item, kept: KeptRequest) -> None:
        """Rejects an item that came back and must not be sent again, or cannot be."""
        reason = Reason.UNKNOWN_OUTCOME if kept.may_have_been_sent else Reason.LOST_REQUEST
        self._rejected.reject_item(item, queue.crawl, reason, "")

    def _make_lease(
        self, queue: SiteQueue, item: Item, owner: str, now: float, request: bytes, route: HandRouter | None
    ) -> Lease:
        site, section = queue.site, queue.crawl.section
        delay_s = site.clock.delay_s(section)
        lease = Lease(
            item.item, queue.crawl.number, item.url, site.key, item.depth, item.parent, item.hops, item.purpose,
            item.about, item.offsite, item.attempt, owner, self.epoch, now + section.lease_s, delay_s,
            request,
        )  # fmt: skip
        by_hand = route(lease, now) if route is not None else None
        if by_hand is not None:
            lease = msgspec.structs.replace(lease, deadline=now + by_hand.lease_s)
        live = self._live_leases[item.item] = LiveLease(lease, site, queue, item)
        self._turns.out_by_class[live.rank] += 1
        site.clock.started(now)
        if site.clock.breakers is not None:
            _note_probe(site.clock, breaker_name(queue.crawl.trust, item.url), item.item)
        site.out += 1
        site.served += 1
        self._note_request_start(live, now)
        if by_hand is not None:
            self._machine.raise_longest_times(0.0, by_hand.lease_s)
        queue.served_at = now
        if len(self._queues.crawls) > 1:  # a single crawl must not wait a turn when another is added
            self._queues.fairness.count_served(queue.crawl)
        queue.crawl.leased += 1
        if item.purpose is Purpose.PAGE:
            queue.flight += 1
            queue.crawl.flight += 1
            if queue.crawl.depths is not None:
                queue.crawl.mark_leased(item, True)
        hand, lasts_s = (by_hand.hand, by_hand.lasts_s) if by_hand is not None else ("", 0.0)
        self._requests.log_start(
            item.item, now, site.key, delay_s, site.clock.places(section), item.url, lease.crawl, hand=hand,
            lasts_s=lasts_s,
        )  # fmt: skip
        return lease

    def _claim_slot(self, wanted: SlotRequest, may_ask: bool) -> bool:
        state = self._valid_lease(wanted.lease)
        if state is None:
            return False
        clock = self._queues.clocks.address_clock(wanted.address)
        before, site, now = state.clock, state.site, self._now()
        was = clock.crawl_delay_s
        clock.wants(wanted.crawl_delay_s)
        raised = clock.crawl_delay_s > was
        if clock is before and not raised and clock.long_until <= now:
            return True
        before.active -= 1
        self._machine.ended([(state.machine_key, now, 0.0)])
        section = state.queue.crawl.section
        name = breaker_name(state.queue.crawl.trust, state.lease.url)
        may_go = (
            may_ask
            and max(clock.due_for(section), clock.long_until) <= now
            and clock.has_room(section)
            and not self._choice.is_origin_held(clock, name, now, state.lease.item)
            and self._choice.machine_due(clock, clock.address, state.queue.crawl, now) <= now
        )
        if not isinstance(site.clock, AddressClock):
            clock.joined(site.clock)
        site.clock = state.clock = clock
        if raised:
            self._sites.save(site)
        if may_go:
            clock.started(now)
            _note_probe(clock, name, state.lease.item)
            self._note_request_start(state, now)
        else:
            self._remove_lease(state)
            self._turns.out_by_class[state.rank] -= 1
            self._requests.log_end(wanted.lease.item, now, "unasked")
            self._requeue_item(state, state.item.attempt, 0.0, first=True)
        if clock.long_until > now:
            for queue in site.all_queues():
                self._rejected.reject_queue(queue, Reason.RETRY_AFTER)
        if before is not clock:
            self._queues.schedule_parked(before)
        if not may_go or clock.has_room(section):
            self._queues.schedule(site)
        return may_go

    def _note_request_start(self, state: LiveLease, now: float) -> None:
        state.machine_key = machine_key(state.site, state.clock)
        self._machine.started(state.machine_key, now, state.lease.deadline - now)

    # ── ending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _valid_lease(self, lease: Lease) -> LiveLease | None:
        state = self._live_leases.get(lease.item)
        return state if state is not None and state.lease == lease else None

    def _remove_lease(self, state: LiveLease) -> None:
        del self._live_leases[state.lease.item]
        state.queue.crawl.leased -= 1
        state.site.out -= 1

    def _release_lease(self, state: LiveLease, outcome: str, now: float) -> bool:
        """Ends a lease; if its request had not ended, that ends here with this outcome. Returns whether it had not."""
        self._remove_lease(state)
        if state.cooled:
            return False
        self._free_slot(state)
        self._machine.ended([(state.machine_key, now, 0.0)])
        self._requests.log_end(state.lease.item, now, outcome)
        return True

    def _expire_leases(self, now: float) -> None:
        """Queues the items of expired leases again."""
        while self._live_leases:
            state = next(iter(self._live_leases.values()))
            if state.lease.deadline > now:
                return
            if self._release_lease(state, "expired", now):
                state.clock.ended(now)
            self._requeue_item(state, state.item.attempt, 0.0, first=True)
            self._schedule_site(state)

    def _schedule_site(self, state: LiveLease) -> None:
        self._queues.schedule(state.site)
        if state.clock is not state.site.clock and state.clock.parked:
            self._queues.schedule_parked(state.clock)

    def _free_slot(self, state: LiveLease) -> None:
        state.clock.active -= 1
        self._turns.out_by_class[state.rank] -= 1

    def _free_permit(self, queue: SiteQueue) -> None:
        queue.flight -= 1
        queue.crawl.flight -= 1
        self._queues.schedule_blocked(queue.crawl)

    def _end_request(self, state: LiveLease, ended: TransferEnd) -> None:
        clock, section, trust = state.clock, state.queue.crawl.section, state.queue.crawl.trust
        name = breaker_name(trust, ended.lease.url)
        self._free_slot(state)
        clock.ended(ended.at)
        before = clock.logged_state(name)
        if ended.took_s is not None or ended.ok is not None:
            clock.took(ended.took_s if ended.took_s is not None or not ended.ok else 0.0, section)
        if ended.slow_down:
            clock.slow_down(ended.at, ended.retry_after_s, section, in_trouble=ended.in_trouble)
            if (ended.retry_after_s or 0.0) > section.max_retry_after_s:
                for queue in state.site.all_queues():
                    self._rejected.reject_queue(queue, Reason.RETRY_AFTER)
        if ended.ok is False:
            state.site.failure = ended.failure
        if ended.ok is not None:
            clock.answered(ended.lease.item, ended.ok, ended.at, section, name)
        after = clock.logged_state(name)
        if before != after or ended.slow_down:
            self._sites.save(state.site)
            clock.log_changes(before, state.site.key, section, name)
        if after[2] > before[2] and clock.is_given_up(section, name):
            state.gave_up = True
            self._rejected.give_up_origin(state.site, trust, origin_of(ended.lease.url))

    def _end_lease(self, state: LiveLease, outcome: EndedLease, batch: int) -> None:
        queue, item = state.queue, state.item
        if queue.crawl.is_closed:
            if item.purpose is Purpose.ROBOTS:
                self._sites.release_robots_fetch(item.about, state.site)
            return
        if outcome.end is End.RETRY and state.gave_up:
            item = self._item_to_requeue(queue, item)
            self._rejected.reject_removed([item], queue, Reason.BREAKER, origin_of(item.url), state.site.failure)
            return
        if outcome.end in (End.RETRY, End.RELEASE):
            again = outcome.end is End.RETRY
            # A site may name any time in Retry-After; no request waits longer than the settings allow.
            wait_s = min(outcome.wait_s, queue.crawl.section.max_retry_after_s + LONGEST_BACKOFF_S)
            self._requeue_item(state, item.attempt + again, self._now() + wait_s if again else 0.0, first=not again)
            return
        if item.purpose is Purpose.PAGE:
            self._free_permit(queue)
            queue.crawl.mark_ended(item)
            if outcome.end is End.PAGE:
                queue.pages += 1
                queue.crawl.pages += 1
        self._durability.end_item(OpenItem(queue.crawl.number, item), batch)

    def _item_to_requeue(self, queue: SiteQueue, item: Item) -> Item:
        """The item to queue again: without its permit, at the smallest depth known by now."""
        if item.purpose is not Purpose.PAGE:
            return item
        self._free_permit(queue)
        queue.crawl.mark_leased(item, False)
        return queue.crawl.at_known_depth(item)

    def _requeue_item(self, state: LiveLease, attempt: int, not_before: float, *, first: bool) -> None:
        item, crawl, robots = state.item, state.queue.crawl, self._sites.robots_files
        wall = self._base.wall() + max(0.0, not_before - self._now())
        if crawl.is_closed or (item.purpose is Purpose.ROBOTS and crawl.paused):
            if item.purpose is not Purpose.ROBOTS:
                return
            if attempt != item.attempt:
                robots.record_failure(item.about, attempt, wall)
            self._sites.release_robots_fetch(
                item.about, state.site
            )  # the next lease that needs it asks again, when its wait is over
            return
        item = self._item_to_requeue(state.queue, item)
        if attempt != item.attempt:
            item = msgspec.structs.replace(item, attempt=attempt)
            if item.purpose is Purpose.ROBOTS:
                robots.record_failure(item.about, attempt, wall)
            else:
                self._base.journal.put("retries", item.item, attempt, wall, crawl.number)
        # The site may have been forgotten while this lease was out.
        queue = self._queues.queue_at(state.site.key, crawl)
        self._queues.push_urgent(queue, item, not_before, first=first)
        self._queues.schedule(queue.site)


def _is_scheduled(site: Site) -> bool:
    """Whether a site is on the wheel, and none of its queues waits for a permit, a budget or a robots.txt: as after
    the end of its last request, unless its queue is empty or at its limit.
    """
    return site.tick != IDLE and all(queue.stalled_at is None for queue in site.queues)


def _note_probe(clock: PolitenessClock, name: str, item: int) -> None:
    """Marks a request as the probe, if it is behind an open breaker."""
    breaker = clock.breaker(name)
    if breaker is not None and breaker.open_until:
        breaker.probe = item
