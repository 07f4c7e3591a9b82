"""Turns host names into addresses: pins first, then a bounded cache, then the system's resolver in a few threads.

`find` returns what is known, without waiting; `ask` starts a lookup, whose end makes `fileno` readable for the event
loop, which then calls `take`. No address is checked here: the client checks every one before it connects.

Three things must stay true. Only the loop's thread touches the cache; the lookup threads hand over through a queue. A
name is looked up once at a time, however many wait for it. Lookup threads are daemons, because `getaddrinfo` cannot be
interrupted, and a dead name server must not hold up the end of the process.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from queue import SimpleQueue

from msgspec import Struct

TTL_S = 300.0
NEGATIVE_TTL_S = 30.0
MAX_NAMES = 20_000
THREADS = 16
FOREVER = float("inf")

Lookup = Callable[[str], tuple[str, ...]]


class Answer(Struct, frozen=True, gc=False):
    """A name's addresses in the order to try them, or why there are none."""

    addresses: tuple[str, ...]
    error: str = ""
    expires: float = FOREVER


def lookup(host: str) -> tuple[str, ...]:
    """The addresses the system gives for a name, each once, best first; raises OSError if it gives none."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found if "%" not in str(entry[4][0])))


def literal(host: str) -> str | None:
    """The address in a URL's host, if it is one: `127.0.0.1`, `[::1]`."""
    if not host or (host[0] != "[" and not host[-1].isdigit()):
        return None
    try:
        return str(ip_address(host.strip("[]")))
    except ValueError:
        return None


class Resolver:
    """Names to addresses, without ever blocking the caller."""

    def __init__(
        self,
        pins: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        lookup: Lookup = lookup,
        threads: int = THREADS,
        size: int = MAX_NAMES,
    ) -> None:
        self._pins = {name.lower(): address for name, address in (pins or {}).items()}
        self._clock = clock
        self._lookup = lookup
        self._size = size
        self._cache: OrderedDict[str, Answer] = OrderedDict()
        self._running: set[str] = set()
        self._max_threads = threads
        self._asked: SimpleQueue[str | None] = SimpleQueue()
        self._answered: deque[tuple[str, tuple[str, ...], str]] = deque()
        self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()  # guards the signal against a close while a thread is about to raise it
        self._threads = 0

    def fileno(self) -> int:
        """Readable when lookups have ended."""
        return self._signal

    def find(self, host: str) -> Answer | None:
        """The cached answer for a name; None if it must be looked up."""
        answer = self._cache.get(host)
        if answer is None:
            return self._certain(host)
        if answer.expires <= self._clock():
            del self._cache[host]
            return None
        self._cache.move_to_end(host)
        return answer

    def ask(self, host: str) -> None:
        """Starts a lookup, unless one for this name is running."""
        if host in self._running:
            return
        self._running.add(host)
        if self._threads < self._max_threads:
            self._threads += 1
            threading.Thread(target=self._work, name="weft-dns", daemon=True).start()
        self._asked.put(host)

    def take(self) -> list[tuple[str, Answer]]:
        """The lookups that have ended since the last call."""
        try:
            os.eventfd_read(self._signal)
        except BlockingIOError:
            return []
        ended = []
        while self._answered:
            host, addresses, error = self._answered.popleft()
            self._running.discard(host)
            answer = Answer(addresses, error, self._clock() + (NEGATIVE_TTL_S if error else TTL_S))
            self._keep(host, answer)
            ended.append((host, answer))
        return ended

    def put_last(self, host: str, address: str) -> None:
        """Moves an address of a name to the end: it could not be connected to."""
        answer = self._cache.get(host)
        if answer is not None and address in answer.addresses:
            others = tuple(other for other in answer.addresses if other != address)
            self._cache[host] = Answer((*others, address), answer.error, answer.expires)

    def close(self) -> None:
        """Lets the idle threads end; busy ones end with their lookup."""
        for _ in range(self._threads):
            self._asked.put(None)
        with self._lock:
            os.close(self._signal)
            self._signal = -1

    def _certain(self, host: str) -> Answer | None:
        """Literals and pins, which need no name server."""
        address = self._pinned(host) or literal(host)
        if address is None:
            return None
        answer = Answer((address,))
        self._keep(host, answer)
        return answer

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

    def _keep(self, host: str, answer: Answer) -> None:
        self._cache[host] = answer
        if len(self._cache) > self._size:
            self._cache.popitem(last=False)

    def _work(self) -> None:
        while (host := self._asked.get()) is not None:
            try:
                addresses, error = self._lookup(host), ""
                if not addresses:
                    error = "no address"
            except (OSError, UnicodeError) as failure:
                addresses, error = (), getattr(failure, "strerror", None) or str(failure)
            self._answered.append((host, addresses, error))
            with self._lock:
                if self._signal >= 0:
                    os.eventfd_write(self._signal, 1)
