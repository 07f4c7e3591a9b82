"""A site as a row of bytes, and back, exactly: its clock, its one lane, what is urgent there, and its queues.

Rows are read by the process that wrote them, and by no other. A page for a site at rest is a row of its own.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable

import msgspec

from weft.frontier.contract import Item
from weft.frontier.politeness import AddressClock, Breaker, PolitenessClock
from weft.frontier.scheduling.sites import Crawl, Lane, Site
from weft.records import Found

PAGE, SITE = b"p", b"s"
_CLOCK = sorted({*PolitenessClock.__slots__} - {"active", "breakers", "parked"})
_BREAKER = Breaker.__slots__
_LANE = ("served_at", "stalled_at", "look_at", "sitemaps_found", "_had_sitemap", "pages", "queued", "_sequence")
_HEAPS = ("urgent", "robots", "sitemaps")
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Item).decode
Clocks = Callable[[str], PolitenessClock]


def packed_page(item: int, found: Found) -> bytes:
    """A page that waits at a site at rest."""
    return b"p%d %d %d %d %b" % (item, found.depth, found.parent, found.offsite, found.url.encode())


def unpacked_page(row: bytes) -> tuple[int, int, int, int, str]:
    """Its item, depth, parent, hops outside the scope, and URL."""
    item, depth, parent, offsite, url = row[1:].split(b" ", 4)
    return int(item), int(depth), int(parent), int(offsite), url.decode()


def packed_site(site: Site, lane: Lane) -> bytes:
    """A site with all that is known of it."""
    clock = site.clock
    address = clock.address if isinstance(clock, AddressClock) else ""
    state = [getattr(clock, name) for name in _CLOCK] if not address else []
    named = clock.breakers.items() if clock.breakers is not None and not address else ()
    breakers = [(name, [getattr(breaker, slot) for slot in _BREAKER]) for name, breaker in named]
    heaps = [[(time, at, _encode(item)) for time, at, item in getattr(lane, name) or ()] for name in _HEAPS]
    queues = [(queue.depth, queue.state()) for queue in lane.queues]
    own = [getattr(lane, name) for name in _LANE]
    return SITE + marshal.dumps((site.key, address, state, breakers, own, lane.origins, heaps, queues))


def unpacked_site(row: bytes, crawl: Crawl, address_clock: Clocks) -> tuple[Site, Lane]:
    """The same site once more."""
    key, address, state, breakers, own, origins, heaps, queues = marshal.loads(row[1:])  # noqa: S302
    clock = address_clock(address) if address else PolitenessClock()
    for name, value in zip(_CLOCK if not address else (), state, strict=True):
        setattr(clock, name, value)
    for name, values in breakers:
        clock.breakers = clock.breakers or {}
        breaker = clock.breakers[name] = Breaker()
        for slot, value in zip(_BREAKER, values, strict=True):
            setattr(breaker, slot, value)
    site = Site(key, clock)
    lane = site.lane(crawl)
    for origin in origins:
        lane.place_of(origin)
    for name, heap in zip(_HEAPS, heaps, strict=True):
        if heap:
            setattr(lane, name, [(time, at, _decode(item)) for time, at, item in heap])
    for depth, content in queues:
        lane.queue(depth).restore(content)
    for name, value in zip(_LANE, own, strict=True):
        setattr(lane, name, value)
    return site, lane
