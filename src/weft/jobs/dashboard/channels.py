"""Live updates: what viewers are sent, made once a second for all who look at the same thing.

A channel is one thing that is looked at, by its key: the tasks of an owner, or one task. Its piece is the whole of what
it shows now, so that a viewer who is slow misses nothing by missing some; a piece that says the same as the one before
is not sent. While nobody looks, nothing is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from typing import Any

import msgspec

from weft.errors import WeftError
from weft.telemetry import Log

TICK_S = 1.0
log = Log("weft.jobs.dashboard")
Make = Callable[[], Awaitable[dict[str, Any] | None]]


class Channel:
    """One thing that is looked at."""

    def __init__(self, event: str, make: Make) -> None:
        self.viewers = 0
        self.piece = b""
        self.version = 0
        self.has_ended = False
        self._event = event
        self._make = make
        self._changed = asyncio.Event()
        self._last: bytes | None = None

    async def look(self) -> None:
        """Makes the piece; one that `is_over` is the last, and None is none."""
        try:
            found = await self._make()
        except (WeftError, TimeoutError) as error:
            log.warning("a view could not be made", view=self._event, error=error)
            return
        except Exception:  # a mistake in one view must not end the others'
            log.error("a view failed", exc_info=True, view=self._event)
            return
        if found is None:
            self.end()
            return
        data = msgspec.json.encode(found)
        if data != self._last:
            self._last = data
            self.piece = b"event: " + self._event.encode() + b"\ndata: " + data + b"\n\n"
            self.version += 1
            self._wake()
        if found.get("is_over"):
            self.end()

    def end(self) -> None:
        """Nothing more will come."""
        self.has_ended = True
        self._wake()

    async def changed(self, at_most_s: float) -> None:
        """Returns when there is another piece, or after a while."""
        waits = asyncio.ensure_future(self._changed.wait())
        await asyncio.wait({waits}, timeout=at_most_s)
        waits.cancel()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Channels:
    """All that is looked at in one worker."""

    def __init__(self, heartbeat_s: float, tick_s: float = TICK_S) -> None:
        self._heartbeat_s = heartbeat_s
        self._tick_s = tick_s
        self._channels: dict[Hashable, Channel] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._is_closed = False

    async def watch(self, key: Hashable, event: str, make: Make) -> AsyncGenerator[bytes, None]:
        """What a viewer is sent, until the channel ends; an empty piece says that nothing is new."""
        channel = self._channels.get(key)
        if channel is None or channel.has_ended:
            channel = self._channels[key] = Channel(event, make)
        channel.viewers += 1
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick(), name="dashboard")
        version = 0
        try:
            while not self._is_closed:
                if channel.version != version:
                    version = channel.version
                    yield channel.piece
                elif channel.has_ended:
                    return
                else:
                    await channel.changed(self._heartbeat_s)
                    if channel.version == version:
                        yield b""
        finally:
            channel.viewers -= 1
            if not channel.viewers and self._channels.get(key) is channel:
                del self._channels[key]

    def close(self) -> None:
        """The worker ends: so do all streams, and their viewers come again to another."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.end()

    async def _tick(self) -> None:
        while self._channels and not self._is_closed:
            for channel in list(self._channels.values()):
                if channel.viewers and not channel.has_ended:
                    await channel.look()
            await asyncio.sleep(self._tick_s)
