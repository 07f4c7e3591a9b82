"""WARC: copies the gzip members of the selected pages' records, request and response.

The bytes are those of the crawl, in which credentials are masked. A page whose record is damaged is `UnreadableData`,
and nothing of it is copied. Pages come in the order of the crawl's files. With a maximum size the output is a folder of
files, each complete in itself; a file is longer only where one page alone is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

from weft.records import Row
from weft.store.errors import UnreadableData, convert_write_errors
from weft.store.export.part import ExportPart, PartState, StreamOutput
from weft.store.repair.damage import DECODING_ERRORS, GZIP_WBITS
from weft.store.warc.warc_read import parse_record
from weft.store.warc.warc_records import RecordMaker

MOST_REQUEST_BYTES = 1 << 20  # bytes of a request's record
_GZIP_MAGIC = b"\x1f\x8b\x08"


class RecordLocator:
    """Reads rows in the order of the files, and finds the request of each.

    `at` is the file that was read last and the end of the last row's record in it; the bytes up to the next row's
    record are that row's request, and records without a row.
    """

    def __init__(self, warc_path: Callable[[Row], Path], at: tuple[str, int] = ("", 0)) -> None:
        self._warc_path = warc_path
        self.at = at
        self._path: Path | None = None
        self._fd = -1

    def skip(self, row: Row) -> None:
        """Skips a row without reading it."""
        self.at = (row.warc_file, row.warc_offset + row.warc_length + row.rendered)

    def members_of(self, row: Row) -> bytes:
        """The row's request, if there is one, its response, and the records of its rendering."""
        file, end = self.at
        begin = min(end if file == row.warc_file else 0, row.warc_offset)
        begin = max(begin, row.warc_offset - MOST_REQUEST_BYTES)
        self.skip(row)
        page = self._read_at(row, row.warc_offset, row.warc_length)
        try:
            parse_record(isal_zlib.decompress(page, GZIP_WBITS))
        except DECODING_ERRORS as error:
            path = self._warc_path(row)
            raise UnreadableData(path, f"no WARC record at {row.warc_offset}: {error}") from error
        before = self._read_at(row, begin, row.warc_offset - begin)
        rendered = self._read_at(row, row.warc_offset + row.warc_length, row.rendered) if row.rendered else b""
        return _last_request(before) + page + rendered

    def close(self) -> None:
        """Closes the file that is open."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._path = -1, None

    def _read_at(self, row: Row, offset: int, length: int) -> bytes:
        path = self._warc_path(row)
        if path != self._path:
            self.close()
            try:
                self._fd, self._path = os.open(path, os.O_RDONLY | os.O_CLOEXEC), path
            except OSError as error:
                raise UnreadableData(path, f"cannot be read: {error.strerror}") from error
        data = os.pread(self._fd, length, offset)
        if len(data) < length:
            raise UnreadableData(path, f"ends {length - len(data)} bytes before the record at {offset} does")
        return data


class WarcFiles:
    """Writes records into PATH.part, or with `max_bytes` into files of that size in it."""

    def __init__(self, part: ExportPart, state: PartState, info: Mapping[str, str], max_bytes: int | None) -> None:
        self._part, self._info, self._max_bytes = part, info, max_bytes
        self._maker = RecordMaker()
        self._serial = state.pieces
        self._length, self._has_pages = 0, False
        if max_bytes is not None:
            for path in part.path.iterdir():
                if path.name > self._file_path().name:
                    path.unlink()
        self._open_file(state.length)

    def write(self, members: bytes) -> None:
        """Appends a page's records."""
        too_long = self._max_bytes is not None and self._length + len(members) > self._max_bytes
        with convert_write_errors(self._part.path):
            if too_long and self._has_pages:
                self._sync_file()
                self._file.close()
                self._serial += 1
                self._open_file(0)
            self._file.write(members)
        self._length += len(members)
        self._has_pages = True

    def save(self, state: PartState) -> bool:
        """Makes what was written durable."""
        with convert_write_errors(self._part.path):
            self._sync_file()
        state.length, state.pieces = self._length, self._serial
        return True

    def finish(self) -> Path | None:
        """Renames the output to its final name."""
        with convert_write_errors(self._part.path):
            self._sync_file()
        self.close()
        self._part.finish()
        return self._part.final

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _open_file(self, length: int) -> None:
        path = self._file_path()
        path.touch()
        self._file = path.open("r+b", buffering=1 << 18)
        self._file.truncate(length)
        self._file.seek(length)
        self._length, self._has_pages = length, length > 0
        if length == 0:
            name = self._part.final.name if self._max_bytes is None else path.name
            self._length = self._file.write(self._maker.info(name, self._info))

    def _file_path(self) -> Path:
        if self._max_bytes is None:
            return self._part.path
        return self._part.path / f"{self._part.final.name}-{self._serial:05d}.warc.gz"

    def _sync_file(self) -> None:
        self._file.flush()
        os.fdatasync(self._file.fileno())


class WarcStream(StreamOutput):
    """Writes records to a stream."""

    def __init__(self, out: BinaryIO, info: Mapping[str, str]) -> None:
        super().__init__(out)
        out.write(RecordMaker().info("-", info))

    def write(self, members: bytes) -> None:
        """Appends a page's records."""
        self._out.write(members)


def _last_request(before: bytes) -> bytes:
    """The last member of the bytes before a response, if it is a request. It is searched from the end, since earlier
    bytes may be damaged.
    """
    at = before.rfind(_GZIP_MAGIC)
    while at >= 0:
        inflate = isal_zlib.decompressobj(wbits=GZIP_WBITS)
        try:
            content = inflate.decompress(before[at:])
            if inflate.eof and not inflate.unused_data and parse_record(content).kind == "request":
                return before[at:]
        except DECODING_ERRORS:
            pass
        if len(before) - at > MOST_REQUEST_BYTES:
            return b""
        at = before.rfind(_GZIP_MAGIC, 0, at)
    return b""
