"""What every frontier does, embedded or on Redis; one contract suite runs on all of them.

A URL's item goes queued → leased → (cooled) → finished, or back to queued. Operations are batched, each is atomic:

    admit    canonical URLs in; the new ones are marked seen, numbered and queued under their site
    claim    up to N items whose site is due, each with a lease; an origin's robots.txt comes first if none is in force
    cool     the transfer has ended: the place is free, and the site is due again at end + delay
    finish   the item has ended for good (page or not), or is queued again (retry, release)

Invariants: a site never has more live leases than places; it is never due before the delay has passed since its last
request ended, across processes, restarts and crashes; an item is given to one owner at a time, and a lease that has
expired or is of an older epoch changes nothing any more; nothing admitted is lost, nothing finished comes back.

What a process asks of a frontier while it opens and recovers it is beside who does that: `OpenFrontier` and
`ParsersFrontier` (engine/assembly.py), `Recovering` and `Losing` (engine/recovery.py), `Backend`
(crawl/pods/backend.py).

Times are the frontier's own clock (`now()`), which never runs backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from weft.config import PolitenessSection
from weft.records import Found, Lease, Purpose, Reason


class Item(Struct, frozen=True, gc=False):
    """A URL in the frontier."""

    item: int
    url: str
    depth: int
    parent: int
    hops: int = 0
    purpose: Purpose = Purpose.PAGE
    about: str = ""
    attempt: int = 0
    offsite: int = 0


class PageLinks(Struct, frozen=True, gc=False):
    """What one page links to at one origin, as the rules have let it in: canonical URLs, each once."""

    origin: str
    urls: list[str]
    depth: int
    parent: int
    offsite: int = 0

    def found(self) -> list[Found]:
        """One by one."""
        return [Found(url, self.depth, self.parent, offsite=self.offsite) for url in self.urls]


# What is to be queued again: given an item, those stored after it, each with its item, in the order of the items.
Stored = Callable[[int], Iterable[tuple[int, Found]]]


class Ended(Struct, frozen=True, gc=False):
    """A transfer that is over."""

    lease: Lease
    at: float
    ok: bool | None = None  # for the circuit breaker: success, failure, or neither
    slow_down: bool = False  # the site asked for fewer requests (429, 503)
    retry_after_s: float | None = None
    outcome: str = ""  # for the request log: the status, or the kind of failure
    in_trouble: bool = False  # of a slow-down: by a fault of the site (503), not by a limit that it has set
    took_s: float | None = None  # until the answer was there; None where there was none, or nobody looked


class End(StrEnum):
    """How a lease ends."""

    PAGE = "page"  # a page was stored: the permit is used up
    OTHER = "other"  # redirect, error, refusal: the item is done, the permit is given back
    RETRY = "retry"  # queued again after a wait, counted as an attempt
    RELEASE = "release"  # queued again at once, as if it had not been claimed


class Slots(Struct, frozen=True, gc=False):
    """How many leases may be out at a time to sites that have shown little good: the others may have all there are."""

    unknown: int  # sites that have never answered, or not the last time
    slow: int


class Outcome(Struct, frozen=True, gc=False):
    """The end of a lease."""

    lease: Lease
    end: End
    wait_s: float = 0.0


class Handed(Struct, frozen=True, gc=False):
    """A transfer whose page lies in a spool, for a parser to claim."""

    ended: Ended
    reference: bytes


class Taken(Struct, frozen=True, gc=False):
    """A fetched page, leased to a parser."""

    lease: Lease
    reference: bytes
    deaths: int  # parsers that have died on it


class Wanted(Struct, frozen=True, gc=False):
    """Politeness by address: a lease, and the address that its request would go to."""

    lease: Lease
    address: str
    crawl_delay_s: float = 0.0  # what the host's robots.txt asks for


class Rejection(Struct, frozen=True, gc=False):
    """An item that ended without a request: removed from its queue, or never queued."""

    item: Item
    crawl: int
    reason: Reason
    detail: str = ""


class Admission(Struct, frozen=True):
    """The result of admitting a batch of URLs."""

    new: int
    duplicates: int
    # Item, URL and new depth of fetched pages that were found again at a smaller depth: links that `max_depth` cut off
    # when they were fetched must be admitted now.
    expand: tuple[tuple[int, str, int], ...] = ()
    full: tuple[Found, ...] = ()  # not admitted because their queue is full: the caller keeps them and tries again


class RobotsRecord(Struct, frozen=True):
    """An origin's robots.txt, or why there is none."""

    status: str  # "ok", "allow" (4xx: all is allowed), "unreachable" (5xx, network: nothing is), "address" (refused)
    body: bytes
    expires: float  # wall clock
    detail: str = ""


