"""Sets of item numbers: dense in a young crawl, sparse where few of many are meant."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

_MOST_LISTED = 256  # numbers of a block, up to which they are listed: beyond, one bit per possible number is smaller


class Bitmap:
    """A set in blocks of 65,536 numbers: a list of two bytes each for a few, one bit per possible number for many."""

    def __init__(self, blocks: Mapping[int, bytes] | None = None) -> None:
        self._blocks: dict[int, array[int] | bytearray] = {}
        for number, block in (blocks or {}).items():
            if len(block) == 8192:
                self._blocks[number] = bytearray(block)
            else:
                few = self._blocks[number] = array("H")
                few.frombytes(block)

    def blocks(self) -> dict[int, bytes]:
        """Its content, for a checkpoint."""
        return {number: bytes(block) for number, block in self._blocks.items()}

    def add(self, items: Iterable[int]) -> int:
        """Adds items; returns how many were given."""
        count = 0
        for item in items:
            count += 1
            block = self._blocks.get(item >> 16)
            if block is None:
                block = self._blocks[item >> 16] = array("H")
            if isinstance(block, bytearray):
                block[(item >> 3) & 8191] |= 1 << (item & 7)
            elif item & 65535 not in block:
                block.append(item & 65535)
                if len(block) > _MOST_LISTED:
                    self._blocks[item >> 16] = _as_bits(block)
        return count

    def discard(self, item: int) -> None:
        """Removes an item."""
        block = self._blocks.get(item >> 16)
        if isinstance(block, bytearray):
            block[(item >> 3) & 8191] &= ~(1 << (item & 7))
        elif block is not None and item & 65535 in block:
            block.remove(item & 65535)
            if not block:
                del self._blocks[item >> 16]

    def keep_below(self, first: int) -> None:
        """Removes all numbers from `first` on, or from the beginning of its block."""
        for number in [number for number in self._blocks if number << 16 >= first]:
            del self._blocks[number]

    def __contains__(self, item: object) -> bool:
        assert isinstance(item, int)
        block = self._blocks.get(item >> 16)
        if isinstance(block, bytearray):
            return bool(block[(item >> 3) & 8191] & (1 << (item & 7)))
        return block is not None and item & 65535 in block

    def __bool__(self) -> bool:
        return bool(self._blocks)


def _as_bits(numbers: array[int]) -> bytearray:
    bits = bytearray(8192)
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    return bits
