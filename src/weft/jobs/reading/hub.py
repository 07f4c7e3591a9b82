"""The event hub of a worker: distributes events to all watchers, over SSE, WebSockets and the dashboard.

Each source has one feed: one reader, which keeps the last pieces encoded. A source yields pieces with a number, which
each watcher gets once and in order, and pieces without one, of which only the last counts: the events of a task and its
progress, or a view of the dashboard, which has no numbers. A watcher is only a number, that of the last event it was
sent, and uses no memory for what it has not read: it gets what follows from the feed's ring, and from the disk what the
ring no longer has. All watchers of a feed at the same number are sent the same bytes. A watcher that has everything is
a follower: the feed writes to it directly, and no asyncio task is resumed for it. With 2,000 watchers resuming tasks
took several times as long as the writes.

Invariants: a watcher gets every numbered event once and in order, from the number it gave, however often either side
restarts; a watcher that does not read is disconnected after `stall_s` (api/streams.py) and has at most one write's
bytes in memory. Webhooks read the same numbered rows with a durable cursor of their own.
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
from weft.store.export.facts import iso_time
from weft.telemetry import Log

RING_EVENTS = 2_000
RING_BYTES = 512 * 1024
GATHER_S = 0.05  # events within this time are sent together
FIRST_S = 0.005  # delay of the first event after a pause, for events that follow it closely
PROGRESS_S = 0.15  # progress waits this long to be sent with an event: with thousands of clients each send counts
AT_ONCE_BYTES = 16 * 1024
AGAIN_S = 0.5  # delay after a failed read of a feed
TICK_S = 1.0  # interval between two updates of a view
log = Log("weft.jobs.reading.hub")
Piece = tuple[int | None, bytes]  # with the number of its event; None: replaces the piece before
Source = Callable[[int], AsyncIterator[Piece]]  # yields what follows a number, to its end
View = Callable[[], Awaitable[dict[str, Any] | None]]
# Writes bytes for a client, all of them or none: False while earlier bytes are not read yet.
Write = Callable[[bytes], bool]


def frame(event: JobEvent) -> bytes:
    """An event in SSE format. Progress has no id, because a reader cannot resume after it."""
    times = {name: iso_time(value) for name, value in event.data.items() if name.endswith("_at") and value is not None}
    data = msgspec.json.encode({"at": iso_time(event.at), **event.data, **times})
    head = f"id: {event.number}\n" if event.number is not None else ""
    return f"{head}event: {event.kind}\ndata: ".encode() + data + b"\n\n"


class Follower:
    """A client that has received everything: the event `at` and the current version of the progress."""

    __slots__ = ("at", "leaves", "version", "write")

    def __init__(self, at: int, version: int, write: Write, leaves: asyncio.Future[None]) -> None:
        self.at = at
        self.version = version
        self.write = write
        self.leaves = leaves  # done when the client must read by itself again


class HubFeed:
    """The latest pieces of one source, for its watchers in this worker."""

    def __init__(self, source: Source, after: int, heartbeat_s: float) -> None:
        self.first = self.last = after  # the ring holds the events after `first`, up to `last`
        self.has_ended = False
        self.progress = b""
        self.progress_version = 0
        self.watchers = 0
        self._source = source
        self._ring: deque[tuple[int, bytes]] = deque()
        self._ring_bytes = 0
        self._joined: dict[int, tuple[int, bytes]] = {}  # number → the bytes that clients at this number are sent next
        self._with_progress: dict[int, bytes] = {}  # number → the same bytes with the progress at their end
        self._followers: set[Follower] = set()
        self._sends: asyncio.TimerHandle | None = None
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._keepalive = self._loop.call_later(heartbeat_s, self._keep_alive)
        self._reader = self._loop.create_task(self._read_source())

    def close(self) -> None:
        """Ends the feed: it has no watchers, or the worker ends."""
        self._reader.cancel()
        self._keepalive.cancel()
        self._send_to_followers()

    def behind(self, number: int) -> tuple[int, bytes]:
        """The bytes that a client at a number is sent next, and its number after that."""
        if number not in self._joined:
            pieces, size, at = [], 0, number
            for event_number, piece in self._ring:
                if event_number > number:
                    pieces.append(piece)
                    size, at = size + len(piece), event_number
                    if size > AT_ONCE_BYTES:
                        break
            self._joined[number] = (at, b"".join(pieces))
        return self._joined[number]

    def news(self, at: int, version: int) -> tuple[int, int, bytes]:
        """The bytes that a client is sent next, given its number and the version of the progress it has; and both after
        that."""
        at_before, (at, piece) = at, self.behind(at)
        if version == self.progress_version or at < self.last:
            return at, version, piece
        if at_before not in self._with_progress:
            self._with_progress[at_before] = piece + self.progress
        return at, self.progress_version, self._with_progress[at_before]

    def is_over(self, at: int, version: int) -> bool:
        """Whether a watcher has received everything, and the source has ended."""
        return self.has_ended and at >= self.last and version >= self.progress_version

    async def follow(self, at: int, version: int, write: Write) -> tuple[int, int]:
        """Writes new pieces to a client as long as it reads them at once; returns its number and version then."""
        follower = Follower(at, version, write, self._loop.create_future())
        self._followers.add(follower)
        try:
            await follower.leaves
        finally:
            self._followers.discard(follower)
        return follower.at, follower.version

    async def _read_source(self) -> None:
        while not self.has_ended:
            try:
                async for number, piece in self._source(self.last):
                    self._handle_piece(number, piece)
                self.has_ended = True
            except TaskUnknown:  # deleted at the end of its retention
                self.has_ended = True
            except JobError as error:
                log.warning("events could not be read", error=str(error))
                await asyncio.sleep(AGAIN_S)
        self._send_to_followers()

    def _handle_piece(self, number: int | None, piece: bytes) -> None:
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
        now = self._loop.time()  # a source without events: there is nothing to send progress with
        self._schedule_send(
            max(now + (PROGRESS_S if number is None and self.last else FIRST_S), self._sent_at + GATHER_S)
        )

    def _schedule_send(self, when: float) -> None:
        """Schedules a send at `when`, unless one is scheduled earlier."""
        if self._sends is not None:
            if self._sends.when() <= when:
                return
            self._sends.cancel()
        self._sends = self._loop.call_at(when, self._send_to_followers)

    def _keep_alive(self) -> None:
        """Wakes clients without news, so that they can send a heartbeat."""
        self._send_to_followers()
        self._keepalive = self._loop.call_later(self._heartbeat_s, self._keep_alive)

    def _send_to_followers(self) -> None:
        if self._sends is not None:
            self._sends.cancel()
            self._sends = None
        self._sent_at = self._loop.time()
        for follower in self._followers:
            if not self._write_news(follower) and not follower.leaves.done():
                follower.leaves.set_result(None)

    def _write_news(self, follower: Follower) -> bool:
        """Writes new pieces to a follower; False if it could not write all of them."""
        if self.has_ended or follower.leaves.done() or follower.at < self.first:
            return False
        at, version, piece = self.news(follower.at, follower.version)
        if not follower.write(piece):
            return False
        follower.at, follower.version = at, version
        return at >= self.last


class Hub:
    """The feeds of a worker; each exists while it has watchers."""

    def __init__(self, service: JobService, heartbeat_s: float, tick_s: float = TICK_S) -> None:
        self._service = service
        self._heartbeat_s = heartbeat_s
        self._tick_s = tick_s
        self._feeds: dict[Hashable, HubFeed] = {}

    def close(self) -> None:
        """Ends every stream when the worker ends; watchers reconnect to another worker."""
        for feed in self._feeds.values():
            feed.has_ended = True
            feed.close()

    async def stream(
        self, task_id: str, owner: str | None, after: int, now_at: int, write: Write
    ) -> AsyncGenerator[bytes, None]:
        """The events of a task for a watcher that has those up to `after`; an empty piece means that there is nothing
        new.

        `now_at`: the number of the task's last event. While the watcher has everything, new events go to `write`.
        """
        # A new feed starts at its first watcher's number if that is close: then no watcher needs the disk.
        feed = self._open_feed(
            task_id, self._source_of_task(task_id), after if now_at - after < RING_EVENTS else now_at
        )
        try:
            at, version = after, 0
            while True:
                while at < feed.first:
                    at, piece = await self._read_from_disk(task_id, owner, at, feed.first)
                    yield piece
                if feed.is_over(at, version):
                    return
                at, version, piece = feed.news(at, version)
                yield piece
                # A watcher may be ahead of the feed: its last event came from another worker, which reads sooner.
                if at >= feed.last and not feed.has_ended:
                    at, version = await feed.follow(at, version, write)
        finally:
            self._remove_watcher(task_id, feed)

    async def numbers(self, task_id: str, at: int, silent_s: float) -> AsyncGenerator[int | None, None]:
        """Yields the number of a task's last event after `at` whenever it changes, and None after `silent_s` without a
        change. Ends with the task."""
        feed = self._open_feed(task_id, self._source_of_task(task_id), at)
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
            self._remove_watcher(task_id, feed)

    async def ended(self, task_id: str, at_most_s: float) -> bool:
        """Waits for the end of a task; False if it has not ended in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s), aclosing(self.numbers(task_id, 0, at_most_s)) as numbers:
                async for _ in numbers:
                    pass
            return True
        return False

    async def view(self, key: Hashable, event: str, make: View, write: Write) -> AsyncGenerator[bytes, None]:
        """The pieces for a viewer of the dashboard: a whole view, rendered once a second for all viewers of the same
        view, and sent only when it has changed. None, or a view with `is_over`, is the last."""
        feed = self._open_feed(key, lambda _: self._view_updates(event, make), 0)
        try:
            version = 0
            while not feed.is_over(0, version):
                if version == feed.progress_version:
                    _, version = await feed.follow(0, version, write)
                _, version, piece = feed.news(0, version)
                yield piece
        finally:
            self._remove_watcher(key, feed)

    def _open_feed(self, key: Hashable, source: Source, at: int) -> HubFeed:
        feed = self._feeds.get(key)
        if feed is None or feed.has_ended:
            feed = self._feeds[key] = HubFeed(source, at, self._heartbeat_s)
        feed.watchers += 1
        return feed

    def _remove_watcher(self, key: Hashable, feed: HubFeed) -> None:
        feed.watchers -= 1
        if not feed.watchers:
            feed.close()
            if self._feeds.get(key) is feed:
                del self._feeds[key]

    def _source_of_task(self, task_id: str) -> Source:
        async def source(after: int) -> AsyncIterator[Piece]:
            async for event in self._service.events(task_id, after=after):
                yield event.number, frame(event)

        return source

    async def _view_updates(self, event: str, make: View) -> AsyncIterator[Piece]:
        last = b""
        while True:
            try:
                view = await make()
                if view is None:
                    return
                data = msgspec.json.encode(view)
                if data != last:
                    last = data
                    yield None, b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"
                if view.get("is_over"):
                    return
            except (WeftError, TimeoutError) as error:
                log.warning("a view could not be made", view=event, error=error)
            except Exception:  # a mistake in one view must not end the others'
                log.error("a view failed", exc_info=True, view=event)
            await asyncio.sleep(self._tick_s)

    async def _read_from_disk(self, task_id: str, owner: str | None, at: int, first: int) -> tuple[int, bytes]:
        """The events between `at` and the beginning of the ring, from the disk; and the watcher's number after them."""
        before, pieces = at, list[bytes]()
        for event in await self._service.stored(task_id, owner, after=at):
            if (event.number or 0) > first or sum(map(len, pieces)) > AT_ONCE_BYTES:
                break
            pieces += [frame(event)] if event.kind != "hidden" else []
            at = event.number or at
        return at if at > before else first, b"".join(pieces)


def _is_no_event(piece: bytes) -> bool:
    return not piece.startswith(b"id: ")
