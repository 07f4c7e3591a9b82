"""Finds the complete records of a WARC file after damage.

Every record is a gzip member of its own, so after a break the next one can be found by its first bytes. Those bytes can
also occur inside a record: a page's body may itself be a WARC file, and its records must not be taken for ours. So a
run of records found this way is accepted only if it is tied to the file:

- it ends exactly where the file does, or
- the index has a row at one of its offsets, or
- its ids are of a writer whose records are in an accepted part of the file. A writer's ids share 80 random bits (see
  `RecordMaker`), which nobody outside can know.

Must stay true: memory does not grow with the file, nor with what a hostile body unpacks to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from isal import isal_zlib

GZIP_WBITS = 31
# isal's stubs wrongly declare its exception class as an instance.
DECODING_ERRORS = (cast(type[Exception], isal_zlib.error), EOFError, ValueError)

GZIP_MAGIC = b"\x1f\x8b\x08"
_WARC_VERSION_START = b"WARC/1."
_CHUNK_BYTES = 1 << 18
_FIRST, _STEP = 512, 1 << 14  # bytes read first, and further: most false members fail within the first few
_MOST_HEAD_BYTES = 1 << 20
_RECORD_END_BYTES = 4  # bytes of the two empty lines after a block
_ID_SERIAL_CHARS = 13  # a writer's ids differ in their last twelve digits, which a bracket follows


@dataclass(frozen=True, slots=True)
class DamageGap:
    """A stretch of a file without a complete record, with complete ones after it."""

    offset: int
    length: int


@dataclass(slots=True)
class RecordRun:
    """Consecutive complete records."""

    begin: int
    end: int
    writers: set[str] = field(default_factory=set)  # see `writer_of`
    is_known: bool = False


def writer_of(record_id: str) -> str:
    """The common prefix of one writer's ids; empty for an id that is too short."""
    return record_id[:-_ID_SERIAL_CHARS]


def find_runs(file: BinaryIO, start: int, known: Callable[[int], bool]) -> list[RecordRun]:
    """Every run of complete records from an offset on, of any writer; `known`: whether an index has a row there."""
    runs: list[RecordRun] = []
    while (run := _next_run(file, start, known)) is not None:
        runs.append(run)
        start = run.end
    return runs


def runs_of_file(runs: list[RecordRun], writers: Set[str], size: int) -> list[RecordRun]:
    """The runs that are tied to a file of that size, whose other records are by `writers`."""
    own = set(writers)
    left, tied = runs, list[RecordRun]()
    while True:
        more = [run for run in left if run.end == size or run.is_known or run.writers & own - {""}]
        if not more:
            return sorted(tied, key=lambda run: run.begin)
        tied += more
        own.update(*(run.writers for run in more))
        left = [run for run in left if run not in more]


def _next_run(file: BinaryIO, start: int, known: Callable[[int], bool]) -> RecordRun | None:
    for place in member_starts(file, start):
        member = measure_member(file, place)
        if member is None:
            continue
        run = RecordRun(place, place)
        while member is not None:
            length, writer = member
            run.is_known |= known(run.end)
            run.writers.add(writer)
            run.end += length
            member = measure_member(file, run.end)
        return run
    return None


def member_starts(file: BinaryIO, start: int) -> Iterator[int]:
    """The offsets of the first bytes of a gzip member."""
    while True:
        file.seek(start)
        chunk = file.read(_CHUNK_BYTES)
        offset = chunk.find(GZIP_MAGIC)
        while offset >= 0:
            yield start + offset
            offset = chunk.find(GZIP_MAGIC, offset + 1)
        if len(chunk) < _CHUNK_BYTES:
            return
        start += len(chunk) - len(GZIP_MAGIC) + 1  # the bytes may span two chunks


def measure_member(file: BinaryIO, place: int) -> tuple[int, str] | None:
    """The size and writer of the member at an offset; None unless it is complete, its checksum right, and a record.

    Its content is counted, not kept.
    """
    file.seek(place)
    inflate = isal_zlib.decompressobj(wbits=GZIP_WBITS)
    head, writer, wanted, unpacked, used = b"", "", -1, 0, 0
    while not inflate.eof:
        chunk = file.read(_STEP if used else _FIRST)
        if not chunk:
            return None
        used += len(chunk)
        try:
            out = inflate.decompress(chunk)
        except DECODING_ERRORS:
            return None
        unpacked += len(out)
        if wanted < 0:
            head += out
            if head[: len(_WARC_VERSION_START)] != _WARC_VERSION_START[: len(head)]:
                return None
            wanted, writer = _length_and_writer(head)
            if wanted < 0 and len(head) > _MOST_HEAD_BYTES:
                return None
        if 0 <= wanted < unpacked - _RECORD_END_BYTES:
            return None
    if not 0 <= wanted <= unpacked:
        return None
    return used - len(inflate.unused_data), writer


def _length_and_writer(head: bytes) -> tuple[int, str]:
    """The length and writer of a record with this head; -1 while its headers are incomplete.

    Headers without a length give an impossible length.
    """
    end = head.find(b"\r\n\r\n")
    if end < 0:
        return -1, ""
    lines = (line.partition(":") for line in head[:end].decode("utf-8", "replace").split("\r\n"))
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    length = headers.get("content-length", "")
    if not length.isascii() or not length.isdigit():
        return 1 << 62, ""
    return end + 4 + int(length), writer_of(headers.get("warc-record-id", ""))
