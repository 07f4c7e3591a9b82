"""A first-in first-out queue of short texts, packed in memory, its middle spilled to disk when it grows long.

Order: head (memory) → file → tail (memory). However long the queue, memory holds two pieces of at most PIECE bytes. The
file is a cache, not the truth: what is queued is in the journal, and a restart builds the queues anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PIECE = 64 * 1024


class SpillQueue:
    """Texts without newlines, in order."""

    __slots__ = ("_count", "_file_at", "_head", "_head_at", "_path", "_spilled", "_tail")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._head = bytearray()
        self._head_at = 0
        self._tail = bytearray()
        self._spilled = 0  # bytes in the file that are not read yet
        self._file_at = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, text: str) -> None:
        """Adds one at the end."""
        self._count += 1
        if not self._spilled and not self._tail and len(self._head) - self._head_at < PIECE:
            self._head += text.encode() + b"\n"
            return
        self._tail += text.encode() + b"\n"
        if len(self._tail) >= PIECE:
            self._spill()

    def peek(self) -> str:
        """The first one, left in place."""
        if self._head_at >= len(self._head):
            self._refill()
        return self._head[self._head_at : self._head.index(b"\n", self._head_at)].decode()

    def pop(self) -> str:
        """The first one, taken out."""
        text = self.peek()
        self._head_at += len(text.encode()) + 1
        self._count -= 1
        if self._head_at > 4096 and self._head_at * 2 > len(self._head):
            del self._head[: self._head_at]
            self._head_at = 0
        return text

    def texts(self) -> Iterator[str]:
        """All of them in order, left in place."""
        yield from self._head[self._head_at :].decode().splitlines()
        if self._spilled:
            with self._path.open("rb") as file:
                file.seek(self._file_at)
                for line in file:
                    yield line.decode().rstrip("\n")
        yield from self._tail.decode().splitlines()

    def clear(self) -> None:
        """Forgets all."""
        if self._spilled:
            self._path.unlink(missing_ok=True)
        self.__init__(self._path)  # type: ignore[misc]

    def _spill(self) -> None:
        if not self._spilled:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            self._file_at = 0
        with self._path.open("ab") as file:
            file.write(self._tail)
        self._spilled += len(self._tail)
        self._tail = bytearray()

    def _refill(self) -> None:
        """The head is used up: the next piece comes from the file, or what is left is the tail."""
        self._head_at = 0
        if not self._spilled:
            self._head, self._tail = self._tail, bytearray()
            return
        with self._path.open("rb") as file:
            file.seek(self._file_at)
            piece = file.read(PIECE)
            piece += file.readline() if len(piece) == PIECE and not piece.endswith(b"\n") else b""
        self._head = bytearray(piece)
        self._file_at += len(piece)
        self._spilled -= len(piece)
        if not self._spilled:
            self._path.unlink(missing_ok=True)
