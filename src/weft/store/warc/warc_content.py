"""The content of a WARC file as one stream of bytes, compressed or not, with the position in the file of each byte.

gzip files are read member by member: a tool may have made one for each record, one for the whole file, or cut them
anywhere. A byte's position is the offset of its member, and the length of the member's content before it; so a record
at the beginning of a member can be read without earlier bytes.

Must stay true: memory does not grow with the file, nor with what a hostile file unpacks to.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from isal import isal_zlib

from weft.errors import BadInput
from weft.store.errors import StoreError
from weft.store.repair.damage import DECODING_ERRORS, GZIP_MAGIC, GZIP_WBITS

_CHUNK_BYTES = 1 << 16
_MOST_OUT_BYTES = 1 << 17  # of the output of one step
_ZSTD_MAGICS = (b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18")


class TornContent(StoreError):
    """The content cannot be read beyond `offset`: the file ends early, or its bytes are damaged."""

    def __init__(self, path: Path, offset: int, detail: str) -> None:
        super().__init__(path, detail)
        self.offset = offset
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ContentPosition:
    """The position of a record: the offset of its gzip member, and the offset inside the member's content."""

    offset: int
    inside: int = 0


class PlainContent:
    """A file that is not compressed."""

    def __init__(self, path: Path, file: BinaryIO, offset: int) -> None:
        self.path = path
        self.buffer = b""
        self._file = file
        self._at = offset
        file.seek(offset)

    def position(self) -> ContentPosition:
        """The position of the first byte that was not consumed."""
        return ContentPosition(self._at)

    def fill(self) -> bool:
        """Adds to the buffer; False at the end of the file."""
        more = self._file.read(_CHUNK_BYTES)
        self.buffer += more
        return bool(more)

    def consume(self, count: int) -> bytes:
        """Consumes bytes of the buffer."""
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        self._at += len(taken)
        return taken


class GzipContent:
    """A file of gzip members."""

    def __init__(self, path: Path, file: BinaryIO, offset: int) -> None:
        self.path = path
        self.buffer = b""
        self._file = file
        file.seek(offset)
        self._read = offset  # offset in the file, up to which the decoder has input
        self._input = b""
        self._inflate: Any = None
        self._position = 0  # position in the content of the first byte that was not consumed
        self._unpacked = 0
        self._members: deque[tuple[int, int]] = deque()  # content positions and offsets of members from there on

    def position(self) -> ContentPosition:
        """The position of the first byte that was not consumed."""
        while len(self._members) > 1 and self._members[1][0] <= self._position:
            self._members.popleft()
        if not self._members or (not self.buffer and self._inflate is None):
            return ContentPosition(self._read - len(self._input))
        start, offset = self._members[0]
        return ContentPosition(offset, self._position - start)

    def fill(self) -> bool:
        """Adds to the buffer; False at the end of the file. Raises TornContent."""
        self._input = self._input or self._read_input()
        at_end = not self._input
        if at_end and self._inflate is None:
            return False
        if self._inflate is None:
            self._begin_member()
        # The decoder may hold back output beyond one step, and the last bytes of the file with it.
        if not self._unpack_some() and at_end and self._inflate is not None:
            raise TornContent(self.path, self._members[-1][1], "the file ends in the middle of a record")
        return True

    def consume(self, count: int) -> bytes:
        """Consumes bytes of the buffer."""
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        self._position += len(taken)
        return taken

    def _read_input(self) -> bytes:
        data = self._file.read(_CHUNK_BYTES)
        self._read += len(data)
        return data

    def _begin_member(self) -> None:
        offset = self._read - len(self._input)
        if len(self._input) < len(GZIP_MAGIC):
            self._input += self._read_input()
        if not self._input.startswith(GZIP_MAGIC):
            raise TornContent(self.path, offset, "there is no gzip member")
        self._inflate = isal_zlib.decompressobj(wbits=GZIP_WBITS)
        self._members.append((self._unpacked, offset))

    def _unpack_some(self) -> bool:
        """Unpacks some of the input; False if that gave no output."""
        inflate = self._inflate
        try:
            out = inflate.decompress(self._input, _MOST_OUT_BYTES)
        except DECODING_ERRORS as error:
            raise TornContent(self.path, self._members[-1][1], f"damaged: {error}") from error
        self._unpacked += len(out)
        self.buffer += out
        if inflate.eof:
            self._input, self._inflate = inflate.unused_data, None
        else:
            self._input = inflate.unconsumed_tail
        return bool(out)


Content = PlainContent | GzipContent


def content_of(path: Path, file: BinaryIO, offset: int = 0) -> Content:
    """The content of a file from a member on, or from any byte of a plain one; BadInput for a file that is not WARC."""
    file.seek(0)
    first = file.read(len(GZIP_MAGIC) + 4)
    if first.startswith(GZIP_MAGIC):
        return GzipContent(path, file, offset)
    if first.startswith(b"WARC/"):
        return PlainContent(path, file, offset)
    if not first:
        raise BadInput(f"{path} is empty")
    if first.startswith(_ZSTD_MAGICS) or first[1:4] == _ZSTD_MAGICS[1]:
        raise BadInput(f"{path} is compressed with zstd, which is not read: unpack it first, with `zstd -d`")
    raise BadInput(f"{path} is no WARC file: it begins with {first[:5]!r}, not with `WARC/` or a gzip member")
