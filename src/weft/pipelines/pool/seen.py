"""The set of ids seen so far, in about fifteen bytes each, so that a million of them cost the parent little memory.

Keeps the 64-bit hash of each id, not the id: the chance that any two of a million ids share one is 3 in 100 million.
Python's own keyed hash is used, so a set means something in its own process only. The hashes lie side by side in small
buckets, where a search for bytes finds them faster than anything else Python has that is not much larger. Buckets are
split one at a time, in turn (linear hashing): the memory grows by as much as is added and not by leaps.
"""

from __future__ import annotations

import struct
from array import array

_BUCKETS = 64
_BUCKET_BYTES = 48 * 8
_mark = struct.Struct("=q").pack


class SeenIds:
    """A set of ids that only grows."""

    def __init__(self) -> None:
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        self._mask = _BUCKETS - 1
        self._next = 0  # the bucket that is split next; for those before it one more bit of the hash counts

    def __len__(self) -> int:
        return sum(map(len, self._buckets)) // 8

    def __contains__(self, key: str) -> bool:
        number = hash(key)
        place = number & self._mask
        if place < self._next:
            place = number & (2 * self._mask + 1)
        return _holds(self._buckets[place], _mark(number))

    def add(self, key: str) -> bool:
        """True when it is new."""
        number = hash(key)
        mark = _mark(number)
        place = number & self._mask
        if place < self._next:
            place = number & (2 * self._mask + 1)
        bucket = self._buckets[place]
        if bucket.find(mark) >= 0 and _holds(bucket, mark):
            return False
        bucket += mark
        if len(bucket) > _BUCKET_BYTES:
            self._split()
        return True

    def _split(self) -> None:
        """Splits the next bucket in turn, which is mostly not the full one (linear hashing)."""
        bit = self._mask + 1
        numbers = array("q", bytes(self._buckets[self._next]))
        self._buckets[self._next] = bytearray(array("q", [number for number in numbers if not number & bit]))
        self._buckets.append(bytearray(array("q", [number for number in numbers if number & bit])))
        self._next += 1
        if self._next == bit:
            self._next, self._mask = 0, 2 * bit - 1


def _holds(bucket: bytearray, mark: bytes) -> bool:
    """Whether a bucket has a hash; a hit that straddles two hashes is a coincidence."""
    at = bucket.find(mark)
    while at > 0 and at % 8:
        at = bucket.find(mark, at + 1)
    return at >= 0
