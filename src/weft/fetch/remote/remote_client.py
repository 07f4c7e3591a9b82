"""Behind `fetch/contract.py`: requests that were routed to a worker go there, all others through the transport that
this one wraps.

With `workers: cluster` nothing is claimed while no worker has room; a request claimed all the same ends unsent at once.
With `prefer-cluster` this process makes the requests while no worker is connected.
"""

from __future__ import annotations

import secrets
import select
import time
from collections.abc import Sequence
from contextlib import suppress

from weft.config import FetchSection
from weft.fetch.contract import Done, Transport
from weft.fetch.dns.resolver import NameCounts
from weft.fetch.remote.messages import RemoteRequest, settings_for_hands
from weft.fetch.remote.pool import CHECK_S, HandPool
from weft.records import FetchResult, Lease


class RemoteTransport:
    """The transport of one set of fetch settings, over the hands that all of a process's transports share."""

    def __init__(self, inner: Transport, pool: HandPool, section: FetchSection, handles: int) -> None:
        self._inner = inner
        self._pool = pool
        self._section = section
        self._settings: dict[str, object] = settings_for_hands(section)
        self._handles = handles
        self._remote = 0  # requests at hands, or about to be
        self.done: Done = []  # filled by the pool
        self._epoll = select.epoll()
        self._epoll.register(inner.fileno(), select.EPOLLIN)
        self._epoll.register(pool.dispatcher.fileno(), select.EPOLLIN)

    @property
    def free(self) -> int:
        """Transfers that may be submitted now."""
        if self._section.hands == "prefer-cluster" and not self._pool.has_hands:
            return self._inner.free
        return max(0, min(self._pool.room, self._handles - self.in_flight))

    @property
    def in_flight(self) -> int:
        """Transfers begun and not ended."""
        return self._inner.in_flight + self._remote

    @property
    def lookups(self) -> NameCounts:
        """The counts of the inner transport: workers resolve names for themselves."""
        return self._inner.lookups

    def submit(
        self,
        url: str,
        headers: Sequence[tuple[str, str]],
        tag: object,
        *,
        keep_bytes: int = 0,
        until: float = float("inf"),
        address: str | None = None,
        filtered: bool = False,
        is_first: bool = False,
        body: bytes | None = None,
        method: str = "",
        timeout_s: float = 0.0,
    ) -> None:
        """Starts one transfer on the route that its claim has chosen."""
        routed = self._pool.routed(tag)
        if routed is not None and not self._pool.may_have(headers, body):
            self._pool.unroute(routed[0])
            routed = None
        elif routed is None and self._must_wait(tag, headers, body):
            now = time.monotonic()
            why = self._pool.held_up() or "no worker has room"
            self.done.append((tag, FetchResult(url, 0, b"", b"", "unasked", why, now, now, "", b"", was_sent=False)))
            self._remote += 1
            return
        if routed is None:
            self._inner.submit(
                url, headers, tag, keep_bytes=keep_bytes, until=until, address=address, filtered=filtered,
                is_first=is_first, body=body, method=method, timeout_s=timeout_s,
            )  # fmt: skip
            return
        assert isinstance(tag, Lease)
        hand, claimed = routed
        request = RemoteRequest(
            f"{tag.item}-{secrets.token_hex(8)}", url, tuple(headers), keep_bytes, filtered, is_first, body,
            method, min(timeout_s, self._section.total_timeout_s),
        )  # fmt: skip
        self._remote += 1
        self._pool.submit(self, request, tag, hand, claimed, self._section, self._settings)

    def address_of(self, host: str) -> str | None:
        """The address from the inner transport."""
        return self._inner.address_of(host)

    def poll(self, timeout_s: float) -> Done:
        """Works until a transfer has ended or the time is over."""
        until = time.monotonic() + timeout_s
        while True:
            self._pool.flush()
            self._pool.collect()
            done, self.done = self.done, []
            self._remote -= len(done)
            done += self._inner.poll(0.0)
            left_s = until - time.monotonic()
            if done or left_s <= 0.0:
                return done
            soon_s = self.timeout_s()
            self._epoll.poll(left_s if soon_s is None else min(left_s, soon_s))

    def abort(self, tag: object) -> None:
        """Ends the transfers with this tag at once."""
        self._pool.abort(tag)
        self._inner.abort(tag)

    def fileno(self) -> int:
        """Readable when `poll` has something to do."""
        return self._epoll.fileno()

    def timeout_s(self) -> float | None:
        """In how many seconds `poll` must be called even if nothing arrives."""
        if self.done:
            return 0.0
        left_s = self._inner.timeout_s()
        return CHECK_S if left_s is None else min(left_s, CHECK_S)

    def close(self) -> None:
        """Closes the inner transport; the pool, which others use too, is closed by its owner."""
        with suppress(OSError):
            self._epoll.close()
        self._inner.close()

    def _must_wait(self, tag: object, headers: Sequence[tuple[str, str]], body: bytes | None) -> bool:
        """Whether a request without a hand may not be made by this process either."""
        if not isinstance(tag, Lease) or not self._pool.may_have(headers, body):
            return False
        return self._section.hands == "cluster" or self._pool.has_hands
