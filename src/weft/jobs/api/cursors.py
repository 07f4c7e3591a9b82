"""Cursors of results: the number of an event, as a text that callers hand back and do not read.

A cursor belongs to its task: one of another task, or one that was changed, is refused and never silently the beginning.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b

from weft.jobs.api.problems import Refusal

_SUM_BYTES = 6
_MOST = 1 << 62


class BadCursor(ValueError):
    """A text that is no cursor of this task."""


def encode(task_id: str, number: int) -> str:
    """The cursor behind an event."""
    packed = number.to_bytes(8, "big").lstrip(b"\0")
    return urlsafe_b64encode(_sum(task_id, packed) + packed).rstrip(b"=").decode()


def decode(task_id: str, cursor: str) -> int:
    """The number in a cursor."""
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError):
        raise BadCursor(cursor) from None
    found, packed = raw[:_SUM_BYTES], raw[_SUM_BYTES:]
    number = int.from_bytes(packed, "big")
    if len(packed) > 8 or found != _sum(task_id, packed) or number > _MOST or encode(task_id, number) != cursor:
        raise BadCursor(cursor)
    return number


def position(task_id: str, cursor: str | None, beginning: int) -> int:
    """The number that a caller goes on behind; a Refusal for what is no cursor of this task."""
    try:
        return beginning if cursor is None else decode(task_id, cursor)
    except BadCursor:
        raise Refusal.of_field("cursor", "is none that an answer about this task has given") from None


def _sum(task_id: str, packed: bytes) -> bytes:
    return blake2b(packed, digest_size=_SUM_BYTES, key=task_id.encode()[:64], person=b"weft-cursor").digest()
