"""Which items have a row, as the writer of an index asks for every page: one bit for each item that was ever admitted.

Must stay true: what is answered is what the index has, and the rows of the transaction that `add` was called after. A
block of bits is read from the index when one of its items is asked for; after that the writer keeps it itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_BITS = 12  # of a block: 512 bytes
_BYTES = (1 << (_BITS - 3)) - 1
Read = Callable[[int, int], Iterable[int]]


class StoredItems:
    """The items of one index."""

    def __init__(self, read: Read, late: Iterable[int]) -> None:
        """`read`: those from a number up to another that have keys; `late`: those that had none when it was opened."""
        self._read = read
        self._late = sorted(late)
        self._blocks: dict[int, bytearray] = {}

    def among(self, items: Iterable[int]) -> set[int]:
        """Those of the items that have a row."""
        return {item for item in items if self._block(item)[(item >> 3) & _BYTES] >> (item & 7) & 1}

    def add(self, items: Iterable[int]) -> None:
        """These have a row now."""
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
