"""A first-in first-out queue of short texts, packed in memory, its middle spilled to disk when it grows long.

Order: head (memory) → pieces (blobs) → tail (memory). However long the queue, memory holds two pieces of about PIECE
bytes, and eight bytes for each spilled one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator

from weft.frontier.durability.blobs import BlobStore

PIECE_BYTES = 16 * 1024  # two of them for each site and depth: a hundred megabytes at three thousand busy sites
QueueState = tuple[bytes, bytes, bytes, int]  # head, tail, the pieces' numbers of eight bytes each, and the count


class SpillQueue(ABC):
    """Texts without newlines, in order."""

    __slots__ = ("_count", "_head", "_head_at", "_next_piece", "_pieces", "_tail")

    def __init__(self) -> None:
        self._head = bytearray()
        self._head_at = 0
        # Made on demand: there may be a million queues, and most are short.
        self._tail: bytearray | None = None
        self._pieces: array[int] | None = None  # numbers of blobs
        self._next_piece = 0  # the first of them that is not read yet
        self._count = 0

    @property
    @abstractmethod
    def blobs(self) -> BlobStore:
        """The store of its middle pieces."""

    def __len__(self) -> int:
        return self._count

    @property
    def held_bytes(self) -> int:
        """The memory that it uses."""
        return len(self._head) + len(self._tail or b"")

    def push(self, text: str) -> None:
        """Adds a text at the end."""
        self.push_all(f"{text}\n".encode(), 1)

    def push_all(self, lines: bytes, count: int) -> None:
        """Adds several at the end, each with its newline."""
        self._count += count
        if self._tail is None and self._pieces is None and len(self._head) - self._head_at < PIECE_BYTES:
            self._head += lines
            return
        if self._tail is None:
            self._tail = bytearray()
        self._tail += lines
        if len(self._tail) >= PIECE_BYTES:
            self._spill_lines(self._tail)
            self._tail = None

    def peek(self) -> str:
        """The first text, which remains queued."""
        if self._head_at >= len(self._head):
            self._refill_head()
        return self._head[self._head_at : self._head.index(b"\n", self._head_at)].decode()

    def pop(self) -> str:
        """Removes and returns the first text."""
        text = self.peek()
        self._head_at += len(text.encode()) + 1
        self._count -= 1
        if self._head_at > 4096 and self._head_at * 2 > len(self._head):
            del self._head[: self._head_at]
            self._head_at = 0
        return text

    def texts(self) -> Iterator[str]:
        """All texts in order, which remain queued."""
        yield from _texts_in(self._head[self._head_at :])
        for number in self._unread_pieces():
            yield from _texts_in(self.blobs.get(number))
        yield from _texts_in(self._tail or b"")

    def clear(self) -> None:
        """Removes everything."""
        self.blobs.drop_all(self._unread_pieces())
        SpillQueue.__init__(self)

    def state(self) -> QueueState:
        """The queue's state for a row of a swapped-out site, or for a checkpoint: its pieces are not copied."""
        return (
            bytes(self._head[self._head_at :]),
            bytes(self._tail or b""),
            self._unread_pieces().tobytes(),
            self._count,
        )

    def restore(self, state: QueueState) -> None:
        """Restores the state of another queue; this one must be empty."""
        head, tail, pieces, self._count = state
        self._head, self._tail = bytearray(head), bytearray(tail) if tail else None
        self._pieces = pieces_of(state) if pieces else None

    def _unread_pieces(self) -> array[int]:
        return self._pieces[self._next_piece :] if self._pieces is not None else array("Q")

    def _spill_lines(self, lines: bytearray) -> None:
        """Spills whole lines, in pieces that end with a line: one page's links may be many times as long as a piece."""
        if self._pieces is None:
            self._pieces = array("Q")
        at = 0
        while at < len(lines):
            end = lines.rfind(b"\n", at, at + PIECE_BYTES) + 1 or lines.index(b"\n", at) + 1
            if len(lines) - end < PIECE_BYTES // 2:
                end = len(lines)
            self._pieces.append(self.blobs.put(bytes(lines[at:end])))
            at = end

    def _refill_head(self) -> None:
        """Refills the empty head from the next piece, or from the tail."""
        self._head_at = 0
        if self._pieces is None:
            self._head, self._tail = self._tail or bytearray(), None
            return
        number = self._pieces[self._next_piece]
        self._head = bytearray(self.blobs.get(number))
        self.blobs.drop(number)
        self._next_piece += 1
        if self._next_piece == len(self._pieces):
            self._pieces, self._next_piece = None, 0
        elif self._next_piece >= 1024:
            del self._pieces[: self._next_piece]
            self._next_piece = 0


def _texts_in(lines: bytes | bytearray) -> list[str]:
    return lines.decode().split("\n")[:-1]


def pieces_of(state: QueueState) -> array[int]:
    """The numbers of the pieces of a queue."""
    numbers = array("Q")
    numbers.frombytes(state[2])
    return numbers
