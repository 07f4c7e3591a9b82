"""The numbers of an embedded frontier, and what a crawl waits for: the cause and the end of it, of the site that is due
first.

For that a bounded number of sites is looked at: displays ask twice a second, and a crawl may have millions of them.
"""

from __future__ import annotations

from itertools import islice

from weft.frontier.contract import CAUSES, CrawlStanding, FrontierStats, WaitReason
from weft.frontier.embedded.excluded import Excluded
from weft.frontier.embedded.leases import EmbeddedLeases
from weft.frontier.embedded.resources import Resources
from weft.frontier.politeness import PolitenessClock, authority_of
from weft.frontier.scheduling.queues import Queues
from weft.frontier.scheduling.sites import Crawl, Site, SiteQueue

SHORT_WAIT_S = 2.0  # is not worth a message
_SCANNED = 2000  # sites of the crawl, most of which may have nothing queued
_COMPARED = 64


class EmbeddedStatus:
    """See the contract."""

    def __init__(self, base: Resources, leases: EmbeddedLeases, excluded: Excluded) -> None:
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
            sites=len(queues.sites) + len(queues.resting),
            admitted=self._base.counts.admitted,
            finished=self._base.counts.finished,
            pages=sum(crawl.pages for crawl in crawls),
            sent=pods.outbox.sent,
            received=pods.received,
            due=queues.wheel.due(self._base.now()) + queues.resting.due(self._base.now()),
        )

    def crawl_standing(self, crawl: int) -> CrawlStanding:
        """The numbers of one crawl, from what is counted."""
        owner = self._queues.crawls[crawl]
        return CrawlStanding(owner.queued, owner.leased, owner.pages, len(owner.seen), self._excluded.count(crawl))

    def waits_for(self, crawl: int) -> WaitReason | None:
        """What a crawl waits for that has URLs queued; None while it does not."""
        return _waiting_of(self._queues, self._queues.crawls[crawl], self._base.now())

    def has_work(self, crawl: int) -> bool:
        """Whether something that is queued of a crawl may still be claimed; a look at all its sites."""
        owner = self._queues.crawls[crawl]
        if owner.limits.max_pages_per_domain is None:
            return owner.queued > 0
        at_rest = self._queues.resting.count(crawl)
        return at_rest > 0 or any(lane.queued and lane.has_budget() for lane in owner.sites.values())

    def url_bytes(self, crawl: int) -> int:
        """What a crawl's URLs take of memory."""
        return self._queues.crawls[crawl].url_bytes


def _waiting_of(queues: Queues, crawl: Crawl, now: float) -> WaitReason | None:
    """What a crawl waits for that has something queued; None where it does not, or for a moment only."""
    if crawl.leased or not crawl.queued:
        return None
    if crawl.paused:
        return WaitReason(CAUSES["paused"])
    first: WaitReason | None = None
    queued = ((site, lane) for site, lane in islice(crawl.sites.items(), _SCANNED) if lane.queued and lane.has_budget())
    for site, lane in islice(queued, _COMPARED):
        one = _waiting_at(site, lane, now)
        if one is None:
            return None
        if first is None or _end(one) < _end(first):
            first = one
    at_rest = queues.resting.next_due(crawl.number) if queues.resting.count(crawl.number) else None
    if at_rest is not None and (first is None or at_rest < _end(first)):
        return WaitReason(CAUSES["delay"].format("its sites"), at_rest) if at_rest > now + SHORT_WAIT_S else None
    return first


def _end(waiting: WaitReason) -> float:
    return float("inf") if waiting.until is None else waiting.until


def _waiting_at(site: Site, lane: SiteQueue, now: float) -> WaitReason | None:
    """What a lane waits for; None if it may be claimed from soon."""
    if site.held is not None:
        since, until = site.held
        is_current = until > now - SHORT_WAIT_S  # it is looked at again when that time has come
        if is_current and max(until, now) > since + SHORT_WAIT_S:
            return WaitReason(CAUSES["machine"].format(site.key), max(until, now))
    if lane.stalled_at is not None and lane.look_at and (blocked := _breaker_of(site.clock, lane, now)) is not None:
        return blocked if _end(blocked) > now + SHORT_WAIT_S else None
    own, cause = _own_time(lane)
    if own is None:
        return WaitReason(cause)
    due = site.clock.due_for(lane.crawl.section)
    until = max(own, due)
    if until <= now + SHORT_WAIT_S:
        return None
    return WaitReason(cause if own >= due else _clock_cause(site.key, site.clock, due), until)


def _breaker_of(clock: PolitenessClock, lane: SiteQueue, now: float) -> WaitReason | None:
    """The open breaker that a lane's crawl may pass first."""
    trust = lane.crawl.trust
    named = ((breaker.open_until, name) for name, breaker in (clock.breakers or {}).items())
    is_own = ((until, name) for until, name in named if until > now and name[: name.rfind(" ") + 1] == trust)
    until, name = min(is_own, default=(0.0, ""))
    return WaitReason(CAUSES["breaker"].format(authority_of(name)), until) if name else None


def _own_time(lane: SiteQueue) -> tuple[float | None, str]:
    """When something of the lane may run apart from the politeness clock, and what it waits for until then."""
    at = lane.next_time() if lane.stalled_at is None else lane.later(lane.stalled_at)
    if at is None or (lane.robots and lane.robots[0][0] == at):
        return at, CAUSES["robots"].format(lane.key)
    return at, CAUSES["retry"].format(lane.key)


def _clock_cause(key: str, clock: PolitenessClock, due: float) -> str:
    if clock.due < due or not clock.extra_s:
        return CAUSES["delay"].format(key)
    has_named_time = clock.due > clock.last_end + clock.extra_s + 0.001
    return CAUSES["retry-after" if has_named_time else "slow"].format(key)
