"""Large seed files in a crawl's folder: copied once, compressed in pieces of complete lines, readable from any piece
on.

    DATA/seeds-N.pack   consecutive pieces: length, bytes of text before it, lines before it; its lines (zlib)

The line of seeds.txt that names a stream has the file's length and digest, and is covered by the digest of seeds.txt;
each piece has its checksum. So a stream that is missing, truncated or changed is detected as damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct

import msgspec
from isal import isal_zlib
from xxhash import xxh3_128

from weft.errors import Damaged, unreadable, writing
from weft.files import sync_folder

_PIECE_HEAD = Struct("<IQQ")
_STREAM_PREFIX = "# stream "
_BLOCK_BYTES = 1024 * 1024


class SeedStream(msgspec.Struct, frozen=True):
    """One large seed file."""

    name: str
    bytes: int  # of the file in the folder
    digest: str  # of that file
    text: str  # the digest of the lines
    text_bytes: int

    def line(self) -> str:
        """The line in seeds.txt that names it."""
        return _STREAM_PREFIX + msgspec.json.encode(self).decode()


class StreamPosition(msgspec.Struct, frozen=True):
    """A position in a stream: the next piece, and the lines of it that are done."""

    at: int = 0
    lines: int = 0


class Piece(msgspec.Struct, frozen=True):
    """Some lines, and the number of bytes and lines before them."""

    lines: list[str]
    at: int
    end: int
    text_before: int
    lines_before: int


def streams_in(lines: Iterable[str]) -> list[SeedStream]:
    """The streams that lines of seeds.txt name."""
    named = (line for line in lines if line.startswith(_STREAM_PREFIX))
    return [msgspec.json.decode(line.removeprefix(_STREAM_PREFIX), type=SeedStream) for line in named]


def write_stream(path: Path, pieces: Iterable[bytes]) -> SeedStream:
    """Copies lines into a new file, which is on the disk when this returns."""
    digest, text, size, before, lines = xxh3_128(), xxh3_128(), 0, 0, 0
    with writing(path):
        path.unlink(missing_ok=True)  # it may be a link to another file
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            for piece in pieces:
                body = isal_zlib.compress(piece, 1)
                data = _PIECE_HEAD.pack(len(body), before, lines) + body
                file.write(data)
                digest.update(data)
                text.update(piece)
                size += len(data)
                before += len(piece)
                lines += piece.count(b"\n")
            file.flush()
            os.fsync(fd)
        sync_folder(path.parent)
    return SeedStream(path.name, size, digest.hexdigest(), text.hexdigest(), before)


def check_stream(folder: Path, stream: SeedStream, remedy: str) -> None:
    """Raises Damaged if a stream is not intact."""
    path, digest = folder / stream.name, xxh3_128()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except FileNotFoundError:
        raise Damaged(path, "is missing", remedy) from None
    except OSError as error:
        raise unreadable(path, error, remedy) from None
    if digest.hexdigest() != stream.digest:
        raise Damaged(path, "has changed since it was written", remedy)


def read_pieces(folder: Path, stream: SeedStream, remedy: str, at: int = 0) -> Iterator[Piece]:
    """Pieces of complete lines, from the piece at this offset on."""
    path = folder / stream.name
    try:
        with path.open("rb") as file:
            file.seek(at)
            while head := file.read(_PIECE_HEAD.size):
                size, text_before, lines_before = _PIECE_HEAD.unpack(head)
                text = isal_zlib.decompress(file.read(size)).decode("utf-8-sig" if not at else "utf-8", "replace")
                end = at + _PIECE_HEAD.size + size
                yield Piece(text.split("\n")[:-1], at, end, text_before, lines_before)
                at = end
    except FileNotFoundError:
        raise Damaged(path, "is missing", remedy) from None
    except (OSError, ValueError, isal_zlib.error) as error:  # type: ignore[misc]
        raise unreadable(path, error, remedy) from None
