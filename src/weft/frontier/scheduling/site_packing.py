"""A site as a row of bytes, and back, exactly: its clock, its one queue, and what is urgent there.

If a later process reads a row, it rebuilds the site's clock from its last request, and the row adds the site's
responsiveness. A page for a swapped-out site is a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from weft.frontier.contract import Item, PageLinks
from weft.frontier.politeness import AddressClock, Breaker, PolitenessClock
from weft.frontier.ranks import rank_of
from weft.frontier.scheduling.sites import Crawl, Site, SiteQueue
from weft.frontier.scheduling.spill import QueueState
from weft.records import Found

PAGE, SITE = b"p", b"s"
_CLOCK_FIELDS = sorted({*PolitenessClock.__slots__} - {"active", "breakers", "parked"})
_RESPONSIVENESS_FIELDS = ("good", "recent_s", "usual_s")  # of the clock: stored in no other record
_BREAKER_FIELDS = Breaker.__slots__
_QUEUE_FIELDS = ("served_at", "stalled_at", "look_at", "sitemaps_found", "_had_sitemap", "pages", "queued", "_sequence")
_HEAP_FIELDS = ("urgent", "robots", "sitemaps")
_clock_state, _queue_state, _breaker_state = (
    attrgetter(*_CLOCK_FIELDS),
    attrgetter(*_QUEUE_FIELDS),
    attrgetter(*_BREAKER_FIELDS),
)
AddressClockOf = Callable[[str], PolitenessClock]


class PackedSite(Struct, array_like=True):
    """A swapped-out site."""

    key: str
    process: int  # that has written it: times are of its clock
    address: str
    clock: list[float | int | bool]
    breakers: list[tuple[str, tuple[list[int], float, int, int]]]
    site_queue: list[float | int | bool | None]
    origins: list[str]
    heaps: list[list[tuple[float, int, Item]]]
    queues: list[tuple[int, QueueState]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PackedSite).decode


def pack_page(item: int, found_url: Found) -> bytes:
    """A page that waits at a swapped-out site."""
    rank = rank_of(found_url.depth, found_url.priority)
    return b"p%d %d %d %d %b" % (item, rank, found_url.parent, found_url.offsite, found_url.url.encode())


def pack_links(first: int, links: PageLinks, urls: list[str]) -> bytes:
    """Several links of one page to one origin, numbered from `first`."""
    cut = len(links.origin)
    paths = "\n".join([links.origin, *(url[cut:] for url in urls)])
    return b"p%d %d %d %d %b" % (first, links.depth, links.parent, links.offsite, paths.encode())


def unpack_pages(row: bytes) -> list[tuple[int, str, str, int, int, int]]:
    """Of each page its item, origin, path, rank, parent, and hops outside the scope."""
    first, rank, parent, offsite, text = row[1:].split(b" ", 4)
    origin, *paths = text.decode().split("\n")
    if not paths:
        path_at = origin.index("/", 8)
        origin, paths = origin[:path_at], [origin[path_at:]]
    same = int(rank), int(parent), int(offsite)
    return [(item, origin, path, *same) for item, path in enumerate(paths, int(first))]


def pack_site(site: Site, site_queue: SiteQueue, process: int) -> bytes:
    """A site with its whole state."""
    clock = site.clock
    address = clock.address if isinstance(clock, AddressClock) else ""
    state: Any = () if address else _clock_state(clock)
    named = clock.breakers.items() if clock.breakers is not None and not address else ()
    breakers = [(name, _breaker_state(breaker)) for name, breaker in named]
    heaps = [getattr(site_queue, name) or () for name in _HEAP_FIELDS]
    queues = [(queue.depth, queue.state()) for queue in site_queue.queues]
    return SITE + _encode(
        (site.key, process, address, state, breakers, _queue_state(site_queue), site_queue.origins, heaps, queues)
    )


def read_site(row: bytes) -> PackedSite:
    """What was packed."""
    return _decode(memoryview(row)[1:])


def unpack_clock(packed: PackedSite, address_clock: AddressClockOf) -> PolitenessClock:
    """The clock of a site that this process has packed."""
    if packed.address:
        return address_clock(packed.address)
    clock = PolitenessClock()
    for name, value in zip(_CLOCK_FIELDS, packed.clock, strict=True):
        setattr(clock, name, value)
    for name, values in packed.breakers:
        clock.breakers = clock.breakers or {}
        breaker = clock.breakers[name] = Breaker()
        breaker.failing, (breaker.open_until, breaker.probe, breaker.probes) = tuple(values[0]), values[1:]
    return clock


def restore_responsiveness(packed: PackedSite, clock: PolitenessClock) -> None:
    """Applies the responsiveness that an earlier process recorded to this process's clock of the site."""
    for name, value in zip(_CLOCK_FIELDS, packed.clock, strict=False):
        if name in _RESPONSIVENESS_FIELDS:
            setattr(clock, name, value)


def unpack_queue(packed: PackedSite, site: Site, crawl: Crawl) -> SiteQueue:
    """The queue of the site."""
    queue = site.queue_of(crawl)
    for origin in packed.origins:
        queue.origin_number(origin)
    for name, heap in zip(_HEAP_FIELDS, packed.heaps, strict=True):
        if heap:
            setattr(queue, name, heap)
    for depth, state in packed.queues:
        queue.queue(depth).restore(state)
    for name, value in zip(_QUEUE_FIELDS, packed.site_queue, strict=True):
        setattr(queue, name, value)
    return queue
