"""Appends to WARC files: whole batches, or nothing.

Must stay true: a file never holds half a batch while the process lives (what a full disk left is cut back), an existing
file is never overwritten, and `length` is the end of the last whole batch. What is beyond the length that the index has
committed has no rows, and is cut when the store is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from weft.errors import BadInput
from weft.files import sync_folder
from weft.store.errors import StoreError, convert_write_errors
from weft.store.warc.members import LargeMember

ROTATE_BYTES = 1 << 30

_FILE_NAME = re.compile(r"(?:\d+/)?weft-.+-(\d{5,})\.warc\.gz\Z").match
_SLOT_IN_NAME = re.compile(r"(?:\d+/)?weft-[A-Za-z0-9._]*-(.+)-\d{5,}\.warc\.gz\Z").match
_UNFIT_CHARS = re.compile(r"[^A-Za-z0-9._]+")


class WarcFile:
    """One file that is being appended to."""

    def __init__(self, path: Path, length: int) -> None:
        """Opens the file at its committed length; a file that is new to the index (length 0) must not exist yet."""
        self.path = path
        self.length = length
        with convert_write_errors(path):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)  # cookies and logins may be in it
        try:
            self._check_length()
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, chunks: Iterable[bytes | LargeMember]) -> int:
        """Writes all of the chunks and returns their offset; if that fails, the file is unchanged."""
        begin = at = self.length
        try:
            with convert_write_errors(self.path):
                for data in _join_chunks(chunks):
                    self._write_at(data, at)
                    at += len(data)
        except BaseException:
            os.ftruncate(self._fd, begin)
            raise
        self.length = at
        return begin

    def sync(self) -> None:
        """Makes appended bytes durable."""
        with convert_write_errors(self.path):
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Closes the file; `sync` first."""
        os.close(self._fd)

    def _check_length(self) -> None:
        with convert_write_errors(self.path):
            size = os.fstat(self._fd).st_size
            if size == 0:
                sync_folder(self.path.parent)
        if size != self.length:
            raise StoreError(self.path, f"holds {size} bytes, the index has {self.length}")

    def _write_at(self, data: bytes, at: int) -> None:
        done = os.pwrite(self._fd, data, at)
        while done < len(data):  # a disk that fills up accepts a part first, then fails
            done += os.pwrite(self._fd, data[done:], at + done)


def _join_chunks(chunks: Iterable[bytes | LargeMember]) -> Iterator[bytes]:
    """The chunks, joined to be written at once; a large member comes in pieces between them."""
    waiting: list[bytes] = []
    for chunk in chunks:
        if isinstance(chunk, bytes):
            waiting.append(chunk)
            continue
        yield b"".join(waiting)
        waiting.clear()
        yield from chunk.pieces()
    yield b"".join(waiting)


def warc_name(crawl_id: str, slot: str, serial: int) -> str:
    """`weft-{crawl}-{pod}-{process}-{serial}.warc.gz`: unique over the data dirs, so that files can be put together."""
    return f"weft-{_UNFIT_CHARS.sub('_', crawl_id)}-{slot}-{serial:05d}.warc.gz"


def warc_serial(name: str) -> int:
    """The serial in a file's name; -1 for a foreign name."""
    match = _FILE_NAME(name)
    return int(match[1]) if match else -1


def crawl_of_file(name: str) -> int:
    """The crawl of a file, by its folder."""
    return int(name.partition("/")[0])


def slot_of_file(name: str) -> str:
    """The slot in a file's name; empty for a foreign name. A crawl's id has no dash in a name."""
    match = _SLOT_IN_NAME(name)
    return match[1] if match else ""


def files_in(folder: Path) -> list[str]:
    """The names of all files, which lie in a folder for each crawl (`7/weft-....warc.gz`)."""
    return [str(path.relative_to(folder)) for path in folder.glob("*/weft-*.warc.gz")]


def files_of(folder: Path, crawl_id: str, slot: str) -> list[str]:
    """The names of a slot's files in a folder, oldest first."""
    ours = ((warc_serial(name), name) for name in files_in(folder))
    return [
        name
        for serial, name in sorted(ours)
        if serial >= 0 and name.rpartition("/")[2] == warc_name(crawl_id, slot, serial)
    ]


def check_slot(slot: str) -> None:
    """Checks a slot's name, which is a part of file names."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", slot):
        raise BadInput(f"slot {slot!r}: use letters, digits, '.', '_' and '-'")
