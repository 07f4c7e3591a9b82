"""The queues of a site: one for each crawl (`SiteQueue`), in it one for each depth, and before them what is urgent.

Urgent are retries, redirect targets, robots.txt and logins: few, each with the time before which it must not run.
Sitemaps take turns with pages: a site may list more than is worth reading, and none is needed while enough pages are
queued to use up the crawl's permits. The rest is packed text, `item parent origin[.offsite] path`, because there may be
millions. There may be millions of sites as well, so what most of them never need is created on demand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

import msgspec

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, Item
from weft.frontier.durability.blobs import BlobStore
from weft.frontier.politeness import PolitenessClock
from weft.frontier.ranks import depth_in
from weft.frontier.scheduling.spill import SpillQueue
from weft.frontier.scheduling.wheel import IDLE
from weft.frontier.seen.seen_runs import SeenRuns
from weft.frontier.seen.seen_set import SeenSet
from weft.records import Purpose

UrgentEntry = tuple[float, int, Item]
IsBlocked = Callable[[str], bool]  # whether an origin must not be asked now: its breaker is open
MOST_PASSED_OVER = (
    50  # entries behind an open breaker that are passed over in each queue, before the next queue is tried
)
_MOST_DEPTHS_TRIED = 8  # queues that are tried
SEEN_BYTES = 16  # of a URL of the seen set that is in no run yet
DEPTH_BYTES = 176  # of a KnownDepth, with its entry
_FEW_ORIGINS = 8  # origins of a queue that are searched linearly


class KnownDepth:
    """With a `max_depth`: the smallest depth at which a URL was found, and its state."""

    __slots__ = ("depth", "ended", "item", "leased")

    def __init__(self, depth: int, item: int, *, ended: bool = False) -> None:
        self.depth = depth
        self.item = item
        self.leased = False
        self.ended = ended


class Crawl:
    """One crawl in the frontier: its seen set and its limits."""

    __slots__ = (
        "blobs", "blocked", "depths", "flight", "holds", "is_closed", "is_in_ring", "leased", "limits", "name",
        "number", "pages", "paused", "queued", "ready", "section", "seen", "sites", "stride", "trust", "weight",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        name: str,
        seed: int,
        limits: CrawlLimits,
        blobs: BlobStore,
        section: PolitenessSection,
        weight: float = 1.0,
        runs: SeenRuns | None = None,
    ) -> None:
        self.number = number
        self.name = name
        self.limits = limits
        self.blobs = blobs  # of all crawls: the middle pieces of long queues
        self.seen = SeenSet(seed, runs, number)
        # By fingerprint, and only with a max_depth: to move up items that are found again by a shorter path.
        self.depths: dict[int, KnownDepth] | None = {} if limits.max_depth is not None else None
        self.section = section
        self.weight = weight
        self.trust = ""  # its trust: in front of an origin in the keys of robots.txt files and breakers
        self.holds: IsBlocked | None = None  # whether a page must wait for a login (`EmbeddedLogins`)
        self.pages = 0
        self.flight = 0  # pages that are leased
        self.leased = 0  # all items that are leased
        self.queued = 0
        self.paused = False
        self.is_closed = False  # leased items then end without a trace
        self.ready: deque[SiteQueue] = deque()  # queues at sites that are due; filled if several crawls take turns
        self.stride = 0.0  # see fairness
        self.is_in_ring = False
        self.blocked: dict[Site, None] = {}  # sites that had to wait for a permit, in order
        self.sites: dict[Site, SiteQueue] = {}  # where it has a queue: an end must not look at all the others' sites

    def permits(self) -> int:
        """How many more pages may be started."""
        if self.paused:
            return 0
        left = 1_000_000_000
        if self.limits.max_pages is not None:
            left = min(left, self.limits.max_pages - self.pages - self.flight)
        if self.limits.in_flight is not None:
            left = min(left, self.limits.in_flight - self.flight)
        return left

    @property
    def url_bytes(self) -> int:
        """The memory that its URLs use: seen URLs, their depths, and the ends of its queues."""
        queues = sum(queue.held_bytes for site_queue in self.sites.values() for queue in site_queue.queues)
        return self.seen.entries_in_memory * SEEN_BYTES + len(self.depths or ()) * DEPTH_BYTES + queues

    def known_depth(self, item: Item) -> KnownDepth | None:
        """The known depth of a page; None without a `max_depth`."""
        if self.depths is None or item.purpose is not Purpose.PAGE:
            return None
        known = self.depths.get(self.seen.fingerprint(item.url))
        return known if known is not None and known.item == item.item else None

    def mark_leased(self, item: Item, leased: bool) -> None:
        """With a `max_depth`: records whether an item is leased."""
        if self.depths is not None and (known := self.known_depth(item)) is not None:
            known.leased = leased

    def mark_ended(self, item: Item) -> None:
        """With a `max_depth`: records that an item has ended."""
        if self.depths is not None and (known := self.known_depth(item)) is not None:
            known.ended = True

    def at_known_depth(self, item: Item) -> Item:
        """The item at its smallest known depth, which may have been found while it was leased: `Queues.pop` skips an
        entry that is deeper."""
        known = self.known_depth(item)
        if known is None or known.depth >= item.depth:
            return item
        return msgspec.structs.replace(item, depth=known.depth)


class DepthQueue(SpillQueue):
    """The pages of one depth and priority in a site's queue: `depth` is their rank (`rank_of`)."""

    __slots__ = ("depth", "site_queue")

    def __init__(self, queue: SiteQueue, depth: int) -> None:
        super().__init__()
        self.site_queue = queue
        self.depth = depth

    @property
    def blobs(self) -> BlobStore:
        """The blob store of the pod."""
        return self.site_queue.crawl.blobs


