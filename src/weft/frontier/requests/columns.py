"""Columns of whole numbers as bytes that compress well: of the least width that holds them, plane by plane."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from itertools import accumulate, pairwise

_ARRAY_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}


def pack_ints(values: Iterable[int]) -> bytes:
    """Packs a column; the first byte is the width of its numbers."""
    column = array("q", values)
    if not column:
        return b""
    low, high = min(column), max(column)
    width = next(width for width in _ARRAY_CODES if -(1 << 8 * width - 1) <= low and high < 1 << 8 * width - 1)
    data = _as_little_endian(array(_ARRAY_CODES[width], column)).tobytes()
    return bytes([width]) + b"".join([data[plane::width] for plane in range(width)])


def unpack_ints(data: bytes) -> array[int]:
    """Unpacks a column."""
    if not data:
        return array("b")
    width, count = data[0], (len(data) - 1) // data[0]
    planes = bytearray(count * width)
    for plane in range(width):
        planes[plane::width] = data[1 + plane * count : 1 + (plane + 1) * count]
    column = array(_ARRAY_CODES[width])
    column.frombytes(planes)
    return _as_little_endian(column)


def pack_steps(values: array[int]) -> bytes:
    """Packs a column that grows slowly: the difference of each number from the one before."""
    return pack_ints(second - first for first, second in pairwise([0, *values]))


def unpack_steps(data: bytes) -> list[int]:
    """Unpacks a column of differences."""
    return list(accumulate(unpack_ints(data)))


def _as_little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column
