"""Statistics of an embedded frontier, and why a crawl waits: the cause and its end, at the site that is due first.

For that a bounded number of sites is checked: displays ask twice a second, and a crawl may have millions of sites.
"""

from __future__ import annotations

from itertools import islice

from weft.frontier.contract import WAIT_CAUSES, CrawlCounts, FrontierStats, WaitReason
from weft.frontier.embedded.excluded import ExcludedItems
from weft.frontier.embedded.leases import EmbeddedLeases
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.politeness import PolitenessClock, authority_of
from weft.frontier.scheduling.queues import Queues
from weft.frontier.scheduling.sites import Crawl, Site, SiteQueue

SHORT_WAIT_S = 2.0  # too short for a message
_SCANNED_SITES = 2000  # sites of the crawl, most of which may have nothing queued
_COMPARED_SITES = 64


class EmbeddedStatus:
    """See the contract."""

    def __init__(self, base: FrontierResources, leases: EmbeddedLeases, excluded: ExcludedItems) -> None:
        self._base = base
        self._queues = base.queues
        self._leases = leases
        self._excluded = excluded

    def stats(self) -> FrontierStats:
        """The current numbers."""
        queues, pods, crawls = self._queues, self._base.pods, self._queues.crawls.values()
        return FrontierStats(
            queued=queues.queued,
            leased=len(self._leases),
            seen=sum(len(crawl.seen) for crawl in crawls),
            sites=len(queues.sites) + len(queues.swapped),
            admitted=self._base.counts.admitted,
            finished=self._base.counts.finished,
            pages=sum(crawl.pages for crawl in crawls),
            sent=pods.outbox.sent_messages,
            received=pods.received_messages,
            due=queues.wheel.due(self._base.now()) + queues.swapped.due(self._base.now()),
        )

    def crawl_counts(self, crawl: int) -> CrawlCounts:
        """The counts of one crawl."""
        owner = self._queues.crawls[crawl]
        return CrawlCounts(owner.queued, owner.leased, owner.pages, len(owner.seen), self._excluded.count(crawl))

    def waits_for(self, crawl: int) -> WaitReason | None:
        """Why a crawl with queued URLs waits; None while it does not."""
        return _crawl_wait(self._queues, self._queues.crawls[crawl], self._base.now())

    def has_work(self, crawl: int) -> bool:
        """Whether a queued item of a crawl may still be claimed; checks all of its sites."""
        owner = self._queues.crawls[crawl]
        if owner.limits.max_pages_per_domain is None:
            return owner.queued > 0
        swapped = self._queues.swapped.count(crawl)
        return swapped > 0 or any(queue.queued and queue.has_budget() for queue in owner.sites.values())

    def url_bytes(self, crawl: int) -> int:
        """The memory that a crawl's URLs use."""
        return self._queues.crawls[crawl].url_bytes


def _crawl_wait(queues: Queues, crawl: Crawl, now: float) -> WaitReason | None:
    """Why a crawl with queued URLs waits; None if it does not, or only for a moment."""
    if crawl.leased or not crawl.queued:
        return None
    if crawl.paused:
        return WaitReason(WAIT_CAUSES["paused"])
    first: WaitReason | None = None
    queued = (
        (site, queue)
        for site, queue in islice(crawl.sites.items(), _SCANNED_SITES)
        if queue.queued and queue.has_budget()
    )
    for site, queue in islice(queued, _COMPARED_SITES):
        one = _queue_wait(site, queue, now)
        if one is None:
            return None
        if first is None or _end_of_wait(one) < _end_of_wait(first):
            first = one
    swapped_due = queues.swapped.next_due(crawl.number) if queues.swapped.count(crawl.number) else None
    if swapped_due is not None and (first is None or swapped_due < _end_of_wait(first)):
        return (
            WaitReason(WAIT_CAUSES["delay"].format("its sites"), swapped_due)
            if swapped_due > now + SHORT_WAIT_S
            else None
        )
    return first


def _end_of_wait(waiting: WaitReason) -> float:
    return float("inf") if waiting.until is None else waiting.until


def _queue_wait(site: Site, queue: SiteQueue, now: float) -> WaitReason | None:
    """Why a queue waits; None if it may be claimed from soon."""
    if site.held is not None:
        since, until = site.held
        is_current = until > now - SHORT_WAIT_S  # it is checked again at that time
        if is_current and max(until, now) > since + SHORT_WAIT_S:
            return WaitReason(WAIT_CAUSES["machine"].format(site.key), max(until, now))
    if (
        queue.stalled_at is not None
        and queue.look_at
        and (blocked := _breaker_wait(site.clock, queue, now)) is not None
    ):
        return blocked if _end_of_wait(blocked) > now + SHORT_WAIT_S else None
    own, cause = _item_wait(queue)
    if own is None:
        return WaitReason(cause)
    due = site.clock.due_for(queue.crawl.section)
    until = max(own, due)
    if until <= now + SHORT_WAIT_S:
        return None
    return WaitReason(cause if own >= due else _clock_cause(site.key, site.clock, due), until)


def _breaker_wait(clock: PolitenessClock, queue: SiteQueue, now: float) -> WaitReason | None:
    """The open breaker whose time comes first for a queue's crawl."""
    trust = queue.crawl.trust
    named = ((breaker.open_until, name) for name, breaker in (clock.breakers or {}).items())
    is_own = ((until, name) for until, name in named if until > now and name[: name.rfind(" ") + 1] == trust)
    until, name = min(is_own, default=(0.0, ""))
    return WaitReason(WAIT_CAUSES["breaker"].format(authority_of(name)), until) if name else None


def _item_wait(queue: SiteQueue) -> tuple[float | None, str]:
    """When an item of the queue may run apart from the politeness clock, and what it waits for until then."""
    at = queue.next_time() if queue.stalled_at is None else queue.next_waiting_time(queue.stalled_at)
    if at is None or (queue.robots and queue.robots[0][0] == at):
        return at, WAIT_CAUSES["robots"].format(queue.key)
    if queue.logins and queue.logins[0][0] == at:
        return at, WAIT_CAUSES["login"].format(queue.key)
    return at, WAIT_CAUSES["retry"].format(queue.key)


def _clock_cause(key: str, clock: PolitenessClock, due: float) -> str:
    if clock.due < due or not clock.extra_s:
        return WAIT_CAUSES["delay"].format(key)
    has_named_time = clock.due > clock.last_end + clock.extra_s + 0.001
    return WAIT_CAUSES["retry-after" if has_named_time else "slow"].format(key)
