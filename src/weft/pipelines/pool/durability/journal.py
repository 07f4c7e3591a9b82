"""The journal of finished items: blocks of records, appended as they arrive, replayed on a resume.

    "WEFTJNL1" then blocks of  length u32 | crc32 u32 | worker pid u32 | msgpack array of records

Invariants: a result is written to the file (to the operating system, that is) before it is delivered, so a resume knows
everything that a killed parent has delivered; a torn end is cut off on the next opening, and a damaged block
between complete ones is skipped and left in place, both with a warning; fdatasync comes at most once a second and at
the end, so a power cut costs a second.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec
from isal.isal_zlib import crc32

from weft.errors import BadInput, WeftError
from weft.pipelines.pool.record import ResultRecord
from weft.telemetry import Log

_MAGIC = b"WEFTJNL1"
_HEAD_BYTES = 12
_SYNC_EVERY_S = 1.0
_MAX_BLOCK_BYTES = 1 << 27
_BLOCK_HEAD = re.compile(rb"(?=.{3}[\x00-\x08].{4}..[\x00-\x40]\x00[\x90-\x9f\xdc\xdd])", re.DOTALL)
"""The start of a block: a length below _MAX_BLOCK_BYTES, a checksum, a pid, the first byte of a msgpack array."""
_decode = msgspec.msgpack.Decoder(list[ResultRecord]).decode
_log = Log("weft.pipelines")


class Block(NamedTuple):
    """Some records of one worker, and their offset in the file."""

    at: int
    pid: int
    records: list[ResultRecord]


class ResultJournal:
    """The journal of one run. Call `read` to its end first, then append."""

    def __init__(self, path: Path, *, read_only: bool = False, before_sync: Callable[[], None] | None = None) -> None:
        """`before_sync`: called before the journal is synced, to sync the values that its records refer to."""
        self.path = path
        self._read_only = read_only
        self._before_sync = before_sync
        try:
            flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
            self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BadInput(f"{path} cannot be used as a journal: {error.strerror}") from None
        self._waiting: list[bytes] = []
        self._is_dirty = self._failed = False
        self._warned: set[int] = set()
        self._synced_s = time.monotonic()
        head = os.pread(self._fd, len(_MAGIC), 0)
        self.new = len(head) < len(_MAGIC) and _MAGIC.startswith(head)
        """Whether it was just created, or torn before its first bytes were written."""
        if self.new and not read_only:
            self._write_magic()
        elif head != _MAGIC and not self.new:
            os.close(self._fd)
            raise BadInput(f"{path} is not a journal of Weft, or one of another version")

    def _write_magic(self) -> None:
        try:
            os.pwrite(self._fd, _MAGIC, 0)
            os.lseek(self._fd, len(_MAGIC), os.SEEK_SET)
        except OSError as error:
            os.close(self._fd)
            raise WeftError(f"{self.path} cannot be written: {error.strerror}") from None

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return os.fstat(self._fd).st_size

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written to it."""
        return self.size <= len(_MAGIC)

    def read(self) -> Iterator[Block]:
        """Every complete block. What follows the last one is cut off, unless this only reads."""
        at, size = len(_MAGIC), self.size
        while at < size:
            if (block := self.block(at)) is not None:
                yield block[0]
                at = block[1]
            elif (next_block := self._whole_block_behind(at, size)) is not None:
                self._warn_of_damage(at, next_block - at)
                at = next_block
            elif self._read_only:
                return  # the run may be writing it now
            else:
                _log.warning(
                    f"{self.path}: its last {size - at} bytes were torn and were cut off; their items are done again"
                )
                os.ftruncate(self._fd, at)
                break
        os.lseek(self._fd, at, os.SEEK_SET)

    def _warn_of_damage(self, at: int, length: int) -> None:
        """Warns once, however often it is read."""
        if at not in self._warned:
            self._warned.add(at)
            _log.warning(
                f"{self.path}: {length} bytes at {at} are damaged and were skipped; their items are done again"
            )

    def block(self, at: int) -> tuple[Block, int] | None:
        """The block at an offset and the offset of its end; None if there is no complete block."""
        head = os.pread(self._fd, _HEAD_BYTES, at)
        length = int.from_bytes(head[:4], "little")
        if len(head) < _HEAD_BYTES or at + _HEAD_BYTES + length > self.size:
            return None
        data = os.pread(self._fd, length, at + _HEAD_BYTES)
        if crc32(data) != int.from_bytes(head[4:8], "little"):
            return None
        try:
            records = _decode(data)
        except (ValueError, RecursionError):
            return None
        return Block(at, int.from_bytes(head[8:], "little"), records), at + _HEAD_BYTES + length

    def _whole_block_behind(self, at: int, size: int) -> int | None:
        """The offset of the next complete block after a damaged one: where that one's length says, or by a search."""
        end = at + _HEAD_BYTES + int.from_bytes(os.pread(self._fd, 4, at), "little")
        if self.block(end) is not None:
            return end
        with mmap.mmap(self._fd, size, prot=mmap.PROT_READ) as data:
            for head in _BLOCK_HEAD.finditer(data, at + 1):
                if self.block(head.start()) is not None:
                    return head.start()
        return None

    def append(self, pid: int, data: bytes) -> None:
        """Appends records, encoded as one msgpack array; they are in the file after the next `flush`."""
        head = len(data).to_bytes(4, "little") + crc32(data).to_bytes(4, "little") + pid.to_bytes(4, "little")
        self._waiting += (head, data)

    def flush(self) -> None:
        """Writes what was appended to the operating system, and once a second to the disk."""
        if self._waiting:
            self._write(b"".join(self._waiting))
            self._waiting.clear()
            self._is_dirty = True
        if self._is_dirty and time.monotonic() - self._synced_s > _SYNC_EVERY_S:
            self.sync()

    def sync(self) -> None:
        """Makes everything durable."""
        if self._before_sync is not None:
            self._sync_values(self._before_sync)
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._fail(error)
        self._is_dirty = False
        self._synced_s = time.monotonic()

    def _sync_values(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except BaseException:
            self._failed = True
            raise

    def close(self) -> None:
        """Makes everything durable, unless that has failed before, and closes the file."""
        if self._fd >= 0:
            try:
                if not self._failed and not self._read_only:
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
