"""Reads WARC files of any tool: one gzip member for each record, one for all, or no compression; cut or damaged ones
too.

For archives that Weft did not write (its own have an index). A file is scanned once for the positions of its records,
which are then read by position, in any order and process. An unreadable stretch is reported and skipped: the next
record is found by its first bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from weft.store.errors import StoreError, UnreadableData
from weft.store.repair.damage import measure_member, member_starts
from weft.store.warc.warc_content import Content, ContentPosition, GzipContent, TornContent, content_of
from weft.store.warc.warc_read import HEAD_BYTES, WarcRecord, headers_of

BLOCK_START_BYTES = 1024  # of a record's block that a scan keeps
_HEAD_END_PATTERN = re.compile(rb"\r?\n\r?\n")
_RECORD_END = b"\r\n\r\n"
_VERSION = b"WARC/"
_NEXT_RECORD = _RECORD_END + b"WARC/1."
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A complete record: its position, its headers (names in lower case) and how its block begins."""

    place: ContentPosition
    headers: dict[str, str]
    start: bytes


@dataclass(frozen=True, slots=True)
class UnreadableStretch:
    """A stretch of a file in which no record can be read."""

    offset: int
    detail: str


def find_records(path: Path) -> Iterator[FoundRecord | UnreadableStretch]:
    """The records of a file in order, and its damaged stretches; BadInput for a file that is not WARC."""
    try:
        with path.open("rb") as file:
            content: Content | None = content_of(path, file)
            while content is not None:
                try:
                    yield from _records_from(content)
                    return
                except TornContent as torn:
                    yield UnreadableStretch(torn.offset, torn.detail)
                    content = _content_after_damage(content, file, torn.offset)
    except OSError as error:
        raise StoreError(path, f"cannot be read: {error.strerror}") from error


class RecordReader:
    """Reads records by position. The last file is kept open, to continue inside a large member."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._content: Content | None = None
        self._path = Path()

    def read(self, path: Path, place: ContentPosition, limit: int) -> tuple[WarcRecord, bool]:
        """The record at a position, with at most `limit` bytes of its block, and whether there were more;
        Unreadable.
        """
        try:
            content = self._content_at(path, place)
            headers, length = _read_head(content)
            block = _read_bytes(content, min(length, limit))
            if len(block) < min(length, limit):
                raise UnreadableData(path, f"the record at {place.offset} is cut off")
        except TornContent as torn:
            self.close()
            raise UnreadableData(path, f"no WARC record at {place.offset}: {torn.detail}") from torn
        except OSError as error:
            self.close()
            raise UnreadableData(path, f"cannot be read: {error.strerror}") from error
        return WarcRecord(headers, block), length > limit

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
        self._file = self._content = None

    def _content_at(self, path: Path, place: ContentPosition) -> Content:
        content = self._content
        if content is not None and path == self._path and place.inside:
            now = content.position()
            if now.offset == place.offset and now.inside <= place.inside:
                _skip_bytes(content, place.inside - now.inside)
                return content
        if self._file is None or path != self._path:
            self.close()
            self._file, self._path = path.open("rb"), path
        self._content = content = content_of(path, self._file, place.offset)
        _skip_bytes(content, place.inside)
        return content


def _records_from(content: Content) -> Iterator[FoundRecord]:
    """The records from the current position to the end; TornContent at the first damaged one."""
    while _does_record_begin(content):
        place = content.position()
        headers, length = _read_head(content)
        start = _read_bytes(content, min(length, BLOCK_START_BYTES))
        if len(start) + _skip_bytes(content, length - len(start)) < length:
            raise TornContent(content.path, place.offset, "the file ends in the middle of a record")
        record = FoundRecord(place, headers, start)
        try:
            if not _is_block_ended(content):
                raise TornContent(content.path, place.offset, "a record is longer than its Content-Length")
        except TornContent as torn:
            if torn.offset != place.offset or place.inside:
                yield record  # damage comes after it
            raise
        yield record


def _does_record_begin(content: Content) -> bool:
    """Whether a record begins after the empty lines here; False at the end of the content."""
    _skip_to_next(content)
    if content.buffer and not content.buffer.startswith(_VERSION):
        raise TornContent(content.path, content.position().offset, "no WARC record begins here")
    return bool(content.buffer)


def _skip_to_next(content: Content) -> None:
    """Skips empty lines. So a gzip member with one record is read to its end, where its checksum is."""
    while True:
        content.consume(len(content.buffer) - len(content.buffer.lstrip(_RECORD_END)))
        if len(content.buffer) >= len(_VERSION) or not content.fill():
            return


def _is_block_ended(content: Content) -> bool:
    """Whether an empty line, the end of a member or that of the file follows a block."""
    begins = content.position()
    while not content.buffer and content.fill():
        pass
    is_end = content.buffer[:1] in (b"\r", b"\n", b"") or content.position() != begins
    _skip_to_next(content)
    return is_end


def _read_head(content: Content) -> tuple[dict[str, str], int]:
    """The headers of the record that begins here, and the length of its block; TornContent if there are none."""
    place = content.position()
    while (end := _HEAD_END_PATTERN.search(content.buffer)) is None:
        if len(content.buffer) > HEAD_BYTES or not content.fill():
            raise TornContent(content.path, place.offset, "no WARC record begins here")
    head = content.consume(end.end())
    headers = headers_of(head[: end.start()])
    length = headers.get("content-length", "")
    if not head.startswith(_VERSION) or not length.isascii() or not length.isdigit():
        raise TornContent(content.path, place.offset, "a record without a length")
    return headers, int(length)


def _read_bytes(content: Content, count: int) -> bytes:
    """Reads `count` bytes; fewer at the end of the content."""
    while len(content.buffer) < count and content.fill():
        pass
    return content.consume(count)


def _skip_bytes(content: Content, count: int) -> int:
    """Skips `count` bytes, and returns how many there were."""
    left = count
    while left > 0 and (content.buffer or content.fill()):
        left -= len(content.consume(left))
    return count - left


def _content_after_damage(content: Content, file: BinaryIO, offset: int) -> Content | None:
    """The content from the next record after damage; None if there is none."""
    if isinstance(content, GzipContent):
        found = next((start for start in member_starts(file, offset + 1) if measure_member(file, start)), None)
    else:
        found = _next_version_offset(file, offset + 1)
    return None if found is None else type(content)(content.path, file, found)


def _next_version_offset(file: BinaryIO, start: int) -> int | None:
    """The offset of the next record of an uncompressed file."""
    file.seek(start)
    window = b""
    while chunk := file.read(_CHUNK_BYTES):
        window = window[-len(_NEXT_RECORD) :] + chunk
        start += len(chunk)
        if (offset := window.find(_NEXT_RECORD)) >= 0:
            return start - len(window) + offset + len(_RECORD_END)
    return None
