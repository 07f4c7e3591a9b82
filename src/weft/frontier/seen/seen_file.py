"""The file of a sorted run of fingerprints: written once, from front to back, and mapped from then on.

    0       a page with the header and its checksum
    4096    guide, keys, lines (see `seen_run`), each from the start of a page
    ...     marks: for each line of the journal, 16 bytes: its number, its crawl, and how many entries it has here
    ...     the checksums of all pages before them

A file without its final name is incomplete; its writer calls `finish`, and `sync_file` before a durable record refers
to it.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from weft.compiled import counterpart
from weft.errors import writing
from weft.files import sync_folder

if TYPE_CHECKING:
    from weft.frontier.seen.seen_run import Run, Unsound, arranged, checksums, guide, merge
else:
    from weft.frontier.seen import seen_run

    _code = counterpart("weft.frontier.seen._seen_table") or seen_run
    Run, Unsound = _code.Run, _code.Unsound
    arranged, checksums, guide, merge = _code.arranged, _code.checksums, _code.guide, _code.merge

from weft.frontier.seen.seen_run import BLOCK_BYTES, BLOCK_KEYS, PAGE_BYTES

__all__ = ["RunFile", "RunWriter", "Unsound", "arranged", "merge", "sync_file"]

RUN_SUFFIX = ".run"
_MAGIC = b"weftrun\1"
_HEADER = struct.Struct("=8s11QI")
_BUFFER_BYTES = 256 * PAGE_BYTES
_COUNT_BITS = 32


class RunFile:
    """A complete, mapped run."""

    def __init__(self, path: Path) -> None:
        """Opens a run; ValueError or OSError if it differs from what was written."""
        self.path = path
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        head = self._map[: _HEADER.size]
        if len(head) < _HEADER.size or zlib.crc32(head[:-4]).to_bytes(4, "little") != head[-4:]:
            raise ValueError("its header is damaged")
        magic, self.first, self.last, self.covered, *parts, _ = _HEADER.unpack(head)
        count, blocks, keys_at, lines_at, marks_at, marks, sums_at, sums_crc = parts
        sums = self._map[sums_at : sums_at + sums_at // PAGE_BYTES * 4]
        if magic != _MAGIC or zlib.crc32(sums) != sums_crc or len(sums) != sums_at // PAGE_BYTES * 4:
            raise ValueError("its checksums are damaged")
        self._marks = (marks_at, marks)
        self._sums = memoryview(sums).cast("I")
        self.run = Run(self._map, count, blocks, PAGE_BYTES, keys_at, lines_at, sums_at)
        self.size = len(self._map)

    def __len__(self) -> int:
        return len(self.run)

    def line_of(self, number: int) -> int | None:
        """The line of the journal that a fingerprint was admitted by last."""
        line = self.run.find(number)
        return None if line < 0 else self.first + line

    def marks(self) -> array[int]:
        """The lines of the journal that it has entries of: for each its number, and `pack_mark` of it."""
        at, count = self._marks
        marks = array("Q")
        for page in range(at // PAGE_BYTES, -(-(at + count * 16) // PAGE_BYTES)):
            if zlib.crc32(self._map[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]) != self._sums[page]:
                raise Unsound(self.run)
        marks.frombytes(self._map[at : at + count * 16])
        return marks


def pack_mark(crawl: int, count: int) -> int:
    """Crawl and number of entries in one number."""
    return crawl << _COUNT_BITS | count


def unpack_marks(marks: array[int]) -> Iterator[tuple[int, int, int]]:
    """Line, crawl and number of entries of each."""
    for line, packed in zip(marks[::2], marks[1::2], strict=True):
        yield line, packed >> _COUNT_BITS, packed & (1 << _COUNT_BITS) - 1


class RunWriter:
    """Writes a run of at most `most` entries; every step may raise DiskFull, after which `give_up` must be called."""

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self._temporary = path.with_suffix(".tmp")
        self._blocks = -(-most // BLOCK_KEYS) or 1
        self._keys_at = _next_page_boundary(PAGE_BYTES + (self._blocks + 1) * BLOCK_BYTES)
        self._lines_at = _next_page_boundary(self._keys_at + most * 8)
        self._marks_at = _next_page_boundary(self._lines_at + most * 4)
        self._count = 0
        self._window = bytearray()  # the part of the guide that is not written yet
        self._first = self._ranked = 0  # its first block, and the first one that has no count yet
        with writing(path):
            self._fd = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def add(self, keys: bytes, lines: bytes) -> None:
        """Appends entries, which must sort after all earlier ones."""
        if not keys:
            return
        last = int.from_bytes(keys[-8:], "little")
        end = (last >> 32) * self._blocks >> 32
        self._window += bytes((end + 1 - self._first) * BLOCK_BYTES - len(self._window))
        self._ranked = guide(keys, self._count, self._blocks, self._first, self._ranked, self._window)
        self._write_at(keys, self._keys_at + self._count * 8)
        self._write_at(lines, self._lines_at + self._count * 4)
        self._count += len(lines) // 4
        self._write_guide(end)

    def finish(self, first: int, last: int, covered: int, marks: bytes) -> None:
        """Completes the file and gives it its name. Its lines are from `first` to `last`; all up to `covered`
        are in it or in the runs before it."""
        rank = self._count.to_bytes(4, "little")
        self._window += bytes((self._blocks + 1 - self._first) * BLOCK_BYTES - len(self._window))
        for block in range(self._ranked, self._blocks + 1):
            at = (block - self._first) * BLOCK_BYTES
            self._window[at : at + 4] = rank
        self._write_guide(self._blocks + 1)
        self._write_at(marks, self._marks_at)
        sums_at = _next_page_boundary(self._marks_at + len(marks))
        with writing(self._path):
            os.ftruncate(self._fd, sums_at)
        sums = b"".join(checksums(os.pread(self._fd, _BUFFER_BYTES, at)) for at in range(0, sums_at, _BUFFER_BYTES))
        self._write_at(sums, sums_at)
        fields = (first, last, covered, self._count, self._blocks, self._keys_at, self._lines_at, self._marks_at)
        head = _HEADER.pack(_MAGIC, *fields, len(marks) // 16, sums_at, zlib.crc32(sums), 0)[:-4]
        self._write_at(head + zlib.crc32(head).to_bytes(4, "little"), 0)
        os.close(self._fd)
        self._temporary.replace(self._path)

    def give_up(self) -> None:
        """Deletes the incomplete file."""
        os.close(self._fd)
        self._temporary.unlink(missing_ok=True)

    def _write_guide(self, end: int) -> None:
        """Writes the blocks before `end`."""
        done = (end - self._first) * BLOCK_BYTES
        self._write_at(bytes(self._window[:done]), PAGE_BYTES + self._first * BLOCK_BYTES)
        del self._window[:done]
        self._first = end

    def _write_at(self, data: bytes, at: int) -> None:
        with writing(self._path):
            while data:
                written = os.pwrite(self._fd, data, at)
                data, at = data[written:], at + written


def sync_file(path: Path) -> None:
    """Syncs a file, and its name, to the disk."""
    with writing(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(path.parent)


def _next_page_boundary(at: int) -> int:
    return -(-at // PAGE_BYTES) * PAGE_BYTES
