"""Turns host names into addresses: pins first, then a bounded cache, then name servers.

`find` returns a known answer, without waiting; `ask` starts a lookup, whose end makes `fileno` readable for the event
loop, which then calls `completed`, as it does when `due` has passed. No address is checked here: the client checks
every one before it connects.

The lookups are done by a `Lookups`: c-ares (`dns_cares`), or the C library's resolver in threads (`dns_system`), which
is used when it is asked for (`dns_servers: system`) or when pycares cannot be imported, and then that is logged. It is
made at the first lookup: a crawl of pinned hosts needs none.

What must stay true: only the loop's thread touches the cache, and a name is looked up once at a time, however many wait
for it. An answer is kept for as long as its records say, but for no less than MIN_TTL_S, so that a name with a TTL of 0
does not cost a lookup for each page, and for no more than MAX_TTL_S.
"""

from __future__ import annotations

import select
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import ip_address

from msgspec import Struct

from weft.errors import BadInput
from weft.fetch.dns.dns_system import ThreadLookups, lookup
from weft.fetch.dns.lookups import LookupResult, Lookups
from weft.telemetry import Log

MIN_TTL_S = 30.0
MAX_TTL_S = 3600.0
ABSENT_TTL_S = 300.0  # a name that does not exist
FAILED_TTL_S = 30.0  # a name whose lookup failed
MAX_NAMES = 100_000
FOREVER = float("inf")
_PROXY = "proxy "  # in front of a name in the cache: its address as a proxy
SYSTEM = "system"  # instead of a name server: the C library's resolver
log = Log("weft.fetch.dns.resolver")

Lookup = Callable[[str], tuple[str, ...]]


class ResolvedName(Struct, frozen=True, gc=False):
    """A name's addresses in the order to try them, or why there are none."""

    addresses: tuple[str, ...]
    error: str = ""
    expires: float = FOREVER


class NameCounts:
    """What a resolver has counted since its start."""

    __slots__ = ("known", "outcomes", "running", "seconds")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()  # ended lookups by kind
        self.seconds = 0.0  # their total time
        self.known = 0  # lookups that the cache has answered
        self.running = 0

    def add(self, other: NameCounts) -> None:
        """Adds the counts of another resolver."""
        self.outcomes.update(other.outcomes)
        self.seconds += other.seconds
        self.known += other.known
        self.running += other.running


def literal(host: str) -> str | None:
    """The address in a URL's host, if it is one: `127.0.0.1`, `[::1]`."""
    if not host or (host[0] != "[" and not host[-1].isdigit()):
        return None
    try:
        return str(ip_address(host.strip("[]")))
    except ValueError:
        return None


