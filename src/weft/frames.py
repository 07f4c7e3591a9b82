"""Messages between processes: a body behind its length, four bytes, big-endian."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

_LENGTH = struct.Struct(">I")
HEAD = _LENGTH.size  # bytes before a body


class TooLong(ValueError):
    """A frame is longer than the receiver accepts, or the received bytes are no frame."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a frame of {size:,} bytes is too long")
        self.size = size


def framed(body: bytes) -> bytes:
    """A body in its sent form."""
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """How long the body behind these HEAD bytes is."""
    return int(_LENGTH.unpack(head)[0])


def frames(received: bytearray, longest: int | None = None) -> Iterator[bytes]:
    """Removes the complete bodies from the received bytes; TooLong for one that is longer than `longest`."""
    while len(received) >= HEAD:
        (size,) = _LENGTH.unpack_from(received)
        if longest is not None and size > longest:
            raise TooLong(size)
        if len(received) < HEAD + size:
            return
        body = bytes(memoryview(received)[HEAD : HEAD + size])
        del received[: HEAD + size]
        yield body


def read_frame(fd: int) -> bytes:
    """Reads one body from a pipe; EOFError if the sender has ended."""
    return _exactly(fd, length_of(_exactly(fd, HEAD)))


def _exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(fd, count - len(data))
        if not part:
            raise EOFError("the sender has gone")
        data += part
    return data
