"""A worker's side of its socket: the frames that the parent sends."""

from __future__ import annotations

import socket

from weft.frames import HEAD, length_of

_RECEIVE_BYTES = 1 << 16  # a larger buffer is mapped and unmapped by the C library each time


class FrameReader:
    """Reads complete frames from a blocking socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._next_end = 0  # of the frame at the beginning of the buffer; 0: its length is not received yet

    @property
    def waiting(self) -> bool:
        """Whether a complete frame is in the buffer."""
        if not self._next_end and len(self._buffer) >= HEAD:
            self._next_end = HEAD + length_of(bytes(self._buffer[:HEAD]))
        return bool(self._next_end) and len(self._buffer) >= self._next_end

    def next(self) -> bytes | None:
        """The next frame; None when the other side, or the item itself, has closed the socket."""
        while not self.waiting:
            try:
                data = self._connection.recv(_RECEIVE_BYTES)
            except OSError:
                return None
            if not data:
                return None
            self._buffer += data
        frame = bytes(memoryview(self._buffer)[HEAD : self._next_end])
        del self._buffer[: self._next_end]
        self._next_end = 0
        return frame
