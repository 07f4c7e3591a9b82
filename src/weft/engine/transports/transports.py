"""The transports that an engine's crawls share: one for each set of fetch settings, opened when it is first needed.

Crawls with equal settings share addresses, connections and sessions. Crawls that differ in what they trust (`resolve`,
`tls_verify`, `allow_private`, logins, headers) share only the sites' clocks, which belong to the frontier.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from weft.bodies import Spool
from weft.config import FetchSection, ProxySection
from weft.engine.transports.browsers import Browsers
from weft.engine.transports.hands import Hands
from weft.fetch.contract import Done, Transport
from weft.fetch.curl.client import Client, Refusal
from weft.fetch.dns.resolver import NameCounts
from weft.fetch.guard import Guard, is_loopback
from weft.fetch.proxies.counts import ProxyCounts
from weft.fetch.proxies.pool import PoolChooser, ProxyPool, live_of, sources_of
from weft.fetch.proxies.proxied_client import ProxyClient
from weft.fetch.proxies.refresh import Refresh


class ClientFactory:
    """Creates libcurl clients, which share the memory for bodies; clients with equal proxies share a proxy pool."""

    def __init__(
        self,
        handles: int,
        spool: Spool,
        proxy: ProxySection,
        folder: Path,
        browsers: Browsers,
        hands: Hands,
    ) -> None:
        """`folder`: where proxies that have passed their test are written down. `browsers`: those of this
        machine."""
        self._hands = hands
        self._browsers = browsers
        self._handles, self._spool = handles, spool
        self._proxy, self._folder = proxy, folder
        self._pools: dict[tuple[str, bool, bool], ProxyPool] = {}
        self._needed: set[ProxyPool] = set()  # nothing can be sent while none of their proxies works
        self._counts = ProxyCounts()

    def __call__(self, section: FetchSection) -> Transport:
        """Opens a client for these settings. Missing: it needs a browser, and none is installed."""
        inner = self._open_client(section)
        if section.hands != "local":
            inner = self._hands.around(inner, section, self._handles)
        if section.render == "never":
            return inner
        if self._hands.renders(section):
            return self._hands.rendering(inner, self._browsers.judge, section)
        return self._browsers.around(inner, section)

    def _open_client(self, section: FetchSection) -> Transport:
        refusal = address_refusal(section)
        if section.proxies is None:
            return Client(section, refusal=refusal, handles=self._handles, spool=self._spool)
        key = section.proxies, section.allow_private, bool(section.email)
        if key not in self._pools:
            self._pools[key] = self._proxy_pool(section, section.proxies)
        if not section.direct_fallback:
            self._needed.add(self._pools[key])
        chooser = PoolChooser(self._pools[key], sticky=section.proxy_sticky, apart=section.proxy_apart)
        return ProxyClient(
            section, refusal=refusal, handles=self._handles, spool=self._spool, chooser=chooser,
            direct_fallback=section.direct_fallback,
        )  # fmt: skip

    def held_up(self, now: float) -> str:
        """Why requests through proxies or workers cannot go out, and what helps; empty while they can."""
        return next((why for pool in self._needed if (why := pool.held_up(now))), "") or self._hands.held_up()

    def counts(self, now: float) -> ProxyCounts | None:
        """The counts of proxies; None if none are configured."""
        if not self._pools:
            return None
        counts, all_of = self._counts, [pool.rotation for pool in self._pools.values()]
        counts.listed, counts.usable = sum(map(len, all_of)), sum(one.usable(now) for one in all_of)
        counts.resting = sum(now < standing.rests_until for one in all_of for standing in one.standings)
        counts.rests, counts.bans = sum(one.rests for one in all_of), sum(one.bans for one in all_of)
        return counts

    def _proxy_pool(self, section: FetchSection, path: str) -> ProxyPool:
        refresh = proxy_refresh(section, self._proxy, self._folder, self._counts)
        can_test = self._proxy.test_url is not None and refresh.sources
        return ProxyPool(Path(path), self._proxy, refresh if can_test else None, counts=self._counts)


def address_refusal(section: FetchSection) -> Refusal:
    """Decides which addresses may not be requested. Without an email address a crawl is limited to this machine."""
    guard = Guard(section.allow_private)

    def check(address: str) -> str | None:
        why = guard.check(address)
        return why or (None if is_loopback(address) else "beyond loopback, which needs `email`")

    return guard.check if section.email else check


def proxy_refresh(
    section: FetchSection, proxy: ProxySection, folder: Path, counts: ProxyCounts | None = None
) -> Refresh:
    """How the proxies of these settings are collected and tested; tested ones are stored in the folder."""
    path = section.proxies
    return Refresh(sources_of(path, proxy), proxy, section, address_refusal(section), live_of(path, folder), counts)


_key = msgspec.msgpack.Encoder(order="deterministic").encode


class Transports:
    """All transports, polled together. `slots`: how many transfers may be in flight over all of them."""

    def __init__(
        self, make: Callable[[FetchSection], Transport], slots: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open_transport = make
        self._slots = slots
        self._clock = clock
        self._transports: dict[bytes, Transport] = {}
        self._users_of_transport: dict[bytes, int] = {}
        self._only_transport: Transport | None = (
            None  # the only transport, while there is one and nothing else is watched
        )
        self._watched: dict[int, Callable[[], None]] = {}
        self._epoll: select.epoll | None = None
        self._ended_early: Done = []  # results of a closed transport
        self._closed_names = NameCounts()  # the counts of closed transports

    @property
    def in_flight(self) -> int:
        """The number of transfers that are started and not ended."""
        return sum(transport.in_flight for transport in self._transports.values())

    @property
    def free_slots(self) -> int:
        """Transfers that may be begun now."""
        if len(self._transports) == 1:
            return next(iter(self._transports.values())).free
        return self._slots - self.in_flight

    def lookups(self) -> NameCounts:
        """The counts of DNS lookups over all transports."""
        total = NameCounts()
        for counts in (self._closed_names, *(transport.lookups for transport in self._transports.values())):
            total.add(counts)
        return total

    def open(self, section: FetchSection) -> Transport:
        """The transport for these settings; return it with `close`."""
        key = _key(section)
        transport = self._transports.get(key)
        if transport is None:
            transport = self._transports[key] = self._open_transport(section)
            if self._epoll is not None:
                self._epoll.register(transport.fileno(), select.EPOLLIN)
            self._choose_poller()
        self._users_of_transport[key] = self._users_of_transport.get(key, 0) + 1
        return transport

    def close(self, section: FetchSection) -> None:
        """Returns a transport that a crawl no longer uses; the one opened last is kept for the next crawl."""
        key = _key(section)
        self._users_of_transport[key] -= 1
        if self._users_of_transport[key] or len(self._transports) == 1:
            return
        transport = self._transports.pop(key)
        del self._users_of_transport[key]
        if self._epoll is not None:
            self._epoll.unregister(transport.fileno())
        self._ended_early += transport.poll(0.0)  # the transfers that were aborted when it was closed
        self._closed_names.add(transport.lookups)
        self._closed_names.running = 0
        transport.close()
        self._choose_poller()

    def watch(self, fd: int, came: Callable[[], None]) -> None:
        """Makes `poll` call `came` when the descriptor is readable, and return."""
        if self._epoll is None:
            self._epoll = select.epoll()
            for transport in self._transports.values():
                self._epoll.register(transport.fileno(), select.EPOLLIN)
        self._watched[fd] = came
        self._epoll.register(fd, select.EPOLLIN)
        self._choose_poller()

    def unwatch(self, fd: int) -> None:
        """Stops watching a descriptor that is about to be closed."""
        del self._watched[fd]
        if self._epoll is not None:
            self._epoll.unregister(fd)

    def poll(self, timeout_s: float) -> Done:
        """Works until a transfer has ended, a watched descriptor is readable, or the time is over."""
        if self._only_transport is not None and not self._ended_early:
            return self._only_transport.poll(timeout_s)
        done, self._ended_early = self._ended_early, []
        until = self._clock() + timeout_s
        while not done:
            timeouts = [left for transport in self._transports.values() if (left := transport.timeout_s()) is not None]
            wait_s = max(0.0, min([until - self._clock(), *timeouts]))
            came = False
            for fd, _ in self._wait_for_events(wait_s):
                if (callback := self._watched.get(fd)) is not None:
                    callback()
                    came = True
            for transport in self._transports.values():
                if transport.in_flight or transport.timeout_s() is not None:
                    done += transport.poll(0.0)
            if came or self._clock() >= until:
                break
        return done

    def abort(self, tag: object) -> None:
        """Aborts the transfers with this tag at once."""
        for transport in self._transports.values():
            transport.abort(tag)

    def close_all(self) -> None:
        """Closes all transports."""
        for transport in self._transports.values():
            transport.close()
        self._transports.clear()
        if self._epoll is not None:
            self._epoll.close()

    def _wait_for_events(self, wait_s: float) -> list[tuple[int, int]]:
        if self._epoll is None:
            if not self._transports:
                time.sleep(wait_s)
                return []
            self._epoll = select.epoll()
            for transport in self._transports.values():
                self._epoll.register(transport.fileno(), select.EPOLLIN)
        return self._epoll.poll(wait_s)

    def _choose_poller(self) -> None:
        alone = len(self._transports) == 1 and not self._watched
        self._only_transport = next(iter(self._transports.values())) if alone else None
