"""Seed files: the URLs that a user gave, on the command line or in a file.

A small file is read at once, and its errors are reported at once. A large one (millions of lines, also gzip) is copied
into the crawl's folder (`seed_streams`), and read while the crawl runs (`feeding`); only its beginning is checked here.
"""

from __future__ import annotations

import gzip
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from weft import urls
from weft.errors import BadInput, BadUrl

SMALL = 1024 * 1024  # bytes of a file that is read at once
LONGEST_LINE = 1024 * 1024
_FIRST_READ_BYTES = 64 * 1024  # bytes of a larger file that are checked before the crawl begins
_READ_BYTES = 256 * 1024
_REPORT_EVERY_S = 2.0
_GZIP_MAGIC = b"\x1f\x8b"


class SeedFile:
    """An open file of seeds, whose first bytes are read. Must be closed."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            raw = Path(path).open("rb")  # noqa: SIM115
            is_gzip = raw.peek(2)[:2] == _GZIP_MAGIC
            status = os.fstat(raw.fileno())
            # Of a growing file: its current length, up to the end of its last line; a pipe has no size.
            self.bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
            self._raw = raw
            self._file = cast(BinaryIO, gzip.open(raw)) if is_gzip else raw  # noqa: SIM115
            self._is_gzip = is_gzip
            self._first_bytes = self._read_bytes(
                _FIRST_READ_BYTES
            )  # the rest only if this is text: a device may have no end
            if b"\0" in self._first_bytes:
                raise BadInput(f"seed file {path}: is not text; write one URL a line")
            while len(self._first_bytes) <= SMALL and (more := self._read_bytes(SMALL + 1 - len(self._first_bytes))):
                self._first_bytes += more
        except OSError as error:
            raise BadInput(f"seed file {path}: cannot be read: {error.strerror or error}") from None

    @property
    def is_small(self) -> bool:
        """Whether the whole file is read."""
        return len(self._first_bytes) <= SMALL

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        self._raw.close()

    def seeds(self, complain: Callable[[str], None]) -> list[str]:
        """The canonical seeds of a small file; invalid lines are reported with their number, and the others are used.

        Of a large file: the seeds at its beginning.
        """
        head = self._first_bytes if self.is_small else self._first_bytes[:_FIRST_READ_BYTES]
        lines = head.decode("utf-8-sig", "replace").splitlines()
        if not self.is_small:
            lines.pop()  # the last one may be cut
        seeds = []
        for number, line in enumerate(lines, 1):
            try:
                if (seed := seed_of(line)) is not None:
                    seeds.append(seed)
            except BadUrl as bad:
                complain(f"{self.path}:{number}: {bad}")
        if not seeds:
            where = "" if self.is_small else f" in its first {_FIRST_READ_BYTES:,} bytes"
            raise BadInput(f"seed file {self.path}: has no URL{where}; write one a line")
        return list(dict.fromkeys(seeds))

    def pieces(self, report_progress: Callable[[str], None]) -> Iterator[bytes]:
        """The whole file in pieces of complete lines; `report_progress` is called with its progress, every two
        seconds."""
        left, next_at = b"", time.monotonic() + _REPORT_EVERY_S
        for block in self._read_blocks():
            end = block.rfind(b"\n") + 1
            if not end and len(left) + len(block) > LONGEST_LINE:
                raise BadInput(f"seed file {self.path}: has a line of over a million bytes; write one URL a line")
            if end:
                yield left + block[:end]
                left = b""
            left += block[end:]
            if time.monotonic() >= next_at:
                next_at = time.monotonic() + _REPORT_EVERY_S
                report_progress(f"seed file {self.path}: {self._progress_text()} read")
        if left:
            yield left + b"\n"

    def _read_blocks(self) -> Iterator[bytes]:
        yield from (self._first_bytes[at : at + _READ_BYTES] for at in range(0, len(self._first_bytes), _READ_BYTES))
        done, last = len(self._first_bytes), self._first_bytes[-1:]
        while block := self._read_bytes(_READ_BYTES):
            if self.bytes is not None and not self._is_gzip and done + len(block) > self.bytes:
                # Data that was written since the file was opened: up to the end of the line that was being written
                # then.
                kept = max(0, self.bytes - done)
                is_whole = (block[kept - 1 : kept] if kept else last) == b"\n"
                end = kept if is_whole else block.find(b"\n", kept) + 1
                if end or is_whole:
                    yield block[:end]
                    return
            done += len(block)
            last = block[-1:]
            yield block

    def _read_bytes(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadInput(
                f"seed file {self.path}: its gzip data cannot be read to the end ({error}); is it whole?"
            ) from None
        except OSError as error:
            raise BadInput(f"seed file {self.path}: cannot be read: {error.strerror or error}") from None

    def _progress_text(self) -> str:
        read = self._raw.tell() / 1e9
        return f"{read:.1f} GB" if self.bytes is None else f"{read:.1f} of {self.bytes / 1e9:.1f} GB"


def seed_of(line: str) -> str | None:
    """The canonical URL of a line; None for an empty one or a comment; raises BadUrl if it is invalid."""
    text = line.strip()
    return None if not text or text.startswith("#") else urls.seed(text)


def all_seeds(lines: Iterable[str]) -> Iterator[str]:
    """The canonical URLs of lines, without invalid ones."""
    for line in lines:
        try:
            if (seed := seed_of(line)) is not None:
                yield seed
        except BadUrl:
            continue
