"""The workers on other machines that a process's crawls use: connected when the first crawl asks for them.

The code that talks to them is in a room above this one, and is named by its entry point.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from weft.config import ClusterSection, FetchSection
from weft.errors import BadInput, Missing
from weft.fetch.browser.messages import HostSettings
from weft.fetch.browser.renderer import MARGIN_S, RenderingTransport, RenderJudge, RenderLink
from weft.fetch.contract import Transport
from weft.fetch.remote.contract import Connect, HandDispatcher, HandFacts, RemoteArrival
from weft.fetch.remote.messages import FetchTask
from weft.fetch.remote.pool import LOST_S, HandPool
from weft.fetch.remote.remote_client import RemoteTransport
from weft.frontier.contract import HandRouter
from weft.records import HandRoute, Lease

CONNECT = "weft.cluster.brain:connect"


class NoHands:
    """A dispatcher for a cluster that cannot be used; it says why."""

    is_private = False

    def __init__(self, why: str) -> None:
        self._why = why
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Never readable."""
        return self._event

    def arrivals(self) -> list[RemoteArrival]:
        """Nothing comes."""
        return []

    def hands(self) -> Mapping[str, HandFacts]:
        """There are none."""
        return {}

    def renderers(self) -> Mapping[str, HandFacts]:
        """There are none."""
        return {}

    def browsers(self) -> socket.socket:
        """One whose other end is closed."""
        here, there = socket.socketpair()
        there.close()
        return here

    def trouble(self) -> str:
        """Why the cluster cannot be used."""
        return self._why

    def task(self, make: Callable[[str, int], FetchTask], hand: str, start_by: float) -> None:
        """Is never called: no request is routed to a hand."""

    def count(self, name: str) -> None:
        """There is no broker to count at."""

    def close(self) -> None:
        """Closes its descriptor."""
        os.close(self._event)


class Hands:
    """Those of one process. `crawls`: its crawls by number."""

    def __init__(
        self, section: ClusterSection, folder: Path, slot: str, crawls: Mapping[int, Any], *, is_alone: bool
    ) -> None:
        """`is_alone`: one crawl, which does not start without its cluster; in an engine of many it waits for that."""
        self._is_alone = is_alone
        self._section = section
        self._folder = folder
        self._slot = slot
        self._crawls = crawls
        self._pool: HandPool | None = None
        self._unusable: list[HandPool] = []
        self._link: RenderLink | None = None
        self._linked: HandDispatcher | None = None  # to whose browsers
        self._is_needed = False  # without hands some crawl asks for nothing

    def around(self, inner: Transport, section: FetchSection, handles: int) -> Transport:
        """A transport through them. A crawl that is alone gets BadInput, Missing or Busy where there can be none.

        One of an engine waits and says why: others must not end with it. The next crawl that is opened tries again.
        """
        if self._pool is None or isinstance(self._pool.dispatcher, NoHands):
            if self._pool is not None:
                self._unusable.append(self._pool)  # transports of earlier crawls have it
            self._pool = HandPool(self._section, self._dispatcher_or_none())
        self._is_needed = self._is_needed or section.hands == "cluster"
        return RemoteTransport(inner, self._pool, section, handles)

    def renders(self, section: FetchSection) -> bool:
        """Whether hands render the pages of a crawl: of one that does nothing else here, over a broker that no stranger
        reads, since pages have cookies."""
        is_private = self._pool is not None and self._pool.dispatcher.is_private
        return section.hands == "cluster" and (is_private or isinstance(self._dispatcher, NoHands))

    def rendering(self, inner: Transport, judge: RenderJudge, section: FetchSection) -> Transport:
        """A transport that has the hands' browsers render the pages that need it."""
        dispatcher = self._dispatcher
        if self._link is None or self._linked is not dispatcher:
            self._linked = dispatcher
            settings = HostSettings("", "", dns_servers=section.dns_servers)
            margin_s = LOST_S + MARGIN_S  # its lease lasts longer than what a restart of this process waits for
            self._link = RenderLink(settings, capacity=self._browsers, margin_s=margin_s)
            self._link.connect(dispatcher.browsers())
        return RenderingTransport(inner, self._link, judge, section)

    def _browsers(self) -> int:
        if self._linked is None or self._linked.trouble():
            return 0
        return sum(facts.concurrency for facts in self._linked.renderers().values())

    @property
    def _dispatcher(self) -> HandDispatcher:
        assert self._pool is not None
        return self._pool.dispatcher

    def held_up(self) -> str:
        """Why the crawls that need them cannot continue; empty while they can."""
        if self._pool is None or not self._is_needed:
            return ""
        why = self._pool.held_up()
        if not why and self._link is not None and not self._browsers():
            why = "no worker that renders is connected: start one with `weft worker --queues render`"
        return why

    @property
    def router(self) -> HandRouter | None:
        """What decides at a claim which of them makes a request; None while no crawl uses them."""
        return self._route_lease if self._pool is not None else None

    def failures(self) -> dict[tuple[str, str], int]:
        """By hand and kind, how often they have failed."""
        return self._pool.failures() if self._pool is not None else {}

    def close(self) -> None:
        """Sends nothing more."""
        if self._link is not None:
            self._link.close()
        for pool in (*self._unusable, *((self._pool,) if self._pool is not None else ())):
            pool.close()

    def _dispatcher_or_none(self) -> HandDispatcher:
        try:
            return self._connect_dispatcher()
        except (BadInput, Missing) as error:
            if self._is_alone:
                raise
            return NoHands(str(error))

    def _connect_dispatcher(self) -> HandDispatcher:
        module, _, name = CONNECT.partition(":")
        try:
            connect: Connect = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise Missing.of_extra(f"{error.name}, for workers,", "cluster") from None
        return connect(self._section, self._folder, self._slot, self._is_alone)

    def _route_lease(self, lease: Lease, claimed: float) -> HandRoute | None:
        crawl = self._crawls.get(lease.crawl)
        if self._pool is None or crawl is None or crawl.fetch.hands == "local":
            return None
        return self._pool.route(lease, crawl.fetch, claimed, has_secrets=crawl.sends_secrets(lease))
