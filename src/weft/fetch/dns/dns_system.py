"""Looks names up by the C library, in a few threads: slower, for names that only the system's configuration resolves.

The lookup threads hand over through a queue, and raise a signal that the event loop waits for. They are daemons,
because `getaddrinfo` cannot be interrupted, and a dead name server must not delay the end of the process.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from weft.fetch.dns.lookups import LookupResult

THREADS = 16
TTL_S = 300.0  # the system does not report how long an answer is valid


def lookup(host: str) -> tuple[str, ...]:
    """The addresses the system gives for a name, each once, best first; raises OSError if it gives none."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found if "%" not in str(entry[4][0])))


class ThreadLookups:
    """Calls `lookup` in threads."""

    def __init__(self, lookup: Callable[[str], tuple[str, ...]], threads: int | None = None) -> None:
        self._lookup = lookup
        self._max_threads = threads or THREADS
        self._threads = 0
        self._asked: SimpleQueue[str | None] = SimpleQueue()
        self._answered: deque[LookupResult] = deque()
        self._signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()  # guards the signal against a close while a thread is about to raise it

    def ask(self, host: str) -> None:
        """Starts a lookup."""
        if self._threads < self._max_threads:
            self._threads += 1
            threading.Thread(target=self._work, name="weft-dns", daemon=True).start()
        self._asked.put(host)

    def fileno(self) -> int:
        """Readable when lookups have ended."""
        return self._signal

    def tick_s(self) -> float | None:
        """None: nothing is due between answers."""
        return None

    def completed(self) -> list[LookupResult]:
        """The lookups that have ended since the last call."""
        try:
            os.eventfd_read(self._signal)
        except BlockingIOError:
            return []
        ended = []
        while self._answered:
            ended.append(self._answered.popleft())
        return ended

    def close(self) -> None:
        """Ends idle threads; busy ones end with their lookup."""
        for _ in range(self._threads):
            self._asked.put(None)
        with self._lock:
            os.close(self._signal)
            self._signal = -1

    def _work(self) -> None:
        while (host := self._asked.get()) is not None:
            try:
                addresses, error, kind = self._lookup(host), "", "found"
                if not addresses:
                    error, kind = "no address", "empty"
            except (OSError, UnicodeError) as failure:
                addresses, error = (), getattr(failure, "strerror", None) or str(failure)
                kind = "absent" if getattr(failure, "errno", None) == socket.EAI_NONAME else "failed"
            self._answered.append(LookupResult(host, addresses, TTL_S, error, kind))
            with self._lock:
                if self._signal >= 0:
                    os.eventfd_write(self._signal, 1)
