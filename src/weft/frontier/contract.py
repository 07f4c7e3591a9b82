"""What every frontier does, embedded or on Redis; one contract suite runs on all of them.

A URL's item goes queued → leased → (cooled) → finished, or back to queued. Operations are batched, each is atomic:

    admit    canonical URLs in; the new ones are marked seen, numbered and queued under their site
    claim    up to N items whose site is due, each with a lease; a site's robots.txt comes first where it is not known
    cool     the transfer has ended: the place is free, and the site is due again at end + delay
    finish   the item has ended for good (page or not), or is queued again (retry, release)

Invariants: a site never has more live leases than places; it is never due before the delay has passed since its last
request ended, across processes, restarts and crashes; an item is given to one owner at a time, and a lease that has
expired or is of an older epoch changes nothing any more; nothing admitted is lost, nothing finished comes back.

Times are the frontier's own clock (`now()`), which never runs backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from weft.records import Found, Lease, Purpose, Reason


class Item(Struct, frozen=True, gc=False):
    """An entry of the frontier, taken out of its queue."""

    item: int
    url: str
    depth: int
    parent: int
    hops: int = 0
    purpose: Purpose = Purpose.PAGE
    about: str = ""
    attempt: int = 0
    offsite: int = 0


class Ended(Struct, frozen=True, gc=False):
    """A transfer that is over."""

    lease: Lease
    at: float
    ok: bool | None = None  # for the breaker: the site answered well, failed, or neither
    slow_down: bool = False  # it asked for less (429, 503)
    retry_after_s: float | None = None
    outcome: str = ""  # for the request log: the status, or the kind of failure


class End(StrEnum):
    """How a lease ends."""

    PAGE = "page"  # a page was stored: the permit is used up
    OTHER = "other"  # redirect, error, refusal: the item is done, the permit is given back
    RETRY = "retry"  # queued again after a wait, counted as an attempt
    RELEASE = "release"  # queued again at once, as if it had not been claimed


class Outcome(Struct, frozen=True, gc=False):
    """The end of a lease."""

    lease: Lease
    end: End
    wait_s: float = 0.0


class Handed(Struct, frozen=True, gc=False):
    """A transfer whose page lies in a spool, for a parser to take."""

    ended: Ended
    reference: bytes


class Taken(Struct, frozen=True, gc=False):
    """A fetched page, leased to a parser."""

    lease: Lease
    reference: bytes
    deaths: int  # parsers that have died on it


class Wanted(Struct, frozen=True, gc=False):
    """Politeness by address: a lease whose request goes to this address."""

    lease: Lease
    address: str
    crawl_delay_s: float = 0.0  # what the host's robots.txt asks for


class Rejection(Struct, frozen=True, gc=False):
    """An item that was taken out of its queue without being tried, or never came into it."""

    item: Item
    crawl: int
    reason: Reason
    detail: str = ""


class Admission(Struct, frozen=True):
    """What became of a batch of URLs: how many were new, and those known deeper that must be expanded again."""

    new: int
    duplicates: int
    expand: tuple[tuple[int, str, int], ...] = ()  # item, URL and new depth of what was fetched with its links cut
    full: tuple[Found, ...] = ()  # those whose queue has no room now: the caller keeps them and brings them again


class RobotsRecord(Struct, frozen=True):
    """What is known of an origin's robots.txt."""

    status: str  # "ok", "allow" (4xx: all is allowed), "unreachable" (5xx, network: nothing is), "address" (refused)
    body: bytes
    expires: float  # wall clock
    detail: str = ""


class CrawlLimits(Struct, frozen=True):
    """The bounds of one crawl that the frontier itself keeps."""

    max_pages: int | None = None
    max_pages_per_domain: int | None = None
    max_depth: int | None = None
    in_flight: int | None = None
    max_sitemaps: int | None = None  # let in of one site


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
    due: int = 0  # sites that could be asked now
    to_parse: int = 0  # fetched, not parsed yet, where parsers are processes of their own


class Frontier(Protocol):
    """What the engine needs of a frontier."""

    def now(self) -> float:
        """The frontier's clock."""

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues what is new."""

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Those of the URLs that the crawl does not know yet."""

    def scope_extended(self, crawl: int, url: str) -> None:
        """Remembers that a seed's redirect made this URL's place a part of the scope."""

    def scope_extensions(self, crawl: int) -> list[str]:
        """Those URLs, by whichever process they were found."""

    def claim(self, owner: str, limit: int) -> list[Lease]:
        """Leases for items that are due; durable before it returns."""

    def take_places(self, wanted: Sequence[Wanted]) -> list[bool]:
        """Politeness by address: whether each may be sent now. False: the lease is over, its item is queued again, and
        is due when the address is. A place is given back with the lease: by `cool`, or by `finish` if nothing was sent.
        """

    def depth_of(self, lease: Lease) -> int:
        """How deep a leased URL is known to be by now: it may have been found by a shorter way since it was claimed."""

    def cool(self, ended: Iterable[Ended]) -> None:
        """Frees places and sets when sites are next due."""

    def finish(self, outcomes: Iterable[Outcome], batch: int = 0) -> list[bool]:
        """Ends leases; False for one that was not valid any more.

        `batch` is the store's that will hold the rows: until it is acknowledged, a crash makes the items queued again.
        """

    def acknowledge(self, batch: int) -> None:
        """The store's batches up to this one are safe on disk."""

    def commit(self) -> None:
        """Makes what was admitted and finished safe against a kill."""

    def sync(self) -> None:
        """Makes what was committed safe against a power cut; may be called from another thread."""

    def robots(self, origin: str) -> RobotsRecord | None:
        """What is known of an origin's robots.txt."""

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Remembers an origin's robots.txt, for all crawls."""

    def refused(self, reason: Reason, url: str, parent: int) -> None:
        """Remembers a refusal that could not be worked out again later, up to a bound."""

    def rejections(self) -> list[Rejection]:
        """Items taken out of the queues, or not let in, since the last call: record them, then tell `ended`."""

    def ended(self, items: Iterable[int], batch: int = 0) -> None:
        """Rejected items whose reasons are stored."""

    def knows_finished(self) -> Callable[[int], bool] | None:
        """What tells of an item, as of now, whether it is finished; None for a frontier that forgets what is."""

    def next_due(self) -> float | None:
        """When claiming may give something next; None if nothing is scheduled."""

    def exhausted(self) -> bool:
        """Whether every crawl has all the pages that it may have."""

    def stats(self) -> FrontierStats:
        """Where things stand."""


class ParseQueue(Protocol):
    """What a frontier does besides where parsers are processes of their own: fetched pages wait there for them."""

    def fetched(self, handed: Iterable[Handed]) -> list[bool]:
        """Transfers whose pages lie in a spool: cooled, and on their way to a parser. False: the lease was over."""

    def take(self, limit: int) -> list[Taken]:
        """Fetched pages, the oldest first, leased to this process to parse."""

    def died_on(self, item: int) -> int:
        """A parser has died on this page; gives how many have."""

    def awaited(self, items: Sequence[int]) -> list[bool]:
        """For each item whether it is fetched and not parsed yet; in doubt, yes."""
