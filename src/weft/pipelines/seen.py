"""Which ids there were, in about twelve bytes each: a million of them may not cost the parent its constant memory.

Keeps the 64-bit hash of each id, not the id: the chance that any two of a million ids share one is 3 in 100 million.
Python's own keyed hash is used, so a set means something in its own process only. The hashes lie side by side in small
buckets, where a search for bytes finds them faster than anything else Python has that is not much larger.
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

    def __len__(self) -> int:
        return sum(map(len, self._buckets)) // 8

    def __contains__(self, key: str) -> bool:
        number = hash(key)
        return _holds(self._buckets[number & self._mask], _mark(number))

    def add(self, key: str) -> bool:
        """True when it is new."""
        number = hash(key)
        mark = _mark(number)
        bucket = self._buckets[number & self._mask]
        if bucket.find(mark) >= 0 and _holds(bucket, mark):
            return False
        bucket += mark
        if len(bucket) > _BUCKET_BYTES:
            self._double()
        return True

    def _double(self) -> None:
        bit = len(self._buckets)
        upper = []
        for place, bucket in enumerate(self._buckets):
            numbers = array("q", bytes(bucket))
            self._buckets[place] = bytearray(array("q", [number for number in numbers if not number & bit]))
            upper.append(bytearray(array("q", [number for number in numbers if number & bit])))
        self._buckets += upper
        self._mask = len(self._buckets) - 1


def _holds(bucket: bytearray, mark: bytes) -> bool:
    """A mark counts only where one begins; the same eight bytes across two marks are chance."""
    at = bucket.find(mark)
    while at > 0 and at % 8:
        at = bucket.find(mark, at + 1)
    return at >= 0
