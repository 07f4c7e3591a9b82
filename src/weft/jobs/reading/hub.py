"""The one event hub of a worker: all who watch something in it get it here, over SSE, WebSockets and the dashboard.

What is watched has one feed: one reader of its source, which keeps the last pieces encoded. A source gives pieces with
a number, which each watcher gets once and in order, and pieces without one, of which the last alone counts: a task's
events and its progress, or a view of the dashboard, which has no numbers. A watcher is a number, that of the last event
it was sent, and costs no memory for what it has not read: it takes from the feed's ring what lies behind its number,
and reads from the disk what the ring does not have any more. All watchers of a feed at one number are sent the same
bytes. One that has everything is a follower: the feed writes to it as things happen, and no task is woken for it. With
2,000 watchers waking them took several times as long as the writes.

What must stay true: a watcher gets every numbered event once and in order, from the number it gave, however often
either side was restarted; one that does not read is cut off after `stall_s` (api/streams.py) and has at most one
write's bytes in memory. Webhooks read the same numbered rows by a cursor of their own, which is durable.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from weft.errors import WeftError
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
TICK_S = 1.0  # between two looks at a view
log = Log("weft.jobs.reading.hub")
Piece = tuple[int | None, bytes]  # with the number of its event; None: it replaces the one before
Source = Callable[[int], AsyncIterator[Piece]]  # what comes behind a number, to its end
View = Callable[[], Awaitable[dict[str, Any] | None]]
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


class HubFeed:
    """The end of one source, for its watchers in this worker."""

    def __init__(self, source: Source, after: int, heartbeat_s: float) -> None:
        self.first = self.last = after  # the ring holds the events after `first`, up to `last`
        self.has_ended = False
        self.progress = b""
        self.progress_version = 0
        self.watchers = 0
        self._source = source
        self._ring: deque[tuple[int, bytes]] = deque()
        self._ring_bytes = 0
        self._joined: dict[int, tuple[int, bytes]] = {}  # what clients at a number are sent next
        self._with_progress: dict[int, bytes] = {}  # the same with the progress behind it
        self._followers: set[Follower] = set()
        self._sends: asyncio.TimerHandle | None = None
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._keepalive = self._loop.call_later(heartbeat_s, self._keep_alive)
        self._reader = self._loop.create_task(self._read())

    def close(self) -> None:
        """Nobody watches any more, or the worker ends."""
        self._reader.cancel()
        self._keepalive.cancel()
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

    def is_over(self, at: int, shown: int) -> bool:
        """Whether a watcher has had everything, and nothing more will come."""
        return self.has_ended and at >= self.last and shown >= self.progress_version

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
                async for number, piece in self._source(self.last):
                    self._handle(number, piece)
                self.has_ended = True
            except TaskUnknown:  # retention has deleted it
                self.has_ended = True
            except JobError as error:
                log.warning("events could not be read", error=str(error))
                await asyncio.sleep(AGAIN_S)
        self._send()

    def _handle(self, number: int | None, piece: bytes) -> None:
        if number is None:
            self.progress = piece
            self.progress_version += 1
        else:
            self._ring.append((number, piece))
            self._ring_bytes += len(piece)
            self.last = number
            while len(self._ring) > RING_EVENTS or self._ring_bytes > RING_BYTES:
                self.first, gone = self._ring.popleft()
                self._ring_bytes -= len(gone)
        self._joined.clear()
        self._with_progress.clear()
        now = self._loop.time()  # what has no events has nothing that its progress could go along with
        self._send_at(max(now + (PROGRESS_S if number is None and self.last else FIRST_S), self._sent_at + GATHER_S))

    def _send_at(self, when: float) -> None:
        """Sends then, if not before."""
        if self._sends is not None:
            if self._sends.when() <= when:
                return
            self._sends.cancel()
        self._sends = self._loop.call_at(when, self._send)

    def _keep_alive(self) -> None:
        """Clients that have nothing to read look whether to say so."""
        self._send()
        self._keepalive = self._loop.call_later(self._heartbeat_s, self._keep_alive)

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


class Hub:
    """The feeds of a worker, each there as long as it is watched."""

    def __init__(self, service: JobService, heartbeat_s: float, tick_s: float = TICK_S) -> None:
        self._service = service
        self._heartbeat_s = heartbeat_s
        self._tick_s = tick_s
        self._feeds: dict[Hashable, HubFeed] = {}

    def close(self) -> None:
        """The worker ends: every stream ends, and its watcher comes again to the next."""
        for feed in self._feeds.values():
            feed.has_ended = True
            feed.close()

    async def stream(
        self, task_id: str, owner: str | None, after: int, now_at: int, write: Write
    ) -> AsyncGenerator[bytes, None]:
        """A task's events for a watcher that has had those up to `after`: an empty piece says that nothing is new.

        `now_at`: the number of the task's last event. What happens while the watcher has everything goes to `write`.
        """
        # A new feed begins where its first watcher does, if that is not far: then nobody needs the disk.
        feed = self._open(task_id, self._of_task(task_id), after if now_at - after < RING_EVENTS else now_at)
        try:
            at, shown = after, 0
            while True:
                while at < feed.first:
                    at, piece = await self._from_disk(task_id, owner, at, feed.first)
                    yield piece
                if feed.is_over(at, shown):
                    return
                at, shown, piece = feed.news(at, shown)
                yield piece
                # A watcher may be ahead of the feed: its last event came from another worker, which reads sooner.
                if at >= feed.last and not feed.has_ended:
                    at, shown = await feed.follow(at, shown, write)
        finally:
            self._leave(task_id, feed)

    async def numbers(self, task_id: str, at: int, silent_s: float) -> AsyncGenerator[int | None, None]:
        """The number of a task's last event, behind `at`, whenever there is another; None where there was none for a
        while. Ends with the task."""
        feed = self._open(task_id, self._of_task(task_id), at)
        try:
            while not feed.has_ended or feed.last > at:
                if feed.last > at:
                    at = feed.last
                    yield at
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(silent_s):
                        await feed.follow(at, feed.progress_version, _is_no_event)
                        continue
                yield None
        finally:
            self._leave(task_id, feed)

    async def ended(self, task_id: str, at_most_s: float) -> bool:
        """Waits for the end of a task; False if that has not come in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s), aclosing(self.numbers(task_id, 0, at_most_s)) as numbers:
                async for _ in numbers:
                    pass
            return True
        return False

    async def view(self, key: Hashable, event: str, make: View, write: Write) -> AsyncGenerator[bytes, None]:
        """What a viewer of the dashboard is sent: the whole of what is shown, made once a second for all who look at
        the same thing, and not sent again while it says the same. None, or one that `is_over`, is the last."""
        feed = self._open(key, lambda _: self._looks(event, make), 0)
        try:
            shown = 0
            while not feed.is_over(0, shown):
                if shown == feed.progress_version:
                    _, shown = await feed.follow(0, shown, write)
                _, shown, piece = feed.news(0, shown)
                yield piece
        finally:
            self._leave(key, feed)

    def _open(self, key: Hashable, source: Source, at: int) -> HubFeed:
        feed = self._feeds.get(key)
        if feed is None or feed.has_ended:
            feed = self._feeds[key] = HubFeed(source, at, self._heartbeat_s)
        feed.watchers += 1
        return feed

    def _leave(self, key: Hashable, feed: HubFeed) -> None:
        feed.watchers -= 1
        if not feed.watchers:
            feed.close()
            if self._feeds.get(key) is feed:
                del self._feeds[key]

    def _of_task(self, task_id: str) -> Source:
        async def source(after: int) -> AsyncIterator[Piece]:
            async for event in self._service.events(task_id, after=after):
                yield event.number, frame(event)

        return source

    async def _looks(self, event: str, make: View) -> AsyncIterator[Piece]:
        last = b""
        while True:
            try:
                found = await make()
                if found is None:
                    return
                data = msgspec.json.encode(found)
                if data != last:
                    last = data
                    yield None, b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"
                if found.get("is_over"):
                    return
            except (WeftError, TimeoutError) as error:
                log.warning("a view could not be made", view=event, error=error)
            except Exception:  # a mistake in one view must not end the others'
                log.error("a view failed", exc_info=True, view=event)
            await asyncio.sleep(self._tick_s)

    async def _from_disk(self, task_id: str, owner: str | None, at: int, first: int) -> tuple[int, bytes]:
        """What the ring does not have, up to where it begins; and the number that a watcher is at then."""
        before, pieces = at, list[bytes]()
        for event in await self._service.stored(task_id, owner, after=at):
            if (event.number or 0) > first or sum(map(len, pieces)) > AT_ONCE_BYTES:
                break
            pieces += [frame(event)] if event.kind != "hidden" else []
            at = event.number or at
        return at if at > before else first, b"".join(pieces)


def _is_no_event(piece: bytes) -> bool:
    return not piece.startswith(b"id: ")
