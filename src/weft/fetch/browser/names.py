"""Host names for the guard proxy: the transports' resolver, awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from weft.fetch.dns.resolver import FOREVER, Resolver


class AwaitedNames:
    """Resolves names to addresses, with the pins of one crawl."""

    def __init__(self, pins: Mapping[str, str], servers: Sequence[str]) -> None:
        self._resolver = Resolver(pins, servers=servers)
        self._waiting: dict[str, list[asyncio.Future[tuple[str, ...]]]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._resolver.fileno(), self._read_answers)
        self._timer: asyncio.TimerHandle | None = None

    async def addresses(self, host: str) -> tuple[str, ...]:
        """Addresses in the order to try them; none if the name has none."""
        known = self._resolver.find(host)
        if known is not None:
            return known.addresses
        answer: asyncio.Future[tuple[str, ...]] = self._loop.create_future()
        self._waiting.setdefault(host, []).append(answer)
        self._resolver.ask(host)
        self._wake()
        return await answer

    def close(self) -> None:
        """Drops what runs."""
        self._loop.remove_reader(self._resolver.fileno())
        if self._timer is not None:
            self._timer.cancel()
        self._resolver.close()

    def _read_answers(self) -> None:
        for host, answer in self._resolver.completed():
            for waiting in self._waiting.pop(host, ()):
                if not waiting.done():
                    waiting.set_result(answer.addresses)
        self._wake()

    def _wake(self) -> None:
        """Sets a timer for the time limits of lookups, which no descriptor signals."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._resolver.due != FOREVER:
            self._timer = self._loop.call_later(max(0.0, self._resolver.due - time.monotonic()), self._read_answers)
