"""How far a pod's journal had come, told by a file beside it: what tells one that has lost something from a whole one.

    FOLDER/frontier.mark   two records of 48 bytes, written in turn: boot id, commits, durable commits, checksum

`commits` counts the journal's transactions, and the journal counts them too. A kill costs none: in the same boot of the
machine the journal must have them all. A power cut may cost the last ones, but none that were synced (`durable`). A
journal that has fewer was cut, replaced or deleted.

A shared mapping, so that a killed process leaves it as it was; a record that was half written then, or is damaged, is
known by its checksum, and the other one, which is a commit older, counts.
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

_FIELDS = struct.Struct("<16sQQ")
_RECORD = 48  # with room


class Marked(Struct, frozen=True):
    """What a mark says."""

    boot: bytes
    commits: int
    durable: int


class Mark:
    """The file; one writer, which holds the frontier's lock."""

    def __init__(self, path: Path) -> None:
        self.earlier = read_mark(path)
        self._boot = _this_boot()
        self._next = 0
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, 2 * _RECORD)
            self._map = mmap.mmap(fd, 2 * _RECORD)
        finally:
            os.close(fd)

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has run on since the mark was written, as far as that can be known."""
        return self.earlier is not None and self.earlier.boot == self._boot != _UNKNOWN

    def write(self, commits: int, durable: int) -> None:
        """So many transactions are in the hands of the operating system, and so many on the disk."""
        fields = _FIELDS.pack(self._boot, commits, durable)
        at = self._next * _RECORD
        self._map[at : at + len(fields) + 4] = fields + crc32(fields).to_bytes(4, "little")
        self._next = 1 - self._next

    def close(self) -> None:
        """Lets the file go; what it says stays."""
        self._map.close()


def read_mark(path: Path) -> Marked | None:
    """What the mark says; None where there is none that can be read."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    found = []
    for at in (0, _RECORD):
        fields, sum_ = data[at : at + _FIELDS.size], data[at + _FIELDS.size : at + _FIELDS.size + 4]
        if len(sum_) == 4 and crc32(fields).to_bytes(4, "little") == sum_:
            found.append(Marked(*_FIELDS.unpack(fields)))
    return max(found, key=lambda mark: (mark.commits, mark.durable), default=None)


_UNKNOWN = sha256(b"unknown").digest()[:16]


def _this_boot() -> bytes:
    return sha256(boot_id().encode()).digest()[:16]
