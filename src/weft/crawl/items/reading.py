"""Reads a crawl's items in the order of their commits, each once, also across restarts of the reader.

DATA/crawls/crawl/items-NAME.json   the position of the reader of that name: the last batch of each index that it has
                                    read completely, and how many items it has read of pages after that
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from weft.crawl.folder import CrawlFolder
from weft.engine.user_code.calls import decode_output
from weft.errors import BadInput, WeftError
from weft.files import replace_file
from weft.store.pages import PageStore

WRITE_EVERY_S = 1.0
PROGRAM = "program"  # the name of the reader that is a Python program


class ItemPosition(Struct):
    """The position of a reader."""

    batches: dict[str, int] = {}  # by data dir and index
    read: dict[int, int] = {}  # item → how many of its page's items were read, for pages after the batches
    length: int = 0  # of the file that it has written


class ItemReader:
    """Reads a crawl's items from a position on."""

    def __init__(self, data_dirs: Sequence[Path], position: ItemPosition | None = None) -> None:
        self._data_dirs = list(data_dirs)
        self.position = position or ItemPosition()
        indexes = {str(number): folder for number, folder in enumerate(self._data_dirs)}
        split = [(*key.partition("/")[::2], batch) for key, batch in self.position.batches.items()]
        self._seen = {indexes[number] / name: batch for number, name, batch in split if number in indexes}
        self._store: PageStore | None = None

    def new(self) -> Iterator[bytes]:
        """Yields the new items as JSON; an item counts as read when the next one is requested."""
        store = self._opened()
        if store is None:
            return
        read, taken = self.position.read, list[int]()

        def passed() -> None:
            for page in taken:
                read.pop(page, None)
            taken.clear()
            self._note()

        for page, output in store.new_outputs(self._seen, passed):
            items = decode_output(output.data).items
            for at in range(read.get(page, 0), len(items)):
                yield bytes(items[at])
                read[page] = at + 1
            taken.append(page)

    def close(self) -> None:
        """Closes the index."""
        if self._store is not None:
            self._store.abandon()

    def _opened(self) -> PageStore | None:
        """The store, once the crawl has created its index."""
        if self._store is None:
            try:
                self._store = PageStore.open(self._data_dirs, read_only=True)
            except BadInput:
                return None
        return self._store

    def _note(self) -> None:
        numbers = {folder: number for number, folder in enumerate(self._data_dirs)}
        self.position.batches = {f"{numbers[path.parent]}/{path.name}": batch for path, batch in self._seen.items()}


class KeptReader:
    """A reader whose position is stored in the crawl's folder."""

    def __init__(self, data_dirs: Sequence[Path], name: str, *, from_start: bool = False) -> None:
        """`from_start`: ignores a stored position."""
        self._path = position_path(data_dirs, name)
        self.reader = ItemReader(data_dirs, None if from_start else read_position(self._path))
        self._write_at = time.monotonic() + WRITE_EVERY_S

    def new(self) -> Iterator[dict[str, Any]]:
        """Yields the new items, decoded."""
        for item in self.reader.new():
            yield msgspec.json.decode(item)
            if time.monotonic() >= self._write_at:
                self.write()

    def write(self) -> None:
        """Stores the position."""
        self._write_at = time.monotonic() + WRITE_EVERY_S
        write_position(self._path, self.reader.position)


def position_path(data_dirs: Sequence[Path], name: str) -> Path:
    """The path of a reader's position."""
    return CrawlFolder(data_dirs).own / f"items-{name}.json"


def read_position(path: Path) -> ItemPosition | None:
    """A stored position; None if there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ItemPosition)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def write_position(path: Path, position: ItemPosition, *, durable: bool = False) -> None:
    """Stores a position. If that fails, items may be repeated after a restart."""
    try:
        replace_file(path, msgspec.json.encode(position), durable=durable)
    except (OSError, WeftError):
        return
