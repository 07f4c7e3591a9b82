"""Reads a crawl's items in the order of their commits, each once, also across restarts of the reader.

DATA/crawls/crawl/items-NAME.json   the position of the reader of that name: the last batch of each index that it has
                                    read completely, and how many items it has read of pages after that
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from weft.crawl.folder import CrawlFolder
from weft.engine.user_code.calls import decode_output
from weft.errors import BadInput, WeftError
from weft.files import replace_file
from weft.store.pages import PageStore


class ItemPosition(Struct):
    """How far a reader of a crawl's items has read, as it is stored beside the file that it writes."""

    batches: dict[str, int] = {}  # by data dir and index: the last batch that is read to its end
    # page → how many of its items were read; only of pages in batches that are not read to their end
    items_read_by_page: dict[int, int] = field(default_factory=dict, name="read")
    length: int = 0  # of the file that it has written
    offset: int = 0  # in the items that pipelines have returned


class CommittedItem(NamedTuple):
    """An item as it was committed with its page."""

    json: bytes
    whole: bytes  # as `CallResult.objects` had it; empty where its spider had no pipelines


class ItemReader:
    """Reads a crawl's items from a position on."""

    def __init__(self, data_dirs: Sequence[Path], position: ItemPosition | None = None) -> None:
        self._data_dirs = list(data_dirs)
        self.position = position or ItemPosition()
        self._batches_seen = read_batches(self.position, self._data_dirs)
        self._store: PageStore | None = None
        self._items_left: Iterator[tuple[int, int, CommittedItem]] = iter(())

    def new_items(self) -> Iterator[bytes]:
        """Yields the new items as JSON; an item counts as read when the next one is requested."""
        for page, at, item in self._unread_items():
            yield item.json
            self.position.items_read_by_page[page] = at + 1

    def read_some(self, most: int) -> list[CommittedItem]:
        """Some of the new items; they count as read."""
        taken = list[CommittedItem]()
        for page, at, item in chain(self._items_left, self._read_batches()):
            # at once: behind the last page of a batch its entry is deleted
            self.position.items_read_by_page[page] = at + 1
            taken.append(item)
            if len(taken) >= most:
                break
        return taken

    def _read_batches(self) -> Iterator[tuple[int, int, CommittedItem]]:
        self._items_left = self._unread_items()
        yield from self._items_left

    def _unread_items(self) -> Iterator[tuple[int, int, CommittedItem]]:
        """Each new item with its page, and its index among the items of the page."""
        store = self._open_store()
        if store is None:
            return
        read, taken = self.position.items_read_by_page, list[int]()

        def passed() -> None:
            for page in taken:
                read.pop(page, None)
            taken.clear()
            self._note_position()

        for page, output in store.new_outputs(self._batches_seen, passed):
            made = decode_output(output.data)
            for at in range(read.get(page, 0), len(made.items)):
                whole = made.objects[at] if made.objects else b""
                yield page, at, CommittedItem(bytes(made.items[at]), whole)
            taken.append(page)

    def close(self) -> None:
        """Closes the index."""
        if self._store is not None:
            self._store.abandon()

    def _open_store(self) -> PageStore | None:
        """The store, once the crawl has created its index."""
        if self._store is None:
            try:
                self._store = PageStore.open(self._data_dirs, read_only=True)
            except BadInput:
                return None
        return self._store

    def _note_position(self) -> None:
        numbers = {folder: number for number, folder in enumerate(self._data_dirs)}
        self.position.batches = {
            f"{numbers[path.parent]}/{path.name}": batch for path, batch in self._batches_seen.items()
        }


def read_batches(position: ItemPosition, data_dirs: Sequence[Path]) -> dict[Path, int]:
    """The last batch of each index that a reader has read to its end."""
    indexes = {str(number): folder for number, folder in enumerate(data_dirs)}
    split = [(*key.partition("/")[::2], batch) for key, batch in position.batches.items()]
    return {indexes[number] / name: batch for number, name, batch in split if number in indexes}


def position_path(data_dirs: Sequence[Path], name: str) -> Path:
    """The path of a reader's position."""
    return CrawlFolder(data_dirs).own_folder / f"items-{name}.json"


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