class SiteQueue:
    """One crawl's queue at one site."""

    __slots__ = (
        "_had_sitemap",
        "_origin_numbers",
        "_sequence",
        "crawl",
        "flight",
        "is_ready",
        "key",
        "logins",
        "look_at",
        "origins",
        "pages",
        "queued",
        "queues",
        "robots",
        "served_at",
        "site",
        "sitemaps",
        "sitemaps_found",
        "stalled_at",
        "urgent",
    )

    def __init__(self, crawl: Crawl, site: Site) -> None:
        self.crawl = crawl
        self.site = site
        self.key = site.key
        self.is_ready = False  # it is in its crawl's `ready`
        self.served_at = 0.0  # when it was last served or, if it was empty since, when its wait began
        self.stalled_at: float | None = None  # asked without success then: an event must come, or a later time
        self.look_at = 0.0  # of a queue that is stalled behind open breakers: when to try again
        self.origins: list[str] = []
        self._origin_numbers: dict[str, int] | None = None  # index of each origin, once there are more than a few
        self.queues: list[DepthQueue] = []  # never empty ones, in the order of their depths
        self.urgent: list[UrgentEntry] | None = None
        self.robots: list[UrgentEntry] | None = None  # before everything else: pages wait for it
        self.logins: list[UrgentEntry] | None = None  # after robots.txt requests: pages wait for them, too
        self.sitemaps: list[UrgentEntry] | None = None
        self.sitemaps_found: int | None = None  # admitted so far; None: not read from the journal yet
        self._had_sitemap = False  # the last item was a sitemap: a page is next
        self.queued = 0
        self.pages = 0
        self.flight = 0
        self._sequence = 0

    def push(self, item: int, origin: str, path: str, depth: int, parent: int, offsite: int) -> None:
        """Queues a page after those of its depth, which is given as a rank."""
        where = self.origin_number(origin)
        hops = f".{offsite}" if offsite else ""
        self.queue(depth).push(f"{item} {parent} {where}{hops} {path}")
        self.queued += 1

    def origin_number(self, origin: str) -> int:
        """An origin's number in this queue."""
        if self._origin_numbers is not None:
            place = self._origin_numbers.get(origin)
        else:
            place = self.origins.index(origin) if origin in self.origins else None
        if place is None:
            place = len(self.origins)
            self.origins.append(origin)
            if self._origin_numbers is not None:
                self._origin_numbers[origin] = place
            elif place == _FEW_ORIGINS:  # a domain of many hosts
                self._origin_numbers = {other: at for at, other in enumerate(self.origins)}
        return place

    def queue(self, depth: int) -> DepthQueue:
        """The queue of a depth, created if there is none; the caller adds an item."""
        if self.queues and self.queues[-1].depth == depth:  # mostly
            return self.queues[-1]
        at = next((at for at, queue in enumerate(self.queues) if queue.depth >= depth), len(self.queues))
        if at == len(self.queues) or self.queues[at].depth != depth:
            self.queues.insert(at, DepthQueue(self, depth))
        return self.queues[at]

    def push_urgent(self, item: Item, not_before: float = 0.0, *, first: bool = False) -> None:
        """Queues an item before all that are not urgent."""
        self._sequence += 1
        if item.purpose is Purpose.ROBOTS:
            heap = self.robots = self.robots or []
        elif item.purpose is Purpose.LOGIN:
            heap = self.logins = self.logins or []
        elif item.purpose is Purpose.SITEMAP:
            heap = self.sitemaps = self.sitemaps or []
        else:
            heap = self.urgent = self.urgent or []
        heappush(heap, (not_before, -self._sequence if first else self._sequence, item))
        self.queued += 1

    def pop(self, now: float, is_blocked: IsBlocked | None = None) -> Item | None:
        """The next item that may run now. `is_blocked`: given where an origin of the site has an open breaker."""
        if self.robots or self.urgent or self.sitemaps or self.logins:
            for heap in self._urgent_heaps():
                if heap[0][0] <= now and not (heap is self.sitemaps and self._is_pages_turn()):
                    item = heappop(heap)[2] if is_blocked is None else _pop_unblocked(heap, now, is_blocked)
                    if item is not None:
                        self.queued -= 1
                        self._had_sitemap = self._had_sitemap or heap is self.sitemaps
                        return item
            self._had_sitemap = False
        at = self._first_queue(is_blocked)
        if at is None:
            return None
        queue = self.queues[at]
        item = self.unpack_item(queue.pop(), queue.depth)
        if not queue:
            del self.queues[at]
        self.queued -= 1
        return item

    def _first_queue(self, is_blocked: IsBlocked | None) -> int | None:
        """The queue whose first entry may run. Entries behind an open breaker are moved to the end of their queue, a
        bounded number at a time: the queue is tried again, so that none of them hides later entries for long.
        """
        if is_blocked is None or not self.queues:
            return 0 if self.queues else None
        if len(self.origins) == 1:
            return None if is_blocked(self.origins[0]) else 0
        for at, queue in enumerate(self.queues[:_MOST_DEPTHS_TRIED]):
            for _ in range(min(len(queue), MOST_PASSED_OVER)):
                if not is_blocked(self.origins[_packed_origin_number(queue.peek())]):
                    return at
                queue.push(queue.pop())
        return None

    def _is_pages_turn(self) -> bool:
        """Whether a sitemap must wait: for a page after each sitemap, or while there are pages for all permits."""
        if not self.queues:
            return False
        return self._had_sitemap or self.queued - sum(map(len, self._urgent_heaps())) >= self.crawl.permits()

    def next_time(self) -> float | None:
        """When an item may run; None if none is queued."""
        if self.queues:
            return 0.0
        return min((heap[0][0] for heap in self._urgent_heaps()), default=None)

    def next_waiting_time(self, now: float) -> float | None:
        """When the first item that must wait may run; None if there is none."""
        first = min((heap[0][0] for heap in self._urgent_heaps() if heap[0][0] > now), default=None)
        if self.look_at > now and (first is None or self.look_at < first):
            return self.look_at
        return first

    def may_run(self, now: float) -> bool:
        """Whether a try is worthwhile: an item waits that may run, and is not only one that was tried
        unsuccessfully.
        """
        at = self.next_time() if self.stalled_at is None else self.next_waiting_time(self.stalled_at)
        return at is not None and at <= now

    def urgent_entries(self) -> list[UrgentEntry]:
        """Everything urgent, in order."""
        return sorted(entry for heap in self._urgent_heaps() for entry in heap)

    def items(self) -> Iterator[Item]:
        """All queued items."""
        yield from (entry[2] for entry in self.urgent_entries())
        for queue in self.queues:
            for text in queue.texts():
                yield self.unpack_item(text, queue.depth)

    def clear(self) -> None:
        """Removes all queued items."""
        for queue in self.queues:
            queue.clear()
        self.queues.clear()
        self.urgent = self.robots = self.logins = self.sitemaps = None
        self.queued = 0

    def remove(self, origin: str) -> list[Item]:
        """Removes all queued items of one origin, and returns them."""
        removed: list[Item] = []
        for name in ("robots", "logins", "urgent", "sitemaps"):
            heap: list[UrgentEntry] = getattr(self, name) or []
            removed += [entry[2] for entry in sorted(heap) if origin_of(entry[2].url) == origin]
            rest = [entry for entry in heap if origin_of(entry[2].url) != origin]
            heapify(rest)
            setattr(self, name, rest or None)
        place = self.origin_number(origin) if origin in self.origins else None
        for queue in self.queues if place is not None else ():
            texts = list(queue.texts())
            queue.clear()
            for text in texts:
                if _packed_origin_number(text) == place:
                    removed.append(self.unpack_item(text, queue.depth))
                else:
                    queue.push(text)
        self.queues = [queue for queue in self.queues if queue]
        self.queued -= len(removed)
        return removed

    def has_budget(self) -> bool:
        """Whether the domain may have another page of this crawl."""
        cap = self.crawl.limits.max_pages_per_domain
        return cap is None or self.pages + self.flight < cap

    def unpack_item(self, text: str, depth: int) -> Item:
        """The item that a queued text represents."""
        item, parent, where, path = text.split(" ", 3)
        origin, _, offsite = where.partition(".")
        return Item(
            int(item), self.origins[int(origin)] + path, depth_in(depth), int(parent), offsite=int(offsite or 0)
        )

    def _urgent_heaps(self) -> list[list[UrgentEntry]]:
        return [heap for heap in (self.robots, self.logins, self.urgent, self.sitemaps) if heap]


