"""Which URLs a crawl has seen: exact 64-bit fingerprints, in a table of under 8 bytes for each (`seen_table`).

The seen set of a crawl keeps new fingerprints in memory; the rest is on disk, in sorted runs, which are searched as
well (`seen_runs`). Other sets are entirely in memory.

The hash is seeded for each crawl, so that a site cannot construct URLs that collide with those of another.

A new link is looked up first and added when the rules have admitted it. It is not hashed and searched for a second
time: URLs that a lookup did not find are remembered with their fingerprints until they are added.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from weft.compiled import counterpart
from weft.frontier.seen.seen_file import Unsound
from weft.records import Found, Purpose

if TYPE_CHECKING:
    from weft.frontier.seen.seen_runs import SeenRuns
    from weft.frontier.seen.seen_table import Table
else:
    from weft.frontier.seen import seen_table

    Table = (counterpart("weft.frontier.seen._seen_table") or seen_table).Table

__all__ = ["SeenSet", "Table", "fingerprint", "seen_key"]

_MOST_MISSED = 4096  # URLs remembered as missing: more than the pages of a round link to


class SeenSet:
    """A set of URLs, by fingerprint."""

    __slots__ = ("_fresh", "_missed", "_runs", "_seed", "_table", "count")

    def __init__(self, seed: int, runs: SeenRuns | None = None, crawl: int = 0) -> None:
        """With `runs` it is the set of a crawl, whose entries are in a table or in a run."""
        self.count = 0
        self._seed = seed
        self._table = Table()
        self._missed: dict[str, int] = {}  # fingerprints of URLs that were looked up, and are not in the set
        self._runs = runs
        self._fresh = runs.attach_crawl(crawl, self) if runs is not None else None

    def __len__(self) -> int:
        return self.count

    @property
    def entries_in_memory(self) -> int:
        """How many entries use memory."""
        return len(self._table)

    def __contains__(self, url: str) -> bool:
        return self.count > 0 and not self._unknown_urls([url], [self.fingerprint(url)], {})

    def unknown(self, urls: Iterable[str]) -> list[str]:
        """The URLs that are not in the set, in order."""
        if len(self._missed) > _MOST_MISSED:
            self.forget_missed()
        listed = list(urls)
        return self._unknown_urls(listed, self._fingerprints(listed), self._missed)

    def forget_missed(self) -> None:
        """Forgets the URLs that were looked up and not added."""
        self._missed = {}

    def fingerprint(self, url: str) -> int:
        """The fingerprint as a number."""
        return xxh3_64_intdigest(url.encode(), self._seed)

    def add(self, url: str) -> bool:
        """Adds a URL; False if it was there."""
        return bool(self.add_new((url,)))

    def add_new(self, urls: Iterable[str]) -> list[str]:
        """Adds URLs, and returns the new ones, in order and once each."""
        listed = list(urls)
        if self._missed:
            known = list(map(self._missed.pop, listed, repeat(None)))
            numbers = [number for number in known if number is not None]
            if len(numbers) == len(known):
                new = self._table.add_new(listed, numbers, True)
                self._note_added(numbers)
                return new
        numbers = self._fingerprints(listed)
        new = self._add_missing(listed, numbers)
        if new:
            self._note_added(numbers if len(new) == len(listed) else self._fingerprints(new))
        return new

    def note_new_line(self, url: str) -> None:
        """A URL of the set has another line in the journal."""
        if self._fresh is not None:
            self._fresh.append(self.fingerprint(url))

    def discard(self, url: str) -> None:
        """Removes a URL, so that it is new when it is found again."""
        number = self.fingerprint(url)
        if self._unknown_urls([url], [number], {}):
            return
        self.count -= 1
        self._table.discard(number)
        if self._fresh is not None and self._runs is not None:
            if self._fresh and self._fresh[-1] == number:  # it was added a moment ago
                self._fresh.pop()
            else:
                self._runs.remove(number)

    # ── for the runs ───────────────────────────────────────────────────────────────────────────────────────────────

    def empty_table(self) -> None:
        """Committed entries are in a run now."""
        self._table = Table()
        if self._fresh:
            self.restore(self._fresh.tolist())

    def restore(self, numbers: list[int]) -> None:
        """Loads fingerprints into the table that are counted already."""
        self._table.add_new(numbers, numbers)

    def replay(self, url: str, *, is_counted: bool) -> None:
        """Adds a URL of a line of the journal. `is_counted`: its count includes the entries of the runs."""
        number = self.fingerprint(url)
        new = self._add_missing([url], [number]) if is_counted else self._table.add_new([url], [number])
        if new:
            self._note_added([number])
        elif self._fresh is not None:
            self._fresh.append(number)

    def _note_added(self, numbers: list[int]) -> None:
        self.count += len(numbers)
        if self._fresh is not None and self._runs is not None:
            self._fresh.extend(numbers)
            if self._runs.gone is not None:
                self._runs.note_added_again(numbers)

    def _unknown_urls(self, urls: list[str], numbers: list[int], missed: dict[str, int]) -> list[str]:
        if self._runs is None:
            return self._table.unknown(urls, numbers, missed)
        while True:
            try:
                return self._table.unknown(urls, numbers, missed, self._runs.runs, self._runs.gone)
            except Unsound as damage:
                self._runs.repair(damage.args[0])

    def _add_missing(self, urls: list[str], numbers: list[int]) -> list[str]:
        if self._runs is None:
            return self._table.add_new(urls, numbers)
        while True:
            try:
                return self._table.add_new(urls, numbers, False, self._runs.runs, self._runs.gone)
            except Unsound as damage:  # before anything was added
                self._runs.repair(damage.args[0])

    def _fingerprints(self, urls: list[str]) -> list[int]:
        return list(map(xxh3_64_intdigest, map(str.encode, urls), repeat(self._seed)))


def fingerprint(url: str, seed: int) -> int:
    """The fingerprint of a URL, or of another key, for the seed of a crawl."""
    return xxh3_64_intdigest(url.encode(), seed)


def seen_key(found_url: Found) -> str:
    """The key of a URL in the seen set. A redirect may lead back into its own chain (a cookie wall): each such hop has
    a key of its own, and only the limit on hops ends the chain."""
    if found_url.key:
        return "request " + found_url.key
    if found_url.purpose is Purpose.SITEMAP:
        return "sitemap " + found_url.url
    if found_url.hops and found_url.url in found_url.about.split(" "):
        return f"hop {found_url.hops} {found_url.url}"
    return found_url.url