class CrawlLimits(Struct, frozen=True):
    """The limits of one crawl that the frontier enforces."""

    max_pages: int | None = None
    max_pages_per_domain: int | None = None
    max_depth: int | None = None
    in_flight: int | None = None
    max_sitemaps: int | None = None  # admitted for one site


class FrontierStats(Struct, frozen=True):
    """Numbers for displays, metrics and termination."""

    queued: int
    leased: int
    seen: int
    sites: int
    admitted: int
    finished: int
    pages: int
    sent: int = 0  # messages to other pods, delivered or not
    received: int = 0  # messages from other pods
    due: int = 0  # sites that a request may go to now
    to_parse: int = 0  # pages fetched and not yet parsed, where parsers are processes of their own


class CrawlStanding(Struct, frozen=True):
    """One crawl of those in a frontier."""

    queued: int
    leased: int
    pages: int
    seen: int
    set_aside: int = 0


class Waiting(Struct, frozen=True):
    """Why nothing of a crawl is requested for now, and until when (the frontier's clock), as far as known."""

    cause: str
    until: float | None = None


# What a crawl waits for, in words; {} is the site, or the host and port.
CAUSES = {
    "paused": "paused",
    "machine": "another crawl on this machine is asking {}",
    "breaker": "circuit breaker of {}",
    "robots": "robots.txt of {}",
    "retry": "retry of a failed request to {}",
    "delay": "politeness delay of {}",
    "retry-after": "Retry-After of {}",
    "slow": "{} asked for fewer requests (429 or 503)",
}


class Frontier(Protocol):
    """What the engine needs from a frontier."""

    def now(self) -> float:
        """The frontier's clock."""

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues what is new."""

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        """The same for what pages link to, as one batch: most of what a crawl admits."""

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Those of the URLs that are not in the crawl's seen set."""

    def scope_extended(self, crawl: int, url: str) -> None:
        """Remembers that a seed's redirect to this URL extended the scope."""

    def scope_extensions(self, crawl: int) -> list[str]:
        """The URLs that extended the scope, from all processes."""

    def claim(self, owner: str, limit: int, slots: Slots | None = None) -> list[Lease]:
        """Leases for items that are due; durable before it returns. `slots`: what sites that hang may have of them."""

    def take_places(self, wanted: Sequence[Wanted]) -> list[bool]:
        """Politeness by address: whether each request may be sent now. False: the lease has ended, and its item is
        queued again until the address is due. `cool` frees the place, or `finish` where nothing was sent.
        """

    def depth_of(self, lease: Lease) -> int:
        """A leased URL's depth now: since the claim it may have been found again at a smaller one."""

    def cool(self, ended: Iterable[Ended]) -> None:
        """Frees places and sets when sites are next due."""

    def finish(self, outcomes: Iterable[Outcome], batch: int = 0) -> list[bool]:
        """Ends leases; False for one that was no longer valid.

        `batch`: the store's batch that will hold the rows. A crash before it is acknowledged queues the items again.
        """

    def acknowledge(self, batch: int) -> None:
        """The store's batches up to this one are durable."""

    def commit(self) -> None:
        """Makes what was admitted and finished safe against a kill."""

    def sync(self) -> None:
        """Makes what was committed safe against a power cut; may be called from another thread."""

    def robots(self, origin: str) -> RobotsRecord | None:
        """The last known robots.txt of an origin."""

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Remembers an origin's robots.txt, for all crawls."""

    def refused(self, crawl: int, reason: Reason, url: str, parent: int) -> None:
        """Remembers a refusal that cannot be worked out again later; a crawl has a bounded number of them."""

    def rejections(self) -> list[Rejection]:
        """Items removed from the queues, or not admitted, since the last call: store them, then call `ended`."""

    def ended(self, items: Iterable[int], batch: int = 0) -> None:
        """Ends rejected items whose rows are stored."""

    def knows_finished(self) -> Callable[[int], bool] | None:
        """What tells of an item, as of now, whether it is finished; None for a frontier that forgets what is."""

    def next_due(self) -> float | None:
        """When `claim` may next return something; None if nothing is scheduled."""

    def waits_for(self, crawl: int) -> Waiting | None:
        """Why a crawl that has URLs queued, and nothing in flight, requests nothing within the next seconds. None while
        it does, or where nothing is queued. Costs the same for any number of sites: it looks at a bounded number."""

    def exhausted(self) -> bool:
        """Whether every crawl has reached its `max_pages`."""

    def stats(self) -> FrontierStats:
        """The current numbers."""


