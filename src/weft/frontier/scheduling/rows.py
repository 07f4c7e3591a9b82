"""Rows of sites at rest: appended to files, each with the place of the row before it of the same site.

The files are a cache, like those of long queues: what they hold is in the journal, and a restart makes them anew. A
file is deleted when nothing in it is wanted any more. Rows that were appended last are still in memory.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from struct import Struct

SEGMENT = 64 * 1024 * 1024
_BUFFER = 256 * 1024
_MOST_OPEN = 8  # files
_HEAD = Struct("<QI")  # the place of the row before, 0 for none; the length of this one
_FIRST_READ = 512  # most rows are shorter: one read fetches head and row


class Rows:
    """The rows, by their places, which are positions in a file without end that is cut into segments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._at = _HEAD.size  # of the next row: 0 is no place
        self._written = 0  # rows before this place are in the files
        self._buffer = bytearray(_HEAD.size)
        self._wanted: Counter[int] = Counter()  # rows by segment
        self._open: dict[int, int] = {}  # descriptors by segment, the one that was opened last at the end
        self._kept: list[Path] | None = None  # files to be deleted later

    def append(self, row: bytes, before: int = 0) -> int:
        """Adds a row; returns its place."""
        left = SEGMENT - self._at % SEGMENT
        if left < _HEAD.size + len(row):
            self._begin_segment(left)
        place = self._at
        self._buffer += _HEAD.pack(before, len(row))
        self._buffer += row
        self._at += _HEAD.size + len(row)
        self._wanted[place // SEGMENT] += 1
        if len(self._buffer) >= _BUFFER:
            self.flush()
        return place

    def read(self, place: int) -> tuple[bytes, int]:
        """A row, and the place of the one before."""
        if place >= self._written:
            at = place - self._written
            before, size = _HEAD.unpack_from(self._buffer, at)
            at += _HEAD.size
            return bytes(self._buffer[at : at + size]), before
        fd, at = self._descriptor(place // SEGMENT), place % SEGMENT
        data = os.pread(fd, _FIRST_READ, at)
        before, size = _HEAD.unpack_from(data)
        if size > len(data) - _HEAD.size:
            data = os.pread(fd, _HEAD.size + size, at)
        return data[_HEAD.size : _HEAD.size + size], before

    def forget(self, place: int) -> None:
        """A row is not wanted any more."""
        segment = place // SEGMENT
        self._wanted[segment] -= 1
        if not self._wanted[segment] and segment < self._written // SEGMENT:
            self._delete(segment)

    def flush(self) -> None:
        """Writes what is in memory to the files; on a full disk it stays in memory, and the crawl will pause anyway."""
        while self._buffer:
            room = SEGMENT - self._written % SEGMENT
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                fd = self._descriptor(self._written // SEGMENT)
                written = os.pwrite(fd, self._buffer[:room], self._written % SEGMENT)
            except OSError:
                return
            del self._buffer[:written]
            self._written += written

    def keep_files(self) -> None:
        """From now on files are not deleted: another process reads them."""
        self._kept = []

    def delete_kept(self) -> None:
        """Deletes what was to be deleted since."""
        for path in self._kept or ():
            path.unlink(missing_ok=True)
        self._kept = None

    def reopen(self) -> None:
        """In a process that has these rows, but not the descriptors."""
        self._open.clear()

    def close(self) -> None:
        """Closes the files."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _begin_segment(self, left: int) -> None:
        """No row lies in two files."""
        last = self._at // SEGMENT
        self._buffer += bytes(left)
        self._at += left
        self.flush()
        if not self._wanted[last] and self._written >= self._at:
            self._delete(last)

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment}.rows"

    def _descriptor(self, segment: int) -> int:
        fd = self._open.get(segment)
        if fd is None:
            if len(self._open) >= _MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            fd = self._open[segment] = os.open(self._path(segment), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return fd

    def _delete(self, segment: int) -> None:
        del self._wanted[segment]
        if (fd := self._open.pop(segment, None)) is not None:
            os.close(fd)
        if self._kept is not None:
            self._kept.append(self._path(segment))
        else:
            self._path(segment).unlink(missing_ok=True)