class Resolver:
    """Resolves names to addresses, without ever blocking the caller."""

    def __init__(
        self,
        pins: Mapping[str, str] | None = None,
        *,
        servers: Sequence[str] = (),
        timeout_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        lookup: Lookup | None = None,
        threads: int | None = None,
        size: int = MAX_NAMES,
    ) -> None:
        """`lookup`: called in threads instead of querying name servers."""
        self._pins = {name.lower(): address for name, address in (pins or {}).items()}
        self._clock = clock
        self._make: Callable[[], Lookups] = (
            partial(lookups_of, servers, timeout_s) if lookup is None else partial(ThreadLookups, lookup, threads)
        )
        self._lookups: Lookups | None = None
        self._size = size
        self._cache: OrderedDict[str, ResolvedName] = OrderedDict()
        self._running: dict[str, float] = {}  # names, and when each lookup started
        self._epoll = select.epoll()
        self._tick_s: float | None = None
        self._next_tick = FOREVER
        self.counts = NameCounts()

    def fileno(self) -> int:
        """Readable when lookups have made progress."""
        return self._epoll.fileno()

    @property
    def due(self) -> float:
        """When `completed` must be called though nothing was readable, by the clock: time limits of lookups."""
        return self._next_tick

    def find(self, host: str) -> ResolvedName | None:
        """The cached answer for a name; None if it must be looked up."""
        return self._cached(host) if host in self._cache else self._certain(host)

    def find_proxy(self, host: str) -> ResolvedName | None:
        """The cached answer for the name of a proxy: only a pin of exactly this name applies, since wildcards are for
        sites.
        """
        if not self._is_redirected(host):
            return self.find(host)
        address = literal(host)
        return self._cached(_PROXY + host) if address is None else ResolvedName((address,))

    def ask(self, host: str) -> None:
        """Starts a lookup, unless one for this name is running."""
        if host in self._running:
            return
        if self._lookups is None:
            self._lookups = self._make()
            self._tick_s = self._lookups.tick_s()
            self._epoll.register(self._lookups.fileno(), select.EPOLLIN)
        now = self._running[host] = self._clock()
        if self._tick_s is not None:
            self._next_tick = min(self._next_tick, now + self._tick_s)
        self.counts.running = len(self._running)
        self._lookups.ask(host)

    def completed(self) -> list[tuple[str, ResolvedName]]:
        """The lookups that have ended since the last call."""
        if self._lookups is None:
            return []
        ended, now = [], self._clock()
        for found in self._lookups.completed():
            answer = ResolvedName(found.addresses, found.error, now + _kept_s(found))
            self._count(found.kind, now - self._running.pop(found.host, now))
            self._keep(_PROXY * self._is_redirected(found.host) + found.host, answer)
            ended.append((found.host, answer))
        self.counts.running = len(self._running)
        self._next_tick = now + self._tick_s if self._tick_s is not None and self._running else FOREVER
        return ended

    def put_last(self, host: str, address: str) -> None:
        """Moves an address of a name to the end, after a connection to it failed."""
        answer = self._cache.get(host)
        if answer is not None and address in answer.addresses:
            others = tuple(other for other in answer.addresses if other != address)
            self._cache[host] = ResolvedName((*others, address), answer.error, answer.expires)

    def close(self) -> None:
        """Drops all running lookups."""
        if self._lookups is not None:
            self._lookups.close()
        self._epoll.close()

    def _certain(self, host: str) -> ResolvedName | None:
        """The answer for literals and pins, which need no name server."""
        address = self._pinned(host) or literal(host)
        if address is None:
            return None
        answer = ResolvedName((address,))
        self._keep(host, answer)
        return answer

    def _cached(self, key: str) -> ResolvedName | None:
        answer = self._cache.get(key)
        if answer is None or answer.expires <= self._clock():
            self._cache.pop(key, None)
            return None
        self._cache.move_to_end(key)
        self.counts.known += 1
        return answer

    def _is_redirected(self, host: str) -> bool:
        """Whether a wildcard pins it: such a name is looked up only for a proxy, and sites keep their pin."""
        return host not in self._pins and self._pinned(host) is not None

    def _pinned(self, host: str) -> str | None:
        if not self._pins:
            return None
        if host in self._pins:
            return self._pins[host]
        labels = host.split(".")
        for start in range(1, len(labels)):
            pin = self._pins.get("*." + ".".join(labels[start:]))
            if pin is not None:
                return pin
        return self._pins.get("*")

    def _keep(self, host: str, answer: ResolvedName) -> None:
        self._cache[host] = answer
        if len(self._cache) > self._size:
            self._cache.popitem(last=False)

    def _count(self, kind: str, spent_s: float) -> None:
        self.counts.outcomes[kind] += 1
        self.counts.seconds += spent_s


def lookups_of(servers: Sequence[str], timeout_s: float) -> Lookups:
    """The implementation of lookups for these settings."""
    if list(servers) == [SYSTEM]:
        return ThreadLookups(lookup)
    try:
        from weft.fetch.dns.dns_cares import CaresLookups
    except (ImportError, RuntimeError) as error:  # RuntimeError: c-ares itself could not be started
        if servers:
            raise BadInput(f"`dns_servers` needs pycares, which cannot be used here: {error}") from None
        log.warning("names are looked up by the system, a few at a time: pycares cannot be used", why=error)
        return ThreadLookups(lookup)
    return CaresLookups(servers, timeout_s)


def _kept_s(found: LookupResult) -> float:
    if not found.error:
        return min(MAX_TTL_S, max(MIN_TTL_S, found.ttl_s))
    return ABSENT_TTL_S if found.kind == "absent" else FAILED_TTL_S
