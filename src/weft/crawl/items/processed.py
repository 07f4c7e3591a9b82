"""What a spider's pipelines have made of the committed items, and how far they are with them.

DATA/crawls/crawl/processed.jsonl   the items as the pipelines have returned them, in the order of the commits
DATA/crawls/crawl/processed.json    how far the pipelines are, how long the other file was then, and what was lost

The second file is the commit: it is replaced when the lines are on the disk, and lines beyond its length are cut off.
So each result, or drop, is there once, whatever is killed; what the pipelines do besides may happen again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from weft.crawl.folder import CrawlFolder
from weft.crawl.items.reading import ItemPosition, ItemReader
from weft.engine.user_code.calls import ProcessedItem
from weft.errors import Damaged, writing
from weft.files import replace_file

MOST_CAUSES = 100  # of lost items that are counted apart
_REMEDY = "delete it and processed.jsonl: the pipelines get all committed items once more"


class ItemLoss(Struct):
    """Items that a pipeline has failed at, all for one cause."""

    count: int = 0
    traceback: str = ""


class ProcessedState(Struct):
    """How far pipelines are."""

    position: ItemPosition = msgspec.field(default_factory=ItemPosition)
    length: int = 0
    items: int = 0
    dropped: int = 0
    lost: dict[str, ItemLoss] = {}

    @property
    def losses(self) -> int:
        """How many items were lost in pipelines that failed."""
        return sum(loss.count for loss in self.lost.values())


def has_pipelines(data_dirs: Sequence[Path]) -> bool:
    """Whether a crawl's items go through pipelines before they are written anywhere."""
    description = CrawlFolder(data_dirs).spider()
    return description is not None and description.has_pipelines


def read_state(data_dirs: Sequence[Path]) -> ProcessedState:
    """How far the pipelines of a crawl are; Damaged where that cannot be read."""
    path = _state_path(data_dirs)
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProcessedState)
    except FileNotFoundError:
        return ProcessedState()
    except msgspec.DecodeError as error:
        raise Damaged(path, f"cannot be read: {error}", _REMEDY) from None


def write_state(data_dirs: Sequence[Path], state: ProcessedState) -> None:
    """Keeps how far the pipelines are."""
    replace_file(_state_path(data_dirs), msgspec.json.encode(state))


class ProcessedItems:
    """The two files, for the one process that runs the pipelines."""

    def __init__(self, data_dirs: Sequence[Path]) -> None:
        self.state = read_state(data_dirs)
        self._state_path = _state_path(data_dirs)
        path = _items_path(data_dirs)
        with writing(path):
            self._file: BinaryIO = path.open("ab")
            if self._file.seek(0, os.SEEK_END) < self.state.length:
                raise Damaged(path, "is shorter than it was", _REMEDY)
            self._file.truncate(self.state.length)
            self._file.seek(self.state.length)

    def commit(self, position: ItemPosition, processed: Sequence[ProcessedItem]) -> None:
        """Keeps what came of some items, and that they are read."""
        state = self.state
        for one in processed:
            if one.item:
                self._file.write(one.item + b"\n")
            state.items += bool(one.item)
            state.dropped += bool(one.dropped)
            if one.error:
                self._count_loss(one)
        self._file.flush()
        os.fsync(self._file.fileno())
        state.position, state.length = position, self._file.tell()
        replace_file(self._state_path, msgspec.json.encode(state))

    def _count_loss(self, one: ProcessedItem) -> None:
        lost = self.state.lost
        cause = one.error if one.error in lost or len(lost) < MOST_CAUSES else "other causes"
        loss = lost.setdefault(cause, ItemLoss(traceback=one.traceback))
        loss.count += 1

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class ProcessedReader:
    """Reads the items that pipelines have returned, each once, also across restarts of whoever reads."""

    def __init__(self, data_dirs: Sequence[Path], position: ItemPosition | None = None) -> None:
        self._data_dirs = data_dirs
        self.position = position or ItemPosition()

    def new_items(self) -> Iterator[bytes]:
        """The items that are new, each as JSON; one counts as read when the next is asked for."""
        end = read_state(self._data_dirs).length
        if self.position.offset >= end:
            return
        with _items_path(self._data_dirs).open("rb") as file:
            file.seek(self.position.offset)
            while self.position.offset < end:
                line = file.readline()
                yield line.removesuffix(b"\n")
                self.position.offset += len(line)

    def close(self) -> None:
        """Nothing is open between two calls."""


def reader_of(data_dirs: Sequence[Path], position: ItemPosition | None = None) -> ItemReader | ProcessedReader:
    """What reads a crawl's items for whoever writes them anywhere."""
    if has_pipelines(data_dirs):
        return ProcessedReader(data_dirs, position)
    return ItemReader(data_dirs, position)


def _state_path(data_dirs: Sequence[Path]) -> Path:
    return CrawlFolder(data_dirs).own_folder / "processed.json"


def _items_path(data_dirs: Sequence[Path]) -> Path:
    return CrawlFolder(data_dirs).own_folder / "processed.jsonl"
