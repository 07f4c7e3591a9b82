"""Which URLs a crawl has seen: exact 64-bit fingerprints at under 8 bytes each.

A Python set would take 60 bytes and more for each. Here fingerprints lie end to end in small `bytes` buckets that are
searched with `find`; the table grows by splitting one bucket at a time (linear hashing), so that adding costs the same
at a thousand URLs as at a hundred million, and there is no pause in which everything is rehashed. A fingerprint's last
byte equals that of its bucket's number, so seven are kept.

The hash is seeded for each crawl, so that a site cannot construct URLs that collide with those of another.

A new link is looked up first and added when the rules have let it in. The second time its bucket need not be searched
again: what a look-up did not find is remembered with its fingerprint until it is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from weft.records import Found, Purpose

_ENTRIES = 48  # fingerprints a bucket holds on average: fewer are faster to search and to copy, more waste less memory
_FIRST = 256  # buckets at the start: with fewer, the bucket number would not determine a fingerprint's last byte
_KEPT = 7  # bytes of a fingerprint that are stored in its bucket
_PIECE = 1024  # buckets dumped together
_MISSED = 4096  # URLs remembered as missing: more than the pages of a round link to


class SeenSet:
    """A set of URLs, by fingerprint."""

    __slots__ = ("_buckets", "_count", "_mask", "_missed", "_seed", "_split")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._buckets: list[bytes] = [b""] * _FIRST
        self._mask = _FIRST - 1  # for the buckets that are not split yet in this round
        self._split = 0  # the next bucket to split
        self._count = 0
        self._missed: dict[str, int] = {}  # fingerprints of URLs that were looked up, and are not in the set

    def __len__(self) -> int:
        return self._count

    def __contains__(self, url: str) -> bool:
        fingerprint = xxh3_64_digest(url.encode(), self._seed)
        return _has(self._buckets[self._place(fingerprint)], fingerprint[:_KEPT])

    def unknown(self, urls: Iterable[str]) -> list[str]:
        """Those that are not in the set, in order."""
        seed, buckets, mask, split = self._seed, self._buckets, self._mask, self._split
        if len(self._missed) > _MISSED:
            self.forget_missed()
        new, missed = [], self._missed
        for url in urls:
            fingerprint = xxh3_64_digest(url.encode(), seed)
            number = int.from_bytes(fingerprint, "big")
            place = number & mask
            if place < split:
                place = number & (mask * 2 + 1)
            bucket, entry = buckets[place], fingerprint[:7]
            at = bucket.find(entry)
            # A hit that is not at a multiple of 7 straddles two fingerprints: search entry by entry.
            if at < 0 or (at % 7 and not _has(bucket, entry)):
                new.append(url)
                missed[url] = number
        return new

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
        new = []
        seed, buckets, take_missed = self._seed, self._buckets, self._missed.pop
        mask, split, room = self._mask, self._split, len(self._buckets) * _ENTRIES - self._count
        for url in urls:
            number = take_missed(url, None)
            is_missed = number is not None
            if number is None:
                number = int.from_bytes(xxh3_64_digest(url.encode(), seed), "big")
            place = number & mask
            if place < split:
                place = number & (mask * 2 + 1)
            bucket, entry = buckets[place], (number >> 8).to_bytes(7, "big")
            if not is_missed and (at := bucket.find(entry)) >= 0 and (not at % 7 or _has(bucket, entry)):
                continue
            buckets[place] = bucket + entry
            new.append(url)
            room -= 1
            if room < 0:
                self._split_one()
                mask, split, room = self._mask, self._split, room + _ENTRIES
        self._count += len(new)
        return new

    def discard(self, url: str) -> None:
        """Removes one, so that it is new when it is found again."""
        fingerprint = xxh3_64_digest(url.encode(), self._seed)
        place = self._place(fingerprint)
        kept = [entry for entry in _entries(self._buckets[place]) if entry != fingerprint[:_KEPT]]
        self._count -= len(self._buckets[place]) // _KEPT - len(kept)
        self._buckets[place] = b"".join(kept)

    def shape(self) -> tuple[int, int, int]:
        """The table's dimensions, for `reset_to` before the pieces of `dump` are loaded."""
        return self._mask, self._split, len(self._buckets)

    def dump(self) -> Iterator[tuple[list[int], bytes]]:
        """All fingerprints in pieces: the sizes of some buckets, and their content end to end."""
        for start in range(0, len(self._buckets), _PIECE):
            buckets = self._buckets[start : start + _PIECE]
            yield list(map(len, buckets)), b"".join(buckets)

    def reset_to(self, shape: tuple[int, int, int]) -> int:
        """Empties the set for a dump of that shape; returns the number of its pieces."""
        self._mask, self._split, buckets = shape
        self._buckets.clear()
        self._count = 0
        self.forget_missed()
        return -(-buckets // _PIECE)

    def load(self, piece: tuple[list[int], bytes]) -> None:
        """Adds the next dumped piece."""
        sizes, content = piece
        at = 0
        for size in sizes:
            self._buckets.append(content[at : at + size])
            at += size
        self._count += len(content) // _KEPT

    def _place(self, fingerprint: bytes) -> int:
        number = int.from_bytes(fingerprint[4:], "big")
        place = number & self._mask
        return place if place >= self._split else number & (self._mask * 2 + 1)

    def _split_one(self) -> None:
        # The bit that the split decides by lies within the seven stored bytes: in which of them, and where.
        shift = (self._mask + 1).bit_length() - 1
        column, bit = 7 - shift // 8, 1 << shift % 8
        bucket = self._buckets[self._split]
        moves = bucket[column::_KEPT]
        self._buckets[self._split] = b"".join(
            [bucket[at * 7 : at * 7 + 7] for at, byte in enumerate(moves) if not byte & bit]
        )
        self._buckets.append(b"".join([bucket[at * 7 : at * 7 + 7] for at, byte in enumerate(moves) if byte & bit]))
        self._split += 1
        if self._split > self._mask:
            self._mask, self._split = self._mask * 2 + 1, 0


def seen_key(found: Found) -> str:
    """The key of a URL in the seen set. A redirect may lead back into its own chain (a cookie wall): each such hop has
    a key of its own, and only the limit on hops ends the chain."""
    if found.purpose is Purpose.SITEMAP:
        return "sitemap " + found.url
    if found.hops and found.url in found.about.split(" "):
        return f"hop {found.hops} {found.url}"
    return found.url


def _entries(bucket: bytes) -> list[bytes]:
    return [bucket[at : at + _KEPT] for at in range(0, len(bucket), _KEPT)]


def _has(bucket: bytes, entry: bytes) -> bool:
    at = bucket.find(entry)
    while at >= 0 and at % _KEPT:
        at = bucket.find(entry, at + 1)
    return at >= 0
