"""Which pages `weft.crawl` has yielded, so that a resumed crawl yields every page once, also those that were stored and
not yielded when the program ended.

    DATA/yielded.json    the last batch of each index that was yielded whole, and what was yielded behind it

A page counts as yielded when the next one is asked for: one whose processing failed comes again. The file is written
once a second and when the loop ends: after a kill the pages of the last second may come once more, none is missed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from weft.errors import DiskFull, WeftError
from weft.files import replace_file
from weft.records import Row
from weft.store.pages import PageStore

WRITE_EVERY_S = 1.0


class _Position(Struct):
    batches: dict[str, int] = {}
    items: set[int] = set()


class Yielded:
    """Where the readers of a crawl are."""

    def __init__(self, path: Path, known: dict[Path, int], items: set[int]) -> None:
        self._path = path
        self._known = known
        self._items = items
        self._write_at = time.monotonic() + WRITE_EVERY_S

    @classmethod
    def of(cls, home: Path, data_dirs: list[Path], *, resume: bool) -> Yielded:
        """The position of a crawl that is not running yet; without one, what is stored is taken for yielded."""
        path = home / "yielded.json"
        if not resume:
            return cls(path, {}, set())
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=_Position)
            return cls(path, {Path(name): batch for name, batch in kept.batches.items()}, kept.items)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return cls(path, _stored(data_dirs), set())

    def new(self, store: PageStore) -> Iterator[Row]:
        """The rows that are new, in the order of their commits; each counts as yielded when the next is asked for."""
        taken: list[int] = []

        def passed() -> None:
            self._items.difference_update(taken)  # from now on the batch says it
            taken.clear()

        for row in store.new_rows(self._known, passed):
            if row.item not in self._items:
                yield row
                self._items.add(row.item)
                if time.monotonic() >= self._write_at:
                    self.write()
            taken.append(row.item)

    def write(self) -> None:
        """Keeps the position. Where that cannot be written, pages may come twice after a restart."""
        self._write_at = time.monotonic() + WRITE_EVERY_S
        batches = {str(path): batch for path, batch in self._known.items()}
        try:
            replace_file(self._path, msgspec.json.encode(_Position(batches, self._items)), durable=False)
        except (DiskFull, OSError):
            return


def _stored(data_dirs: list[Path]) -> dict[Path, int]:
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
