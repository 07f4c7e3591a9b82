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
from weft.store.repair.damage import DECODING_ERRORS, GZIP_WBITS, DamageGap, find_runs, runs_of_file, writer_of

HEAD_BYTES = 1 << 20  # of a record, in which the heads of the record and of the response lie
_CHUNK_BYTES = 1 << 18
_HEAD_END_PATTERN = re.compile(rb"\r?\n\r?\n")


@dataclass(frozen=True, slots=True)
class HttpMessage:
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
        end = _HEAD_END_PATTERN.search(self.block)
        return self.block[: end.end()] if end else self.block

    def http(self) -> HttpMessage:
        """The block as an HTTP message."""
        end = _HEAD_END_PATTERN.search(self.block)
        head, body = (self.block[: end.start()], self.block[end.end() :]) if end else (self.block, b"")
        start, *lines = head.decode("latin-1").splitlines() or [""]
        pairs = (line.partition(":") for line in lines)
        return HttpMessage(
            start, _status_in(start), tuple((name.strip(), value.strip()) for name, _, value in pairs), body
        )


@dataclass(frozen=True, slots=True)
class LocatedRecord:
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
        return parse_record(isal_zlib.decompress(member, GZIP_WBITS))
    except DECODING_ERRORS as error:
        raise UnreadableData(path, f"no WARC record at {offset}: {error}") from error


def read_records(path: Path, offset: int, length: int) -> list[WarcRecord]:
    """The records in consecutive gzip members at a position; Unreadable if one is damaged."""
    try:
        with path.open("rb", buffering=0) as file:
            left = os.pread(file.fileno(), length, offset)
    except OSError as error:
        raise UnreadableData(path, f"cannot be read: {error.strerror}") from error
    records: list[WarcRecord] = []
    try:
        if len(left) < length:
            raise ValueError(f"the file ends {length - len(left)} bytes early")
        while left:
            inflate = isal_zlib.decompressobj(wbits=GZIP_WBITS)
            data = inflate.decompress(left)
            if not inflate.eof:
                raise ValueError("a member ends early")
            records.append(parse_record(data))
            left = inflate.unused_data
    except DECODING_ERRORS as error:
        raise UnreadableData(path, f"no WARC records at {offset}: {error}") from error
    return records


def http_head(path: Path, fd: int, offset: int, length: int) -> bytes:
    """The head of the response in a record, which is read to its end: Unreadable if it is damaged."""
    inflate, data, at = isal_zlib.decompressobj(wbits=GZIP_WBITS), b"", 0
    try:
        while not inflate.eof:
            chunk = os.pread(fd, min(_CHUNK_BYTES, length - at), offset + at)
            at += len(chunk)
            if not chunk:
                raise ValueError("the member ends early")
            decompressed = inflate.decompress(chunk)
            data = data + decompressed if len(data) < HEAD_BYTES else data
        version, _, rest = data.partition(b"\r\n\r\n")
        end = _HEAD_END_PATTERN.search(rest)
        if not version.startswith(b"WARC/") or end is None:
            raise ValueError("no response")
    except OSError as error:
        raise UnreadableData(path, f"cannot be read: {error.strerror}") from error
    except DECODING_ERRORS as error:
        raise UnreadableData(path, f"no WARC record at {offset}: {error}") from error
    return rest[: end.end()]


def parse_record(data: bytes) -> WarcRecord:
    """Parses a decompressed record; ValueError if it is invalid."""
    head, separator, rest = data.partition(b"\r\n\r\n")
    if not separator or not head.startswith(b"WARC/"):
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
        self.gaps: list[DamageGap] = []
        self._known = known
        self._writers: set[str] = set()

    def __iter__(self) -> Iterator[LocatedRecord]:
        with _open_file(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            yield from self._records_upto(file, size)
            if self.end >= size:
                return
            for run in runs_of_file(find_runs(file, self.end + 1, self._known), self._writers, size):
                self.gaps.append(DamageGap(self.end, run.begin - self.end))
                self.end = run.begin
                yield from self._records_upto(file, run.end)
            self.torn = self.end < size

    def _records_upto(self, file: BinaryIO, upto: int) -> Iterator[LocatedRecord]:
        """The records from `end` on, to the first break or to an offset."""
        file.seek(self.end)
        kept = b""
        while self.end < upto:
            data, kept, used = _read_member(file.read, kept)
            if data is None:
                return
            try:
                record = parse_record(data)
            except ValueError:
                return
            self._writers.add(writer_of(record.headers.get("warc-record-id", "")))
            self.end += used
            yield LocatedRecord(self.end - used, used, record)


@contextmanager
def _open_file(path: Path) -> Iterator[BinaryIO]:
    """The open file; StoreError, not damage, if it cannot be opened: that proves nothing about its content."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise StoreError(path, f"cannot be read: {error.strerror}") from error


def _read_member(read: Callable[[int], bytes], kept: bytes) -> tuple[bytes | None, bytes, int]:
    """The next member's content (None if it is incomplete), the bytes read beyond it, and its size."""
    inflate = isal_zlib.decompressobj(wbits=GZIP_WBITS)
    parts = []
    used = 0
    while not inflate.eof:
        chunk = kept or read(_CHUNK_BYTES)
        kept = b""
        if not chunk:
            return None, b"", used
        used += len(chunk)
        try:
            parts.append(inflate.decompress(chunk))
        except DECODING_ERRORS:
            return None, b"", used
    rest: bytes = inflate.unused_data
    return b"".join(parts), rest, used - len(rest)


def _status_in(start: str) -> int:
    words = start.split(None, 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith("HTTP/") and words[1].isdigit() else 0
