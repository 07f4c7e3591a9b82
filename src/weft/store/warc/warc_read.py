"""Reads WARC files: one record at an offset, or all complete ones of a file, skipping what is damaged.

Called by the page store, by repair and by rebuild. Reads what any writer of gzip-per-record WARC wrote, not only ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

from weft.store.errors import StoreError, UnreadableData
from weft.store.repair.damage import BROKEN, GZIP, Gap, find_runs, own_runs, writer_of

HEAD_BYTES = 1 << 20  # of a record, in which the heads of the record and of the response lie
_CHUNK = 1 << 18
_HEAD_END = re.compile(rb"\r?\n\r?\n")


@dataclass(frozen=True, slots=True)
class Http:
    """A response or request as stored: header names and values in order, duplicates kept, the body as received."""

    start: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def get(self, name: str) -> str | None:
        """The first value of a header."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    @property
    def content_encoding(self) -> str:
        """The codings of the body in the order they were applied, on however many lines; empty if there are none."""
        return ", ".join(value for key, value in self.headers if key.lower() == "content-encoding")


@dataclass(frozen=True, slots=True)
class WarcRecord:
    """One WARC record; header names are lower case."""

    headers: dict[str, str]
    block: bytes

    @property
    def kind(self) -> str:
        """`response`, `request`, `warcinfo`, `revisit`, ..."""
        return self.headers.get("warc-type", "")

    @property
    def head(self) -> bytes:
        """The HTTP head, with the empty line that ends it."""
        end = _HEAD_END.search(self.block)
        return self.block[: end.end()] if end else self.block

    def http(self) -> Http:
        """The block as an HTTP message."""
        end = _HEAD_END.search(self.block)
        head, body = (self.block[: end.start()], self.block[end.end() :]) if end else (self.block, b"")
        start, *lines = head.decode("latin-1").splitlines() or [""]
        pairs = (line.partition(":") for line in lines)
        return Http(start, _status(start), tuple((name.strip(), value.strip()) for name, _, value in pairs), body)


@dataclass(frozen=True, slots=True)
class Located:
    """A record and the position of its gzip member."""

    offset: int
    length: int
    record: WarcRecord


def read_record(path: Path, offset: int, length: int) -> WarcRecord:
    """The record in the gzip member at a position; Unreadable if there is none."""
    try:
        with path.open("rb", buffering=0) as file:
            member = os.pread(file.fileno(), length, offset)
    except OSError as error:
        raise UnreadableData(path, f"cannot be read: {error.strerror}") from error
    try:
        if len(member) < length:
            raise ValueError(f"the file ends {length - len(member)} bytes early")
        return parse(isal_zlib.decompress(member, GZIP))
    except BROKEN as error:
        raise UnreadableData(path, f"no WARC record at {offset}: {error}") from error


def read_records(path: Path, offset: int, length: int) -> list[WarcRecord]:
    """The records in consecutive gzip members at a position; Unreadable if one is damaged."""
    try:
        with path.open("rb", buffering=0) as file:
            left = os.pread(file.fileno(), length, offset)
    except OSError as error:
        raise UnreadableData(path, f"cannot be read: {error.strerror}") from error
    found: list[WarcRecord] = []
    try:
        if len(left) < length:
            raise ValueError(f"the file ends {length - len(left)} bytes early")
        while left:
            inflate = isal_zlib.decompressobj(wbits=GZIP)
            data = inflate.decompress(left)
            if not inflate.eof:
                raise ValueError("a member ends early")
            found.append(parse(data))
            left = inflate.unused_data
    except BROKEN as error:
        raise UnreadableData(path, f"no WARC records at {offset}: {error}") from error
    return found


def http_head(path: Path, fd: int, offset: int, length: int) -> bytes:
    """The head of the response in a record, which is read to its end: Unreadable if it is damaged."""
    inflate, data, at = isal_zlib.decompressobj(wbits=GZIP), b"", 0
    try:
        while not inflate.eof:
            chunk = os.pread(fd, min(_CHUNK, length - at), offset + at)
            at += len(chunk)
            if not chunk:
                raise ValueError("the member ends early")
            found = inflate.decompress(chunk)
            data = data + found if len(data) < HEAD_BYTES else data
        version, _, rest = data.partition(b"\r\n\r\n")
        end = _HEAD_END.search(rest)
        if not version.startswith(b"WARC/") or end is None:
            raise ValueError("no response")
    except OSError as error:
        raise UnreadableData(path, f"cannot be read: {error.strerror}") from error
    except BROKEN as error:
        raise UnreadableData(path, f"no WARC record at {offset}: {error}") from error
    return rest[: end.end()]


def parse(data: bytes) -> WarcRecord:
    """Parses a decompressed record; ValueError if it is invalid."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found or not head.startswith(b"WARC/"):
        raise ValueError("no WARC header")
    headers = headers_of(head)
    length = int(headers.get("content-length", "-1"))
    if length < 0 or len(rest) < length:
        raise ValueError("the block is shorter than its Content-Length")
    return WarcRecord(headers, rest[:length])


def headers_of(head: bytes) -> dict[str, str]:
    """The headers of a record by their names in lower case; its first line is the version."""
    pairs = (line.partition(":") for line in head.decode("utf-8", "replace").split("\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


class WarcScan:
    """Iterates over a file's complete records, in constant memory; damaged stretches between them are skipped.

    Afterwards `end` is the offset after the last complete record, `torn` is True if anything follows it, and `gaps` are
    the damaged stretches before it. `start` must be where a record begins; `known`: whether an index has a row at an
    offset (see `damage`).
    """

    def __init__(self, path: Path, start: int = 0, known: Callable[[int], bool] = lambda _offset: False) -> None:
        self.path = path
        self.end = start
        self.torn = False
        self.gaps: list[Gap] = []
        self._known = known
        self._writers: set[str] = set()

    def __iter__(self) -> Iterator[Located]:
        with _opened(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            yield from self._records(file, size)
            if self.end >= size:
                return
            for run in own_runs(find_runs(file, self.end + 1, self._known), self._writers, size):
                self.gaps.append(Gap(self.end, run.begin - self.end))
                self.end = run.begin
                yield from self._records(file, run.end)
            self.torn = self.end < size

    def _records(self, file: BinaryIO, upto: int) -> Iterator[Located]:
        """The records from `end` on, to the first break or to an offset."""
        file.seek(self.end)
        kept = b""
        while self.end < upto:
            data, kept, used = _member(file.read, kept)
            if data is None:
                return
            try:
                record = parse(data)
            except ValueError:
                return
            self._writers.add(writer_of(record.headers.get("warc-record-id", "")))
            self.end += used
            yield Located(self.end - used, used, record)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The open file; StoreError, not damage, if it cannot be opened: that proves nothing about its content."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise StoreError(path, f"cannot be read: {error.strerror}") from error


def _member(read: Callable[[int], bytes], kept: bytes) -> tuple[bytes | None, bytes, int]:
    """The next member's content (None if it is incomplete), the bytes read beyond it, and its size."""
    inflate = isal_zlib.decompressobj(wbits=GZIP)
    parts = []
    used = 0
    while not inflate.eof:
        chunk = kept or read(_CHUNK)
        kept = b""
        if not chunk:
            return None, b"", used
        used += len(chunk)
        try:
            parts.append(inflate.decompress(chunk))
        except BROKEN:
            return None, b"", used
    rest: bytes = inflate.unused_data
    return b"".join(parts), rest, used - len(rest)


def _status(start: str) -> int:
    words = start.split(None, 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith("HTTP/") and words[1].isdigit() else 0
