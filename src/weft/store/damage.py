"""Finds the whole records of a WARC file behind a damaged place.

Every record is a gzip member of its own, so behind a break the next one can be found by its first bytes. Those bytes
can also stand inside a record: a page's body may be a WARC file that somebody offers for download, and its records must
not be taken for ours. So a run of records found this way counts only if it is tied to the file:

- it ends exactly where the file does, or
- the index knows one of its places, or
- its ids were given by a writer whose records stand in a part of the file that counts. A writer's ids share 80 random
  bits (see `RecordMaker`), which nobody outside can know.

Must stay true: memory does not grow with the file, nor with what a hostile body unpacks to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from isal import isal_zlib

GZIP = 31
# The stubs of isal call its error an instance.
BROKEN = (cast(type[Exception], isal_zlib.error), EOFError, ValueError)

_MAGIC = b"\x1f\x8b\x08"
_WARC = b"WARC/1."
_CHUNK = 1 << 18
_FIRST, _STEP = 512, 1 << 14  # most of what looks like a member is none, and shows that at once
_MOST_HEAD = 1 << 20
_RECORD_END = 4  # the two empty lines behind a block
_SERIAL = 13  # a writer's ids differ in their last twelve digits, and a bracket ends them


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of a file that holds no whole record, with whole ones behind it."""

    offset: int
    length: int


@dataclass(slots=True)
class Run:
    """Whole records that follow one another."""

    begin: int
    end: int
    writers: set[str] = field(default_factory=set)
    is_known: bool = False


def writer_of(record_id: str) -> str:
    """What the ids of one writer have in common; nothing for an id that is too short to tell."""
    return record_id[:-_SERIAL]


def find_runs(file: BinaryIO, start: int, known: Callable[[int], bool]) -> list[Run]:
    """Every run of whole records from a place on, whoever wrote them; `known` tells the places that an index has."""
    runs: list[Run] = []
    while (run := _next_run(file, start, known)) is not None:
        runs.append(run)
        start = run.end
    return runs


def own_runs(runs: list[Run], writers: Set[str], size: int) -> list[Run]:
    """Those that are tied to a file of that size, in which `writers` have written elsewhere."""
    own = set(writers)
    left, tied = runs, list[Run]()
    while True:
        more = [run for run in left if run.end == size or run.is_known or run.writers & own - {""}]
        if not more:
            return sorted(tied, key=lambda run: run.begin)
        tied += more
        own.update(*(run.writers for run in more))
        left = [run for run in left if run not in more]


def _next_run(file: BinaryIO, start: int, known: Callable[[int], bool]) -> Run | None:
    for place in _candidates(file, start):
        found = measure(file, place)
        if found is None:
            continue
        run = Run(place, place)
        while found is not None:
            length, writer = found
            run.is_known |= known(run.end)
            run.writers.add(writer)
            run.end += length
            found = measure(file, run.end)
        return run
    return None


def _candidates(file: BinaryIO, start: int) -> Iterator[int]:
    """Where the first bytes of a gzip member stand."""
    while True:
        file.seek(start)
        chunk = file.read(_CHUNK)
        found = chunk.find(_MAGIC)
        while found >= 0:
            yield start + found
            found = chunk.find(_MAGIC, found + 1)
        if len(chunk) < _CHUNK:
            return
        start += len(chunk) - len(_MAGIC) + 1  # they may lie across the end of a chunk


def measure(file: BinaryIO, place: int) -> tuple[int, str] | None:
    """The size of the member at a place and who wrote it; None unless it is whole, its check sum right, and a record.

    What it unpacks to is counted, not kept.
    """
    file.seek(place)
    inflate = isal_zlib.decompressobj(wbits=GZIP)
    head, writer, wanted, unpacked, used = b"", "", -1, 0, 0
    while not inflate.eof:
        chunk = file.read(_STEP if used else _FIRST)
        if not chunk:
            return None
        used += len(chunk)
        try:
            out = inflate.decompress(chunk)
        except BROKEN:
            return None
        unpacked += len(out)
        if wanted < 0:
            head += out
            if head[: len(_WARC)] != _WARC[: len(head)]:
                return None
            wanted, writer = _facts(head)
            if wanted < 0 and len(head) > _MOST_HEAD:
                return None
        if 0 <= wanted < unpacked - _RECORD_END:
            return None
    if not 0 <= wanted <= unpacked:
        return None
    return used - len(inflate.unused_data), writer


def _facts(head: bytes) -> tuple[int, str]:
    """How long a record is, of which this is the beginning, and who wrote it; -1 while its headers are not all there.

    Headers without a length give a length that no record has.
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
