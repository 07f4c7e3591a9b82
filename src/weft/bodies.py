"""A response's body: bytes, or a file where it is large. Nobody holds more than a chunk of such a file in memory.

The client makes it (`Spool`, one for all transfers of a process), and code that digests, decodes or stores a body uses
the functions here, which handle both forms. A file has no name: it is deleted with the last body that refers to it, and
with the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

CHUNK_BYTES = 256 * 1024
ALONE_BYTES = 1024 * 1024  # a larger body goes to a file, whatever room there is
LEAST_BYTES = 64 * 1024  # a smaller one stays in memory, up to twice the limit: a file costs more


class FileBody:
    """A body in an open file, from `start` on. The descriptor is its own."""

    __slots__ = ("_fd", "_length", "_start")

    def __init__(self, fd: int, start: int, length: int) -> None:
        self._fd = fd
        self._start = start
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __del__(self) -> None:
        os.close(self._fd)

    def chunks(self) -> Iterator[bytes]:
        """All of it, in pieces."""
        at = 0
        while at < self._length:
            data = os.pread(self._fd, min(CHUNK_BYTES, self._length - at), self._start + at)
            if not data:
                raise OSError(f"a spooled body ends after {at} of {self._length} bytes")
            at += len(data)
            yield data

    def first(self, size: int) -> bytes:
        """Its first bytes."""
        return os.pread(self._fd, min(size, self._length), self._start)


Body: TypeAlias = bytes | FileBody


def chunks_of(body: Body) -> Iterable[bytes]:
    """All of a body, in pieces."""
    return (body,) if isinstance(body, bytes) else body.chunks()


def first_of(body: Body, size: int) -> bytes:
    """The first bytes of a body; all of one that is no longer."""
    return body[:size] if isinstance(body, bytes) else body.first(size)


def held_bytes(body: Body) -> int:
    """The memory that a body uses."""
    return len(body) if isinstance(body, bytes) else 0


class Spool:
    """The memory limit of the bodies of all transfers, and the files for those that do not fit."""

    __slots__ = ("_folder", "files", "held", "limit", "spooled_bytes")

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        """`folder`: where the files are created; the system's temporary folder by default."""
        self._folder = folder
        self.limit = limit
        self.held = 0  # bytes in memory now
        self.files = 0  # made so far
        self.spooled_bytes = 0  # written to them

    def new_file(self) -> int:
        """The descriptor of an empty file without a name."""
        import tempfile  # 10 ms, and most crawls meet no large body

        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            self.files += 1
            return os.dup(file.fileno())


class Arriving:
    """The body of one transfer while it arrives: in memory, then, if it grows or memory is short, in a file."""

    __slots__ = ("_chunks", "_fd", "_held", "_spool", "size")

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._chunks: list[bytes] = []
        self._fd = -1
        self._held = 0
        self.size = 0

    def add(self, chunk: bytes, *, may_spool: bool = True) -> None:
        """Adds a chunk. OSError: it does not fit on the disk."""
        self._chunks.append(chunk)
        size = len(chunk)
        self.size += size
        self._held += size
        self._spool.held += size
        if may_spool and (self.size > ALONE_BYTES or self._spool.held > self._spool.limit) and self._is_worth_a_file:
            self._move()

    @property
    def _is_worth_a_file(self) -> bool:
        """Whether a body should go to a file: a small one only when small ones alone use twice the limit."""
        return self.size > LEAST_BYTES or self._spool.held > 2 * self._spool.limit

    def whole(self) -> Body:
        """The body; the file, if there is one, is handed over with it."""
        if self._fd < 0:
            return b"".join(self._chunks)
        self._move()
        body, self._fd = FileBody(self._fd, 0, self.size), -1
        return body

    def clear(self) -> None:
        """Drops it."""
        self._spool.held -= self._held
        self._chunks.clear()
        self._held = self.size = 0
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _move(self) -> None:
        """Moves the bytes in memory to the file."""
        if self._fd < 0:
            self._fd = self._spool.new_file()
        data = memoryview(b"".join(self._chunks))
        self._spool.spooled_bytes += len(data)
        while data:
            data = data[os.write(self._fd, data) :]
        self._spool.held -= self._held
        self._held = 0
        self._chunks.clear()
