"""A high-water mark beside a pod's journal: it shows whether the journal has lost transactions.

    FOLDER/frontier.mark   two records of 48 bytes, written in turn: boot id, commits, durable commits, checksum

`commits` counts the journal's transactions, and the journal counts them too. A kill costs none: in the same boot of the
machine the journal must have them all. A power cut may cost the last ones, but none that were synced (`durable`). A
journal that has fewer was cut, replaced or deleted.

A shared mapping, so that a killed process leaves it as it was; a record that was half written then, or is damaged, is
recognised by its checksum, and the other one, which is a commit older, is used.
"""

from __future__ import annotations

import mmap
import os
import struct
from hashlib import sha256
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from weft.frontier.requests import boot_id

_MARK_FIELDS = struct.Struct("<16sQQ")
_RECORD_BYTES = 48  # bytes; the fields and their checksum need 36


class MarkFields(Struct, frozen=True):
    """The content of a mark file."""

    boot: bytes
    commits: int
    durable: int


class MarkFile:
    """A mark file; one writer, which holds the frontier's lock."""

    def __init__(self, path: Path) -> None:
        self.earlier_mark = read_mark(path)
        self._boot = _boot_digest()
        self._next_record = 0
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, 2 * _RECORD_BYTES)
            self._map = mmap.mmap(fd, 2 * _RECORD_BYTES)
        finally:
            os.close(fd)

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine is known not to have restarted since the mark was written."""
        return self.earlier_mark is not None and self.earlier_mark.boot == self._boot != _UNKNOWN_BOOT

    def write(self, commits: int, durable: int) -> None:
        """Records how many transactions the operating system has, and how many of them are on the disk."""
        fields = _MARK_FIELDS.pack(self._boot, commits, durable)
        at = self._next_record * _RECORD_BYTES
        self._map[at : at + len(fields) + 4] = fields + crc32(fields).to_bytes(4, "little")
        self._next_record = 1 - self._next_record

    def close(self) -> None:
        """Unmaps the file."""
        self._map.close()


def read_mark(path: Path) -> MarkFields | None:
    """The newer valid record; None if there is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    valid_records = []
    for at in (0, _RECORD_BYTES):
        fields, sum_ = data[at : at + _MARK_FIELDS.size], data[at + _MARK_FIELDS.size : at + _MARK_FIELDS.size + 4]
        if len(sum_) == 4 and crc32(fields).to_bytes(4, "little") == sum_:
            valid_records.append(MarkFields(*_MARK_FIELDS.unpack(fields)))
    return max(valid_records, key=lambda mark: (mark.commits, mark.durable), default=None)


_UNKNOWN_BOOT = sha256(b"unknown").digest()[:16]


def _boot_digest() -> bytes:
    return sha256(boot_id().encode()).digest()[:16]
