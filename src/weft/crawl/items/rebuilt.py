"""Where readers of items are, when the indexes are about to be made again: their batches get other numbers.

A position is then written down by page: how many items of each were read. Where an index cannot be read, the reader
begins again with an empty file, so that each item is in it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft.crawl.folder import CrawlFolder
from weft.crawl.items.processed import ProcessedState, read_state, write_state
from weft.crawl.items.reading import ItemPosition, read_batches, read_position, write_position
from weft.errors import WeftError
from weft.store.pages import PageStore


def note_items_rebuild(data_dirs: Sequence[Path]) -> None:
    """Keeps the positions of all readers of a crawl."""
    own = CrawlFolder(data_dirs).own_folder
    files = sorted(own.glob("items-*.json"))
    state = read_state(data_dirs)
    if not (files or state.position.batches or state.position.items_read_by_page):
        return
    try:
        store = PageStore.open(data_dirs, read_only=True)
    except WeftError:
        store = None
    try:
        for file in files:
            kept = read_position(file)
            if kept is not None and not kept.offset:
                write_position(file, _position_by_page(store, data_dirs, kept) or ItemPosition(), durable=True)
        position = _position_by_page(store, data_dirs, state.position)
        if position is None:
            write_state(data_dirs, ProcessedState())
        else:
            state.position = position
            write_state(data_dirs, state)
    finally:
        if store is not None:
            store.abandon()


def _position_by_page(store: PageStore | None, data_dirs: Sequence[Path], kept: ItemPosition) -> ItemPosition | None:
    """The position without batches; None where the index cannot be read."""
    if store is None:
        return None
    try:
        unread = {page for page, _ in store.new_outputs(read_batches(kept, data_dirs))}
        read = {page: output.count for page, output in store.new_outputs({}) if page not in unread}
    except WeftError:
        return None
    return ItemPosition(items_read_by_page=read | kept.items_read_by_page, length=kept.length)
