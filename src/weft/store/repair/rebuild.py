"""Rebuilds indexes and texts from the WARC files, which are the truth.

A new index is written next to the old one (`index-{slot}.rebuilt`) and replaces it when all are complete, so that an
interruption costs nothing but time. Every record carries its row (see `row_field`); an item gets one row, also where it
has two records. Facts that only the old index has are kept: the committed length of a file, and rows without a record,
such as those of a crawl that stores only texts.

Damage costs the records that it hits: the scan continues at the next complete one. Items whose record is gone,
according to the old index or to the frontier's finished items, are written to the new index as lost; the next opening
queues them again.

Must stay true: the new index's batches are in the order of the files, and all later than any earlier batch; a file's
committed length covers every complete record in it except those of items that will be fetched again.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from weft import urls
from weft.errors import BadInput, Unparsed
from weft.files import sync_folder
from weft.records import POD_SHIFT, Row, RowOutput
from weft.store.contract import StoredPage
from weft.store.errors import StoreError, convert_write_errors
from weft.store.index import schema
from weft.store.index.index_writer import FOLD_ROWS, CrawlChange, FileState, SlotIndex
from weft.store.index.query import IndexReader
from weft.store.index.schema import values_of
from weft.store.shard import TEXT_WITHOUT_RECORD, lock_slot
from weft.store.text import TextFiles
from weft.store.warc import row_field
from weft.store.warc.warc_file import crawl_of_file, files_in, files_of, slot_of_file
from weft.store.warc.warc_read import LocatedRecord, WarcScan

BATCH_ROWS = 1000
MOST_URLS_REPORTED = 1000  # listed by name
TEXTS_AHEAD = 64  # pages whose texts are being extracted, at most
BYTES_AHEAD = 4 << 20  # total size of their compressed records


@dataclass(frozen=True, slots=True)
class DamagedStretch:
    """A damaged stretch of a WARC file, and the pages in it according to the old index."""

    file: str
    offset: int
    bytes: int
    urls: list[str]


@dataclass(slots=True)
class RebuildReport:
    """The result of a rebuild."""

    files: int = 0
    records: int = 0
    rows: int = 0
    pages: int = 0
    texts: int = 0
    duplicates: int = 0  # records of items that already had a row
    kept: int = 0  # rows of the old index that have no record
    gone: int = 0  # rows of the old index whose record is gone
    foreign: int = 0  # responses without a row
    unfinished: int = 0  # records of items that were not finished when the crawl stopped: they are fetched again
    torn: list[str] = field(default_factory=list)  # files that end in half a record
    damage: list[DamagedStretch] = field(default_factory=list)
    lost: int = 0  # items that were stored, or should have been, and have no row now: they are queued again
    lost_urls: list[str] = field(default_factory=list)  # the first of them
    unparsed: int = 0  # pages whose text could not be extracted: they kill or block their parser
    unparsed_pages: list[str] = field(default_factory=list)  # the first of them, each with the reason


# Begins to extract a page's text; the result waits for it, and may raise Unparsed.
TextOf = Callable[[StoredPage], Callable[[], str | None]]
Watch = Callable[[int, int], None]
KnownItems = Callable[[Sequence[int]], set[int]]
T = TypeVar("T")


class Rebuild:
    """One rebuild of a crawl that is not running. `text_of` extracts a page's text, where texts are to be rebuilt.

    `is_done`: whether the crawl has finished an item; None where that is unknown. It decides where no old index says
    what was committed, or the file has more: if only a page's bytes were written, its links may be missing from the
    frontier, so it must be fetched again. `missing` gets a function that says which items have a row, and returns rows
    for finished items that have none. `slots` get an index in every data dir in any case. `changes`: what an engine's
    index has to know of its crawls, given those that have rows.
    """

    def __init__(
        self,
        data_dirs: Sequence[Path],
        crawl_id: str,
        *,
        after_batch: int = 0,
        text_of: TextOf | None = None,
        is_done: Callable[[int], bool] | None = None,
        missing: Callable[[KnownItems], Iterable[Row]] | None = None,
        slots: Sequence[str] = (),
        changes: Callable[[Sequence[int]], Sequence[CrawlChange]] | None = None,
        watch: Watch = lambda _done, _all: None,
    ) -> None:
        self._dirs = list(data_dirs)
        self._crawl_id = crawl_id
        self._text_of = text_of
        self._is_done = is_done
        self._missing = missing
        self._changes = changes
        self._watch = watch
        self.report = RebuildReport()
        self._places = [
            _SlotRebuild(number, folder, slot)
            for number, folder in enumerate(self._dirs)
            for slot in dict.fromkeys([*_slots_in(folder), *slots])
        ]
        has_files = any(files_of(place.folder / "warc", crawl_id, place.slot) for place in self._places)
        if not has_files and missing is None:
            raise BadInput(f"{self._dirs[0]} holds no WARC files of this crawl: there is nothing to rebuild from")
        self._batch = after_batch
        self._bytes = 0
        self._outputs: dict[int, RowOutput] = {}  # of the records just read, whose pages follow
        self._unsynced = 0  # rows since the last sync
        self._begun_bytes = 0
        self._begun: deque[tuple[TextFiles, Row, Callable[[], str | None]]] = deque()
        self._all_bytes = sum(path.stat().st_size for folder in self._dirs for path in (folder / "warc").rglob("*.gz"))

    def run(self) -> RebuildReport:
        """Rebuilds everything."""
        locks = [lock_slot(place.folder, place.slot) for place in self._places]
        try:
            for place in self._places:
                place.open_old()
                self._batch = max(self._batch, place.last_batch())
            for place in self._places:
                self._make_index(place)
            for folder in self._dirs if self._text_of else ():
                TextFiles(folder).sync(always=True)
            self._find_missing_files()
            for place in self._places:
                self._complete_index(place)
            for place in self._places:
                place.replace_old()
        finally:
            for place in self._places:
                place.close()
            for lock in locks:
                os.close(lock)
        return self.report

    def _make_index(self, place: _SlotRebuild) -> None:
        place.delete_leftovers()
        facts = {"crawl_id": self._crawl_id, "data_dirs": len(self._dirs), "data_dir": place.number}
        place.new = index = SlotIndex(place.new_path, facts)
        index.may_come_again(0, -1)  # rows come in another order now
        for name in files_of(place.folder / "warc", self._crawl_id, place.slot):
            self._read_file(place, index, index.register(name, crawl_of_file(name)))
        self._keep_old_rows(place, index)

    def _complete_index(self, place: _SlotRebuild) -> None:
        """Records the lost items, and completes the index."""
        index = place.new
        assert index is not None
        known = self._items_with_rows([*place.lost])
        lost = [row for item, row in sorted(place.lost.items()) if item not in known]
        index.add_lost_rows(lost)
        if self._changes is not None:
            self._batch += 1
            index.commit(self._batch, self._batch, [], [], self._changes(index.crawls_with_rows()))
        index.note_rebuilt()
        index.sync(last=True)
        if (notes := place.old_notes()) is not None:
            index.copy_notes(notes)
        index.note_durable(self._batch)
        index.seal()
        self.report.lost += len(lost)
        self.report.lost_urls += [row.url for row in lost[: MOST_URLS_REPORTED - len(self.report.lost_urls)]]

    def _find_missing_files(self) -> None:
        for row in self._missing(self._items_with_rows) if self._missing is not None else ():
            number = urls.data_dir_of(row.url, len(self._dirs))
            here = [place for place in self._places if place.number == number]
            pod = f"pod{row.item >> POD_SHIFT}-"
            place = next((place for place in here if place.slot.startswith(pod)), here[0])
            place.lost.setdefault(row.item, row)

    def _items_with_rows(self, items: Sequence[int]) -> set[int]:
        """Those of the items that have a row."""
        return set().union(*(place.new.items_with_rows(items) for place in self._places if place.new is not None))

    def _read_file(self, place: _SlotRebuild, index: SlotIndex, file: FileState) -> None:
        """Inserts every row that a file contains."""
        name = file.name
        scan = WarcScan(place.folder / "warc" / name, known=lambda offset: place.old_row(name, offset) is not None)
        limit = place.committed.get(name)
        texts = TextFiles(place.folder)
        batch: list[Row] = []
        self.report.files += 1
        for located in scan:
            end = located.offset + located.length
            is_committed = limit is not None and end <= limit
            self.report.records += 1
            row = self._row_of_record(place, file, located)
            if row is None:
                if (output := row_field.output_in_record(located.record)) is not None:
                    self._outputs[output[0]] = output[1]
                if not row_field.needs_next_record(located.record) and (is_committed or limit is None):
                    file = FileState(file.id, name, end, located.offset, file.crawl)
                continue
            if not is_committed and not self._is_finished(place, row, limit):
                self.report.unfinished += 1
                continue
            file = FileState(file.id, name, end, located.offset, file.crawl)
            batch.append(row)
            self._keep_text(texts, row, located)
            if len(batch) >= BATCH_ROWS:
                self._commit_rows(place, index, batch, file)
                self._watch(self._bytes + end, self._all_bytes)
        self._write_texts()
        self._commit_rows(place, index, batch, file)
        if scan.torn:
            self.report.torn.append(name)
        self.report.damage += [
            DamagedStretch(name, gap.offset, gap.length, place.old_urls(name, gap.offset, gap.length))
            for gap in scan.gaps
        ]
        self._bytes += scan.end

    def _is_finished(self, place: _SlotRebuild, row: Row, limit: int | None) -> bool:
        """Whether to keep a page that no old index has as committed."""
        if self._is_done is not None:
            return self._is_done(row.item)
        if limit is not None:  # unknown: queued again, rather than lost
            place.lost.setdefault(row.item, row)
        return limit is None

    def _row_of_record(self, place: _SlotRebuild, file: FileState, located: LocatedRecord) -> Row | None:
        row = row_field.row_in_record(located.record, file.name, located.offset, located.length)
        if row is None and located.record.kind in ("response", "revisit"):
            row = place.old_row(file.name, located.offset)
            self.report.foreign += row is None
        return row

    def _keep_text(self, texts: TextFiles, row: Row, located: LocatedRecord) -> None:
        if self._text_of is None or located.record.kind != "response" or not 200 <= row.status < 300:
            return
        self._begun.append((texts, row, self._text_of(StoredPage(row, located.record))))
        self._begun_bytes += row.warc_length
        self._write_texts(leave=TEXTS_AHEAD, leave_bytes=BYTES_AHEAD)

    def _write_texts(self, leave: int = 0, leave_bytes: int = 0) -> None:
        """Writes the oldest of the texts under way, until at most `leave` remain."""
        while len(self._begun) > leave or self._begun_bytes > leave_bytes:
            texts, row, text_of = self._begun.popleft()
            self._begun_bytes -= row.warc_length
            try:
                text = text_of()
            except Unparsed as error:
                self.report.unparsed += 1
                if len(self.report.unparsed_pages) < MOST_URLS_REPORTED:
                    self.report.unparsed_pages.append(f"{row.url} ({error})")
                continue
            if text is not None:
                texts.write(row.url, text, row.crawl)
                self.report.texts += 1

    def _commit_rows(self, place: _SlotRebuild, index: SlotIndex, batch: list[Row], file: FileState) -> None:
        """Inserts rows of one file and its length; an item that has a row, here or in another slot, keeps it."""
        rows = {row.item: row for row in reversed(batch)}
        items = [*rows]
        others = (other.new for other in self._places if other.number == place.number and other.new is not None)
        for item in set().union(*(other.items_with_rows(items) for other in others)):
            del rows[item]
        self.report.duplicates += len(batch) - len(rows)
        self._insert_rows(index, [(row, file.id if row.warc_file else None) for row in rows.values()], file)
        batch.clear()

    def _insert_rows(self, index: SlotIndex, rows: list[tuple[Row, int | None]], file: FileState | None) -> None:
        self._batch += 1
        made = [values_of(row, row.digest, number, row.warc_offset, row.warc_length) for row, number in rows]
        index.commit(self._batch, self._batch, made, [file] if file else [], outputs=self._outputs)
        for row, _ in rows:
            self._outputs.pop(row.item, None)
        self._unsynced += len(rows)
        if self._unsynced >= FOLD_ROWS:  # each row is looked up among those without keys, so these must stay few
            index.sync()
            self._unsynced = 0
        self.report.rows += len(rows)
        self.report.pages += sum(200 <= row.status < 300 and number is not None for row, number in rows)

    def _keep_old_rows(self, place: _SlotRebuild, index: SlotIndex) -> None:
        """Keeps the old index's rows that have no record, and records those whose record is gone as lost."""
        for rows in place.old_rows():
            known = index.items_with_rows([row.item for row in rows])
            missing = [row for row in rows if row.item not in known]
            place.lost |= {row.item: row for row in missing if row.warc_file}
            self.report.gone += sum(bool(row.warc_file) for row in missing)
            carried = [(row, place.text_kind_of(row)) for row in missing if not row.warc_file]
            self._outputs.update(place.old_outputs([row.item for row, _ in carried]))
            if carried:
                self._insert_rows(index, carried, None)
                self.report.kept += len(carried)
        place.lost |= {row.item: row for row in place.old_lost()}


