"""Several libcurl multi handles: each serves a part of the hosts, and keeps a part of the connections.

When a pool is full, libcurl looks through all of its connections for the one to close, at every first contact with a
host: with 4,000 in one pool that costs a quarter more (docs/decisions/0029-large-bodies-many-hosts.md). Before a
request it searches those to the same address, which many hosts may share. A host is always in the same pool, so its
connection is found again.
"""

from __future__ import annotations

import resource
import select
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any
from zlib import crc32

import pycurl

POOLS = 16
KEPT_CONNECTIONS = 4000  # in all: as many sites can keep their connection open during their delay

_WATCH = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_READ, _WRITE, _BROKEN = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR | select.EPOLLHUP


Over = tuple[Any, int, str]


class Pools:
    """The pools, driven by one epoll."""

    def __init__(self, epoll: select.epoll, clock: Callable[[], float], handles: int) -> None:
        self._epoll = epoll
        self._clock = clock
        self._watched: dict[int, tuple[int, int]] = {}  # libcurl's sockets: events that are waited for, and the pool
        self._due = [inf] * POOLS  # when each wants to be called
        self._called: set[int] = set()  # those in which something may have ended
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        kept = max(min(KEPT_CONNECTIONS, files // 4), handles)
        self._multis = [self._make(number, -(-kept // POOLS)) for number in range(POOLS)]

    @property
    def due(self) -> float:
        """When `tick` must be called; infinity for never."""
        return min(self._due)

    def add(self, curl: Any, host: str) -> int:
        """Starts a transfer to a host; returns the number of its pool."""
        number = crc32(host.encode()) % POOLS
        self._multis[number].add_handle(curl)
        return number

    def remove(self, curl: Any, number: int) -> None:
        """Removes a transfer from its pool."""
        self._multis[number].remove_handle(curl)

    def act(self, fd: int, events: int) -> None:
        """A socket is ready."""
        watched = self._watched.get(fd)
        if watched is not None:
            bits = (events & _READ and 1) | (events & _WRITE and 2) | (events & _BROKEN and 4)
            self._called.add(watched[1])
            self._multis[watched[1]].socket_action(fd, bits)

    def tick(self, now: float) -> None:
        """Calls the pools whose timers are due."""
        for number, due in enumerate(self._due):
            if due <= now:
                self._due[number] = inf
                self._called.add(number)
                self._multis[number].socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def over(self) -> list[Over]:
        """The transfers that libcurl has completed since the last call: handle, error (0 for none) and its message."""
        found: list[Over] = []
        for number in self._called:
            queued = 1
            while queued:
                queued, good, bad = self._multis[number].info_read()
                for curl in good:
                    found.append((curl, 0, ""))
                found += bad
        self._called.clear()
        return found

    def close(self) -> None:
        """Closes all connections."""
        for multi in self._multis:
            multi.close()

    def _make(self, number: int, most: int) -> Any:
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAXCONNECTS, most)
        multi.setopt(pycurl.M_PIPELINING, 0)
        multi.setopt(pycurl.M_SOCKETFUNCTION, partial(self._on_socket, number))
        multi.setopt(pycurl.M_TIMERFUNCTION, partial(self._on_timer, number))
        return multi

    def _on_socket(self, number: int, what: int, fd: int, _multi: Any, _data: Any) -> None:
        """Called by libcurl: which sockets to watch, and for what."""
        before = self._watched.get(fd)
        if what == pycurl.POLL_REMOVE:
            if before is not None:
                del self._watched[fd]
                self._epoll.unregister(fd)
            return
        bits = _WATCH[what]
        if before is None:
            self._epoll.register(fd, bits)
        elif before[0] != bits:
            self._epoll.modify(fd, bits)
        self._watched[fd] = bits, number

    def _on_timer(self, number: int, timeout_ms: int) -> None:
        self._due[number] = inf if timeout_ms < 0 else self._clock() + timeout_ms / 1000
