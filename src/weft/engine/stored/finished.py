"""Which items embedded frontiers have finished, for a rebuild: those that must have a row, and those that have none."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from weft.errors import WeftError
from weft.frontier.durability.items import Bitmap
from weft.frontier.durability.journal import FrontierJournal
from weft.records import Row
from weft.telemetry import Log

PAGE_PURPOSE = "p"  # marks an item of the journal as a page; other items (sitemaps) have no row in the index
log = Log("weft.engine.stored.finished")


class FrontierJournals:
    """The journals of a crawl's pods, for a rebuild. No other process may have them open."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.acknowledged = 0
        self._journals: list[FrontierJournal] = []
        self._finished_items = Bitmap()
        try:
            for path in paths:
                self._journals.append(FrontierJournal(path))
                self._read_journal(self._journals[-1])
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, paths: Sequence[Path]) -> FrontierJournals | None:
        """Opens the journals; None if they are damaged or empty: pages are then rebuilt without them, as far as
        possible.
        """
        try:
            found = cls(paths)
        except (WeftError, sqlite3.Error, ValueError) as error:
            log.error("the frontier cannot be read: the index is rebuilt without it", error=error)
            return None
        if found.acknowledged:
            return found
        found.close()  # it is newer than the stored pages, which are finished all the same
        return None

    def is_done(self, item: int) -> bool:
        """Whether an item is finished."""
        return item in self._finished_items

    def missing_rows(self, known: Callable[[Sequence[int]], set[int]]) -> Iterator[Row]:
        """Rows for pages that are finished and have none; `known` returns whether an item has one.

        A URL that is queued again, or was fetched again since, is not missing.
        """
        candidates: dict[str, Row] = {}
        for lines in self._admitted_pages():
            ended = {item for item, _, _ in lines if item in self._finished_items}
            ended -= known([*ended])
            candidates |= {url: _row_of_page(item, url, fields) for item, url, fields in lines if item in ended}
        if not candidates:
            return
        for lines in self._admitted_pages():
            again = [(item, url) for item, url, _ in lines if url in candidates]
            there = known([item for item, _ in again])
            for item, url in again:
                if item in there or item not in self._finished_items:
                    candidates.pop(url, None)
        yield from candidates.values()

    def close(self) -> None:
        """Closes the journals."""
        for journal in self._journals:
            journal.close()

    def _read_journal(self, journal: FrontierJournal) -> None:
        for _, _, numbers in journal.done_since(0):
            self._finished_items.add(numbers)
        self.acknowledged = max(self.acknowledged, int(journal.meta("acknowledged") or 0))

    def _admitted_pages(self) -> Iterator[list[tuple[int, str, list[str]]]]:
        """The admitted items of one commit at a time: item, URL and the fields of the journal's line."""
        for journal in self._journals:
            for _, _, lines in journal.admitted_since(0):
                fields = [line.split(" ", 7) for line in lines]
                yield [(int(one[0]), one[7].partition(" ")[0], one) for one in fields if one[6] == PAGE_PURPOSE]


def _row_of_page(item: int, url: str, fields: list[str]) -> Row:
    depth, parent, hops, crawl = int(fields[1]), int(fields[2]), int(fields[3]), int(fields[5])
    return Row(item, crawl, url, url, 0, 0.0, "", "", "", "", depth, parent, "", 0, "lost", hops)
