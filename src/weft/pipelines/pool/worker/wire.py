"""The protocol of a worker's socket: frames (weft/frames.py) of msgpack from the parent, single bell bytes back.

The first frame is the Assignment; every later one is a batch `[first ticket, attempt, ring, [item, ...]]`, its items
encoded as they were on arrival; `ring` asks for a bell at its end. Closing the socket makes the worker end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from weft.frames import framed
from weft.pipelines.pool.target import CallableTarget

BELL = b"!"
_encode = msgspec.msgpack.Encoder().encode
_decode_batch = msgspec.msgpack.Decoder(tuple[int, int, bool, list[Any]]).decode


class Assignment(msgspec.Struct, frozen=True):
    """What a worker needs to know before its first item."""

    target: CallableTarget
    sys_path: list[str]
    item_timeout_s: float | None
    log_directory: str | None
    events: bool
    number: int
    config: bytes = b""
    shared_log: bool = False
    """Items have no file each, but one for all of this worker (item_log.py)."""
    cwd: str | None = None
    """The worker's current directory, where it is not that of who started it."""


def assignment_frame(assignment: Assignment) -> bytes:
    """Encodes the first frame."""
    return framed(_encode(assignment))


def batch_frame(ticket: int, attempt: int, ring: bool, payloads: Sequence[bytes]) -> bytes:
    """Encodes a batch whose items are encoded already."""
    head = b"\x94" + _encode(ticket) + _encode(attempt) + _encode(ring) + b"\xdd" + len(payloads).to_bytes(4, "big")
    return framed(head + b"".join(payloads))


def decode_batch(frame: bytes) -> tuple[int, int, bool, list[Any]]:
    """Decodes a batch: ticket, attempt, ring and items."""
    return _decode_batch(frame)


def decode_assignment(frame: bytes) -> Assignment:
    """Decodes the first frame."""
    return msgspec.msgpack.decode(frame, type=Assignment)
