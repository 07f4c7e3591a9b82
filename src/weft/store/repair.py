"""Makes a slot's WARC files and index agree after a crash, before anything is appended.

After kill -9 there can only be bytes too many: a tail beyond the committed length, which is cut. After a power cut
there can be too few: rows whose bytes never reached the disk, or reached it as zeros. So every row committed after the
last `sync` is read, and the last record of each file; where one is not there, the whole file is read, cut at the first
break, and the rows beyond it are taken out, for the engine to fetch again. Rows go first and bytes second: a crash in
here leaves a tail, no more.
"""

from __future__ import annotations

import os
from pathlib import Path

from weft.records import Row
from weft.store.errors import StoreError, writing
from weft.store.index import FileState, Index
from weft.store.warc_read import WarcScan, read_record


def repair(index: Index, folder: Path, durable: int) -> list[Row]:
    """Cuts and takes out what a crash left half done; returns the rows that are gone."""
    lost: list[Row] = []
    for file in index.files():
        path = folder / file.name
        size = path.stat().st_size if path.exists() else 0
        if _is_whole(index, path, file, durable):
            _cut(path, size, file.length)
        else:
            lost += _mend(index, path, file, size)
    return lost


def _is_whole(index: Index, path: Path, file: FileState, durable: int) -> bool:
    if file.length == 0:
        return True
    places = {(row.warc_offset, row.warc_length) for row in index.rows_in(file.id, after_batch=durable)}
    places.add((file.last, file.length - file.last))
    try:
        for offset, length in places:
            read_record(path, offset, length)
    except StoreError:
        return False
    return True


def _mend(index: Index, path: Path, file: FileState, size: int) -> list[Row]:
    first_end, whole_end = _ends(path) if size else (0, 0)
    rows = list(index.rows_in(file.id))
    lost = [row for row in rows if _end(row) > whole_end]
    kept = max((row for row in rows if _end(row) <= whole_end), key=_end, default=None)
    last, length = (kept.warc_offset, _end(kept)) if kept else (0, first_end)
    index.forget(lost, FileState(file.id, file.name, length, last))
    _cut(path, size, length)
    return lost


def _ends(path: Path) -> tuple[int, int]:
    """Where the first record ends, and the last whole one."""
    scan = WarcScan(path)
    first = 0
    for found in scan:
        first = first or found.length
    return first, scan.end


def _end(row: Row) -> int:
    return row.warc_offset + row.warc_length


def _cut(path: Path, size: int, length: int) -> None:
    if size > length:
        with writing(path):
            os.truncate(path, length)
