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
from weft.store.errors import StoreError, convert_write_errors
from weft.store.index import schema
from weft.store.index.index_writer import FileState, SlotIndex
from weft.store.warc import row_field
from weft.store.warc.warc_read import WarcScan, read_records


@dataclass(frozen=True, slots=True)
class UnindexedTail:
    """Which rows may be restored from beyond the committed length: those of finished items, each file as a new
    batch.
    """

    is_done: Callable[[int], bool]
    next_batch: Callable[[], int]


def repair_files(
    index: SlotIndex, folder: Path, durable: int, tail: UnindexedTail | None = None, alive: Alive = silent
) -> int:
    """Removes rows whose bytes are gone, and cuts bytes without a row; returns how many rows were restored.

    `alive` is called for each record that is read.
    """
    back, late = 0, index.records_since(durable)
    for file in index.files():
        alive()
        path = folder / file.name
        whole = _are_last_records_whole(path, file, late.get(file.id, set()), alive)
        if not whole:
            file = _remove_incomplete(index, path, file, alive)
        if tail is not None and _file_size(path) > file.length:
            file, rows = _restore_tail(index, path, file, tail, alive)
            back += rows
        _truncate_file(path, file.length)
    return back


def _are_last_records_whole(path: Path, file: FileState, late: set[tuple[int, int]], alive: Alive) -> bool:
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


def _remove_incomplete(index: SlotIndex, path: Path, file: FileState, alive: Alive) -> FileState:
    """Removes the rows whose records are incomplete; returns the file's state up to its last complete record."""
    lost = {(row.warc_offset, row.warc_length): row for row in index.rows_in(file.id)}
    offsets = {offset for offset, _ in lost}
    last = length = 0
    for located in WarcScan(path, known=offsets.__contains__) if _file_size(path) else ():
        alive()
        end = located.offset + located.length
        if end > file.length:
            break
        row = lost.get((located.offset, located.length))
        if row is not None and end + row.rendered <= min(file.length, _file_size(path)):
            del lost[located.offset, located.length]
        if not row_field.needs_next_record(located.record):
            last, length = located.offset, end
    mended = FileState(file.id, file.name, length, last, file.crawl)
    index.move_to_lost(list(lost.values()), mended)
    return mended


def _restore_tail(
    index: SlotIndex, path: Path, file: FileState, tail: UnindexedTail, alive: Alive
) -> tuple[FileState, int]:
    rows, outputs = [], dict[int, RowOutput]()
    for located in WarcScan(path, file.length):
        alive()
        if (output := row_field.output_in_record(located.record)) is not None:
            outputs[output[0]] = output[1]
        row = row_field.row_in_record(located.record, file.name, located.offset, located.length)
        if (
            row is not None
            and tail.is_done(row.item)
            and located.offset + located.length + row.rendered <= _file_size(path)
        ):
            number = file.id if row.warc_file else None
            rows.append(schema.values_of(row, row.digest, number, row.warc_offset, row.warc_length))
            end = located.offset + located.length + row.rendered
            file = FileState(file.id, file.name, end, located.offset, file.crawl)
    if rows:
        batch = tail.next_batch()
        index.commit(batch, index.meta_number("durable"), rows, [file], outputs=outputs)
    return file, len(rows)


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _truncate_file(path: Path, length: int) -> None:
    if _file_size(path) > length:
        with convert_write_errors(path):
            os.truncate(path, length)
