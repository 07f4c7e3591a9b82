"""Event streams: what happens to a task, as server-sent events, to any number of readers.

Each task that is watched has one feed in a worker: one reader of its events, which keeps the last of them encoded. A
client is a number, that of the last event it was sent, and costs no memory for what it has not read: it takes from the
feed's ring what lies behind its number, and reads from the disk what the ring does not have any more. All clients of a
feed at one number are sent the same bytes. One that has everything is a follower: the feed writes to it as things
happen, and no task is woken for it. With 2,000 clients waking them took several times as long as the writes.

What must stay true: a client gets every numbered event once and in order, from the number it gave, however often either
side was restarted; one that does not read is cut off after `stall_s` and has at most one write's bytes in memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec

from weft.jobs.errors import JobError, TaskUnknown
from weft.jobs.service import JobEvent, JobService
from weft.store.export.facts import iso
from weft.telemetry import Log

RING_EVENTS = 2_000
RING_BYTES = 512 * 1024
GATHER_S = 0.05  # between two times that something is sent: what comes within it is sent together
FIRST_S = 0.005  # what comes after a pause is sent so soon, with what comes along with it
PROGRESS_S = 0.15  # progress waits so long for an event to go along with: with thousands of clients each send counts
AT_ONCE_BYTES = 16 * 1024
AGAIN_S = 0.5  # after a feed could not read
log = Log("weft.jobs.api")
# Takes bytes for a client, all of them or none: False where it cannot now, because what it has is not read yet.
Write = Callable[[bytes], bool]


def frame(event: JobEvent) -> bytes:
    """An event as it goes over the wire; progress has no id, so that nobody resumes behind it."""
    times = {name: iso(value) for name, value in event.data.items() if name.endswith("_at") and value is not None}
    data = msgspec.json.encode({"at": iso(event.at), **event.data, **times})
    head = f"id: {event.number}\n" if event.number is not None else ""
    return f"{head}event: {event.kind}\ndata: ".encode() + data + b"\n\n"


class Follower:
    """A client that has had everything, up to the event `at` and to a version of the progress."""

    __slots__ = ("at", "leaves", "shown", "write")

    def __init__(self, at: int, shown: int, write: Write, leaves: asyncio.Future[None]) -> None:
        self.at = at
        self.shown = shown
        self.write = write
        self.leaves = leaves  # done when the client must look for itself


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
        self._with_progress: dict[int, bytes] = {}  # the same with the progress behind it
        self._followers: set[Follower] = set()
        self._sends: asyncio.TimerHandle | None = None
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._beats = self._loop.call_later(heartbeat_s, self._beat)
        self._reader = self._loop.create_task(self._read())

    def close(self) -> None:
        """Nobody watches any more, or the worker ends."""
        self._reader.cancel()
        self._beats.cancel()
        self._send()

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

    def news(self, at: int, shown: int) -> tuple[int, int, bytes]:
        """What is sent next to a client at a number that has had a version of the progress, and where it is then."""
        at_before, (at, piece) = at, self.behind(at)
        if shown == self.progress_version or at < self.last:
            return at, shown, piece
        if at_before not in self._with_progress:
            self._with_progress[at_before] = piece + self.progress
        return at, self.progress_version, self._with_progress[at_before]

    async def follow(self, at: int, shown: int, write: Write) -> tuple[int, int]:
        """Writes to a client what happens, as long as it takes it at once; returns where the client is then."""
        follower = Follower(at, shown, write, self._loop.create_future())
        self._followers.add(follower)
        try:
            await follower.leaves
        finally:
            self._followers.discard(follower)
        return follower.at, follower.shown

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
        self._send()

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
        self._with_progress.clear()
        now = self._loop.time()
        self._send_at(max(now + (FIRST_S if event.number is not None else PROGRESS_S), self._sent_at + GATHER_S))

    def _send_at(self, when: float) -> None:
        """Sends then, if not before."""
        if self._sends is not None:
            if self._sends.when() <= when:
                return
            self._sends.cancel()
        self._sends = self._loop.call_at(when, self._send)

    def _beat(self) -> None:
        """Clients that have nothing to read look whether to say so."""
        self._send()
        self._beats = self._loop.call_later(self._heartbeat_s, self._beat)

    def _send(self) -> None:
        if self._sends is not None:
            self._sends.cancel()
            self._sends = None
        self._sent_at = self._loop.time()
        for follower in self._followers:
            if not self._goes_on(follower) and not follower.leaves.done():
                follower.leaves.set_result(None)

    def _goes_on(self, follower: Follower) -> bool:
        """Writes what is new to a follower; False if that is not all of it, or nothing could be written."""
        if self.has_ended or follower.leaves.done() or follower.at < self.first:
            return False
        at, shown, piece = self.news(follower.at, follower.shown)
        if not follower.write(piece):
            return False
        follower.at, follower.shown = at, shown
        return at >= self.last


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

    async def stream(
        self, task_id: str, owner: str | None, after: int, now_at: int, write: Write
    ) -> AsyncGenerator[bytes, None]:
        """The bytes for a client that has had the events up to `after`: an empty piece says that nothing is new.

        `now_at`: the number of the task's last event. What happens while the client has everything goes to `write`.
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
                if at >= feed.last and feed.has_ended:
                    return
                at, shown, piece = feed.news(at, shown)
                yield piece
                # A client may be ahead of the feed: its last event came from another worker, which reads sooner.
                if at >= feed.last and not feed.has_ended:
                    at, shown = await feed.follow(at, shown, write)
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
