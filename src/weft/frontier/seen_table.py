"""A table of 64-bit fingerprints at under 8 bytes each, as a seen set needs it.

A Python set would take 60 bytes and more for each. Here fingerprints lie end to end in small `bytes` buckets that are
searched with `find`; the table grows by splitting one bucket at a time (linear hashing), so that adding costs the same
at a thousand as at a hundred million, and there is no pause in which everything is rehashed. A fingerprint's last byte
equals that of its bucket's number, so seven are kept.

`_seen_table.c` is the same, compiled where there is a compiler at installation: a new link costs 1 µs less
(docs/decisions/0047-a-compiled-table.md). Each gives dumps that the other loads.
"""

from __future__ import annotations

_ENTRIES = 48  # fingerprints a bucket holds on average: fewer are faster to search and to copy, more waste less memory
_FIRST = 256  # buckets at the start: with fewer, the bucket number would not determine a fingerprint's last byte
_KEPT = 7  # bytes of a fingerprint that are stored in its bucket


class Table:
    """A set of numbers of 64 bits."""

    __slots__ = ("_buckets", "_count", "_mask", "_split")

    def __init__(self) -> None:
        self._buckets: list[bytes] = [b""] * _FIRST
        self._mask = _FIRST - 1  # for the buckets that are not split yet in this round
        self._split = 0  # the next bucket to split
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return _has(self._buckets[self._place(number)], _entry(number))

    def unknown(self, urls: list[str], numbers: list[int], missed: dict[str, int]) -> list[str]:
        """Those of the URLs whose numbers are not in the table, in order; their numbers go into `missed`."""
        buckets, mask, split = self._buckets, self._mask, self._split
        new = []
        for url, number in zip(urls, numbers, strict=True):
            place = number & mask
            if place < split:
                place = number & (mask * 2 + 1)
            bucket, entry = buckets[place], (number >> 8).to_bytes(7, "big")
            at = bucket.find(entry)
            # A hit that is not at a multiple of 7 straddles two fingerprints: search entry by entry.
            if at < 0 or (at % 7 and not _has(bucket, entry)):
                new.append(url)
                missed[url] = number
        return new

    def add_new(self, urls: list[str], numbers: list[int], are_missing: bool = False) -> list[str]:
        """Adds the numbers, and returns the URLs of those that were new, in order and once each.

        `are_missing`: each was looked up, is not there, and comes once.
        """
        new = []
        buckets, mask, split = self._buckets, self._mask, self._split
        room = len(buckets) * _ENTRIES - self._count
        for url, number in zip(urls, numbers, strict=True):
            place = number & mask
            if place < split:
                place = number & (mask * 2 + 1)
            bucket, entry = buckets[place], (number >> 8).to_bytes(7, "big")
            if not are_missing and (at := bucket.find(entry)) >= 0 and (not at % 7 or _has(bucket, entry)):
                continue
            buckets[place] = bucket + entry
            new.append(url)
            room -= 1
            if room < 0:
                self._split_one()
                mask, split, room = self._mask, self._split, room + _ENTRIES
        self._count += len(new)
        return new

    def discard(self, number: int) -> None:
        """Removes a number."""
        place, entry = self._place(number), _entry(number)
        bucket = self._buckets[place]
        entries = [bucket[at : at + _KEPT] for at in range(0, len(bucket), _KEPT)]
        kept = [one for one in entries if one != entry]
        self._count -= len(entries) - len(kept)
        self._buckets[place] = b"".join(kept)

    def shape(self) -> tuple[int, int, int]:
        """Mask, next bucket to split, and how many buckets there are."""
        return self._mask, self._split, len(self._buckets)

    def piece(self, start: int, count: int) -> tuple[list[int], bytes]:
        """The sizes of some buckets, and their content end to end."""
        buckets = self._buckets[start : start + count]
        return list(map(len, buckets)), b"".join(buckets)

    def reset(self, mask: int, split: int) -> None:
        """Empties the table, for pieces to be loaded."""
        self._mask, self._split, self._count = mask, split, 0
        self._buckets.clear()

    def load(self, sizes: list[int], content: bytes) -> None:
        """Adds the buckets of a piece behind those that there are."""
        at = 0
        for size in sizes:
            self._buckets.append(content[at : at + size])
            at += size
        self._count += len(content) // _KEPT

    def _place(self, number: int) -> int:
        place = number & self._mask
        return place if place >= self._split else number & (self._mask * 2 + 1)

    def _split_one(self) -> None:
        # The bit that the split decides by lies within the seven stored bytes: in which of them, and where.
        shift = (self._mask + 1).bit_length() - 1
        column, bit = 7 - shift // 8, 1 << shift % 8
        bucket = self._buckets[self._split]
        moves = bucket[column::_KEPT]
        self._buckets[self._split] = b"".join(
            [bucket[at * 7 : at * 7 + 7] for at, byte in enumerate(moves) if not byte & bit]
        )
        self._buckets.append(b"".join([bucket[at * 7 : at * 7 + 7] for at, byte in enumerate(moves) if byte & bit]))
        self._split += 1
        if self._split > self._mask:
            self._mask, self._split = self._mask * 2 + 1, 0


def _entry(number: int) -> bytes:
    return (number >> 8).to_bytes(_KEPT, "big")


def _has(bucket: bytes, entry: bytes) -> bool:
    at = bucket.find(entry)
    while at >= 0 and at % _KEPT:
        at = bucket.find(entry, at + 1)
    return at >= 0
