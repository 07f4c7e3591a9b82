"""Swapped-out sites: those that are not due soon, packed into rows on the disk. Each uses about thirty bytes of memory.

A row is a blob, with the number of the row before it of the same site. The part in memory is periodically written to
the disk as a whole, and in between as the changes since (`durability/swap_file`).

A site is swapped out when more are in memory than are needed: as one that nobody has asked yet, of which there are only
pages; or packed with its politeness clock, exactly as it was. It belongs to the one crawl that has something queued
there. Sites are swapped in in the order in which they are due, by the claim that needs them, or by what is not for the
end of their queue. A swapped in site is scheduled by its own clock, so that it is never asked early.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice
from os import urandom

import msgspec
from xxhash import xxh3_64_digest

from weft.frontier.durability.blobs import BlobStore
from weft.frontier.scheduling.packed_map import PackedMap

_CRAWL_BITS = 32
_CRAWL_MASK = (1 << 31) - 1
_WAKES_BIT = 1 << 31  # a page swaps it in: its own items must wait longer than a page would
_FINGERPRINT_BYTES = 8  # bytes of a fingerprint
_BLOB_NUMBER_BYTES = 8  # of a blob, at the beginning of a row
_VALUE, _DUE = 10, 5  # bytes of a change: the fingerprint, what it represents (0: nothing), and when it is due
CHANGE_BYTES = _FINGERPRINT_BYTES + _VALUE + _DUE
_DUE_UNCHANGED = (1 << 8 * _DUE) - 1  # in place of a due time: the site is in the order already
_BUCKETS_PER_RECORD = 4096  # buckets, or seconds, that are written down together
_encode = msgspec.msgpack.Encoder().encode


class DueSeconds:
    """Fingerprints of sites by the second in which they are due; some may have been swapped in since."""

    __slots__ = ("_read_offset", "_seconds", "_ticks")

    def __init__(self) -> None:
        self._ticks: dict[int, bytearray] = {}
        self._seconds: list[int] = []
        self._read_offset = 0  # the position up to which the first second was read

    def add(self, mark: bytes, due: float) -> None:
        """Adds a site, to be swapped in up to a second before it is due: its clock has the exact time."""
        second = int(due)
        if second not in self._ticks:
            if self._read_offset and second < self._seconds[0]:
                second = self._seconds[0]  # that is in the past, too, and being read: to its end
            else:
                self._ticks[second] = bytearray()
                heappush(self._seconds, second)
        self._ticks[second] += mark

    def next_due(self) -> float | None:
        """When the first may be due."""
        return float(self._seconds[0]) if self._seconds else None

    def due(self, now: float) -> int:
        """About how many are due: one that was swapped in may be counted, too."""
        return sum(len(self._ticks[second]) for second in self._seconds if second <= now) // _FINGERPRINT_BYTES

    def pop(self, now: float) -> bytes | None:
        """The next one that is due."""
        if not self._seconds or self._seconds[0] > now:
            return None
        marks, at = self._ticks[self._seconds[0]], self._read_offset
        self._read_offset += _FINGERPRINT_BYTES
        if self._read_offset >= len(marks):
            del self._ticks[heappop(self._seconds)]
            self._read_offset = 0
        return bytes(marks[at : at + _FINGERPRINT_BYTES])

    def make_due_now(self, now: float) -> None:
        """Makes all of them due now."""
        marks = bytearray().join(self._ticks[second] for second in sorted(self._ticks))
        del marks[: self._read_offset]
        if marks:
            self._ticks, self._seconds, self._read_offset = {int(now): marks}, [int(now)], 0

    def dump(self) -> Iterator[tuple[int, bytes]]:
        """The fingerprints by second."""
        for second, marks in self._ticks.items():
            yield second, bytes(marks[self._read_offset :] if second == self._seconds[0] else marks)

    def load(self, second: int, marks: bytes) -> None:
        """Adds some of a second."""
        if second not in self._ticks:
            self._ticks[second] = bytearray()
            heappush(self._seconds, second)
        self._ticks[second] += marks

    def __iter__(self) -> Iterator[bytes]:
        for marks in self._ticks.values():
            for at in range(0, len(marks), _FINGERPRINT_BYTES):
                yield bytes(marks[at : at + _FINGERPRINT_BYTES])


class SwappedSites:
    """The swapped-out sites of all crawls."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self.clear()

    def clear(self) -> None:
        """Removes all swapped-out sites."""
        self._last_rows = PackedMap()  # the number of each site's last row, and its crawl
        self._due_seconds: dict[int, DueSeconds] = defaultdict(DueSeconds)  # by crawl
        self._counts: Counter[int] = Counter()  # sites by crawl
        self._seed = int.from_bytes(urandom(7))
        self.changes = bytearray()  # since it was written down last
        self.replayed = 0  # bytes of changes that were loaded
        self.hurried = False  # the due times of a whole crawl were changed: the list of changes does not contain that
        self.gone: set[int] = set()  # crawls that are not open any more, and still have sites here

    def __len__(self) -> int:
        return len(self._last_rows)

    def count(self, crawl: int) -> int:
        """How many sites of a crawl are swapped out."""
        return self._counts[crawl]

    def find(self, key: str) -> tuple[int, bool] | None:
        """The crawl that a swapped-out site belongs to, and whether a page swaps it in; None for one that is not
        swapped out."""
        last_row = self._last_rows.get(self._fingerprint_of(key))
        return None if last_row is None else (last_row & _CRAWL_MASK, bool(last_row & _WAKES_BIT))

    def add(self, key: str, crawl: int, row: bytes, due: float, *, wakes: bool = False) -> None:
        """Adds a row to a swapped-out site, or swaps a site out with this row. `wakes`: see `find`."""
        mark = self._fingerprint_of(key)
        before = self._last_rows.get(mark)
        number = self._blobs.put(
            (0 if before is None else before >> _CRAWL_BITS).to_bytes(_BLOB_NUMBER_BYTES, "little") + row
        )
        value = number << _CRAWL_BITS | (_WAKES_BIT if wakes else 0) | crawl
        self._last_rows.put(mark, value)
        if before is None:
            self._due_seconds[crawl].add(mark, due)
            self._counts[crawl] += 1
        self._record_change(mark, value, int(due) if before is None else _DUE_UNCHANGED)

    def remove(self, key: str) -> tuple[int, list[bytes]] | None:
        """Removes a site: returns its crawl, and its rows in order; None if it is not swapped out."""
        mark = self._fingerprint_of(key)
        last_row = self._last_rows.get(mark)
        return None if last_row is None else (last_row & _CRAWL_MASK, self._remove_site(mark, last_row))

    def remove_due(self, crawl: int, now: float) -> list[bytes] | None:
        """Removes a crawl's next site that is due: returns its rows."""
        order = self._due_seconds.get(crawl)
        while order is not None and (mark := order.pop(now)) is not None:
            last_row = self._last_rows.get(mark)
            if last_row is not None and last_row & _CRAWL_MASK == crawl:
                return self._remove_site(mark, last_row)
        return None

    def due(self, now: float) -> int:
        """About how many sites are due."""
        return sum(min(order.due(now), self._counts[crawl]) for crawl, order in self._due_seconds.items())

    def next_due(self, crawl: int) -> float | None:
        """When a crawl's next site may be due."""
        order = self._due_seconds.get(crawl)
        return order.next_due() if order is not None else None

    def make_due_now(self, crawl: int, now: float) -> None:
        """A crawl's sites may be due earlier than recorded."""
        if crawl in self._due_seconds:
            self._due_seconds[crawl].make_due_now(now)
            self.hurried = True

    def rows_of_crawl(self, crawl: int) -> Iterator[list[bytes]]:
        """The rows of each of a crawl's sites, which remain swapped out."""
        seen = PackedMap()  # one that was swapped in meanwhile may be in the order twice
        for mark in self._due_seconds.get(crawl, ()):
            last_row = self._last_rows.get(mark)
            if last_row is None or last_row & _CRAWL_MASK != crawl or seen.get(mark) is not None:
                continue
            seen.put(mark, 0)
            yield self._rows_from(last_row >> _CRAWL_BITS)

    def abandon(self, crawl: int) -> None:
        """A crawl is not open any more: its sites are removed bit by bit (`remove_abandoned`)."""
        if self._counts[crawl]:
            self.gone.add(crawl)

    def remove_abandoned(self) -> list[bytes] | None:
        """Removes a site of such a crawl: returns its rows; None when all are removed."""
        while self.gone:
            crawl = next(iter(self.gone))
            rows = self.remove_due(crawl, float("inf"))
            if rows is not None:
                return rows
            self.gone.discard(crawl)
            self._due_seconds.pop(crawl, None)
        return None

    # ── on the disk ────────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self) -> Iterator[bytes]:
        """The whole part in memory, as records for `load`."""
        mask, split, buckets = self._last_rows.shape()
        yield _encode(("all", self._seed, mask, split, dict(self._counts)))
        for start in range(0, buckets, _BUCKETS_PER_RECORD):
            yield _encode(("sites", *self._last_rows.piece(start, _BUCKETS_PER_RECORD)))
        for crawl, order in self._due_seconds.items():
            seconds = order.dump()
            while some := list(islice(seconds, _BUCKETS_PER_RECORD)):
                yield _encode(("order", crawl, some))

    @staticmethod
    def change_record(changes: bytes) -> bytes:
        """The changes since the last record, as a record for `load`."""
        return _encode(("changes", changes))

    def load(self, record: bytes) -> None:
        """Loads the next record."""
        kind, *content = msgspec.msgpack.decode(record)
        if kind == "all":
            self.clear()
            self._seed, mask, split, counts = content
            self._last_rows.reset(mask, split)
            self._counts = Counter(counts)
        elif kind == "sites":
            self._last_rows.load(*content)
        elif kind == "order":
            crawl, seconds = content
            for second, marks in seconds:
                self._due_seconds[crawl].load(second, marks)
        else:
            self._apply_changes(content[0])

    def _apply_changes(self, changes: bytes) -> None:
        self.replayed += len(changes)
        for at in range(0, len(changes), CHANGE_BYTES):
            mark = changes[at : at + _FINGERPRINT_BYTES]
            value = int.from_bytes(changes[at + _FINGERPRINT_BYTES : at + _FINGERPRINT_BYTES + _VALUE], "little")
            due = int.from_bytes(changes[at + _FINGERPRINT_BYTES + _VALUE : at + CHANGE_BYTES], "little")
            if not value:
                before = self._last_rows.pop(mark)
                if before is not None:
                    self._counts[before & _CRAWL_MASK] -= 1
                continue
            self._last_rows.put(mark, value)
            if due != _DUE_UNCHANGED:
                self._due_seconds[value & _CRAWL_MASK].add(mark, due)
                self._counts[value & _CRAWL_MASK] += 1

    def crawls(self) -> list[int]:
        """The numbers of the crawls that have sites here."""
        return [crawl for crawl, count in self._counts.items() if count]

    def _record_change(self, mark: bytes, value: int, due: int) -> None:
        """Records a change. Negative times are in the past, as zero is."""
        self.changes += mark + value.to_bytes(_VALUE, "little") + max(due, 0).to_bytes(_DUE, "little")

    def _fingerprint_of(self, key: str) -> bytes:
        return xxh3_64_digest(key.encode(), self._seed)

    def _remove_site(self, mark: bytes, last_row: int) -> list[bytes]:
        self._last_rows.pop(mark)
        self._counts[last_row & _CRAWL_MASK] -= 1
        self._record_change(mark, 0, 0)
        return self._rows_from(last_row >> _CRAWL_BITS, drop=True)

    def _rows_from(self, number: int, *, drop: bool = False) -> list[bytes]:
        """The rows of a site from its last one back to its first, in order."""
        rows = []
        while number:
            blob = self._blobs.get(number)
            rows.append(blob[_BLOB_NUMBER_BYTES:])
            if drop:
                self._blobs.drop(number)
            number = int.from_bytes(blob[:_BLOB_NUMBER_BYTES], "little")
        rows.reverse()
        return rows
