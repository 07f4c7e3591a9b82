"""A connection to an engine that another process runs, for asyncio: each worker of the scrape service has one.

It never starts an engine. All calls share one connection and wait for their replies side by side. Verbs can be
repeated: if the engine dies during a call, the verb is sent again as soon as an engine runs, until the caller's
patience is over; then it raises Gone. Notices have a connection of their own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from weft.engine.model import Blocked, BrowserStatus, CrawlSnapshot, CrawlState, Seeded
from weft.engine.process.channel import ERRORS, LONGEST_FRAME, EngineGone, framed, socket_path
from weft.errors import BadInput, WeftError
from weft.frames import HEAD, length_of
from weft.records import PastVisit

RECONNECT_AFTER_S = 0.05  # between two attempts to connect
CONNECT_PATIENCE_S = 10.0
NOTICE_S = 5.0  # a notice is simulated after this long without one
SEEDS_AT_ONCE = 5_000


class EngineLink:
    """The engine of a folder, from one event loop."""

    def __init__(self, data_dir: Path, patience_s: float = CONNECT_PATIENCE_S) -> None:
        self._path = socket_path(data_dir)
        self._patience_s = patience_s
        self._connection: _LinkConnection | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False

    async def close(self) -> None:
        """Hangs up."""
        self._is_closed = True
        if self._connection is not None:
            await self._connection.close()

    async def call(self, verb: str, /, patience_s: float | None = None, **arguments: object) -> Any:
        """Returns a verb's result; raises the engine's error, or Gone if no engine runs for too long."""
        until = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        while True:
            try:
                # The first caller connects for all; each waits for that only until its own patience is over.
                async with asyncio.timeout(max(0.01, until - time.monotonic())):
                    wire = await self._connect_until(until)
                    return await wire.call(verb, arguments)
            except TimeoutError:
                raise EngineGone(f"the engine has not answered to {verb!r} in time") from None
            except EngineGone:
                if self._is_closed or time.monotonic() >= until:
                    raise

    async def _connect_until(self, until: float) -> _LinkConnection:
        async with self._connecting:
            while self._connection is None or self._connection.is_over:
                try:
                    self._connection = await _LinkConnection.open(self._path)
                except OSError as error:
                    if self._is_closed or time.monotonic() >= until:
                        raise EngineGone(f"no engine listens at {self._path}: {error.strerror or error}") from None
                    await asyncio.sleep(RECONNECT_AFTER_S)
            return self._connection

    # ── verbs: see handle.Engine ───────────────────────────────────────────────────────────────────────────────────

    async def open(
        self,
        name: str,
        seeds: Sequence[str],
        settings: dict[str, Any],
        *,
        deadline: float | None,
        in_flight: int | None,
        weight: float = 1.0,
        memory_bytes: int | None = None,
        visits: Mapping[str, PastVisit] = MappingProxyType({}),
        keep_open: bool = False,
    ) -> CrawlSnapshot:
        """Opens a crawl, or returns the open one. `visits`: earlier visits of some of its URLs."""
        first, more = seeds[:SEEDS_AT_ONCE], len(seeds) > SEEDS_AT_ONCE
        found, _ = await self.call(
            "open", name=name, seeds=first, settings=settings, deadline=deadline, weight=weight, in_flight=in_flight,
            more=more, visits=_visits_of(first, visits), memory_bytes=memory_bytes, keep_open=keep_open,
        )  # fmt: skip
        standing = msgspec.convert(found, CrawlSnapshot)
        if not more or standing.state is CrawlState.ENDED:
            return standing
        await self.seed(name, seeds, SEEDS_AT_ONCE, visits)
        return await self.standing(name)

    async def seed(
        self,
        name: str,
        urls: Sequence[str],
        start: int = 0,
        visits: Mapping[str, PastVisit] = MappingProxyType({}),
    ) -> list[Seeded]:
        """Adds URLs to a crawl."""
        found = []
        for at in range(start, len(urls), SEEDS_AT_ONCE):
            some, more = urls[at : at + SEEDS_AT_ONCE], at + SEEDS_AT_ONCE < len(urls)
            given = await self.call("seed", name=name, seeds=some, more=more, visits=_visits_of(some, visits))
            found.append(msgspec.convert(given, Seeded))
        return found

    async def close_seeds(self, name: str) -> CrawlSnapshot:
        """Announces that no more seeds come."""
        return msgspec.convert(await self.call("close_seeds", name=name), CrawlSnapshot)

    async def standing(self, name: str) -> CrawlSnapshot:
        """A snapshot of one crawl."""
        return msgspec.convert(await self.call("standing", name=name), CrawlSnapshot)

    async def find(self, name: str, patience_s: float | None = None) -> CrawlSnapshot | None:
        """A snapshot of one crawl; None if there is none."""
        found = await self.call("standings", patience_s, names=[name])
        return msgspec.convert(found[0], CrawlSnapshot) if found else None

    async def standings(self, names: Sequence[str], patience_s: float | None = None) -> dict[str, CrawlSnapshot]:
        """Snapshots of some crawls by name; unknown ones are left out."""
        found = msgspec.convert(await self.call("standings", patience_s, names=list(names)), list[CrawlSnapshot])
        return {standing.name: standing for standing in found}

    async def live(self) -> list[CrawlSnapshot]:
        """Snapshots of the crawls that have not ended."""
        return msgspec.convert(await self.call("standings", live=True), list[CrawlSnapshot])

    async def pause(self, name: str) -> CrawlSnapshot:
        """Pauses a crawl: it requests nothing until `resume`."""
        return msgspec.convert(await self.call("pause", name=name), CrawlSnapshot)

    async def hold(self, name: str) -> CrawlSnapshot:
        """Pauses a crawl without a change of its state: its readers see nothing of it."""
        return msgspec.convert(await self.call("pause", name=name, held=True), CrawlSnapshot)

    async def resume(self, name: str) -> CrawlSnapshot:
        """Continues a crawl that is paused or held."""
        return msgspec.convert(await self.call("resume", name=name), CrawlSnapshot)

    async def cancel(self, name: str) -> CrawlSnapshot:
        """Ends a crawl now."""
        return msgspec.convert(await self.call("cancel", name=name), CrawlSnapshot)

    async def forget(self, names: Sequence[str]) -> None:
        """Deletes everything of some crawls; unknown ones are left out."""
        crawls = [(name, standing.id) for name, standing in (await self.standings(names)).items()]
        if crawls:
            await self.call("forget", crawls=crawls)

    async def blocked(self) -> list[Blocked]:
        """The sites whose breakers are open."""
        return msgspec.convert(await self.call("blocked"), list[Blocked])

    async def browsers(self) -> BrowserStatus:
        """The state of the browsers that render pages, and why none can now."""
        return msgspec.convert(await self.call("browsers"), BrowserStatus)

    async def notices(self) -> AsyncIterator[None]:
        """Yields once at once, then whenever something may have been committed, and periodically; until `close`."""
        wire: _LinkConnection | None = None
        try:
            while not self._is_closed:
                try:
                    if wire is None or wire.is_over:
                        wire = await _LinkConnection.open(self._path)
                        await wire.call("subscribe", {})
                    yield None
                    await wire.notice(NOTICE_S)
                except (OSError, EngineGone):
                    await asyncio.sleep(RECONNECT_AFTER_S)
        finally:
            if wire is not None:
                await wire.close()


def _visits_of(urls: Sequence[str], visits: Mapping[str, PastVisit]) -> list[PastVisit]:
    return [visits[url] for url in urls if url in visits]


class _LinkConnection:
    """One connection: numbered requests out, replies in any order and notices in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._count = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._noticed = asyncio.Event()
        self.is_over = False
        self._task = asyncio.create_task(self._read(), name="engine-link")

    @classmethod
    async def open(cls, path: Path) -> _LinkConnection:
        """Connects; OSError if no engine listens."""
        return cls(*await asyncio.open_unix_connection(os.fspath(path), limit=LONGEST_FRAME))

    async def call(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Sends a request and returns its reply."""
        if self.is_over:
            raise EngineGone("the engine has hung up")
        self._count += 1
        number = self._count
        try:
            frame = framed([number, verb, arguments])
        except (UnicodeEncodeError, OverflowError, TypeError) as error:
            raise BadInput(f"{verb}: a value cannot be sent: {error}") from None
        if len(frame) > LONGEST_FRAME:
            raise BadInput(f"{verb}: {len(frame):,} bytes are too much for one command")
        try:
            self._writer.write(frame)
        except RuntimeError:  # uvloop raises it for a connection whose end has not been read yet
            self._end()
            raise EngineGone("the engine has hung up") from None
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            return await reply
        finally:
            self._waiting.pop(number, None)

    async def notice(self, timeout_s: float) -> None:
        """Returns with the next notice or after the timeout; raises Gone."""
        try:
            # `wait_for` is not used: before Python 3.12 it loses a cancellation that arrives together with the notice.
            async with asyncio.timeout(timeout_s):
                await self._noticed.wait()
        except TimeoutError:
            pass
        self._noticed.clear()
        if self.is_over:
            raise EngineGone("the engine has hung up")

    async def close(self) -> None:
        """Closes the connection; callers that wait for a reply get Gone."""
        self._task.cancel()
        self._end()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                size = length_of(await self._reader.readexactly(HEAD))
                number, word, *rest = msgspec.msgpack.decode(await self._reader.readexactly(size))
                if not number:
                    self._noticed.set()
                elif (reply := self._waiting.get(number)) is not None and not reply.done():
                    if word == "ok":
                        reply.set_result(rest[0])
                    else:
                        reply.set_exception(ERRORS.get(rest[0], WeftError)(rest[1]))
        except (OSError, EOFError, msgspec.DecodeError):
            pass
        finally:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self._noticed.set()
        self._writer.close()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(EngineGone("the engine has hung up"))