def origin_of(url: str) -> str:
    """Scheme, host and port of a canonical URL."""
    return url[: url.index("/", 8)]


def _packed_origin_number(text: str) -> int:
    """The number of the origin of a packed entry, in its queue."""
    return int(text.split(" ", 3)[2].partition(".")[0])


def _pop_unblocked(heap: list[UrgentEntry], now: float, is_blocked: IsBlocked) -> Item | None:
    """Removes and returns the first entry that may run now and is behind no open breaker; a bounded number is
    checked.
    """
    passed: list[UrgentEntry] = []
    item = None
    while heap and heap[0][0] <= now and len(passed) < MOST_PASSED_OVER and item is None:
        entry = heappop(heap)
        if is_blocked(origin_of(entry[2].url)):
            passed.append(entry)
        else:
            item = entry[2]
    for entry in passed:
        heappush(heap, entry)
    return item


class Site:
    """A politeness key with all its queued items."""

    __slots__ = ("clock", "failure", "gone", "held", "idle", "key", "out", "paused", "queues", "served", "tick")

    def __init__(self, key: str, clock: PolitenessClock) -> None:
        self.key = key
        self.clock = clock
        self.queues: list[SiteQueue] = []
        self.paused: dict[SiteQueue, None] | None = (
            None  # queues of paused crawls, which may be many: they are never searched
        )
        self.failure = ""  # how the last request to it failed: `connect`, `HTTP 502`
        self.tick = IDLE
        self.idle = False  # its queues are empty: it will be forgotten
        self.gone = False  # it was forgotten, or is swapped out: a newer object may have the key
        self.out = 0  # leases that are out
        self.served = 0  # leases since it was swapped in
        self.held: tuple[float, float] | None = None  # another process asks it: since when we wait, and until when

    @property
    def rank(self) -> int:
        """Its responsiveness, which is the wheel's queue for it once it is due."""
        return self.clock.shown

    def queue_of(self, crawl: Crawl) -> SiteQueue:
        """The crawl's queue, created when it is first needed."""
        queue = crawl.sites.get(self)
        if queue is None:
            queue = crawl.sites[self] = SiteQueue(crawl, self)
            self._add_queue(queue)
        return queue

    def all_queues(self) -> Iterable[SiteQueue]:
        """All queues, also those of paused crawls."""
        return self.queues if self.paused is None else [*self.queues, *self.paused]

    def move_queue(self, queue: SiteQueue) -> None:
        """The queue's crawl was paused, or continues."""
        self.remove_queue(queue)
        self._add_queue(queue)

    def remove_queue(self, queue: SiteQueue) -> None:
        """Removes the queue of a crawl that has ended, or before it is replaced."""
        if self.paused is not None and queue in self.paused:
            del self.paused[queue]
            self.paused = self.paused or None
        else:
            self.queues.remove(queue)

    def _add_queue(self, queue: SiteQueue) -> None:
        if not queue.crawl.paused:
            self.queues.append(queue)
        elif self.paused is None:
            self.paused = {queue: None}
        else:
            self.paused[queue] = None

    def next_time(self) -> float | None:
        """When an item may run here, apart from the politeness clock."""
        times = [time for queue in self.queues if (time := queue.next_time()) is not None]
        return min(times) if times else None