class _SlotRebuild:
    """One slot's index in one data dir: the old one, and the new one."""

    def __init__(self, number: int, folder: Path, slot: str) -> None:
        self.number, self.folder, self.slot = number, folder, slot
        self.path = schema.index_path(folder, slot)
        self.new_path = folder / f"index-{slot}.rebuilt"
        self.new: SlotIndex | None = None
        self.committed: dict[str, int] = {}
        self._old: IndexReader | None = None
        self.lost: dict[int, Row] = {}
        self._file_read = ""
        self._by_offset: dict[int, Row] = {}

    def open_old(self) -> None:
        """Opens the old index; a damaged one is read as far as possible."""
        if not self.path.exists():
            return
        try:
            self._old = IndexReader(self.path, whole=False)
            self.committed = self._old.files()
        except (StoreError, BadInput):
            self._close_old()

    def last_batch(self) -> int:
        """The last batch of the old index."""
        return self._query_old(lambda old: old.last_batch(), 0)

    def old_row(self, name: str, offset: int) -> Row | None:
        """The old index's row for an offset."""
        return self._old_rows_in_file(name).get(offset)

    def old_urls(self, name: str, offset: int, length: int) -> list[str]:
        """The pages that the old index has in a stretch of a file."""
        rows = self._old_rows_in_file(name)
        return [rows[at].url for at in sorted(rows) if offset <= at < offset + length][:MOST_URLS_REPORTED]

    def old_lost(self) -> list[Row]:
        """The rows that were lost before, and are not queued again yet."""
        return self._query_old(lambda old: old.lost_rows(), list[Row]())

    def old_outputs(self, items: Sequence[int]) -> dict[int, RowOutput]:
        """The old index's outputs of items."""
        return self._query_old(lambda old: old.outputs_of(items), dict[int, RowOutput]())

    def old_notes(self) -> dict[int, int] | None:
        """After which items rows may be visits of known URLs; None if that is unknown."""
        return self._query_old(lambda old: old.repeat_notes(), None) if self._old is not None else None

    def old_rows(self) -> Iterator[list[Row]]:
        """All rows of the old index, some at a time."""
        if self._old is None:
            return
        try:
            rows: list[Row] = []
            for row in self._old.rows():
                rows.append(row)
                if len(rows) >= BATCH_ROWS:
                    yield rows
                    rows = []
            yield rows
        except StoreError:
            yield rows  # damaged in the middle: the rows read so far are kept

    def _old_rows_in_file(self, name: str) -> dict[int, Row]:
        if name != self._file_read:
            rows = self._query_old(lambda old: old.rows_in_file(name), list[Row]())
            self._file_read, self._by_offset = name, {row.warc_offset: row for row in rows}
        return self._by_offset

    def _query_old(self, query: Callable[[IndexReader], T], otherwise: T) -> T:
        """The result of a query to the old index; if one part of it is damaged, others may be readable."""
        try:
            return query(self._old) if self._old is not None else otherwise
        except StoreError:
            return otherwise

    def text_kind_of(self, row: Row) -> int | None:
        """The value of the column `file` for a row without a WARC file: whether its text is stored."""
        return TEXT_WITHOUT_RECORD if row.digest and 200 <= row.status < 300 else None

    def delete_leftovers(self) -> None:
        """Deletes the leftovers of an interrupted rebuild."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.new_path}{suffix}").unlink(missing_ok=True)

    def replace_old(self) -> None:
        """Replaces the old index; its log is deleted first, or SQLite would apply it to the new one."""
        self.close()
        _fold_log(self.path)
        with convert_write_errors(self.path):
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            self.new_path.rename(self.path)
            sync_folder(self.folder)

    def close(self) -> None:
        """Closes both indexes."""
        self._close_old()
        if self.new is not None:
            self.new.close()
            self.new = None

    def _close_old(self) -> None:
        if self._old is not None:
            self._old.close()
            self._old = None


def _fold_log(path: Path) -> None:
    """Moves an index's log into it, so that it is complete without; a damaged one is unchanged."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error:
        return


def _slots_in(folder: Path) -> list[str]:
    """The slots that have written to a data dir."""
    slots: dict[str, None] = defaultdict()
    for name in sorted(files_in(folder / "warc")):
        if slot := slot_of_file(name):
            slots[slot] = None
    for path in sorted(folder.glob("index-*.db")):
        slots[schema.slot_of_index(path)] = None
    return list(slots)
