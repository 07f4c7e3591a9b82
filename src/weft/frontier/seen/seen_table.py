"""A table of 64-bit fingerprints at under 8 bytes each, as a seen set needs it.

A Python set would take 60 bytes and more for each. Here fingerprints lie end to end in small `bytes` buckets that are
searched with `find`; the table grows by splitting one bucket at a time (linear hashing), so that adding costs the same
at a thousand as at a hundred million, and there is no pause in which everything is rehashed. A fingerprint's last byte
equals that of its bucket's number, so seven are kept.

`_seen_table.c` is the same, compiled where there is a compiler at installation: a new link costs 1 µs less
(docs/decisions/0047-a-compiled-table.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from weft.frontier.seen.seen_run import Run

T = TypeVar("T")
_ENTRIES_PER_BUCKET = (
    48  # fingerprints a bucket holds on average: fewer are faster to search and to copy, more waste less memory
)
_FIRST_BUCKETS = (
    256  # buckets at the start: with fewer, the bucket number would not determine a fingerprint's last byte
)
_KEPT_BYTES = 7  # bytes of a fingerprint that are stored in its bucket


class Table:
    """A set of numbers of 64 bits."""

    __slots__ = ("_buckets", "_count", "_mask", "_split")

    def __init__(self) -> None:
        self._buckets: list[bytes] = [b""] * _FIRST_BUCKETS
        self._mask = _FIRST_BUCKETS - 1  # for the buckets that are not split yet in this round
        self._split = 0  # the next bucket to split
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return _has(self._buckets[self._place(number)], _entry(number))

    def unknown(
        self,
        urls: list[str],
        numbers: list[int],
        missed: dict[str, int],
        runs: Sequence[Run] = (),
        gone: Table | None = None,
    ) -> list[str]:
        """The URLs whose numbers are not in the table, in order; their numbers are stored in `missed`.

        A number in one of the `runs` is known, too, unless it is `gone`.
        """
        buckets, mask, split = self._buckets, self._mask, self._split
        new = []
        for url, number in zip(urls, numbers, strict=True):
            place = number & mask
            if place < split:
                place = number & (mask * 2 + 1)
            bucket, entry = buckets[place], (number >> 8).to_bytes(7, "big")
            at = bucket.find(entry)
            # A hit that is not at a multiple of 7 straddles two fingerprints: search entry by entry.
            if (at < 0 or (at % 7 and not _has(bucket, entry))) and not (runs and _in_runs(number, runs, gone)):
                new.append(url)
                missed[url] = number
        return new

    def add_new(
        self,
        urls: list[T],
        numbers: list[int],
        are_missing: bool = False,
        runs: Sequence[Run] = (),
        gone: Table | None = None,
    ) -> list[T]:
        """Adds the numbers, and returns the URLs of those that were new, in order and once each.

        `are_missing`: each was looked up, is missing, and occurs once. `runs` and `gone` as for `unknown`.
        """
        new: list[T] = []
        in_runs = {one for one in numbers if _in_runs(one, runs, gone)} if runs and not are_missing else ()
        buckets, mask, split = self._buckets, self._mask, self._split
        room = len(buckets) * _ENTRIES_PER_BUCKET - self._count
        for url, number in zip(urls, numbers, strict=True):
            place = number & mask
            if place < split:
                place = number & (mask * 2 + 1)
            bucket, entry = buckets[place], (number >> 8).to_bytes(7, "big")
            if number in in_runs:
                continue
            if not are_missing and (at := bucket.find(entry)) >= 0 and (not at % 7 or _has(bucket, entry)):
                continue
            buckets[place] = bucket + entry
            new.append(url)
            room -= 1
            if room < 0:
                self._split_one()
                mask, split, room = self._mask, self._split, room + _ENTRIES_PER_BUCKET
        self._count += len(new)
        return new

    def discard(self, number: int) -> None:
        """Removes a number."""
        place, entry = self._place(number), _entry(number)
        bucket = self._buckets[place]
        entries = [bucket[at : at + _KEPT_BYTES] for at in range(0, len(bucket), _KEPT_BYTES)]
        kept = [one for one in entries if one != entry]
        self._count -= len(entries) - len(kept)
        self._buckets[place] = b"".join(kept)

    def _place(self, number: int) -> int:
        place = number & self._mask
        return place if place >= self._split else number & (self._mask * 2 + 1)

    def _split_one(self) -> None:
        # The bit that the split decides by lies within the seven stored bytes: in which of them, and where.
        shift = (self._mask + 1).bit_length() - 1
        column, bit = 7 - shift // 8, 1 << shift % 8
        bucket = self._buckets[self._split]
        moves = bucket[column::_KEPT_BYTES]
        self._buckets[self._split] = b"".join(
            [bucket[at * 7 : at * 7 + 7] for at, byte in enumerate(moves) if not byte & bit]
        )
        self._buckets.append(b"".join([bucket[at * 7 : at * 7 + 7] for at, byte in enumerate(moves) if byte & bit]))
        self._split += 1
        if self._split > self._mask:
            self._mask, self._split = self._mask * 2 + 1, 0


def _entry(number: int) -> bytes:
    return (number >> 8).to_bytes(_KEPT_BYTES, "big")


def _has(bucket: bytes, entry: bytes) -> bool:
    at = bucket.find(entry)
    while at >= 0 and at % _KEPT_BYTES:
        at = bucket.find(entry, at + 1)
    return at >= 0


def _in_runs(number: int, runs: Sequence[Run], gone: Table | None) -> bool:
    return any(run.find(number) >= 0 for run in runs) and (gone is None or number not in gone)
