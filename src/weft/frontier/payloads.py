"""Bytes that belong to queued items, in append-only files: an item's entry has the position of its payload, not the
bytes.

    payloads/NNNNNN.seg    records: length (4 bytes), checksum (8 bytes), the bytes

A position is written to the journal after `sync` has put its record on the disk, so that every recorded position is
valid. Each process appends to a file of its own, so that a torn end of an earlier one is never followed by anything. A
payload is overwritten with zeros when it is no longer needed, since it may be a form with a password; a file is deleted
when nothing in it is needed any more.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from weft.errors import writing
from weft.files import sync_folder

SEGMENT_BYTES = 64 << 20
_PAYLOAD_HEAD = struct.Struct("<IQ")
_MOST_OPEN_FILES = 16


class PayloadPosition(NamedTuple):
    """The position of a payload."""

    segment: int
    offset: int


class LostPayload(Exception):
    """The bytes at a position differ from what was written."""


class _UnwrittenBytes:
    """What was appended to one segment and is in memory alone: `data` begins at `offset` of the file."""

    __slots__ = ("data", "offset", "segment")

    def __init__(self, segment: int, offset: int) -> None:
        self.segment = segment
        self.offset = offset
        self.data = bytearray()


class PayloadFiles:
    """The payloads of one frontier. Appended ones are in memory until `sync`."""

    def __init__(
        self, folder: Path, needed: Iterable[tuple[int, int]] = (), segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """`needed`: how many positions of each segment are known; files without any are deleted."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._needed_payloads: Counter[int] = Counter(dict(needed))
        self._readers: dict[int, int] = {}
        self._fd, self._segment = -1, 0  # the file that is written to
        there = self._segment_numbers()
        self._last_unwritten = _UnwrittenBytes(1 + max((*there, *self._needed_payloads), default=0), 0)
        self._unwritten_before_last: list[_UnwrittenBytes] = []  # of segments before the last one
        self._unused_segments = [number for number in there if not self._needed_payloads[number]]
        self._released: list[PayloadPosition] = []  # to be overwritten
        self.delete_unused()

    def append(self, data: bytes) -> PayloadPosition:
        """Adds a payload; it is on the disk after `sync`."""
        tail = self._last_unwritten
        if tail.offset + len(tail.data) >= self._segment_bytes:
            self._unwritten_before_last.append(tail)
            tail = self._last_unwritten = _UnwrittenBytes(tail.segment + 1, 0)
        place = PayloadPosition(tail.segment, tail.offset + len(tail.data))
        tail.data += _PAYLOAD_HEAD.pack(len(data), xxh3_64_intdigest(data)) + data
        self._needed_payloads[tail.segment] += 1
        return place

    def read(self, position: PayloadPosition) -> bytes:
        """The payload at a position; LostPayload if it differs from what was written."""
        try:
            length, checksum = _PAYLOAD_HEAD.unpack(
                self._bytes_at(position.segment, position.offset, _PAYLOAD_HEAD.size)
            )
            data = self._bytes_at(position.segment, position.offset + _PAYLOAD_HEAD.size, length)
        except (OSError, ValueError, struct.error) as error:
            raise LostPayload(f"{self._segment_path(position.segment)} at {position.offset}: {error}") from None
        if len(data) != length or xxh3_64_intdigest(data) != checksum:
            raise LostPayload(f"{self._segment_path(position.segment)} at {position.offset}: is not what was written")
        return data

    def release(self, position: PayloadPosition) -> None:
        """Releases a payload that is no longer needed: `delete_unused` overwrites it, or deletes its file after the
        last one."""
        self._needed_payloads[position.segment] -= 1
        if self._needed_payloads[position.segment] <= 0 and position.segment != self._last_unwritten.segment:
            self._unused_segments.append(position.segment)
        else:
            self._released.append(position)

    def sync(self) -> None:
        """Puts added payloads on the disk. DiskFull: nothing is lost, call it again."""
        while self._unwritten_before_last:
            self._write_unwritten(self._unwritten_before_last[0])
            last = self._unwritten_before_last.pop(0)
            if self._needed_payloads[last.segment] <= 0:
                self._unused_segments.append(last.segment)
        if self._last_unwritten.data:
            self._write_unwritten(self._last_unwritten)

    def delete_unused(self) -> None:
        """Deletes what is no longer needed; the journal must have the releases."""
        while self._released:
            self._overwrite(self._released[-1])
            self._released.pop()
        for number in self._unused_segments:
            if (fd := self._readers.pop(number, None)) is not None:
                os.close(fd)
            self._segment_path(number).unlink(missing_ok=True)
            self._needed_payloads.pop(number, None)
        self._unused_segments.clear()

    def close(self) -> None:
        """Syncs and closes the files; deletes the last one if nothing in it is needed."""
        self.sync()
        if self._needed_payloads[self._last_unwritten.segment] <= 0:
            self._unused_segments.append(self._last_unwritten.segment)
        self.delete_unused()
        for fd in (*self._readers.values(), self._fd):
            if fd >= 0:
                os.close(fd)
        self._readers.clear()
        self._fd = -1

    def _write_unwritten(self, some: _UnwrittenBytes) -> None:
        """Writes at the recorded offset, so that a write that failed in the middle is repeated there."""
        with writing(self._segment_path(some.segment)):
            if self._segment != some.segment:
                self._open_segment(some.segment)
            at, left = some.offset, memoryview(bytes(some.data))
            while left:
                written = os.pwrite(self._fd, left, at)
                at, left = at + written, left[written:]
            os.fdatasync(self._fd)
        some.offset, some.data = at, bytearray()

    def _overwrite(self, position: PayloadPosition) -> None:
        """Replaces a payload with zeros, unless its file is deleted as a whole."""
        if self._needed_payloads[position.segment] <= 0 and position.segment != self._last_unwritten.segment:
            return
        path, is_open = self._segment_path(position.segment), position.segment == self._segment
        with writing(path), suppress(FileNotFoundError):
            fd = self._fd if is_open else os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                head = os.pread(fd, _PAYLOAD_HEAD.size, position.offset)
                if len(head) == _PAYLOAD_HEAD.size:
                    room = os.fstat(fd).st_size - position.offset - _PAYLOAD_HEAD.size
                    os.pwrite(fd, bytes(_PAYLOAD_HEAD.size + min(_PAYLOAD_HEAD.unpack(head)[0], room)), position.offset)
            finally:
                if not is_open:
                    os.close(fd)

    def _open_segment(self, segment: int) -> None:
        is_new = not self._folder.exists()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._segment_path(segment), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._segment = fd, segment
        sync_folder(self._folder)
        if is_new:
            sync_folder(self._folder.parent)

    def _bytes_at(self, segment: int, offset: int, length: int) -> bytes:
        for some in (*self._unwritten_before_last, self._last_unwritten):
            if some.segment == segment and offset >= some.offset:
                return bytes(some.data[offset - some.offset : offset - some.offset + length])
        return os.pread(self._reader_of(segment), length, offset)

    def _reader_of(self, segment: int) -> int:
        fd = self._readers.get(segment)
        if fd is None:
            while len(self._readers) >= _MOST_OPEN_FILES:
                os.close(self._readers.pop(next(iter(self._readers))))
            fd = self._readers[segment] = os.open(self._segment_path(segment), os.O_RDONLY | os.O_CLOEXEC)
        return fd

    def _segment_path(self, segment: int) -> Path:
        return self._folder / f"{segment:06}.seg"

    def _segment_numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.seg") if path.stem.isdecimal())
