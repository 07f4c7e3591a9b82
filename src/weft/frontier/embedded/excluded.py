"""Items that an edit of a crawl has excluded: out of the queues, kept in the journal until a later edit wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from weft.frontier.contract import Item
from weft.frontier.durability.checkpoint import OpenItem
from weft.frontier.durability.journal import FrontierJournal


class ExcludedItems:
    """The excluded items, by crawl and number. They are in no queue and in no lease."""

    def __init__(self, journal: FrontierJournal) -> None:
        self._journal = journal
        self._items: dict[int, dict[int, Item]] = {}

    def load(self) -> None:
        """Loads the excluded items of earlier processes."""
        for number, crawl, record in self._journal.rows("aside"):
            self._items.setdefault(crawl, {})[number] = msgspec.msgpack.decode(record, type=Item)

    def add(self, crawl: int, item: Item) -> None:
        """Excludes an item; written with the next commit."""
        self._items.setdefault(crawl, {})[item.item] = item
        self._journal.put("aside", item.item, crawl, msgspec.msgpack.encode(item))

    def remove(self, crawl: int, wanted: Callable[[Item], bool]) -> list[Item]:
        """Removes those that are wanted again, and returns them."""
        items = self._items.get(crawl, {})
        back = [item for item in items.values() if wanted(item)]
        for item in back:
            del items[item.item]
            self._journal.delete("aside", item.item)
        return back

    def count(self, crawl: int) -> int:
        """How many excluded items a crawl has."""
        return len(self._items.get(crawl, ()))

    def close_crawl(self, crawl: int) -> None:
        """Forgets the items of an ended crawl; the journal deletes them with the rest."""
        self._items.pop(crawl, None)

    def __iter__(self) -> Iterator[OpenItem]:
        for crawl, items in self._items.items():
            yield from (OpenItem(crawl, item) for item in items.values())
