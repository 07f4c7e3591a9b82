"""One slot's part of one data dir: its WARC files and its index, kept consistent.

    warc/NUMBER/     the slot's files of each crawl, `weft-{id}-{slot}-{serial}.warc.gz`
    content/NUMBER/  text files of each crawl, when text is stored
    index-{slot}.db  the index; `index-{slot}.lock` is held for as long as a process owns the slot

Must stay true: a WARC file is registered in the index, durably, before it is created; texts and bytes are written
before their rows are committed; a call that raises changes nothing, and can be repeated.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.alive import Alive, silent
from weft.errors import BadInput, Busy
from weft.files import sync_folder, try_lock
from weft.records import Row, RowOutput
from weft.removal import Trash
from weft.store.errors import rebuild_advice
from weft.store.index import schema
from weft.store.index.index_writer import CrawlChange, FileState, RowNumbers, SlotIndex
from weft.store.index.schema import values_of
from weft.store.repair.after_crash import UnindexedTail, repair_files
from weft.store.text import TEXT_FOLDER, TextFiles, sync_file_system
from weft.store.warc.members import LargeMember
from weft.store.warc.warc_file import WarcFile
from weft.store.warc.warc_records import PageRecords, RecordMaker

TEXT_WITHOUT_RECORD = 0  # instead of a WARC file's number
MOST_OPEN_FILES = 64  # WARC files: each crawl has its own
SYNCED_ONE_BY_ONE = 8  # more files than this are synced with their file system, in one call
_PendingRow = tuple[Row, PageRecords | None, str | None, RowOutput | None]


@dataclass(frozen=True, slots=True)
class SlotFiles:
    """How a slot names its WARC files: the same in all data dirs, and no name twice."""

    maker: RecordMaker
    info: Mapping[str, str]
    names: Iterator[str]
    rotate_bytes: int


class StoreShard:
    """Stores pages in one data dir. One thread adds, writes and commits; `sync` may be called from another."""

    def __init__(
        self,
        data_dir: Path,
        slot: str,
        facts: Mapping[str, object],
        files: SlotFiles,
        step: Callable[[str], None],
        numbers: RowNumbers | None = None,
        alive: Alive = silent,
    ) -> None:
        self.folder = data_dir / "warc"
        self._alive = alive
        self._files = files
        self._step = step
        self._texts = TextFiles(data_dir)
        self._pending: dict[int, _PendingRow] = {}
        self._written: dict[int, tuple[Any, ...]] = {}
        self._outputs: dict[int, RowOutput] = {}  # of written rows
        self._grown: dict[int, FileState] = {}
        self._changes: list[CrawlChange] = []
        self._open: dict[int, WarcFile] = {}  # by crawl, the most recently used last
        self._dirty: dict[int, WarcFile] = {}  # those that were appended to since the last sync
        self._put_away: list[WarcFile] = []  # no longer appended to: `sync`, which may be using them now, closes them
        self._file_lock = threading.Lock()
        self._states: dict[int, FileState] = {}  # the files that are appended to
        self._lock_fd = lock_slot(data_dir, slot)
        self._trash = Trash(data_dir / "trash")
        try:
            self.index = SlotIndex(schema.index_path(data_dir, slot), facts, numbers, alive)
            sync_folder(data_dir)
        except BaseException:
            os.close(self._lock_fd)
            raise

    @property
    def uncommitted(self) -> bool:
        """Whether written records have no committed row yet."""
        return bool(self._written or self._changes)

    def repair(self, durable: int, on_disk: Sequence[str], tail: UnindexedTail | None = None) -> int:
        """Repairs what a crash left, and continues in the last file; `on_disk` are the names of the slot's files.

        Returns how many rows were restored from beyond the committed length; `tail` says which may be.
        """
        files = self.index.files()
        if stray := set(on_disk) - {file.name for file in files}:
            path = self.folder / min(stray)
            raise BadInput(
                f"{path} is not in the index {self.index.path.name}: {rebuild_advice(self.index.path.parent)}"
            )
        back = repair_files(self.index, self.folder, durable, tail, self._alive)
        for file in self.index.files():
            self._states[file.crawl] = file
        return back

    def add(self, row: Row, page: PageRecords | None, text: str | None = None, output: RowOutput | None = None) -> None:
        """Adds a row, its records, its text and its output; a second one for the same item is ignored."""
        self._pending.setdefault(row.item, (row, page, text, output))

    def forget(self, items: Iterable[int]) -> list[Row]:
        """Drops added rows of these items that are not written yet."""
        return [dropped[0] for item in items if (dropped := self._pending.pop(item, None)) is not None]

    def write(self) -> None:
        """Appends the records of added rows, in one write; an item that already has a row is dropped."""
        if not self._pending:
            return
        for item in self.index.items_with_rows([*self._pending]) | (self._pending.keys() & self._written.keys()):
            del self._pending[item]
        self._write_texts()
        by_file = self._group_by_file()
        self._register_files(by_file)
        for crawl, entries in by_file.items():
            pages = [page for _, page, _, _ in entries if page]
            chunks = [
                part
                for page in pages
                for part in (page.request, page.output, page.response, page.rendered, page.note)
                if part
            ]
            self._place_rows(crawl, entries, self._append_chunks(crawl, chunks) if chunks else 0)
            for row, _, _, output in entries:
                if output is not None:
                    self._outputs[row.item] = output
                del self._pending[row.item]
        self._step("warc-written")

    def _group_by_file(self) -> dict[int, list[_PendingRow]]:
        """The added rows by the file of their records."""
        rows_by_file: dict[int, list[_PendingRow]] = {}
        for entry in self._pending.values():
            rows_by_file.setdefault(entry[0].crawl, []).append(entry)
        return rows_by_file

    def change(self, change: CrawlChange) -> None:
        """Writes a crawl's change with the next commit."""
        self._changes.append(change)

    def forget_crawls(self, crawls: Sequence[int], at_most: int) -> bool:
        """Deletes a part of the data of some crawls, rows first, then their files; True when nothing is left."""
        self._drop_pending_rows(frozenset(crawls))
        if not self.index.forget(crawls, at_most):
            self._step("rows-forgotten")
            return False
        for crawl in crawls:
            self._put_file_away(crawl)
            self._states.pop(crawl, None)
            for folder in (self.folder / str(crawl), self.folder.parent / TEXT_FOLDER / str(crawl)):
                self._trash.discard(folder)
        self._step("files-forgotten")
        self.index.forget_files(crawls)
        return True

    def _drop_pending_rows(self, crawls: frozenset[int]) -> None:
        for item in [item for item, (row, _, _, _) in self._pending.items() if row.crawl in crawls]:
            del self._pending[item]
        for item in [item for item, values in self._written.items() if values[2] in crawls]:
            del self._written[item]
            self._outputs.pop(item, None)

    def _write_texts(self) -> None:
        texts = [(row, text) for row, _, text, _ in self._pending.values() if text is not None]
        for row, text in texts:
            self._texts.write(row.url, text, row.crawl)
            self._step("text-written")

    def commit(self, batch: int, durable: int) -> None:
        """Commits the rows of written records; without rows, only the number of the batch."""
        self.index.commit(batch, durable, [*self._written.values()], self._grown.values(), self._changes, self._outputs)
        self._changes.clear()
        self._written.clear()
        self._outputs.clear()
        self._grown.clear()
        self._step("index-committed")

    def sync(self) -> None:
        """Makes texts and bytes durable."""
        self._texts.sync()
        with self._file_lock:
            dirty, put_away = list(self._dirty.values()), self._put_away
            self._dirty, self._put_away = {}, []
        try:
            if len(dirty) > SYNCED_ONE_BY_ONE:
                sync_file_system(self.folder)
            else:
                for file in dirty:
                    file.sync()
        except BaseException:
            with self._file_lock:
                self._dirty = {id(file): file for file in dirty} | self._dirty
                self._put_away = put_away + self._put_away
            raise
        for file in put_away:
            file.close()

    def close(self) -> None:
        """Releases the slot."""
        for file in (*self._open.values(), *self._put_away):
            file.close()
        self._open.clear()
        self._put_away.clear()
        self.index.close()
        os.close(self._lock_fd)

    def _append_chunks(self, crawl: int, chunks: Sequence[bytes | LargeMember]) -> int:
        """Appends to a crawl's current file, and returns the offset of the chunks."""
        file = self._open.get(crawl)
        if file is None:
            file = self._open_file(crawl)
        elif len(self._open) > 1:
            self._open[crawl] = self._open.pop(crawl)  # it is the most recently used one
        info = self._files.maker.info(file.path.name, self._files.info) if file.length == 0 else b""
        begin = file.append([info, *chunks]) + len(info)
        with self._file_lock:
            self._dirty[id(file)] = file
        return begin

    def _place_rows(self, crawl: int, entries: Sequence[_PendingRow], at: int) -> None:
        """Turns added rows into index rows, now that their offsets are known: the first record begins at `at`."""
        state = self._states.get(crawl)
        last = 0
        for row, page, _, _ in entries:
            item = row.item
            if page is None or page.note:
                self._written[item] = values_of(row, row.digest, None, 0, 0)
                if page is not None:
                    last = at + len(page.output)
                    at = last + len(page.note)
                continue
            if not page.response:
                self._written[item] = values_of(row, row.digest or page.digest, TEXT_WITHOUT_RECORD, 0, 0)
                continue
            assert state is not None
            last = at + len(page.request) + len(page.output)
            self._written[item] = values_of(row, row.digest or page.digest, state.id, last, len(page.response))
            at = last + len(page.response) + len(page.rendered)
        if last and state is not None:
            self._states[crawl] = self._grown[state.id] = FileState(state.id, state.name, at, last, crawl)

    def _register_files(self, crawls: Iterable[int]) -> None:
        """Registers new files for crawls whose last one is full, or that have none; with one wait for the disk."""
        full = [crawl for crawl in crawls if self._is_full(self._states.get(crawl))]
        if not full:
            return
        if any(crawl in self._open for crawl in full):
            self.sync()  # before the index, or a power cut could leave rows without their bytes
        for crawl in full:
            self._put_file_away(crawl)
            name = next(self._files.names)
            self._states[crawl] = self.index.register(f"{crawl}/{name}", crawl)
        self.index.flush()
        self._step("warc-registered")

    def _is_full(self, state: FileState | None) -> bool:
        return state is None or state.length >= self._files.rotate_bytes

    def _open_file(self, crawl: int) -> WarcFile:
        """Opens the file to append to: the last one, or a new one."""
        state = self._states[crawl]
        path = self.folder / state.name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        while len(self._open) >= MOST_OPEN_FILES:
            self._put_file_away(next(iter(self._open)))
        file = self._open[crawl] = WarcFile(path, state.length)
        self._step("warc-opened")
        return file

    def _put_file_away(self, crawl: int) -> None:
        if (file := self._open.pop(crawl, None)) is not None:
            with self._file_lock:
                self._put_away.append(file)


def lock_slot(data_dir: Path, slot: str) -> int:
    """Creates the folders, and locks the slot until the descriptor is closed or the process ends."""
    try:
        # Responses may be confidential; an existing folder keeps its mode.
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / "warc").mkdir(mode=0o700, exist_ok=True)
        fd = os.open(data_dir / f"index-{slot}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise BadInput(f"data dir {data_dir}: there is a file of that name; choose another place") from None
    except OSError as error:
        raise BadInput(f"data dir {data_dir} cannot be written: {error.strerror}") from error
    if not try_lock(fd):
        os.close(fd)
        raise Busy(f"data dir {data_dir} is in use: another process writes to it as {slot}") from None
    return fd
