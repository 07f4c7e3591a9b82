"""Which ids there were, in about ten bytes each: a million of them may not cost the parent its constant memory.

Keeps the 64-bit hash of each id, not the id: the chance that any two of a million ids share one is 3 in 100 million.
Python's own keyed hash is used, so a set means something in its own process only.
"""

from __future__ import annotations

from array import array

_PER_BUCKET = 32
_MASK = (1 << 64) - 1


class SeenIds:
    """A set of ids that only grows."""

    def __init__(self) -> None:
        self._buckets = [bytearray() for _ in range(64)]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: str) -> bool:
        number = hash(key) & _MASK
        return _holds(self._buckets[number & (len(self._buckets) - 1)], number.to_bytes(8, "little"))

    def add(self, key: str) -> bool:
        """True when it is new."""
        number = hash(key) & _MASK
        mark = number.to_bytes(8, "little")
        bucket = self._buckets[number & (len(self._buckets) - 1)]
        if bucket.find(mark) >= 0 and _holds(bucket, mark):
            return False
        bucket += mark
        self._count += 1
        if self._count > _PER_BUCKET * len(self._buckets):
            self._double()
        return True

    def _double(self) -> None:
        bit = len(self._buckets)
        upper = []
        for number, bucket in enumerate(self._buckets):
            marks = array("Q", bytes(bucket))
            self._buckets[number] = bytearray(array("Q", [mark for mark in marks if not mark & bit]))
            upper.append(bytearray(array("Q", [mark for mark in marks if mark & bit])))
        self._buckets += upper


def _holds(bucket: bytearray, mark: bytes) -> bool:
    """A mark counts only where one begins; the same eight bytes across two marks are chance."""
    at = bucket.find(mark)
    while at > 0 and at % 8:
        at = bucket.find(mark, at + 1)
    return at >= 0
