"""A process's cache of seen URLs: most links of a page are in it, and need not be sent to the server.

Two generations of fingerprints bound its memory: when the younger is full, the older is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.frontier.seen.seen_set import SeenSet

MOST_FINGERPRINTS = 1_000_000  # fingerprints in a generation, at some nine bytes each


class KnownUrls:
    """A bounded cache of one crawl's seen URLs."""

    def __init__(self, seed: int, most: int = MOST_FINGERPRINTS) -> None:
        self._seed = seed
        self._most = most
        self._young, self._old = SeenSet(seed), SeenSet(seed)

    def unknown(self, urls: Iterable[str]) -> list[str]:
        """The URLs that are not in the cache; they may be seen all the same."""
        new = self._young.unknown(urls)
        return self._old.unknown(new) if new and len(self._old) else new

    def add(self, urls: Iterable[str]) -> None:
        """Adds seen URLs."""
        self._young.add_new(urls)
        if len(self._young) >= self._most:
            self._old, self._young = self._young, SeenSet(self._seed)

    def forget(self) -> None:
        """Empties the cache: the server has lost data, and perhaps their fingerprints."""
        self._young, self._old = SeenSet(self._seed), SeenSet(self._seed)
