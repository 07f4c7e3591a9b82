"""The index of the cache: a hash table in a file, shared by mapping, from a key to the offset of its entry.

    head (64 bytes)   "WEFTIDX2" | generation of the data file | number of slots | slots used | data bytes covered | run
                      | bytes of entries that others have replaced | mark of the boot that writes it, 0 when closed
    slots (16 bytes)  the first 8 bytes of the key | offset u64; offset 0: empty

One process writes, any number read while it does. Nothing here needs to be durable: an entry carries its own key and
checksum, so that a slot which is wrong leads to a miss and never to a wrong value, and the whole can be made again. An
index that a power cut may have left half written is not used (`is_sound`).

A look-up touches a page at random, so that the whole table would become resident in each process that uses it. The
pages of a large one are given back to the kernel's page cache after every _RELEASE_EVERY look-ups.
"""

from __future__ import annotations

import mmap
import os
import struct
from functools import cache
from hashlib import blake2b
from pathlib import Path

from weft.errors import writing
from weft.supervise.process import boot_id

_MAGIC = b"WEFTIDX2"
_INDEX_HEAD = struct.Struct("<8sQQQQQQQ")
_number = struct.Struct("<Q").unpack_from
KEY_BYTES = 16
_SLOT_BYTES = 16
_FIRST_SLOTS = 1 << 12
_FIRST_SLOT_WORD = _INDEX_HEAD.size // 8
"""Where the first slot is, in words of 8 bytes, of which a slot has two."""
_GROWTH_FACTOR = 4
_FULLEST_SHARE = 0.6
_RELEASE_EVERY = 256
"""The kernel maps 64 KB around a page that is read: this many are 16 MB."""
_SMALL_BYTES = 4 << 20
_COPIED_WORDS = 1 << 17


class CacheIndex:
    """The memory-mapped hash table. `writable`: for the only writer."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        self._writable = writable
        self._touched = 0
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if size < _INDEX_HEAD.size:
                raise ValueError("it is too short")
            self._memory = mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        finally:
            os.close(fd)
        head = _INDEX_HEAD.unpack_from(self._memory)
        magic, self.generation, self.slots, self.used, self.covered, self.run, self.replaced, boot = head
        if magic != _MAGIC or self.slots & (self.slots - 1) or size != _INDEX_HEAD.size + self.slots * _SLOT_BYTES:
            self._memory.close()
            raise ValueError("it is not an index, or of another version")
        self.is_sound = boot in (0, _boot_mark())
        """Nothing that was written to it can be missing: it was closed, or its writer died on this boot."""
        self._mask = self.slots - 1
        self._is_small = size <= _SMALL_BYTES
        self._words = memoryview(self._memory).cast("Q")

    @classmethod
    def create(cls, path: Path, generation: int, run: int, slots: int = _FIRST_SLOTS) -> CacheIndex:
        """Creates a new, empty index in place of an existing one."""
        new = path.with_name("index.new")
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            with writing(path):
                # a hole that is filled through the mapping on a full disk would be a SIGBUS
                os.posix_fallocate(fd, 0, _INDEX_HEAD.size + slots * _SLOT_BYTES)
            os.pwrite(fd, _INDEX_HEAD.pack(_MAGIC, generation, slots, 0, 0, run, 0, _boot_mark()), 0)
        finally:
            os.close(fd)
        new.replace(path)
        return cls(path, writable=True)

    def find(self, key: bytes) -> int | None:
        """The offset at which the entry of a key should be; None if the key is unknown."""
        words, number = self._words, _number(key)[0]
        at = self._slot(number)
        return words[at + 1] or None if words[at] == number else None

    def put_all(self, entries: list[tuple[bytes, int, int]]) -> None:
        """Sets the offsets of keys: key, offset, length."""
        if self.used + len(entries) >= self.slots * _FULLEST_SHARE:
            self._grow_table(len(entries))
        words = self._words
        for key, offset, length in entries:
            number = _number(key)[0]
            at = self._slot(number)
            if words[at + 1]:
                self.replaced += length
            else:
                self.used += 1
            words[at], words[at + 1] = number, offset

    def save(self, covered: int) -> None:
        """Writes the head: `covered` bytes of the data file are in the index."""
        self.covered = covered
        self._write_head(_boot_mark())

    def _write_head(self, boot: int) -> None:
        head = (_MAGIC, self.generation, self.slots, self.used, self.covered, self.run, self.replaced, boot)
        _INDEX_HEAD.pack_into(self._memory, 0, *head)

    def close(self) -> None:
        """Unmaps the table; the writer's is synced to the disk before."""
        if self._writable:
            self._memory.flush()
            self._write_head(0)
            self._memory.flush(0, mmap.PAGESIZE)
        self.abandon()

    def abandon(self) -> None:
        """Unmaps an index that is no longer used, without saving it."""
        self._words.release()
        self._memory.close()

    def _slot(self, number: int) -> int:
        """The word at which a key's slot begins, or the empty one where it would be; in a damaged table that has no
        empty slot, the first where it could be."""
        if not self._is_small:
            self._touched += 1
            if self._touched > _RELEASE_EVERY:
                self._touched = 0
                self._memory.madvise(mmap.MADV_DONTNEED)
        words, mask = self._words, self._mask
        place: int = number & mask
        for _ in range(self.slots):
            at = _FIRST_SLOT_WORD + 2 * place
            if not words[at + 1] or words[at] == number:
                return at
            place = (place + 1) & mask
        return _FIRST_SLOT_WORD + 2 * place

    def _grow_table(self, more: int) -> None:
        """Replaces the table by a larger one. Readers keep the old one, and miss only new entries."""
        slots = self.slots * _GROWTH_FACTOR
        while self.used + more >= slots * _FULLEST_SHARE:
            slots *= _GROWTH_FACTOR
        larger = CacheIndex.create(self.path, self.generation, self.run, slots)
        for begin in range(_FIRST_SLOT_WORD, len(self._words), _COPIED_WORDS):
            larger._copy_slots(self._words[begin : begin + _COPIED_WORDS])
            self._memory.madvise(mmap.MADV_DONTNEED)
        larger.used, larger.replaced = self.used, self.replaced
        larger.save(self.covered)
        self.abandon()
        self._memory, self._words, self.slots, self._mask = larger._memory, larger._words, larger.slots, larger._mask
        self._is_small = larger._is_small

    def _copy_slots(self, slots: memoryview) -> None:
        """Adds the slots of a smaller table that are filled."""
        words = self._words
        for number, offset in zip(slots[::2], slots[1::2], strict=True):
            if offset:
                at = self._slot(number)
                words[at], words[at + 1] = number, offset


@cache
def _boot_mark() -> int:
    """This boot of the machine as a number that is not 0."""
    return int.from_bytes(blake2b(boot_id().encode(), digest_size=8).digest(), "little") | 1
