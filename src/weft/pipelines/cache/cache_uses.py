"""Which run last used each part of the cache's data: a number for every 64 KB, in a mapped file.

    head (16 bytes)   "WEFTUSE1" | generation of the data file
    then              u32 for each part: the last run that put or found an entry which begins there

One process uses it. Entries are put in the order of a source and found in that order again, so that parts are used and
left unused together; an entry that no run uses lives as long as its neighbours.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from weft.errors import writing

PART_BITS = 16
_MAGIC = b"WEFTUSE1"
_USES_HEAD = struct.Struct("<8sQ")
_RUN_NUMBER = struct.Struct("<I")
_GROWTH_BYTES = 1 << 16
"""By which the file grows: the numbers of 1 GB of data."""
_READ_BYTES = 1 << 20


class CacheUses:
    """The run numbers in a memory-mapped file."""

    def __init__(self, path: Path, generation: int, *, is_sound: bool) -> None:
        """Starts with empty numbers if there is no file of this generation, or `is_sound` is False."""
        self._path = path
        self._last_marked = (-1, -1)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        head = _USES_HEAD.pack(_MAGIC, generation)
        with writing(path):
            if not is_sound or os.pread(self._fd, _USES_HEAD.size, 0) != head:
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, head, 0)
            self._map_file(max(os.fstat(self._fd).st_size, _GROWTH_BYTES))

    def _map_file(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)  # a hole that is filled on a full disk would be a SIGBUS
        self._memory = mmap.mmap(self._fd, size)

    def mark(self, begin: int, end: int, run: int) -> None:
        """Records that a run uses the entries which begin in a range of the data."""
        first, last = begin >> PART_BITS, (end - 1) >> PART_BITS
        if (last, run) == self._last_marked and first == last:
            return
        if (size := _USES_HEAD.size + (last + 1) * _RUN_NUMBER.size) > len(self._memory):
            self._memory.close()
            with writing(self._path):
                self._map_file(-(-size // _GROWTH_BYTES) * _GROWTH_BYTES)
        for part in range(first, last + 1):
            _RUN_NUMBER.pack_into(self._memory, _USES_HEAD.size + part * _RUN_NUMBER.size, run)
        self._last_marked = (last, run)

    def last(self, offset: int) -> int:
        """The run that last used the entries near an offset; 0 if there is none."""
        at = _USES_HEAD.size + (offset >> PART_BITS) * _RUN_NUMBER.size
        return int(_RUN_NUMBER.unpack_from(self._memory, at)[0]) if at + _RUN_NUMBER.size <= len(self._memory) else 0

    def bytes_since(self, run: int) -> int:
        """How many bytes of the data a run or one after it has used."""
        parts = 0
        for at in range(_USES_HEAD.size, len(self._memory), _READ_BYTES):
            piece = self._memory[at : at + _READ_BYTES]
            numbers = memoryview(piece[: len(piece) & -4]).cast("I")
            parts += sum(number >= run for number in numbers)
        return parts << PART_BITS

    def rename(self, path: Path) -> None:
        """Moves the file to a path, and replaces the file there."""
        self._path.replace(path)
        self._path = path

    def close(self) -> None:
        """Unmaps the file."""
        self._memory.close()
        os.close(self._fd)
