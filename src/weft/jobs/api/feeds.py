"""Event streams: what happens to a task, as server-sent events, to any number of readers.

Each task that is watched has one feed in a worker: one reader of its events, which keeps the last of them encoded. A
client is a number, that of the last event it was sent, and costs no memory for what it has not read: it takes from the
feed's ring what lies behind its number, and reads from the disk what the ring does not have any more. All clients of a
feed at one number are sent the same bytes.

What must stay true: a client gets every numbered event once and in order, from the number it gave, however often either
side was restarted; one that does not read is cut off after `stall_s` and has at most one write's bytes in memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from weft.jobs.errors import JobError, TaskUnknown
from weft.jobs.service import JobEvent, JobService
from weft.store.export.facts import iso
from weft.telemetry import Log

RING_EVENTS = 2_000
RING_BYTES = 512 * 1024
GATHER_S = 0.05  # events are sent together that come within this time
AT_ONCE_BYTES = 16 * 1024
AGAIN_S = 0.5  # after a feed could not read
log = Log("weft.jobs.api")


def frame(event: JobEvent) -> bytes:
    """An event as it goes over the wire; progress has no id, so that nobody resumes behind it."""
    times = {name: iso(value) for name, value in event.data.items() if name.endswith("_at") and value is not None}
    data = msgspec.json.encode({"at": iso(event.at), **event.data, **times})
    head = f"id: {event.number}\n" if event.number is not None else ""
    return f"{head}event: {event.kind}\ndata: ".encode() + data + b"\n\n"


class Feed:
    """The end of one task's events, for its clients in this worker."""

    def __init__(self, service: JobService, task_id: str, after: int, heartbeat_s: float) -> None:
        self.first = self.last = after  # the ring holds the events after `first`, up to `last`
        self.has_ended = False
        self.progress = b""
        self.progress_version = 0
        self.clients = 0
        self._service = service
        self._task_id = task_id
        self._ring: deque[tuple[int, bytes]] = deque()
        self._ring_bytes = 0
        self._joined: dict[int, tuple[int, bytes]] = {}  # what clients at a number are sent next
        self._waiting: list[asyncio.Future[None]] = []
        self._wakes: asyncio.TimerHandle | None = None
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._beats = self._loop.call_later(heartbeat_s, self._beat)
        self._reader = self._loop.create_task(self._read())

    def close(self) -> None:
        """Nobody watches any more, or the worker ends."""
        self._reader.cancel()
        self._beats.cancel()
        self._wake()

    def behind(self, number: int) -> tuple[int, bytes]:
        """What a client at a number is sent next, and the number it is at then."""
        if number not in self._joined:
            pieces, size, at = [], 0, number
            for found, piece in self._ring:
                if found > number:
                    pieces.append(piece)
                    size, at = size + len(piece), found
                    if size > AT_ONCE_BYTES:
                        break
            self._joined[number] = (at, b"".join(pieces))
        return self._joined[number]

    async def changed(self) -> None:
        """Returns when there may be something new."""
        waits = self._loop.create_future()
        self._waiting.append(waits)
        await waits

    async def _read(self) -> None:
        while not self.has_ended:
            try:
                async for event in self._service.events(self._task_id, after=self.last):
                    self._take(event)
                self.has_ended = True
            except TaskUnknown:  # retention has deleted it
                self.has_ended = True
            except JobError as error:
                log.warning("events could not be read", task=self._task_id, error=str(error))
                await asyncio.sleep(AGAIN_S)
        self._wake()

    def _take(self, event: JobEvent) -> None:
        piece = frame(event)
        if event.number is None:
            self.progress = piece
            self.progress_version += 1
        else:
            self._ring.append((event.number, piece))
            self._ring_bytes += len(piece)
            self.last = event.number
            while len(self._ring) > RING_EVENTS or self._ring_bytes > RING_BYTES:
                self.first, gone = self._ring.popleft()
                self._ring_bytes -= len(gone)
        self._joined.clear()
        if self._wakes is None:
            self._wakes = self._loop.call_later(GATHER_S, self._wake)

    def _beat(self) -> None:
        """Clients that have nothing to read look whether to say so."""
        self._wake()
        self._beats = self._loop.call_later(self._heartbeat_s, self._beat)

    def _wake(self) -> None:
        if self._wakes is not None:
            self._wakes.cancel()
            self._wakes = None
        waiting, self._waiting = self._waiting, []
        for waits in waiting:
            if not waits.done():
                waits.set_result(None)


class Feeds:
    """The feeds of a worker, each there as long as it is watched."""

    def __init__(self, service: JobService, heartbeat_s: float) -> None:
        self._service = service
        self._heartbeat_s = heartbeat_s
        self._feeds: dict[str, Feed] = {}

    def open(self, task_id: str, at: int) -> Feed:
        """The feed of a task; a new one begins at the event that is the last now."""
        feed = self._feeds.get(task_id)
        if feed is None or feed.has_ended:
            feed = self._feeds[task_id] = Feed(self._service, task_id, at, self._heartbeat_s)
        feed.clients += 1
        return feed

    def leave(self, task_id: str, feed: Feed) -> None:
        """A client has gone."""
        feed.clients -= 1
        if not feed.clients:
            feed.close()
            if self._feeds.get(task_id) is feed:
                del self._feeds[task_id]

    def close(self) -> None:
        """The worker ends: every stream ends, and its client comes again to the next."""
        for feed in self._feeds.values():
            feed.has_ended = True
            feed.close()

    async def stream(self, task_id: str, owner: str | None, after: int, now_at: int) -> AsyncGenerator[bytes, None]:
        """The bytes for a client that has had the events up to `after`: an empty piece says that nothing is new.

        `now_at`: the number of the task's last event.
        """
        # A new feed begins where its first client does, if that is not far: then nobody needs the disk.
        feed = self.open(task_id, after if now_at - after < RING_EVENTS else now_at)
        try:
            at, shown = after, -1
            while True:
                if at < feed.first:
                    async for reached, piece in self._from_disk(task_id, owner, at, feed):
                        at = reached
                        yield piece
                    continue
                at, piece = feed.behind(at)
                if not piece and feed.has_ended:
                    return
                if shown != feed.progress_version and at == feed.last:
                    shown, piece = feed.progress_version, piece + feed.progress
                yield piece
                if at == feed.last and not feed.has_ended:
                    await feed.changed()
        finally:
            self.leave(task_id, feed)

    async def _from_disk(
        self, task_id: str, owner: str | None, after: int, feed: Feed
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """What the ring does not have, up to where it begins."""
        events, at = aiter(self._service.events(task_id, owner, after=after)), after
        step: asyncio.Future[JobEvent | None] | None = None
        pieces: list[bytes] = []
        try:
            while at < feed.first:
                step = step or asyncio.ensure_future(_next(events))
                # Where the ring begins behind a number that is no event of the task, the next one may be long in
                # coming: what there is must not wait for it.
                await asyncio.wait({step}, timeout=GATHER_S if pieces else None)
                if step.done():
                    event, step = step.result(), None
                    at = feed.first if event is None else event.number or at
                    pieces += [] if event is None else [frame(event)]
                if step is not None or at >= feed.first or sum(map(len, pieces)) > AT_ONCE_BYTES:
                    yield at, b"".join(pieces)
                    pieces = []
        finally:
            if step is not None:
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
            await events.aclose()  # type: ignore[attr-defined]


async def _next(events: AsyncIterator[JobEvent]) -> JobEvent | None:
    return await anext(events, None)
