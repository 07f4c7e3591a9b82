"""Pages on their way from fetchers to parsers: appended to segment files, read by reference, deleted when all are read.

    DATA/spool/pod_N/SLOT-TIME.spool    one writer at a time, which holds a lock on it; at SEGMENT_BYTES the next begins

An entry is a head (length, checksum, item), the encoded answer, and the body of one that is large, which is copied from
its file and read from the segment, never held in memory. A reference (name, place and length) is given away
only when its entry is in the hands of the operating system, so that a killed fetcher leaves none that leads nowhere;
after a power cut an entry may be torn, which its checksum tells, and its page is fetched again.

A segment is deleted when nobody writes to it and the frontier waits for none of its entries. The frontier is asked,
so a crash of whomever leaves nothing for ever: not an entry whose reference was never given, nor a whole file. Until
the frontier has every reference of a segment, its writer keeps the lock: a sweeper would take those entries for read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from xxhash import xxh3_64, xxh3_64_intdigest

from weft.bodies import Body, FileBody
from weft.errors import writing
from weft.files import open_locked
from weft.records import FetchResult, Rendered

SEGMENT_BYTES = 64 * 1024 * 1024
SWEEP_EVERY_S = 2.0
ITEMS_PER_QUERY = 500
OPEN_SEGMENTS = 64
_ENTRY_HEAD = struct.Struct("<IQq")  # length of the rest, its checksum, the item


class UnreadableEntry(Exception):
    """An entry that differs from what was written: its page must be fetched again."""


class SpooledAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An answer as it is spooled: what a `FetchResult` has beyond its lease's URL."""

    asked_at: float
    status: int
    head: bytes
    body: bytes
    error: str | None
    detail: str
    spent_s: float
    ip: str
    request_head: bytes
    surplus: bool
    large_bytes: int = 0  # of a body that follows the entry
    large_checksum: int = 0
    rendered: Rendered | None = None

    def result(self, url: str, large: FileBody | None = None) -> FetchResult:
        """The result as it was spooled; of its times only the difference is left."""
        body: Body = self.body if large is None else large
        return FetchResult(
            url, self.status, self.head, body, self.error, self.detail, 0.0, self.spent_s, self.ip,
            self.request_head, self.surplus, self.rendered,
        )  # fmt: skip


def spool_answer(result: FetchResult, asked_at: float) -> SpooledAnswer:
    """Prepares a result for the spool; a body in a file is spooled beside it."""
    large = result.body if isinstance(result.body, FileBody) else None
    body = b"" if isinstance(result.body, FileBody) else result.body
    return SpooledAnswer(
        asked_at, result.status, result.head, body, result.error, result.detail, result.ended - result.started,
        result.ip, result.request_head, result.surplus, len(large) if large else 0, _checksum(large) if large else 0,
        result.rendered,
    )  # fmt: skip


def _checksum(body: FileBody) -> int:
    digest = xxh3_64()
    for chunk in body.chunks():
        digest.update(chunk)
    return digest.intdigest()


