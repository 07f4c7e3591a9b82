"""Cursors of results: the number of an event as an opaque text.

A cursor belongs to one task. A cursor of another task, or one that was altered, is refused; it never silently means the
beginning.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b

from weft.jobs.api.problems import Refusal

_SUM_BYTES = 6
_LARGEST_NUMBER = 1 << 62


class BadCursor(ValueError):
    """A text that is not a cursor of this task."""


def encode(task_id: str, number: int) -> str:
    """The cursor that continues after an event."""
    packed = number.to_bytes(8, "big").lstrip(b"\0")
    return urlsafe_b64encode(_checksum(task_id, packed) + packed).rstrip(b"=").decode()


def decode(task_id: str, cursor: str) -> int:
    """The event number in a cursor; raises BadCursor."""
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError):
        raise BadCursor(cursor) from None
    checksum, packed = raw[:_SUM_BYTES], raw[_SUM_BYTES:]
    number = int.from_bytes(packed, "big")
    if (
        len(packed) > 8
        or checksum != _checksum(task_id, packed)
        or number > _LARGEST_NUMBER
        or encode(task_id, number) != cursor
    ):
        raise BadCursor(cursor)
    return number


def position(task_id: str, cursor: str | None, beginning: int) -> int:
    """The event number after which results continue; raises Refusal if `cursor` is not one of this task."""
    try:
        return beginning if cursor is None else decode(task_id, cursor)
    except BadCursor:
        raise Refusal.of_field("cursor", "is not a cursor of this task") from None


def _checksum(task_id: str, packed: bytes) -> bytes:
    return blake2b(packed, digest_size=_SUM_BYTES, key=task_id.encode()[:64], person=b"weft-cursor").digest()
