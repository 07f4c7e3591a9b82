"""A set of host names or origins: a plain one while they are few, fingerprints of eight bytes when they are many."""

from __future__ import annotations

from collections.abc import Iterable
from random import getrandbits

from weft.frontier.seen.seen_set import SeenSet

_MOST_PLAIN_NAMES = 10_000


class NameSet:
    """A set of names that may grow to millions of entries without holding the names themselves."""

    __slots__ = ("_fingerprints", "_plain_names")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._plain_names: set[str] = set()
        self._fingerprints: SeenSet | None = None
        for name in names:
            self.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._plain_names if self._fingerprints is None else name in self._fingerprints

    def __len__(self) -> int:
        return len(self._plain_names) if self._fingerprints is None else len(self._fingerprints)

    def add(self, name: str) -> bool:
        """Adds a name; False if it was there."""
        if self._fingerprints is not None:
            return self._fingerprints.add(name)
        before = len(self._plain_names)
        self._plain_names.add(name)
        if len(self._plain_names) > _MOST_PLAIN_NAMES:
            self._fingerprints = SeenSet(getrandbits(63))
            self._fingerprints.add_new(self._plain_names)
            self._plain_names = set()
            return True
        return len(self._plain_names) > before