class Crawls(Protocol):
    """Crawls as tenants of a frontier: each with its own limits, politeness, weight, queue, seen URLs and end.

    A crawl is opened by its name; its number is this frontier's (in each pod another), and never given out again.
    Whether it has ended is its owner's to know: `close_crawl` is undone by a kill until `closed`.
    """

    def open_crawl(
        self, name: str, limits: CrawlLimits, section: PolitenessSection | None = None, weight: float = 1.0
    ) -> int:
        """The number of a crawl: a new one, or the one of that name that is there, held to these settings from now on.

        Without a `section` it is as polite as the frontier.
        """

    def reopen_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Brings back one of `kept_crawls`."""

    def change_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Holds a crawl to other settings from now on; BadInput for a `max_depth` that comes too late."""

    def kept_crawls(self) -> list[int]:
        """Every crawl that is kept, opened or not. Two may have one name: a kill came before one was `closed`."""

    def close_crawl(self, crawl: int) -> None:
        """Ends a crawl in one step, however much is queued: nothing of it is claimed or told, and its name is free.
        Leases of it may end as others do, and leave no trace. A kill undoes it until `closed` is committed."""

    def closed(self, crawl: int) -> None:
        """Its owner knows, for good, that a crawl has ended: it does not come back after the next commit."""

    def forget_crawl(self, crawl: int, at_most: int = 200) -> bool:
        """Deletes a part of what is kept of a closed crawl; True when nothing is left. A kill in between is no harm."""

    def crawl_standing(self, crawl: int) -> CrawlStanding:
        """Where an open crawl stands, of one moment, from what is counted; KeyError for one that is not open."""

    def has_work(self, crawl: int) -> bool:
        """Whether something that is queued of a crawl may still be claimed; a look at all its sites."""

    def pause(self, crawl: int, paused: bool = True) -> None:
        """Nothing of a paused crawl is claimed, and nothing is lost."""

    def set_aside(self, leases: Iterable[Lease]) -> None:
        """Takes leased items out that an edit has excluded, until `take_back`; nothing was asked for them."""

    def take_back(self, crawl: int, wanted: Callable[[Item], bool]) -> int:
        """Queues those set-aside items again that are `wanted` now; how many that are."""


class ParseQueue(Protocol):
    """A queue of fetched pages in the frontier, for parsers that are processes of their own."""

    def fetched(self, handed: Iterable[Handed]) -> list[bool]:
        """Cools transfers whose pages lie in a spool, and queues the pages for a parser. False: the lease had ended."""

    def take(self, limit: int) -> list[Taken]:
        """Leases fetched pages to this process for parsing, the oldest first."""

    def died_on(self, item: int) -> int:
        """Counts a parser that died on this page; returns how many have."""

    def awaited(self, items: Sequence[int]) -> list[bool]:
        """Whether each item is fetched and not parsed yet; True where that is unknown."""
