"""What a process knows to be seen already: most links of a page are, and need not travel.

Two generations of fingerprints, so that memory is bounded: when the younger is full, the older is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.frontier.seen import SeenSet

MOST = 1_000_000  # of each generation, at some nine bytes


class KnownUrls:
    """A bounded memory of one crawl's URLs."""

    def __init__(self, seed: int, most: int = MOST) -> None:
        self._seed = seed
        self._most = most
        self._young, self._old = SeenSet(seed), SeenSet(seed)

    def unknown(self, urls: Iterable[str]) -> list[str]:
        """Those that nothing is known of; they may be seen all the same."""
        new = self._young.unknown(urls)
        return self._old.unknown(new) if new and len(self._old) else new

    def add(self, urls: Iterable[str]) -> None:
        """These are seen."""
        self._young.add_new(urls)
        if len(self._young) >= self._most:
            self._old, self._young = self._young, SeenSet(self._seed)

    def forget(self) -> None:
        """The server has lost data: nothing is certain any more."""
        self._young, self._old = SeenSet(self._seed), SeenSet(self._seed)
