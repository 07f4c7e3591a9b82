"""The list of swapped-out sites on the disk, with the time at which each is due: a full copy, followed by changes.

    FOLDER/sites-NUMBER    records: length (4 bytes), checksum (8 bytes), content; see `Resting.load`

A checkpoint names the file and its valid length: what a process appended before it died without a checkpoint is cut off
by the next. A new file begins when the changes have become as many as the sites, so that what is written in all is a
few times what has changed, and what a start has to apply is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from xxhash import xxh3_64_digest

from weft.alive import Alive
from weft.errors import writing
from weft.frontier.scheduling.swapped_sites import CHANGE_BYTES, SwappedSites

_CHECKSUM_BYTES = 8
_HEAD_BYTES = 4 + _CHECKSUM_BYTES
_RECORD_BYTES = 40_000 * CHANGE_BYTES  # bytes of changes in one record
_FEW, _MANY = 10_000, 2_000_000  # changes: fewer are always appended, more never (2 s to apply)


class SwapPosition(Struct, array_like=True):
    """The valid part of a swap file, as a checkpoint names it."""

    number: int = 0  # of the file; 0: there is none
    length: int = 0  # bytes that count


class SwapFile:
    """Writes the list of swapped-out sites."""

    def __init__(self, folder: Path, swapped: SwappedSites) -> None:
        self._folder = folder
        self._swapped = swapped
        self._saved_position = SwapPosition()  # as the last checkpoint on the disk names it
        self._change_bytes = 0  # bytes of changes in the file
        self._being_written = (
            SwapPosition(),
            0,
            False,
        )  # of the checkpoint that is being written: file, changes, is it whole
        self.bytes_written = 0

    def begin_checkpoint(self) -> Callable[[], SwapPosition]:
        """Begins a checkpoint of this moment; returns a function that writes the list."""
        changes = len(self._swapped.changes)
        most = CHANGE_BYTES * min(_MANY, max(_FEW, len(self._swapped)))
        is_whole = not self._saved_position.number or self._change_bytes + changes > most or self._swapped.hurried
        self._swapped.hurried = False
        at = SwapPosition(self._saved_position.number + 1, 0) if is_whole else self._saved_position
        self._being_written = (at, changes, is_whole)
        records = self._swapped.dump() if is_whole else _records_of(bytes(self._swapped.changes))
        return lambda: _append_records(self._file_path(at.number), at, records)

    def end_checkpoint(self, *, was_written: bool) -> None:
        """That checkpoint is on the disk, or was given up."""
        at, changes, is_whole = self._being_written
        if not was_written:
            self._swapped.hurried = self._swapped.hurried or is_whole
            return
        length = self._file_path(at.number).stat().st_size
        self.bytes_written += length - at.length
        self._saved_position = SwapPosition(at.number, length)
        self._change_bytes = 0 if is_whole else self._change_bytes + changes
        del self._swapped.changes[:changes]
        self._delete_other_files()

    def restore(self, at: SwapPosition, alive: Alive) -> bool:
        """Restores the swapped-out sites of a checkpoint; False if the file differs from what was written."""
        try:
            for record in _read_records(self._file_path(at.number), at.length):
                self._swapped.load(record)
                alive()
        except (OSError, EOFError, ValueError, TypeError, msgspec.DecodeError):
            self._swapped.clear()
            return False
        self._saved_position = at
        self._change_bytes = self._swapped.replayed
        return True

    def _file_path(self, number: int) -> Path:
        return self._folder / f"sites-{number}"

    def _delete_other_files(self) -> None:
        for path in self._folder.glob("sites-*"):
            if path != self._file_path(self._saved_position.number):
                path.unlink(missing_ok=True)


def delete_swap_files(folder: Path) -> None:
    """Deletes all swap files."""
    for path in folder.glob("sites-*"):
        path.unlink(missing_ok=True)


def _records_of(changes: bytes) -> Iterator[bytes]:
    for at in range(0, len(changes), _RECORD_BYTES):
        yield SwappedSites.change_record(changes[at : at + _RECORD_BYTES])


def _append_records(path: Path, at: SwapPosition, records: Iterator[bytes]) -> SwapPosition:
    """Appends records behind the valid part of a file, and syncs them."""
    with writing(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.truncate(at.length)
            file.seek(at.length)
            for record in records:
                file.write(len(record).to_bytes(4, "little") + xxh3_64_digest(record, file.tell()) + record)
            file.flush()
            os.fsync(fd)
            return SwapPosition(at.number, file.tell())


def _read_records(path: Path, length: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while (at := file.tell()) < length:
            head = file.read(_HEAD_BYTES)
            record = file.read(int.from_bytes(head[:4], "little"))
            if xxh3_64_digest(record, at) != head[4:] or file.tell() > length:
                raise EOFError
            yield record
