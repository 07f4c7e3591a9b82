"""A sorted run of fingerprints in a mapped file: searches, merges and writes it piece by piece.

    keys    the fingerprints in order, 8 bytes each
    lines   for each the line of the journal that admitted it, counted from the run's first one, 4 bytes each
    guide   a block of 32 bytes for about BLOCK_KEYS keys: how many keys lie before the block's (4 bytes), then a filter
            of seven words of 32 bits, in each of which a key sets one bit
    sums    a CRC-32 of each page of the file, 4 bytes each

A key's upper half says which block is its own, so blocks are in the order of the keys. A look-up reads one block: the
filter rejects all but about one in a hundred of the numbers that are not there, and the counts of this block and the
next say between which two entries a number must be. What is read is checked by its page's checksum once, when it is
used for the first time; `Unsound` has the damaged run.

`_seen_runs.c` is the same, compiled with `_seen_table.c`.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

PAGE_BYTES = 4096
BLOCK_BYTES = 32  # bytes
BLOCK_KEYS = 18
_WORDS = 8


class Unsound(Exception):
    """A page of a run fails its checksum; the argument is the run."""


class Run:
    """One mapped run."""

    __slots__ = ("_blocks", "_checked", "_data", "_first", "_guide", "_keys", "_lines", "_sums")

    def __init__(
        self, file: Any, count: int, blocks: int, guide_at: int, keys_at: int, lines_at: int, sums_at: int
    ) -> None:
        data = memoryview(file)
        starts = (guide_at, keys_at, lines_at, sums_at)
        ends = (guide_at + (blocks + 1) * BLOCK_BYTES, keys_at + count * 8, lines_at + count * 4)
        if (
            any(start % PAGE_BYTES for start in starts)
            or any(end > start for end, start in zip(ends, starts[1:], strict=True))
            or len(data) < sums_at + sums_at // PAGE_BYTES * 4
            or not 0 < blocks < 1 << 32
            or count >= 1 << 32
        ):
            raise ValueError("not the parts of a run")
        self._data = data
        self._first = {"guide": guide_at, "keys": keys_at, "lines": lines_at}
        self._guide = data[guide_at : ends[0]].cast("I")
        self._keys = data[keys_at : ends[1]].cast("Q")
        self._lines = data[lines_at : ends[2]].cast("I")
        self._sums = data[sums_at : sums_at + sums_at // PAGE_BYTES * 4].cast("I")
        self._blocks = blocks
        self._checked: set[int] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, number: int) -> int:
        """The line of a number, -1 if the run does not contain it."""
        block = block_of(number, self._blocks)
        self._check("guide", block * BLOCK_BYTES, block * BLOCK_BYTES + BLOCK_BYTES + 4)
        low, *words = self._guide[block * _WORDS : (block + 1) * _WORDS]
        if not all(word >> (number >> 5 * at & 31) & 1 for at, word in enumerate(words)):
            return -1
        high = self._guide[(block + 1) * _WORDS]
        if not low <= high <= len(self._keys):
            raise Unsound(self)
        if low == high:
            return -1
        self._check("keys", low * 8, high * 8)
        at = bisect_left(self._keys, number, low, high)
        if at == high or self._keys[at] != number:
            return -1
        self._check("lines", at * 4, at * 4 + 4)
        return self._lines[at]

    def entry(self, at: int) -> tuple[int, int]:
        """A key and its line, by its index."""
        self._check("keys", at * 8, at * 8 + 8)
        self._check("lines", at * 4, at * 4 + 4)
        return self._keys[at], self._lines[at]

    def _check(self, part: str, start: int, end: int) -> None:
        first = self._first[part]
        for page in range((first + start) // PAGE_BYTES, (first + end - 1) // PAGE_BYTES + 1):
            if page not in self._checked:
                if zlib.crc32(self._data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]) != self._sums[page]:
                    raise Unsound(self)
                self._checked.add(page)


def block_of(number: int, blocks: int) -> int:
    """The guide's block of a number."""
    return (number >> 32) * blocks >> 32


def merge(
    runs: tuple[Run, ...], positions: list[int], shifts: tuple[int, ...], dead: tuple[Any, ...], most: int
) -> tuple[bytes, bytes]:
    """At most that many of the next entries of several runs, in order: keys and lines. Of a key that several have, the
    last line.

    `positions`: the index of the next entry of each run, moved on. `shifts`: what is added to the lines of each.
    `dead`: for each the lines, in order, whose entries are left out.
    """
    keys, lines = array("Q"), array("I")
    without = [set(memoryview(one).cast("B").cast("I")) if len(one) else set[int]() for one in dead]
    heads = [run.entry(at) if at < len(run) else None for run, at in zip(runs, positions, strict=True)]
    while len(keys) < most and any(heads):
        least = min(head[0] for head in heads if head is not None)
        newest = -1
        for at, head in enumerate(heads):
            if head is None or head[0] != least:
                continue
            if head[1] not in without[at]:
                newest = max(newest, head[1] + shifts[at])
            positions[at] += 1
            heads[at] = runs[at].entry(positions[at]) if positions[at] < len(runs[at]) else None
        if newest >= 0:
            keys.append(least)
            lines.append(newest)
    return keys.tobytes(), lines.tobytes()


def arranged(numbers: Any, lines: Any) -> tuple[bytes, bytes]:
    """Numbers in order, once each, with their last lines; both as arrays of 8 and 4 bytes."""
    given = memoryview(numbers).cast("B").cast("Q"), memoryview(lines).cast("B").cast("I")
    last = dict(sorted(zip(*given, strict=True)))
    return array("Q", last).tobytes(), array("I", last.values()).tobytes()


def guide(keys: bytes, rank: int, blocks: int, first: int, ranked: int, out: bytearray) -> int:
    """Enters keys into the part of the guide that begins with block `first`; `rank` keys lie before them.

    Blocks before `ranked` have their counts already; the new number of those that have is returned.
    """
    words = memoryview(out).cast("I")
    end = first + len(words) // _WORDS
    for at, number in enumerate(memoryview(keys).cast("Q"), rank):
        block = block_of(number, blocks)
        if not first <= block < end or not first <= ranked <= end:
            raise ValueError("the guide has no room for these numbers")
        for one in range(ranked, block + 1):
            words[(one - first) * _WORDS] = at
        ranked = max(ranked, block + 1)
        for word in range(1, _WORDS):
            words[(block - first) * _WORDS + word] |= 1 << (number >> 5 * (word - 1) & 31)
    return ranked


def checksums(data: Any) -> bytes:
    """The checksum of each whole page."""
    view: Sequence[int] = memoryview(data)
    sums = [zlib.crc32(view[at : at + PAGE_BYTES]) for at in range(0, len(view) - PAGE_BYTES + 1, PAGE_BYTES)]  # type: ignore[arg-type]
    return array("I", sums).tobytes()
