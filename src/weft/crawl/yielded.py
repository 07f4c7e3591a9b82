"""Records which pages `weft.crawl` has yielded, so that a resumed crawl yields every page once, including those that
were stored and not yielded when the program ended.

    DATA/crawls/crawl/yielded.json    the last batch of each index that was yielded completely, and the pages that were
                                      yielded after it

A page counts as yielded when the next one is requested: if the program fails while processing it, it is yielded again.
The file is written before the crawl runs, once a second and when the loop ends: after a kill the pages of the last
second may be repeated, none is missed. An index is identified by the number of its data dir, so that a crawl may be
moved, or resumed from another folder. If the file, or an index that is to be rebuilt, cannot be read, every page is
yielded again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from weft.crawl.folder import CrawlFolder
from weft.errors import DiskFull, WeftError
from weft.files import replace_file
from weft.records import Row
from weft.store.pages import PageStore

WRITE_EVERY_S = 1.0


class _YieldedPosition(Struct):
    batches: dict[str, int] = {}
    items: set[int] = set()


class YieldedPages:
    """The position of the readers of a crawl."""

    def __init__(self, data_dirs: list[Path], known: dict[Path, int], items: set[int]) -> None:
        self._data_dirs = data_dirs
        self._known = known
        self._items = items
        self._write_at = time.monotonic() + WRITE_EVERY_S

    @classmethod
    def of(cls, data_dirs: list[Path], *, resume: bool) -> YieldedPages:
        """The position of a crawl that is not running yet; without a file, stored pages count as yielded."""
        kept = _read_position(_position_path(data_dirs)) if resume else _YieldedPosition()
        if kept is None:
            position = cls(data_dirs, _last_stored_batches(data_dirs), set())
        else:
            position = cls(data_dirs, _known(data_dirs, kept), kept.items)
        position.write()
        return position

    def new_rows(self, store: PageStore) -> Iterator[Row]:
        """Yields the new rows in the order of their commits; a row counts as yielded when the next one is requested."""
        taken: list[int] = []

        def passed() -> None:
            self._items.difference_update(taken)  # from now on the batch covers them
            taken.clear()

        for row in store.new_rows(self._known, passed):
            if row.item not in self._items:
                yield row
                self._items.add(row.item)
                if time.monotonic() >= self._write_at:
                    self.write()
            taken.append(row.item)

    def write(self) -> None:
        """Stores the position. If that fails, pages may be repeated after a restart."""
        self._write_at = time.monotonic() + WRITE_EVERY_S
        batches = {f"{self._data_dirs.index(path.parent)}/{path.name}": batch for path, batch in self._known.items()}
        _write_position(_position_path(self._data_dirs), _YieldedPosition(batches, self._items))


def note_rebuild(data_dirs: list[Path]) -> None:
    """Prepares a rebuild: the batches of a rebuilt index get other numbers, so the yielded items are stored instead. If
    the indexes cannot be read, every page is yielded again."""
    kept = _read_position(_position_path(data_dirs))
    if kept is not None:
        _write_position(_position_path(data_dirs), _YieldedPosition(items=_items(data_dirs, kept)))


def _position_path(data_dirs: list[Path]) -> Path:
    return CrawlFolder(data_dirs).own_folder / "yielded.json"


def _items(data_dirs: list[Path], kept: _YieldedPosition) -> set[int]:
    try:
        store = PageStore.open(data_dirs, read_only=True)
    except WeftError:
        return set()
    try:
        new = {row.item for row in store.new_rows(_known(data_dirs, kept))}
        return {row.item for row in store.rows()} - new | kept.items
    except WeftError:
        return set()
    finally:
        store.abandon()


def _known(data_dirs: list[Path], kept: _YieldedPosition) -> dict[Path, int]:
    folders = {str(number): folder for number, folder in enumerate(data_dirs)}
    split = [(*key.partition("/")[::2], batch) for key, batch in kept.batches.items()]
    return {folders[number] / name: batch for number, name, batch in split if number in folders}


def _read_position(path: Path) -> _YieldedPosition | None:
    """The stored position; None without a file. A file that cannot be read counts as one without yielded pages."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_YieldedPosition)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _YieldedPosition()


def _write_position(path: Path, position: _YieldedPosition) -> None:
    try:
        replace_file(path, msgspec.json.encode(position), durable=False)
    except (DiskFull, OSError):
        return


def _last_stored_batches(data_dirs: list[Path]) -> dict[Path, int]:
    try:
        store = PageStore.open(data_dirs, read_only=True)
    except WeftError:  # nothing was stored, or something is damaged, which the crawl itself reports
        return {}
    try:
        return store.committed_so_far()
    except WeftError:
        return {}
    finally:
        store.abandon()
