"""A first-in first-out queue of short texts, packed in memory, its middle spilled to disk when it grows long.

Order: head (memory) → file → tail (memory). However long the queue, memory holds two pieces of about PIECE bytes. The
file is a cache: what is queued is in the journal, and a restart rebuilds the queues.

While a checkpoint is written, by a process that has the queues as they were (see checkpoint), files are appended to,
and neither deleted nor begun anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

PIECE = 16 * 1024  # two of them for each site and depth: a hundred megabytes at three thousand busy sites
_DUMPED = 1024 * 1024  # at a time
QueueState = tuple[bytes, bytes, int, int, int]  # what is in memory at both ends, and `_spilled`, `_file_at`, `_count`


def spill_name(key: str, depth: int) -> str:
    """The file for the middle of a site's queue, in its crawl's folder; hashed, as a key may not be a file name."""
    return f"{sha256(key.encode()).hexdigest()[:24]}/{depth}.queue"


class SpillQueue(ABC):
    """Texts without newlines, in order."""

    __slots__ = ("_count", "_file_at", "_head", "_head_at", "_spilled", "_tail")
    unused: ClassVar[set[Path] | None] = None  # while a checkpoint is written: files that shall be deleted after it

    def __init__(self) -> None:
        self._head = bytearray()
        self._head_at = 0
        self._tail: bytearray | None = None  # made on demand: there may be a million queues, and most are short
        self._spilled = 0  # bytes in the file that are not read yet
        self._file_at = 0
        self._count = 0

    @abstractmethod
    def file(self) -> Path:
        """The file that holds the middle."""

    def __len__(self) -> int:
        return self._count

    @property
    def held_bytes(self) -> int:
        """What it takes of memory."""
        return len(self._head) + len(self._tail or b"")

    def push(self, text: str) -> None:
        """Adds one at the end."""
        self.push_all(f"{text}\n".encode(), 1)

    def push_all(self, lines: bytes, count: int) -> None:
        """Adds several at the end, each with its newline."""
        self._count += count
        if self._tail is None and not self._spilled and len(self._head) - self._head_at < PIECE:
            self._head += lines
            return
        if self._tail is None:
            self._tail = bytearray()
        self._tail += lines
        if len(self._tail) >= PIECE:
            self._spill(self._tail)

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
            with self.file().open("rb") as file:
                file.seek(self._file_at)
                left = self._spilled
                while left > 0:
                    line = file.readline()
                    left -= len(line)
                    yield line.decode().rstrip("\n")
        if self._tail:
            yield from self._tail.decode().splitlines()

    def dump(self) -> Iterator[bytes]:
        """All of them as one text, in pieces; left in place."""
        yield bytes(self._head[self._head_at :])
        if self._spilled:
            with self.file().open("rb") as file:
                file.seek(self._file_at)
                left = self._spilled
                while piece := file.read(min(_DUMPED, left)):
                    left -= len(piece)
                    yield piece
        if self._tail:
            yield bytes(self._tail)

    def load(self, piece: bytes, count: int) -> None:
        """Adds whole dumped lines at the end."""
        self._count += count
        if self._tail is None and not self._spilled and len(self._head) + len(piece) <= PIECE:
            self._head += piece
        else:
            self._spill((self._tail or bytearray()) + piece)

    def clear(self) -> None:
        """Removes everything."""
        if self._spilled:
            self._delete(self.file())
        SpillQueue.__init__(self)

    def state(self) -> QueueState:
        """What stands for the queue while its site is at rest; its file stays as it is."""
        return bytes(self._head[self._head_at :]), bytes(self._tail or b""), self._spilled, self._file_at, self._count

    def restore(self, state: QueueState) -> None:
        """Makes an empty queue what another was."""
        head, tail, self._spilled, self._file_at, self._count = state
        self._head, self._tail = bytearray(head), bytearray(tail) if tail else None

    def _spill(self, tail: bytearray) -> None:
        path = self.file()
        if not self._spilled:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._begin_file(path)
        with path.open("ab") as file:
            file.write(tail)
        self._spilled += len(tail)
        self._tail = None

    def _begin_file(self, path: Path) -> None:
        self._file_at = 0
        if SpillQueue.unused is None:
            path.unlink(missing_ok=True)
        elif path.exists():
            SpillQueue.unused.discard(path)
            self._file_at = path.stat().st_size

    def _delete(self, path: Path) -> None:
        if SpillQueue.unused is None:
            path.unlink(missing_ok=True)
        else:
            SpillQueue.unused.add(path)

    def _refill(self) -> None:
        """The head is used up: the next piece comes from the file, or what is left is the tail."""
        self._head_at = 0
        if not self._spilled:
            self._head, self._tail = self._tail or bytearray(), None
            return
        with self.file().open("rb") as file:
            file.seek(self._file_at)
            piece = file.read(min(PIECE, self._spilled))
            piece += file.readline() if len(piece) == PIECE and not piece.endswith(b"\n") else b""
        self._head = bytearray(piece)
        self._file_at += len(piece)
        self._spilled -= len(piece)
        if not self._spilled:
            self._delete(self.file())
