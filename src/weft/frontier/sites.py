"""What waits at a site: a lane for each crawl, in each lane a queue for each depth, before them what is urgent.

Urgent are retries, redirect targets, robots.txt and sitemaps: few, each with the time before which it must not run. The
rest is packed text, `item parent origin[.offsite] path`, because there may be millions.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from pathlib import Path

from weft.frontier.contract import CrawlLimits, Item
from weft.frontier.politeness import Turn
from weft.frontier.seen import SeenSet
from weft.frontier.spill import SpillQueue
from weft.frontier.wheel import IDLE
from weft.records import Purpose


class Known:
    """Where depth decides: how deep a URL is known to be, and whether it still waits."""

    __slots__ = ("depth", "ended", "item", "leased")

    def __init__(self, depth: int, item: int) -> None:
        self.depth = depth
        self.item = item
        self.leased = False
        self.ended = False


class Crawl:
    """One crawl in the frontier: what it has seen, and the limits it is held to."""

    __slots__ = ("blocked", "depths", "flight", "limits", "name", "number", "pages", "paused", "seen")

    def __init__(self, number: int, name: str, seed: int, limits: CrawlLimits) -> None:
        self.number = number
        self.name = name
        self.limits = limits
        self.seen = SeenSet(seed)
        # By fingerprint, and only where there is a max_depth: to move up what is found again by a shorter way.
        self.depths: dict[int, Known] | None = {} if limits.max_depth is not None else None
        self.pages = 0
        self.flight = 0
        self.paused = False
        self.blocked: dict[Site, None] = {}  # sites that had to wait for a permit, in order

    def permits(self) -> int:
        """How many more pages may be started."""
        left = 1_000_000_000
        if self.limits.max_pages is not None:
            left = min(left, self.limits.max_pages - self.pages - self.flight)
        if self.limits.in_flight is not None:
            left = min(left, self.limits.in_flight - self.flight)
        return 0 if self.paused else left


class Lane:
    """One crawl's queue at one site."""

    __slots__ = ("_folder", "_sequence", "crawl", "flight", "origins", "pages", "queued", "queues", "robots", "urgent")

    def __init__(self, crawl: Crawl, folder: Path) -> None:
        self.crawl = crawl
        self.origins: list[str] = []
        self.queues: dict[int, SpillQueue] = {}
        self.urgent: list[tuple[float, int, Item]] = []
        self.robots: list[tuple[float, int, Item]] = []  # before all else: pages wait for it
        self.queued = 0
        self.pages = 0
        self.flight = 0
        self._sequence = 0
        self._folder = folder

    def push(self, item: int, url: str, depth: int, parent: int, offsite: int) -> None:
        """Queues a page behind those of its depth."""
        at = url.index("/", 8)
        origin = url[:at]
        if origin not in self.origins:
            self.origins.append(origin)
        where = str(self.origins.index(origin))
        if depth not in self.queues:
            self.queues[depth] = SpillQueue(self._folder / f"{depth}.queue")
        self.queues[depth].push(f"{item} {parent} {where + f'.{offsite}' if offsite else where} {url[at:]}")
        self.queued += 1

    def push_urgent(self, item: Item, not_before: float = 0.0, *, first: bool = False) -> None:
        """Queues something before all that is not urgent."""
        self._sequence += 1
        heap = self.robots if item.purpose is Purpose.ROBOTS else self.urgent
        heappush(heap, (not_before, -self._sequence if first else self._sequence, item))
        self.queued += 1

    def pop(self, now: float) -> Item | None:
        """The next one that may run now."""
        for heap in (self.robots, self.urgent):
            if heap and heap[0][0] <= now:
                self.queued -= 1
                return heappop(heap)[2]
        if not self.queues:
            return None
        depth = min(self.queues)
        queue = self.queues[depth]
        item = self._unpacked(queue.pop(), depth)
        if not queue:
            del self.queues[depth]
        self.queued -= 1
        return item

    def next_time(self) -> float | None:
        """When something may run: None if nothing waits."""
        if self.queues:
            return 0.0
        return min((heap[0][0] for heap in (self.robots, self.urgent) if heap), default=None)

    def later(self, now: float) -> float | None:
        """When the first of those that must not run yet may; None if there is none."""
        return min((heap[0][0] for heap in (self.robots, self.urgent) if heap and heap[0][0] > now), default=None)

    def items(self) -> Iterator[Item]:
        """Everything that waits here."""
        yield from (entry[2] for entry in sorted([*self.robots, *self.urgent], key=lambda entry: entry[:2]))
        for depth in sorted(self.queues):
            for text in self.queues[depth].texts():
                yield self._unpacked(text, depth)

    def clear(self) -> None:
        """Forgets everything that waits here."""
        for queue in self.queues.values():
            queue.clear()
        self.queues.clear()
        self.urgent.clear()
        self.robots.clear()
        self.queued = 0

    def has_budget(self) -> bool:
        """Whether the domain may have another page of this crawl."""
        cap = self.crawl.limits.max_pages_per_domain
        return cap is None or self.pages + self.flight < cap

    def _unpacked(self, text: str, depth: int) -> Item:
        item, parent, where, path = text.split(" ", 3)
        origin, _, offsite = where.partition(".")
        return Item(int(item), self.origins[int(origin)] + path, depth, int(parent), offsite=int(offsite or 0))


class Site:
    """One politeness key with everything that waits for it."""

    __slots__ = ("key", "lanes", "tick", "turn")

    def __init__(self, key: str, turn: Turn) -> None:
        self.key = key
        self.turn = turn
        self.lanes: list[Lane] = []
        self.tick = IDLE

    def lane(self, crawl: Crawl, folder: Path) -> Lane:
        """The crawl's lane, made when it is first needed."""
        for lane in self.lanes:
            if lane.crawl is crawl:
                return lane
        lane = Lane(crawl, folder)
        self.lanes.append(lane)
        return lane

    def next_time(self) -> float | None:
        """When something may run here, as far as the queues say."""
        times = [time for lane in self.lanes if (time := lane.next_time()) is not None]
        return min(times) if times else None

    def rotate(self) -> None:
        """Lets the next crawl have its turn."""
        if len(self.lanes) > 1:
            self.lanes.append(self.lanes.pop(0))
