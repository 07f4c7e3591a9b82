"""Which items have a row, checked by the writer of an index for every page: one bit for each item that was ever
admitted.

Invariant: the answer includes all rows of the index, and those of the transaction after which `add` was called. A block
of bits is read from the index when one of its items is first looked up; after that the writer updates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_BLOCK_BITS = 12  # of a block: 512 bytes
_BYTE_MASK = (1 << (_BLOCK_BITS - 3)) - 1
ReadItems = Callable[[int, int], Iterable[int]]


class StoredItems:
    """The items of one index that have a row."""

    def __init__(self, read: ReadItems, late: Iterable[int]) -> None:
        """`read`: those in a range of numbers that have keys; `late`: those that had none when the index was opened."""
        self._read = read
        self._late_items = sorted(late)
        self._blocks: dict[int, bytearray] = {}

    def items_among(self, items: Iterable[int]) -> set[int]:
        """The items among these that have a row."""
        get, made = self._blocks.get, self._make_block  # no call for an item: the writer asks twice for each page
        return {
            item
            for item in items
            if (get(item >> _BLOCK_BITS) or made(item >> _BLOCK_BITS))[(item >> 3) & _BYTE_MASK] >> (item & 7) & 1
        }

    def add_items(self, items: Iterable[int]) -> None:
        """Records that these items have a row now."""
        get, made = self._blocks.get, self._make_block
        for item in items:
            (get(item >> _BLOCK_BITS) or made(item >> _BLOCK_BITS))[(item >> 3) & _BYTE_MASK] |= 1 << (item & 7)

    def _make_block(self, number: int) -> bytearray:
        block = self._blocks[number] = bytearray(1 << (_BLOCK_BITS - 3))
        first = number << _BLOCK_BITS
        end = first + (1 << _BLOCK_BITS)
        for item in (*self._read(first, end), *(item for item in self._late_items if first <= item < end)):
            block[(item >> 3) & _BYTE_MASK] |= 1 << (item & 7)
        return block
