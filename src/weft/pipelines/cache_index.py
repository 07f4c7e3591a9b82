"""The index of the cache: a hash table in a file, shared by mapping, from a key to the place of its entry.

    head (64 bytes)   "WEFTIDX1" | generation of the data file | number of slots | slots used | data bytes covered | run
    slots (32 bytes)  key, 16 bytes | offset u64 | length u32 | last run that used it u32; offset 0: empty

One process writes, any number read while it does. Nothing here needs to be durable: an entry carries its own key and
checksum, so that a slot which is wrong leads to a miss and never to a wrong value, and the whole can be made again.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MAGIC = b"WEFTIDX1"
_HEAD = struct.Struct("<8sQQQQQ16x")
_SLOT = struct.Struct("<16sQII")
_PLACE = struct.Struct("<QII")
_number = struct.Struct("<Q").unpack_from
KEY_BYTES = 16
_FIRST_SLOTS = 1 << 12
_OFFSET = (_HEAD.size + KEY_BYTES) // 8
"""Where the first slot's offset is, in words of 8 bytes, of which a slot has four."""
_GROWTH = 4
_FULLEST = 0.6


class Place(NamedTuple):
    """Where an entry is in the data file, and which run used it last."""

    offset: int
    length: int
    run: int


class CacheIndex:
    """The table, mapped. `writable` for the one writer."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        self._writable = writable
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if size < _HEAD.size:
                raise ValueError("it is too short")
            self._memory = mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        finally:
            os.close(fd)
        magic, self.generation, self.slots, self.used, self.covered, self.run = _HEAD.unpack_from(self._memory)
        if magic != _MAGIC or self.slots & (self.slots - 1) or size != _HEAD.size + self.slots * _SLOT.size:
            self._memory.close()
            raise ValueError("it is not an index, or of another version")
        self._mask = self.slots - 1
        self._words = memoryview(self._memory).cast("Q")

    @classmethod
    def create(cls, path: Path, generation: int, run: int, slots: int = _FIRST_SLOTS) -> CacheIndex:
        """A new, empty one in place of whatever is there."""
        new = path.with_name("index.new")
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, _HEAD.size + slots * _SLOT.size)
            os.pwrite(fd, _HEAD.pack(_MAGIC, generation, slots, 0, 0, run), 0)
        finally:
            os.close(fd)
        new.replace(path)
        return cls(path, writable=True)

    def find(self, key: bytes) -> Place | None:
        """Where the entry of a key should be."""
        words, mask = self._words, self._mask
        number = _number(key)[0] & mask
        for _ in range(self.slots):
            if not words[number * 4 + _OFFSET]:
                return None
            at = _HEAD.size + number * 32
            if self._memory[at : at + 16] == key:
                return Place(*_PLACE.unpack_from(self._memory, at + 16))
            number = (number + 1) & mask
        return None

    def put_all(self, entries: list[tuple[bytes, int, int]]) -> None:
        """Sets the places of keys, in use by this run: key, offset, length."""
        if self.used + len(entries) >= self.slots * _FULLEST:
            self._grow(len(entries))
        memory, words, mask, run, pack_into = self._memory, self._words, self._mask, self.run, _SLOT.pack_into
        new = 0
        for key, offset, length in entries:
            number = _number(key)[0] & mask
            if not words[number * 4 + _OFFSET]:
                new += 1
            else:
                number = self._slot(key)
                new += not words[number * 4 + _OFFSET]
            pack_into(memory, _HEAD.size + number * 32, key, offset, length, run)
        self.used += new

    def touch(self, key: bytes) -> bool:
        """The key is used by this run; False when it is not there."""
        at = _HEAD.size + self._slot(key) * 32
        if self._memory[at : at + 16] != key:
            return False
        self._memory[at + 28 : at + 32] = self.run.to_bytes(4, "little")
        return True

    def save(self, covered: int) -> None:
        """The head: so many bytes of the data file are in here."""
        self.covered = covered
        _HEAD.pack_into(self._memory, 0, _MAGIC, self.generation, self.slots, self.used, covered, self.run)

    def entries(self) -> Iterator[tuple[bytes, Place]]:
        """All that is in it."""
        for at in range(_HEAD.size, len(self._memory), _SLOT.size):
            key, *place = _SLOT.unpack_from(self._memory, at)
            if place[0]:
                yield key, Place(*place)

    def close(self) -> None:
        """Unmaps it."""
        self._words.release()
        self._memory.close()

    def _slot(self, key: bytes) -> int:
        """The number of a key's slot, or of the empty one where it would be."""
        memory, mask = self._memory, self._mask
        number: int = _number(key)[0] & mask
        for _ in range(self.slots):  # and no further: a damaged table may have no empty slot
            at = _HEAD.size + number * 32
            if not self._words[number * 4 + _OFFSET] or memory[at : at + 16] == key:
                break
            number = (number + 1) & mask
        return number

    def _grow(self, more: int) -> None:
        """A larger table. Readers keep the old one, and miss only what is new."""
        slots = self.slots * _GROWTH
        while self.used + more >= slots * _FULLEST:
            slots *= _GROWTH
        larger = CacheIndex.create(self.path, self.generation, self.run, slots)
        _copy_slots(self._words, larger._words, larger._mask)
        larger.used = self.used
        larger.save(self.covered)
        self.close()
        self._memory, self._words, self.slots, self._mask = larger._memory, larger._words, larger.slots, larger._mask


def _copy_slots(old: memoryview, new: memoryview, mask: int) -> None:
    """Copies the slots that are filled into a larger table: no key is there yet, so that none need be compared."""
    for at, offset in zip(range(_HEAD.size // 8, len(old), 4), old[_OFFSET::4], strict=True):
        if offset:
            number = old[at] & mask
            while new[number * 4 + _OFFSET]:
                number = (number + 1) & mask
            place = _HEAD.size // 8 + number * 4
            new[place : place + 4] = old[at : at + 4]
