"""Makes a slot's WARC files and index agree after a crash, before anything is appended.

After kill -9 there can only be too many bytes: a tail beyond the committed length, which is cut. After a power cut
there can be too few: rows whose bytes never reached the disk, or reached it as zeros. So every row committed after the
last `sync` is checked, and the last record of each file; where one is missing, the whole file is read, and the rows
whose records are incomplete are removed, for the engine to fetch again. Rows are removed first and bytes second: a
crash in here leaves a tail, no more.

An index can be older than its files: its log was deleted or damaged. Then records beyond the committed length belong to
items that the frontier has finished, and their rows are restored from them.

Must stay true: a complete record that belongs to a row is never cut off, wherever the file is damaged; only what
follows the last one is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from weft.alive import Alive, silent
from weft.records import RowOutput
from weft.store.errors import StoreError, writing
from weft.store.index import schema
from weft.store.index.index_writer import FileState, SlotIndex
from weft.store.warc import row_field
from weft.store.warc.warc_read import WarcScan, read_records


@dataclass(frozen=True, slots=True)
class Tail:
    """Which rows may be restored from beyond the committed length: those of finished items, each file as a new
    batch.
    """

    is_done: Callable[[int], bool]
    next_batch: Callable[[], int]


def repair(index: SlotIndex, folder: Path, durable: int, tail: Tail | None = None, alive: Alive = silent) -> int:
    """Removes rows whose bytes are gone, and cuts bytes without a row; returns how many rows were restored.

    `alive` is called for each record that is read.
    """
    back, late = 0, index.records_since(durable)
    for file in index.files():
        alive()
        path = folder / file.name
        whole = _is_whole(path, file, late.get(file.id, set()), alive)
        if not whole:
            file = _mend(index, path, file, alive)
        if tail is not None and _size(path) > file.length:
            file, rows = _read_back(index, path, file, tail, alive)
            back += rows
        _cut(path, file.length)
    return back


def _is_whole(path: Path, file: FileState, late: set[tuple[int, int]], alive: Alive) -> bool:
    """Whether the last record exists, and those that may not have reached the disk (`late`)."""
    if file.length == 0:
        return True
    try:
        for offset, length in late | {(file.last, file.length - file.last)}:
            read_records(path, offset, length)
            alive()
    except StoreError:
        return False
    return True


def _mend(index: SlotIndex, path: Path, file: FileState, alive: Alive) -> FileState:
    """Removes the rows whose records are incomplete; returns the file's state up to its last complete record."""
    lost = {(row.warc_offset, row.warc_length): row for row in index.rows_in(file.id)}
    offsets = {offset for offset, _ in lost}
    last = length = 0
    for found in WarcScan(path, known=offsets.__contains__) if _size(path) else ():
        alive()
        end = found.offset + found.length
        if end > file.length:
            break
        row = lost.get((found.offset, found.length))
        if row is not None and end + row.rendered <= min(file.length, _size(path)):
            del lost[found.offset, found.length]
        if not row_field.needs_next(found.record):
            last, length = found.offset, end
    mended = FileState(file.id, file.name, length, last, file.crawl)
    index.lose(list(lost.values()), mended)
    return mended


def _read_back(index: SlotIndex, path: Path, file: FileState, tail: Tail, alive: Alive) -> tuple[FileState, int]:
    rows, outputs = [], dict[int, RowOutput]()
    for found in WarcScan(path, file.length):
        alive()
        if (output := row_field.output_in(found.record)) is not None:
            outputs[output[0]] = output[1]
        row = row_field.row_of(found.record, file.name, found.offset, found.length)
        if row is not None and tail.is_done(row.item) and found.offset + found.length + row.rendered <= _size(path):
            number = file.id if row.warc_file else None
            rows.append(schema.values_of(row, row.digest, number, row.warc_offset, row.warc_length))
            end = found.offset + found.length + row.rendered
            file = FileState(file.id, file.name, end, found.offset, file.crawl)
    if rows:
        batch = tail.next_batch()
        index.commit(batch, index.number("durable"), rows, [file], outputs=outputs)
    return file, len(rows)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _cut(path: Path, length: int) -> None:
    if _size(path) > length:
        with writing(path):
            os.truncate(path, length)
