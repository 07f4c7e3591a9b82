"""Finds the duplicates of a text among those that were kept before it, in linear time and bounded memory.

Three temporary files, deleted when closed: the records of kept texts (sketch, and where the id is), their ids, and a
hash table from bands to records, mapped into memory. A process keeps a few MB of its own whatever the number of
texts; the rest is the kernel's page cache, which it takes back when it needs room: 0.6 KB a text.

Every text is looked up under its digest and its bands, and compared with at most MOST_EQUAL texts for each of them. A
text is a duplicate of one that was kept, never of another duplicate: so the first of a family stays, and nothing is
removed that is unlike everything that was kept.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from weft.errors import writing
from weft.extract.text.arrays import np
from weft.extract.text.similar import DIGEST_BYTES, SKETCH_BYTES, Sketch, bands, similarity

MOST_EQUAL = 4
_RECORD = DIGEST_BYTES + SKETCH_BYTES + 12
_TAIL_PIECES = 512  # records that are written together
_FIRST_SLOTS = 1 << 16
_FULLEST = 0.6
_MOVED_AT_ONCE = 1 << 20  # slots that are moved at a time when the table grows
_LOW_MASK = (1 << 32) - 1


class Match(NamedTuple):
    """A kept text that is similar, and how similar it is."""

    id: str
    similarity: float
    is_exact: bool


class Duplicates:
    """The index of kept texts. `near`: the least similarity of a near duplicate; None: only exact ones are found."""

    def __init__(self, folder: Path, near: float | None) -> None:
        self._near = near
        self._records = _AppendedFile(folder, _TAIL_PIECES * _RECORD)
        self._ids = _AppendedFile(folder, 1 << 16)
        self._table = _Table(folder)
        self._count = 0

    def find(self, sketch: Sketch) -> Match | None:
        """The most similar kept text, if that is similar enough."""
        met: set[int] = set()
        best: tuple[float, int] | None = None
        for number in self._keys(sketch):
            for candidate in self._table.get(number):
                if candidate in met:
                    continue
                met.add(candidate)
                record = self._records.read(candidate * _RECORD, _RECORD)
                if record[:DIGEST_BYTES] == sketch.digest:
                    return Match(self._id(record), 1.0, True)
                if self._near is not None:
                    value = similarity(record[DIGEST_BYTES : DIGEST_BYTES + SKETCH_BYTES], sketch.minima)
                    if value >= self._near and (best is None or (value, -candidate) > (best[0], -best[1])):
                        best = value, candidate
        if best is None:
            return None
        return Match(self._id(self._records.read(best[1] * _RECORD, _RECORD)), best[0], False)

    def add(self, sketch: Sketch, name: str) -> None:
        """Adds a kept text under its id."""
        encoded = name.encode("utf-8", "surrogatepass")
        place = self._ids.append(encoded).to_bytes(8, "little") + len(encoded).to_bytes(4, "little")
        self._records.append(sketch.digest + sketch.minima + place)
        for number in self._keys(sketch):
            self._table.add(number, self._count)
        self._count += 1

    def close(self) -> None:
        """Deletes the files."""
        for part in (self._records, self._ids, self._table):
            part.close()

    def _keys(self, sketch: Sketch) -> list[int]:
        exact = int.from_bytes(sketch.digest[:4], "little")
        return [exact] if self._near is None else [exact, *bands(sketch.minima)]

    def _id(self, record: bytes) -> str:
        place = record[DIGEST_BYTES + SKETCH_BYTES :]
        data = self._ids.read(int.from_bytes(place[:8], "little"), int.from_bytes(place[8:], "little"))
        return data.decode("utf-8", "surrogatepass")


class _AppendedFile:
    """A temporary file for appending and random reads; the last pieces are buffered in memory."""

    def __init__(self, folder: Path, tail_bytes: int) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed with this object
        self._tail = bytearray()
        self._most = tail_bytes
        self._written = 0

    def append(self, data: bytes) -> int:
        """Appends a piece and returns its offset. A piece is either in the file or in the buffer, never in both."""
        begin = self._written + len(self._tail)
        self._tail += data
        if len(self._tail) >= self._most:
            self._file.write(self._tail)
            self._written += len(self._tail)
            self._tail = bytearray()
        return begin

    def read(self, begin: int, length: int) -> bytes:
        if begin >= self._written:
            return bytes(self._tail[begin - self._written : begin - self._written + length])
        return os.pread(self._file.fileno(), length, begin)

    def close(self) -> None:
        self._file.close()


class _Table:
    """Records by numbers of 32 bits: open addressing in a mapped file of 64-bit slots, the number above, the record
    below.

    A record is stored plus one, so that an empty slot is 0. A number has at most MOST_EQUAL records, the first ones.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._used = 0
        self._open(_FIRST_SLOTS)

    def get(self, number: int) -> list[int]:
        """The records of a number."""
        slots, mask = self._slots, self._mask
        records: list[int] = []
        at = number & mask
        while slot := slots[at]:
            if slot >> 32 == number:
                records.append((slot & _LOW_MASK) - 1)
            at = (at + 1) & mask
        return records

    def add(self, number: int, record: int) -> None:
        """Adds a record, unless the number has enough."""
        slots, mask = self._slots, self._mask
        equal, at = 0, number & mask
        while slot := slots[at]:
            equal += slot >> 32 == number
            if equal == MOST_EQUAL:
                return
            at = (at + 1) & mask
        slots[at] = number << 32 | (record + 1)
        self._used += 1
        if self._used > _FULLEST * (mask + 1):
            self._double_slots()

    def close(self) -> None:
        self._slots.release()
        self._map.close()

    def _open(self, count: int) -> None:
        with tempfile.TemporaryFile(dir=self._folder) as file:
            with writing(self._folder):
                os.posix_fallocate(file.fileno(), 0, 8 * count)  # a hole that is filled on a full disk is a SIGBUS
            self._map = mmap.mmap(file.fileno(), 8 * count)
        self._slots = memoryview(self._map).cast("Q")
        self._mask = count - 1

    def _double_slots(self) -> None:
        """Doubles the number of slots; moves the entries in the order of the old slots, some at a time."""
        old_map, old_slots = self._map, self._slots
        old_slots.release()
        count = self._mask + 1
        self._open(2 * count)
        for start in range(0, count, _MOVED_AT_ONCE):
            part = np.frombuffer(old_map, np.uint64, min(_MOVED_AT_ONCE, count - start), 8 * start)
            self._move_slots(part[part != 0])
        del part
        old_map.close()

    def _move_slots(self, filled: np.ndarray) -> None:
        table = np.frombuffer(self._map, np.uint64)
        places = (filled >> np.uint64(32)) & np.uint64(self._mask)
        while len(filled):
            is_free = table[places] == 0
            table[places[is_free]] = filled[is_free]  # of several for one slot the last stays
            is_left = table[places] != filled
            filled, places = filled[is_left], (places[is_left] + np.uint64(1)) & np.uint64(self._mask)
