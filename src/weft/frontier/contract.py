"""The contract of every frontier, embedded or on Redis; one contract suite runs on all of them.

A URL's item goes queued → leased → (cooled) → finished, or back to queued. Operations are batched, each is atomic:

    admit    canonical URLs in; the new ones are marked seen, numbered and queued under their site
    claim    up to N items whose site is due, each with a lease; an origin's robots.txt comes first if none is in force
    cool     the transfer has ended: the slot is free, and the site is due again at end + delay
    finish   the item has ended for good (page or not), or is queued again (retry, release)

Invariants: a site never has more live leases than slots; it is never due before the delay has passed since its last
request ended, across processes, restarts and crashes; an item is given to one owner at a time, and a lease that has
expired or is of an older epoch changes nothing any more; nothing admitted is lost, nothing finished comes back.

A frontier is a set of parts. Each has a contract of a few methods below, its own state, and what must stay true of it;
callers hold the parts that they use. There is no object with all methods.

    queue       URLs come in                             leases      items go out, and end
    revisits    known URLs come in once more             rejected    what ends without a request
    crawls      opened, changed, paused                  status      numbers, and what a crawl waits for
    permits     how many pages crawls may have           sites       robots.txt, cookies, politeness keys
    notes       strings kept with the frontier           durability  what is safe, and against what
    recovery    what an earlier process left             parse_queue pages for parser processes (Redis alone)
    logins      pages wait for them (embedded alone)

Times are the frontier's own clock (`now()`), which never runs backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from weft.config import PolitenessSection
from weft.records import Found, HandRoute, Lease, Purpose, Reason, RenderedPart


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
    """Links of one page to one origin that the rules admit: canonical URLs, each once."""

    origin: str
    urls: list[str]
    depth: int
    parent: int
    offsite: int = 0

    def found_urls(self) -> list[Found]:
        """The links as single URLs."""
        return [Found(url, self.depth, self.parent, offsite=self.offsite) for url in self.urls]


# Queues stored URLs again: given an item, yields those stored after it, each with its item, in the order of the items;
# None for one that is not to be queued, so that a walk with few of them has bounded steps too.
StoredUrls = Callable[[int], Iterable[tuple[int, Found | None]]]


class TransferEnd(Struct, frozen=True, gc=False):
    """A transfer that is over."""

    lease: Lease
    at: float
    ok: bool | None = None  # for the circuit breaker: success, failure, or neither
    slow_down: bool = False  # the site asked for fewer requests (429, 503)
    retry_after_s: float | None = None
    outcome: str = ""  # for the request log: the status, or the kind of failure
    in_trouble: bool = False  # of a slow-down: by a fault of the site (503), not by a limit that it has set
    took_s: float | None = None  # until the answer was there; None if there was none, or it was not measured

    @property
    def failure(self) -> str:
        """What went wrong, where `ok` is False: the cause of what is rejected after it."""
        return f"HTTP {self.outcome}" if self.outcome.isdecimal() else self.outcome


class End(StrEnum):
    """How a lease ends."""

    PAGE = "page"  # a page was stored: the permit is used up
    OTHER = "other"  # redirect, error, refusal: the item is done, the permit is given back
    RETRY = "retry"  # queued again after a wait, counted as an attempt
    RELEASE = "release"  # queued again at once, as if it had not been claimed


class Slots(Struct, frozen=True, gc=False):
    """How many leases may be out at a time to sites that have not proved responsive: responsive ones may use
    all slots.
    """

    unknown: int  # sites that have never answered, or not the last time
    slow: int


# The route of a lease that is claimed at this time (monotonic), from which its deadlines count.
HandRouter = Callable[[Lease, float], HandRoute | None]


class EndedLease(Struct, frozen=True, gc=False):
    """A lease and how it ended."""

    lease: Lease
    end: End
    wait_s: float = 0.0


class HandedTransfer(Struct, frozen=True, gc=False):
    """A transfer whose page lies in a spool until a parser claims it."""

    ended: TransferEnd
    reference: bytes


class LeasedPage(Struct, frozen=True, gc=False):
    """A fetched page, leased to a parser."""

    lease: Lease
    reference: bytes
    deaths: int  # parsers that have died on it


class SlotRequest(Struct, frozen=True, gc=False):
    """Politeness by address: a lease, and the address of its request."""

    lease: Lease
    address: str
    crawl_delay_s: float = 0.0  # what the host's robots.txt asks for


class Rejection(Struct, frozen=True, gc=False):
    """An item that ended without a request: removed from its queue, or never queued."""

    item: Item
    crawl: int
    reason: Reason
    detail: str = ""
    request: bytes = b""  # the request that it was admitted with


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
    """Statistics for displays, metrics and termination."""

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


class CrawlCounts(Struct, frozen=True):
    """The counts of one crawl."""

    queued: int
    leased: int
    pages: int
    seen: int
    set_aside: int = 0


class WaitReason(Struct, frozen=True):
    """Why a crawl requests nothing now, and until when (the frontier's clock), if known."""

    cause: str
    until: float | None = None


# The causes of a wait, as messages; {} is the site, or the host and port.
WAIT_CAUSES = {
    "paused": "paused",
    "machine": "another crawl on this machine is asking {}",
    "breaker": "circuit breaker of {}",
    "robots": "robots.txt of {}",
    "login": "the next try to log in at {}",
    "retry": "retry of a failed request to {}",
    "delay": "politeness delay of {}",
    "retry-after": "Retry-After of {}",
    "slow": "{} asked for fewer requests (429 or 503)",
}


class QueuePart(Protocol):
    """The URLs of crawls: seen ones, and those that wait to be claimed. A URL is admitted once in each crawl."""

    def admit(self, crawl: int, found_urls: Sequence[Found]) -> Admission:
        """Queues what is new."""

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        """Queues the new links of pages as one batch: most of what a crawl admits."""

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Those of the URLs that are not in the crawl's seen set."""

    def restore_excluded(self, crawl: int, wanted: Callable[[Item], bool]) -> int:
        """Queues again those items of `LeasesPart.exclude` that are `wanted` now; returns how many."""

    def items(self, crawl: int) -> Iterator[Item]:
        """Everything that is queued for a crawl."""


class RevisitsPart(Protocol):
    """Known URLs that are queued once more, as new visits under new numbers.

    The position of a walk through many of them is written in the transaction that queues them: a kill repeats none. A
    walk is an iterator, each step of which queues a bounded number: the crawl runs meanwhile. After an error (a full
    disk, an unreachable server) a new walk continues at that position.
    """

    def readmit(self, crawl: int, found_urls: Found) -> None:
        """Queues a URL, seen or not. A robots.txt that could not be fetched is fetched again, or the visit would be
        refused again."""

    def readmit_once(self, crawl: int, name: str, what: str, stored: StoredUrls) -> Iterator[None]:
        """Queues URLs, unless the note `name` says that these (`what`) are queued already."""

    def walk(self, crawl: int, name: str, run: str, stored: StoredUrls, begin: Callable[[int], None]) -> Iterator[None]:
        """Queues URLs once for each run, by the note `name`; `begin` is called with the last item before. An
        interrupted walk of any run is continued.
        """


class LeasesPart(Protocol):
    """Which process has which item. An item has one owner at a time; an expired lease, or one of an older epoch, has no
    effect.
    """

    def claim(self, owner: str, limit: int, slots: Slots | None = None, route: HandRouter | None = None) -> list[Lease]:
        """Leases for items that are due; durable before it returns. `slots`: what sites that hang may have of them.
        `route` says which of them a worker on another machine shall make (the embedded frontier alone)."""

    def next_due(self) -> float | None:
        """When `claim` may next return something; None if nothing is scheduled."""

    def sending(self, leases: Sequence[Lease]) -> None:
        """These requests are about to be sent, and must not be sent twice: from now on an item that comes back is
        rejected (`unknown_outcome`) and not leased again. On the disk before it returns.
        """

    def not_sent(self, lease: Lease) -> None:
        """Such a request was not sent after all: its item may be leased again."""

    def claim_slots(self, wanted: Sequence[SlotRequest]) -> list[bool]:
        """Politeness by address: whether each request may be sent now. False: the lease has ended, and its item is
        queued again until the address is due. `cool` frees the slot, or `finish` where nothing was sent.
        """

    def depth_of(self, lease: Lease) -> int:
        """A leased URL's depth now: since the claim it may have been found again at a smaller one."""

    def cool(self, ended: Iterable[TransferEnd]) -> None:
        """Frees slots and sets when sites are next due."""

    def finish(self, outcomes: Iterable[EndedLease], batch: int = 0) -> list[bool]:
        """Ends leases; False for one that was no longer valid.

        `batch`: the store's batch that will hold the rows. A crash before it is acknowledged queues the items again.
        """

    def exclude(self, leases: Iterable[Lease]) -> None:
        """Excludes leased items that an edit no longer admits, until `QueuePart.restore_excluded`; no request was sent
        for them.
        """


class RejectedPart(Protocol):
    """URLs that end without a request: some are never numbered (`refused`), the others need a row (`rejections`)."""

    def refused(self, crawl: int, reason: Reason, url: str, parent: int) -> None:
        """Records a refusal whose reason cannot be derived again later; a crawl has a bounded number of them."""

    def left_sitemaps(self, crawl: int) -> list[Found]:
        """The sitemaps over the limit, up to a bound: for a crawl whose limit is raised."""

    def rejections(self) -> list[Rejection]:
        """Items removed from the queues, or not admitted, since the last call: the caller stores their rows, then calls
        `end_stored`.
        """

    def end_stored(self, items: Iterable[int], commit_batch: int = 0) -> None:
        """Ends the leases of rejected items whose rows are stored. `commit_batch`: the store's batch with those rows,
        whose `acknowledge` makes the end final; 0: at once.
        """


class CrawlsPart(Protocol):
    """Crawls as tenants of a frontier: each with its own limits, politeness, weight, queue and seen URLs.

    A crawl is opened by its name; its number is this frontier's (in each pod another), and never given out again. An
    engine also ends and forgets crawls: that is the embedded frontier's alone, since a crawl of pods on Redis is the
    only one in its databases, which are emptied as a whole.
    """

    def open_crawl(
        self, name: str, limits: CrawlLimits, section: PolitenessSection | None = None, weight: float = 1.0
    ) -> int:
        """The number of a crawl: of a new one, or of the existing one of that name, to which these settings apply from
        now on.

        Without a `section` it is as polite as the frontier.
        """

    def change_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Applies other settings from now on; BadInput for a `max_depth` that comes too late."""

    def follow(self, crawl: int, revision: int, trust: str = "") -> None:
        """The requests of a crawl follow this revision of its settings from now on: the request log records it, for
        `weft audit`. `trust`: see `settings.trust_of`.
        """

    def pause(self, crawl: int, paused: bool = True) -> None:
        """Pauses or continues a crawl: nothing of a paused one is claimed, and nothing is lost."""


class StatusPart(Protocol):
    """The frontier's status: may be read at any time, and changes nothing."""

    def stats(self) -> FrontierStats:
        """The current numbers."""

    def crawl_counts(self, crawl: int) -> CrawlCounts:
        """The numbers of an open crawl, all of one moment; KeyError for one that is not open."""

    def waits_for(self, crawl: int) -> WaitReason | None:
        """Why a crawl that has URLs queued, and nothing in flight, requests nothing within the next seconds. None while
        it does, or where nothing is queued. Costs the same for any number of sites: it checks a bounded number.
        """

    def has_work(self, crawl: int) -> bool:
        """Whether a queued item of a crawl may still be claimed; checks all of its sites."""


class PermitsPart(Protocol):
    """How many pages crawls may have in this frontier. Pages stored and pages in flight together never exceed it."""

    def allow(self, crawl: int, max_pages: int) -> None:
        """Sets how many pages a crawl may have."""

    def left(self, crawl: int) -> int:
        """How many more pages of a crawl may be started."""

    def exhausted(self) -> bool:
        """Whether every crawl has reached its `max_pages`."""


class SitesPart(Protocol):
    """Facts about sites and their origins, for all crawls and across restarts."""

    def key_of(self, url: str) -> str:
        """The politeness key of a URL."""

    def robots(self, origin: str) -> RobotsRecord | None:
        """The last known robots.txt of an origin."""

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Records an origin's robots.txt; its Crawl-delay raises the site's delay."""

    def held(self, crawl: int, url: str) -> str:
        """Why a part of a rendered page may not be requested now: its origin's breaker is open (`breaker`), or its site
        asked for silence (`retry-after`); empty if it may.
        """

    def asked(self, crawl: int, parts: Sequence[RenderedPart]) -> None:
        """Records that parts of a rendered page were requested: they are logged, and their sites are due no earlier
        than a delay after the last of them.
        """

    def ask_robots_again(self, crawl: int, origin: str) -> None:
        """A robots.txt that could not be fetched is fetched once more, before the next page of its origin."""

    def cookies_of(self, lease: Lease) -> tuple[int, bytes] | None:
        """The version of the newest copy of the cookies of a lease's site, and the copy; None if this process already
        has the newest.
        """

    def keep_cookies(self, crawl: int, key: str, data: bytes) -> int:
        """Keeps a newer copy; returns its version."""


class NotesPart(Protocol):
    """Named strings that are stored with the frontier."""

    def note(self, name: str, value: str | None = None) -> str:
        """The string of that name; a given value is stored at the next commit."""

    def scope_extended(self, crawl: int, url: str) -> None:
        """Records that a seed's redirect to this URL extended the scope."""

    def scope_extensions(self, crawl: int) -> list[str]:
        """The URLs that extended the scope, from all processes."""


class DurabilityPart(Protocol):
    """What is safe against which failure. For the order of calls see engine/loop/commit.py."""

    acknowledged: int  # the last batch of the store that was acknowledged, by this process or one before

    def commit(self) -> None:
        """Makes what was admitted and finished safe against a kill."""

    def sync(self) -> None:
        """Makes what was committed safe against a power cut; may be called from another thread."""

    def acknowledge(self, batch: int) -> None:
        """The store's batches up to this one are durable."""

    def knows_finished(self) -> Callable[[int], bool] | None:
        """Returns a function that tests whether an item is finished, as of now; None for a frontier that forgets
        finished items.
        """


class RecoveryPart(Protocol):
    """Restores the state of an earlier process. Called once, after the crawls are opened and before anything is
    claimed.
    """

    def recover(
        self,
        done: Iterable[int] = (),
        pages: Mapping[int, int] | None = None,
        by_key: Mapping[str, int] | None = None,
        by_crawl: Mapping[int, Mapping[str, int]] | None = None,
        *,
        batch: int = 0,
    ) -> int:
        """Queues what was queued; returns how much that is.

        `done`: items with a row in the store, whose ends the frontier may lack. `pages`: stored pages by crawl;
        `by_key`: stored pages by site, where a crawl has a budget for each site; `by_crawl`: the same for each crawl.
        `batch`: the store's last one, which is on the disk.
        """


class Frontier(Protocol):
    """The parts of a frontier, with one clock and one end."""

    @property
    def queue(self) -> QueuePart: ...

    @property
    def revisits(self) -> RevisitsPart: ...

    @property
    def leases(self) -> LeasesPart: ...

    @property
    def rejected(self) -> RejectedPart: ...

    @property
    def crawls(self) -> CrawlsPart: ...

    @property
    def status(self) -> StatusPart: ...

    @property
    def permits(self) -> PermitsPart: ...

    @property
    def sites(self) -> SitesPart: ...

    @property
    def notes(self) -> NotesPart: ...

    @property
    def durability(self) -> DurabilityPart: ...

    @property
    def recovery(self) -> RecoveryPart: ...

    def now(self) -> float:
        """The frontier's clock."""

    def close(self) -> None:
        """Commits, and releases files and locks."""


class ParseQueuePart(Protocol):
    """A queue of fetched pages, for parsers that are processes of their own."""

    def fetched(self, handed: Iterable[HandedTransfer]) -> list[bool]:
        """Cools transfers whose pages lie in a spool, and queues the pages for a parser. False: the lease had ended."""

    def claim(self, limit: int) -> list[LeasedPage]:
        """Leases fetched pages to this process for parsing, the oldest first."""

    def died_on(self, item: int) -> int:
        """Counts a parser that died on this page; returns how many have."""

    def awaited(self, items: Sequence[int]) -> list[bool]:
        """Whether each item is fetched and not parsed yet; True if that is unknown."""


class LoginsPart(Protocol):
    """Requests that log a crawl in, and the pages that wait for them. A login belongs to the process that makes it:
    only its requests are written down, in the request log.
    """

    def hold(self, crawl: int, holds: Callable[[str], bool]) -> None:
        """From now on a page of the crawl for whose URL `holds` returns True is not leased; it is called at each claim,
        and may call `ask`.
        """

    def release(self, crawl: int) -> None:
        """Tries the held pages of a crawl again."""

    def ask(self, crawl: int, url: str, about: str, wait_s: float = 0.0) -> None:
        """Queues a request of a login, before the pages of its site and after its robots.txt."""


class LossRecoveryPart(RecoveryPart, Protocol):
    """Recovery from a server that may lose acknowledged writes."""

    lost_ends: list[int]  # stored items whose links may have been lost with the server's data

    def restore_stored(self, crawl: int, rows: Iterable[tuple[str, int, int]]) -> None:
        """Restores the pages of `lost_ends` (URL, depth, item) that the server has forgotten."""

    def settled(self) -> bool:
        """Whether all processes of the pod have called `restore_stored` since the server lost data."""


class SharedFrontier(Frontier, Protocol):
    """A frontier on a server, shared by the fetchers and parsers of a pod."""

    @property
    def parse_queue(self) -> ParseQueuePart: ...

    @property
    def recovery(self) -> LossRecoveryPart: ...