class SpoolWriter:
    """Appends for one slot. One thread adds and flushes; `sync` may be called from another."""

    def __init__(self, folder: Path, slot: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._slot = slot
        self._segment_bytes = segment_bytes
        self._encoder = msgspec.msgpack.Encoder()
        self._fd_lock = threading.Lock()
        self._fd = -1
        self._name = ""
        self._size = 0  # bytes written
        self._end = 0  # offset behind the entries that are not written yet
        self._waiting: list[Body] = []
        self._is_referenced = True  # the frontier has the references of all entries

    def add(self, item: int, entry: SpooledAnswer, large: FileBody | None = None) -> bytes:
        """Adds an entry and its large body; its reference may be handed over after the next `flush`."""
        if self._fd < 0 or (self._size >= self._segment_bytes and self._is_referenced):
            self._next_segment()
        self._is_referenced = False
        data = self._encoder.encode(entry)
        head = _ENTRY_HEAD.pack(len(data) + entry.large_bytes, xxh3_64_intdigest(data), item)
        reference = f"{self._name} {self._end} {len(head) + len(data)}".encode()
        self._waiting += (head, data) if large is None else (head, data, large)
        self._end += len(head) + len(data) + entry.large_bytes
        return reference

    def flush(self) -> None:
        """Writes everything to the operating system: a kill cannot undo it. DiskFull: call it again."""
        if not self._waiting:
            return
        with writing(self._folder / self._name):
            try:
                for data in _join_unwritten(self._waiting):
                    if os.write(self._fd, data) < len(data):
                        raise OSError(errno.ENOSPC, "short write")
            except OSError:
                os.ftruncate(self._fd, self._size)
                raise
        self._size = self._end
        self._waiting.clear()

    def note_references(self) -> None:
        """The frontier has the reference of every entry: a full segment may be closed, and swept by other processes."""
        self._is_referenced = not self._waiting

    def sync(self) -> None:
        """Syncs everything to the disk."""
        with self._fd_lock:
            if self._fd >= 0:
                os.fdatasync(self._fd)

    def close(self) -> None:
        """Flushes, and releases the segment to sweepers."""
        self.flush()
        with self._fd_lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _next_segment(self) -> None:
        name = f"{self._slot}-{time.time_ns() // 1000:014x}.spool"
        with writing(self._folder / name):
            # A sweeper may delete the new file before it is locked: it is empty, so the frontier waits for no entry of
            # it.
            fd = open_locked(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        with self._fd_lock:
            if self._fd >= 0:
                os.fdatasync(self._fd)
                os.close(self._fd)
            self._fd = fd
        self._name, self._size, self._end = name, 0, 0


def _join_unwritten(parts: list[Body]) -> Iterator[bytes]:
    """The unwritten data in pieces; a large body comes in chunks."""
    waiting: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            waiting.append(part)
            continue
        yield b"".join(waiting)
        waiting.clear()
        yield from part.chunks()
    yield b"".join(waiting)


class SpoolReader:
    """Reads entries by reference."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open_segments: OrderedDict[str, int] = OrderedDict()
        self._decoder = msgspec.msgpack.Decoder(SpooledAnswer)

    def read(self, reference: bytes, item: int) -> SpooledAnswer:
        """The entry of a reference, if it is whole and belongs to the item."""
        try:
            name, offset, length = reference.decode().split(" ")
            data = os.pread(self._open_segment(name), int(length), int(offset))
            size, checksum, owner = _ENTRY_HEAD.unpack_from(data)
        except (OSError, ValueError, struct.error) as error:
            raise UnreadableEntry(f"{reference!r}: {error}") from None
        entry = memoryview(data)[_ENTRY_HEAD.size :]
        if owner != item or size < len(entry) or xxh3_64_intdigest(entry) != checksum:
            raise UnreadableEntry(f"{reference!r}: torn")
        found = self._decoder.decode(entry)
        if size != len(entry) + found.large_bytes:
            raise UnreadableEntry(f"{reference!r}: torn")
        return found

    def read_large_body(self, reference: bytes, entry: SpooledAnswer) -> FileBody | None:
        """The large body behind an entry, if it has one and that is whole."""
        if not entry.large_bytes:
            return None
        name, offset, length = reference.decode().split(" ")
        try:
            body = FileBody(os.dup(self._open_segment(name)), int(offset) + int(length), entry.large_bytes)
            is_whole = _checksum(body) == entry.large_checksum
        except OSError as error:
            raise UnreadableEntry(f"{reference!r}: {error}") from None
        if not is_whole:
            raise UnreadableEntry(f"{reference!r}: its body is torn")
        return body

    def close(self) -> None:
        """Closes the segments."""
        while self._open_segments:
            os.close(self._open_segments.popitem()[1])

    def _open_segment(self, name: str) -> int:
        fd = self._open_segments.get(name)
        if fd is None:
            fd = self._open_segments[name] = os.open(self._folder / Path(name).name, os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open_segments) > OPEN_SEGMENTS:
                os.close(self._open_segments.popitem(last=False)[1])
        return fd


class SegmentSweeper:
    """Deletes segments that have been read. `awaited` returns for each of some items whether the frontier waits for its
    parsing.
    """

    def __init__(
        self,
        folder: Path,
        awaited: Callable[[Sequence[int]], Sequence[bool]],
        *,
        every_s: float = SWEEP_EVERY_S,
    ) -> None:
        self._folder = folder
        self._are_awaited = awaited
        self._every_s = every_s
        self._next = 0.0

    def __call__(self, now: float) -> None:
        """Sweeps if it is time: the periodic task."""
        if now >= self._next:
            self._next = now + self._every_s
            self.sweep()

    def sweep(self) -> int:
        """Checks all segments, the oldest first; returns how many it deleted."""
        gone = 0
        for path in sorted(self._folder.glob("*.spool"), key=lambda path: path.name.rpartition("-")[2]):
            gone += self._delete_if_read(path)
        return gone

    def _delete_if_read(self, path: Path) -> bool:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            items = list(_items_of_segment(fd))
            # The last entries are read last, so one question is usually enough.
            for end in range(len(items), 0, -ITEMS_PER_QUERY):
                if any(self._are_awaited(items[max(0, end - ITEMS_PER_QUERY) : end])):
                    return False
            path.unlink(missing_ok=True)
        except BlockingIOError:
            return False  # it is being written, or another process sweeps it
        finally:
            os.close(fd)
        return True


def _items_of_segment(fd: int) -> Iterator[int]:
    """The items of a segment's entries."""
    at, end = 0, os.fstat(fd).st_size
    while at + _ENTRY_HEAD.size <= end:
        length, _, item = _ENTRY_HEAD.unpack(os.pread(fd, _ENTRY_HEAD.size, at))
        yield item
        at += _ENTRY_HEAD.size + length
