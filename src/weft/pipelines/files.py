"""Files that a pipeline writes beside its rows: thumbnails, a report page, a data card.

Invariants: a file is there whole or not at all, whatever is killed; no name points out of the output directory, or to a
file that the output itself keeps there. What a killed writer leaves lies in `.parts/`, which the next run empties.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path

import msgspec

from weft.errors import BadInput
from weft.pipelines.pool.worker.item_log import safe_name

PARTS = ".parts"
PARQUET = "parquet"  # the folder of Parquet shards
_SHARD = re.compile(rf"shard-\d+\.[^/]*|{PARQUET}/shard-\d+\.[^/]*")
_RESERVED_NAME = re.compile(rf"{_SHARD.pattern}|manifest\.json|{PARQUET}(/.*)?")
_DIGEST_BYTES = 16


def is_shard(name: str) -> bool:
    """Whether a name in an output is that of a shard."""
    return _SHARD.fullmatch(name) is not None


class WrittenFile(msgspec.Struct, frozen=True, array_like=True):
    """A written file, with its size and digest."""

    name: str
    bytes: int
    digest: str
    """blake2b, 16 bytes, in hexadecimal."""


class RunFiles:
    """Writes files below one directory."""

    __slots__ = ("_folder", "_number", "written")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self.written: dict[str, WrittenFile] = {}
        """What was written through this object, by name."""

    def write(self, name: str, data: bytes | str) -> str:
        """Writes a file, replacing it as a whole; returns its name. Folders in the name are made."""
        with self.create(name) as file:
            file.write(data.encode() if isinstance(data, str) else data)
        return name

    @contextmanager
    def create(self, name: str) -> Iterator[BufferedRandom]:
        """Opens a file for writing; it gets its name at the end of the block, and is deleted if the block raises."""
        path = self.path(name)
        self._number += 1
        part = self._folder / PARTS / f"{os.getpid()}-{id(self):x}-{self._number}"
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("w+b") as file:
                yield file
                file.flush()
                written = WrittenFile(name, file.seek(0, os.SEEK_END), _digest(file))
            path.parent.mkdir(parents=True, exist_ok=True)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        self.written[name] = written

    def path(self, name: str) -> Path:
        """The path of a file of this name."""
        parts = name.split("/")
        if "\0" in name or not all(parts) or any(part.startswith(".") for part in parts):
            raise BadInput(f"{name!r} cannot be a file of the output: write a relative path without `.` and `..`")
        if _RESERVED_NAME.fullmatch(name):
            raise BadInput(f"{name!r} cannot be a file of the output: the output itself has files of that name")
        return self._folder / name

    def name_for(self, item_id: str | int, suffix: str = "") -> str:
        """A safe file name for an item, different for different ids: `thumbnails/` + it + `.png`."""
        return safe_name(item_id) + suffix

    def holds(self, file: WrittenFile) -> bool:
        """Whether a file exists, with the size that it had when it was written."""
        try:
            return self.path(file.name).stat().st_size == file.bytes
        except OSError:
            return False


def _digest(file: BufferedRandom) -> str:
    file.seek(0)
    return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
