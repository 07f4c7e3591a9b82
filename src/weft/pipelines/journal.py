"""The file that remembers what is done: blocks of records, appended as they come, read back on a resume.

    "WEFTJNL1" then blocks of  length u32 | crc32 u32 | worker pid u32 | msgpack array of records

Invariants: a result is in the file (with the operating system, that is) before anyone hears of it, so a killed parent
has told nobody of something it forgot; a block is whole or is cut off on the next opening; fdatasync comes at most once
a second and at the end, so a power cut costs a second.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from weft.errors import BadInput, WeftError
from weft.pipelines.record import Record

_MAGIC = b"WEFTJNL1"
_HEAD_BYTES = 12
_SYNC_EVERY_S = 1.0
_decode = msgspec.msgpack.Decoder(list[Record]).decode


class Block(NamedTuple):
    """Some records of one worker, and where they stand in the file."""

    at: int
    pid: int
    records: list[Record]


class Journal:
    """One run's journal. Read to the end first (`read`), then append."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BadInput(f"{path} cannot be used as a journal: {error.strerror}") from None
        self._waiting: list[bytes] = []
        self._dirty = self._failed = False
        self._synced_s = time.monotonic()
        if os.fstat(self._fd).st_size == 0:
            os.write(self._fd, _MAGIC)
        elif os.pread(self._fd, len(_MAGIC), 0) != _MAGIC:
            os.close(self._fd)
            raise BadInput(f"{path} is not a journal of Weft's, or one of another version")

    def read(self) -> Iterator[Block]:
        """Every whole block; what follows the last one is cut off."""
        at = len(_MAGIC)
        while (block := self.block(at)) is not None:
            yield block[0]
            at = block[1]
        os.ftruncate(self._fd, at)
        os.lseek(self._fd, at, os.SEEK_SET)

    def block(self, at: int) -> tuple[Block, int] | None:
        """The block that begins here and where it ends; None when there is no whole one."""
        head = os.pread(self._fd, _HEAD_BYTES, at)
        length = int.from_bytes(head[:4], "little")
        data = os.pread(self._fd, length, at + _HEAD_BYTES)
        if len(head) < _HEAD_BYTES or len(data) < length or zlib.crc32(data) != int.from_bytes(head[4:8], "little"):
            return None
        try:
            records = _decode(data)
        except msgspec.DecodeError:
            return None
        return Block(at, int.from_bytes(head[8:], "little"), records), at + _HEAD_BYTES + length

    def append(self, pid: int, data: bytes) -> None:
        """Records as one msgpack array; in the file after the next flush."""
        head = len(data).to_bytes(4, "little") + zlib.crc32(data).to_bytes(4, "little") + pid.to_bytes(4, "little")
        self._waiting += (head, data)

    def flush(self) -> None:
        """What was appended is with the operating system after this, and now and then on the disk."""
        if self._waiting:
            self._write(b"".join(self._waiting))
            self._waiting.clear()
            self._dirty = True
        if self._dirty and time.monotonic() - self._synced_s > _SYNC_EVERY_S:
            self.sync()

    def sync(self) -> None:
        """On the disk."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._fail(error)
        self._dirty = False
        self._synced_s = time.monotonic()

    def close(self) -> None:
        """Everything is on the disk, unless that has failed before; not used after this."""
        if self._fd >= 0:
            try:
                if not self._failed:
                    self.flush()
                    self.sync()
            finally:
                os.close(self._fd)
                self._fd = -1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> NoReturn:
        self._failed = True
        raise WeftError(
            f"{self.path} cannot be written: {error.strerror}; what is done is safe, resume later"
        ) from None
