"""The memory that a worker shares with the parent: its current item, its results, its unflushed log lines.

    page 0      words of 8 bytes; the worker writes 0-15, the parent 32-35; the stage's name at byte 512
    64 KiB      log lines not yet in the file of the item, or of the worker
    2 banks     results, one after the other; a bank is filled, left, emptied by the parent, filled again

Invariants. An item is finished when its record's bytes are in a bank *and* the bank's commit word says so: one aligned
8-byte store, no system call, so a worker killed at any instruction leaves either a whole result or none. The parent
moves READ only after it has put what it read into the journal: a later reader of the slot (the parent after the
worker's death, the next run after the parent's) reads exactly what is missing. A worker announces an item (CURRENT)
before it reads LIMIT: a parent that has lowered LIMIT and waited a moment knows that everything beyond both is not
begun and never will be.

A bank is sparse: 64 MiB can be addressed, 128 KiB are normally touched. The slot is a memfd, or a file in the run's
directory when results must outlive the parent. The part that is normally touched is allocated on the disk from the
beginning: on a full disk a store into an unallocated page is a SIGBUS, which would be blamed on the item.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

# written by the worker
READY, CURRENT, START_NS, FRAMES, FRAME_START_NS, ACTIVE, COMMIT, _COMMIT_1, LOG, SECTION = range(10)
# written by the parent
LIMIT, READ, CUT, SHARED_LOG = 32, 33, 34, 35

NO_LIMIT = (1 << 64) - 1
_STAGE_AT, _STAGE_BYTES = 512, 64
_LOG_AT, LOG_BYTES = 4096, 64 * 1024
_BANKS_OFFSET = _LOG_AT + LOG_BYTES
BANK_BYTES = 64 * 1024 * 1024
SLOT_BYTES = _BANKS_OFFSET + 2 * BANK_BYTES
_BANK_FULL_BYTES = 128 * 1024
_GIVE_BACK_BYTES = 1024 * 1024

# commit word: count and bytes; READ has the bank's sequence number above them
_BYTES_BITS, _COUNT_BITS = 27, 20
_BYTES_MASK = (1 << _BYTES_BITS) - 1
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_SEQ_MASK = (1 << (64 - _BYTES_BITS - _COUNT_BITS)) - 1
_SEQ_SHIFT = _BYTES_BITS + _COUNT_BITS
_MAX_COUNT = _COUNT_MASK - 1


class Chunk(NamedTuple):
    """Some adjacent records: their number, and their bytes as one msgpack array."""

    records: int
    data: bytes


def stage_label(name: str | None) -> bytes:
    """Encodes the name of a stage for the slot, with its length first."""
    text = (name or "").encode(errors="replace")[: _STAGE_BYTES - 1]
    return bytes([len(text)]) + text


class SharedSlot:
    """The mapped memory, for worker and parent."""

    def __init__(self, fd: int) -> None:
        self.memory = mmap.mmap(fd, SLOT_BYTES)
        self.words = memoryview(self.memory)[:4096].cast("Q")

    def close(self) -> None:
        """Releases the memory; the slot is not used after this."""
        self.words.release()
        self.memory.close()

    @property
    def stage(self) -> str | None:
        """The name of the worker's current stage. It may be garbled while it is being written, which only affects a
        display.
        """
        length = self.memory[_STAGE_AT]
        return self.memory[_STAGE_AT + 1 : _STAGE_AT + 1 + length].decode(errors="replace") if length else None

    @stage.setter
    def stage(self, name: str | None) -> None:
        self.set_label(stage_label(name))

    def set_label(self, label: bytes) -> None:
        """Sets the stage by its encoded name (`stage_label`), for stages that are entered often."""
        self.memory[_STAGE_AT : _STAGE_AT + len(label)] = label


def create(path: str | None) -> int:
    """Creates an empty slot; returns its file descriptor. Without a path it is in memory only."""
    if path is None:
        fd = os.memfd_create("weft-slot", os.MFD_CLOEXEC)
    else:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _BANKS_OFFSET + _BANK_FULL_BYTES)
            os.posix_fallocate(fd, _BANKS_OFFSET + BANK_BYTES, _BANK_FULL_BYTES)
        except OSError:
            os.close(fd)
            Path(path).unlink()
            raise
    os.ftruncate(fd, SLOT_BYTES)
    return fd


class SlotWriter(SharedSlot):
    """The worker's side of the slot: commits records."""

    def __init__(self, fd: int, bell: Callable[[], None]) -> None:
        super().__init__(fd)
        self._bell = bell
        self._sequence = 0
        self._used = 0
        self._count = 0
        self._bank_at = _BANKS_OFFSET

    def put(self, data: bytes) -> None:
        """Commits one record. Waits while the parent is behind; `data` must fit a bank."""
        end = self._used + len(data)
        if (end > _BANK_FULL_BYTES and self._used) or self._count >= _MAX_COUNT:
            self._leave_bank()
            end = len(data)
        at = self._bank_at + self._used
        self.memory[at : at + len(data)] = data
        self._used = end
        self._count += 1
        self.words[COMMIT + (self._sequence & 1)] = self._count << _BYTES_BITS | end

    def _leave_bank(self) -> None:
        self._wait_for_parent()
        self._sequence = (self._sequence + 1) & _SEQ_MASK
        self._used = self._count = 0
        self._bank_at = _BANKS_OFFSET + (self._sequence & 1) * BANK_BYTES
        self.words[COMMIT + (self._sequence & 1)] = 0
        self.words[ACTIVE] = self._sequence

    def _wait_for_parent(self) -> None:
        """Waits until the bank before this one is emptied. The item's and the batch's time limits pause meanwhile."""
        words = self.words
        if words[READ] >> _SEQ_SHIFT == self._sequence:
            return
        began = time.monotonic_ns()
        words[START_NS] = 0
        self._bell()
        pause_s = 0.0005
        while words[READ] >> _SEQ_SHIFT != self._sequence:
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.02)
        words[FRAME_START_NS] += time.monotonic_ns() - began


