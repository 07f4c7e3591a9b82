"""Sites at rest: those that are not asked soon, packed into rows on the disk. In memory each takes about thirty bytes.

A site comes to rest when more are awake than are needed: as one that nobody has asked yet, of which there are only
pages; or packed with its politeness clock, exactly as it was. It belongs to the one crawl that has something queued
there. Sites are woken in the order in which they are due, by the claim that needs them, or by what is not for the end
of their queue. A woken site is scheduled by its own clock, so that it is never asked early.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from os import urandom
from pathlib import Path

from xxhash import xxh3_64_digest

from weft.frontier.scheduling.packed import PackedMap
from weft.frontier.scheduling.rows import Rows

_CRAWL_BITS = 32
_CRAWL = (1 << 31) - 1
_WAKES = 1 << 31  # a page wakes it: what waits there must wait longer than a page would
_MARK = 8  # bytes of a fingerprint


class Order:
    """Fingerprints of sites by the second in which they are due; some may be awake again."""

    __slots__ = ("_at", "_seconds", "_ticks")

    def __init__(self) -> None:
        self._ticks: dict[int, bytearray] = {}
        self._seconds: list[int] = []
        self._at = 0  # how far the first second was read

    def add(self, mark: bytes, due: float) -> None:
        """Adds one, to be woken up to a second before it is due: its clock knows the moment."""
        second = int(due)
        if second not in self._ticks:
            if self._at and second < self._seconds[0]:
                second = self._seconds[0]  # that is over, too, and being read: to its end
            else:
                self._ticks[second] = bytearray()
                heappush(self._seconds, second)
        self._ticks[second] += mark

    def next_due(self) -> float | None:
        """When the first may be due."""
        return float(self._seconds[0]) if self._seconds else None

    def pop(self, now: float) -> bytes | None:
        """The next one that is due."""
        if not self._seconds or self._seconds[0] > now:
            return None
        marks, at = self._ticks[self._seconds[0]], self._at
        self._at += _MARK
        if self._at >= len(marks):
            del self._ticks[heappop(self._seconds)]
            self._at = 0
        return bytes(marks[at : at + _MARK])

    def hurry(self, now: float) -> None:
        """All may be due now."""
        marks = bytearray().join(self._ticks[second] for second in sorted(self._ticks))
        del marks[: self._at]
        if marks:
            self._ticks, self._seconds, self._at = {int(now): marks}, [int(now)], 0

    def __iter__(self) -> Iterator[bytes]:
        for marks in self._ticks.values():
            for at in range(0, len(marks), _MARK):
                yield bytes(marks[at : at + _MARK])


class Resting:
    """The sites at rest of all crawls."""

    def __init__(self, folder: Path) -> None:
        self.rows = Rows(folder)
        self._last = PackedMap()  # the place of each site's last row, and its crawl
        self._orders: dict[int, Order] = defaultdict(Order)  # by crawl
        self._counts: Counter[int] = Counter()  # sites by crawl
        self._seed = int.from_bytes(urandom(7))

    def __len__(self) -> int:
        return len(self._last)

    def count(self, crawl: int) -> int:
        """How many sites of a crawl are at rest."""
        return self._counts[crawl]

    def find(self, key: str) -> tuple[int, bool] | None:
        """The crawl that a site at rest belongs to, and whether a page wakes it; None for one that is not at rest."""
        found = self._last.get(self._mark(key))
        return None if found is None else (found & _CRAWL, bool(found & _WAKES))

    def add(self, key: str, crawl: int, row: bytes, due: float, *, wakes: bool = False) -> None:
        """Adds a row to a site at rest, or brings one to rest with this row. `wakes`: see `find`."""
        mark = self._mark(key)
        before = self._last.get(mark)
        place = self.rows.append(row, 0 if before is None else before >> _CRAWL_BITS)
        self._last.put(mark, place << _CRAWL_BITS | (_WAKES if wakes else 0) | crawl)
        if before is None:
            self._orders[crawl].add(mark, due)
            self._counts[crawl] += 1

    def take(self, key: str) -> tuple[int, list[bytes]] | None:
        """Takes a site out: its crawl, and its rows in order; None for one that is not at rest."""
        mark = self._mark(key)
        found = self._last.get(mark)
        return None if found is None else (found & _CRAWL, self._take(mark, found))

    def take_due(self, crawl: int, now: float) -> list[bytes] | None:
        """Takes out a crawl's next site that is due: its rows."""
        order = self._orders.get(crawl)
        while order is not None and (mark := order.pop(now)) is not None:
            found = self._last.get(mark)
            if found is not None and found & _CRAWL == crawl:
                return self._take(mark, found)
        return None

    def next_due(self, crawl: int) -> float | None:
        """When a crawl's next site may be due."""
        order = self._orders.get(crawl)
        return order.next_due() if order is not None else None

    def hurry(self, crawl: int, now: float) -> None:
        """A crawl's sites may be due earlier than was thought."""
        if crawl in self._orders:
            self._orders[crawl].hurry(now)

    def of_crawl(self, crawl: int) -> Iterator[list[bytes]]:
        """The rows of each of a crawl's sites, which stay."""
        seen = PackedMap()  # one that was awake in between may be in the order twice
        for mark in self._orders.get(crawl, ()):
            found = self._last.get(mark)
            if found is None or found & _CRAWL != crawl or seen.get(mark) is not None:
                continue
            seen.put(mark, 0)
            yield self._rows_from(found >> _CRAWL_BITS)

    def close(self) -> None:
        """Closes the files."""
        self.rows.close()

    def _mark(self, key: str) -> bytes:
        return xxh3_64_digest(key.encode(), self._seed)

    def _take(self, mark: bytes, found: int) -> list[bytes]:
        self._last.pop(mark)
        self._counts[found & _CRAWL] -= 1
        return self._rows_from(found >> _CRAWL_BITS, forget=True)

    def _rows_from(self, place: int, *, forget: bool = False) -> list[bytes]:
        """The rows of a site from its last one back to its first, in order."""
        rows = []
        while place:
            row, before = self.rows.read(place)
            rows.append(row)
            if forget:
                self.rows.forget(place)
            place = before
        rows.reverse()
        return rows
