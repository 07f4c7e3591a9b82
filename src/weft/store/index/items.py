"""Which items have a row, checked by the writer of an index for every page: one bit for each item that was ever
admitted.

Invariant: the answer includes all rows of the index, and those of the transaction after which `add` was called. A block
of bits is read from the index when one of its items is first looked up; after that the writer updates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_BITS = 12  # of a block: 512 bytes
_BYTES = (1 << (_BITS - 3)) - 1
Read = Callable[[int, int], Iterable[int]]


class StoredItems:
    """The items of one index that have a row."""

    def __init__(self, read: Read, late: Iterable[int]) -> None:
        """`read`: those in a range of numbers that have keys; `late`: those that had none when the index was opened."""
        self._read = read
        self._late = sorted(late)
        self._blocks: dict[int, bytearray] = {}

    def among(self, items: Iterable[int]) -> set[int]:
        """The items among these that have a row."""
        return {item for item in items if self._block(item)[(item >> 3) & _BYTES] >> (item & 7) & 1}

    def add(self, items: Iterable[int]) -> None:
        """Records that these items have a row now."""
        for item in items:
            self._block(item)[(item >> 3) & _BYTES] |= 1 << (item & 7)

    def _block(self, item: int) -> bytearray:
        number = item >> _BITS
        if (block := self._blocks.get(number)) is None:
            block = self._blocks[number] = self._made(number << _BITS)
        return block

    def _made(self, first: int) -> bytearray:
        block = bytearray(1 << (_BITS - 3))
        end = first + (1 << _BITS)
        for item in (*self._read(first, end), *(item for item in self._late if first <= item < end)):
            block[(item >> 3) & _BYTES] |= 1 << (item & 7)
        return block
