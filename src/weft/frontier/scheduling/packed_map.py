"""A map from 64-bit fingerprints to small numbers, packed: 17 bytes an entry, where a dict would take 170.

Like the seen set, it grows by splitting one bucket at a time (linear hashing), without a pause for rehashing
everything. An entry is seven bytes of the fingerprint (the last one equals that of its bucket's number) and ten of the
value.
"""

from __future__ import annotations

_ENTRIES_PER_BUCKET = 64  # a bucket has on average
_FIRST_BUCKETS = 256
_KEY, _VALUE = 7, 10
_ENTRY_BYTES = _KEY + _VALUE


class PackedMap:
    """Values by fingerprint, which is eight bytes of a good hash."""

    __slots__ = ("_buckets", "_count", "_mask", "_next_split")

    def __init__(self) -> None:
        self._buckets = [bytearray() for _ in range(_FIRST_BUCKETS)]
        self._mask = _FIRST_BUCKETS - 1  # for the buckets that are not split yet in this round
        self._next_split = 0  # the next bucket to split
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes) -> int | None:
        """The value of a fingerprint."""
        bucket = self._bucket_of(key)
        at = _offset_of(bucket, key[:_KEY])
        return None if at < 0 else int.from_bytes(bucket[at + _KEY : at + _ENTRY_BYTES], "little")

    def put(self, key: bytes, value: int) -> None:
        """Sets the value of a fingerprint."""
        bucket = self._bucket_of(key)
        at = _offset_of(bucket, key[:_KEY])
        if at >= 0:
            bucket[at + _KEY : at + _ENTRY_BYTES] = value.to_bytes(_VALUE, "little")
            return
        bucket += key[:_KEY] + value.to_bytes(_VALUE, "little")
        self._count += 1
        if self._count > len(self._buckets) * _ENTRIES_PER_BUCKET:
            self._split_bucket()

    def pop(self, key: bytes) -> int | None:
        """Removes a fingerprint, and returns its value."""
        bucket = self._bucket_of(key)
        at = _offset_of(bucket, key[:_KEY])
        if at < 0:
            return None
        value = int.from_bytes(bucket[at + _KEY : at + _ENTRY_BYTES], "little")
        del bucket[at : at + _ENTRY_BYTES]
        self._count -= 1
        return value

    def shape(self) -> tuple[int, int, int]:
        """Mask, next bucket to split, and how many buckets there are."""
        return self._mask, self._next_split, len(self._buckets)

    def piece(self, start: int, count: int) -> tuple[list[int], bytes]:
        """The sizes of some buckets, and their concatenated content."""
        buckets = self._buckets[start : start + count]
        return list(map(len, buckets)), b"".join(buckets)

    def reset(self, mask: int, split: int) -> None:
        """Empties the map, to load the pieces of one of that shape."""
        self._mask, self._next_split, self._count = mask, split, 0
        self._buckets.clear()

    def load(self, sizes: list[int], content: bytes) -> None:
        """Appends the buckets of a piece."""
        at = 0
        for size in sizes:
            self._buckets.append(bytearray(content[at : at + size]))
            at += size
        self._count += len(content) // _ENTRY_BYTES

    def _bucket_of(self, key: bytes) -> bytearray:
        number = int.from_bytes(key[4:], "big")
        place = number & self._mask
        return self._buckets[place if place >= self._next_split else number & (self._mask * 2 + 1)]

    def _split_bucket(self) -> None:
        bit = (self._mask + 1) >> 8  # the bit that decides the split, within the seven stored bytes
        bucket, stay, move = self._buckets[self._next_split], bytearray(), bytearray()
        for at in range(0, len(bucket), _ENTRY_BYTES):
            part = move if int.from_bytes(bucket[at + 4 : at + _KEY], "big") & bit else stay
            part += bucket[at : at + _ENTRY_BYTES]
        self._buckets[self._next_split] = stay
        self._buckets.append(move)
        self._next_split += 1
        if self._next_split > self._mask:
            self._mask, self._next_split = self._mask * 2 + 1, 0


def _offset_of(bucket: bytearray, key: bytes) -> int:
    """The offset of a key; a match that is not at the beginning of an entry is ignored."""
    at = bucket.find(key)
    while at >= 0 and at % _ENTRY_BYTES:
        at = bucket.find(key, at + 1)
    return at
