"""A site as a row of bytes, and back, exactly: its clock, its one lane, what is urgent there, and its queues.

A later process may read a row: then the clock of the site is made anew from what is known of its last request, and the
row adds what the site has shown of itself. A page for a site at rest is a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from weft.frontier.contract import Item
from weft.frontier.politeness import AddressClock, Breaker, PolitenessClock
from weft.frontier.ranks import rank_of
from weft.frontier.scheduling.sites import Crawl, Site, SiteQueue
from weft.frontier.scheduling.spill import QueueState
from weft.records import Found

PAGE, SITE = b"p", b"s"
_CLOCK = sorted({*PolitenessClock.__slots__} - {"active", "breakers", "parked"})
_SHOWN = ("good", "recent_s", "usual_s")  # of the clock: what no other record has
_BREAKER = Breaker.__slots__
_LANE = ("served_at", "stalled_at", "look_at", "sitemaps_found", "_had_sitemap", "pages", "queued", "_sequence")
_HEAPS = ("urgent", "robots", "sitemaps")
_clock_state, _lane_state, _breaker_state = attrgetter(*_CLOCK), attrgetter(*_LANE), attrgetter(*_BREAKER)
Clocks = Callable[[str], PolitenessClock]


class PackedSite(Struct, array_like=True):
    """A site at rest."""

    key: str
    process: int  # which has written it: times are of its clock
    address: str
    clock: list[float | int | bool]
    breakers: list[tuple[str, tuple[list[int], float, int, int]]]
    lane: list[float | int | bool | None]
    origins: list[str]
    heaps: list[list[tuple[float, int, Item]]]
    queues: list[tuple[int, QueueState]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PackedSite).decode


def packed_page(item: int, found: Found) -> bytes:
    """A page that waits at a site at rest."""
    rank = rank_of(found.depth, found.priority)
    return b"p%d %d %d %d %b" % (item, rank, found.parent, found.offsite, found.url.encode())


def unpacked_page(row: bytes) -> tuple[int, int, int, int, str]:
    """Its item, rank, parent, hops outside the scope, and URL."""
    item, depth, parent, offsite, url = row[1:].split(b" ", 4)
    return int(item), int(depth), int(parent), int(offsite), url.decode()


def packed_site(site: Site, lane: SiteQueue, process: int) -> bytes:
    """A site with all that is known of it."""
    clock = site.clock
    address = clock.address if isinstance(clock, AddressClock) else ""
    state: Any = () if address else _clock_state(clock)
    named = clock.breakers.items() if clock.breakers is not None and not address else ()
    breakers = [(name, _breaker_state(breaker)) for name, breaker in named]
    heaps = [getattr(lane, name) or () for name in _HEAPS]
    queues = [(queue.depth, queue.state()) for queue in lane.queues]
    return SITE + _encode((site.key, process, address, state, breakers, _lane_state(lane), lane.origins, heaps, queues))


def read_site(row: bytes) -> PackedSite:
    """What was packed."""
    return _decode(memoryview(row)[1:])


def clock_of(packed: PackedSite, address_clock: Clocks) -> PolitenessClock:
    """The clock of a site that this process has packed."""
    if packed.address:
        return address_clock(packed.address)
    clock = PolitenessClock()
    for name, value in zip(_CLOCK, packed.clock, strict=True):
        setattr(clock, name, value)
    for name, values in packed.breakers:
        clock.breakers = clock.breakers or {}
        breaker = clock.breakers[name] = Breaker()
        breaker.failing, (breaker.open_until, breaker.probe, breaker.probes) = tuple(values[0]), values[1:]
    return clock


def recall_shown(packed: PackedSite, clock: PolitenessClock) -> None:
    """What an earlier process knew of a site is true of it for this one's clock."""
    for name, value in zip(_CLOCK, packed.clock, strict=False):
        if name in _SHOWN:
            setattr(clock, name, value)


def unpacked_lane(packed: PackedSite, site: Site, crawl: Crawl) -> SiteQueue:
    """The lane of the site."""
    lane = site.lane(crawl)
    for origin in packed.origins:
        lane.place_of(origin)
    for name, heap in zip(_HEAPS, packed.heaps, strict=True):
        if heap:
            setattr(lane, name, heap)
    for depth, state in packed.queues:
        lane.queue(depth).restore(state)
    for name, value in zip(_LANE, packed.lane, strict=True):
        setattr(lane, name, value)
    return lane
