"""A set of host names or origins: a plain one while they are few, fingerprints of eight bytes when they are many."""

from __future__ import annotations

from collections.abc import Iterable
from random import getrandbits

from weft.frontier.seen.seen_set import SeenSet

_FEW = 10_000


class NameSet:
    """A set of names that may grow to millions of entries without holding the names themselves."""

    __slots__ = ("_few", "_many")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._few: set[str] = set()
        self._many: SeenSet | None = None
        for name in names:
            self.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._few if self._many is None else name in self._many

    def __len__(self) -> int:
        return len(self._few) if self._many is None else len(self._many)

    def add(self, name: str) -> bool:
        """Adds a name; False if it was there."""
        if self._many is not None:
            return self._many.add(name)
        before = len(self._few)
        self._few.add(name)
        if len(self._few) > _FEW:
            self._many = SeenSet(getrandbits(63))
            self._many.add_new(self._few)
            self._few = set()
            return True
        return len(self._few) > before