class SlotReader(SharedSlot):
    """The side of the parent, and of the next run: reads records."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        read = self.words[READ]
        self._sequence = read >> _SEQ_SHIFT
        self._seen = read & ~(_SEQ_MASK << _SEQ_SHIFT)
        self._last: tuple[int, int] | None = None

    def take(self) -> list[Chunk]:
        """Returns all committed records that were not read yet, in order; raises ValueError if a commit word is
        corrupt.
        """
        return list(self.chunks())

    def chunks(self) -> Iterator[Chunk]:
        """Like `read_all`, as a generator: chunks before a corrupt word are valid."""
        while True:
            # ACTIVE first: if the worker has left this bank, the commit word read after it is the last one
            active = self.words[ACTIVE]
            left = active != self._sequence
            if left and active != (self._sequence + 1) & _SEQ_MASK:
                # the worker waits for the parent before it reuses a bank: it is one ahead at most
                raise ValueError("the slot's bank number is corrupt")
            commit = self.words[COMMIT + (self._sequence & 1)]
            if commit != self._seen:
                chunk = self._cut(self._seen, commit)
                self._seen = commit
                yield chunk
            if not left:
                return
            self._give_back(commit & _BYTES_MASK)
            self._sequence = (self._sequence + 1) & _SEQ_MASK
            self._seen = 0

    def settled(self) -> bool:
        """Whether there is something to read that was already there, unchanged, at the last call.

        Without a bell or a death between them, the worker's data and its commit word may become visible in any order
        on processors other than x86; a whole tick later they have."""
        now = (self.words[ACTIVE], self.words[COMMIT + (self._sequence & 1)])
        same = now == self._last
        self._last = now
        return same and now != (self._sequence, self._seen)

    def release(self) -> None:
        """Lets the worker overwrite what was read; call it when that is journalled."""
        self.words[READ] = self._sequence << _SEQ_SHIFT | self._seen

    @property
    def emptied(self) -> bool:
        """Whether everything that was committed here has been read and released."""
        commit = self.words[COMMIT + (self._sequence & 1)]
        return self.words[ACTIVE] == self._sequence and self.words[READ] == self._sequence << _SEQ_SHIFT | commit

    def _cut(self, begin: int, end: int) -> Chunk:
        at = _BANKS_OFFSET + (self._sequence & 1) * BANK_BYTES
        count = (end >> _BYTES_BITS) - (begin >> _BYTES_BITS)
        if not 0 < count <= _MAX_COUNT or not (begin & _BYTES_MASK) <= (end & _BYTES_MASK) <= BANK_BYTES:
            raise ValueError("the slot's commit word is corrupt")
        data = self.memory[at + (begin & _BYTES_MASK) : at + (end & _BYTES_MASK)]
        return Chunk(count, b"\xdd" + count.to_bytes(4, "big") + data)

    def _give_back(self, used: int) -> None:
        if used > _GIVE_BACK_BYTES:
            # not every file system can punch holes; then the pages stay until the slot goes
            with contextlib.suppress(OSError):
                at = _BANKS_OFFSET + (self._sequence & 1) * BANK_BYTES
                self.memory.madvise(mmap.MADV_REMOVE, at, -(-used // mmap.PAGESIZE) * mmap.PAGESIZE)


class LogBuffer:
    """The worker's unflushed log lines, inside the slot so that they outlive it.

    The word LOG holds the bytes already in the file above the bytes waiting here, in one store: after a death
    the file's real size says how much of the waiting part had been written."""

    def __init__(self, slot: SharedSlot) -> None:
        self._slot = slot

    def add(self, line: bytes) -> bool:
        """Adds a line; False if there is no room."""
        word = self._slot.words[LOG]
        length = word & 0xFFFFF
        if length + len(line) > LOG_BYTES:
            return False
        at = _LOG_AT + length
        self._slot.memory[at : at + len(line)] = line
        self._slot.words[LOG] = word + len(line)
        return True

    @property
    def end(self) -> int:
        """The length of the file once the waiting lines are written."""
        word = self._slot.words[LOG]
        return (word >> 20) + (word & 0xFFFFF)

    def waiting(self) -> bytes:
        """The lines that are not yet in the file, for the worker."""
        return self._slot.memory[_LOG_AT : _LOG_AT + (self._slot.words[LOG] & 0xFFFFF)]

    def flushed(self, written: int) -> None:
        """Records that all waiting lines were written, as that many bytes."""
        self._slot.words[LOG] = ((self._slot.words[LOG] >> 20) + written) << 20

    def missing(self, file_bytes: int) -> bytes:
        """The lines that a file of this size lacks, for the parent after a death."""
        return self.waiting()[max(0, file_bytes - (self._slot.words[LOG] >> 20)) :]
