"""Which URLs a crawl has seen: exact 64-bit fingerprints, in a table of under 8 bytes for each (`seen_table`).

The hash is seeded for each crawl, so that a site cannot construct URLs that collide with those of another.

A new link is looked up first and added when the rules have let it in. The second time it need not be hashed and
searched for again: what a look-up did not find is remembered with its fingerprint until it is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from weft.compiled import counterpart
from weft.records import Found, Purpose

if TYPE_CHECKING:
    from weft.frontier.seen_table import Table
else:
    from weft.frontier import seen_table

    Table = (counterpart("weft.frontier._seen_table") or seen_table).Table

_PIECE = 1024  # buckets dumped together
_MISSED = 4096  # URLs remembered as missing: more than the pages of a round link to


class SeenSet:
    """A set of URLs, by fingerprint."""

    __slots__ = ("_missed", "_seed", "_table")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._table = Table()
        self._missed: dict[str, int] = {}  # fingerprints of URLs that were looked up, and are not in the set

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, url: str) -> bool:
        return self.fingerprint(url) in self._table

    def unknown(self, urls: Iterable[str]) -> list[str]:
        """Those that are not in the set, in order."""
        if len(self._missed) > _MISSED:
            self.forget_missed()
        listed = list(urls)
        return self._table.unknown(listed, self._fingerprints(listed), self._missed)

    def forget_missed(self) -> None:
        """Lets go of what was looked up and not added."""
        self._missed = {}

    def fingerprint(self, url: str) -> int:
        """The fingerprint as a number."""
        return xxh3_64_intdigest(url.encode(), self._seed)

    def add(self, url: str) -> bool:
        """Adds one; False if it was there."""
        return bool(self.add_new((url,)))

    def add_new(self, urls: Iterable[str]) -> list[str]:
        """Adds all, and returns those that were new, in order and once each."""
        listed = list(urls)
        if self._missed:
            known = list(map(self._missed.pop, listed, repeat(None)))
            numbers = [number for number in known if number is not None]
            if len(numbers) == len(known):
                return self._table.add_new(listed, numbers, True)
        return self._table.add_new(listed, self._fingerprints(listed))

    def discard(self, url: str) -> None:
        """Removes one, so that it is new when it is found again."""
        self._table.discard(self.fingerprint(url))

    def shape(self) -> tuple[int, int, int]:
        """The table's dimensions, for `reset_to` before the pieces of `dump` are loaded."""
        return self._table.shape()

    def dump(self) -> Iterator[tuple[list[int], bytes]]:
        """All fingerprints in pieces: the sizes of some buckets, and their content end to end."""
        for start in range(0, self.shape()[2], _PIECE):
            yield self._table.piece(start, _PIECE)

    def reset_to(self, shape: tuple[int, int, int]) -> int:
        """Empties the set for a dump of that shape; returns the number of its pieces."""
        mask, split, buckets = shape
        self._table.reset(mask, split)
        self.forget_missed()
        return -(-buckets // _PIECE)

    def load(self, piece: tuple[list[int], bytes]) -> None:
        """Adds the next dumped piece."""
        self._table.load(*piece)

    def _fingerprints(self, urls: list[str]) -> list[int]:
        return list(map(xxh3_64_intdigest, map(str.encode, urls), repeat(self._seed)))


def seen_key(found: Found) -> str:
    """The key of a URL in the seen set. A redirect may lead back into its own chain (a cookie wall): each such hop has
    a key of its own, and only the limit on hops ends the chain."""
    if found.purpose is Purpose.SITEMAP:
        return "sitemap " + found.url
    if found.hops and found.url in found.about.split(" "):
        return f"hop {found.hops} {found.url}"
    return found.url
