"""One slot's part of one data dir: its WARC files and its index, kept consistent.

    warc/            the slot's files, `weft-{crawl}-{slot}-{serial}.warc.gz`
    content/         text files, when text is stored
    index-{slot}.db  the index; `index-{slot}.lock` is held for as long as a process owns the slot

Must stay true: a WARC file is registered in the index, durably, before it is created; texts and bytes are written
before their rows are committed; a call that raises changes nothing, and can be repeated.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import BadInput, Busy
from weft.records import Row
from weft.store import schema
from weft.store.errors import remedy
from weft.store.index import FileState, Index
from weft.store.repair import Tail, repair
from weft.store.schema import values_of
from weft.store.text import TextFiles
from weft.store.warc import Page, RecordMaker
from weft.store.warc_file import WarcFile, sync_folder

TEXT_ALONE = 0  # in the column for the WARC file: the page is stored as text alone


@dataclass(frozen=True, slots=True)
class Files:
    """How a slot creates its WARC files: the same in all data dirs, and no name twice."""

    maker: RecordMaker
    info: Mapping[str, str]
    names: Iterator[str]
    rotate_bytes: int


class Shard:
    """Stores pages in one data dir. One thread adds, writes and commits; `sync` may be called from another."""

    def __init__(
        self, data_dir: Path, slot: str, facts: Mapping[str, object], files: Files, step: Callable[[str], None]
    ) -> None:
        self.folder = data_dir / "warc"
        self._files = files
        self._step = step
        self._texts = TextFiles(data_dir)
        self._pending: dict[int, tuple[Row, Page | None, str | None]] = {}
        self._written: dict[int, tuple[Any, ...]] = {}
        self._grown: dict[int, FileState] = {}
        self._file: WarcFile | None = None
        self._file_lock = threading.Lock()  # the descriptor must not be closed while another thread syncs it
        self._file_state: FileState | None = None
        self._lock_fd = own(data_dir, slot)
        try:
            self.index = Index(schema.path_of(data_dir, slot), facts)
            sync_folder(data_dir)
        except BaseException:
            os.close(self._lock_fd)
            raise

    @property
    def uncommitted(self) -> bool:
        """Whether something is written whose rows are not committed."""
        return bool(self._written)

    def repair(self, durable: int, on_disk: Sequence[str], tail: Tail | None = None) -> int:
        """Repairs what a crash left, and continues in the last file; `on_disk` are the names of the slot's files.

        Returns how many rows were restored from beyond the committed length; `tail` says which may be.
        """
        files = self.index.files()
        if stray := set(on_disk) - {file.name for file in files}:
            path = self.folder / min(stray)
            raise BadInput(f"{path} is not in the index {self.index.path.name}: {remedy(self.index.path.parent)}")
        back = repair(self.index, self.folder, durable, tail)
        files = self.index.files()
        if files and files[-1].length < self._files.rotate_bytes:
            self._file_state = files[-1]
        return back

    def add(self, row: Row, page: Page | None, text: str | None = None) -> None:
        """Adds a row, its records and its text; a second one for the same item is ignored."""
        self._pending.setdefault(row.item, (row, page, text))

    def forget(self, items: Iterable[int]) -> list[Row]:
        """Drops what was added for these items and is not written yet."""
        return [dropped[0] for item in items if (dropped := self._pending.pop(item, None)) is not None]

    def write(self) -> None:
        """Appends the records of what was added, in one write; an item that already has a row is dropped."""
        if not self._pending:
            return
        for item in self.index.known([*self._pending]) | (self._pending.keys() & self._written.keys()):
            del self._pending[item]
        self._write_texts()
        pages = [page for _, page, _ in self._pending.values() if page]
        chunks = [part for page in pages for part in (page.request, page.response, page.note) if part]
        begin = self._append(chunks) if chunks else 0
        self._place(begin)
        self._pending.clear()
        self._step("warc-written")

    def _write_texts(self) -> None:
        texts = [(row.url, text) for row, _, text in self._pending.values() if text is not None]
        for url, text in texts:
            self._texts.write(url, text)
            self._step("text-written")

    def commit(self, batch: int, durable: int) -> None:
        """Commits the rows of what was written; without any, that the batch was."""
        rows = [(values[0], batch, *values[1:]) for values in self._written.values()]
        self.index.commit(batch, durable, rows, self._grown.values())
        self._written.clear()
        self._grown.clear()
        self._step("index-committed")

    def sync(self) -> None:
        """Makes texts and bytes durable."""
        self._texts.sync()
        with self._file_lock:
            if self._file is not None:
                self._file.sync()

    def close(self) -> None:
        """Releases the slot."""
        self._close_file()
        self.index.close()
        os.close(self._lock_fd)

    def _append(self, chunks: Sequence[bytes]) -> int:
        """Appends to the current file, and returns where the chunks begin."""
        if self._file is None or self._file.length >= self._files.rotate_bytes:
            self._roll()
        assert self._file is not None
        info = self._files.maker.info(self._file.path.name, self._files.info) if self._file.length == 0 else b""
        return self._file.append([info, *chunks]) + len(info)

    def _place(self, at: int) -> None:
        """Turns what was added into index rows, now that the offsets are known: the first record begins at `at`."""
        state = self._file_state
        last = 0
        for item, (row, page, _) in self._pending.items():
            if page is None or page.note:
                self._written[item] = values_of(row, row.digest, None, 0, 0)
                if page is not None:
                    last, at = at, at + len(page.note)
                continue
            if not page.response:
                self._written[item] = values_of(row, row.digest or page.digest, TEXT_ALONE, 0, 0)
                continue
            assert state is not None
            last = at + len(page.request)
            self._written[item] = values_of(row, row.digest or page.digest, state.id, last, len(page.response))
            at = last + len(page.response)
        if last and state is not None:
            self._file_state = self._grown[state.id] = FileState(state.id, state.name, at, last)

    def _roll(self) -> None:
        """Opens the file to append to: the last one, or a new one."""
        if self._file_state is None or self._file_state.length >= self._files.rotate_bytes:
            self.sync()  # before the index, or a power cut could leave rows without their bytes
            self._close_file()
            self._file_state = self.index.register(next(self._files.names))
            self.index.flush()
            self._step("warc-registered")
        file = WarcFile(self.folder / self._file_state.name, self._file_state.length)
        with self._file_lock:
            self._file = file
        self._step("warc-opened")

    def _close_file(self) -> None:
        with self._file_lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def own(data_dir: Path, slot: str) -> int:
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
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise Busy(f"data dir {data_dir} is in use: another process writes to it as {slot}") from None
    return fd
